//! From the model to what a change would bring.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::document::{Basis, ProjectedEnd, Projection};
use super::fit::{CostModel, EndModel, below, interval};
use super::observation::Observation;
use super::state::{Side, State};
use super::term::{PerTerm, Term};
use super::what_if::{Change, WHAT_IFS, WhatIf};
use crate::ceilings::{Cause, Ceiling};

/// Parts of an end's CPU time by layer, as a profile tells them: shares, 0–1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LayerShares {
    /// Bytes moved between the application and the kernel.
    pub copy: f64,
    /// Checksums that the CPU computed.
    pub checksum: f64,
}

/// What is known besides the model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// Layers of the sender and of the receiver, under the test as it is.
    pub layers: Option<[LayerShares; 2]>,
    /// Ceilings of the test as it is.
    pub ceilings: &'a [Ceiling],
    /// What holds it back.
    pub cause: Option<Cause>,
    /// Seed of the intervals.
    pub seed: u64,
}

/// What each what-if of the table would bring that is of the model's transport and whose points the runs have.
pub fn project_all(model: &CostModel, runs: &[Observation], known: &Known<'_>) -> Vec<Projection> {
    let table = WHAT_IFS
        .iter()
        .filter(|what_if| what_if.protocol == model.protocol);
    table
        .filter_map(|what_if| project(model, runs, what_if, known))
        .collect()
}

/// What a change would bring; `None` where the design has not the points that it starts from or is like.
///
/// CPU time at each end changes as the model's does; the rest of what was measured stays. Where the CPUs held the transfer
/// back (the busier end's bound was reached to `REACHED` or more) throughput follows the bound of the busier end, to the
/// same part of it; else what held it back still does. Another ceiling that is not a CPU's caps it.
pub fn project(
    model: &CostModel,
    runs: &[Observation],
    what_if: &WhatIf,
    known: &Known<'_>,
) -> Option<Projection> {
    let now = State::at(runs, what_if.from)?;
    let then = now.changed(what_if, runs)?;
    let path = Path {
        model,
        what_if,
        known,
        now,
        then,
    };
    let best = Draw {
        costs: [model.sender.costs, model.receiver.costs],
        misses: [1.0; 2],
    };
    let outcome = path.outcome(&best);
    let spread: Vec<Outcome> = path.draws().iter().map(|draw| path.outcome(draw)).collect();
    let of = |pick: fn(&Outcome) -> f64| interval(spread.iter().map(pick).collect());
    let per_kib = 1.024 / now.arrived;
    let end = |side: &Side, then: f64, spread: [f64; 2]| ProjectedEnd {
        now_us_per_kib: side.cpu_ns * per_kib,
        then_us_per_kib: then * per_kib,
        interval_us_per_kib: spread.map(|ns| ns * per_kib),
    };
    Some(Projection {
        what_if: what_if.name.to_owned(),
        says: what_if.says.to_owned(),
        from: what_if.from.to_owned(),
        basis: path.basis(),
        throughput_now_bps: now.throughput_bps,
        throughput_bps: outcome.throughput_bps,
        throughput_interval_bps: of(|outcome| outcome.throughput_bps),
        sender: end(
            &now.sender,
            outcome.cpu_ns[0],
            of(|outcome| outcome.cpu_ns[0]),
        ),
        receiver: end(
            &now.receiver,
            outcome.cpu_ns[1],
            of(|outcome| outcome.cpu_ns[1]),
        ),
        ceiling: outcome.ceiling,
        doubts: path.doubts(),
        not_proved: None,
        proof: None,
    })
}

/// A change on a path.
struct Path<'a> {
    model: &'a CostModel,
    what_if: &'a WhatIf,
    known: &'a Known<'a>,
    now: State,
    then: State,
}

/// Costs at both ends as they might be, and what the model misses besides, as factors.
struct Draw {
    costs: [PerTerm; 2],
    misses: [f64; 2],
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// For each byte sent, at the sender and the receiver.
    cpu_ns: [f64; 2],
    throughput_bps: f64,
    ceiling: Cause,
}

