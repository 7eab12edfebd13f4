//! Divides a test into iperf3's intervals, and sums up what both ends counted.

use linerate_core::foreign::iperf3::{StreamResult, stream_id};
use linerate_core::plan::{Direction, Extent, Protocol, Test, Traffic};
use linerate_engine::{Accounts, LiveFlow, LiveTcp};

/// The facts about a test that its output needs.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) is_client: bool,
    pub(super) test: Test,
    pub(super) cookie: String,
    pub(super) mss: Option<u32>,
    pub(super) interval_s: f64,
}

impl Facts {
    pub(super) fn is_udp(&self) -> bool {
        self.test.protocol == Protocol::Udp
    }

    pub(super) fn is_both_ways(&self) -> bool {
        self.test.direction == Direction::Both
    }

    /// Whether this end sends, alone or beside the other.
    pub(super) fn sends(&self) -> bool {
        self.is_both_ways() || (self.test.direction == Direction::Up) == self.is_client
    }

    /// Bytes of a block or datagram.
    pub(super) fn block(&self) -> u64 {
        self.test.traffic.message_bytes()
    }

    /// Bits per second of a stream; 0 without a limit.
    pub(super) fn rate(&self) -> u64 {
        match &self.test.traffic {
            Traffic::Stream(stream) => stream.rate_bps.or(stream.write_rate_bps).map_or(0, |r| r.0),
            _ => 0,
        }
    }

    pub(super) fn offload(&self) -> bool {
        matches!(&self.test.traffic, Traffic::Stream(stream) if stream.offload)
    }

    /// Seconds, bytes and blocks of all streams of a direction; two of them are 0.
    pub(super) fn extent(&self) -> (u64, u64, u64) {
        let streams = u64::from(self.test.streams);
        match self.test.extent {
            Extent::Time(time) => (time.as_secs_f64() as u64, 0, 0),
            Extent::Bytes(bytes) => (0, bytes.0 * streams, 0),
            Extent::Count(count) => (0, 0, count * streams),
        }
    }

    pub(super) fn omit_s(&self) -> u64 {
        self.test.warm_up.as_secs_f64() as u64
    }

    /// The number that iperf3 prints for a flow: the file descriptor that it would have in iperf3.
    pub(super) fn socket(&self, flow: u32) -> u32 {
        5 + flow * if self.is_client { 2 } else { 3 }
    }
}

/// One stream in one interval.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) flow: u32,
    pub(super) sends: bool,
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    pub(super) bytes: u64,
    pub(super) retransmits: u64,
    pub(super) tcp: Option<LiveTcp>,
    pub(super) packets: u64,
    pub(super) lost: u64,
    pub(super) jitter_ms: f64,
    pub(super) omitted: bool,
}

impl Row {
    /// The sum of all streams of a direction.
    pub(super) fn sum(rows: &[&Self]) -> Option<Self> {
        let first = *rows.first()?;
        let total = |of: fn(&Self) -> u64| rows.iter().map(|row| of(row)).sum();
        Some(Self {
            bytes: total(|row| row.bytes),
            retransmits: total(|row| row.retransmits),
            packets: total(|row| row.packets),
            lost: total(|row| row.lost),
            jitter_ms: rows.iter().map(|row| row.jitter_ms).sum::<f64>() / rows.len() as f64,
            ..first.clone()
        })
    }

    pub(super) fn seconds(&self) -> f64 {
        self.end_s - self.start_s
    }

    /// Bytes per second.
    pub(super) fn rate(&self) -> f64 {
        per_second(self.bytes, self.seconds())
    }

    pub(super) fn lost_percent(&self) -> f64 {
        percent(self.lost, self.packets)
    }
}

pub(super) fn per_second(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
}

pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole > 0 { 100.0 * part as f64 / whole as f64 } else { 0.0 }
}

/// Extremes of a TCP sender through the run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Peaks {
    pub(super) cwnd: u64,
    pub(super) window: u64,
    pub(super) max_rtt: u32,
    pub(super) min_rtt: u32,
    sum_rtt: u64,
    count: u64,
    pub(super) reordering: u32,
}

impl Peaks {
    fn take(&mut self, tcp: &LiveTcp) {
        self.cwnd = self.cwnd.max(tcp.cwnd);
        self.window = self.window.max(tcp.window);
        self.max_rtt = self.max_rtt.max(tcp.rtt_us);
        self.min_rtt = match self.min_rtt {
            0 => tcp.rtt_us,
            least => least.min(tcp.rtt_us),
        };
        self.sum_rtt += u64::from(tcp.rtt_us);
        self.count += 1;
        self.reordering = tcp.reordering;
    }

