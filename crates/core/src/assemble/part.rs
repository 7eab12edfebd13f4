//! One direction of a run: its flows, totals and intervals.

use crate::plan::{Direction, Protocol, Test};
use crate::record::{FlowRecord, Interval, StepRates};
use crate::session::message::FlowHalf;

use super::MAX_INTERVALS;
use super::evidence::{flow_tcp, flow_udp};

/// One direction with the two ends' accounts of it.
pub(super) struct Part<'a> {
    pub(super) direction: Direction,
    /// (sender's, receiver's) view of each flow; the receiver's is the one that counts.
    pub(super) flows: Vec<(Option<&'a FlowHalf>, Option<&'a FlowHalf>)>,
}

impl<'a> Part<'a> {
    /// The receiver's account, or the sender's where the receiver's was lost.
    fn counted(&self) -> impl Iterator<Item = &'a FlowHalf> + '_ {
        let flows = self.flows.iter();
        flows.filter_map(|(sender, receiver)| receiver.or(*sender))
    }

    /// The account that has a course: the receiver's, unless that is another tool, which tells
    /// none.
    fn with_course(&self) -> impl Iterator<Item = &'a FlowHalf> + '_ {
        self.flows.iter().filter_map(|(sender, receiver)| {
            let with_course = receiver.filter(|flow| !flow.steps.is_empty());
            with_course.or(*sender).or(*receiver)
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.counted().map(|flow| flow.bytes).sum()
    }

    pub(super) fn seconds(&self) -> f64 {
        self.counted().map(|flow| flow.seconds).fold(0.0, f64::max)
    }

    pub(super) fn messages(&self, protocol: Protocol) -> u64 {
        match protocol {
            Protocol::Udp => self.counted().map(|flow| flow.messages).sum(),
            // A TCP receiver has no messages: the sender's writes are counted.
            Protocol::Tcp | Protocol::Mptcp => {
                let senders = self.flows.iter().filter_map(|(sender, _)| *sender);
                senders.map(|flow| flow.messages).sum()
            }
        }
    }

    pub(super) fn flow_records<'b>(
        &'b self,
        test: &'b Test,
    ) -> impl Iterator<Item = FlowRecord> + 'b {
        self.flows.iter().filter_map(|(sender, receiver)| {
            let counted = receiver.or(*sender)?;
            // Addresses as the client sees them: the half whose local end the client is.
            let client = match self.direction {
                Direction::Up | Direction::Both => sender.or(*receiver),
                Direction::Down => receiver.or(*sender),
            }?;
            Some(FlowRecord {
                id: counted.id,
                direction: self.direction,
                throughput_bps: rate(counted.bytes, counted.seconds),
                bytes: counted.bytes,
                local: client.local.clone(),
                remote: client.remote.clone(),
                sender_thread_percent: sender.map(|flow| flow.thread_percent),
                receiver_thread_percent: receiver.map(|flow| flow.thread_percent),
                tcp: flow_tcp(*sender, *receiver),
                udp: flow_udp(test, *sender, *receiver),
                first_sent_us: sender.and_then(|flow| flow.first_us),
                first_received_us: receiver.and_then(|flow| flow.first_us),
            })
        })
    }

    /// Intervals of `width` seconds from the cumulative steps of the flows; wider if there would be
    /// too many.
    pub(super) fn intervals(&self, width: f64, exchange: bool) -> Vec<Interval> {
        let seconds = self.seconds();
        if seconds <= 0.0 || width <= 0.0 {
            return Vec::new();
        }
        // A last piece that is shorter than half an interval belongs to the one before it.
        let count = (seconds / width).round().clamp(1.0, MAX_INTERVALS as f64 / 2.0) as u32;
        let width = if f64::from(count) < seconds / width - 0.5 {
            seconds / f64::from(count)
        } else {
            width
        };
        let interval = |index: u32| {
            let start = f64::from(index) * width;
            let is_last = index + 1 == count;
            let end = if is_last { seconds } else { start + width };
            let flows = self.with_course();
            let bytes =
                flows.map(|flow| at(&flow.steps, end).saturating_sub(at(&flow.steps, start)));
            let bytes: u64 = bytes.sum();
            let mut interval = Interval {
                start_s: start,
                seconds: end - start,
                bytes,
                throughput_bps: rate(bytes, end - start),
                ..Interval::default()
            };
            if !exchange {
                self.add_tcp(&mut interval, start, end);
            }
            interval
        };
        (0..count).map(interval).collect()
    }

    /// As many steps as the course has readings.
    pub(super) fn steps(&self) -> Option<StepRates> {
        let count = self.with_course().map(|flow| flow.steps.len()).min()?;
        let step_s = self.seconds() / count as f64;
        let total = |index: usize| -> u64 {
            let flows = self.with_course();
            flows.map(|flow| at(&flow.steps, index as f64 * step_s)).sum()
        };
        let passed = (0..count).map(|index| total(index + 1).saturating_sub(total(index)));
        StepRates::new(passed.map(|bytes| rate(bytes, step_s)).collect(), step_s)
    }

    fn add_tcp(&self, interval: &mut Interval, start: f64, end: f64) {
        let inside = |at_us: u64| {
            let at = at_us as f64 / 1e6;
            at > start && at <= end + 1e-6
        };
        let (mut rtts, mut cwnd, mut notsent) = (Vec::new(), 0, 0);
        let (mut retransmitted, mut seen) = (0, false);
        for sender in self.flows.iter().filter_map(|(sender, _)| *sender) {
            let samples: Vec<_> = sender.samples.iter().filter(|s| inside(s.at_us)).collect();
            let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
                continue;
            };
            seen = true;
            rtts.extend(samples.iter().map(|s| f64::from(s.rtt_us)));
            cwnd += last.cwnd_bytes;
            notsent += last.notsent_bytes;
            let mut earlier = sender.samples.iter().rev();
            let before = earlier.find(|s| s.at_us < first.at_us).unwrap_or(first);
            let (now, before) = (last.retransmitted_segments, before.retransmitted_segments);
            retransmitted += now.saturating_sub(before);
        }
        if seen {
            interval.rtt_us = Some(rtts.iter().sum::<f64>() / rtts.len() as f64);
            interval.cwnd_bytes = Some(cwnd);
            interval.notsent_bytes = Some(notsent);
            interval.retransmitted_segments = Some(retransmitted);
        }
    }
}

/// The total at `seconds`, interpolated between the steps.
fn at(steps: &[(u64, u64)], seconds: f64) -> u64 {
    let us = seconds * 1e6;
    let after = steps.partition_point(|(at, _)| (*at as f64) < us);
    let (from_us, from) = match after.checked_sub(1) {
        Some(before) => steps[before],
        None => (0, 0),
    };
    let Some(&(to_us, to)) = steps.get(after) else {
        return from;
    };
    if to_us <= from_us {
        return to;
    }
    let share = (us - from_us as f64) / (to_us - from_us) as f64;
    from + ((to.saturating_sub(from)) as f64 * share).round() as u64
}

pub(super) fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}
