//! The evidence of a connection, for the rules.

use std::net::SocketAddr;

use super::document::{Connection, Vantage};
use crate::ceilings::View;
use crate::plan::Protocol;
use crate::record::{Environment, Interval};
use crate::remedy::Target;
use crate::units::Family;

/// A connection as one TCP flow of which one end was seen; nothing was asked of it. `None` if it
/// carried nothing.
pub(super) fn view<'a>(
    connection: &'a Connection,
    environment: &'a Environment,
) -> Option<View<'a>> {
    if connection.bytes() == 0 || connection.seconds <= 0.0 {
        return None;
    }
    let mut seconds = connection.seconds;
    let mut throughput_bps = connection.throughput_bps;
    let mut bytes = connection.bytes();
    if let Some(settled) = connection.settled {
        seconds -= settled.from_s;
        throughput_bps = settled.throughput_bps;
        bytes = (throughput_bps * seconds / 8.0) as u64;
    }
    let is_explained = |it: &&Interval| connection.settled.is_none_or(|s| it.start_s >= s.from_s);
    let intervals = connection.intervals.iter().filter(is_explained);
    let tcp = connection.tcp.as_ref();
    let end = |vantage| connection.end.as_ref().filter(|_| connection.vantage == vantage);
    let [sender_host, receiver_host] = environment.hosts_of(connection.direction);
    let addresses = [&connection.local, &connection.remote].map(|text| {
        let address: SocketAddr = text.parse().ok()?;
        Some(address.ip())
    });
    let view = View {
        direction: connection.direction,
        is_both: false,
        protocol: Protocol::Tcp,
        family: addresses[1].map_or(Family::Ipv4, Family::from),
        seconds,
        // A beginning that was not seen, or is left out, was most likely slow start.
        has_slow_start: connection.began && connection.settled.is_none(),
        throughput_bps,
        steps: connection.steps,
        interval_rates_bps: intervals.map(|it| it.throughput_bps).collect(),
        flows: tcp.map(|tcp| (bytes, tcp)).into_iter().collect(),
        total: (bytes, tcp),
        tcp: Vec::new(),
        udp: Vec::new(),
        sender: end(Vantage::Sender),
        receiver: end(Vantage::Receiver),
        sender_host,
        receiver_host,
        has_one_kernel: environment.shared_kernel,
        train: None,
        asked: None,
        target: Target::OtherProgram(addresses[1]),
        addresses,
    };
    Some(view.with_senders())
}
