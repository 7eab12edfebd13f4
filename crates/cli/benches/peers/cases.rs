//! The benchmarks: what is sent, against whom, and what must come out.

use crate::measurement::Metric;
use crate::pair::{Finding, Pair};
use crate::programs::Peer;

/// What both programs of a pair do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Workload {
    /// So many TCP streams; of linerate's, a batch of messages goes in one call.
    Stream { message: u64, copies: Copies, flows: u32, batch: u32 },
    /// One UDP stream; as fast as it goes without a rate.
    Datagrams { bytes: u64, per_second: Option<u64>, offload: bool },
    /// Small requests: so many flows, each with so many of them under way.
    Requests { udp: bool, spin: bool, flows: u32, depth: u32 },
    /// A connection for each small request, so many at a time.
    Connections { flows: u32 },
    /// A stock client of iperf3's against `linerate serve`, and against its own server.
    Stock { udp: bool, down: bool },
}

/// Which copies between user and kernel a stream is spared. The receiver of a peer always reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    Both,
    ReceiverOnly,
    None,
}

impl Workload {
    /// One TCP stream, a write for each message.
    fn stream(message: u64, copies: Copies) -> Self {
        Self::Stream { message, copies, flows: 1, batch: 1 }
    }
}

/// One benchmark.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) workload: Workload,
    /// `None` where linerate is measured against a fixed bound.
    pub(crate) peer: Option<Peer>,
    pub(crate) goals: Vec<Goal>,
}

/// A figure that is shown, and what it must be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) metric: Metric,
    pub(crate) bound: Bound,
}

/// What a figure must be. Of ratios the median over the pairs counts, linerate's figure over the
/// peer's; else the median over linerate's runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    RatioAtLeast(f64),
    RatioAtMost(f64),
    Below(f64),
    Shown,
}

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = copies();
    cases.extend(zero_copy());
    for peer in [Peer::Iperf3, Peer::Netperf] {
        cases.extend(MESSAGES.map(|bytes| small_messages(bytes, peer)));
    }
    cases.push(batch());
    cases.extend(datagrams());
    for (udp, down) in [(false, false), (false, true), (true, false), (true, true)] {
        cases.push(stock(udp, down));
    }
    for udp in [false, true] {
        for spin in [false, true] {
            cases.push(ping_pong(udp, spin));
        }
    }
    cases.extend(requests());
    cases.extend(connections());
    cases
}

/// Bytes of the small messages.
const MESSAGES: [u64; 5] = [32, 128, 512, 1024, 2920];

/// Bytes of the large ones: iperf3's default.
const LARGE: u64 = 128 << 10;

/// Payload of a datagram that fills an Ethernet frame with room for options.
pub(crate) const DATAGRAM: u64 = 1448;

fn copies() -> Vec<Case> {
    let case = |name: &str, flows, peer, rate, cost| Case {
        name: name.to_owned(),
        workload: Workload::Stream { message: LARGE, copies: Copies::Both, flows, batch: 1 },
        peer: Some(peer),
        goals: vec![
            goal(Metric::Goodput, Bound::RatioAtLeast(rate)),
            goal(Metric::Cost, Bound::RatioAtMost(cost)),
            goal(Metric::SenderCost, Bound::Shown),
            goal(Metric::ReceiverCost, Bound::Shown),
        ],
    };
    vec![
        case("copy", 1, Peer::Iperf3, 1.0, 0.95),
        case("copy", 1, Peer::Nuttcp, 1.0, 1.0),
        case("copy", 1, Peer::Netperf, 1.0, 1.0),
        case("copy-flows-4", 4, Peer::Iperf3, 1.05, 1.0),
    ]
}

fn zero_copy() -> Vec<Case> {
    let case = |name: &str, copies, ratio| Case {
        name: name.to_owned(),
        workload: Workload::stream(LARGE, copies),
        peer: Some(Peer::Iperf3),
        goals: vec![
            goal(Metric::Goodput, Bound::RatioAtLeast(ratio)),
            goal(Metric::Cost, Bound::Shown),
        ],
    };
    vec![case("zerocopy", Copies::ReceiverOnly, 1.2), case("zerocopy-discard", Copies::None, 1.5)]
}

fn small_messages(message: u64, peer: Peer) -> Case {
    Case {
        name: format!("messages-{message}"),
        workload: Workload::stream(message, Copies::Both),
        peer: Some(peer),
        goals: each(1.05),
    }
}

/// Beside one write for each message, which is all that the peer has.
fn batch() -> Case {
    Case {
        name: "messages-32-batch".to_owned(),
        workload: Workload::Stream { message: 32, copies: Copies::Both, flows: 1, batch: 64 },
        peer: Some(Peer::Iperf3),
        goals: each(3.0),
    }
}

