//! The operations of an endpoint. Each is one entry of the table at the end of this file: request
//! and reply, the stages in which it may be asked for, the time until the answer, the checks of the
//! request at the endpoint and of the answer at the client. The two state machines know only the
//! stages of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::admission::{self, Owner};
use super::message::{HalfReport, Limits, MAX_SERVER_FRAME, Refusal};
use crate::capacity::{CapacityHalf, CapacityRequest, HoldPorts};
use crate::plan::Test;
use crate::profile::ProfileRequest;
use crate::trace::{TraceDocument, TraceRequest};
use crate::treatment::HostChange;

/// The operation of an endpoint whose owner allows [`Treat`].
pub const TREATMENTS: &str = "treatments";
/// The operation of an endpoint that takes a [`TraceRequest`].
pub const TRACE: &str = "trace";
/// The operation of an endpoint that takes a [`CapacityRequest`].
pub const CAPACITY: &str = "capacity";
/// The operation of an endpoint that profiles its host while a test runs.
pub const PROFILE: &str = "profile";
/// The operation of an endpoint that takes a [`Clock`], and begins a test when it is told to.
pub const CLOCK: &str = "clock";
/// The operation of an endpoint that answers `rr` by STAMP's test packets.
pub const STAMP: &str = "stamp";
/// The operation of an endpoint whose applications work on the bytes of a stream
/// ([`crate::plan::StreamTest::work_ns_per_kib`]).
pub const WORK: &str = "work";
/// The operation of an endpoint that leases its [`Slot`].
pub const SLOT: &str = "slot";
/// Shortest lease of a [`Slot`], seconds.
pub const MIN_LEASE_S: f64 = 1.0;
/// Longest lease of a [`Slot`], seconds.
pub const MAX_LEASE_S: f64 = 900.0;
/// Most changes of the endpoint's host that one [`Treat`] may ask for.
pub const MAX_CHANGES: usize = 32;

/// Prepare for a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The test.
    pub test: Box<Test>,
    /// Profile the endpoint's host during the test, if it has the operation [`PROFILE`]; the report
    /// has the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRequest>,
}

/// The run is over for the client: stop and report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End;

/// Change the endpoint's host. The changes replace earlier ones of this session, and are undone at
/// the latest when the session ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Treat {
    /// The changes: 1 to [`MAX_CHANGES`].
    pub changes: Vec<HostChange>,
}

/// Undo the changes of this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untreat;

/// Report the time: µs of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock;

/// Close the held connections, and report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release;

/// Lease the endpoint's only slot, or extend the lease: no other client gets it until the lease or
/// this session is over. Tests need no slot. Clients that measure regularly lease it, so that their
/// tests never run beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Length of the lease, seconds, [`MIN_LEASE_S`] to [`MAX_LEASE_S`].
    pub seconds: f64,
}

/// The state of the endpoint's slot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotState {
    /// Leased to this client for so many seconds.
    Leased(f64),
    /// Leased to another client for so many more seconds at most.
    Busy(f64),
}

/// The stage of a session. Only runs and held connections have stages of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Hello and handshake.
    Greeting,
    /// The client is to introduce itself.
    Introducing,
    /// The endpoint is to let the client in.
    Introduced,
    /// Between operations.
    Idle,
    /// The data connections of a test are to come.
    Binding,
    /// All data connections are there.
    Ready,
    /// The test runs.
    Running,
    /// Connections are held.
    Holding,
    /// The session is over.
    Closed,
}

/// An operation: its request, and everything that the state machines of both ends must know of it.
pub trait Operation: Sized + Into<Request> {
    /// The answer.
    type Reply;

