//! One direction of a run, wherever the record keeps it.

use linerate_core::ceilings::{Ceiling, Verdict};
use linerate_core::plan::Direction;
use linerate_core::record::{
    Directional, EndReport, FlowRecord, Interval, Record, TcpEvidence, UdpEvidence,
};

/// What is told of one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leg<'a> {
    pub(super) record: &'a Record,
    /// `Up` or `Down`.
    pub(super) direction: Direction,
    pub(super) throughput_bps: Option<f64>,
    pub(super) tcp: Option<&'a TcpEvidence>,
    pub(super) udp: Option<&'a UdpEvidence>,
    pub(super) sender: Option<&'a EndReport>,
    pub(super) receiver: Option<&'a EndReport>,
    pub(super) ceilings: &'a [Ceiling],
    pub(super) verdict: Option<&'a Verdict>,
}

impl<'a> Leg<'a> {
    /// The directions of a record: `up` before `down` where both ran, else the record itself.
    pub(super) fn all(record: &'a Record) -> Vec<Self> {
        let both: Vec<Self> = Direction::Both
            .parts()
            .iter()
            .filter_map(|&direction| {
                let part = record.directions.get(&crate::key_of(&direction))?;
                Some(Self::part(record, direction, part))
            })
            .collect();
        if both.is_empty() {
            vec![Self::whole(record)]
        } else {
            both
        }
    }

    fn whole(record: &'a Record) -> Self {
        Self {
            record,
            direction: record.direction,
            throughput_bps: record.throughput_bps,
            tcp: record.tcp.as_ref(),
            udp: record.udp.as_ref(),
            sender: record.sender.as_ref(),
            receiver: record.receiver.as_ref(),
            ceilings: &record.ceilings,
            verdict: record.verdict.as_ref(),
        }
    }

    fn part(record: &'a Record, direction: Direction, part: &'a Directional) -> Self {
        Self {
            record,
            direction,
            throughput_bps: Some(part.throughput_bps),
            tcp: part.tcp.as_ref(),
            udp: part.udp.as_ref(),
            sender: part.sender.as_ref(),
            receiver: part.receiver.as_ref(),
            ceilings: &part.ceilings,
            verdict: part.verdict.as_ref(),
        }
    }

    /// Flows of this direction.
    pub(super) fn flows(&self) -> Vec<&'a FlowRecord> {
        let mine = |flow: &&FlowRecord| {
            self.record.directions.is_empty() || flow.direction == self.direction
        };
        self.record.flows.iter().filter(mine).collect()
    }

    /// Intervals of this direction.
    pub(super) fn intervals(&self) -> Vec<&'a Interval> {
        let mine = |interval: &&Interval| {
            interval
                .direction
                .is_none_or(|direction| direction == self.direction)
        };
        self.record.intervals.iter().filter(mine).collect()
    }

    /// Why the host-wide service demand of an end means nothing, if it does not.
    pub(super) fn service_demand_doubt(&self) -> Option<&'static str> {
        let ends = [self.sender, self.receiver];
        let meaningless = ends
            .iter()
            .flatten()
            .any(|end| end.service_demand_meaningful == Some(false));
        if self.record.environment.shared_kernel {
            Some("not meaningful: both ends share one kernel")
        } else if meaningless {
            Some("not meaningful: idle CPUs were kept awake")
        } else {
            None
        }
    }
}
