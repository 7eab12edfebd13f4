//! Sockets: making them, their options with read-back, their memory and queues.

mod apart;
mod bare;
mod brief;
mod destination;
mod many;
mod open;
mod option;
mod state;

pub use apart::{listen_apart, take_no_more};
pub use bare::{receive, send};
pub use brief::{
    accept_with_handshake, join_first_data_to_handshake, receive_to_end, send_before_close,
    send_with_handshake,
};
pub use destination::{Arrival, note_arrivals, note_destinations, receive_from, send_from};
pub use many::{Begun, accept, accept_blocking, begin_connect, is_established};
#[cfg(test)]
pub(crate) use open::tests::mptcp_supported;
pub use open::{
    Connecting, ListenOptions, Mptcp, any, connect, connect_bounded, listen, stop_listening,
    takes_both_families, tcp_socket, tcp_socket_from, udp_socket,
};
pub use option::{
    BufferLocks, OptionError, bind_device, bound_waits, buffer_locks, busy_poll, congestion,
    end_without_sign_of_life, max_pacing_rate, nodelay, path_mtu, quickack, receive_buffer,
    reset_on_close, send_buffer, set_busy_poll, set_congestion, set_defer_accept,
    set_max_pacing_rate, set_mss, set_nodelay, set_quickack, set_receive_buffer, set_send_buffer,
    set_thin_linear_timeouts, set_traffic_class, set_window_clamp,
};
pub(crate) use option::{read_bytes, set};
pub use state::{MptcpInfo, SocketMemory, memory, mptcp_info, namespace_cookie, notsent, unread};
