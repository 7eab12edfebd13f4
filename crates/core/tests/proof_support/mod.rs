//! Proofs simulated on paths whose limit is known, with the noise of `docs/error-rates.md`.
#![allow(dead_code, reason = "the test and the example use their part")]

use linerate_core::plan::{Extent, Protocol, Test, Traffic};
use linerate_core::proof::{
    INTERVENTIONS, Offer, PlainRuns, ProofBudget, ProofFindings, ProofRun, Prover, RunFigures,
    Watched, ruled_out,
};
use linerate_core::record::{Cause, ProofLevel};
use linerate_core::units::{BitRate, Family, Span};

use crate::compare_support::{Model, Source};

/// The causes of TCP, and that of datagrams.
pub(crate) const CAUSES: [Cause; 14] = [
    Cause::ReceiveWindow,
    Cause::SendBuffer,
    Cause::Congestion,
    Cause::Pacing,
    Cause::SegmentSize,
    Cause::PathRate,
    Cause::Policer,
    Cause::ApplicationSend,
    Cause::ApplicationReceive,
    Cause::CpuSend,
    Cause::CpuReceive,
    Cause::CpuHost,
    Cause::Startup,
    Cause::AsAsked,
];

/// The causes that are looked for where another tool's server receives.
pub(crate) const FOREIGN_CAUSES: [Cause; 3] =
    [Cause::ReceiveWindow, Cause::ApplicationReceive, Cause::PathRate];

/// What a path answers to the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// What its cause expects.
    Expected,
    /// The edge of its cause's tolerance that is nearer to what others predict: nearer to 1, or
    /// away from it where the cause predicts 1.
    Edge,
    /// Anything that its cause allows, drawn for each change.
    Drawn,
    /// What no candidate predicts, drawn for each change.
    Foreign,
    /// Nothing at all, while no cause that would explain that is a candidate.
    Deaf,
}

/// The cause that the plain runs' evidence names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranking {
    Right,
    /// Another candidate, drawn.
    Wrong,
}

/// A path, and what the plain runs show of it.
pub(crate) struct Scene {
    pub(crate) truth: Cause,
    pub(crate) test: Test,
    pub(crate) seen: PlainRuns,
}

const RATE: f64 = 100e6;

impl Scene {
    pub(crate) fn new(truth: Cause) -> Self {
        let mut test = Test::stream().resolve(1).expect("a plain stream");
        test.extent = Extent::Time(Span::from_secs_f64(1.3).expect("a time"));
        let held = RATE / 8.0 * 0.021;
        let mut seen = PlainRuns {
            rtt_min_s: Some(0.020),
            rtt_s: Some(0.021),
            mss_bytes: Some(1448.0),
            receive_window_bytes: Some(4.0 * held),
            max_receive_window_bytes: Some(6e6),
            send_buffer_bytes: Some(4.0 * held),
            max_send_buffer_bytes: Some(4e6),
            congestion: Some("cubic".to_owned()),
            allowed_congestion: vec!["cubic".to_owned(), "reno".to_owned(), "bbr".to_owned()],
            retransmitted_share: Some(0.0),
            max_pacing_bps: Some(f64::INFINITY),
            is_class_full: Some(false),
            thread_shares: [Some(0.2); 2],
            core_shares: [Some(0.2); 2],
            host_shares: [Some(0.2); 2],
            can_hold_window: true,
            can_send_without_copy: true,
            can_discard: true,
            rate_bps: RATE,
            family: Some(Family::Ipv4),
            ..PlainRuns::default()
        };
        Self::show(truth, &mut test, &mut seen, held);
        let kib_per_s = RATE / 8.0 / 1024.0;
        seen.cpu_ns_per_kib = seen.thread_shares.map(|share| Some(share? * 1e9 / kib_per_s));
        Self::limit_application(truth, &mut test);
        Self { truth, test, seen }
    }

