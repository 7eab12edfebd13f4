//! The part of a connection of a capture that is explained: everything after slow start.

use crate::capture::{Reading, Retransmitted, Sent};

/// A direction from the end of its slow start on, or all of it if that end is not seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steady<'a> {
    pub(super) sent: &'a Sent,
    pub(super) readings: &'a [Reading],
    before: Option<&'a Reading>,
}

impl<'a> Steady<'a> {
    /// Leaves out the first third, if by its end as much was in flight as later.
    pub(super) fn new(sent: &'a Sent) -> Self {
        let all = &sent.readings;
        let whole = Self { sent, readings: all, before: None };
        let third = all.partition_point(|reading| {
            let began = all[0].at - all[0].length;
            (reading.at - began).0 < sent.lasted.0 / 3
        });
        let usual = whole.flight(0.5).unwrap_or(0);
        let reached = all.iter().position(|r| r.in_flight * 10 >= usual * 7);
        let is_settled = third > 0 && reached.is_some_and(|at| at < third);
        match all.split_at_checked(third) {
            Some((left_out, later)) if is_settled && later.len() >= FEWEST => {
                Self { sent, readings: later, before: left_out.last() }
            }
            _ => whole,
        }
    }

    /// Its beginning, seconds after the first data; `None` if nothing is left out.
    pub(super) fn begins_s(&self) -> Option<f64> {
        let (first, before) = (self.sent.readings.first()?, self.before?);
        let began = first.at - first.length;
        Some((before.at - began).0 as f64 / 1e9)
    }

    pub(super) fn bytes(&self) -> u64 {
        let last = self.readings.last().map_or(0, |last| last.bytes);
        last.saturating_sub(self.bytes_before())
    }

    pub(super) fn bytes_before(&self) -> u64 {
        self.before.map_or(0, |before| before.bytes)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.time(|_| 1.0)
    }

    /// Payload bits per second.
    pub(super) fn throughput_bps(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.bytes() as f64 * 8.0 / seconds } else { 0.0 }
    }

    /// The sum of a share of the time of each reading, seconds.
    pub(super) fn time(&self, share: impl Fn(&Reading) -> f64) -> f64 {
        let times = self.readings.iter().map(|r| r.length.0 as f64 * share(r));
        times.sum::<f64>() / 1e9
    }

    pub(super) fn retransmitted(&self) -> Retransmitted {
        match (self.readings.last(), self.before) {
            (Some(last), Some(before)) => last.retransmitted.since(&before.retransmitted),
            _ => self.sent.retransmitted,
        }
    }

    /// Bytes in flight when losses came.
    pub(super) fn loss_flights(&self) -> &'a [u64] {
        let before = self.before.map_or(0, |b| b.retransmitted.episodes) as usize;
        self.sent.loss_flights.get(before..).unwrap_or_default()
    }

    /// The quantile of the bytes in flight at this share of the readings.
    pub(super) fn flight(&self, share: f64) -> Option<u64> {
        super::capture::quantile(self.flights(), share)
    }

    /// The windows that the receiver offered, bytes.
    pub(super) fn windows(&self) -> Vec<u64> {
        self.readings.iter().map(|reading| reading.window).collect()
    }

    pub(super) fn flights(&self) -> Vec<u64> {
        let flights = self.readings.iter().map(|reading| reading.in_flight);
        flights.filter(|bytes| *bytes > 0).collect()
    }

    /// Round trips of the readings, µs.
    pub(super) fn rtts_us(&self) -> Vec<u64> {
        let rtts = self.readings.iter().filter_map(|r| Some(r.rtt?.0 / 1000));
        rtts.collect()
    }
}

/// Fewest readings.
const FEWEST: usize = 6;
