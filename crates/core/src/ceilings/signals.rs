//! Figures derived from those of the kernels: shares, ratios, losses, queues.
//!
//! A figure that the record does not have is `None`, never zero.

use crate::record::{EndReport, StepRates, TcpSender, UdpEvidence};
use crate::stats::variation;

use super::Cause;
use super::formulas::{TCP_HEADER_BYTES, TIMESTAMP_BYTES, UDP_HEADER_BYTES, ip_header_bytes};
use super::thresholds::{
    ALONE, BBR_PACE_REACHED, BBR_QUEUE_DELAY_US, BY_TURNS, COMING_DOWN, CPU_CONTENDED, CPU_SHORT,
    CPU_WORK, DATAGRAM_JITTER, DATAGRAMS_LOST, DATAGRAMS_OVER, EVEN, EVENTS_SATURATED,
    EVENTS_STEADY, EXACT_TOLERANCE, FEWEST_ROUNDS, FEWEST_SEGMENTS, JITTER_OVER_EXCESS,
    LOST_BY_CHANCE, POLICER_LOSS_BBR, POLICER_TRAIN, QUEUE_DELAY_US, QUEUE_INFLATION,
    QUEUE_SEGMENTS, QUEUE_VARIES, SAME_WINDOW, SCHEDULER_DELAY_US, SHORT_QUEUE_INFLATION,
    STEADY_INTERVALS, SURE_OF_FEW, THREAD_FULL, USUAL_STATE,
};
use super::view::{TcpFlow, View};

/// The time of an end's data threads by state, as shares of the measured time, the mean over flows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ThreadTime {
    /// Asleep in `send` or `recv`.
    pub(super) blocked: f64,
    /// On a CPU, of the busiest thread.
    pub(super) running: f64,
    /// Runnable, without a CPU.
    pub(super) delayed: f64,
    /// The rest: asleep elsewhere, or held by the application's own rate limit.
    pub(super) idle: f64,
    /// Held by the application's own rate limit.
    pub(super) paced: f64,
    /// On a CPU, of all threads together.
    work: f64,
}

impl ThreadTime {
    fn of(end: &EndReport, seconds: f64) -> Option<Self> {
        let share = |us: u64| positive(us as f64 / (seconds * 1e6)).map_or(0.0, |it| it.min(1.0));
        let slept = share(end.blocked_us?);
        let running = fraction(end.busiest_thread_percent? / 100.0)?;
        let stolen = (running * stolen_for_each_run(end)).min(slept);
        let blocked = slept - stolen;
        let delayed = end.run_delay_us.map_or(0.0, share) + stolen;
        let paced = end.paced_us.map_or(0.0, share);
        Some(Self {
            blocked,
            running,
            delayed,
            idle: (1.0 - blocked - running - delayed).clamp(paced, 1.0),
            paced,
            work: (end.cpu_seconds.total() / seconds).max(running),
        })
    }

    /// Whether others take the CPU from the thread, if only at times.
    pub(super) fn waits_for_cpu(&self) -> bool {
        self.delayed >= CPU_SHORT
    }

    /// Whether the thread wants to run nearly all the time, or waits long for a CPU when it does.
    pub(super) fn cpu_bound(&self) -> bool {
        let waits = self.delayed >= CPU_CONTENDED && self.has_work();
        let wants = self.running + self.delayed >= THREAD_FULL || waits;
        wants && self.paced < USUAL_STATE
    }

    /// Whether the threads have work: a thread that only takes the little that comes may wait as
    /// long for a CPU, and lacks nothing.
    pub(super) fn has_work(&self) -> bool {
        self.work >= CPU_WORK
    }
}

/// Time that the hypervisor took over the time that the host's CPUs worked. The kernel counts it
/// neither as a thread's time nor as its wait, so that it looks like sleep.
fn stolen_for_each_run(end: &EndReport) -> f64 {
    let share = |percent: Option<f64>| percent.and_then(|percent| positive(percent / 100.0));
    let stolen = share(end.steal_percent).unwrap_or(0.0).min(1.0);
    let busy = share(end.host_cpu_percent).unwrap_or(1.0).clamp(0.01, 1.0);
    stolen / busy
}