    /// Its names in [`super::message::Welcome::operations`], if an owner can forbid it.
    const NAMES: &'static [&'static str] = &[];
    /// The stages in which it may be asked for.
    const STAGES: &'static [Stage] = &[Stage::Idle];
    /// The stage after the answer.
    const THEN: Stage = Stage::Idle;
    /// Longest time until the answer.
    const TIMEOUT: Duration;
    /// The error if the endpoint does not answer.
    const SILENCE: &'static str;
    /// Whether the session goes on after a refusal.
    const IS_REFUSABLE: bool = true;

    /// Checks the request before the endpoint tries anything.
    ///
    /// # Errors
    /// Why the endpoint refuses it.
    fn admit(&self, _: &Owner<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Length of the stage after the answer within the owner's limits, seconds.
    fn seconds(&self, _: &Limits) -> Option<f64> {
        None
    }

    /// Time by which the session may be idle longer than usual after the answer; `None` if the
    /// answer does not put off the deadline for the next request at all.
    fn rests(_: &Self::Reply) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// Checks the answer at the client.
    ///
    /// # Errors
    /// Returns the reply if it can be true; an error says what in it cannot.
    fn believe(&self, reply: Self::Reply) -> Result<Self::Reply, String> {
        Ok(reply)
    }

    /// Makes the answer short enough for a frame.
    fn shorten(reply: Self::Reply) -> Self::Reply {
        reply
    }

    /// The answer, if `reply` is one to this operation.
    fn from_reply(reply: Reply) -> Option<Self::Reply>;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident: $request:ty => $reply:ty { $($entry:tt)* })*) => {
        /// What a client asks for.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "operation", content = "request", rename_all = "snake_case")]
        pub enum Request {
            $($(#[$doc])* $name($request),)*
        }

        /// What an endpoint answers.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "operation", content = "reply", rename_all = "snake_case")]
        pub enum Reply {
            $(#[doc = concat!("Answer to [`Request::", stringify!($name), "`].")] $name($reply),)*
        }

        $(
            impl Operation for $request {
                type Reply = $reply;
                $($entry)*
                fn from_reply(reply: Reply) -> Option<$reply> {
                    if let Reply::$name(reply) = reply { Some(reply) } else { None }
                }
            }

            impl From<$request> for Request {
                fn from(request: $request) -> Self {
                    Self::$name(request)
                }
            }
        )*

        impl Request {
            /// The names of all operations that an endpoint can have.
            pub fn names() -> impl Iterator<Item = &'static str> {
                [$(<$request>::NAMES,)*].into_iter().flatten().copied()
            }

            pub(super) fn rules(&self) -> Rules {
                match self { $(Self::$name(_) => Rules::of::<$request>(),)* }
            }

            pub(super) fn admit(&self, owner: &Owner<'_>) -> Result<(), Refusal> {
                match self { $(Self::$name(request) => request.admit(owner),)* }
            }

            pub(super) fn seconds(&self, limits: &Limits) -> Option<f64> {
                match self { $(Self::$name(request) => request.seconds(limits),)* }
            }

            pub(super) fn is_answered_by(&self, reply: &Reply) -> bool {
                match self { $(Self::$name(_) => matches!(reply, Reply::$name(_)),)* }
            }

            /// Checks the answer; `None` if it answers another request.
            pub(super) fn believe(&self, reply: Reply) -> Option<Result<Reply, String>> {
                match (self, reply) {
                    $((Self::$name(request), Reply::$name(reply)) => {
                        Some(request.believe(reply).map(Reply::$name))
                    })*
                    _ => None,
                }
            }
        }

        impl Reply {
            pub(super) fn rests(&self) -> Option<Duration> {
                match self { $(Self::$name(reply) => <$request>::rests(reply),)* }
            }

            pub(super) fn shorten(self) -> Self {
                match self { $(Self::$name(reply) => Self::$name(<$request>::shorten(reply)),)* }
            }
        }
    };
}

/// The constants of an [`Operation`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) stages: &'static [Stage],
    pub(super) then: Stage,
    pub(super) timeout: Duration,
    pub(super) silence: &'static str,
    pub(super) is_refusable: bool,
}

impl Rules {
    fn of<O: Operation>() -> Self {
        Self {
            stages: O::STAGES,
            then: O::THEN,
            timeout: O::TIMEOUT,
            silence: O::SILENCE,
            is_refusable: O::IS_REFUSABLE,
        }
    }
}

