//! A connection as a record of which one end is known.

use std::net::SocketAddr;
use std::time::Duration;

use super::document::Connection;
use crate::plan::Test;
use crate::record::{Environment, FlowRecord, Record};
use crate::units::{Family, Span};

/// One TCP flow of which one end was seen. Nothing was asked of it, so that its plan says nothing.
/// `None` for one that sent nothing.
pub(super) fn record(connection: &Connection, environment: &Environment) -> Option<Record> {
    if connection.bytes() == 0 || connection.seconds <= 0.0 {
        return None;
    }
    let mut plan = Test::stream().resolve(0).ok()?;
    plan.direction = connection.direction;
    // What it did before is left out, slow start most likely.
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
