//! The terms of the model, and the state of the path under given settings, per byte sent, which a
//! change alters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NotProjected;
use super::design::Point;
use super::observation::{EndWork, Observation};
use super::what_if::{Change, WhatIf};
use crate::record::{Caveat, CaveatKind, Record};
use crate::units::words;

/// Both ends at one point of the design.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProjectionState {
    /// The sender's work per byte.
    pub(super) sender: EndWork,
    pub(super) receiver: EndWork,
    pub(super) throughput_bps: f64,
    /// Share of the bytes sent that arrives.
    pub(super) arrived: f64,
    pub(super) segment_bytes: f64,
    pub(super) header_bytes: f64,
    pub(super) shared_kernel: bool,
}

impl ProjectionState {
    /// That of a point, the mean over its runs by bytes.
    ///
    /// # Errors
    /// There are none.
    pub(super) fn at(designed: &Designed, point: &str) -> Result<Self, NotProjected> {
        let of_point = designed.runs.iter().filter(|run| run.point == point);
        let runs: Vec<&Observation> = of_point.collect();
        let Some(first) = runs.first() else {
            let why = designed.why_none_of(point);
            return Err(NotProjected::new(format!(
                "there is no run of the design's `{point}`: {why}"
            )));
        };
        let sum = |pick: fn(&Observation) -> f64| runs.iter().map(|run| pick(run)).sum::<f64>();
        let (sent, arrived) = (sum(|run| run.sent_bytes), sum(|run| run.bytes));
        let bps = sum(|run| run.throughput_bps) / runs.len() as f64;
        Ok(Self {
            sender: side(&runs, |run| &run.sender, sent),
            receiver: side(&runs, |run| &run.receiver, sent),
            throughput_bps: bps,
            arrived: arrived / sent,
            segment_bytes: first.segment_bytes,
            header_bytes: first.header_bytes,
            shared_kernel: first.shared_kernel,
        })
    }

    /// The ends; of two on one kernel, both together.
    pub(super) fn sides(&self) -> Vec<EndWork> {
        if !self.shared_kernel {
            return vec![self.sender, self.receiver];
        }
        vec![self.sender.with(&self.receiver)]
    }

    /// The counts under the change. What it does to costs, and not to counts, leaves them as they
    /// are.
    ///
    /// # Errors
    /// The design has no run of the point that it is like; there is nothing that it would change.
    pub(super) fn changed(
        &self,
        what_if: &WhatIf,
        designed: &Designed,
    ) -> Result<Self, NotProjected> {
        let mut then = *self;
        match what_if.change {
            Change::To(point) => {
                let other = Self::at(designed, point)?;
                then.sender.counts = other.sender.counts;
                then.receiver.counts = other.receiver.counts;
            }
            Change::Mtu(mtu) => then.fill_packets(f64::from(mtu) - self.header_bytes),
            Change::Unfragmented if self.sender.counts.at(Term::Fragment) <= 0.0 => {
                let why = "the datagrams were not fragmented as it is";
                return Err(NotProjected::new(why));
            }
            Change::Unfragmented => then.unfragment(),
            Change::WithoutCopy { sender, receiver } => {
                let ends = [(sender, &mut then.sender), (receiver, &mut then.receiver)];
                for (_, side) in ends.into_iter().filter(|(is_changed, _)| *is_changed) {
                    side.counts.set(Term::CopiedByte, 0.0);
                }
            }
            Change::Checksums => {
                then.sender.counts.set(Term::ChecksummedByte, 1.0);
                // Where there is no wire, the receiver takes the sender's word unless the sender
                // computed one.
                if self.shared_kernel {
                    let counts = &mut then.receiver.counts;
                    counts.set(Term::ChecksummedByte, self.arrived);
                }
            }
            Change::ChecksumsByDevice => {
                then.both(|counts| counts.set(Term::ChecksummedByte, 0.0));
            }
            Change::AcknowledgeAs(point) => {
                let other = Self::at(designed, point)?.receiver.counts;
                let each = other.at(Term::Acknowledgement) / other.at(Term::Delivery);
                let all = each * self.receiver.counts.at(Term::Delivery);
                then.both(|counts| counts.set(Term::Acknowledgement, all));
            }
            Change::InterruptsAs(point) => {
                let other = Self::at(designed, point)?;
                let ends = [(&mut then.sender, other.sender), (&mut then.receiver, other.receiver)];
                for (side, other) in ends {
                    let interrupts = other.counts.at(Term::Interrupt);
                    side.counts.set(Term::Interrupt, interrupts);
                }
            }
            Change::Times(term, factor) => then.both(|counts| counts.scale(term, factor)),
            Change::Cpu(_) | Change::Link(_) => {}
        }
        Ok(then)
    }

