//! The families that resemble what users meet: full speed, the kernel's own shapers, other
//! programs.
//!
//! The right answer is known by construction, as in the old family, and written down here before
//! anything runs; where two answers are equally right, both are. Hosts have their kernel's defaults
//! except for what a scenario sets.

mod beside;
mod buffers;
mod full_speed;
mod lines;
mod queue;
mod shaped;
mod strangers;
mod varying;

use std::collections::BTreeMap;

use super::assemble::{hosts, interval, path, span, test};
use super::causes::{plain, round};
use super::conditions::{Bound, Conditions};
use super::describe::describe;
use super::families::{Draw, ScenarioFamily};
use super::scenario::{HostSetup, Scenario, Shaper, Surroundings};
use crate::ceilings::Cause;
use crate::link::PathSpec;
use crate::plan::{Direction, Extent};
use crate::units::Dice;
use queue::{Leaf, Place, Queue, QueueKind, ROUTER};

pub(super) use strangers::stranger;

/// Makes the table of families: the function that draws a family has its name.
macro_rules! families {
    ($($module:ident::$name:ident: $means:literal;)*) => {
        /// The families of this module. A new one is an entry here, and its function.
        pub(super) static FAMILIES: &[ScenarioFamily] = &[$(ScenarioFamily {
            name: stringify!($name),
            means: $means,
            draw: Draw::Any($module::$name),
        }),*];
    };
}

families! {
    full_speed::full_speed: "nothing set, one to 16 flows over a veth pair or through a router";
    full_speed::full_speed_loopback: "nothing set, one to 16 flows over the loopback device";
    full_speed::full_speed_one_cpu: "nothing set, both ends on one CPU";
    full_speed::full_speed_busy_host: "nothing set, other work on the CPUs of one end or both";
    shaped::tbf: "the kernel's TBF at the sender's device or on a router";
    shaped::htb: "a class of the kernel's HTB at the sender's device or on a router";
    buffers::small_send_buffer: "a send buffer for 0.3 to 0.9 of the path, large writes";
    buffers::small_segments: "segments of 100 to 500 bytes with a small buffer at one end";
    buffers::slow_reader: "a slow reader on a path for more than its first window";
    shaped::kernel_queues: "the kernel's fq_codel and fq below a class, and its netem";
    shaped::many_flows: "two to 64 flows through one shaper of the kernel's";
    shaped::ipv6: "a shaper of the kernel's under IPv6";
    shaped::bufferbloat: "a queue for a second of the line, on a router or in the lab's link";
    shaped::udp_rate: "UDP at a set rate, below or above that of a shaper";
    shaped::qos_class: "a limit of the sender's own QoS policy";
    shaped::iperf3_server: "only this end is seen: iperf3 serves at the other, behind a shaper";
    beside::competing_tcp: "TCP of another program through the same shaper";
    beside::competing_udp: "constant UDP of another program through the same shaper";
    beside::busy_reverse_path: "acknowledgements wait behind TCP of another program";
    varying::wifi_lte: "a rate that comes in bursts (Wi-Fi) or wanders (LTE), with jitter";
    varying::rate_steps: "a rate that steps up and down";
    lines::codel_ecn: "a line with CoDel, which drops or marks";
    lines::large_bucket_policer:
        "a policer with a bucket of 0.1 to 0.5 s, the lab's or the kernel's";
    lines::black_hole: "large packets vanish, and the sender probes the MTU";
    lines::short_transfer: "a transfer that is over in slow start, with the kernel's buffers";
    buffers::small_receive_limit: "a host's tcp_rmem far below what a fast, long path holds";
}

/// A scenario before it has a number.
pub(super) struct Draft {
    conditions: Conditions,
    /// The cause that holds it back.
    cause: Cause,
    /// Other verdicts that are right.
    accepted: Vec<Cause>,
    /// Payload bits/s, if something sets it.
    limit_bps: Option<f64>,
    path: Option<PathSpec>,
    around: Surroundings,
    /// The congestion control is left to the kernel.
    is_control_free: bool,
    /// Warm-up and measured time, if the usual ones do not suffice.
    seconds: Option<(f64, f64)>,
    /// Settings of both hosts.
    sysctls: BTreeMap<String, String>,
}

impl Draft {
    /// A draft over the line of the conditions, or else over a plain veth pair.
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
        if matches!(queue.kind, QueueKind::Htb(_)) && place == Place::SendersDevice {
            // It is a class of the sender's host, whoever made it.
            self.accepted.push(Cause::QosClass);
        }
        self.shape_towards(self.conditions.direction, place, queue);
    }

    fn shape_towards(&mut self, direction: Direction, place: Place, queue: &Queue) {
        let (node, interface) = place.at(direction);
        if node == ROUTER {
            self.path.get_or_insert_default().hops = 1;
        }
        self.around.shapers.push(Shaper {
            steps: None,
            node: node.to_owned(),
            interface: interface.to_owned(),
            words: queue.to_string(),
            setup: queue.setup(),
        });
    }

    /// The kernel limits the frames to this rate, bits/s: the payload in them is the limit, if the
    /// host carries far more.
    fn limited_to(&mut self, rate_bps: u64) {
        let limit = rate_bps as f64 * self.conditions.payload_share();
        self.limit_bps = Some(limit);
        self.around.needs_bps = self.is_plain().then_some(NEEDED * limit);
    }

    /// Whether no link of the lab's emulator is on the path.
    fn is_plain(&self) -> bool {
        let changes_nothing =
            |path: &PathSpec| path.up.changes_nothing() && path.down.changes_nothing();
        self.path.as_ref().is_none_or(changes_nothing)
    }

    pub(super) fn scenario(self, family: &str, number: u32, seed: u64) -> Scenario {
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
            family: family.to_owned(),
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

    /// Leaves settings to the host that the old family always sets.
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

/// Without the shaper the host must carry so many times the limit, or the limit is not known.
const NEEDED: f64 = 2.5;

/// Conditions that set nothing but a usual congestion control and the usual size of writes.
fn usual(random: &mut Dice) -> Conditions {
    Conditions {
        message_bytes: 131_072,
        ..plain(random)
    }
}

/// A rate between two others with three significant digits, bits/s.
fn rate(random: &mut Dice, low: f64, high: f64) -> u64 {
    round(random.log_uniform(low, high))
}
