//! What came of a search for all paths.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cell, CellState, PathFinder};
use linerate_units::Nanos;

/// The routers at each TTL, how they are joined, and the paths that flows take.
#[derive(Debug, Clone, PartialEq)]
pub struct MultipathOutcome {
    /// Each TTL up to the last that answered.
    pub levels: Vec<Level>,
    /// Which router leads to which, as flows were seen at both.
    pub links: Vec<PathLink>,
    /// The distinct paths of those flows that are known from end to end, the most frequent first.
    pub paths: Vec<RoutedPath>,
    /// Whether the target answered.
    pub is_reached: bool,
    /// Whether the stopping rule was met at each router. Otherwise flows or time ran out, or
    /// answers stayed out.
    pub is_complete: bool,
    /// The confidence at each router, 0 to 1.
    pub confidence: f64,
    /// Probes sent.
    pub sent: u32,
    /// Further answers to probes that had been answered.
    pub duplicates: u32,
    /// Answers that quoted none of our probes.
    pub foreign: u32,
    /// From the start to the last thing that happened.
    pub elapsed: Nanos,
}

/// One TTL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// The TTL.
    pub ttl: u8,
    /// Who answered there, by address; nobody at a silent one.
    pub nodes: Vec<Node>,
    /// Flows that stayed without an answer there.
    pub unanswered: u32,
}

/// A router, or the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its address.
    pub address: IpAddr,
    /// The flows that were seen there.
    pub flows: Vec<u16>,
    /// RTT of each of them, microseconds.
    pub rtt_us: Vec<f64>,
}

/// A link between two routers at neighbouring TTLs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathLink {
    /// TTL of the nearer one.
    pub ttl: u8,
    /// The nearer one.
    pub from: IpAddr,
    /// The farther one.
    pub to: IpAddr,
    /// Flows seen at both.
    pub flows: u32,
}

/// A path that flows take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoutedPath {
    /// The flows that take it.
    pub flows: Vec<u16>,
    /// The router at each TTL, from the lowest on; `null` where none answered.
    pub hops: Vec<Option<IpAddr>>,
    /// RTTs of these flows at each of them, microseconds.
    pub rtt_us: Vec<Vec<f64>>,
    /// Whether it ends at the target.
    pub is_whole: bool,
}

pub(super) fn assemble(finder: &PathFinder) -> MultipathOutcome {
    let levels = levels(finder);
    let unanswered = |level: &Level| level.unanswered > 0 && !level.nodes.is_empty();
    MultipathOutcome {
        links: links(finder, &levels),
        paths: paths(finder, &levels),
        is_reached: finder.reached.is_some(),
        is_complete: !finder.is_bounded && !levels.iter().any(unanswered),
        confidence: finder.config.confidence,
        sent: u32::try_from(finder.ledger.len()).unwrap_or(u32::MAX),
        duplicates: finder.ledger.counts().duplicates,
        foreign: finder.ledger.counts().foreign,
        elapsed: finder.now - finder.started,
        levels,
    }
}

/// The cells of a TTL that lie on their flow's path: not those past its end.
fn cells(finder: &PathFinder, ttl: u8) -> impl Iterator<Item = (u16, &Cell)> {
    finder
        .cells
        .range((ttl, 0)..=(ttl, u16::MAX))
        .map(|((_, flow), cell)| (*flow, cell))
        .filter(move |(flow, _)| finder.end_of(*flow).is_none_or(|end| ttl <= end))
}

fn rtt_us(finder: &PathFinder, cell: &Cell) -> Option<f64> {
    let replies = |id| finder.ledger.get(id).reply.as_ref();
    let reply = cell.probes.iter().find_map(|id| replies(*id))?;
    Some(reply.rtt.0 as f64 / 1e3)
}

fn levels(finder: &PathFinder) -> Vec<Level> {
    let trace = &finder.config.trace;
    let mut levels: Vec<Level> = (trace.first..=trace.hops)
        .map(|ttl| level(finder, ttl))
        .collect();
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
    Level {
        ttl,
        nodes: nodes.into_values().collect(),
        unanswered,
    }
}

/// Who is at a TTL for a flow: who answered it, or the only one there is.
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
            // Only where it answered: a guess at both ends would join what no packet was seen to
            // pass.
            let is_known = finder
                .cells
                .get(&(pair[1].ttl, flow))
                .is_some_and(|cell| cell.from.is_some());
            let ends = (seen(finder, &pair[0], flow), seen(finder, &pair[1], flow));
            if let (true, (Some(from), Some(to))) = (is_known, ends) {
                *counts.entry((pair[0].ttl, from, to)).or_default() += 1;
            }
        }
    }
    let link = |((ttl, from, to), flows)| PathLink {
        ttl,
        from,
        to,
        flows,
    };
    counts.into_iter().map(link).collect()
}

fn paths(finder: &PathFinder, levels: &[Level]) -> Vec<RoutedPath> {
    let mut paths: BTreeMap<Vec<Option<IpAddr>>, RoutedPath> = BTreeMap::new();
    for flow in 0..finder.flows {
        let end = finder.end_of(flow);
        let on_path = || {
            levels
                .iter()
                .take_while(|level| end.is_none_or(|end| level.ttl <= end))
        };
        let hops: Vec<Option<IpAddr>> = on_path().map(|level| seen(finder, level, flow)).collect();
        // A flow of which a TTL with several routers was not asked could be on any path.
        let is_known = on_path()
            .zip(&hops)
            .all(|(level, hop)| hop.is_some() || finder.cells.contains_key(&(level.ttl, flow)));
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