    /// What the plain runs show of this limit.
    fn show(truth: Cause, test: &mut Test, seen: &mut PlainRuns, held: f64) {
        seen.never_lost = Some(!matches!(truth, Cause::Congestion | Cause::Policer));
        match truth {
            Cause::ReceiveWindow => seen.receive_window_bytes = Some(held),
            Cause::SendBuffer => seen.send_buffer_bytes = Some(held),
            Cause::Congestion => seen.retransmitted_share = Some(0.01),
            Cause::Pacing => {
                seen.max_pacing_bps = Some(RATE);
                test.options.pacing_bps = Some(BitRate(RATE as u64));
            }
            Cause::PathRate => seen.rtt_s = Some(0.035),
            Cause::Policer => {
                (seen.retransmitted_share, seen.train_bps) = (Some(0.01), Some(10.0 * RATE));
            }
            // Each packet costs the sender's CPU what a large one would.
            Cause::SegmentSize => {
                seen.mss_bytes = Some(536.0);
                seen.thread_shares = [Some(0.9), Some(0.6)];
                seen.core_shares = [Some(0.6); 2];
                seen.host_shares = [Some(0.5); 2];
            }
            // One end's thread is busy, the other's half.
            Cause::CpuSend | Cause::CpuReceive => {
                let share = |own| Some(if truth == own { 0.97 } else { 0.6 });
                seen.thread_shares = [share(Cause::CpuSend), share(Cause::CpuReceive)];
                seen.core_shares = seen.thread_shares;
                seen.host_shares = [Some(0.5); 2];
            }
            Cause::CpuHost => {
                seen.thread_shares = [Some(0.7); 2];
                seen.core_shares = [Some(1.0); 2];
                seen.host_shares = [Some(0.99); 2];
            }
            Cause::Startup => (seen.rtt_min_s, seen.rtt_s) = (Some(0.3), Some(0.3)),
            _ => {}
        }
    }

    fn limit_application(truth: Cause, test: &mut Test) {
        if let Traffic::Stream(stream) = &mut test.traffic {
            match truth {
                Cause::ApplicationSend => stream.write_rate_bps = Some(BitRate(RATE as u64)),
                Cause::ApplicationReceive => stream.read_rate_bps = Some(BitRate(RATE as u64)),
                Cause::AsAsked => {
                    stream.rate_bps = Some(BitRate(RATE as u64));
                    stream.message_bytes = 1448;
                    test.protocol = Protocol::Udp;
                }
                _ => {}
            }
        }
    }

    /// The receiver is another tool's server, which was seen to do nothing but receive: its window
    /// closes behind a late reader, and is set by a buffer that the kernel rounds as it likes.
    pub(crate) fn foreign(truth: Cause) -> Self {
        let mut scene = Self::new(truth);
        let is_reader = truth == Cause::ApplicationReceive;
        let (held, open, over_cwnd) = match truth {
            Cause::ReceiveWindow => (0.98, 1.0, 0.5),
            Cause::ApplicationReceive => (0.2, 0.3, 0.6),
            _ => (0.1, 1.0, 4.0),
        };
        scene.seen.window_held_share = Some(held);
        scene.seen.window_open_share = Some(open);
        scene.seen.window_over_cwnd = Some(over_cwnd);
        (scene.seen.can_hold_window, scene.seen.can_discard) = (false, false);
        scene.seen.thread_shares[1] = None;
        scene.seen.process_shares[1] = Some(0.02);
        if let (Traffic::Stream(stream), true) = (&mut scene.test.traffic, is_reader) {
            stream.read_rate_bps = None;
        }
        scene
    }

    /// The window that the changed runs see over that of the plain ones, if the change is of it.
    fn window_ratio(&self, offer: &Offer, source: &mut Source) -> f64 {
        let now = self.seen.receive_window_bytes.expect("TCP");
        let asked = offer.test.options.receive_window_bytes.filter(|_| offer.changes_window());
        let share = if self.seen.can_hold_window { 1.0 } else { 1.0 + 0.6 * source.uniform() };
        asked.map_or(1.0, |asked| asked.0 as f64 * share / now)
    }

