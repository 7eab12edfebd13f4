//! The size of a socket buffer that fills a path.

/// Buffer with which a connection fills a path that holds `product_bytes` (rate × round-trip time),
/// bytes: twice that, since about half of it is payload (`tcp_win_from_space`, include/net/tcp.h)
/// and a queue wants room; more where less than half of it is known to be. A power of two, as
/// buffers of large transfers are by custom, that the kernel takes.
pub(crate) fn buffer_for(product_bytes: f64, payload_share: Option<f64>) -> u64 {
    let times = payload_share.map_or(2.0, |share| (ROOM / share).max(2.0));
    power_of_two(times * product_bytes)
}

/// A size at least as large that the kernel takes for a buffer.
pub(crate) fn power_of_two(bytes: f64) -> u64 {
    // The cast saturates.
    (bytes.ceil() as u64).clamp(MIN_BUFFER, MAX_BUFFER).next_power_of_two()
}

/// What is in flight over the product of rate and delay: acknowledgements come in batches, and what
/// they free is not filled at once.
const ROOM: f64 = 1.25;
/// Smallest buffer worth asking for, bytes.
const MIN_BUFFER: u64 = 65_536;
/// Largest power of two that the kernel takes for a buffer, bytes.
pub(crate) const MAX_BUFFER: u64 = 1 << 30;