    pub(super) fn mean_rtt(&self) -> u64 {
        self.sum_rtt.checked_div(self.count).unwrap_or(0)
    }
}

/// Divides a running test into intervals: first those of the omitted time, then the others.
#[derive(Debug)]
pub(super) struct Iperf3Course {
    width_s: f64,
    omit_s: f64,
    omitting: bool,
    /// When the omitted time ended.
    base_s: f64,
    due_s: f64,
    /// The time and the flows at the beginning of the interval.
    from: Option<(f64, Vec<LiveFlow>)>,
    peaks: Vec<Peaks>,
}

/// Part of an interval by which it may end early: samples do not come exactly at its end.
const EARLY: f64 = 0.02;

impl Iperf3Course {
    pub(super) fn new(facts: &Facts) -> Self {
        let width_s = match facts.interval_s {
            0.0 => f64::INFINITY,
            seconds => seconds,
        };
        let omit_s = facts.test.warm_up.as_secs_f64();
        Self {
            width_s,
            omit_s,
            omitting: omit_s > 0.0,
            base_s: 0.0,
            due_s: if omit_s > 0.0 { width_s.min(omit_s) } else { width_s },
            from: None,
            peaks: Vec::new(),
        }
    }

    pub(super) fn peaks(&self, flow: u32) -> Peaks {
        self.peaks.get(flow as usize).copied().unwrap_or_default()
    }

    /// Takes the current state of the flows. Returns the rows of an interval that has ended.
    pub(super) fn look(&mut self, at_s: f64, flows: &[LiveFlow]) -> Option<Vec<Row>> {
        self.peaks.resize(flows.len(), Peaks::default());
        for (peaks, flow) in self.peaks.iter_mut().zip(flows) {
            flow.tcp.iter().for_each(|tcp| peaks.take(tcp));
        }
        if self.from.is_none() {
            self.from = Some((0.0, flows.to_vec()));
            return None;
        }
        let early = at_s + EARLY * self.width_s.min(1.0);
        if early < self.due_s {
            return None;
        }
        let rows = self.rows(at_s, flows);
        if self.omitting && early >= self.omit_s {
            self.omitting = false;
            self.base_s = at_s;
            self.peaks.clear();
        }
        self.from = Some((at_s, flows.to_vec()));
        let began_s = if self.omitting { 0.0 } else { self.omit_s };
        let over = ((early - began_s) / self.width_s).floor();
        self.due_s = began_s + (over + 1.0) * self.width_s;
        if self.omitting {
            self.due_s = self.due_s.min(self.omit_s);
        }
        rows
    }

    /// The rows of the last, incomplete interval, unless it has no bytes or, after others, is very
    /// short: then it is only the wait for the other end.
    pub(super) fn rest(&mut self, at_s: f64, flows: &[LiveFlow]) -> Option<Vec<Row>> {
        if let Some(rows) = self.look(at_s, flows) {
            return Some(rows);
        }
        let (from_s, _) = self.from.as_ref()?;
        let is_only = *from_s <= self.base_s;
        let is_worth_it = is_only || at_s - from_s > 0.1 * self.width_s;
        let rows = is_worth_it.then(|| self.rows(at_s, flows)).flatten()?;
        rows.iter().any(|row| row.bytes > 0).then_some(rows)
    }

    fn rows(&self, at_s: f64, flows: &[LiveFlow]) -> Option<Vec<Row>> {
        if self.width_s.is_infinite() {
            return None;
        }
        let (from_s, before) = self.from.as_ref()?;
        let pairs = before.iter().zip(flows);
        Some(pairs.map(|(before, now)| self.row(*from_s, at_s, before, now)).collect())
    }

    fn row(&self, from_s: f64, at_s: f64, before: &LiveFlow, now: &LiveFlow) -> Row {
        let messages = now.messages.saturating_sub(before.messages);
        let lost = now.lost.saturating_sub(before.lost);
        let retransmits = |flow: &LiveFlow| flow.tcp.map_or(0, |tcp| tcp.retransmits);
        Row {
            flow: now.id,
            sends: now.sends,
            start_s: from_s - self.base_s,
            end_s: at_s - self.base_s,
            bytes: now.bytes.saturating_sub(before.bytes),
            retransmits: retransmits(now).saturating_sub(retransmits(before)),
            tcp: now.tcp,
            packets: if now.sends { messages } else { messages + lost },
            lost,
            jitter_ms: now.jitter_ns as f64 / 1e6,
            omitted: self.omitting,
        }
    }
}

