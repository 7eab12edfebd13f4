//! `capacity`: many connections, held; and the search for the number at which they stop. The
//! options become a test, whose progress is shown while it runs.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use linerate_core::capacity::{
    CapacityDocument, CapacityTest, Load, LoadPace, MAX_HELD, PoolResult,
};
use linerate_core::units::{ByteCount, Span};
use linerate_engine::{
    CapacityLive, CapacityOptions, CapacityOutcome, CapacityPhase, Client, run_capacity_worker,
};

use crate::args::{CapacityArgs, LoadOptions, PopulationOptions};
use crate::failure::Failure;
use crate::output::{self, Output, conclude};
use crate::progress::Progress;
use crate::run::signals;
use crate::site::place;

/// Opens, holds, loads and closes what was asked for, and prints what came of it.
///
/// # Errors
/// An option is wrong, the endpoint refuses, this host lacks something, or not all of them stayed
/// open.
pub(crate) fn execute(args: CapacityArgs) -> Result<(), Failure> {
    let format = output::json_or_text(args.document.json);
    let test = resolve(&args).map_err(Failure::usage)?;
    let output = Output::open(&args.document, format)?;
    let mut progress = Progress::new(format, args.document.quiet);
    let (site, target) = place(args.host, &args.path, test.seed, &mut progress)?;
    let mut client = Client::connect(target, signals()?)?;
    let mut live = Live::new(progress, &test);
    let options =
        CapacityOptions { workers: args.population.workers, ..CapacityOptions::default() };
    let outcome = client.capacity(&test, &options, &mut |now| live.show(now));
    drop(live);
    let CapacityOutcome { mut document, error } = outcome?;
    site.iter().for_each(|site| site.describe(&mut document));
    conclude(&document, error.map(Failure::from), output, None)?;
    if test.find_limit {
        return Ok(());
    }
    hold_to(&document)
}

/// Holds connections for the process that has started this one.
///
/// # Errors
/// It was started by somebody else.
pub(crate) fn work() -> Result<(), Failure> {
    run_capacity_worker().map_err(Failure::failed)
}

/// Fails unless everything that was asked for is there.
fn hold_to(document: &CapacityDocument) -> Result<(), Failure> {
    let pools = [("TCP connections", &document.tcp), ("UDP sockets", &document.udp)];
    let short: Vec<String> =
        pools.into_iter().filter_map(|(name, pool)| shortfall(name, pool.as_ref()?)).collect();
    if short.is_empty() { Ok(()) } else { Err(Failure::failed(anyhow!(short.join("; ")))) }
}

fn shortfall(name: &str, pool: &PoolResult) -> Option<String> {
    let PoolResult { asked, opened, alive, lost, .. } = pool;
    let losses = match lost {
        0 => String::new(),
        lost => format!(", {lost} of {opened} opened were lost"),
    };
    (alive < asked || *lost > 0).then(|| format!("{alive} of {asked} {name} are alive{losses}"))
}

// Progress of a run: a line for each phase, and on a terminal how many connections are open.

/// Shows the progress of a run.
struct Live {
    progress: Progress,
    phase: Option<(CapacityPhase, u64)>,
    shown_s: f64,
    /// Time that the run takes after all are open; `None` if that is not known.
    rest: Option<Duration>,
    /// Seconds since the run began; those of opening and of measuring a latency; and how many
    /// latencies were measured.
    at_s: f64,
    opening_s: f64,
    measuring_s: f64,
    measured: u32,
}

impl Live {
    fn new(progress: Progress, test: &CapacityTest) -> Self {
        let load = test.load.as_ref().map_or(Duration::ZERO, |load| load.time.0);
        let planned = !test.find_limit;
        Self {
            progress,
            phase: None,
            shown_s: 0.0,
            rest: planned.then_some(test.hold.0 + load + CLOSING),
            at_s: 0.0,
            opening_s: 0.0,
            measuring_s: 0.0,
            measured: 0,
        }
    }

    fn count(&mut self, now: &CapacityLive) {
        let passed = now.at_s - self.at_s;
        self.at_s = now.at_s;
        let before = self.phase.map(|(phase, _)| phase);
        match before {
            Some(CapacityPhase::Opening | CapacityPhase::OpeningUdp) => self.opening_s += passed,
            Some(CapacityPhase::Measuring) => self.measuring_s += passed,
            _ => {}
        }
        let is_new = before != Some(now.phase);
        self.measured += u32::from(is_new && now.phase == CapacityPhase::Measuring);
    }