impl Path<'_> {
    fn ends(&self) -> [(&EndModel, &Side, &Side); 2] {
        [
            (&self.model.sender, &self.now.sender, &self.then.sender),
            (
                &self.model.receiver,
                &self.now.receiver,
                &self.then.receiver,
            ),
        ]
    }

    fn draws(&self) -> Vec<Draw> {
        let mut dice = ChaCha8Rng::seed_from_u64(self.known.seed);
        let (sender, receiver) = (&self.model.sender, &self.model.receiver);
        let mut miss = |end: &EndModel| 1.0 + end.residuals[below(&mut dice, end.residuals.len())];
        let pairs = sender.draws.iter().zip(&receiver.draws);
        pairs
            .map(|(s, r)| Draw {
                costs: [*s, *r],
                misses: [miss(sender), miss(receiver)],
            })
            .collect()
    }

    fn outcome(&self, draw: &Draw) -> Outcome {
        let mut cpu_ns = [0.0; 2];
        for (end, (_, now, then)) in self.ends().into_iter().enumerate() {
            cpu_ns[end] = self.cpu_then(end, now, then, draw);
        }
        let bound = |side: &Side, ns: f64| 8e9 * side.cores * side.granted * self.now.arrived / ns;
        let ends = [&self.now.sender, &self.now.receiver];
        let measured = ends
            .map(|side| bound(side, side.cpu_ns))
            .into_iter()
            .fold(f64::INFINITY, f64::min);
        let bounds = [bound(ends[0], cpu_ns[0]), bound(ends[1], cpu_ns[1])];
        let busier = if bounds[0] <= bounds[1] {
            Cause::CpuSend
        } else {
            Cause::CpuReceive
        };
        let reached = self.now.throughput_bps / measured;
        let least = bounds[0].min(bounds[1]);
        let (mut throughput_bps, mut ceiling) = match reached >= REACHED {
            true => (reached * least, busier),
            false => {
                let link = if let Change::Link(times) = self.what_if.change {
                    times
                } else {
                    1.0
                };
                let held = self.now.throughput_bps * link;
                match held <= least {
                    true => (held, self.known.cause.unwrap_or(Cause::Unexplained)),
                    false => (least, busier),
                }
            }
        };
        for other in self.known.ceilings.iter().filter(|other| other.independent) {
            let limit = self.limit_then(other);
            let is_cpu = matches!(
                other.cause,
                Cause::CpuSend | Cause::CpuReceive | Cause::SegmentSize
            );
            if !is_cpu && limit >= self.now.throughput_bps && limit < throughput_bps {
                (throughput_bps, ceiling) = (limit, other.cause);
            }
        }
        Outcome {
            cpu_ns,
            throughput_bps,
            ceiling,
        }
    }

    /// CPU time of an end for each byte sent, ns.
    fn cpu_then(&self, end: usize, now: &Side, then: &Side, draw: &Draw) -> f64 {
        if let Change::Cpu(times) = self.what_if.change {
            return now.cpu_ns / times;
        }
        if now.counts == then.counts {
            return now.cpu_ns;
        }
        if let Some(share) = self.share_of_layer(end) {
            return now.cpu_ns * (1.0 - share);
        }
        let costs = &draw.costs[end];
        let modelled = now.counts.dot(costs);
        if modelled <= 0.0 {
            return now.cpu_ns;
        }
        now.cpu_ns * then.counts.dot(costs) / modelled * draw.misses[end]
    }

    /// The share of the layer that a change takes away, where the design has nothing to tell it from.
    fn share_of_layer(&self, end: usize) -> Option<f64> {
        let is_changed = match self.what_if.change {
            Change::WithoutCopy { sender, receiver } => [sender, receiver][end],
            _ => false,
        };
        let layers = self.known.layers?[end];
        (is_changed && !self.tells_copies(end)).then_some(layers.copy)
    }

    /// Whether some runs of the design copied and others did not.
    fn tells_copies(&self, end: usize) -> bool {
        let model = self.ends()[end].0;
        let costs = model.terms.iter().any(|cost| cost.term == Term::CopiedByte);
        let mixed = model
            .not_told_apart
            .iter()
            .flatten()
            .any(|term| *term == Term::CopiedByte);
        costs && !mixed
    }

    fn limit_then(&self, other: &Ceiling) -> f64 {
        let share = |state: &State| {
            state.segment_bytes / (state.segment_bytes + state.header_bytes + FRAMING)
        };
        match (other.cause, self.what_if.change) {
            (Cause::PathRate, Change::Link(times)) => other.limit_bps * times,
            (Cause::PathRate, _) => other.limit_bps * share(&self.then) / share(&self.now),
            _ => other.limit_bps,
        }
    }

    fn basis(&self) -> Basis {
        match self.what_if.change {
            Change::Cpu(_) | Change::Link(_) => Basis::Assumed,
            Change::To(_) | Change::Checksums | Change::AcknowledgeEach => Basis::Design,
            Change::WithoutCopy { sender, receiver } => {
                let asked = [sender, receiver];
                let told = (0..2)
                    .filter(|end| asked[*end])
                    .all(|end| self.tells_copies(end));
                match (told, self.known.layers) {
                    (false, Some(_)) => Basis::Layers,
                    _ => Basis::Design,
                }
            }
            Change::Mtu(_) | Change::Unfragmented | Change::Times(..) => Basis::Model,
        }
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for ((model, now, then), name) in self.ends().into_iter().zip(["sender", "receiver"]) {
            let moved = |term: &Term| {
                let (a, b) = (now.counts.at(*term), then.counts.at(*term));
                (a - b).abs() > 1e-9 * a.abs().max(b.abs())
            };
            for group in &model.not_told_apart {
                let parts: Vec<&str> = group.iter().map(|term| term.per()).collect();
                let some = group.iter().filter(|term| moved(term)).count();
                if some > 0 && some < group.len() {
                    doubts.push(format!(
                        "the {name}'s runs do not tell apart the costs of a {}",
                        parts.join(", a ")
                    ));
                }
            }
        }
        let copies = |end| matches!(self.what_if.change, Change::WithoutCopy { sender, receiver } if [sender, receiver][end]);
        if (0..2).any(|end| copies(end) && !self.tells_copies(end)) && self.known.layers.is_none() {
            doubts.push("what a copy costs is not known: no run of the design went without, and there is no profile".to_owned());
        }
        doubts
    }
}

/// Share of the busier end's bound from which on the CPUs are what holds a transfer back; both ends are never busy all the
/// time, as they wait for each other.
const REACHED: f64 = 0.7;
/// Ethernet's header and check sequence, preamble and gap, bytes.
const FRAMING: f64 = 38.0;
