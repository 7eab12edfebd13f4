//! Confidence of a verdict: how many copies of the evidence with errors have the same one, and how
//! often such verdicts were right on paths that no rule was made with.

use std::collections::BTreeMap;

use super::causes::Basis;
use super::view::View;
use crate::record::{
    Cause, EndReport, PathTrain, SenderEvidence, StepRates, TcpEvidence, TcpSender, UdpEvidence,
};
use crate::units::Dice;

/// The number of copies with each verdict.
///
/// Rules are thresholds, and a figure near one tells less than a figure far from it. So the same
/// rules judge copies of the evidence in which each figure has an error of the usual size. The
/// share of copies with the same verdict is the margin; most of the others give the next cause. The
/// share of such verdicts that is right is counted, not derived: [`confidence`].
pub(super) struct Votes(BTreeMap<Cause, usize>);

impl Votes {
    /// `judge` names the cause of one copy.
    pub(super) fn new(view: &View<'_>, judge: impl Fn(&View<'_>) -> Cause) -> Self {
        let mut votes = BTreeMap::new();
        // The same evidence always gets the same copies.
        let mut dice = Dice::new(0, 0);
        for _ in 0..COPIES {
            let copy = Disturbed::new(view, &mut dice);
            *votes.entry(judge(&copy.view(view))).or_insert(0) += 1;
        }
        Self(votes)
    }

    /// Share of the copies with this verdict.
    pub(super) fn share(&self, cause: Cause) -> f64 {
        self.0.get(&cause).copied().unwrap_or(0) as f64 / COPIES as f64
    }

    /// The most frequent other cause.
    pub(super) fn next(&self, after: Cause) -> Option<Cause> {
        let others =
            self.0.iter().filter(|(cause, _)| ![after, Cause::Unexplained].contains(cause));
        others.max_by_key(|(_, votes)| **votes).map(|(cause, _)| *cause)
    }
}

/// How sure a cause that was found is: the share (0–1) of verdicts of this kind that were right on
/// paths that no rule was made with; `None` where there were too few of them. `margin` is the share
/// of the copies with the same verdict.
pub(super) fn confidence(view: &View<'_>, basis: Basis, margin: f64) -> Option<f64> {
    let of_basis = |row: &&Judged| row.source == Source::new(view) && row.basis == basis;
    let row = JUDGED.iter().find(of_basis)?;
    let [clear, near] = [row.clear, row.near];
    let (right, all) = if clear.1.min(near.1) < LEAST_JUDGED {
        // Too few of one kind tell nothing by themselves.
        (clear.0 + near.0, clear.1 + near.1)
    } else if margin >= CLEAR {
        clear
    } else {
        near
    };
    let sure = (all >= LEAST_JUDGED).then(|| share_of((right, all)))?;
    Some(other_kernel(view).map_or(sure, |(_, judged)| sure.min(share_of(judged))))
}

/// Half a right and half a wrong verdict more (Jeffreys).
fn share_of((right, all): (u32, u32)) -> f64 {
    (f64::from(right) + 0.5) / (f64::from(all) + 1.0)
}

/// What is to be said of a confidence that is no higher than on kernels other than the one that the
/// most verdicts were judged on.
pub(super) fn caution(view: &View<'_>) -> Option<String> {
    let (kernel, (right, all)) = other_kernel(view)?;
    Some(format!(
        "the kernel is {kernel}: on others than {JUDGED_KERNEL}, {right} of {all} verdicts were \
         right"
    ))
}

/// The kernel that sent, if it is another one, and how many verdicts were right on such.
fn other_kernel<'a>(view: &View<'a>) -> Option<(&'a str, (u32, u32))> {
    let kernel = &*view.sender_host?.kernel;
    let version = kernel.splitn(3, '.').take(2);
    let is_judged = version.eq(JUDGED_KERNEL.split('.'));
    let (_, judged) = ELSEWHERE.iter().find(|(source, _)| *source == Source::new(view))?;
    (!kernel.is_empty() && !is_judged).then_some((kernel, *judged))
}

/// The kernel on which the most verdicts were judged; the windows, queues and counters of others
/// are a little different.
const JUDGED_KERNEL: &str = "6.18";
/// How many verdicts were right on another kernel (6.1, user mode), of how many, those that said
/// nothing among them: seed 9951 of the generator of plain runs, 2026-11-29 (docs/truth.md, "How
/// sure").
const ELSEWHERE: [(Source, (u32, u32)); 2] =
    [(Source::Test, (48, 57)), (Source::Sockets, (41, 51))];

