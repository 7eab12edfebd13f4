//! Before the first pair: may and can it be done, are both ends quiet, has the run the figures.

use std::time::{Duration, Instant, SystemTime};

use linerate_core::compare::{Fault, IdleLoad, Metric, Side};
use linerate_core::plan::{
    Closer, Direction, ExchangeTest, Extent, Protocol, SocketOptions, Test, Traffic,
};
use linerate_core::record::{Caveat, CaveatKind, Environment, Record};
use linerate_core::treatment::Treatments;
use linerate_core::units::{Span, format_rfc3339};

use super::{CompareObserver, CompareOptions, Sides};
use crate::client::Client;
use crate::error::MeasureError;
use crate::load::LoadBeside;
use crate::treated::{self, What};
use crate::treatment::{forget, remembers};

/// How long both hosts are watched while next to nothing is sent.
const WATCHED: Duration = Duration::from_secs(1);
/// Requests per second meanwhile: what tells the load of both ends, and next to nothing.
const REQUESTS: f64 = 2.0;
/// A host that is busier than this while nothing is sent is not quiet, percent of all its CPUs.
const QUIET: f64 = 10.0;
/// Longest warm-up run: it is to wake up what sleeps, not to measure.
const MAX_WARM_UP: Duration = Duration::from_secs(2);
/// Figures that are named to who asked for another.
const USUAL: [&str; 8] = [
    "throughput_bps",
    "transactions_per_s",
    "connections_per_s",
    "latency_us.p50",
    "sender.cpu_seconds",
    "receiver.cpu_seconds",
    "tcp.retransmitted_segments",
    "udp.lost",
];

/// Findings of the run before the first pair.
#[derive(Debug)]
pub(super) struct Preflight {
    pub(super) started_at: String,
    pub(super) idle: IdleLoad,
    pub(super) environment: Environment,
    pub(super) caveats: Vec<Caveat>,
    /// What is compared: what was asked for, and of the other figures those that the run has.
    pub(super) metrics: Vec<Metric>,
    /// How long a pair takes.
    pub(super) pair: Duration,
}

/// Looks at both ends, then runs once under each treatment and throws the runs away.
///
/// # Errors
/// The endpoint applies no treatments and is to; a treatment cannot be applied; a figure is not
/// there; a run failed.
pub(super) fn examine(
    sides: &mut Sides<'_>,
    options: &CompareOptions,
    load: &mut Option<LoadBeside>,
    observer: &mut dyn CompareObserver,
) -> Result<Preflight, MeasureError> {
    let started_at = format_rfc3339(SystemTime::now());
    for treatments in [&options.a, &options.b] {
        treated::check_permission(sides.a, treatments)?;
    }
    observer.phase("looking whether both ends are quiet");
    let none = Treatments::default();
    let idle = idle_test(options.test.seed);
    let watched = treated::run(sides.of(Side::A)?, &idle, What::Run, &none, None, &mut ())?.record;
    let idle = idle_load(&watched);
    let mut caveats = Vec::new();
    caveats.extend(metrics_kept(sides.a, options));
    let shared = watched.environment.shared_kernel;
    caveats.extend(not_quiet(&idle, shared, &options.forbidden));
    let warm_up = shortened(&options.test);
    let mut metrics = options.metrics.clone();
    metrics.extend(options.metrics_if_there.iter().cloned());
    let began = Instant::now();
    for side in [Side::A, Side::B] {
        let treatments = options.treatments(side);
        observer.phase(&format!("warming up, {}", side.name()));
        let (client, what) = (sides.of(side)?, options.what());
        let run = treated::run(client, &warm_up, what, treatments, load.as_mut(), observer)?;
        let record = run.record;
        has_figures(&record, &options.metrics)?;
        let is_there = |metric: &Metric| metric.of(&record).is_some_and(|value| value > 0.0);
        metrics.retain(|metric| options.metrics.contains(metric) || is_there(metric));
        // Such as what the endpoint could not forget of the run before.
        let unread =
            record.caveats.into_iter().filter(|caveat| caveat.kind == CaveatKind::NotReadable);
        caveats.extend(unread);
    }
    caveats.dedup();
    let shorter = [&options.test, &warm_up].map(|test| test.seconds().unwrap_or_default());
    let longer = Duration::from_secs_f64(shorter[0] - shorter[1]);
    Ok(Preflight {
        metrics,
        pair: began.elapsed() + longer * 2,
        started_at,
        idle,
        environment: watched.environment,
        caveats,
    })
}

