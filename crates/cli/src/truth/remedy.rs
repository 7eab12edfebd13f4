//! A verdict's remedy, as somebody would type it, put into a scenario.

use std::time::Duration;

use clap::Parser;
use linerate_core::ceilings::{Cause, Verdict};
use linerate_core::plan::{Direction, Extent, Test};
use linerate_core::truth::{HostSetup, Scenario};
use linerate_core::units::Span;

use crate::args::{Cli, Command};
use crate::plan;

/// The scenario with the remedy done, where a lab can do it: options of `linerate stream`, settings of a host's own network
/// and `advmss` of its route. `None` for what belongs to the whole machine or to an application.
pub(super) fn treated(scenario: &Scenario, verdict: &Verdict) -> Option<Scenario> {
    let (command, comment) = verdict
        .remedy
        .split_once("  # ")
        .unwrap_or((&verdict.remedy, ""));
    let mut treated = scenario.clone();
    if let Some(setting) = command.strip_prefix("linerate host set ") {
        let (key, value) = setting.split_once('=')?;
        // What has no copy in each network namespace a lab cannot set.
        let is_of_namespace = key.starts_with("net.ipv4.") || key.starts_with("net.ipv6.");
        is_of_namespace.then_some(())?;
        let value = value.trim_matches('\'').to_owned();
        let host = host(&mut treated, comment)?;
        host.sysctls.insert(key.to_owned(), value);
    } else if command.starts_with("ip ") {
        let words: Vec<&str> = command.split_whitespace().collect();
        let at = words.iter().rposition(|word| *word == "advmss")?;
        let bytes = words.get(at + 1)?.parse().ok()?;
        host(&mut treated, comment)?.advertised_mss = Some(bytes);
    } else {
        treated.test = retyped(command, &scenario.test, verdict.cause)?;
    }
    if matches!(treated.test.extent, Extent::Time(_)) {
        treated.test.warm_up = treated.test.warm_up.max(SETTLED);
    }
    Some(treated)
}

/// What was held back fills the path now: slow start ends in the losses of a queue, and what is predicted comes after these.
const SETTLED: Span = Span(Duration::from_secs(4));

/// Whose host a remedy's comment means.
fn host<'a>(scenario: &'a mut Scenario, comment: &str) -> Option<&'a mut HostSetup> {
    let is_sender = match comment {
        text if text.starts_with("on the sender's host") => true,
        text if text.starts_with("on the receiver's host") => false,
        _ => return None,
    };
    let is_client = is_sender == (scenario.test.direction != Direction::Down);
    Some(match is_client {
        true => &mut scenario.client,
        false => &mut scenario.server,
    })
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
    fn a_setting_goes_to_the_host_that_is_named() {
        let before = scenario(Cause::ReceiveWindow);
        let remedy =
            "linerate host set net.ipv4.tcp_rmem='4096 131072 8388608'  # on the receiver's host";
        let after = treated(&before, &verdict(before.cause, remedy)).unwrap();
        let receiver = match before.test.direction {
            Direction::Down => &after.client,
            _ => &after.server,
        };
        assert_eq!(receiver.sysctls["net.ipv4.tcp_rmem"], "4096 131072 8388608");
        let slower_start = Test {
            warm_up: after.test.warm_up,
            ..before.test.clone()
        };
        assert_eq!(after.test, slower_start);
        assert!(after.test.warm_up >= SETTLED);
    }

    #[test]
    fn a_command_is_the_test_that_is_run_for_the_same_time() {
        let before = scenario(Cause::Pacing);
        let remedy = "linerate stream server -p 40293 --size 65536 -C reno  # without --pacing";
        let after = treated(&before, &verdict(before.cause, remedy)).unwrap();
        assert_eq!(after.test.options.pacing_bps, None);
        assert_eq!(after.test.options.congestion.as_deref(), Some("reno"));
        assert_eq!(after.test.extent, before.test.extent);
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
