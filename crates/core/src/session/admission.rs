//! What an endpoint refuses before it tries anything: the same for every host.

use std::net::{IpAddr, Ipv4Addr};

use super::message::{Limits, Refusal, RefusalReason};
use super::operation::{
    CAPACITY, MAX_CHANGES, MAX_LEASE_S, PROFILE, STAMP, Slot, TRACE, TREATMENTS,
};
use crate::capacity::CapacityRequest;
use crate::plan::{Test, Traffic};
use crate::profile::ProfileRequest;
use crate::trace::TraceRequest;
use crate::treatment::HostChange;

/// What decides over a request.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// What the owner allows.
    pub limits: &'a Limits,
    /// The operations that the endpoint has.
    pub operations: &'a [String],
}

impl Owner<'_> {
    fn has(&self, operation: &str) -> bool {
        self.operations.iter().any(|name| name == operation)
    }
}

/// Whether a test makes sense, is of an operation that the endpoint has, and within what its owner
/// allows.
pub(super) fn test(test: &Test, owner: &Owner<'_>) -> Result<(), Refusal> {
    if let Err(error) = test.check() {
        return refuse(RefusalReason::Test, error.to_string());
    }
    let operation = match &test.traffic {
        Traffic::Stream(_) => "stream",
        Traffic::Rr(exchange) if exchange.stamp => STAMP,
        Traffic::Rr(_) => "rr",
        Traffic::Crr(_) => "crr",
    };
    if !owner.has(operation) {
        return refuse(
            RefusalReason::Test,
            format!("the endpoint does not have the operation {operation}"),
        );
    }
    within_limits(test, owner.limits)
}

/// Whether a lease has an end.
pub(super) fn slot(asked: &Slot) -> Result<(), Refusal> {
    if asked.seconds > 0.0 && asked.seconds <= MAX_LEASE_S {
        return Ok(());
    }
    refuse(
        RefusalReason::Limit,
        format!("the endpoint leases its slot for {MAX_LEASE_S} s at most"),
    )
}

fn within_limits(test: &Test, limits: &Limits) -> Result<(), Refusal> {
    if test.flows() > limits.streams {
        return refuse(
            RefusalReason::Limit,
            format!(
                "the endpoint allows {} streams in all, {} were asked for",
                limits.streams,
                test.flows()
            ),
        );
    }
    match test.seconds() {
        Some(seconds) if seconds > limits.seconds => refuse(
            RefusalReason::Limit,
            format!(
                "the endpoint allows {} s, {seconds} s were asked for",
                limits.seconds
            ),
        ),
        _ => Ok(()),
    }
}

/// Whether the owner allows treatments at all, and each of these is in the table of treatments and
/// in its range: what a client with the key asks for is no reason to touch anything else.
pub(super) fn changes(changes: &[HostChange], owner: &Owner<'_>) -> Result<(), Refusal> {
    if !owner.has(TREATMENTS) {
        return refuse(
            RefusalReason::Treatment,
            "the endpoint applies no treatments: start it with --allow-treatments and --key-file"
                .to_owned(),
        );
    }
    if !(1..=MAX_CHANGES).contains(&changes.len()) {
        return refuse(
            RefusalReason::Limit,
            format!(
                "the endpoint makes 1 to {MAX_CHANGES} changes at once, {} were asked for",
                changes.len()
            ),
        );
    }
    changes.iter().try_for_each(|change| {
        change
            .check()
            .or_else(|error| refuse(RefusalReason::Treatment, error.to_string()))
    })
}

/// Whether the endpoint profiles at all, and at that rate.
pub(super) fn profile(request: &ProfileRequest, owner: &Owner<'_>) -> Result<(), Refusal> {
    if !owner.has(PROFILE) {
        return refuse(
            RefusalReason::Test,
            "the endpoint does not profile its host".to_owned(),
        );
    }
    request
        .check()
        .or_else(|message| refuse(RefusalReason::Limit, message))
}

/// Whether the endpoint traces at all, and as much as that.
pub(super) fn trace(request: &TraceRequest, owner: &Owner<'_>) -> Result<(), Refusal> {
    if !owner.has(TRACE) {
        return refuse(
            RefusalReason::Test,
            "the endpoint traces no way back".to_owned(),
        );
    }
    // Whichever family the client comes by: the endpoint checks the size once more with its
    // address.
    let somewhere = IpAddr::V4(Ipv4Addr::LOCALHOST);
    request
        .config(somewhere, None)
        .map(drop)
        .or_else(|error| refuse(RefusalReason::Limit, error.to_string()))
}

/// Whether the endpoint holds connections at all, and as many as that.
pub(super) fn capacity(request: &CapacityRequest, owner: &Owner<'_>) -> Result<(), Refusal> {
    if !owner.has(CAPACITY) {
        return refuse(
            RefusalReason::Test,
            "the endpoint holds no connections".to_owned(),
        );
    }
    if let Err(error) = request.check() {
        return refuse(RefusalReason::Test, error.to_string());
    }
    let asked = request.connections.max(request.udp_sockets);
    if asked > owner.limits.connections {
        return refuse(
            RefusalReason::Limit,
            format!(
                "the endpoint allows {} connections, {asked} were asked for",
                owner.limits.connections
            ),
        );
    }
    Ok(())
}

fn refuse(reason: RefusalReason, message: String) -> Result<(), Refusal> {
    Err(Refusal { reason, message })
}
