//! `throughput`: the highest rate of datagrams that gets through, by frame size.

use anyhow::{anyhow, ensure};
use linerate_core::plan::Direction;
use linerate_core::throughput::{FrameSize, Goal, MAX_FRAME, ThroughputTest};
use linerate_core::units::Family;
use linerate_engine::{Target, largest_frame, throughput};

use crate::args::{SearchOptions, ThroughputArgs};
use crate::failure::Failure;
use crate::output::{self, Output, conclude};
use crate::progress::Progress;
use crate::run::signals;
use crate::site::place;
use crate::target::is_alone_on;

/// Searches each size in each direction, and prints what was found.
///
/// # Errors
/// An option is wrong, the endpoint refuses or is not there, or the search ended early.
pub(crate) fn execute(args: ThroughputArgs) -> Result<(), Failure> {
    let format = output::json_or_text(args.document.json);
    let search = &args.search;
    // What is wrong whatever the interface is refused before anything is made.
    let frames = match search.frames[..] {
        [] => ThroughputTest::usual_frames(Family::Ipv4, None),
        _ => typed_frames(search, MAX_FRAME),
    };
    test(search, &frames, Family::Ipv4, None).map_err(Failure::usage)?;
    let output = Output::open(&args.document, format)?;
    let mut progress = Progress::new(format, args.document.quiet);
    let (site, target) = place(args.host, &args.path, search.random.seed, &mut progress)?;
    let test = resolve(search, &target).map_err(Failure::usage)?;
    let (mut document, error) = throughput(&target, &test, &signals()?, &mut progress)?;
    drop(progress);
    site.iter().for_each(|site| site.describe(&mut document));
    conclude(&document, error.map(Failure::from), output, None)
}

/// The sizes that were typed, where the largest frame of the interface is `largest`.
fn typed_frames(search: &SearchOptions, largest: u64) -> Vec<u64> {
    let bytes = search.frames.iter().map(|size| match size {
        FrameSize::Bytes(bytes) => *bytes,
        FrameSize::Mtu => largest,
    });
    bytes.collect()
}

/// The test for the path to an endpoint.
///
/// # Errors
/// A size that its interface or its family does not carry, or no highest rate on a path that others
/// may be on.
fn resolve(search: &SearchOptions, target: &Target) -> anyhow::Result<ThroughputTest> {
    ensure!(
        search.max_rate.is_some() || is_alone_on(target),
        "a search loads the path until it loses datagrams: give --max-rate RATE, or --max-rate max \
         for as fast as it goes"
    );
    let first = target.addresses.first().ok_or_else(|| anyhow!("the endpoint has no address"))?;
    let family = Family::from(first.ip());
    let largest = largest_frame(target);
    let frames = match search.frames[..] {
        [] => ThroughputTest::usual_frames(family, largest),
        _ => typed_frames(search, largest.unwrap_or(MAX_FRAME).min(MAX_FRAME)),
    };
    test(search, &frames, family, largest)
}

fn test(
    search: &SearchOptions,
    frames: &[u64],
    family: Family,
    largest: Option<u64>,
) -> anyhow::Result<ThroughputTest> {
    let test = ThroughputTest {
        frame_bytes: frames.to_vec(),
        direction: if search.reverse { Direction::Down } else { search.direction },
        goal: Goal {
            loss_percent: search.loss.0,
            width_percent: search.width.0,
            trial: search.trial,
            trials: search.trials,
        },
        most_bps: search.max_rate.and_then(|most| most.0),
        most_bytes: search.max_bytes,
        bursts: search.bursts,
        seed: search.random.seed,
    };
    test.check(family, largest)?;
    Ok(test)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;
    use crate::args::{Command, command};

    fn asked(options: &str, address: Ipv4Addr) -> Result<ThroughputTest, String> {
        let Command::Throughput(args) = command(&format!("throughput pit {options}"))? else {
            panic!("throughput was asked for");
        };
        let target = Target::at("pit", SocketAddr::new(IpAddr::V4(address), 5201));
        resolve(&args.search, &target).map_err(|error| error.to_string())
    }

    #[test]
    fn where_others_may_be_on_the_path_a_highest_rate_must_be_typed() {
        let elsewhere = Ipv4Addr::new(203, 0, 113, 7);
        let refused = asked("", elsewhere).expect_err("refused");
        assert!(refused.contains("give --max-rate RATE"), "{refused}");
        assert_eq!(asked("--max-rate max", elsewhere).expect("typed").most_bps, None);
        let limited = asked("--max-rate 20mbit", elsewhere).expect("typed");
        assert_eq!(limited.most_bps.map(|rate| rate.0), Some(20_000_000));
        let here = asked("-R --loss 0.1%", Ipv4Addr::LOCALHOST).expect("nobody else is there");
        assert_eq!((here.direction, here.goal.loss_percent), (Direction::Down, 0.1));
        assert_eq!(here.frame_bytes, [64, 128, 256, 512, 1024, 1280, 1518]);
    }

    #[test]
    fn what_cannot_be_searched_is_refused_with_its_range() {
        for (line, words) in [
            ("--frames 63", "64 to 65553 bytes, or mtu"),
            ("--frames 64,64", "--frames 64: it is given twice"),
            ("--trials 2", "it must be odd"),
            ("--loss 60%", "it must be 0 to 50 %"),
            ("--width 0.01%", "it must be 0.1 to 20 %"),
            ("--trial 100ms", "it must be"),
            ("--max-rate 0", "it must be a rate such as 100mbit, or max"),
        ] {
            let message = asked(line, Ipv4Addr::LOCALHOST).expect_err(line);
            assert!(message.contains(words), "{line}: {message}");
        }
    }
}
