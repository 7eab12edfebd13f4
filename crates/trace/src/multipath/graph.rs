//! What the answers show: the routers at each TTL, the flows to send next, and the paths in the
//! end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CellState, FlowCell, PathFinder, stopping_point};

/// Most new flows sent to one TTL at once to see which routers they take.
const MAX_AT_ONCE: usize = 16;

/// The flows that answered at a TTL, by router.
pub(super) type Nodes = BTreeMap<IpAddr, Vec<u16>>;

impl PathFinder {
    /// The routers at a TTL with the flows that pass through each, without those at which flows
    /// end.
    pub(super) fn nodes(&self, ttl: u8) -> Nodes {
        let mut nodes = Nodes::new();
        for ((_, flow), cell) in self.cells.range((ttl, 0)..=(ttl, u16::MAX)) {
            if let Some(from) = cell.from
                && !cell.is_end
            {
                nodes.entry(from).or_default().push(*flow);
            }
        }
        nodes
    }

    /// The TTL at which a flow ends. If the target answers beyond its nearest TTL, it is farther
    /// away for this flow only if the flow was seen just before; otherwise its nearer answer is
    /// missing.
    pub(super) fn end_of(&self, flow: u16) -> Option<u8> {
        let cell = |ttl: u8| self.cells.get(&(ttl, flow));
        let mut ttls = self.config.trace.first..=self.config.trace.hops;
        let end = ttls.find(|ttl| cell(*ttl).is_some_and(|cell| cell.is_end))?;
        match self.reached {
            Some(nearest) if nearest < end => {
                let before = cell(end - 1).and_then(|cell| cell.from);
                Some(if before.is_some() { end } else { nearest })
            }
            _ => Some(end),
        }
    }

    /// Plans what to send at a TTL and next to it after something changed there.
    pub(super) fn plan_around(&mut self, ttl: u8) {
        self.follow_longer_flows(ttl);
        self.plan(ttl);
        if ttl < self.config.trace.hops {
            self.plan(ttl + 1);
        }
        if self.is_done() {
            self.complete_paths();
        }
        if self.is_done() && !std::mem::replace(&mut self.is_confirmed, true) {
            self.confirm_flows();
        }
    }

    /// Follows flows that continue where others have reached the target.
    fn follow_longer_flows(&mut self, ttl: u8) {
        if self.reached.is_none_or(|lowest| ttl < lowest) || ttl == self.config.trace.hops {
            return;
        }
        for flow in self.nodes(ttl).into_values().flatten() {
            self.enqueue(ttl + 1, flow);
        }
    }

    /// Sends what the stopping rule still requires between the previous TTL and this one, once both
    /// are quiet.
    fn plan(&mut self, ttl: u8) {
        let first = self.config.trace.first;
        let is_busy = |ttl: u8| self.level(ttl).is_busy();
        let has_answered = self.level(ttl).least_rtt.is_some();
        if is_busy(ttl) || ttl > first && is_busy(ttl - 1) || !has_answered {
            return;
        }
        let before = match ttl > first {
            true => self.nodes(ttl - 1),
            false => Nodes::new(),
        };
        // Beyond the nearest TTL of the target only flows seen to continue do so.
        let is_past = self.reached.is_some_and(|lowest| lowest < ttl);
        if before.len() < 2 && !is_past {
            let wanted = self.wanted(ttl, |_| true);
            let flows = self.unsent(ttl, wanted);
            flows.into_iter().for_each(|flow| self.enqueue(ttl, flow));
            return;
        }
        let count = before.len();
        let mut to_look_for = 0;
        for flows in before.into_values() {
            let wanted = self.wanted(ttl, |flow| flows.contains(&flow));
            let unsent = |flow: &u16| !self.cells.contains_key(&(ttl, *flow));
            let known: Vec<u16> = flows.iter().copied().filter(unsent).take(wanted).collect();
            to_look_for += wanted - known.len();
            known.into_iter().for_each(|flow| self.enqueue(ttl, flow));
        }
        // A guess: each router gets one in `count` flows.
        let flows = self.unsent(ttl - 1, (to_look_for * count).min(MAX_AT_ONCE));
        for flow in flows {
            self.enqueue(ttl - 1, flow);
        }
    }