    /// Seconds until all are open, once the rate of opening is known.
    fn until_held_s(&self, now: &CapacityLive) -> Option<f64> {
        let is_new = self.phase != Some((now.phase, now.asked));
        match now.phase {
            CapacityPhase::Opening | CapacityPhase::OpeningUdp if now.open >= now.asked / 10 => {
                let each_s = self.opening_s / now.open.max(1) as f64;
                let to_measure = f64::from(MEASURED.saturating_sub(self.measured));
                let measuring_s = self.measuring_s / f64::from(self.measured.max(1));
                let to_open = now.asked.saturating_sub(now.open) as f64;
                Some(each_s * to_open + measuring_s * to_measure)
            }
            CapacityPhase::Holding if is_new => Some(0.0),
            _ => None,
        }
    }

    /// Shows the state of the run, which always goes on.
    fn show(&mut self, now: &CapacityLive) -> bool {
        self.count(now);
        if let Some((rest, until_held_s)) = self.rest.zip(self.until_held_s(now)) {
            let left = rest + Duration::from_secs_f64(until_held_s);
            self.progress.takes([left, left.mul_f64(BUSY_TIMES)]);
        }
        let phase = Some((now.phase, now.asked));
        if self.phase != phase {
            self.phase = phase;
            self.shown_s = now.at_s;
            self.progress.phase(&words(now));
        } else if (now.at_s - self.shown_s).abs() >= EVERY_S {
            self.shown_s = now.at_s;
            self.progress.live(&words(now));
        }
        true
    }
}

/// Latencies of a run: with none of the connections open, a tenth, half and all of them.
const MEASURED: u32 = 4;
/// Time for the last heartbeats, closing and the reports.
const CLOSING: Duration = Duration::from_secs(1);
/// How many times longer a run may take on a busy host.
const BUSY_TIMES: f64 = 1.5;
/// Shortest time between two changes of the line, in seconds.
const EVERY_S: f64 = 0.1;

fn words(now: &CapacityLive) -> String {
    let doing = match now.phase {
        CapacityPhase::Preparing => "starting the workers",
        CapacityPhase::Opening => "opening TCP connections",
        CapacityPhase::OpeningUdp => "opening UDP sockets",
        CapacityPhase::Measuring => "measuring an active connection",
        CapacityPhase::Holding => "holding",
        CapacityPhase::Loading => "requests over a part of them",
        CapacityPhase::Proving => "the last heartbeat of each",
        CapacityPhase::Closing => "closing",
    };
    let lost = match now.lost {
        0 => String::new(),
        lost => format!(", {lost} LOST"),
    };
    format!("{doing}: {} of {} open{lost}", now.open, now.asked)
}

// The test that the options ask for.

/// What the options ask for. Of a search, `connections` (or `udp_sockets`) are the most that it may
/// try.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
fn resolve(args: &CapacityArgs) -> anyhow::Result<CapacityTest> {
    let population = &args.population;
    let (connections, udp_sockets) = counts(population)?;
    let find_limit = population.find_limit;
    let default_hold = if find_limit { SHORT_HOLD } else { DEFAULT_HOLD };
    one_family(&population.sources)?;
    ensure!(
        connections > 0 || population.churn.is_none(),
        "--churn cannot be used without TCP connections: UDP sockets are not opened anew"
    );
    let test = CapacityTest {
        connections,
        udp_sockets,
        rate_per_s: population.rate,
        hold: population.hold.unwrap_or(Span(default_hold)),
        heartbeat: population
            .heartbeat
            .unwrap_or_else(|| heartbeat(connections.saturating_add(udp_sockets))),
        churn_per_s: population.churn.unwrap_or(0),
        load: load(&args.load, connections, find_limit)?,
        latency: connections > 0 && !find_limit,
        find_limit,
        sources: population.sources.clone(),
        seed: population.random.seed,
    };
    test.check()?;
    Ok(test)
}

fn counts(population: &PopulationOptions) -> anyhow::Result<(u64, u64)> {
    let asked = |count: Option<crate::args::Count>| count.map(|count| count.0);
    let (tcp, udp) = (asked(population.connections), asked(population.udp_sockets));
    let both = tcp.is_some_and(|n| n > 0) && udp.is_some_and(|n| n > 0);
    if population.find_limit && both {
        bail!("--find-limit searches for one number: give --connections or --udp-sockets");
    }
    let default = match (population.find_limit, udp) {
        (true, None) => MAX_HELD,
        (false, None) => DEFAULT_CONNECTIONS,
        (_, Some(_)) => 0,
    };
    Ok((tcp.unwrap_or(default), udp.unwrap_or(0)))
}