    fn candidates(&self, answers: Answers) -> Vec<Cause> {
        let outside = [Cause::PathRate, Cause::Policer, Cause::QosClass, Cause::CpuHost];
        let all = CAUSES.into_iter().chain([Cause::QosClass]);
        let possible = all.filter(|cause| ruled_out(*cause, &self.test, &self.seen).is_none());
        possible.filter(|cause| answers != Answers::Deaf || !outside.contains(cause)).collect()
    }

    fn offers(&self) -> Vec<Offer> {
        let made = INTERVENTIONS
            .iter()
            .filter_map(|intervention| Offer::new(intervention, &self.test, &self.seen).ok());
        made.collect()
    }
}

/// The log of what a figure has with a change, over what it has without.
fn answer(
    offer: &Offer,
    watched: Watched,
    truth: Cause,
    answers: Answers,
    source: &mut Source,
) -> f64 {
    let silent =
        if offer.change == "pace=0.9" && watched == Watched::Rate { 0.9_f64.ln() } else { 0.0 };
    let own = offer.predicted.get(&(watched, truth));
    match (answers, own) {
        (Answers::Deaf, _) => silent,
        (Answers::Foreign, _) => foreign(offer, watched, source).unwrap_or(silent),
        // What the cause does not tell may be anything from nothing to twice the rate.
        (_, None) if watched == Watched::Rate && offer.change == "streams=2" => {
            0.6 * source.uniform()
        }
        (_, None) => silent,
        (Answers::Expected, Some(own)) => own.expected.ln(),
        (Answers::Drawn, Some(own)) if own.is_not_one => {
            let log = 1.2_f64.ln() + 0.9 * source.uniform();
            if source.chance(0.5) { log } else { -log }
        }
        (Answers::Drawn, Some(own)) => {
            let (low, high) = (own.low.max(0.3).ln(), own.high.min(3.0).ln());
            low + (high - low) * source.uniform()
        }
        (Answers::Edge, Some(own)) if own.is_not_one => 1.15_f64.ln(),
        (Answers::Edge, Some(own)) if own.low > 1.0 => own.low.ln(),
        (Answers::Edge, Some(own)) if own.high < 1.0 => own.high.ln(),
        (Answers::Edge, Some(own)) => {
            if source.chance(0.5) {
                own.low.ln()
            } else {
                own.high.ln()
            }
        }
    }
}

/// A ratio of 0.3 to 3 with which no candidate agrees.
fn foreign(offer: &Offer, watched: Watched, source: &mut Source) -> Option<f64> {
    let said: Vec<_> =
        offer.predicted.iter().filter(|((w, _), _)| *w == watched).map(|(_, p)| p).collect();
    let draws = (0..200).map(|_| 0.3_f64.ln() + 10_f64.ln() * source.uniform());
    let logs: Vec<f64> = draws.collect();
    logs.into_iter().find(|log| said.iter().all(|p| !p.meets([log - 0.1, log + 0.1])))
}

/// Simulates one proof; `series` has the logs of its runs' noise.
pub(crate) fn prove(
    scene: &Scene,
    (answers, ranking): (Answers, Ranking),
    series: &[f64],
    source: &mut Source,
) -> ProofFindings {
    let causes = scene.candidates(answers);
    let offers = scene.offers();
    let watched = [Watched::Rate, Watched::Queue, Watched::Retransmissions];
    let truth: Vec<(&str, ([f64; 3], f64))> = offers
        .iter()
        .map(|offer| {
            let (mut seen, ratio) = (offer.clone(), scene.window_ratio(offer, source));
            if let (true, Some(now)) = (offer.changes_window(), scene.seen.receive_window_bytes) {
                seen.follow_window(now, ratio);
            }
            let logs = watched.map(|w| answer(&seen, w, scene.truth, answers, source));
            (offer.change, (logs, ratio))
        })
        .collect();
    let others: Vec<Cause> = causes.iter().copied().filter(|c| *c != scene.truth).collect();
    let first = match ranking {
        Ranking::Wrong if !others.is_empty() => {
            others[(source.uniform() * others.len() as f64) as usize]
        }
        _ => scene.truth,
    };
    let mut prover = Prover::with_offers(
        offers,
        &causes,
        &[(first, 1.0)],
        ProofBudget::default(),
        source.seed(),
    );
    let mut runs = series.iter();
    while let Some(run) = prover.next_run() {
        let noise = *runs.next().expect("as many runs as the budget has");
        let answer = match run {
            ProofRun::Plain => ([0.0; 3], 1.0),
            ProofRun::Changed { change, .. } => {
                truth.iter().find(|(name, _)| *name == change).expect("an offer").1
            }
        };
        prover.record(figures(scene, answer, noise, source));
    }
    prover.findings()
}

