//! Projects the effect of a change from the model.

use super::fit::{CostModel, EndModel, interval};
use super::observation::EndWork;
use super::state::{Designed, PerTerm, ProjectionState, Term};
use super::what_if::{Change, WhatIf, what_ifs_of};
use super::{Basis, NotProjected, ProjectedEnd, Projection, Unprojected};
use crate::ceilings::{Cause, Ceiling};
use crate::profile::{EndLayers, Layer, ProfileDocument};
use crate::units::Dice;

/// Projects each what-if of the model's transport; also returns those that cannot be projected.
pub fn project_all(
    model: &CostModel,
    designed: &Designed,
    known: &Known,
) -> (Vec<Projection>, Vec<Unprojected>) {
    let (mut projections, mut others) = (Vec::new(), Vec::new());
    for what_if in what_ifs_of(model.protocol) {
        match project(model, designed, what_if, known) {
            Ok(projection) => projections.push(projection),
            Err(error) => others.push(Unprojected::new(what_if, &error.to_string())),
        }
    }
    (projections, others)
}

/// Projects the effect of a change.
///
/// CPU time at each end changes as the model's does; all else stays as measured. Where the
/// CPUs held the transfer back (the busier end's bound was reached to `REACHED` or more) throughput
/// follows the bound of the busier end, to the same part of it; else what held it back still does.
/// Another ceiling that is not a CPU's caps it.
///
/// # Errors
/// The design has no run of the point that it starts from or is like, or there is nothing that it
/// would change.
pub fn project(
    model: &CostModel,
    designed: &Designed,
    what_if: &WhatIf,
    known: &Known,
) -> Result<Projection, NotProjected> {
    let start = what_if.start(designed.path_mtu_bytes);
    let now = ProjectionState::at(designed, start.name)?;
    let then = now.changed(what_if, designed)?;
    let path =
        Path { model, what_if, known, now_sides: now.sides(), then_sides: then.sides(), now, then };
    if path.now_sides.len() != model.ends.len() {
        let why = "the ends were not the same through the design";
        return Err(NotProjected::new(why));
    }
    let best = Draw {
        costs: model.ends.iter().map(|end| end.costs).collect(),
        misses: vec![1.0; model.ends.len()],
    };
    let outcome = path.outcome(&best);
    let spread: Vec<ProjectedCost> = path.draws().iter().map(|draw| path.outcome(draw)).collect();
    Ok(Projection {
        what_if: what_if.name.to_owned(),
        says: what_if.says.to_owned(),
        from: start.name.to_owned(),
        basis: path.basis(),
        throughput_now_bps: now.throughput_bps,
        throughput_bps: outcome.throughput_bps,
        throughput_interval_bps: interval(spread.iter().map(|one| one.throughput_bps).collect()),
        ends: path.ends(&outcome, &spread),
        ceiling: outcome.ceiling,
        doubts: path.doubts(),
        not_proved: None,
        proof: None,
    })
}

/// The path before and with a change.
struct Path<'a> {
    model: &'a CostModel,
    what_if: &'a WhatIf,
    known: &'a Known,
    now: ProjectionState,
    then: ProjectionState,
    now_sides: Vec<EndWork>,
    then_sides: Vec<EndWork>,
}

/// Work by the byte, whether it is taken away at the sender and at the receiver, and the share of
/// its layer.
type TakenAway = (Term, [bool; 2], fn(&LayerShares) -> f64);

/// One resampled set of costs of the ends, and of factors that the model misses.
struct Draw {
    costs: Vec<PerTerm>,
    misses: Vec<f64>,
}

#[derive(Debug, Clone)]
struct ProjectedCost {
    /// CPU time of each end per byte sent.
    cpu_ns: Vec<f64>,
    throughput_bps: f64,
    ceiling: Cause,
}