/// The excess of the mean RTT over the smallest one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inflation {
    /// Mean over minimum.
    pub(super) ratio: f64,
    /// Mean less minimum, µs.
    pub(super) delay_us: f64,
    /// Mean deviation, µs.
    deviation_us: f64,
}

impl Inflation {
    /// Smallest RTT, µs.
    pub(super) fn shortest_us(&self) -> f64 {
        self.delay_us / (self.ratio - 1.0)
    }

    /// Whether waits for a host's CPUs can explain the excess: the path is short, and the excess is
    /// some turns of the scheduler.
    pub(super) fn may_be_of_cpus(&self) -> bool {
        self.shortest_us() < QUEUE_DELAY_US && self.delay_us < SCHEDULER_DELAY_US
    }

    /// Whether a queue, and not jitter, makes the RTT at least `ratio` times as long.
    pub(super) fn is_queue(&self, ratio: f64) -> bool {
        self.ratio >= ratio
            && self.delay_us >= QUEUE_DELAY_US
            && self.deviation_us <= JITTER_OVER_EXCESS * self.delay_us
    }
}

/// Why datagrams were lost on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatagramLosses {
    /// At the end of a queue that stood, or that still fills: more was sent than a link carries.
    FullQueue,
    /// One after so many, without a queue: a token bucket, or a queue that holds next to nothing.
    Bucket,
    /// At any moment, without a queue: noise of the path, which takes its share of any rate.
    ByChance,
    /// Neither delays nor the pattern of the losses tell.
    Unknown,
}