/// A run's figures. Those of a queue and of losses scatter more than the rate.
fn figures(
    scene: &Scene,
    (logs, window_ratio): ([f64; 3], f64),
    noise: f64,
    source: &mut Source,
) -> RunFigures {
    let figure = |plain: Option<f64>, watched: Watched, log: f64| {
        Some(((plain? + watched.floor()) * log.exp() - watched.floor()).max(0.0))
    };
    let queue = logs[1] + 0.2 * source.normal();
    let lost = logs[2] + 0.3 * source.normal();
    RunFigures {
        rate: RATE * (logs[0] + noise).exp(),
        seconds: 1.3,
        queue_s: figure(scene.seen.queue_s(), Watched::Queue, queue),
        retransmitted_share: figure(scene.seen.retransmitted_share, Watched::Retransmissions, lost),
        window_bytes: scene.seen.receive_window_bytes.map(|bytes| bytes * window_ratio),
        cause: None,
    }
}

/// A path in a quiet lab.
pub(crate) fn quiet() -> Model {
    Model {
        name: "quiet",
        what: "each run scatters by 1 %, normal",
        series: |source, runs| (0..runs).map(|_| 0.01 * source.normal()).collect(),
    }
}

/// Proofs of one scene, each with noise of its own.
pub(crate) fn tally(
    scene: &Scene,
    kind: (Answers, Ranking),
    trials: u32,
    source: &mut Source,
    noise: impl Fn(&mut Source) -> Vec<f64>,
) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..trials {
        let series = noise(source);
        let findings = prove(scene, kind, &series, source);
        tally.count(scene, kind.0, &findings);
    }
    tally
}

/// The noise of the runs of a proof; `has_walk` adds a level that goes from run to run by steps of 3 %.
pub(crate) fn noise(model: &Model, source: &mut Source, has_walk: bool) -> Vec<f64> {
    let mut series = (model.series)(source, 16);
    let mut level = 0.0;
    for run in series.iter_mut().filter(|_| has_walk) {
        level = 0.95 * level + 0.03 * source.normal();
        *run += level;
    }
    series
}

/// How often proofs end in which way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) right: u32,
    pub(crate) wrong: u32,
    pub(crate) likely: u32,
    pub(crate) open: u32,
    pub(crate) runs: u32,
}

impl Tally {
    fn count(&mut self, scene: &Scene, answers: Answers, findings: &ProofFindings) {
        let has_truth = !matches!(answers, Answers::Foreign | Answers::Deaf);
        // At the edge two limits are near to each other, and both may be named.
        let most = if answers == Answers::Expected { 1 } else { 2 };
        let is_right = has_truth
            && findings.proof.causes.contains(&scene.truth)
            && findings.proof.causes.len() <= most;
        match findings.proof.level {
            ProofLevel::Proved if is_right => self.right += 1,
            ProofLevel::Proved => self.wrong += 1,
            ProofLevel::Likely => self.likely += 1,
            ProofLevel::Open => self.open += 1,
        }
        self.runs += findings.runs;
    }

    pub(crate) fn total(self) -> u32 {
        self.right + self.wrong + self.likely + self.open
    }
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            right: self.right + other.right,
            wrong: self.wrong + other.wrong,
            likely: self.likely + other.likely,
            open: self.open + other.open,
            runs: self.runs + other.runs,
        }
    }
}