/// Where the figures of a view are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A test of linerate's.
    Test,
    /// The sockets of another program.
    Sockets,
    /// Captured packets.
    Packets,
}

impl Source {
    fn new(view: &View<'_>) -> Self {
        if view.is_of_packets() {
            Self::Packets
        } else if view.asked.is_none() {
            Self::Sockets
        } else {
            Self::Test
        }
    }
}

/// How many verdicts were right, of how many, by what their evidence is.
struct Judged {
    source: Source,
    basis: Basis,
    /// Verdicts with a margin of [`CLEAR`] or more.
    clear: (u32, u32),
    /// The others.
    near: (u32, u32),
}

/// Verdicts on paths of generators that were written without the rules, and with which no rule was
/// made (docs/truth.md, "How sure"). What could be defended either way is not counted.
const JUDGED: [Judged; 12] = {
    use Basis::{Computed, Counted, Fitted, Modelled};
    use Source::{Packets, Sockets, Test};
    const fn judged(source: Source, basis: Basis, clear: (u32, u32), near: (u32, u32)) -> Judged {
        Judged { source, basis, clear, near }
    }
    [
        judged(Test, Counted, (161, 162), (10, 10)),
        judged(Test, Computed, (4, 4), (16, 16)),
        judged(Test, Modelled, (41, 47), (10, 14)),
        judged(Test, Fitted, (110, 121), (24, 33)),
        judged(Sockets, Counted, (63, 66), (4, 5)),
        judged(Sockets, Computed, (0, 0), (17, 17)),
        judged(Sockets, Modelled, (27, 32), (12, 16)),
        judged(Sockets, Fitted, (77, 81), (3, 3)),
        judged(Packets, Counted, (57, 85), (1, 2)),
        judged(Packets, Computed, (0, 0), (4, 4)),
        judged(Packets, Modelled, (18, 19), (14, 19)),
        judged(Packets, Fitted, (72, 80), (13, 16)),
    ]
};

/// Margin from which on a verdict is far from the thresholds: nearly all copies have it.
const CLEAR: f64 = 0.9;
/// Verdicts that a share needs: with fewer its error is more than a sixth.
const LEAST_JUDGED: u32 = 9;
/// A cause that fewer copies have is `unexplained`.
pub(super) const LEAST_MARGIN: f64 = 0.5;

/// Number of copies: the error of a margin of a half is 7 % of it.
const COPIES: usize = 48;

/// Error of rates of the kernel and of windows: the difference of their medians between halves of a
/// run.
const RATE: f64 = 0.05;
/// Error of times and shares of time.
const TIME: f64 = 0.1;
/// Error of queues, which change each round trip and are read each 100 ms.
const QUEUE: f64 = 0.2;

/// The figures of a view with errors. What is exact is not in it: settings, the hosts' facts, sizes
/// of segments, the window that the receiver advertises. The smallest round trip is as it is; what
/// is above it has the error.
struct Disturbed {
    throughput_bps: f64,
    interval_rates_bps: Vec<f64>,
    udp: Vec<UdpEvidence>,
    train: Option<PathTrain>,
    flows: Vec<TcpEvidence>,
    total: Option<TcpEvidence>,
    ends: [Option<EndReport>; 2],
    steps: Option<StepRates>,
}

impl Disturbed {
    fn new(view: &View<'_>, dice: &mut Dice) -> Self {
        let losses = LossFactors::new(view, dice);
        Self {
            throughput_bps: view.throughput_bps * random_factor(dice, throughput_error(view)),
            interval_rates_bps: disturbed_intervals(&view.interval_rates_bps, dice),
            udp: view.udp.iter().map(|udp| disturbed_udp(udp, dice)).collect(),
            train: view.train.map(|train| PathTrain {
                link_bps: train.link_bps * random_factor(dice, RATE),
                ..train
            }),
            flows: view.flows.iter().map(|(_, tcp)| disturbed_tcp(tcp, &losses, dice)).collect(),
            total: view.total.1.map(|tcp| disturbed_tcp(tcp, &losses, dice)),
            ends: [view.sender, view.receiver].map(|end| Some(disturbed_end(end?, &losses, dice))),
            steps: view.steps.map(|steps| disturbed_steps(steps, dice)),
        }
    }

