//! The options of `capacity` → a [`CapacityTest`] that has passed its own check.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{bail, ensure};
use linerate_core::capacity::{CapacityTest, Load, LoadPace, MAX_HELD};
use linerate_core::units::{ByteCount, Span};

use crate::args::{CapacityArgs, LoadOptions, PopulationOptions};

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

/// What the options ask for. Of a search, `connections` (or `udp_sockets`) are the most that it may
/// try.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
pub(crate) fn test(args: &CapacityArgs) -> anyhow::Result<CapacityTest> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, command};

    fn asked(options: &str) -> Result<CapacityTest, String> {
        let Command::Capacity(args) = command(&format!("capacity pit {options}"))? else {
            panic!("capacity was asked for");
        };
        test(&args).map_err(|error| error.to_string())
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