/// A period in which all of them have their turn at a rate that costs little.
fn heartbeat(all: u64) -> Span {
    Span(Duration::from_secs(all.div_ceil(HEARTBEATS_PER_S).max(1)))
}

fn load(options: &LoadOptions, connections: u64, find_limit: bool) -> anyhow::Result<Option<Load>> {
    let named = [
        ("--active", options.active.is_some()),
        ("--requests", options.requests.is_some()),
        ("--request", options.request.is_some()),
        ("--response", options.response.is_some()),
    ];
    let time = options.load.unwrap_or(Span(DEFAULT_LOAD));
    if find_limit || connections == 0 || time.0.is_zero() {
        let why = match connections {
            0 => "without TCP connections",
            _ => "with --load 0",
        };
        if let Some((name, _)) = named.into_iter().find(|(_, given)| *given) {
            bail!("{name} cannot be used {why}");
        }
        return Ok(None);
    }
    let active =
        options.active.map_or_else(|| (connections / 10).clamp(1, MAX_ACTIVE), |count| count.0);
    let pace = match options.requests {
        Some(rate) => LoadPace::PerSecond(rate),
        None => LoadPace::Closed,
    };
    Ok(Some(Load {
        connections: active,
        pace,
        time,
        request_bytes: options.request.unwrap_or(DEFAULT_MESSAGE),
        response_bytes: options.response.unwrap_or(DEFAULT_MESSAGE),
    }))
}

fn one_family(sources: &[IpAddr]) -> anyhow::Result<()> {
    let other = |first: &IpAddr| sources.iter().find(|a| a.is_ipv4() != first.is_ipv4());
    match sources.first().and_then(|first| Some((first, other(first)?))) {
        Some((first, other)) => bail!("--sources has {first} and {other}: give one family"),
        None => Ok(()),
    }
}

