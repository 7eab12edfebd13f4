//! Turns a connection into a record of one end.

use std::net::SocketAddr;
use std::time::Duration;

use super::document::Connection;
use crate::plan::Test;
use crate::record::{Environment, FlowRecord, Record};
use crate::units::{Family, Span};

/// The record of one TCP flow of which one end was seen. Its plan has no meaning, since nothing was
/// asked of it. `None` if the connection carried nothing.
pub(super) fn record(connection: &Connection, environment: &Environment) -> Option<Record> {
    if connection.bytes() == 0 || connection.seconds <= 0.0 {
        return None;
    }
    let mut plan = Test::stream().resolve(0).ok()?;
    plan.direction = connection.direction;
    // Its beginning was not seen, or is left out: most likely slow start.
    let left_out = u64::from(!connection.began || connection.settled.is_some());
    plan.warm_up = Span(Duration::from_secs(left_out));
    let mut leg = connection.leg();
    let mut seconds = connection.seconds;
    let mut intervals = connection.intervals.clone();
    if let Some(settled) = connection.settled {
        seconds -= settled.from_s;
        leg.throughput_bps = Some(settled.throughput_bps);
        leg.bytes = (settled.throughput_bps * seconds / 8.0) as u64;
        intervals.retain(|interval| interval.start_s >= settled.from_s);
    }
    let remote: Option<SocketAddr> = connection.remote.parse().ok();
    let host = |address: SocketAddr| address.ip().to_string();
    Some(Record {
        host: remote.map(host).unwrap_or_default(),
        peer: connection.remote.clone(),
        family: remote.map_or(Family::Ipv4, |address| Family::from(address.ip())),
        direction: connection.direction,
        seconds,
        flows: vec![FlowRecord {
            id: 0,
            direction: connection.direction,
            throughput_bps: leg.throughput_bps.unwrap_or_default(),
            bytes: leg.bytes,
            local: connection.local.clone(),
            remote: connection.remote.clone(),
            tcp: leg.tcp.clone(),
            ..FlowRecord::default()
        }],
        intervals,
        legs: vec![leg],
        environment: environment.clone(),
        ..Record::new(plan)
    })
}