/// Two requests of a byte in a second: the endpoint tells its load of it.
fn idle_test(seed: u64) -> Test {
    Test {
        traffic: Traffic::Rr(ExchangeTest {
            rate_per_s: Some(REQUESTS),
            closer: Closer::Client,
            ..ExchangeTest::new(1, 1)
        }),
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 1,
        extent: Extent::Time(Span(WATCHED)),
        warm_up: Span(Duration::ZERO),
        interval: Span(WATCHED),
        options: SocketOptions { nodelay: true, ..SocketOptions::default() },
        seed,
    }
}

fn idle_load(watched: &Record) -> IdleLoad {
    let busy = |name| {
        let (_, end) = watched.ends().find(|(end, _)| *end == name)?;
        end.host_cpu_percent
    };
    IdleLoad {
        // The client sends the requests.
        client_cpu_percent: busy("sender"),
        server_cpu_percent: busy("receiver"),
    }
}

fn not_quiet(idle: &IdleLoad, shared: bool, forbidden: &[Fault]) -> Option<Caveat> {
    let ends = if shared {
        vec![("this host", idle.client_cpu_percent)]
    } else {
        vec![
            ("this host", idle.client_cpu_percent),
            ("the endpoint's host", idle.server_cpu_percent),
        ]
    };
    let busy: Vec<String> = ends
        .into_iter()
        .filter_map(|(name, percent)| Some((name, percent.filter(|p| *p > QUIET)?)))
        .map(|(name, percent)| format!("{name} was {percent:.0} % busy"))
        .collect();
    (!busy.is_empty()).then(|| {
        Caveat::new(
            CaveatKind::BusyHost,
            format!("before the first run {}: the runs scatter more", busy.join(" and ")),
            match (shared, forbidden.contains(&Fault::BusyHost)) {
                (false, false) => "end what else runs there, or --forbid busy_host",
                (false, true) => {
                    "end what else runs there: the pairs that it disturbs are excluded"
                }
                // There it shows only what the hypervisor takes.
                (true, _) => {
                    "end what else runs there: --forbid busy_host cannot tell it from the test on \
                     one kernel"
                }
            },
        )
    })
}

/// Where the kernel's memory of the peer cannot be cleared, a run starts with what the one before
/// has learnt.
fn metrics_kept(client: &Client, options: &CompareOptions) -> Option<Caveat> {
    if options.test.protocol == Protocol::Udp {
        return None;
    }
    let error = forget(client.peer().ip()).err()?;
    Some(remembers("", &error))
}

fn shortened(test: &Test) -> Test {
    let extent = match test.extent {
        Extent::Time(time) => Extent::Time(time.min(Span(MAX_WARM_UP))),
        other => other,
    };
    Test { extent, ..test.clone() }
}

fn has_figures(record: &Record, metrics: &[Metric]) -> Result<(), MeasureError> {
    let Some(missing) = metrics.iter().find(|metric| metric.of(record).is_none()) else {
        return Ok(());
    };
    let usual = USUAL.iter().filter(|path| {
        let metric = path.parse::<Metric>();
        metric.is_ok_and(|metric| metric.of(record).is_some())
    });
    Err(MeasureError::NoFigure {
        metric: missing.to_string(),
        has: usual.copied().collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_busy_host_is_never_what_was_done_or_cannot_help() {
        let busy = IdleLoad { client_cpu_percent: Some(60.0), server_cpu_percent: None };
        let remedy = |shared, forbidden: &[Fault]| {
            let caveat = not_quiet(&busy, shared, forbidden).unwrap();
            serde_json::to_value(&caveat.remedy).unwrap().to_string()
        };
        let forbidden = [Fault::BusyHost];
        assert!(remedy(false, &[]).contains("or --forbid busy_host"));
        assert!(remedy(false, &forbidden).contains("are excluded"));
        assert!(remedy(true, &[]).contains("cannot tell"));
        assert!(remedy(true, &forbidden).contains("cannot tell"));
    }
}
