//! What a client may do at this endpoint: which tests, which changes of this host, which traces;
//! and whether this host can do it.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use linerate_core::plan::{Protocol, Test, Traffic};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::session::message::{Limits, RefusalReason};
use linerate_core::trace::{LONGEST_REVERSE, TraceDocument, TraceRequest};
use linerate_core::treatment::HostChange;
use linerate_core::units::{BitRate, End};
use linerate_sys::proc::sysctl;
use linerate_sys::socket::{self, Mptcp, OptionError};
use thiserror::Error;

use super::budget::{Claim, HeldPlace};
use super::session::Denial;
use crate::clock::now;
use crate::measure::flow::{Flow, FlowSocket, flow_direction, sends};
use crate::measure::options;
use crate::stop::Stop;
use crate::trace::{TraceError, TraceOptions, trace};
use crate::treatment::{Applied, TreatError};
use crate::words;

/// Limits a test to the owner's rate, bits per second: what this end sends or reads is slowed down
/// to it. A test that it cannot slow down must not ask for more.
pub(super) fn within_rate(test: Box<Test>, limit: Option<u64>) -> Result<Box<Test>, String> {
    let Some(limit) = limit.map(BitRate) else {
        return Ok(test);
    };
    let share = test.share_of(limit);
    let mut test = test.slowed_to(limit);
    match (&mut test.traffic, test.protocol) {
        (Traffic::Rr(_), Protocol::Udp) => {
            Err(format!("the endpoint allows {limit} in all, and nobody slows requests over UDP"))
        }
        (Traffic::Stream(stream), Protocol::Udp)
            if stream.rate_bps.is_none_or(|rate| rate > share) =>
        {
            Err(format!(
                "the endpoint allows {limit} in all: give --rate {} or less for each stream",
                share.0
            ))
        }
        (Traffic::Stream(stream), Protocol::Tcp | Protocol::Mptcp) => {
            let reads = &mut stream.read_rate_bps;
            *reads = Some(reads.map_or(share, |rate| rate.min(share)));
            Ok(Box::new(test))
        }
        _ => Ok(Box::new(test)),
    }
}

/// The caveat in the client's record about a rate that the owner has set.
pub(super) fn owners_limit(rate_bps: u64) -> Caveat {
    Caveat::new(
        CaveatKind::SettingNotTaken,
        format!(
            "the endpoint's owner allows {} in all: it paces and reads no faster",
            BitRate(rate_bps)
        ),
        "on that host: linerate serve with another --max-rate, or without",
    )
}

/// Tries the test's options on a temporary socket, so that a refusal comes before the flows. A
/// client without the key may only name a congestion control that is loaded and allowed to
/// everybody.
pub(super) fn can_do(test: &Test, has_key: bool) -> Result<(), String> {
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let fail = |what: String| format!("the endpoint's host cannot do this test: {what}");
    let mut directions = test.direction.parts().iter();
    if let Some(name) = &test.options.congestion
        && !has_key
        && directions.any(|direction| sends(End::Server, *direction))
    {
        is_open_to_strangers(name).map_err(fail)?;
    }
    if test.protocol == Protocol::Udp {
        let socket = socket::udp_socket(here, None, false).map_err(|e| fail(e.to_string()))?;
        return [true, false].into_iter().try_for_each(|sends| {
            options::apply_udp(&socket, &test.options, sends).map_err(|e| fail(e.to_string()))
        });
    }
    let socket =
        socket::tcp_socket(here, None, Mptcp::Off).map_err(|error| fail(error.to_string()))?;
    let parts = test.direction.parts().iter();
    parts.map(|direction| sends(End::Server, *direction)).try_for_each(|sends| {
        options::apply_tcp(&socket, &test.options, End::Server, sends)
            .map_err(|error| fail(words::chain(&error)))
    })
}

/// Checks that a congestion control algorithm is loaded and allowed to every user. For root the
/// kernel loads the module of any name (`tcp_set_congestion_control`, net/ipv4/tcp_cong.c).
fn is_open_to_strangers(name: &str) -> Result<(), String> {
    let allowed = sysctl::read(ALLOWED_CONGESTION).map_err(|error| words::chain(&error))?;
    if allowed.split_whitespace().any(|word| word == name) {
        return Ok(());
    }
    Err(format!(
        "clients without its key choose from {ALLOWED_CONGESTION} ({allowed}), which has no {name}"
    ))
}

/// Lists the algorithms that are loaded and allowed to every user.
const ALLOWED_CONGESTION: &str = "net.ipv4.tcp_allowed_congestion_control";

/// Sets the test's options on a flow that has arrived.
pub(super) fn prepare(test: &Test, flow: &Flow) -> Result<(), OptionError> {
    let sends = sends(End::Server, flow_direction(test, flow.id));
    match &flow.socket {
        FlowSocket::Tcp(stream) => options::apply_tcp(stream, &test.options, End::Server, sends),
        FlowSocket::Udp(socket) => options::apply_udp(socket, &test.options, sends),
    }
}

// The changes that a client has made to this host, for as long as its session lasts.

/// The changes of one session; they are undone when it is dropped. The thread that makes them must
/// be in the network namespace that is served, as every thread of the endpoint is.
pub(super) struct Lease {
    // Dropped first: the changes are undone before anybody else may measure.
    applied: Option<Applied>,
    place: HeldPlace,
}

