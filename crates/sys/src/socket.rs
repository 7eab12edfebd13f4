//! Sockets: making them, their options with read-back, their memory and queues.

mod apart;
mod brief;
mod destination;
mod many;
mod open;
mod option;

pub use apart::{listen_apart, take_no_more};
pub use brief::{
    accept_with_handshake, join_first_data_to_handshake, receive_to_end, send_before_close,
    send_with_handshake,
};
pub use destination::{Arrival, note_arrivals, note_destinations, receive_from, send_from};
pub use many::{BeginError, Begun, accept, accept_blocking, begin_connect, is_established};
pub use open::{
    Connecting, ListenOptions, Mptcp, connect, connect_bounded, listen, mptcp_supported,
    tcp_socket, udp_socket,
};
pub use option::{
    BufferLocks, MptcpInfo, OptionError, SocketMemory, bind_device, bound_waits, buffer_locks,
    busy_poll, congestion, defer_accept, end_without_sign_of_life, max_pacing_rate, memory,
    mptcp_info, namespace_cookie, nodelay, notsent, path_mtu, quickack, receive_buffer,
    receive_timeout, reset_on_close, send_buffer, set_busy_poll, set_congestion, set_defer_accept,
    set_max_pacing_rate, set_mss, set_nodelay, set_quickack, set_receive_buffer, set_send_buffer,
    set_thin_linear_timeouts, set_traffic_class, set_user_timeout, set_window_clamp,
    thin_linear_timeouts, unread,
};
pub(crate) use option::{read_bytes, set};