    /// How many more of these flows have to be seen at a TTL. Flows without an answer count as
    /// seen.
    fn wanted(&self, ttl: u8, is_of_these: impl Fn(u16) -> bool) -> usize {
        let mut next = BTreeSet::new();
        let mut seen = 0;
        for ((_, flow), cell) in self.cells.range((ttl, 0)..=(ttl, u16::MAX)) {
            let is_settled = matches!(cell.state, CellState::Answered | CellState::Failed);
            if is_settled && is_of_these(*flow) {
                seen += 1;
                next.extend(cell.from);
            }
        }
        stopping_point(next.len(), self.config.confidence).saturating_sub(seen)
    }

    /// Up to `count` flows not yet sent to a TTL: first those in use, then new ones while there are
    /// any.
    fn unsent(&mut self, ttl: u8, count: usize) -> Vec<u16> {
        let goes_there = |flow: &u16| {
            let has_ended = self.end_of(*flow).is_some_and(|end| end < ttl);
            !has_ended && !self.cells.contains_key(&(ttl, *flow))
        };
        let mut flows: Vec<u16> = (0..self.flows).filter(goes_there).take(count).collect();
        while flows.len() < count {
            if self.flows >= self.config.most_flows {
                self.is_bounded = true;
                break;
            }
            flows.push(self.flows);
            self.flows += 1;
        }
        flows
    }

    /// Once all routers are known, sends a flow through each at the other TTLs with several
    /// routers, so that its whole path is known.
    fn complete_paths(&mut self) {
        let ttls = self.config.trace.first..=self.config.trace.hops;
        let nodes = ttls.map(|ttl| (ttl, self.nodes(ttl)));
        let wide: Vec<(u8, Nodes)> = nodes.filter(|(_, nodes)| nodes.len() > 1).collect();
        for (_, nodes) in &wide {
            for flows in nodes.values() {
                let is_whole = |flow: &&u16| {
                    wide.iter().all(|(ttl, _)| {
                        self.cells.contains_key(&(*ttl, **flow))
                            || self.end_of(**flow).is_some_and(|end| end < *ttl)
                    })
                };
                if flows.iter().any(|flow| is_whole(&flow)) {
                    continue;
                }
                let Some(&flow) = flows.first() else { continue };
                for (ttl, _) in &wide {
                    self.enqueue(*ttl, flow);
                }
            }
        }
    }

    /// Sends flows once more to the TTLs with several routers. A router that balances by packet
    /// sends each the same way again with a probability of 1/2 at most, as the stopping rule for a
    /// single next router assumes of all flows but the first, which sets what they differ from.
    ///
    /// Flows of one router follow each other, so that a balancer that takes its routers in turn
    /// cannot hit upon the same order.
    fn confirm_flows(&mut self) {
        let count = stopping_point(1, self.config.confidence) - 1;
        for ttl in self.config.trace.first..=self.config.trace.hops {
            let nodes = self.nodes(ttl);
            if nodes.len() < 2 {
                continue;
            }
            let of_each = count.div_ceil(nodes.len()).max(2);
            let flows = nodes.into_values().flat_map(|flows| flows.into_iter().take(of_each));
            self.level_mut(ttl).queue.extend(flows.take(count));
        }
    }
}

// The result of a search for all paths.

/// All equal-cost paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathsDocument {
    /// Probability, 0 to 1, that none of a router's next routers was missed, for each router.
    pub confidence: f64,
    /// Whether that was reached at each; if not, flows or time ran out, or answers were missing.
    pub is_complete: bool,
    /// The routers at each TTL.
    pub levels: Vec<Level>,
    /// Which router leads to which. Not known behind routers among which packets are balanced, if
    /// there are several behind them, too.
    pub links: Vec<PathLink>,
    /// The distinct paths, each with its own figures.
    pub paths: Vec<RoutedPath>,
    /// Probes sent.
    pub probes_sent: u32,
    /// How long it took.
    pub seconds: f64,
}