    fn view<'a>(&'a self, of: &View<'a>) -> View<'a> {
        let [sender, receiver] = self.ends.each_ref().map(Option::as_ref);
        let flows = of.flows.iter().zip(&self.flows).map(|((bytes, _), tcp)| (*bytes, tcp));
        let (flows, total) = (flows.collect(), (of.total.0, self.total.as_ref()));
        View {
            throughput_bps: self.throughput_bps,
            interval_rates_bps: self.interval_rates_bps.clone(),
            udp: self.udp.iter().collect(),
            train: self.train,
            flows,
            total,
            sender,
            receiver,
            steps: self.steps,
            ..of.clone()
        }
        .with_senders()
    }
}

/// Standard error of the mean of the intervals' rates, up to that of other rates.
fn throughput_error(view: &View<'_>) -> f64 {
    let intervals = view.interval_rates_bps.len().max(1) as f64;
    view.variation().map_or(RATE, |cv| (cv / intervals.sqrt()).min(RATE))
}

/// The mean is that of the run; how far from it the intervals are is what is uncertain.
fn disturbed_intervals(rates: &[f64], dice: &mut Dice) -> Vec<f64> {
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let factor = random_factor(dice, QUEUE);
    rates.iter().map(|rate| mean + (rate - mean) * factor).collect()
}

fn disturbed_udp(udp: &UdpEvidence, dice: &mut Dice) -> UdpEvidence {
    let mut disturbed = udp.clone();
    scale_count(dice, &mut disturbed.lost);
    let delays = [
        &mut disturbed.added_delay_us,
        &mut disturbed.delay_growth_percent,
        &mut disturbed.loss_spacing_variation,
    ];
    for figure in delays.into_iter().flatten() {
        *figure *= random_factor(dice, TIME);
    }
    disturbed.jitter_us *= random_factor(dice, TIME);
    disturbed
}

fn disturbed_steps(mut steps: StepRates, dice: &mut Dice) -> StepRates {
    let middle = steps.p50_bps;
    let factor = random_factor(dice, QUEUE);
    for rate in [&mut steps.p25_bps, &mut steps.p75_bps, &mut steps.p90_bps] {
        *rate = middle + (*rate - middle) * factor;
    }
    steps
}

/// Factors of the numbers of segments sent again and of the times that losses made a sender slow
/// down. The figures of the flows and the counters of their host have the same.
struct LossFactors {
    segments: f64,
    events: f64,
}

impl LossFactors {
    fn new(view: &View<'_>, dice: &mut Dice) -> Self {
        let segments = view.sum(|flow| Some(flow.tcp.retransmitted_segments as f64));
        let events = view.loss_event_count();
        let mut factor = |events: Option<f64>| random_factor(dice, error_of_count(events));
        Self { segments: factor(segments), events: factor(events) }
    }

    fn scale_counters(&self, counters: &mut BTreeMap<String, u64>) {
        for (name, count) in counters {
            let factor = match name.as_str() {
                "TcpRetransSegs" => self.segments,
                "TcpExtTCPSackRecovery" | "TcpExtTCPRenoRecovery" => self.events,
                _ => continue,
            };
            scale_by(count, factor);
        }
    }
}

fn disturbed_end(end: &EndReport, losses: &LossFactors, dice: &mut Dice) -> EndReport {
    let mut end = end.clone();
    losses.scale_counters(&mut end.counters);
    let times = [&mut end.blocked_us, &mut end.run_delay_us, &mut end.paced_us];
    scale_known(dice, times, TIME);
    let percents = [&mut end.busiest_thread_percent, &mut end.steal_percent];
    for percent in percents.into_iter().flatten() {
        *percent *= random_factor(dice, TIME);
    }
    end.cpu_seconds.user *= random_factor(dice, TIME);
    end.cpu_seconds.system *= random_factor(dice, TIME);
    // What is left idle is what is uncertain of a host that is nearly full.
    if let Some(percent) = &mut end.host_cpu_percent {
        *percent = 100.0 - (100.0 - *percent) * random_factor(dice, QUEUE);
    }
    end
}