/// TCP connections, if nothing else was asked for.
const DEFAULT_CONNECTIONS: u64 = 1000;
const DEFAULT_HOLD: Duration = Duration::from_secs(5);
/// Time that each round of a search holds its connections.
const SHORT_HOLD: Duration = Duration::from_secs(1);
/// Heartbeats a second that cost an end a small part of one CPU.
const HEARTBEATS_PER_S: u64 = 20_000;
const DEFAULT_LOAD: Duration = Duration::from_secs(1);
/// Connections of the load, unless they are named.
const MAX_ACTIVE: u64 = 1000;
const DEFAULT_MESSAGE: ByteCount = ByteCount(64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, command};

    #[test]
    fn missing_or_lost_connections_fail_with_their_number() {
        let pool = |asked, alive, lost| PoolResult {
            asked,
            opened: alive + lost,
            alive,
            lost,
            ..PoolResult::default()
        };
        assert_eq!(shortfall("TCP connections", &pool(5, 5, 0)), None);
        assert_eq!(
            shortfall("TCP connections", &pool(5, 3, 0)).as_deref(),
            Some("3 of 5 TCP connections are alive")
        );
        assert_eq!(
            shortfall("UDP sockets", &pool(5, 3, 1)).as_deref(),
            Some("3 of 5 UDP sockets are alive, 1 of 4 opened were lost")
        );
    }

    #[test]
    fn what_measuring_takes_is_not_taken_for_the_rate_of_opening() {
        let Ok(Command::Capacity(args)) = command("capacity pit") else {
            panic!("capacity was asked for");
        };
        let test = resolve(&args).unwrap();
        let progress = Progress::new(crate::output::Format::Text, true);
        let mut live = Live::new(progress, &test);
        let mut see = |at_s, phase, open| {
            let now = CapacityLive { at_s, phase, asked: 1000, open, lost: 0 };
            live.count(&now);
            let left = live.until_held_s(&now);
            live.phase = Some((phase, 1000));
            left
        };
        assert_eq!(see(0.0, CapacityPhase::Measuring, 0), None);
        assert_eq!(see(2.0, CapacityPhase::Opening, 0), None);
        // 100 in a second, and three more times of two seconds.
        let left = see(3.0, CapacityPhase::Opening, 100);
        assert_eq!(left, Some(9.0 + 6.0));
        see(3.0, CapacityPhase::Measuring, 100);
        assert_eq!(see(5.0, CapacityPhase::Opening, 100), Some(9.0 + 4.0));
        assert_eq!(see(14.0, CapacityPhase::Holding, 1000), Some(0.0));
    }

    #[test]
    fn losses_are_shown_as_soon_as_there_are_any() {
        let mut now = CapacityLive {
            at_s: 1.0,
            phase: CapacityPhase::Holding,
            asked: 500,
            open: 500,
            lost: 0,
        };
        assert_eq!(words(&now), "holding: 500 of 500 open");
        (now.open, now.lost) = (499, 1);
        assert_eq!(words(&now), "holding: 499 of 500 open, 1 LOST");
    }

    fn asked(options: &str) -> Result<CapacityTest, String> {
        let Command::Capacity(args) = command(&format!("capacity pit {options}"))? else {
            panic!("capacity was asked for");
        };
        resolve(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_thousand_connections_are_held_unless_something_else_is_asked_for() {
        let test = asked("").unwrap();
        assert_eq!((test.connections, test.udp_sockets), (1000, 0));
        assert_eq!(test.hold.0, DEFAULT_HOLD);
        assert_eq!(test.heartbeat.0, Duration::from_secs(1));
        assert_eq!(test.load.as_ref().map(|load| load.connections), Some(100));
        assert!(test.latency && !test.find_limit);
        let udp = asked("--udp-sockets 10k").unwrap();
        assert_eq!((udp.connections, udp.udp_sockets, udp.load), (0, 10_000, None));
        let many = asked("--connections 1M --udp-sockets 200k").unwrap();
        assert_eq!(many.heartbeat.0, Duration::from_secs(60));
    }

    #[test]
    fn the_options_are_taken() {
        let line = "--connections 20k --udp-sockets 10k --rate 5k --hold 10s --heartbeat 500ms \
            --churn 100 --load 2s --active 50 \
                    --requests 1k --request 128 --response 1KiB --sources 127.0.0.1,127.0.0.2 \
                    --seed 3";
        let test = asked(line).unwrap();
        assert_eq!(test.rate_per_s, Some(5_000));
        assert_eq!(test.churn_per_s, 100);
        assert_eq!(test.sources.len(), 2);
        assert_eq!(test.seed, 3);
        let load = test.load.unwrap();
        assert_eq!(load.pace, LoadPace::PerSecond(1_000));
        assert_eq!((load.request_bytes.0, load.response_bytes.0), (128, 1024));
    }

    #[test]
    fn a_search_tries_all_that_is_allowed_for_a_short_time_each() {
        let test = asked("--find-limit").unwrap();
        assert_eq!((test.connections, test.hold.0), (MAX_HELD, SHORT_HOLD));
        assert!(test.load.is_none() && !test.latency);
        let udp = asked("--find-limit --udp-sockets 5k").unwrap();
        assert_eq!((udp.connections, udp.udp_sockets), (0, 5000));
    }

    #[test]
    fn what_contradicts_itself_or_is_out_of_range_is_refused() {
        for (line, words) in [
            ("--connections 0", "--connections and --udp-sockets together 0"),
            ("--connections 11M", "it must be 0 to 10M"),
            ("--connections many", "20000, 20k or 1.5M"),
            ("--rate 0", "it must be 1 to 10M"),
            ("--rate 0.5", "it must be 1 to 10M"),
            ("--rate -1", "unexpected argument"),
            ("--hold 25h", "it must be 0 to 24h"),
            ("--heartbeat 10ms", "it must be 100ms to 24h"),
            ("--udp-sockets 5 --churn 3", "--churn cannot be used without TCP connections"),
            ("--udp-sockets 5 --active 3", "--active cannot be used without TCP connections"),
            ("--load 0 --requests 3", "--requests cannot be used with --load 0"),
            ("--active 1001", "--active 1001: it must be 1 to 1000"),
            ("--request 2MiB", "it must be 8 to 1MiB"),
            ("--find-limit --churn 5", "cannot be used with"),
            ("--find-limit --load 5s", "cannot be used with"),
            ("--find-limit --connections 5 --udp-sockets 5", "searches for one number"),
            ("--sources 127.0.0.1,::1", "give one family"),
            ("--sources here", "invalid value"),
        ] {
            let message = asked(line).expect_err(line);
            assert!(message.contains(words), "{line}: {message}");
        }
    }
}