/// The result for one TTL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// The TTL.
    pub ttl: u8,
    /// The routers that answered, by address; empty at a silent TTL.
    pub nodes: Vec<Node>,
    /// Number of flows without an answer.
    pub unanswered: u32,
    /// Whether probes of one flow were answered by several routers: a router before balances by
    /// packet, so that a flow has no path of its own there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_by_packet: bool,
}

/// A router, or the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its address.
    pub address: IpAddr,
    /// The flows that were seen there.
    pub flows: Vec<u16>,
    /// The RTTs of its answers, microseconds.
    pub rtt_us: Vec<f64>,
}

/// A link between two routers at adjacent TTLs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathLink {
    /// TTL of the nearer router.
    pub ttl: u8,
    /// Address of the nearer router.
    pub from: IpAddr,
    /// Address of the farther router.
    pub to: IpAddr,
    /// Number of flows seen at both.
    pub flows: u32,
}

/// A path that flows take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoutedPath {
    /// The flows that take it.
    pub flows: Vec<u16>,
    /// The router at each TTL, from the lowest; `null` if none answered, or if packets are balanced
    /// there (`levels[].is_by_packet`).
    pub hops: Vec<Option<IpAddr>>,
    /// RTTs of these flows at each router, microseconds.
    pub rtt_us: Vec<Vec<f64>>,
    /// Whether it ends at the target.
    pub is_whole: bool,
}

pub(super) fn assemble(finder: &PathFinder) -> PathsDocument {
    let levels = levels(finder);
    let unanswered = |level: &Level| level.unanswered > 0 && !level.nodes.is_empty();
    PathsDocument {
        links: links(finder, &levels),
        paths: paths(finder, &levels),
        is_complete: !finder.is_bounded && !levels.iter().any(unanswered),
        confidence: finder.config.confidence,
        probes_sent: finder.ledger.len(),
        seconds: (finder.now - finder.started).0 as f64 / 1e9,
        levels,
    }
}

/// The cells of a TTL that are on their flow's path, not past its end.
fn cells(finder: &PathFinder, ttl: u8) -> impl Iterator<Item = (u16, &FlowCell)> {
    let cells =
        finder.cells.range((ttl, 0)..=(ttl, u16::MAX)).map(|((_, flow), cell)| (*flow, cell));
    cells.filter(move |(flow, _)| finder.end_of(*flow).is_none_or(|end| ttl <= end))
}

/// The answers to the probes of a cell: sequence, router and RTT, microseconds.
fn answers(finder: &PathFinder, cell: &FlowCell) -> impl Iterator<Item = (u16, IpAddr, f64)> {
    cell.probes.iter().filter_map(|id| {
        let reply = finder.ledger.get(*id).reply.as_ref()?;
        Some((id.0, reply.from, reply.rtt.0 as f64 / 1e3))
    })
}

fn levels(finder: &PathFinder) -> Vec<Level> {
    let trace = &finder.config.trace;
    let ttls = trace.first..=trace.hops;
    let mut levels: Vec<Level> = ttls.map(|ttl| level(finder, ttl)).collect();
    let last = levels.iter().rposition(|level| !level.nodes.is_empty());
    levels.truncate(last.map_or(0, |place| place + 1));
    levels
}

fn level(finder: &PathFinder, ttl: u8) -> Level {
    let mut nodes: BTreeMap<IpAddr, Node> = BTreeMap::new();
    let mut unanswered = 0;
    for (flow, cell) in cells(finder, ttl) {
        unanswered += u32::from(cell.state == CellState::Failed);
        for (_, address, rtt_us) in answers(finder, cell) {
            let node = nodes.entry(address).or_insert_with(|| Node {
                address,
                flows: Vec::new(),
                rtt_us: Vec::new(),
            });
            node.flows.push(finder.config.trace.flow + flow);
            node.flows.dedup();
            node.rtt_us.push(rtt_us);
        }
    }
    let is_by_packet = is_by_packet(finder, ttl);
    Level { ttl, nodes: nodes.into_values().collect(), unanswered, is_by_packet }
}