    fn both(&mut self, mut change: impl FnMut(&mut PerTerm)) {
        change(&mut self.sender.counts);
        change(&mut self.receiver.counts);
    }

    /// Segments of another size. Large packets stay as large as they are: TCP fills 64 KiB of
    /// whatever segments, and so does GRO. A receiver acknowledges by what is delivered to TCP
    /// (net/ipv4/tcp_input.c, `__tcp_ack_snd_check`).
    fn fill_packets(&mut self, segment_bytes: f64) {
        let larger = segment_bytes / self.segment_bytes;
        let (sent, received) = (self.sender.counts, self.receiver.counts);
        let is_cut = many(sent.at(Term::Packet), sent.at(Term::Aggregate));
        let is_joined = many(received.at(Term::Packet), received.at(Term::Delivery));
        let arrive_alone = is_cut || !self.shared_kernel;
        self.segment_bytes = segment_bytes;
        if is_cut {
            self.sender.counts.scale(Term::Packet, 1.0 / larger);
        }
        if arrive_alone {
            self.receiver.counts.scale(Term::Packet, 1.0 / larger);
        }
        if arrive_alone && !is_joined {
            self.both(|counts| {
                counts.scale(Term::Delivery, 1.0 / larger);
                counts.scale(Term::Acknowledgement, 1.0 / larger);
            });
        }
        if arrive_alone && !self.shared_kernel {
            self.receiver.counts.scale(Term::Interrupt, 1.0 / larger);
        }
    }

    /// As many packets as datagrams. Each packet that is sent by itself is received in a soft
    /// interrupt of its own where there is no wire, and on one at a rate that goes with theirs.
    fn unfragment(&mut self) {
        let datagrams = 1.0 / self.segment_bytes;
        let fewer = datagrams / self.sender.counts.at(Term::Packet);
        if self.shared_kernel {
            self.sender.counts.scale(Term::Interrupt, fewer);
        }
        self.receiver.counts.scale(Term::Interrupt, fewer);
        self.both(|counts| counts.set(Term::Fragment, 0.0));
        self.sender.counts.set(Term::Packet, datagrams);
        self.receiver.counts.set(Term::Packet, datagrams * self.arrived);
    }
}

/// Sums over runs, for each byte sent.
fn side(runs: &[&Observation], pick: fn(&Observation) -> &EndWork, bytes: f64) -> EndWork {
    let sum =
        |figure: fn(&EndWork) -> f64| -> f64 { runs.iter().map(|run| figure(pick(run))).sum() };
    let counts = runs.iter().map(|run| pick(run).counts);
    EndWork {
        cpu_ns: sum(|end| end.cpu_ns) / bytes,
        counts: counts.fold(PerTerm::default(), |sum, counts| sum.plus(&counts)).times(1.0 / bytes),
        granted: sum(|end| end.granted) / runs.len() as f64,
        cores: sum(|end| end.cores) / runs.len() as f64,
    }
}

/// Whether there are several packets to a large one, as a rule.
fn many(packets: f64, large: f64) -> bool {
    packets > 1.5 * large
}

/// The results of a design's runs.
#[derive(Debug, Clone, Default)]
pub struct Designed {
    /// Present MTU of the path, bytes, which decides the useful points.
    pub path_mtu_bytes: Option<u32>,
    /// Every usable run.
    pub runs: Vec<Observation>,
    /// Points or runs that are not usable.
    pub left_out: Vec<LeftOut>,
}

/// A point of the design that could not be run, or a run of it that says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub point: String,
    /// Why, in words.
    pub why: String,
    /// The remedy; empty where none is known.
    pub remedy: &'static str,
}

impl Designed {
    /// Enters a run, if it fits its point and has the needed figures.
    pub fn enter(&mut self, point: &Point, record: &Record) {
        let checked = point.check(record);
        match checked.and_then(|()| Observation::new(point.name, record)) {
            Ok(run) => self.runs.push(run),
            Err(error) => self.left_out.push(LeftOut {
                point: point.name.to_owned(),
                why: error.to_string(),
                remedy: error.remedy(),
            }),
        }
    }