/// So many times the peer's messages, transactions or connections, and what each costs.
fn each(ratio: f64) -> Vec<Goal> {
    vec![
        goal(Metric::UnitsPerSecond, Bound::RatioAtLeast(ratio)),
        goal(Metric::UnitCost, Bound::Shown),
    ]
}

fn datagrams() -> Vec<Case> {
    let case = |name: &str, per_second, offload, peer, goals| Case {
        name: name.to_owned(),
        workload: Workload::Datagrams { bytes: DATAGRAM, per_second, offload },
        peer,
        goals,
    };
    let faster = |ratio| {
        vec![
            goal(Metric::UnitsPerSecond, Bound::RatioAtLeast(ratio)),
            goal(Metric::Loss, Bound::Shown),
        ]
    };
    let even = || {
        vec![
            goal(Metric::UnitsPerSecond, Bound::Shown),
            goal(Metric::Loss, Bound::Below(0.1)),
            goal(Metric::GapSpread, Bound::Below(2.0)),
        ]
    };
    vec![
        case("udp-offload", None, true, Some(Peer::Iperf3), faster(1.0)),
        case("udp-plain", None, false, Some(Peer::Iperf3), faster(1.0)),
        case("udp-500k-offload", Some(500_000), true, None, even()),
        case("udp-50k-plain", Some(50_000), false, None, even()),
    ]
}

/// The server is what differs: its CPU counts, whichever way the payload goes.
fn stock(udp: bool, down: bool) -> Case {
    let protocol = if udp { "udp" } else { "tcp" };
    let (direction, server) =
        if down { ("down", Metric::SenderCost) } else { ("up", Metric::ReceiverCost) };
    let mut goals = vec![
        goal(Metric::Goodput, Bound::RatioAtLeast(1.0)),
        goal(server, Bound::RatioAtMost(1.0)),
    ];
    goals.extend(udp.then_some(goal(Metric::Loss, Bound::Shown)));
    Case {
        name: format!("served-{protocol}-{direction}"),
        workload: Workload::Stock { udp, down },
        peer: Some(Peer::Iperf3),
        goals,
    }
}

fn ping_pong(udp: bool, spin: bool) -> Case {
    let protocol = if udp { "udp" } else { "tcp" };
    let mode = if spin { "spin" } else { "block" };
    Case {
        name: format!("rr-{protocol}-{mode}"),
        workload: Workload::Requests { udp, spin, flows: 1, depth: 1 },
        peer: Some(Peer::Sockperf),
        goals: vec![
            goal(Metric::UnitsPerSecond, Bound::RatioAtLeast(1.05)),
            goal(Metric::UnitCost, Bound::Shown),
            goal(Metric::P50, Bound::Shown),
            goal(Metric::P99, Bound::Shown),
        ],
    }
}

/// Beside those whose messages have no header.
fn requests() -> Vec<Case> {
    let case = |name: &str, flows, depth, peer| Case {
        name: name.to_owned(),
        workload: Workload::Requests { udp: false, spin: false, flows, depth },
        peer: Some(peer),
        goals: each(1.05),
    };
    vec![
        case("rr-tcp-block", 1, 1, Peer::Netperf),
        case("rr-tcp-block", 1, 1, Peer::Neper),
        case("rr-tcp-depth-16", 1, 16, Peer::Netperf),
        case("rr-tcp-flows-16", 16, 1, Peer::Neper),
        case("rr-tcp-flows-256", 256, 1, Peer::Neper),
    ]
}

fn connections() -> Vec<Case> {
    let case = |name: &str, flows, peer| Case {
        name: name.to_owned(),
        workload: Workload::Connections { flows },
        peer: Some(peer),
        goals: each(1.1),
    };
    vec![
        case("crr", 1, Peer::Netperf),
        case("crr", 1, Peer::Neper),
        case("crr-flows-4", 4, Peer::Neper),
    ]
}

fn goal(metric: Metric, bound: Bound) -> Goal {
    Goal { metric, bound }
}

impl Case {
    pub(crate) fn findings(&self, pairs: &[Pair]) -> Vec<Finding> {
        let goals = self.goals.iter();
        goals.map(|goal| Finding::new(*goal, pairs)).collect()
    }

    /// What the filter is matched against, such as `copy/iperf3@veth`.
    pub(crate) fn title(&self, place: &str) -> String {
        match self.peer {
            Some(peer) => format!("{}/{}@{place}", self.name, peer.name()),
            None => format!("{}@{place}", self.name),
        }
    }
}
