//! What a user can meet: nothing set at full speed, the kernel's own shapers, other programs.
//!
//! What is true of each is known by construction, as in the old family, and is written down here
//! before anything runs; where two answers are equally true both are. Hosts have their kernel's
//! defaults but for what a scenario sets.

mod buffers;
mod full_speed;
mod shaped;

use std::collections::BTreeMap;
use std::fmt;

use super::assemble::{hosts, interval, path, span, test};
use super::causes::{plain, round};
use super::conditions::{Bound, Conditions, Line};
use super::describe::describe;
use super::families::ScenarioFamily;
use super::scenario::{HostSetup, Scenario, Shaper, Surroundings};
use crate::ceilings::Cause;
use crate::link::PathSpec;
use crate::plan::{Direction, Extent};
use crate::units::{BitRate, ByteCount, Dice};

/// The next one is an entry here and its function.
pub(super) static FAMILIES: [ScenarioFamily; 7] = [
    family(
        "full_speed",
        "nothing set, one to 16 flows over a veth pair or through a router",
        full_speed::free,
    ),
    family(
        "full_speed_loopback",
        "nothing set, one to 16 flows over the loopback device",
        full_speed::loopback,
    ),
    family(
        "full_speed_one_cpu",
        "nothing set, both ends on one CPU",
        full_speed::one_cpu,
    ),
    family(
        "full_speed_busy_host",
        "nothing set, other work on the CPUs of one end or both",
        full_speed::busy,
    ),
    family(
        "tbf",
        "the kernel's TBF at the sender's device or on a router",
        shaped::tbf,
    ),
    family(
        "htb",
        "a class of the kernel's HTB at the sender's device or on a router",
        shaped::htb,
    ),
    family(
        "small_send_buffer",
        "a send buffer for 0.3 to 0.9 of the path, large writes",
        buffers::small_send_buffer,
    ),
];

const fn family(
    name: &'static str,
    means: &'static str,
    draw: fn(&mut Dice) -> Draft,
) -> ScenarioFamily {
    ScenarioFamily {
        name,
        means,
        draw: Some(draw),
    }
}

/// A scenario before it has a number.
pub(super) struct Draft {
    conditions: Conditions,
    /// What holds it back.
    cause: Cause,
    /// What is as true.
    accepted: Vec<Cause>,
    /// Payload bits/s, where something sets it.
    limit_bps: Option<f64>,
    path: Option<PathSpec>,
    around: Surroundings,
    /// The kernel's own congestion control.
    is_control_free: bool,
    /// Warm-up and measured time, where the usual ones do not do.
    seconds: Option<(f64, f64)>,
    /// Settings of both hosts.
    sysctls: BTreeMap<String, String>,
}

impl Draft {
    /// Over the line of the conditions, or else over a plain veth pair.
    fn new(conditions: Conditions, cause: Cause, random: &mut Dice) -> Self {
        Self {
            path: (conditions.line.as_ref()).map(|line| path(line, conditions.direction)),
            conditions,
            cause,
            accepted: Vec::new(),
            limit_bps: None,
            around: Surroundings::default(),
            is_control_free: random.chance(0.4),
            seconds: None,
            sysctls: BTreeMap::new(),
        }
    }

    /// Puts a router on the path.
    fn routed(mut self) -> Self {
        self.path.get_or_insert_default().hops = 1;
        self
    }

    /// A shaper of the kernel's where the payload passes.
    fn shape(&mut self, place: Place, queue: &Queue) {
        let (node, interface) = place.at(self.conditions.direction);
        if node == ROUTER {
            self.path.get_or_insert_default().hops = 1;
        }
        self.around.shapers.push(Shaper {
            node: node.to_owned(),
            interface: interface.to_owned(),
            words: queue.to_string(),
            setup: queue.setup(),
        });
    }

    /// Of so many bits/s of frames by the kernel: what is left for payload is the limit, where the
    /// host carries far more.
    fn limited_to(&mut self, rate_bps: u64) {
        let limit = rate_bps as f64 * self.conditions.payload_share();
        self.limit_bps = Some(limit);
        let is_emulated = self.conditions.line.is_some();
        self.around.needs_bps = (!is_emulated).then_some(NEEDED * limit);
    }