fn disturbed_tcp(tcp: &TcpEvidence, losses: &LossFactors, dice: &mut Dice) -> TcpEvidence {
    let mut tcp = tcp.clone();
    if let Some(SenderEvidence::Read(sender)) = &mut tcp.sender {
        scale_by(&mut sender.retransmitted_segments, losses.segments);
        scale_by(&mut sender.loss_events, losses.events);
        disturb_sender(sender, dice);
    }
    if let Some(receiver) = &mut tcp.receiver {
        scale_known(dice, [&mut receiver.unread_bytes], QUEUE);
        let least = receiver.rtt_min_us.unwrap_or(0);
        if let Some(rtt) = &mut receiver.rtt_mean_us {
            disturb_rtt(rtt, least, random_factor(dice, QUEUE));
        }
    }
    tcp
}

/// The smallest is what it is; the queue above it is what changes.
fn disturb_rtt(rtt: &mut u32, least: u32, factor: f64) {
    let excess = f64::from(rtt.saturating_sub(least)) * factor;
    *rtt = least.saturating_add(excess.round() as u32);
}

fn disturb_sender(tcp: &mut TcpSender, dice: &mut Dice) {
    let least = tcp.rtt_min_us.unwrap_or(0);
    let factor = random_factor(dice, QUEUE);
    let rtts = [Some(&mut tcp.rtt_mean_us), tcp.rtt_p95_us.as_mut()];
    for rtt in rtts.into_iter().flatten() {
        disturb_rtt(rtt, least, factor);
    }
    let mut deviation = u64::from(tcp.rtt_var_us);
    scale(dice, &mut deviation, QUEUE);
    tcp.rtt_var_us = u32::try_from(deviation).unwrap_or(u32::MAX);
    let queues = [&mut tcp.notsent_bytes, &mut tcp.send_queue_memory_bytes];
    scale_known(dice, queues, TIME);
    scale(dice, &mut tcp.unacked_bytes, TIME);
    let limited = [&mut tcp.rwnd_limited_us, &mut tcp.sndbuf_limited_us];
    scale_known(dice, limited, TIME);
    let rates = [&mut tcp.delivery_rate_bps, &mut tcp.delivery_rate_max_bps];
    scale_known(dice, rates, RATE);
    scale(dice, &mut tcp.cwnd_bytes, RATE);
    if let Some(variation) = &mut tcp.loss_window_variation {
        *variation *= random_factor(dice, QUEUE);
    }
    if let Some(share) = &mut tcp.app_limited_share {
        *share = (*share * random_factor(dice, TIME)).min(1.0);
    }
    scale_known(dice, [&mut tcp.cwnd_mean_bytes, &mut tcp.pacing_rate_bps], RATE);
    if let Some(share) = &mut tcp.send_window_full_share {
        *share = (*share * random_factor(dice, TIME)).min(1.0);
    }
    let seen = [&mut tcp.zero_window_us, &mut tcp.timeout_wait_us, &mut tcp.idle_until_asked_us];
    scale_known(dice, seen, TIME);
    if let Some(timeouts) = &mut tcp.timeouts {
        scale_count(dice, timeouts);
    }
}

/// Scales a number of events that come by chance.
fn scale_count(dice: &mut Dice, events: &mut u64) {
    let error = error_of_count(Some(*events as f64));
    scale(dice, events, error);
}

/// The error of a number of events that come by chance is its root (Poisson).
fn error_of_count(events: Option<f64>) -> f64 {
    (1.0 / events.unwrap_or(1.0).max(1.0).sqrt()).min(QUEUE)
}

/// A random factor for a figure that is usually wrong by `error` of itself.
fn random_factor(dice: &mut Dice, error: f64) -> f64 {
    let error = (dice.normal() * error).clamp(-2.0 * error, 2.0 * error);
    error.exp()
}

fn scale(dice: &mut Dice, figure: &mut u64, error: f64) {
    scale_by(figure, random_factor(dice, error));
}

fn scale_by(figure: &mut u64, factor: f64) {
    *figure = (*figure as f64 * factor).round() as u64;
}

/// Scales the figures that are known.
fn scale_known<const N: usize>(dice: &mut Dice, figures: [&mut Option<u64>; N], error: f64) {
    for figure in figures.into_iter().flatten() {
        scale(dice, figure, error);
    }
}
