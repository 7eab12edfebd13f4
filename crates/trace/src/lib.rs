#![forbid(unsafe_code)]
//! Traceroute: which probes to send when, and what their answers mean.
//!
//! Nothing here uses a socket or a clock. A [`Tracer`] has the interface of all state machines
//! here: `poll_transmit` returns the probe to send, `handle_answer` takes an answer,
//! `handle_timeout` and `poll_timeout` are its clock, `finish` returns the result. A [`PathFinder`]
//! has the same interface and finds all equal-cost paths, a [`PathMtu`] finds the MTU of a path. A
//! [`ProbeCodec`] writes probes and parses answers.
//!
//! ```
//! use linerate_trace::{PathEnd, TraceConfig, Tracer};
//! use linerate_units::Nanos;
//!
//! let config = TraceConfig { hops: 2, ..TraceConfig::new("192.0.2.1".parse()?) };
//! let mut tracer = Tracer::new(config, Nanos::ZERO, 1)?;
//! let mut sent = 0;
//! while let Some(due) = tracer.poll_timeout() {
//!     tracer.handle_timeout(due);
//!     while let Some(_probe) = tracer.poll_transmit(due) {
//!         sent += 1;
//!     }
//! }
//! // Three probes of two TTLs; nobody answers, so each hop is asked once more.
//! assert_eq!(sent, 8);
//! assert_eq!(tracer.finish().end, PathEnd::NoAnswer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When probes are sent
//!
//! All probes of all TTLs go out at once, evenly spaced at [`TraceConfig::rate_per_s`] (10,000/s),
//! from the lowest TTL to the highest, and all probes of a TTL one after another. The reasons for
//! this order:
//!
//! * Whoever waits for one answer before the next probe needs a sum of round trips. To have the
//!   last hop within 1.2 round trips of the target and 5 ms, its probes must leave before 0.2 of
//!   them and 5 ms have passed. Answers that came by then show hops of at most that RTT, so that
//!   nothing can be learnt of the target before all must be sent: 90 probes take 9 ms here, and a
//!   chain of 2 ms a hop grants 12 ms and the 5.
//!   Probes past the target are wasted; its first answer ends them. From low to high, a near target
//!   is found before the far TTLs are sent: at 0.3 ms a TTL, a target 1 ms away costs 4 superfluous
//!   TTLs, and one beyond 9 ms all of them, at most `probes × (hops − distance)`.
//! * A Linux host answers 6 errors at once to a peer and then one a second (`XRLIM_BURST_FACTOR`,
//!   `icmp_ratelimit`). Three probes at a router are below that. At the target all later TTLs
//!   arrive as well, after its own three, so that the limit strikes those whose answers nobody
//!   needs.
//!
//! # How long it waits for answers
//!
//! | for | at most |
//! |---|---|
//! | a hop when itself or one beyond it has answered | 2 × that hop's RTT + 50 ms |
//! | hops behind the last one that answered | 4 × the largest RTT, at least 1 s |
//!
//! never longer than [`TraceConfig::timeout`]. A hop with answers missing is then asked once more
//! by one probe, whose answer tells a limit of answers from a loss and a loss from silence; behind
//! the last answer only the nearest four are, and the last TTL, which a silent stretch cannot keep
//! from the target. So 60 ms to the target and silent hops end at 2 × 170 ms, and a silent target
//! after 2 s.
//!
//! # Which answers count
//!
//! An answer counts if it quotes one of our probes: its session, a sequence number that was sent,
//! and its flow ([`ProbeIdentity`]). Only the first answer to a probe counts, even if it is late;
//! further ones are counted as duplicates, all others as foreign.
//!
//! | module | what is in it |
//! |---|---|
//! | `config` | what is asked, with its ranges; what an endpoint may be asked to trace |
//! | `probe` | probes and answers; what was sent; silence, limited answers and loss told apart |
//! | `identity` | a probe's identity in its bytes: built, and found again |
//! | `quote` | ICMP and ICMPv6 messages, the packet that they quote, MPLS labels behind it |
//! | `tracer` | the strategy for one path |
//! | `outcome` | what came of it |
//! | `mtu` | what fits, and where the path gets narrower |
//! | `multipath` | all paths, by the multipath detection algorithm |
//! | [`delay`] | where the delay is added, and the rates of links |
//! | `watch` | rounds one after another: the report's figures, changes of the path |
//! | `asn` | whose networks the hops are, by a table of prefixes |
//! | `document` | `linerate.trace/1`; what is believed of an endpoint's; loss in each direction |

mod asn;
mod config;
pub mod delay;
mod document;
mod identity;
mod mtu;
mod multipath;
mod outcome;
mod probe;
mod quote;
mod tracer;
mod watch;

pub use asn::{AsTable, Origin};
pub use config::{
    ConfigError, DEFAULT_PORT_TCP, DEFAULT_PORT_UDP, LONGEST_REVERSE, MAX_REVERSE_HOPS,
    MAX_REVERSE_PROBES, MAX_REVERSE_SIZE, TraceConfig, TraceRequest,
};
pub use document::{
    HopDocument, OneWayLoss, ProbeDocument, ReverseDocument, TRACE_SCHEMA, TraceDocument,
    TraceHeader, admit, end_in_words,
};
pub use identity::{MAX_FLOWS, ProbeCodec, least_size};
pub use mtu::{MtuConfig, MtuOutcome, Narrowing, PathMtu};
pub use multipath::{
    Level, MultipathConfig, Node, PathFinder, PathLink, PathsDocument, RoutedPath, stopping_point,
};
pub use outcome::{Hop, PathEnd, ProbeOutcome, TraceOutcome};
pub use probe::{
    Answer, AnswerKind, HopFate, MAX_PROBES, MplsLabel, Probe, ProbeId, ProbeIdentity, ProbeKind,
    Quoted, Reply,
};
pub use quote::{
    Message, NotOurs, QuotedIcmp, QuotedPacket, QuotedTcp, QuotedTransport, QuotedUdp,
    parse_message, unreachable_reason,
};
pub use tracer::Tracer;
pub use watch::{PathChange, Watch, WatchDocument, WatchRow, WatchRtt};