impl Path<'_> {
    fn draws(&self) -> Vec<Draw> {
        let mut dice = Dice::new(self.known.seed, 0);
        let ends = &self.model.ends;
        let count = ends.iter().map(|end| end.draws.len()).min().unwrap_or(0);
        let mut miss = |end: &EndModel| 1.0 + end.residuals[dice.below(end.residuals.len())];
        (0..count)
            .map(|number| Draw {
                costs: ends.iter().map(|end| end.draws[number]).collect(),
                misses: ends.iter().map(&mut miss).collect(),
            })
            .collect()
    }

    /// CPU time of the ends for each KiB that arrives.
    fn ends(&self, outcome: &ProjectedCost, spread: &[ProjectedCost]) -> Vec<ProjectedEnd> {
        let per_kib = 1.024 / self.now.arrived;
        let end = |(place, (model, side)): (usize, (&EndModel, &EndWork))| ProjectedEnd {
            end: model.end,
            now_us_per_kib: side.cpu_ns * per_kib,
            then_us_per_kib: outcome.cpu_ns[place] * per_kib,
            interval_us_per_kib: interval(spread.iter().map(|one| one.cpu_ns[place]).collect())
                .map(|ns| ns * per_kib),
        };
        let ends = self.model.ends.iter().zip(&self.now_sides);
        ends.enumerate().map(end).collect()
    }

    fn outcome(&self, draw: &Draw) -> ProjectedCost {
        let ends = 0..self.now_sides.len();
        let cpu_ns: Vec<f64> = ends.map(|end| self.cpu_then(end, draw)).collect();
        let (throughput_bps, ceiling) = self.capped(self.held(&cpu_ns));
        ProjectedCost { cpu_ns, throughput_bps, ceiling }
    }

    /// Payload bits per second that each end's CPUs could carry, if a byte sent took so long of
    /// them, ns.
    fn bounds(&self, cpu_ns: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let sides = self.now_sides.iter().zip(cpu_ns);
        sides.map(|(side, ns)| 8e9 * side.cores * side.granted * self.now.arrived / ns).collect()
    }

    /// Throughput and its limit, from the present limit and the CPUs.
    fn held(&self, cpu_ns: &[f64]) -> (f64, Cause) {
        let measured = least(&self.bounds(self.now_sides.iter().map(|side| side.cpu_ns)));
        let bounds = self.bounds(cpu_ns.iter().copied());
        let (bound, busier) = (least(&bounds), self.busier(&bounds));
        let reached = self.now.throughput_bps / measured;
        if reached >= self.enough() {
            return (reached * bound, busier);
        }
        let times = match self.what_if.change {
            Change::Link(times) => times,
            _ => 1.0,
        };
        match self.now.throughput_bps * times {
            held if held <= bound => (held, self.known.cause.unwrap_or(Cause::Unexplained)),
            _ => (bound, busier),
        }
    }

    /// The end whose CPUs would limit it first.
    fn busier(&self, bounds: &[f64]) -> Cause {
        match bounds {
            [sender, receiver] if receiver < sender => Cause::CpuReceive,
            [_] if self.now.receiver.cpu_ns > self.now.sender.cpu_ns => Cause::CpuReceive,
            _ => Cause::CpuSend,
        }
    }

    /// The lowest of the other ceilings above the current rate.
    fn capped(&self, (mut throughput_bps, mut ceiling): (f64, Cause)) -> (f64, Cause) {
        for other in self.known.ceilings.iter().filter(|other| other.independent) {
            let limit = self.limit_then(other);
            let of_cpus = [Cause::CpuSend, Cause::CpuReceive, Cause::SegmentSize];
            let is_cpu = of_cpus.contains(&other.cause);
            if !is_cpu && limit >= self.now.throughput_bps && limit < throughput_bps {
                (throughput_bps, ceiling) = (limit, other.cause);
            }
        }
        (throughput_bps, ceiling)
    }

    /// Share of the bound from which on the CPUs are what holds. Of two threads on one kernel one
    /// alone may do all the work.
    fn enough(&self) -> f64 {
        if self.now.shared_kernel { REACHED / 2.0 } else { REACHED }
    }

    /// CPU time of an end for each byte sent, ns.
    fn cpu_then(&self, end: usize, draw: &Draw) -> f64 {
        let (now, then) = (&self.now_sides[end], &self.then_sides[end]);
        if let Change::Cpu(times) = self.what_if.change {
            return now.cpu_ns / times;
        }
        if now.counts == then.counts {
            return now.cpu_ns;
        }
        if let Some(saved_ns) = self.saved_by_layers(end) {
            return now.cpu_ns - saved_ns;
        }
        let costs = &draw.costs[end];
        let modelled = now.counts.dot(costs);
        if modelled <= 0.0 {
            return now.cpu_ns;
        }
        now.cpu_ns * then.counts.dot(costs) / modelled * draw.misses[end]
    }

    /// CPU time for each byte sent of a layer that a change takes away, by the profile's shares,
    /// where the design has nothing to tell it from.
    fn saved_by_layers(&self, end: usize) -> Option<f64> {
        let layers = self.known.layers?;
        let (term, asked, share) = self.taken_away()?;
        if self.tells(end, term) {
            return None;
        }
        let sides = [&self.now.sender, &self.now.receiver];
        let here = (0..2).filter(|at| asked[*at] && (self.now.shared_kernel || *at == end));
        Some(here.map(|at| sides[at].cpu_ns * share(&layers[at])).sum())
    }

    /// The work by the byte that a change takes away, at the sender and at the receiver, and its
    /// layer's share.
    fn taken_away(&self) -> Option<TakenAway> {
        match self.what_if.change {
            Change::WithoutCopy { sender, receiver } => {
                Some((Term::CopiedByte, [sender, receiver], |layers| layers.copy))
            }
            Change::ChecksumsByDevice => {
                Some((Term::ChecksummedByte, [true, true], |layers| layers.checksum))
            }
            _ => None,
        }
    }

    /// Whether a term varied between runs of the design.
    fn tells(&self, end: usize, term: Term) -> bool {
        let model = &self.model.ends[end];
        let costs = model.terms.iter().any(|cost| cost.term == term);
        let mut mixed = model.not_told_apart.iter().flatten();
        costs && !mixed.any(|other| *other == term)
    }

    /// Whether the design tells the work that a change takes away, at all ends where it does.
    fn tells_what_is_taken_away(&self) -> bool {
        let Some((term, asked, _)) = self.taken_away() else {
            return true;
        };
        let is_there = |end: &usize| self.now.shared_kernel || asked[*end];
        let mut ends = (0..self.model.ends.len()).filter(is_there);
        ends.all(|end| self.tells(end, term))
    }

    fn limit_then(&self, other: &Ceiling) -> f64 {
        let share = |state: &ProjectionState| {
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
            Change::To(_)
            | Change::Checksums
            | Change::AcknowledgeAs(_)
            | Change::InterruptsAs(_) => Basis::Design,
            Change::WithoutCopy { .. } | Change::ChecksumsByDevice => {
                match (self.tells_what_is_taken_away(), self.known.layers) {
                    (false, Some(_)) => Basis::Layers,
                    _ => Basis::Design,
                }
            }
            Change::Mtu(_) | Change::Unfragmented | Change::Times(..) => Basis::Model,
        }
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let sides = self.now_sides.iter().zip(&self.then_sides);
        for (model, (now, then)) in self.model.ends.iter().zip(sides) {
            let moved = |term: &Term| {
                let (a, b) = (now.counts.at(*term), then.counts.at(*term));
                (a - b).abs() > 1e-9 * a.abs().max(b.abs())
            };
            for group in &model.not_told_apart {
                let parts: Vec<&str> = group.iter().map(|term| term.per()).collect();
                let some = group.iter().filter(|term| moved(term)).count();
                if some > 0 && some < group.len() {
                    doubts.push(format!(
                        "the design does not tell apart what these cost ({}): {}",
                        model.end.name(),
                        parts.join(", ")
                    ));
                }
            }
        }
        if !self.tells_what_is_taken_away() && self.known.layers.is_none() {
            doubts.push(
                "what it costs now is not known: no run of the design went without, and there is \
                 no profile"
                    .to_owned(),
            );
        }
        if self.is_copy_free() {
            doubts.push(
                "the runs without a copy took no less CPU time than those with one: what is done \
                 in its place costs as much here, and may cost more"
                    .to_owned(),
            );
        }
        doubts
    }

    /// Whether a copy is to be taken away that costs nothing, as far as the design tells.
    fn is_copy_free(&self) -> bool {
        let is_free = |(place, end): (usize, &EndModel)| {
            let mut terms = end.terms.iter();
            let is_moved = self.now_sides[place].counts != self.then_sides[place].counts;
            is_moved && terms.any(|cost| cost.term == Term::CopiedByte && cost.ns <= 0.0)
        };
        matches!(self.what_if.change, Change::WithoutCopy { .. })
            && self.tells_what_is_taken_away()
            && self.model.ends.iter().enumerate().any(is_free)
    }
}

