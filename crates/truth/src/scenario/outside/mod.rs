//! The families that resemble what users meet: full speed, the kernel's own shapers, other
//! programs. They are outside of what the formulas of single limits describe.
//!
//! The right answer is known by construction all the same, and written down here before anything
//! runs; where two answers are equally right, both are. Hosts have their kernel's defaults except
//! for what a scenario sets.
//!
//! | module | what is in it |
//! |---|---|
//! | `hosts` | nothing set at full speed; buffers that are too small |
//! | `paths` | the kernel's shapers, queue management, policers, rates that vary |
//! | `programs` | traffic of other programs, beside linerate's or in its place |

mod hosts;
mod paths;
mod programs;

use std::collections::BTreeMap;
use std::fmt;

use linerate_core::ceilings::Cause;
use linerate_core::link::{LinkSpec, PathSpec};
use linerate_core::plan::{Direction, Extent};
use linerate_core::units::{BitRate, ByteCount, Dice};

use super::assemble::{describe, hosts as hosts_of, interval, path, span, test};
use super::causes::{plain, round};
use super::conditions::{Bound, Conditions};
use super::draw::{DrawBy, ScenarioFamily};
use super::{Around, HostSetup, KernelShaper, Scenario};

pub(super) use programs::{OTHER_PROGRAMS, other_program};

/// Makes the table of families: the function that draws a family has its name.
macro_rules! families {
    ($($module:ident::$name:ident: $means:literal;)*) => {
        /// The families of this module. A new one is an entry here, and its function.
        pub(super) static FAMILIES: &[ScenarioFamily] = &[$(ScenarioFamily {
            name: stringify!($name),
            means: $means,
            draw: DrawBy::Any($module::$name),
        }),*];
    };
}

families! {
    hosts::full_speed: "nothing set, one to 16 flows over a veth pair or through a router";
    hosts::full_speed_loopback: "nothing set, one to 16 flows over the loopback device";
    hosts::full_speed_one_cpu: "nothing set, both ends on one CPU";
    hosts::full_speed_busy_host: "nothing set, other work on the CPUs of one end or both";
    paths::tbf: "the kernel's TBF at the sender's device or on a router";
    paths::htb: "a class of the kernel's HTB at the sender's device or on a router";
    hosts::small_send_buffer: "a send buffer for 0.3 to 0.9 of the path, large writes";
    hosts::small_segments: "segments of 100 to 500 bytes with a small buffer at one end";
    hosts::slow_reader: "a slow reader on a path for more than its first window";
    paths::kernel_queues: "the kernel's fq_codel and fq below a class, and its netem";
    paths::many_flows: "two to 64 flows through one shaper of the kernel's";
    paths::ipv6: "a shaper of the kernel's under IPv6";
    paths::bufferbloat: "a queue for a second of the line, on a router or in the lab's link";
    paths::udp_rate: "UDP at a set rate, below or above that of a shaper";
    paths::qos_class: "a limit of the sender's own QoS policy";
    paths::iperf3_server: "only this end is seen: iperf3 serves at the other, behind a shaper";
    programs::competing_tcp: "TCP of another program through the same shaper";
    programs::competing_udp: "constant UDP of another program through the same shaper";
    programs::busy_reverse_path: "acknowledgements wait behind TCP of another program";
    paths::wifi_lte: "a rate that comes in bursts (Wi-Fi) or wanders (LTE), with jitter";
    paths::rate_steps: "a rate that steps up and down";
    paths::codel_ecn: "a line with CoDel, which drops or marks";
    paths::large_bucket_policer:
        "a policer with a bucket of 0.1 to 0.5 s, the lab's or the kernel's";
    paths::black_hole: "large packets vanish, and the sender probes the MTU";
    paths::short_transfer: "a transfer that is over in slow start, with the kernel's buffers";
    hosts::small_receive_limit: "a host's tcp_rmem far below what a fast, long path holds";
}

/// A scenario before it has a number.
pub(super) struct ScenarioDraft {
    conditions: Conditions,
    /// The cause that limits it.
    cause: Cause,
    /// Other verdicts that are right.
    accepted: Vec<Cause>,
    /// The rate that the cause allows, payload bits/s, if something sets it.
    limit_bps: Option<f64>,
    path: Option<PathSpec>,
    around: Around,
    /// The congestion control is left to the kernel.
    is_control_free: bool,
    /// Warm-up and measured time, if the usual ones do not suffice.
    seconds: Option<(f64, f64)>,
    /// Settings of both hosts.
    sysctls: BTreeMap<String, String>,
}