impl View<'_> {
    /// The time of the sending threads.
    pub(super) fn writer(&self) -> Option<ThreadTime> {
        ThreadTime::of(self.sender?, self.seconds)
    }

    /// Share of the time in which the writers slept in send, or found no room in the socket; known
    /// also if their CPU time is not.
    pub(super) fn writer_blocked(&self) -> Option<f64> {
        let slept = self.sender?.blocked_us?;
        let known = self.writer().map(|writer| writer.blocked);
        known.or_else(|| fraction(slept as f64 / (self.seconds * 1e6)))
    }

    /// The time of the receiving threads.
    pub(super) fn reader(&self) -> Option<ThreadTime> {
        ThreadTime::of(self.receiver?, self.seconds)
    }

    /// Largest payload of a segment, the mean over the flows, bytes.
    pub(super) fn mss(&self) -> Option<f64> {
        self.mean(|tcp| positive(tcp.mss_bytes.into()))
    }

    /// Whether a queue makes the RTT at least `ratio` times as long.
    pub(super) fn has_queue(&self, ratio: f64) -> bool {
        self.inflation().is_some_and(|it| it.is_queue(ratio))
    }

    /// Whether the usual longest round trip is far above the mean one: a window that is always full
    /// before a link that keeps its rate makes a queue that is always as long.
    pub(super) fn queue_varies(&self) -> bool {
        let excess =
            |flow: &TcpFlow<'_>, rtt_us: u32| Some(f64::from(rtt_us) - least_rtt_us(flow)?);
        let usual = self.flows_mean(|flow| excess(flow, flow.tcp.rtt_p95_us?));
        let mean = self.flows_mean(|flow| excess(flow, flow.tcp.rtt_mean_us));
        usual.zip(mean).is_some_and(|(usual, mean)| usual >= QUEUE_VARIES * mean)
    }

    /// Whether the receiver's window limits the flows for most of their busy time.
    pub(super) fn is_held_by_window(&self) -> bool {
        self.rwnd_share().is_some_and(|share| share >= USUAL_STATE)
    }

    /// Whether the network limits the flows for most of their busy time, as far as the kernel
    /// tells.
    pub(super) fn is_held_by_network(&self) -> bool {
        let share = self.network_share();
        share.is_none_or(|share| share >= USUAL_STATE)
    }

    /// Number of flows of either transport.
    pub(super) fn flow_count(&self) -> usize {
        self.tcp.len().max(self.udp.len()).max(1)
    }

    /// Share of a CPU that each of the test's threads at this end has if they share the CPUs
    /// evenly, at least a half.
    pub(super) fn share_of_cpus(&self, end: &EndReport) -> f64 {
        let directions = 1.0 + f64::from(u8::from(self.is_both));
        let ends = 1.0 + f64::from(u8::from(self.has_one_kernel));
        let threads = self.flow_count() as f64 * directions * ends;
        (f64::from(end.cpus.max(1)) / threads).clamp(0.5, 1.0)
    }

    /// The sum over the flows; `None` if one of them has no such figure.
    pub(super) fn sum(&self, figure: impl Fn(&TcpFlow<'_>) -> Option<f64>) -> Option<f64> {
        let sum: Option<f64> = self.tcp.iter().map(figure).sum();
        sum.filter(|_| !self.tcp.is_empty())
    }

    /// The mean over the flows; `None` if one of them has no such figure.
    pub(super) fn mean(&self, figure: impl Fn(&TcpSender) -> Option<f64>) -> Option<f64> {
        self.flows_mean(|flow| figure(flow.tcp))
    }

    fn flows_mean(&self, figure: impl Fn(&TcpFlow<'_>) -> Option<f64>) -> Option<f64> {
        Some(self.sum(figure)? / self.tcp.len() as f64)
    }

    /// Share of the busy time that the receiver's window limited.
    pub(super) fn rwnd_share(&self) -> Option<f64> {
        self.busy_share(|tcp| tcp.rwnd_limited_us)
    }

    /// Share of the busy time that the send buffer limited.
    pub(super) fn sndbuf_share(&self) -> Option<f64> {
        self.busy_share(|tcp| tcp.sndbuf_limited_us)
    }

    /// Share of the busy time that neither window nor buffer limited: the network's own.
    pub(super) fn network_share(&self) -> Option<f64> {
        fraction(1.0 - self.rwnd_share()? - self.sndbuf_share().unwrap_or(0.0))
    }

    /// Share of the measured time in which there was data to send or in flight, the mean over the
    /// flows.
    pub(super) fn busy(&self) -> Option<f64> {
        let time = positive(self.seconds * 1e6)?;
        fraction(self.mean(|tcp| tcp.busy_us.map(|us| us as f64))? / time)
    }

    /// Share of the time in which the receiver offered no window, and how often that began; from
    /// packets.
    pub(super) fn zero_window(&self) -> Option<(f64, f64)> {
        let time = positive(self.seconds * 1e6)?;
        let closed = self.mean(|tcp| tcp.zero_window_us.map(|us| us as f64))?;
        let times = self.sum(|flow| flow.tcp.zero_windows.map(|times| times as f64))?;
        Some((fraction(closed / time)?, times))
    }

    /// Share of the time in which the sender waited for retransmission timeouts; from packets.
    pub(super) fn timeout_wait(&self) -> Option<f64> {
        let time = positive(self.seconds * 1e6)?;
        fraction(self.mean(|tcp| tcp.timeout_wait_us.map(|us| us as f64))? / time)
    }

    /// Whether packets show one segment in flight at a time, which waits for its acknowledgement.
    pub(super) fn sends_one_by_one(&self) -> bool {
        let alone = self.mean(|tcp| tcp.alone_share);
        let busy = self.busy().is_some_and(|share| share >= USUAL_STATE);
        let several = self.sum(segments_sent).is_some_and(|n| n >= FEWEST_ROUNDS);
        busy && several && alone.is_some_and(|share| share >= ALONE)
    }

    /// How sure a cause can be of so few packets: below ten round trips or fifty segments chance
    /// makes any pattern. Idle times and slow start show in less.
    pub(super) fn most_sure(&self, cause: Cause) -> f64 {
        if !self.is_of_packets() {
            return 1.0;
        }
        let segments = self.sum(segments_sent).unwrap_or(0.0);
        let rtt = self.mean(|tcp| positive(tcp.rtt_mean_us.max(tcp.rtt_min_us?).into()));
        let busy = self.seconds * 1e6 * self.busy().unwrap_or(1.0);
        let rounds = rtt.map_or(0.0, |rtt| busy / rtt);
        let share = (rounds / FEWEST_ROUNDS).min(segments / FEWEST_SEGMENTS);
        let of_few = [Cause::ApplicationSend, Cause::ApplicationReceive, Cause::Startup];
        match share {
            enough if enough >= 1.0 => 1.0,
            _ if of_few.contains(&cause) => SURE_OF_FEW,
            few => SURE_OF_FEW * few,
        }
    }

    fn busy_share(&self, limited: impl Fn(&TcpSender) -> Option<u64>) -> Option<f64> {
        let busy = self.sum(|flow| flow.tcp.busy_us.map(|us| us as f64))?;
        fraction(self.sum(|flow| limited(flow.tcp).map(|us| us as f64))? / busy)
    }

    /// Bytes in flight over the congestion window.
    pub(super) fn window_use(&self) -> Option<f64> {
        self.mean(|tcp| positive(tcp.unacked_bytes as f64 / positive(tcp.cwnd_bytes as f64)?))
    }

    /// The RTT under the flows' own load, compared with the smallest one.
    pub(super) fn inflation(&self) -> Option<Inflation> {
        let mean = |flow: &TcpFlow<'_>| f64::from(flow.tcp.rtt_mean_us);
        let excess = |flow: &TcpFlow<'_>| Some((mean(flow) - least_rtt_us(flow)?).max(0.0));
        let ratio = |flow: &TcpFlow<'_>| positive(mean(flow) / least_rtt_us(flow)?.max(1.0));
        Some(Inflation {
            ratio: self.flows_mean(ratio)?,
            delay_us: self.flows_mean(excess)?,
            deviation_us: self.mean(|tcp| Some(f64::from(tcp.rtt_var_us)))?,
        })
    }

    /// Share of the segments that were lost, without spurious retransmissions.
    pub(super) fn loss(&self) -> Option<f64> {
        let segments = self.sum(segments_sent)?;
        fraction(self.sum(|flow| Some(lost(flow.tcp)))? / segments)
    }

    /// Number of times that losses made the senders slow down, as their kernel counted them; `None`
    /// if the counters include other connections.
    pub(super) fn recoveries(&self) -> Option<f64> {
        if self.is_of_packets() {
            // If losses are being repaired all the time, events cannot be told apart.
            let counted = |flow: &TcpFlow<'_>| match flow.tcp.samples {
                None => Some(flow.tcp.loss_events as f64),
                Some(_) => None,
            };
            return self.sum(counted).and_then(positive);
        }
        let counters = &self.sender?.counters;
        let counter = |name: &str| counters.get(name).map_or(0.0, |n| *n as f64);
        let own = self.sum(|flow| Some(flow.tcp.retransmitted_segments as f64))?;
        let all = counter("TcpRetransSegs");
        let episodes = counter("TcpExtTCPSackRecovery")
            + counter("TcpExtTCPRenoRecovery")
            + counter("TcpExtTCPTimeouts");
        let is_own = (all - own).abs() <= FOREIGN_RETRANSMISSIONS.max(own * EXACT_TOLERANCE);
        (is_own && episodes > 0.0).then_some(episodes)
    }

    /// Number of times that losses made the senders slow down: counted by the kernel, or else
    /// estimated.
    pub(super) fn loss_event_count(&self) -> Option<f64> {
        self.recoveries().or_else(|| self.sum(|flow| Some(loss_events(flow.tcp, self.seconds))))
    }

    /// Segments in the largest usual queue of the path; `None` without RTTs.
    pub(super) fn queued_segments(&self) -> Option<f64> {
        let excess = |flow: &TcpFlow<'_>| {
            let usual_most = flow.tcp.rtt_p95_us.unwrap_or(flow.tcp.rtt_mean_us);
            Some(f64::from(usual_most) - least_rtt_us(flow)?)
        };
        let mss = self.mss()?;
        Some(self.flows_mean(excess)?.max(0.0) / 1e6 * self.throughput_bps / 8.0 / mss)
    }

    /// Whether losses come one by one, often, and at any window: then they are noise of the path,
    /// not the end of a queue or bucket. If most were spurious, from reordering by the hosts' CPUs,
    /// the rest tells nothing.
    pub(super) fn losses_are_random(&self) -> bool {
        let spurious = self.sum(|flow| Some(flow.tcp.dsack_duplicates? as f64));
        let again = self.sum(|flow| Some(flow.tcp.retransmitted_segments as f64));
        let pair = spurious.zip(again);
        if pair.is_some_and(|(spurious, again)| spurious > again / 2.0) {
            return false;
        }
        let many = self.recoveries().is_some_and(|n| n >= EVENTS_STEADY);
        let single = self.loss_train().is_some_and(|train| train < POLICER_TRAIN);
        let spread = self.mean(|tcp| tcp.loss_window_variation);
        many && single && spread.is_none_or(|cv| cv >= SAME_WINDOW)
    }

    /// Segments lost in each loss event; `None` without losses, or if events cannot be told apart.
    pub(super) fn loss_train(&self) -> Option<f64> {
        let is_merged = |flow: &TcpFlow<'_>| {
            let most = flow.tcp.samples.map(|n| EVENTS_SATURATED * n as f64);
            most.is_some_and(|most| flow.tcp.loss_events as f64 > most)
        };
        if self.recoveries().is_none() && self.tcp.iter().any(is_merged) {
            return None;
        }
        positive(self.sum(|flow| Some(lost(flow.tcp)))? / self.loss_event_count()?)
    }

    /// Largest delivery rate of a single flow, bits per second; of several flows, which reach
    /// theirs at different times, the sum of the medians. A burst through a token bucket reads as a
    /// rate that no step of the run has kept, so the rate of the steps is the upper limit.
    pub(super) fn delivery_bps(&self) -> Option<f64> {
        let rate = |tcp: &TcpSender| match self.tcp.len() {
            1 => tcp.delivery_rate_max_bps,
            _ => tcp.delivery_rate_bps,
        };
        let largest = positive(self.sum(|flow| rate(flow.tcp).map(|bps| bps as f64))?)?;
        let kept =
            self.steps.map(|steps| if self.is_even() { steps.p50_bps } else { steps.p90_bps });
        Some(kept.and_then(positive).unwrap_or(largest).min(largest))
    }

    /// Whether most steps of the run had the same rate: then a clock keeps it.
    pub(super) fn is_even(&self) -> bool {
        let spread = |steps: StepRates| (steps.p75_bps - steps.p25_bps) / steps.p50_bps;
        self.steps.is_some_and(|steps| spread(steps) <= EVEN)
    }

    /// Whether a queue is never empty behind something that keeps its rate: a link, however late
    /// the hosts' threads get their CPUs. A connection that has nothing in flight for most of the
    /// time leaves no queue.
    pub(super) fn is_shaped(&self) -> bool {
        let queue = |i: Inflation| i.ratio >= QUEUE_INFLATION && i.delay_us >= QUEUE_DELAY_US;
        self.busy().is_none_or(|share| share >= USUAL_STATE)
            && self.is_even()
            && self.is_held_by_network()
            && self.inflation().is_some_and(queue)
            && self.queues_a_segment()
    }

    /// Whether data of a short path arrives much faster than its mean rate, and then not at all: a
    /// CPU that is given in turns takes it. A link delivers what is queued before it at its rate.
    pub(super) fn arrives_by_turns(&self) -> bool {
        let median = self.sum(|flow| flow.tcp.delivery_rate_bps.map(|bps| bps as f64));
        self.inflation().is_some_and(|i| i.may_be_of_cpus())
            && median.is_some_and(|bps| bps >= BY_TURNS * self.throughput_bps)
    }

    /// Whether at least one segment waits in the mean: the excess of the round trip times the rate
    /// (Little's law). A queue that is never empty has at least one. Less is a burst that waits
    /// behind itself, or a host that wakes up late.
    pub(super) fn queues_a_segment(&self) -> bool {
        self.queued_segments().is_none_or(|segments| segments >= 1.0)
    }

    /// Measured rate over [`View::delivery_bps`].
    pub(super) fn plateau(&self) -> Option<f64> {
        positive(self.throughput_bps / self.delivery_bps()?)
    }

    /// Measured rate over the pace at which the senders sent, in the median.
    fn pace_reached(&self) -> Option<f64> {
        let pace = self.sum(|flow| flow.tcp.pacing_rate_bps.map(|bps| bps as f64))?;
        positive(self.throughput_bps / positive(pace)?)
    }

    /// Whether BBR reaches the rate at which it paces: then the network does not give more.
    pub(super) fn keeps_its_pace(&self) -> bool {
        self.pace_reached().is_none_or(|share| share >= BBR_PACE_REACHED)
    }

    /// Whether the rate fell through the run: its windows were still those of slow start.
    pub(super) fn comes_down(&self) -> bool {
        let rates = &self.interval_rates_bps;
        let (first, rest) = rates.split_at(rates.len() / 4);
        let mean = |rates: &[f64]| positive(rates.iter().sum::<f64>() / rates.len() as f64);
        matches!((mean(first), mean(rest)), (Some(first), Some(rest)) if first >= COMING_DOWN * rest)
    }

    /// Whether every flow is sent by BBR, which takes loss for noise.
    pub(super) fn ignores_loss(&self) -> bool {
        !self.tcp.is_empty() && self.tcp.iter().all(|flow| is_bbr(flow.tcp))
    }

    /// Whether the sender ignores loss, and there is no more of it than it can ignore.
    pub(super) fn loss_is_noise(&self) -> bool {
        self.ignores_loss() && self.loss().is_none_or(|loss| loss < POLICER_LOSS_BBR)
    }

    /// Whether a queue stands at the bottleneck, however short, or packets are marked before one
    /// can.
    pub(super) fn queue_or_marks(&self) -> bool {
        let marks = self.sum(|flow| flow.tcp.delivered_ce.map(|n| n as f64));
        let stands = self.has_queue(SHORT_QUEUE_INFLATION);
        let holds_segments = self.queued_segments().is_none_or(|n| n >= QUEUE_SEGMENTS);
        marks.is_some_and(|n| n > 0.0) || (stands && holds_segments)
    }

    /// Whether a queue of several segments stands that is longer than the wake-up of a host delays:
    /// a policer has none, whatever it drops.
    pub(super) fn holds_queue(&self) -> bool {
        let is_long =
            |i: Inflation| i.is_queue(SHORT_QUEUE_INFLATION) && i.delay_us >= BBR_QUEUE_DELAY_US;
        let holds_segments = self.queued_segments().is_some_and(|n| n >= QUEUE_SEGMENTS);
        self.inflation().is_some_and(is_long) && holds_segments
    }

    /// Share of the datagrams sent that the path lost; `None` without UDP, or if the receiver does
    /// not tell what its sockets dropped.
    pub(super) fn datagrams_lost(&self) -> Option<f64> {
        self.share_of_datagrams(|udp| Some(udp.lost.saturating_sub(udp.socket_drops?)))
    }

    /// What happened on the path to datagrams that were lost; `None` if there are none, or too few.
    pub(super) fn datagram_losses(&self) -> Option<DatagramLosses> {
        let lost = self.datagrams_lost()?;
        let delays = self.udp.iter().map(|udp| Some((udp.added_delay_us?, udp.jitter_us)));
        let Some(added) = delays.collect::<Option<Vec<(f64, f64)>>>() else {
            return (lost >= DATAGRAMS_LOST).then_some(DatagramLosses::Unknown);
        };
        let is_queue = |&(added, jitter): &(f64, f64)| {
            added >= QUEUE_DELAY_US && jitter <= DATAGRAM_JITTER * added
        };
        if self.datagrams_delay_growth().is_some_and(|growth| growth >= DATAGRAMS_OVER) {
            return Some(DatagramLosses::FullQueue);
        }
        if lost < DATAGRAMS_OVER {
            return None;
        }
        // Each of several flows loses by chance what a bucket takes from all.
        let spacing = match self.udp[..] {
            [udp] => udp.loss_spacing_variation,
            _ => None,
        };
        // Gaps and what arrives between them are geometric each.
        let by_chance = (lost.powi(3) + (1.0 - lost).powi(3)).sqrt();
        Some(match spacing {
            _ if added.iter().any(is_queue) => DatagramLosses::FullQueue,
            Some(spacing) if spacing < LOST_BY_CHANCE * by_chance => DatagramLosses::Bucket,
            Some(_) => DatagramLosses::ByChance,
            None => DatagramLosses::Unknown,
        })
    }

    /// How much more was sent than a link carries at least, as a share of that, while the queue
    /// before it filled: the growth of the delay over the time, of the flow with the most.
    pub(super) fn datagrams_delay_growth(&self) -> Option<f64> {
        let growths = self.udp.iter().filter_map(|udp| {
            Some(udp.delay_growth_percent? - 2.0 * udp.delay_growth_error_percent.unwrap_or(0.0))
        });
        growths.reduce(f64::max).map(|percent| percent / 100.0)
    }

    /// The delay that the path added to its smallest in the mean, of the flow with the most, µs.
    pub(super) fn datagrams_delayed_us(&self) -> Option<f64> {
        self.udp.iter().filter_map(|udp| udp.added_delay_us).reduce(f64::max)
    }

    /// Share of the datagrams sent that the path or the receiver's sockets lost.
    pub(super) fn datagrams_missing(&self) -> Option<f64> {
        self.share_of_datagrams(|udp| Some(udp.lost))
    }

    /// Share of the datagrams sent that the receiver's sockets dropped, if that is known.
    pub(super) fn datagrams_dropped(&self) -> Option<f64> {
        self.share_of_datagrams(|udp| udp.socket_drops)
    }

    fn share_of_datagrams(&self, pick: fn(&UdpEvidence) -> Option<u64>) -> Option<f64> {
        let sent: u64 = self.udp.iter().map(|udp| udp.sent).sum();
        let picked: Option<u64> = self.udp.iter().map(|udp| pick(udp)).sum();
        positive(sent as f64).and_then(|sent| Some(picked? as f64 / sent))
    }

    /// Rate asked of the UDP senders, bits per second; `None` unless all of them were asked for
    /// one.
    pub(super) fn asked_bps(&self) -> Option<f64> {
        let asked: Option<f64> = self.udp.iter().map(|udp| positive(udp.asked_bps? as f64)).sum();
        asked.filter(|_| !self.udp.is_empty())
    }

    /// Rate sent over the rate asked of the UDP senders.
    pub(super) fn asked_share(&self) -> Option<f64> {
        let bits = |udp: &&UdpEvidence| udp.sent as f64 * udp.datagram_bytes as f64 * 8.0;
        let sent: f64 = self.udp.iter().map(bits).sum();
        positive(sent / self.seconds / self.asked_bps()?)
    }

    /// Payload over all bytes that carry it, with `framing_bytes` for each packet.
    pub(super) fn payload_share(&self, framing_bytes: f64) -> Option<f64> {
        let Some(udp) = self.udp.first() else {
            return self.segment_share(self.mss()?, framing_bytes);
        };
        let payload = udp.datagram_bytes as f64;
        let packet = payload + UDP_HEADER_BYTES + ip_header_bytes(self.family);
        positive(payload / (packet + framing_bytes))
    }

    /// [`View::payload_share`] of TCP segments of `mss` bytes.
    pub(super) fn segment_share(&self, mss: f64, framing_bytes: f64) -> Option<f64> {
        let options = self.mean(|tcp| Some(option_bytes(tcp)))?;
        let packet = mss + options + TCP_HEADER_BYTES + ip_header_bytes(self.family);
        positive(mss / (packet + framing_bytes))
    }

    /// Standard deviation over mean of the intervals' rates; `None` for too few.
    pub(super) fn variation(&self) -> Option<f64> {
        let rates = &self.interval_rates_bps;
        variation(rates).filter(|_| rates.len() >= STEADY_INTERVALS)
    }
}