operations! {
    /// Prepare for a test.
    Open: Open => () {
        const NAMES: &'static [&'static str] = &["stream", "rr", "crr", STAMP, WORK, PROFILE];
        const THEN: Stage = Stage::Binding;
        const TIMEOUT: Duration = super::OPENING_TIMEOUT;
        const SILENCE: &'static str = "the endpoint does not answer the request for a test";

        fn admit(&self, owner: &Owner<'_>) -> Result<(), Refusal> {
            admission::test(&self.test, owner)?;
            self.profile.iter().try_for_each(|asked| admission::profile(asked, owner))
        }

        fn seconds(&self, limits: &Limits) -> Option<f64> {
            // A count or an amount has no time of its own: it gets all that the owner allows.
            Some(self.test.seconds().unwrap_or(limits.seconds).min(limits.seconds))
        }
    }

    /// Stop the test, also before its end, and report.
    End: End => Box<HalfReport> {
        const STAGES: &'static [Stage] = &[Stage::Binding, Stage::Ready, Stage::Running];
        const TIMEOUT: Duration = super::REPORT_TIMEOUT;
        const SILENCE: &'static str = "the endpoint sends no report";
        const IS_REFUSABLE: bool = false;

        fn shorten(mut report: Box<HalfReport>) -> Box<HalfReport> {
            // Sealing adds 16 bytes to every 64 KiB, and the message its name: far less than a
            // hundredth.
            report.thin_to(MAX_SERVER_FRAME / 100 * 99);
            report
        }
    }

    /// Change the endpoint's host; the answer is what was read back, one line for each change.
    Treat: Treat => Vec<String> {
        const NAMES: &'static [&'static str] = &[TREATMENTS];
        // Some devices renegotiate their link after a change; until then the control connection is
        // interrupted.
        const TIMEOUT: Duration = super::TREATING_TIMEOUT;
        const SILENCE: &'static str = "the endpoint does not say whether it has changed its host";

        fn admit(&self, owner: &Owner<'_>) -> Result<(), Refusal> {
            admission::changes(&self.changes, owner)
        }
    }

    /// Undo the changes.
    Untreat: Untreat => () {
        const TIMEOUT: Duration = super::TREATING_TIMEOUT;
        const SILENCE: &'static str = "the endpoint does not say whether its host is as it was";
        const IS_REFUSABLE: bool = false;
    }

    /// The endpoint's time, for a client that has several sessions begin together.
    Clock: Clock => u64 {
        const NAMES: &'static [&'static str] = &[CLOCK];
        const TIMEOUT: Duration = super::OPENING_TIMEOUT;
        const SILENCE: &'static str = "the endpoint does not say what time it is";
        const IS_REFUSABLE: bool = false;
    }

    /// Lease the endpoint's slot.
    Slot: Slot => SlotState {
        const NAMES: &'static [&'static str] = &[SLOT];
        const TIMEOUT: Duration = super::OPENING_TIMEOUT;
        const SILENCE: &'static str = "the endpoint does not say whose its slot is";

        fn admit(&self, _: &Owner<'_>) -> Result<(), Refusal> {
            admission::slot(self)
        }

        fn rests(state: &SlotState) -> Option<Duration> {
            match state {
                SlotState::Leased(seconds) => {
                    Some(Duration::from_secs_f64(seconds.clamp(0.0, MAX_LEASE_S)))
                }
                SlotState::Busy(_) => None,
            }
        }

        fn believe(&self, state: SlotState) -> Result<SlotState, String> {
            let (SlotState::Leased(seconds) | SlotState::Busy(seconds)) = state;
            if (0.0..=MAX_LEASE_S).contains(&seconds) {
                return Ok(state);
            }
            Err(format!("a slot that is leased for {seconds} s"))
        }
    }

    /// Trace the path to the address that the client's connection comes from.
    Trace: TraceRequest => Box<TraceDocument> {
        const NAMES: &'static [&'static str] = &[TRACE];
        const TIMEOUT: Duration = super::TRACING_TIMEOUT;
        const SILENCE: &'static str = "the endpoint does not say what it has traced";

        fn admit(&self, owner: &Owner<'_>) -> Result<(), Refusal> {
            admission::trace(self, owner)
        }

        fn believe(&self, reply: Box<TraceDocument>) -> Result<Box<TraceDocument>, String> {
            crate::trace::admit(*reply, self).map(Box::new)
        }
    }

    /// Hold connections; the answer has the ports.
    Hold: CapacityRequest => HoldPorts {
        const NAMES: &'static [&'static str] = &[CAPACITY];
        const THEN: Stage = Stage::Holding;
        const TIMEOUT: Duration = super::HOLDING_TIMEOUT;
        const SILENCE: &'static str =
            "the endpoint does not say whether it is ready to hold connections";

        fn admit(&self, owner: &Owner<'_>) -> Result<(), Refusal> {
            admission::capacity(self, owner)
        }

        fn seconds(&self, limits: &Limits) -> Option<f64> {
            Some(self.seconds.min(limits.seconds))
        }

        fn believe(&self, ports: HoldPorts) -> Result<HoldPorts, String> {
            ports.check(self).map(|()| ports)
        }
    }

    /// Close the held connections.
    Release: Release => Box<CapacityHalf> {
        const STAGES: &'static [Stage] = &[Stage::Holding];
        const TIMEOUT: Duration = super::RELEASE_TIMEOUT;
        const SILENCE: &'static str =
            "the endpoint does not say that it has closed its connections";
        const IS_REFUSABLE: bool = false;

        fn believe(&self, half: Box<CapacityHalf>) -> Result<Box<CapacityHalf>, String> {
            half.check().map(|()| half)
        }

        fn shorten(half: Box<CapacityHalf>) -> Box<CapacityHalf> {
            Box::new(half.bounded())
        }
    }
}
