//! Which routers the answers show at each TTL, and which flows to send next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{CellState, PathFinder, stopping_point};

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
}