/// Most retransmissions of other connections of the host that do not matter.
const FOREIGN_RETRANSMISSIONS: f64 = 2.0;

/// The value, if it is a positive finite number.
pub(super) fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// The value, limited to 0–1, if it is a number.
fn fraction(value: f64) -> Option<f64> {
    value.is_finite().then(|| value.clamp(0.0, 1.0))
}

/// Mean RTT of a flow, seconds.
pub(super) fn rtt_s(tcp: &TcpSender) -> Option<f64> {
    positive(f64::from(tcp.rtt_mean_us) / 1e6)
}

/// Segments lost: those retransmitted without those that the peer reported as spurious.
pub(super) fn lost(tcp: &TcpSender) -> f64 {
    let spurious = tcp.dsack_duplicates.unwrap_or(0);
    tcp.retransmitted_segments.saturating_sub(spurious) as f64
}

/// Segments sent for the first time.
pub(super) fn segments_sent(flow: &TcpFlow<'_>) -> Option<f64> {
    let tcp = flow.tcp;
    match tcp.data_segments_out {
        Some(out) => positive(out.saturating_sub(tcp.retransmitted_segments) as f64),
        None => positive(flow.bytes as f64 / positive(f64::from(tcp.mss_bytes))?),
    }
}

/// Number of times that losses made the sender slow down.
///
/// Readings with new retransmissions are hits; several events between two readings count as one
/// hit, so with n readings the number of events is that of a Poisson process that leaves as many
/// readings empty: −n · ln(1 − hits/n). There are no more events than segments lost, nor than round
/// trips.
pub(super) fn loss_events(tcp: &TcpSender, seconds: f64) -> f64 {
    let lost = lost(tcp);
    if lost <= 0.0 {
        return 0.0;
    }
    let hits = tcp.loss_events as f64 * lost / tcp.retransmitted_segments as f64;
    let events = match tcp.samples {
        Some(n) if n > 0 => {
            let n = n as f64;
            -n * (1.0 - (hits / n).min(1.0 - 0.5 / n)).ln()
        }
        _ => hits,
    };
    let rounds = rtt_s(tcp).map_or(f64::INFINITY, |rtt| seconds / rtt);
    events.min(lost).min(rounds).max(1.0)
}