/// One stream at the end of the test, as each end counted it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Total {
    pub(super) flow: u32,
    /// Whether this end sent.
    pub(super) sends: bool,
    pub(super) sender: Option<StreamResult>,
    pub(super) receiver: Option<StreamResult>,
}

/// The streams of a test that is over.
pub(super) fn totals(facts: &Facts, accounts: &Accounts) -> Vec<Total> {
    let flows = 0..facts.test.flows();
    flows
        .map(|flow| {
            let id = stream_id(flow);
            let of = |streams: &[StreamResult]| streams.iter().find(|s| s.id == id).copied();
            let here = of(&accounts.here.streams);
            let there = accounts.there.as_ref().and_then(|there| of(&there.streams));
            let goes_down = match facts.test.direction {
                Direction::Both => flow >= facts.test.streams,
                direction => direction == Direction::Down,
            };
            let sends = goes_down != facts.is_client;
            let (sender, receiver) = if sends { (here, there) } else { (there, here) };
            Total { flow, sends, sender, receiver }
        })
        .collect()
}

/// The sum of all streams of a direction, as one end counted them.
pub(super) fn sum(streams: impl Iterator<Item = StreamResult>) -> Option<StreamResult> {
    let streams: Vec<_> = streams.collect();
    let first = *streams.first()?;
    let total = |of: fn(&StreamResult) -> u64| streams.iter().map(of).sum();
    Some(StreamResult {
        bytes: total(|s| s.bytes),
        retransmits: Some(total(|s| s.retransmits.unwrap_or(0))),
        errors: total(|s| s.errors),
        packets: total(packets),
        omitted: Some(0),
        jitter_s: streams.iter().map(|s| s.jitter_s).sum::<f64>() / streams.len() as f64,
        ..first
    })
}

/// Number of datagrams without those of the omitted time.
pub(super) fn packets(stream: &StreamResult) -> u64 {
    stream.packets.saturating_sub(stream.omitted.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(interval_s: f64, omit: &str) -> Facts {
        let mut draft = Test::stream();
        draft.set("warm-up", omit).expect("an option");
        Facts {
            is_client: true,
            test: draft.resolve(1).expect("a test"),
            cookie: String::new(),
            mss: None,
            interval_s,
        }
    }

    fn at(bytes: u64) -> [LiveFlow; 1] {
        [LiveFlow { bytes, sends: true, ..LiveFlow::default() }]
    }

    #[test]
    fn the_omitted_time_has_intervals_of_its_own_and_time_begins_anew_after_it() {
        let mut course = Iperf3Course::new(&facts(1.0, "1s"));
        assert!(course.look(0.0, &at(0)).is_none());
        assert!(course.look(0.5, &at(5)).is_none());
        let first = course.look(0.999, &at(10)).expect("the omitted second");
        assert!(first[0].omitted && first[0].bytes == 10);
        let second = course.look(2.0, &at(30)).expect("the first that counts");
        assert!(!second[0].omitted && second[0].bytes == 20 && second[0].start_s == 0.0);
        let rest = course.rest(2.5, &at(35)).expect("half an interval");
        assert_eq!((rest[0].bytes, rest[0].start_s > 1.0), (5, true));
        assert!(Iperf3Course::new(&facts(0.0, "0s")).rest(5.0, &at(1)).is_none());
    }

    #[test]
    fn a_test_that_is_shorter_than_any_interval_has_one() {
        let mut course = Iperf3Course::new(&facts(1.0, "0s"));
        assert!(course.look(0.0, &at(0)).is_none());
        let only = course.rest(0.003, &at(7)).expect("all of it");
        assert_eq!((only[0].bytes, only[0].start_s), (7, 0.0));
        // What trickles in after an interval is none.
        let mut course = Iperf3Course::new(&facts(1.0, "0s"));
        assert!(course.look(0.0, &at(0)).is_none() && course.look(1.0, &at(10)).is_some());
        assert!(course.rest(1.003, &at(11)).is_none());
    }
}
