//! What was typed → [`Plan`]: the options are put into a [`Draft`], which knows defaults, ranges and
//! contradictions.
//!
//! Nothing has been sent, looked up or opened.

use std::hash::{BuildHasher, RandomState};

use anyhow::{anyhow, ensure};
use linerate_core::plan::{Direction, Draft, MAX_REPEATS, Plan, Protocol, Repeats, Test};
use linerate_core::units::{Percent, Sizes};

use crate::args::{
    CrrArgs, ExchangeOptions, ExtentOptions, RrArgs, RunOptions, SocketArgs, StreamArgs,
    TransportOptions,
};

/// The plan of `stream`.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
pub(crate) fn stream(args: &StreamArgs, fresh_seed: u64) -> anyhow::Result<Plan> {
    let options = &args.traffic;
    let draft = direction(Test::stream(), options.direction, options.reverse)
        .maybe(Draft::bytes, options.bytes)
        .maybe(Draft::total, options.total)
        .maybe(Draft::rate, options.rate)
        .maybe(Draft::zerocopy, flag(options.zerocopy))
        .maybe(Draft::discard, flag(options.discard))
        .maybe(Draft::verify, flag(options.verify))
        .maybe(Draft::whole, flag(options.whole))
        .maybe(Draft::write_rate, options.write_rate)
        .maybe(Draft::read_rate, options.read_rate);
    let draft = offload(draft, options.offload, options.no_offload);
    let draft = if options.bidir {
        draft.direction(Direction::Both).typed("--bidir")
    } else {
        draft
    };
    plan(
        draft,
        &args.run,
        options.size.as_ref(),
        Draft::size,
        fresh_seed,
    )
}

/// The plan of `rr`.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
pub(crate) fn rr(args: &RrArgs, fresh_seed: u64) -> anyhow::Result<Plan> {
    let draft = exchange(Test::rr(), &args.exchange).maybe(Draft::depth, args.depth);
    let sizes = args.exchange.request.as_ref();
    plan(draft, &args.run, sizes, Draft::request, fresh_seed)
}

/// The plan of `crr`.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
pub(crate) fn crr(args: &CrrArgs, fresh_seed: u64) -> anyhow::Result<Plan> {
    let draft = exchange(Test::crr(), &args.exchange)
        .maybe(Draft::close, args.close)
        .maybe(Draft::reset, flag(args.reset));
    let sizes = args.exchange.request.as_ref();
    plan(draft, &args.run, sizes, Draft::request, fresh_seed)
}

/// A seed that no other run is likely to have. It has 32 bits, so that it can be typed and a JSON
/// reader that knows only doubles keeps it.
pub(crate) fn fresh_seed() -> u64 {
    // The standard library seeds its hash maps from the operating system's random numbers.
    RandomState::new().hash_one(std::process::id()) >> 32
}

/// The test of a draft; what is wrong with it, in the options as they were typed.
pub(crate) fn resolve(draft: Draft, seed: u64) -> anyhow::Result<Test> {
    let resolved = draft.resolve(seed);
    resolved.map_err(|error| anyhow!(error.on_command_line()))
}

pub(crate) fn flag(is_given: bool) -> Option<bool> {
    is_given.then_some(true)
}

pub(crate) fn direction(draft: Draft, direction: Option<Direction>, is_reverse: bool) -> Draft {
    let draft = draft.maybe(Draft::direction, direction);
    if is_reverse {
        draft.direction(Direction::Down).typed("-R")
    } else {
        draft
    }
}

pub(crate) fn offload(draft: Draft, on: bool, off: bool) -> Draft {
    if off {
        draft.offload(false).typed("--no-offload")
    } else {
        draft.maybe(Draft::offload, flag(on))
    }
}

pub(crate) fn transport(draft: Draft, options: &TransportOptions) -> Draft {
    draft
        .maybe(Draft::protocol, options.udp.then_some(Protocol::Udp))
        .maybe(Draft::protocol, options.protocol)
        .maybe(Draft::streams, options.streams)
}

pub(crate) fn sockets(draft: Draft, options: &SocketArgs) -> Draft {
    draft
        .maybe(Draft::window, options.window)
        .maybe(Draft::receive_window, options.receive_window)
        .maybe(Draft::send_buffer, options.send_buffer)
        .maybe(Draft::mss, options.mss)
        .maybe(Draft::pacing, options.pacing)
        .maybe(Draft::congestion, options.congestion.clone())
        .maybe(Draft::nodelay, flag(options.nodelay))
        .maybe(Draft::dscp, options.dscp)
}

fn exchange(draft: Draft, options: &ExchangeOptions) -> Draft {
    draft
        .maybe(Draft::response, options.response.map(|size| size.0))
        .maybe(Draft::requests_per_s, options.rate.map(|rate| rate.0))
        .maybe(Draft::spin, flag(options.spin))
}

/// A test for each size, or one of the size by default.
fn plan(
    draft: Draft,
    run: &RunOptions,
    sizes: Option<&Sizes>,
    set_size: fn(Draft, u64) -> Draft,
    fresh_seed: u64,
) -> anyhow::Result<Plan> {
    let draft = sockets(transport(draft, &run.transport), &run.sockets)
        .maybe(Draft::time, run.extent.time)
        .maybe(Draft::count, run.extent.count)
        .maybe(Draft::warm_up, run.extent.warm_up)
        .maybe(Draft::interval, run.extent.interval);
    let drafts = match sizes {
        Some(sizes) => {
            let sizes = sizes.as_slice().iter();
            sizes.map(|size| set_size(draft.clone(), *size)).collect()
        }
        None => vec![draft],
    };
    let seed = run.extent.seed.unwrap_or(fresh_seed);
    let tests = drafts.into_iter().map(|draft| resolve(draft, seed));
    Ok(Plan {
        tests: tests.collect::<anyhow::Result<_>>()?,
        repeats: repeats(&run.extent)?,
    })
}

fn repeats(options: &ExtentOptions) -> anyhow::Result<Repeats> {
    if let Some(precision) = options.precision {
        ensure!(
            precision.0 > 0.0 && precision <= Percent(100.0),
            "--precision is {precision}: it must be above 0 % and at most 100 %"
        );
        return Ok(Repeats::Precision(precision));
    }
    let times = options.repeat.unwrap_or(1);
    ensure!(
        (1..=MAX_REPEATS).contains(&times),
        "--repeat is {times}: it must be 1 to {MAX_REPEATS}"
    );
    Ok(Repeats::Times(times))
}

#[cfg(test)]
mod tests;
