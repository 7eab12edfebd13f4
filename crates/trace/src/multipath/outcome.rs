//! The result of a search for all paths.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CellState, FlowCell, PathFinder};

/// All equal-cost paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathsDocument {
    /// Probability, 0 to 1, that none of a router's next routers was missed, for each router.
    pub confidence: f64,
    /// Whether that was reached at each; if not, flows or time ran out, or answers were missing.
    pub is_complete: bool,
    /// The routers at each TTL.
    pub levels: Vec<Level>,
    /// Which router leads to which.
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
}

/// A router, or the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its address.
    pub address: IpAddr,
    /// The flows that were seen there.
    pub flows: Vec<u16>,
    /// The RTT of each flow, microseconds.
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
    /// The router at each TTL, from the lowest; `null` if none answered.
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

fn rtt_us(finder: &PathFinder, cell: &FlowCell) -> Option<f64> {
    let replies = |id| finder.ledger.get(id).reply.as_ref();
    let reply = cell.probes.iter().find_map(|id| replies(*id))?;
    Some(reply.rtt.0 as f64 / 1e3)
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
        let Some(address) = cell.from else { continue };
        let node = nodes.entry(address).or_insert_with(|| Node {
            address,
            flows: Vec::new(),
            rtt_us: Vec::new(),
        });
        node.flows.push(finder.config.trace.flow + flow);
        node.rtt_us.extend(rtt_us(finder, cell));
    }
    Level { ttl, nodes: nodes.into_values().collect(), unanswered }
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
    for pair in levels.windows(2) {
        for flow in flows_at(finder, pair[1].ttl) {
            // Only if the far end answered: a guess at both ends would make a link that no packet
            // has passed.
            let cell = finder.cells.get(&(pair[1].ttl, flow));
            let is_known = cell.is_some_and(|cell| cell.from.is_some());
            let ends = (seen(finder, &pair[0], flow), seen(finder, &pair[1], flow));
            if let (true, (Some(from), Some(to))) = (is_known, ends) {
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
        let hops: Vec<Option<IpAddr>> = on_path().map(|level| seen(finder, level, flow)).collect();
        // A flow that was not sent to a TTL with several routers could be on any path.
        let is_sent = |ttl| finder.cells.contains_key(&(ttl, flow));
        let is_known = on_path().zip(&hops).all(|(level, hop)| hop.is_some() || is_sent(level.ttl));
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
            rtts.extend(cell.and_then(|cell| rtt_us(finder, cell)));
        }
    }
    let mut paths: Vec<RoutedPath> = paths.into_values().collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.flows.len()));
    paths
}
