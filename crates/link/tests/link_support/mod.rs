//! Drives a link in virtual time.

use linerate_link::{Delivery, Link, Packet};
use linerate_units::{Ecn, Nanos};

/// A packet without ECN.
pub(crate) fn packet(id: u64, ip_bytes: u32) -> Packet {
    Packet { id, ip_bytes, ecn: Ecn::NotEct }
}

/// Offers all packets, fetches what happens when the link asks for it, and leaves the link empty.
pub(crate) fn drive(
    link: &mut Link,
    arrivals: impl IntoIterator<Item = (Nanos, Packet)>,
) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    for (at, packet) in arrivals {
        fetch_until(link, at, &mut deliveries);
        link.handle_packet(at, packet);
    }
    fetch_until(link, Nanos(u64::MAX), &mut deliveries);
    deliveries
}

fn fetch_until(link: &mut Link, end: Nanos, deliveries: &mut Vec<Delivery>) {
    while let Some(due) = link.poll_timeout().filter(|due| *due < end) {
        deliveries.extend(std::iter::from_fn(|| link.poll_deliver(due)));
    }
}