impl ScenarioDraft {
    /// A draft over the line of the conditions, or else over a plain veth pair.
    fn new(conditions: Conditions, cause: Cause, random: &mut Dice) -> Self {
        Self {
            path: (conditions.line.as_ref()).map(|line| path(line, conditions.direction)),
            conditions,
            cause,
            accepted: Vec::new(),
            limit_bps: None,
            around: Around::default(),
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

    /// Adds a shaper of the kernel's where the payload passes.
    fn shape(&mut self, place: ShaperPlace, queue: &KernelQueue) {
        if matches!(queue.kind, QueueKind::Htb(_)) && place == ShaperPlace::SendersDevice {
            // It is a class of the sender's host, whoever made it.
            self.accepted.push(Cause::QosClass);
        }
        self.shape_towards(self.conditions.direction, place, queue);
    }

    /// Adds a shaper of the kernel's for a direction.
    fn shape_towards(&mut self, direction: Direction, place: ShaperPlace, queue: &KernelQueue) {
        let (node, interface) = place.at(direction);
        if node == ROUTER {
            self.path.get_or_insert_default().hops = 1;
        }
        self.around.shapers.push(KernelShaper {
            steps: None,
            node: node.to_owned(),
            interface: interface.to_owned(),
            words: queue.to_string(),
            setup: queue.setup(),
        });
    }

    /// Sets the limit to the payload in frames of this rate, bits/s. It is the limit only if the
    /// host carries far more.
    fn limited_to(&mut self, rate_bps: u64) {
        let limit = rate_bps as f64 * self.conditions.payload_share();
        self.limit_bps = Some(limit);
        self.around.needs_bps = self.is_plain().then_some(NEEDED * limit);
    }

    /// The direction of its link that carries the payload.
    fn payloads_link(&mut self) -> &mut LinkSpec {
        let path = self.path.get_or_insert_default();
        match self.conditions.direction {
            Direction::Down => &mut path.down,
            Direction::Up | Direction::Both => &mut path.up,
        }
    }

    /// Whether no link of the lab's emulator is on the path.
    fn is_plain(&self) -> bool {
        let changes_nothing =
            |path: &PathSpec| path.up.changes_nothing() && path.down.changes_nothing();
        self.path.as_ref().is_none_or(changes_nothing)
    }

    /// The scenario of a family with this number.
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
        let (mut client, mut server) = hosts_of(conditions);
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

    /// Leaves settings to the host that the family of single limits always sets.
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

/// Conditions that set nothing but a usual congestion control and the usual size of writes.
fn usual(random: &mut Dice) -> Conditions {
    Conditions { message_bytes: 131_072, ..plain(random) }
}

/// A rate between two others with three significant digits, bits/s.
fn rate(random: &mut Dice, low: f64, high: f64) -> u64 {
    round(random.log_uniform(low, high))
}

/// The place of a shaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShaperPlace {
    /// The sender's device: the sender sees its queue.
    SendersDevice,
    /// A router: neither end sees its queue.
    Router,
}

impl ShaperPlace {
    /// The node and its device, for traffic of this direction.
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

/// A queue of the kernel with a rate.
struct KernelQueue {
    kind: QueueKind,
    rate_bps: u64,
    /// Bytes that may pass at once.
    burst: u64,
    /// Bytes that may wait.
    limit: u64,
}

/// A kind of the kernel's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueKind {
    /// A token bucket.
    Tbf,
    /// One class, and the queue below it.
    Htb(LeafQueue),
    /// A rate of netem.
    Netem,
}

/// The queue below a class of HTB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeafQueue {
    /// The kernel's default: as many frames as the device's queue holds.
    Kernels,
    /// A queue of so many bytes.
    Bytes,
    FqCodel,
    Fq,
}

impl KernelQueue {
    /// The arguments of `tc` that make it.
    fn setup(&self) -> Vec<String> {
        let Self { rate_bps: rate, burst, limit, .. } = self;
        match self.kind {
            QueueKind::Tbf => vec![format!(
                "qdisc replace dev DEV root tbf rate {rate}bit burst {burst} limit {limit}"
            )],
            QueueKind::Netem => {
                vec![format!("qdisc replace dev DEV root netem rate {rate}bit limit 1000")]
            }
            QueueKind::Htb(leaf) => {
                let below = match leaf {
                    LeafQueue::Kernels => None,
                    LeafQueue::Bytes => Some(format!("bfifo limit {limit}")),
                    LeafQueue::FqCodel => Some("fq_codel".to_owned()),
                    LeafQueue::Fq => Some("fq".to_owned()),
                };
                let root = "qdisc replace dev DEV root handle 1: htb default 1".to_owned();
                let class = format!(
                    "class replace dev DEV parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit \
                     burst {burst} cburst {burst} quantum 60000"
                );
                let below = below.map(|queue| format!("qdisc add dev DEV parent 1:1 {queue}"));
                [root, class].into_iter().chain(below).collect()
            }
        }
    }
}

impl fmt::Display for KernelQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, limit) = (BitRate(self.rate_bps), ByteCount(self.limit));
        match self.kind {
            QueueKind::Tbf => write!(f, "TBF of {rate} with a queue of {limit}"),
            QueueKind::Htb(LeafQueue::Bytes) => write!(f, "HTB of {rate} with a queue of {limit}"),
            QueueKind::Htb(LeafQueue::Kernels) => write!(f, "HTB of {rate}"),
            QueueKind::Htb(LeafQueue::FqCodel) => write!(f, "HTB of {rate} with fq_codel"),
            QueueKind::Htb(LeafQueue::Fq) => write!(f, "HTB of {rate} with fq"),
            QueueKind::Netem => write!(f, "netem of {rate}"),
        }
    }
}

const CLIENT: &str = "client";
const SERVER: &str = "server";
const ROUTER: &str = "r1";
/// Times of its limit that a host must carry without the shaper, or the limit is not known.
const NEEDED: f64 = 2.5;