/// TCP options in each data segment of a flow, bytes.
pub(super) fn option_bytes(tcp: &TcpSender) -> f64 {
    let is_stamped = tcp.options.iter().any(|name| name == "timestamps");
    if is_stamped { TIMESTAMP_BYTES } else { 0.0 }
}

/// Shortest round trip, µs. Where segments were sent again the kernel also takes it from
/// timestamps, which tick in milliseconds (`tcp_rtt_tsopt_us`, net/ipv4/tcp_input.c): it may be up
/// to a tick longer, but not longer than the handshake that the receiver saw.
fn least_rtt_us(flow: &TcpFlow<'_>) -> Option<f64> {
    let tcp = flow.tcp;
    let told = tcp.rtt_min_us?;
    let again = tcp.retransmitted_segments + tcp.warm_up_retransmitted_segments.unwrap_or(0);
    let is_of_stamps = again > 0 && told > 0 && told.is_multiple_of(TICK_US);
    if !is_of_stamps {
        return Some(told.into());
    }
    let handshake = flow.receiver.and_then(|receiver| receiver.rtt_min_us).unwrap_or(u32::MAX);
    let longest = told.saturating_add(TICK_US).min(tcp.rtt_mean_us).min(handshake);
    Some(longest.max(told).into())
}

/// The tick of TCP's timestamps, µs.
const TICK_US: u32 = 1000;

/// Whether the congestion control is BBR, of any version.
pub(super) fn is_bbr(tcp: &TcpSender) -> bool {
    let name = tcp.congestion.as_deref();
    name.is_some_and(|name| name.starts_with("bbr"))
}