/// Why a treatment was not applied or not undone.
#[derive(Debug, Error)]
pub(super) enum LeaseError {
    /// Another session uses the host.
    #[error("{0}")]
    Busy(String),
    /// The host refused, and nothing was changed.
    #[error("the endpoint's host does not take the treatment: {}", words::chain(.0))]
    Apply(TreatError),
    /// The host stays changed, so that nobody may measure on it.
    #[error("the endpoint cannot undo what it has changed: {}", words::chain(.0))]
    Undo(TreatError),
}

impl LeaseError {
    /// The reason for the client if the session goes on; `None` if it cannot.
    pub(super) fn reason(&self) -> Option<RefusalReason> {
        match self {
            Self::Busy(_) => Some(RefusalReason::Busy),
            Self::Apply(TreatError::Busy { .. }) => Some(RefusalReason::Busy),
            Self::Apply(_) => Some(RefusalReason::Treatment),
            Self::Undo(_) => None,
        }
    }
}

impl Lease {
    pub(super) fn new(place: HeldPlace) -> Self {
        Self { applied: None, place }
    }

    /// The session's use of the host.
    pub(super) fn place(&self) -> &HeldPlace {
        &self.place
    }

    /// Undoes the earlier changes and makes these; the result is what was read back. If the host is
    /// busy, the earlier changes stay. After any other error none are in force, except those that
    /// cannot be undone.
    pub(super) fn treat(
        &mut self,
        changes: &[HostChange],
        peer: IpAddr,
    ) -> Result<Vec<String>, LeaseError> {
        self.place.begin_treatment().map_err(LeaseError::Busy)?;
        self.undo()?;
        // The address may be IPv4 in IPv6 form; the kernel needs it in its own family.
        match Applied::apply(changes, peer.to_canonical()) {
            Ok(applied) => Ok(self.applied.insert(applied).read_back()),
            Err(error @ TreatError::Undo { .. }) => Err(self.spoilt(error)),
            Err(error) => {
                self.place.end_treatment();
                Err(LeaseError::Apply(error))
            }
        }
    }

    /// Undoes the changes; false if there were none.
    pub(super) fn untreat(&mut self) -> Result<bool, LeaseError> {
        let undone = self.undo();
        self.place.end_treatment();
        undone
    }

    fn undo(&mut self) -> Result<bool, LeaseError> {
        match self.applied.take() {
            Some(applied) => match applied.undo() {
                Ok(()) => Ok(true),
                Err(error) => Err(self.spoilt(error)),
            },
            None => Ok(false),
        }
    }

    fn spoilt(&self, error: TreatError) -> LeaseError {
        self.place.spoil();
        LeaseError::Undo(error)
    }
}

// A trace of the path to a client, at its request: to the address that its control connection comes
// from, and to no other.

/// Seeds are below this, as all counts on the wire are.
const SEEDS: u64 = 1 << 53;

/// A trace that runs in a thread of its own, so that its session is not blocked. Dropping it ends
/// the trace soon.
pub(super) struct Tracing {
    stop: Stop,
    until: Duration,
    outcome: Receiver<Result<TraceDocument, TraceError>>,
}

impl Tracing {
    /// Starts a trace to `client` from `local`, the address that the client has connected to,
    /// within the owner's limits. `thread` is its claim, until it has ended.
    pub(super) fn start(
        request: &TraceRequest,
        (local, client): (IpAddr, IpAddr),
        limits: &Limits,
        thread: Claim,
    ) -> Result<Self, Denial> {
        let config = request
            .config(client, limits.rate_bps)
            .map_err(|error| (RefusalReason::Limit, error.to_string()))?;
        let options = TraceOptions {
            source: Some(local),
            names: false,
            seed: seed().map_err(|error| (RefusalReason::Test, error))?,
            ..TraceOptions::new(client.to_string(), config)
        };
        let stop = Stop::new();
        let (sender, outcome) = sync_channel(1);
        let own = stop.clone();
        let started = thread::Builder::new().name("trace".into()).spawn(move || {
            let _thread = thread;
            // The session may be gone.
            let _ = sender.send(trace(&options, &own));
        });
        started.map_err(|error| {
            let message = format!("the endpoint has no thread for a trace: {error}");
            (RefusalReason::Test, message)
        })?;
        let longest = Duration::from_nanos(LONGEST_REVERSE.0);
        let allowed = Duration::try_from_secs_f64(limits.seconds).unwrap_or(longest);
        Ok(Self { stop, until: now() + longest.min(allowed), outcome })
    }

    /// The outcome, once the trace is over. At its time limit the trace ends with what it has.
    pub(super) fn look(&self) -> Option<Result<TraceDocument, Denial>> {
        if now() >= self.until {
            self.stop.request();
        }
        match self.outcome.try_recv() {
            Ok(Ok(document)) => Some(Ok(document)),
            Ok(Err(error)) => {
                let message = format!("the endpoint's host cannot trace: {}", words::chain(&error));
                Some(Err((RefusalReason::Test, message)))
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err((RefusalReason::Test, "the endpoint's trace failed".into())))
            }
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.stop.request();
    }
}

fn seed() -> Result<u64, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| format!("the endpoint has no randomness: {error}"))?;
    Ok(u64::from_ne_bytes(bytes) % SEEDS)
}