/// Whether a flow was answered by several routers at a TTL, and the answers there changed from one
/// router to another more than once: a route that changes does so once.
fn is_by_packet(finder: &PathFinder, ttl: u8) -> bool {
    let of_flows = || cells(finder, ttl).map(|(_, cell)| cell);
    let has_several = |cell: &FlowCell| {
        let mut routers = answers(finder, cell).map(|(_, from, _)| from);
        let first = routers.next();
        routers.any(|router| Some(router) != first)
    };
    let all = of_flows().flat_map(|cell| answers(finder, cell));
    let mut all: Vec<(u16, IpAddr)> = all.map(|(sequence, from, _)| (sequence, from)).collect();
    all.sort_unstable();
    let changes = all.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    changes > 1 && of_flows().any(has_several)
}

/// The router at a TTL for a flow: the one that answered it, or the only one there.
fn seen(finder: &PathFinder, level: &Level, flow: u16) -> Option<IpAddr> {
    let cell = finder.cells.get(&(level.ttl, flow));
    match (cell.and_then(|cell| cell.from), level.nodes.as_slice()) {
        (Some(address), _) => Some(address),
        (None, [only]) => Some(only.address),
        (None, _) => None,
    }
}

/// The flows in use that do not end before a TTL.
fn flows_at(finder: &PathFinder, ttl: u8) -> impl Iterator<Item = u16> {
    (0..finder.flows).filter(move |flow| finder.end_of(*flow).is_none_or(|end| ttl <= end))
}

fn links(finder: &PathFinder, levels: &[Level]) -> Vec<PathLink> {
    let mut counts: BTreeMap<(u8, IpAddr, IpAddr), u32> = BTreeMap::new();
    // What a flow's probe passed at a balanced TTL is not what its next probe passed there.
    let is_known = |pair: &&[Level]| !pair[0].is_by_packet || pair[1].nodes.len() < 2;
    for pair in levels.windows(2).filter(is_known) {
        for flow in flows_at(finder, pair[1].ttl) {
            // Only if the far end answered: a guess at both ends would make a link that no packet
            // has passed.
            let cell = finder.cells.get(&(pair[1].ttl, flow));
            let has_answered = cell.is_some_and(|cell| cell.from.is_some());
            let ends = (seen(finder, &pair[0], flow), seen(finder, &pair[1], flow));
            if let (true, (Some(from), Some(to))) = (has_answered, ends) {
                *counts.entry((pair[0].ttl, from, to)).or_default() += 1;
            }
        }
    }
    let link = |((ttl, from, to), flows)| PathLink { ttl, from, to, flows };
    counts.into_iter().map(link).collect()
}

fn paths(finder: &PathFinder, levels: &[Level]) -> Vec<RoutedPath> {
    let mut paths: BTreeMap<Vec<Option<IpAddr>>, RoutedPath> = BTreeMap::new();
    for flow in 0..finder.flows {
        let end = finder.end_of(flow);
        let is_on_path = |level: &&Level| end.is_none_or(|end| level.ttl <= end);
        let on_path = || levels.iter().take_while(is_on_path);
        let router = |level: &Level| match level.is_by_packet {
            true => None,
            false => seen(finder, level, flow),
        };
        let hops: Vec<Option<IpAddr>> = on_path().map(router).collect();
        // A flow that was not sent to a TTL with several routers could be on any path.
        let is_sent = |level: &Level| finder.cells.contains_key(&(level.ttl, flow));
        let is_known = on_path()
            .zip(&hops)
            .all(|(level, hop)| hop.is_some() || level.is_by_packet || is_sent(level));
        if !is_known || hops.is_empty() {
            continue;
        }
        let path = paths.entry(hops.clone()).or_insert_with(|| RoutedPath {
            flows: Vec::new(),
            rtt_us: vec![Vec::new(); hops.len()],
            is_whole: hops.last() == Some(&Some(finder.config.trace.target)),
            hops,
        });
        path.flows.push(finder.config.trace.flow + flow);
        for (level, rtts) in on_path().zip(&mut path.rtt_us) {
            let cell = finder.cells.get(&(level.ttl, flow));
            rtts.extend(cell.iter().flat_map(|cell| answers(finder, cell)).map(|(.., rtt)| rtt));
        }
    }
    let mut paths: Vec<RoutedPath> = paths.into_values().collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.flows.len()));
    paths
}
