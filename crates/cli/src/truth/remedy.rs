//! A verdict's remedy, as somebody would type it, as treatments of its scenario.

use std::time::Duration;

use clap::Parser;
use linerate_core::ceilings::{Cause, Verdict};
use linerate_core::link::QueueLimit;
use linerate_core::plan::{Direction, Extent, Test};
use linerate_core::treatment::{End, Treatments};
use linerate_core::truth::Scenario;
use linerate_core::units::{BitRate, ByteCount, Span};

use crate::args::{Cli, Command};
use crate::plan;

/// What to run and under which treatments to have the remedy done, where a lab can do it: settings
/// of a host's own network and metrics of its route are treatments, and so is a socket option that
/// `linerate stream` is given; what it is no longer given, and what it sends, is another test.
/// `None` for what belongs to the whole machine or to an application.
pub(super) fn treated(scenario: &Scenario, verdict: &Verdict) -> Option<(Scenario, Treatments)> {
    let (command, comment) = verdict
        .remedy
        .split_once("  # ")
        .unwrap_or((&verdict.remedy, ""));
    let mut treated = scenario.clone();
    let treatments = match of_host(command) {
        Some(change) => format!("{}.{}", end(scenario, comment)?, change?),
        None => {
            let test = retyped(command, &scenario.test, verdict.cause)?;
            let changes = options_taken_out(&mut treated.test, test, &scenario.test);
            if changes.is_empty() {
                "none".to_owned()
            } else {
                changes.join(",")
            }
        }
    };
    if matches!(treated.test.extent, Extent::Time(_)) {
        treated.test.warm_up = treated.test.warm_up.max(settled(scenario));
    }
    Some((treated, treatments.parse().ok()?))
}

/// The treatment that a command for a host is; `None` inside where a lab has no such thing, outside
/// where it is no such command.
fn of_host(command: &str) -> Option<Option<String>> {
    if let Some(setting) = command.strip_prefix("linerate host set ") {
        return Some(sysctl(setting));
    }
    command.starts_with("ip ").then(|| metric(command))
}

/// What has no copy in each network namespace a lab cannot set.
fn sysctl(setting: &str) -> Option<String> {
    let (key, value) = setting.split_once('=')?;
    let is_of_namespace = key.starts_with("net.ipv4.") || key.starts_with("net.ipv6.");
    is_of_namespace.then(|| format!("sysctl:{key}={}", value.trim_matches('\'')))
}

/// The last of `mtu N` and `advmss N`: what stands before is the route that there is.
fn metric(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let at = words
        .iter()
        .rposition(|word| ["mtu", "advmss"].contains(word))?;
    let bytes: u32 = words.get(at + 1)?.parse().ok()?;
    Some(format!("route_{}={bytes}", words[at]))
}

/// What was held back fills the path now: slow start ends in the losses of a queue, and what is
/// predicted comes after these. A full queue is a round-trip time of the path then, and it takes
/// some of them until the losses are noticed and mended.
fn settled(scenario: &Scenario) -> Span {
    let links = scenario.path.iter().flat_map(|path| [&path.up, &path.down]);
    let queued = links.filter_map(|link| {
        let bytes = match link.queue {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => packets.saturating_mul(FULL_PACKET),
        };
        let seconds = bytes as f64 * 8.0 / link.rate_bps.filter(|rate| *rate > 0)? as f64;
        Some(Duration::from_secs_f64(seconds.min(LONGEST_QUEUE_S)))
    });
    let longest = queued.max().unwrap_or_default();
    Span((longest * ROUND_TRIPS).max(SETTLED))
}

const SETTLED: Duration = Duration::from_secs(4);
const ROUND_TRIPS: u32 = 8;
/// Bytes.
const FULL_PACKET: u64 = 1500;
/// Beyond that nobody waits for it.
const LONGEST_QUEUE_S: f64 = 3.0;

/// Whose host a remedy's comment means, as treatments name it.
fn end(scenario: &Scenario, comment: &str) -> Option<End> {
    let is_sender = match comment {
        text if text.starts_with("on the sender's host") => true,
        text if text.starts_with("on the receiver's host") => false,
        _ => return None,
    };
    let is_client = is_sender == (scenario.test.direction != Direction::Down);
    Some(if is_client { End::Client } else { End::Server })
}

/// Takes the socket options that the remedy sets out of its test and gives them as treatments,
/// which are read back in the run. Those that were there before stay in the test.
fn options_taken_out(run: &mut Test, remedy: Test, before: &Test) -> Vec<String> {
    *run = remedy;
    let (options, before) = (&mut run.options, &before.options);
    let mut changes = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        changes.extend(value.map(|value| format!("{name}={value}")));
    };
    let window = taken(
        &mut options.receive_window_bytes,
        &before.receive_window_bytes,
    );
    add("receive_window", window.map(|ByteCount(n)| n.to_string()));
    let buffer = taken(&mut options.send_buffer_bytes, &before.send_buffer_bytes);
    add("send_buffer", buffer.map(|ByteCount(n)| n.to_string()));
    let mss = taken(&mut options.mss_bytes, &before.mss_bytes);
    add("mss", mss.map(|n| n.to_string()));
    let pacing = taken(&mut options.pacing_bps, &before.pacing_bps);
    add("pacing", pacing.map(|BitRate(n)| format!("{n}bit")));
    add(
        "congestion",
        taken(&mut options.congestion, &before.congestion),
    );
    changes
}

