//! The requests that an endpoint refuses before it tries anything, the same for every host; and the
//! limit of the numbers in a message.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::message::{Limits, Refusal, RefusalReason as Reason};
use super::operation::{
    CAPACITY, MAX_CHANGES, MAX_LEASE_S, MIN_LEASE_S, PROFILE, STAMP, Slot, TRACE, TREATMENTS,
};
use crate::capacity::CapacityRequest;
use crate::plan::{Test, Traffic};
use crate::profile::ProfileRequest;
use crate::trace::TraceRequest;
use crate::treatment::HostChange;

/// The limits and operations by which requests are judged.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The owner's limits.
    pub limits: &'a Limits,
    /// The operations that the endpoint has.
    pub operations: &'a [String],
}

impl Owner<'_> {
    /// Refuses a request whose operation the endpoint does not have.
    fn must_have(
        &self,
        operation: &str,
        reason: Reason,
        message: impl Into<String>,
    ) -> Result<(), Refusal> {
        let has = self.operations.iter().any(|name| name == operation);
        must(has, reason, message)
    }
}

/// Admits a test that is valid, is of an operation that the endpoint has, and is within the limits.
pub(super) fn test(test: &Test, owner: &Owner<'_>) -> Result<(), Refusal> {
    test.check().or_else(|error| refuse(Reason::Test, error.to_string()))?;
    let operation = match &test.traffic {
        Traffic::Stream(_) => "stream",
        Traffic::Rr(exchange) if exchange.stamp => STAMP,
        Traffic::Rr(_) => "rr",
        Traffic::Crr(_) => "crr",
    };
    let message = format!("the endpoint does not have the operation {operation}");
    owner.must_have(operation, Reason::Test, message)?;
    let (asked, allowed) = (test.flows(), owner.limits.streams);
    let message = format!("the endpoint allows {allowed} streams in all, {asked} were asked for");
    must(asked <= allowed, Reason::Limit, message)?;
    let (asked, allowed) = (test.seconds().unwrap_or(0.0), owner.limits.seconds);
    let message = format!("the endpoint allows {allowed} s, {asked} s were asked for");
    must(asked <= allowed, Reason::Limit, message)
}

/// Admits a lease that has an end, and is not over at once.
pub(super) fn slot(asked: &Slot) -> Result<(), Refusal> {
    let message = format!("the endpoint leases its slot for {MIN_LEASE_S} to {MAX_LEASE_S} s");
    let is_leased = (MIN_LEASE_S..=MAX_LEASE_S).contains(&asked.seconds);
    must(is_leased, Reason::Limit, message)
}

/// Admits changes if the owner allows treatments, and each change is in the table of treatments and
/// in its range: not even a client with the key may change anything else.
pub(super) fn changes(changes: &[HostChange], owner: &Owner<'_>) -> Result<(), Refusal> {
    let message =
        "the endpoint applies no treatments: start it with --allow-treatments and --key-file";
    owner.must_have(TREATMENTS, Reason::Treatment, message)?;
    let count = changes.len();
    let message =
        format!("the endpoint makes 1 to {MAX_CHANGES} changes at once, {count} were asked for");
    must((1..=MAX_CHANGES).contains(&count), Reason::Limit, message)?;
    changes.iter().try_for_each(|change| {
        let checked = change.check();
        checked.or_else(|error| refuse(Reason::Treatment, error.to_string()))
    })
}

/// Admits a profile if the endpoint profiles its host, and at that rate.
pub(super) fn profile(request: &ProfileRequest, owner: &Owner<'_>) -> Result<(), Refusal> {
    owner.must_have(PROFILE, Reason::Test, "the endpoint does not profile its host")?;
    request.check().or_else(|message| refuse(Reason::Limit, message))
}

/// Admits a trace if the endpoint traces, and as much as that.
pub(super) fn trace(request: &TraceRequest, owner: &Owner<'_>) -> Result<(), Refusal> {
    owner.must_have(TRACE, Reason::Test, "the endpoint traces no way back")?;
    // The endpoint checks the size again with the client's address, whatever its family.
    let config = request.config(IpAddr::V4(Ipv4Addr::LOCALHOST), None);
    config.map(drop).or_else(|error| refuse(Reason::Limit, error.to_string()))
}

/// Admits connections to be held if the endpoint holds connections, and as many as that.
pub(super) fn capacity(request: &CapacityRequest, owner: &Owner<'_>) -> Result<(), Refusal> {
    owner.must_have(CAPACITY, Reason::Test, "the endpoint holds no connections")?;
    let checked = request.check();
    checked.or_else(|error| refuse(Reason::Test, error.to_string()))?;
    let asked = request.connections.max(request.udp_sockets);
    let allowed = owner.limits.connections;
    let message = format!(
        "the endpoint allows {allowed} connections (serve's --max-connections, of which a client \
         without a key has three quarters), {asked} were asked for"
    );
    must(asked <= allowed, Reason::Limit, message)
}

fn must(holds: bool, reason: Reason, message: impl Into<String>) -> Result<(), Refusal> {
    if holds {
        return Ok(());
    }
    refuse(reason, message)
}

fn refuse(reason: Reason, message: impl Into<String>) -> Result<(), Refusal> {
    let message = message.into();
    Err(Refusal { reason, message })
}

// A limit on the numbers of a peer's message, whatever their field.

/// Any JSON all of whose counts are within [`LARGEST`]. Rates are not summed, and the kernel's
/// pacing rate on loopback has no bound that a host would keep to.
pub(super) struct Bounded;

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BoundsWalk)
    }
}

struct BoundsWalk;

impl<'de> Visitor<'de> for BoundsWalk {
    type Value = Bounded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JSON whose counts are at most {LARGEST}")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Bounded, E> {
        Ok(Bounded)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Bounded, E> {
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Bounded, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Bounded, E> {
        if value.abs() > LARGEST as f64 {
            return Err(E::custom(format_args!("the figure {value:e} is absurd")));
        }
        Ok(Bounded)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Bounded, E> {
        Ok(Bounded)
    }

    fn visit_unit<E: Error>(self) -> Result<Bounded, E> {
        Ok(Bounded)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Bounded, A::Error> {
        while items.next_element::<Bounded>()?.is_some() {}
        Ok(Bounded)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Bounded, A::Error> {
        while let Some(key) = fields.next_key::<String>()? {
            if key.ends_with("_bps") {
                fields.next_value::<IgnoredAny>()?;
            } else {
                fields.next_value::<Bounded>()?;
            }
        }
        Ok(Bounded)
    }
}

/// Largest count that an endpoint may report. Counters of a run are summed over its flows, of which
/// there are at most 256: below this no sum overflows, and no run reaches it.
const LARGEST: u64 = 1 << 55;