    pub(super) fn scenario(self, family: &'static str, number: u32, seed: u64) -> Scenario {
        let conditions = &self.conditions;
        let mut test = test(conditions, self.cause, seed.wrapping_add(number.into()));
        if self.is_control_free {
            test.options.congestion = None;
        }
        if let Some((warm_up, time)) = self.seconds {
            test.warm_up = span(warm_up);
            test.extent = Extent::Time(span(time));
            test.interval = interval(test.extent);
        }
        let (mut client, mut server) = hosts(conditions);
        for host in [&mut client, &mut server] {
            self.leave_defaults(host);
        }
        let words = describe(conditions, self.path.as_ref(), self.is_control_free);
        let around = self.around.describe();
        Scenario {
            number,
            family,
            cause: self.cause,
            accepted: self.accepted,
            limit_bps: self.limit_bps,
            rivals: Vec::new(),
            is_border: false,
            ip: conditions.family,
            path: self.path,
            test,
            client,
            server,
            around: self.around,
            describe: [vec![words], around].concat().join(", "),
        }
    }

    /// What no scenario of the old family leaves to the host is left to it here.
    fn leave_defaults(&self, host: &mut HostSetup) {
        let is_set = |bound| matches!(bound, Bound::Host(_));
        let conditions = &self.conditions;
        host.sysctls.retain(|key, _| match key.as_str() {
            "net.ipv4.tcp_rmem" => is_set(conditions.window),
            "net.ipv4.tcp_wmem" => is_set(conditions.send_buffer),
            _ => true,
        });
        host.sysctls.extend(self.sysctls.clone());
    }
}

/// Where a shaper is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The sender sees its queue.
    SendersDevice,
    /// Nobody at the ends does.
    Router,
}

impl Place {
    fn at(self, direction: Direction) -> (&'static str, &'static str) {
        let is_up = direction != Direction::Down;
        match (self, is_up) {
            (Self::SendersDevice, true) => (CLIENT, "eth0"),
            (Self::SendersDevice, false) => (SERVER, "eth0"),
            (Self::Router, true) => (ROUTER, "eth1"),
            (Self::Router, false) => (ROUTER, "eth0"),
        }
    }
}

/// A queue of the kernel's with a rate.
struct Queue {
    kind: QueueKind,
    rate_bps: u64,
    /// What may pass at once, bytes.
    burst: u64,
    /// What may wait, bytes.
    limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueKind {
    Tbf,
    /// With a queue of its own below the class, or with the kernel's.
    Htb {
        own_queue: bool,
    },
}

impl Queue {
    /// Commands of `tc`.
    fn setup(&self) -> Vec<String> {
        let Self {
            rate_bps: rate,
            burst,
            limit,
            ..
        } = self;
        match self.kind {
            QueueKind::Tbf => vec![format!(
                "qdisc replace dev DEV root tbf rate {rate}bit burst {burst} limit {limit}"
            )],
            QueueKind::Htb { own_queue } => {
                let mut commands = vec![
                    "qdisc replace dev DEV root handle 1: htb default 1".to_owned(),
                    format!(
                        "class replace dev DEV parent 1: classid 1:1 htb rate {rate}bit ceil \
                         {rate}bit burst {burst} cburst {burst} quantum 60000"
                    ),
                ];
                if own_queue {
                    commands.push(format!("qdisc add dev DEV parent 1:1 bfifo limit {limit}"));
                }
                commands
            }
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            QueueKind::Tbf => "TBF",
            QueueKind::Htb { .. } => "HTB",
        };
        write!(f, "{kind} of {}", BitRate(self.rate_bps))?;
        match self.kind {
            QueueKind::Htb { own_queue: false } => Ok(()),
            _ => write!(f, " with a queue of {}", ByteCount(self.limit)),
        }
    }
}

const CLIENT: &str = "client";
const SERVER: &str = "server";
const ROUTER: &str = "r1";
/// The host carries so many times the limit without the shaper, or the limit is not known.
const NEEDED: f64 = 2.5;

/// Nothing set but one of the usual congestion controls, in writes of the usual size.
fn usual(random: &mut Dice) -> Conditions {
    Conditions {
        message_bytes: 131_072,
        ..plain(random)
    }
}

/// A path of the lab's that only delays.
fn delay_of(rtt_s: f64) -> Line {
    Line {
        rtt_s: (rtt_s * 1e6).round() / 1e6,
        rate_bps: None,
        queue_bytes: 0,
        codel: None,
        loss: None,
        policer: None,
        jitter_s: 0.0,
        mtu: super::conditions::ETHERNET_MTU,
        hops: 0,
    }
}

/// To three digits, bits/s.
fn rate(random: &mut Dice, low: f64, high: f64) -> u64 {
    round(random.log_uniform(low, high))
}