/// What is set now and was not before.
fn taken<T: PartialEq>(now: &mut Option<T>, before: &Option<T>) -> Option<T> {
    if now == before { None } else { now.take() }
}

/// The test that the command is, for the time of the one before.
fn retyped(command: &str, before: &Test, cause: Cause) -> Option<Test> {
    let cli = Cli::try_parse_from(command.split_whitespace()).ok()?;
    let Command::Stream(args) = cli.command else {
        return None;
    };
    let mut test = plan::stream(&args, before.seed)
        .ok()?
        .tests
        .into_iter()
        .next()?;
    if cause != Cause::Startup && matches!(before.extent, Extent::Time(_)) {
        test.extent = before.extent;
        test.warm_up = before.warm_up;
        test.interval = before.interval;
    }
    Some(test)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::link::PathSpec;
    use linerate_core::truth::draw;

    fn scenario(cause: Cause) -> Scenario {
        let drawn = draw(1, 48).into_iter();
        drawn
            .into_iter()
            .find(|s| s.cause == cause)
            .expect("four of each")
    }

    fn verdict(cause: Cause, remedy: &str) -> Verdict {
        Verdict {
            cause,
            share_of_ceiling: None,
            evidence: Vec::new(),
            remedy: remedy.to_owned(),
            predicted_bps: None,
            next_cause: None,
        }
    }

    #[test]
    fn a_setting_is_a_treatment_of_the_host_that_is_named() {
        let before = scenario(Cause::ReceiveWindow);
        let remedy =
            "linerate host set net.ipv4.tcp_rmem='4096 131072 8388608'  # on the receiver's host";
        let (after, treatments) = treated(&before, &verdict(before.cause, remedy)).unwrap();
        let receiver = match before.test.direction {
            Direction::Down => End::Client,
            _ => End::Server,
        };
        let asked = format!("{receiver}.sysctl:net.ipv4.tcp_rmem=4096 131072 8388608");
        assert_eq!(treatments, asked.parse().unwrap());
        assert_eq!(
            (&after.client, &after.server),
            (&before.client, &before.server)
        );
        let slower_start = Test {
            warm_up: after.test.warm_up,
            ..before.test.clone()
        };
        assert_eq!(after.test, slower_start);
        assert!(after.test.warm_up >= Span(SETTLED));
    }

    #[test]
    fn a_deep_queue_takes_longer_to_settle() {
        let mut deep = scenario(Cause::Pacing);
        let mut path = PathSpec::default();
        path.up.rate_bps = Some(4_000_000);
        path.up.queue = QueueLimit::Bytes(500_000);
        deep.path = Some(path);
        assert_eq!(settled(&deep), Span(Duration::from_secs(8)));
        deep.path = None;
        assert_eq!(settled(&deep), Span(SETTLED));
    }

    #[test]
    fn a_metric_is_a_treatment_of_the_route() {
        let before = scenario(Cause::SegmentSize);
        let remedy = "ip route change $(ip route get fibmatch 10.0.0.1 | sed -E 's/ advmss (lock )?[0-9]+//') advmss \
                      1460  # on the sender's host";
        let (_, treatments) = treated(&before, &verdict(before.cause, remedy)).unwrap();
        let sender = match before.test.direction {
            Direction::Down => "server",
            _ => "client",
        };
        let asked = format!("{sender}.route_advmss=1460");
        assert_eq!(treatments, asked.parse().unwrap());
    }

    #[test]
    fn a_command_is_the_test_that_is_run_for_the_same_time() {
        let before = scenario(Cause::Pacing);
        let remedy = "linerate stream server -p 40293 --size 65536  # without --pacing";
        let (after, treatments) = treated(&before, &verdict(before.cause, remedy)).unwrap();
        assert_eq!(after.test.options.pacing_bps, None);
        assert_eq!(after.test.extent, before.test.extent);
        assert!(treatments.is_empty());
    }

    #[test]
    fn an_option_that_a_command_adds_is_a_treatment() {
        let mut before = scenario(Cause::Congestion);
        before.test.options.mss_bytes = Some(1000);
        before.test.options.congestion = Some("reno".to_owned());
        let remedy = "linerate stream server --mss 1000 -C cubic --receive-window 500000";
        let (after, treatments) = treated(&before, &verdict(before.cause, remedy)).unwrap();
        assert_eq!(
            treatments,
            "receive_window=500000,congestion=cubic".parse().unwrap()
        );
        assert_eq!(after.test.options.mss_bytes, Some(1000));
        assert_eq!(after.test.options.congestion, None);
        treatments.apply_to(&mut after.test.clone()).unwrap();
    }

    #[test]
    fn what_a_lab_cannot_do_is_not_done() {
        let before = scenario(Cause::SendBuffer);
        for remedy in [
            "",
            "linerate host set net.core.wmem_max=1  # on its host, and then: x",
            "buy a faster link",
        ] {
            assert!(
                treated(&before, &verdict(before.cause, remedy)).is_none(),
                "{remedy}"
            );
        }
    }
}