    /// Why there is no run of a point.
    pub(super) fn why_none_of(&self, point: &str) -> String {
        let mut left_out = self.left_out.iter();
        let found = left_out.find(|left_out| left_out.point == point);
        found.map_or_else(|| "it was not run".to_owned(), |found| found.why.clone())
    }

    /// Caveats about points that were left out, one for each reason.
    pub fn caveats(&self) -> Vec<Caveat> {
        let mut reasons: Vec<(&LeftOut, Vec<&str>)> = Vec::new();
        for one in &self.left_out {
            let same = |(other, _): &&mut (&LeftOut, Vec<&str>)| other.why == one.why;
            match reasons.iter_mut().find(same) {
                Some((_, points)) if points.contains(&one.point.as_str()) => {}
                Some((_, points)) => points.push(&one.point),
                None => reasons.push((one, vec![&one.point])),
            }
        }
        let caveat = |(one, points): (&LeftOut, Vec<&str>)| {
            let points = points.join(", ");
            Caveat::new(
                CaveatKind::Partial,
                format!("left out of the projections' design ({points}): {}", one.why),
                one.remedy,
            )
        };
        reasons.into_iter().map(caveat).collect()
    }
}

// The terms of the model: the events to which an end's CPU time is attributed.

/// What costs CPU time each time that it happens.
///
/// On one kernel for both ends (loopback, veth, a lab) soft interrupts run in whichever thread was
/// there: each end may pay for packets of either.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// A system call that hands bytes over, or takes them.
    Call,
    /// A packet that the CPU carries by itself: a segment that it cut or is to join, a fragment, a
    /// datagram. A large packet that the device cuts, or that nothing cuts, is one.
    Packet,
    /// A fragment that IP made of a datagram, or put together with others again: what that takes
    /// besides a packet's own.
    Fragment,
    /// A packet as TCP or UDP sent it: with segmentation offload up to 64 KiB.
    Aggregate,
    /// A packet as TCP or UDP received it: after segments were joined.
    Delivery,
    /// A byte of payload, whatever was done with it.
    Byte,
    /// A byte copied between the application and the kernel at this end.
    CopiedByte,
    /// A byte whose checksum the CPU computed.
    ChecksummedByte,
    /// An acknowledgement.
    Acknowledgement,
    /// A run of the receive soft interrupt, over the whole host.
    Interrupt,
}

// In the order in which they are printed; the word stands after a cost: `per call`.
words! {
    Term per {
        "call" Call,
        "packet" Packet,
        "fragment" Fragment,
        "large packet sent" Aggregate,
        "large packet received" Delivery,
        "byte" Byte,
        "byte copied" CopiedByte,
        "byte checksummed" ChecksummedByte,
        "acknowledgement" Acknowledgement,
        "soft interrupt" Interrupt,
    }
}

/// How often each of them happened, or what each costs, or any figure for each.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PerTerm([f64; Term::ALL.len()]);

impl PerTerm {
    /// Values from pairs; terms that are not named are 0.
    pub fn new(pairs: impl IntoIterator<Item = (Term, f64)>) -> Self {
        let mut all = Self::default();
        for (term, value) in pairs {
            all.set(term, value);
        }
        all
    }

    /// The value of a term.
    pub fn at(&self, term: Term) -> f64 {
        self.0[term as usize]
    }

    /// Sets the value of a term.
    pub fn set(&mut self, term: Term, value: f64) {
        self.0[term as usize] = value;
    }

    /// Multiplies the value of a term.
    pub fn scale(&mut self, term: Term, factor: f64) {
        self.0[term as usize] *= factor;
    }

    /// All values multiplied by a factor.
    pub fn times(mut self, factor: f64) -> Self {
        self.0.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// Sum over the terms of the products: counts times costs.
    pub fn dot(&self, other: &Self) -> f64 {
        self.0.iter().zip(&other.0).map(|(a, b)| a * b).sum()
    }

    /// The sum, term by term.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_term_has_the_place_that_its_order_gives_it() {
        for (place, term) in Term::ALL.iter().enumerate() {
            assert_eq!(*term as usize, place);
        }
    }
}