fn least(bounds: &[f64]) -> f64 {
    bounds.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Share of the busier end's bound from which on the CPUs are what holds a transfer back; both ends
/// are never busy all the time, as they wait for each other.
const REACHED: f64 = 0.7;
/// Ethernet's header and check sequence, preamble and gap, bytes.
const FRAMING: f64 = 38.0;

/// Parts of an end's CPU time by layer, as a profile tells them: shares, 0–1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LayerShares {
    /// Bytes moved between the application and the kernel.
    pub copy: f64,
    /// Checksums that the CPU computed.
    pub checksum: f64,
}

/// Facts about the test beside the model.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Layers of the sender and of the receiver, under the test as it is.
    pub layers: Option<[LayerShares; 2]>,
    /// Ceilings of the test as it is.
    pub ceilings: Vec<Ceiling>,
    /// The present limit.
    pub cause: Option<Cause>,
    /// Seed of the intervals.
    pub seed: u64,
}

impl Known {
    /// The facts of a test that was profiled.
    pub fn new(document: &ProfileDocument) -> Self {
        let record = &document.record;
        let ends = (document.sender.as_ref(), document.receiver.as_ref());
        Self {
            layers: match ends {
                (Some(sender), Some(receiver)) => Some([sender, receiver].map(LayerShares::new)),
                _ => None,
            },
            ceilings: record.leg().map_or_else(Vec::new, |leg| leg.ceilings.clone()),
            cause: record.verdict().map(|verdict| verdict.cause),
            seed: record.seed,
        }
    }

    /// The facts where no profile was taken.
    pub fn nothing(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }
}

impl LayerShares {
    /// The layers that a design may not tell from others.
    fn new(end: &EndLayers) -> Self {
        let share = |layer: Layer| {
            let costs = end.layers.iter().filter(|cost| cost.layer == layer);
            costs.map(|cost| cost.share_percent).sum::<f64>() / 100.0
        };
        Self { copy: share(Layer::Copy), checksum: share(Layer::Checksum) }
    }
}
