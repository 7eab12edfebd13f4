//! The two meters (RFC 2697, RFC 2698) as the interpreter defines them.
//!
//! A meter's state is a lock, a time, and what each of two buckets lacks, so all zeros means full.
//! All CPUs share it. The lock is held for some tens of nanoseconds, with nothing in between that
//! could sleep or send; a packet that does not get it in [`TRIES`] attempts is green and costs
//! nothing.

use crate::policy::Meter;
use crate::rules::{Buckets, MAX_METERED_BYTES, UNITS_PER_BYTE};

use super::action::{Effect, Value};
use super::assembler::{Condition, Helper, Label, Operation, Register, Size};
use super::frame::{StackSlot, context};
use super::generator::{Generator, Layer, METERS};

use Condition::{Above, AtLeast, AtMost, Below, Equal, NotEqual};
use Operation::{Add, Mul, Or, ShiftLeft, Sub};
use Register::{R0, R1, R2, R3, R4, R5, R9};
use Size::Double;

/// The constants of a meter in the order of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Metering {
    /// Whether the policy has a meter; 0 if not.
    pub(super) has: Value,
    /// Non-zero for the meter with two rates.
    pub(super) two_rates: Value,
    pub(super) rates: [Value; 2],
    pub(super) full: [Value; 2],
    pub(super) depths: [Value; 2],
    /// The code points for yellow and red; 64 for none.
    pub(super) precolours: [Value; 2],
}

impl Metering {
    pub(super) fn new(meter: &Meter) -> Self {
        let numbers = numbers(meter).map(Value::Known);
        Self::with(numbers)
    }

    /// From its [`numbers`].
    pub(super) fn with(numbers: [Value; NUMBERS]) -> Self {
        let [has, two_rates, r0, r1, f0, f1, d0, d1, yellow, red] = numbers;
        Self {
            has,
            two_rates,
            rates: [r0, r1],
            full: [f0, f1],
            depths: [d0, d1],
            precolours: [yellow, red],
        }
    }
}

pub(super) const NUMBERS: usize = 10;

/// The numbers of a meter in a record.
pub(super) fn numbers(meter: &Meter) -> [u64; NUMBERS] {
    let [_, yellow, red] = meter.colours.map(|colour| match colour {
        Some(dscp) if meter.colour_aware => u64::from(dscp.octet() >> 2),
        _ => NO_COLOUR,
    });
    match meter.buckets() {
        Buckets::SingleRate { committed, excess_depth } => {
            let (rate, full, depth) = (committed.rate, committed.full_ns, committed.depth);
            [1, 0, rate, 0, full, 0, depth, excess_depth, yellow, red]
        }
        Buckets::TwoRate { committed, peak } => [
            1,
            1,
            committed.rate,
            peak.rate,
            committed.full_ns,
            peak.full_ns,
            committed.depth,
            peak.depth,
            yellow,
            red,
        ],
    }
}

/// Offsets in a meter's state.
const LOCK: i16 = 0;
const LAST: i16 = 8;
const LACKS: [i16; 2] = [16, 24];

const NO_COLOUR: u64 = 64;
/// Attempts to take the lock.
const TRIES: u64 = 256;
/// The colour of a packet without a meter.
const UNCOLOURED: u32 = 3;

impl Generator<'_> {
    /// Stores the packet's colour in its slot.
    pub(super) fn meter(&mut self, layer: Layer, effect: &Effect, metering: &Metering) {
        let done = self.code.label();
        if metering.has != Value::Known(1) {
            self.put_constant(StackSlot::Colour, UNCOLOURED);
            self.number(R0, metering.has);
            self.code.branch_with(Equal, R0, 0, done);
        }
        self.precolour(layer, metering);
        self.put_constant(StackSlot::Colour, 0);
        self.number(R0, effect.slot);
        self.put(StackSlot::Segments, R0);
        self.find(METERS, StackSlot::Segments.offset(), done);
        self.code.copy(R9, R0);
        self.now();
        self.lock(done);
        self.fill(metering);
        self.spend(metering);
        self.code.set(R0, 0);
        self.code.exchange32(R9, LOCK, R0);
        self.code.bind(done);
    }

    /// Finds the colour of the packet on arrival (0 green, 1 yellow, 2 red).
    fn precolour(&mut self, layer: Layer, metering: &Metering) {
        self.put_constant(StackSlot::Precolour, 0);
        let Some(family) = Self::family_of(layer) else {
            return;
        };
        if metering.precolours == [Value::Known(NO_COLOUR); 2] {
            return;
        }
        self.dscp(family);
        for (colour, code) in [(1, metering.precolours[0]), (2, metering.precolours[1])] {
            let other = self.code.label();
            self.number(R1, code);
            self.code.branch(NotEqual, R0, R1, other);
            self.put_constant(StackSlot::Precolour, colour);
            self.code.bind(other);
        }
    }

    /// Loads the time into `R5`.
    fn now(&mut self) {
        if self.observed {
            // A test sets the time.
            self.context(R5, context::CB[3]);
            self.context(R1, context::CB[4]);
            self.code.operate_with(ShiftLeft, R1, 32);
            self.code.operate(Or, R5, R1);
        } else {
            self.code.call(Helper::KtimeGetNs);
            self.code.copy(R5, R0);
        }
    }

    fn lock(&mut self, otherwise: Label) {
        let locked = self.code.label();
        self.code.set(R2, TRIES);
        let again = self.code.here();
        self.code.set(R0, 0);
        self.code.set(R1, 1);
        self.code.compare_exchange32(R9, LOCK, R1);
        self.code.branch32_with(Equal, R0, 0, locked);
        self.code.operate_with(Sub, R2, 1);
        self.code.branch_with(NotEqual, R2, 0, again);
        self.code.jump(otherwise);
        self.code.bind(locked);
    }

    /// Fills the buckets for the time since `LAST`: `R1` and `R2` become what they lack.
    fn fill(&mut self, metering: &Metering) {
        let [later, two, filled] = std::array::from_fn(|_| self.code.label());
        self.code.load(Double, R3, R9, LAST);
        self.code.copy(R4, R3);
        self.code.set(R0, 0);
        self.code.branch(AtMost, R5, R3, later);
        self.code.copy(R4, R5);
        self.code.copy(R0, R5);
        self.code.operate(Sub, R0, R3);
        self.code.bind(later);
        // R0: the time that has passed.
        self.code.store(Double, R9, LAST, R4);
        self.lacks(R1, metering, 0);
        self.lacks(R2, metering, 1);
        self.code.copy(R5, R0);
        self.added(metering, 0);
        self.less(R1, R3);
        match metering.two_rates {
            Value::Known(0) => self.less(R2, R3),
            Value::Known(_) => {
                self.added(metering, 1);
                self.less(R2, R3);
            }
            recorded => {
                self.number(R0, recorded);
                self.code.branch_with(NotEqual, R0, 0, two);
                self.less(R2, R3);
                self.code.jump(filled);
                self.code.bind(two);
                self.added(metering, 1);
                self.less(R2, R3);
                self.code.bind(filled);
            }
        }
    }

    /// Loads what a bucket lacks, at most its depth, which may have changed since.
    fn lacks(&mut self, to: Register, metering: &Metering, bucket: usize) {
        let fits = self.code.label();
        self.code.load(Double, to, R9, LACKS[bucket]);
        self.number(R3, metering.depths[bucket]);
        self.code.branch(AtMost, to, R3, fits);
        self.code.copy(to, R3);
        self.code.bind(fits);
    }

    /// Loads into `R3` what a rate adds in the time in `R5`.
    fn added(&mut self, metering: &Metering, bucket: usize) {
        let short = self.code.label();
        self.code.copy(R3, R5);
        self.number(R4, metering.full[bucket]);
        self.code.branch(AtMost, R3, R4, short);
        self.code.copy(R3, R4);
        self.code.bind(short);
        self.number(R4, metering.rates[bucket]);
        self.code.operate(Mul, R3, R4);
    }

    /// Reduces both by the smaller one.
    fn less(&mut self, lacks: Register, added: Register) {
        let [more, done] = std::array::from_fn(|_| self.code.label());
        self.code.branch(AtLeast, added, lacks, more);
        self.code.operate(Sub, lacks, added);
        self.code.set(added, 0);
        self.code.jump(done);
        self.code.bind(more);
        self.code.operate(Sub, added, lacks);
        self.code.set(lacks, 0);
        self.code.bind(done);
    }

    /// Colours the packet and takes its cost; `R1` and `R2` are what the buckets lack.
    fn spend(&mut self, metering: &Metering) {
        let [whole, two, done] = std::array::from_fn(|_| self.code.label());
        self.context(R5, context::WIRE_LENGTH);
        self.code.branch32_with(AtMost, R5, MAX_METERED_BYTES, whole);
        self.code.set(R5, MAX_METERED_BYTES.into());
        self.code.bind(whole);
        self.code.set(R3, UNITS_PER_BYTE);
        self.code.operate(Mul, R5, R3);
        match metering.two_rates {
            Value::Known(0) => self.spend_single(metering, done),
            Value::Known(_) => self.spend_two(metering, done),
            recorded => {
                self.number(R0, recorded);
                self.code.branch_with(NotEqual, R0, 0, two);
                self.spend_single(metering, done);
                self.code.bind(two);
                self.spend_two(metering, done);
            }
        }
        self.code.bind(done);
        self.code.store(Double, R9, LACKS[0], R1);
        self.code.store(Double, R9, LACKS[1], R2);
    }

    /// Jumps to `otherwise` if a bucket holds less than the packet's cost in `R5`.
    fn affords(&mut self, lacks: Register, depth: Value, otherwise: Label) {
        self.number(R3, depth);
        self.code.operate(Sub, R3, lacks);
        self.code.branch(Below, R3, R5, otherwise);
    }

    fn colour(&mut self, colour: u32, done: Label) {
        self.put_constant(StackSlot::Colour, colour);
        self.code.jump(done);
    }

    /// RFC 2697, 3.2.
    fn spend_single(&mut self, metering: &Metering, done: Label) {
        let [yellow, red] = std::array::from_fn(|_| self.code.label());
        self.take(R0, StackSlot::Precolour);
        self.code.branch_with(NotEqual, R0, 0, yellow);
        self.affords(R1, metering.depths[0], yellow);
        self.code.operate(Add, R1, R5);
        self.colour(0, done);
        self.code.bind(yellow);
        self.code.branch_with(Above, R0, 1, red);
        self.affords(R2, metering.depths[1], red);
        self.code.operate(Add, R2, R5);
        self.colour(1, done);
        self.code.bind(red);
        self.colour(2, done);
    }

    /// RFC 2698, 3.2.
    fn spend_two(&mut self, metering: &Metering, done: Label) {
        let [yellow, red] = std::array::from_fn(|_| self.code.label());
        self.take(R0, StackSlot::Precolour);
        self.code.branch_with(Above, R0, 1, red);
        self.affords(R2, metering.depths[1], red);
        self.code.operate(Add, R2, R5);
        self.code.branch_with(NotEqual, R0, 0, yellow);
        self.affords(R1, metering.depths[0], yellow);
        self.code.operate(Add, R1, R5);
        self.colour(0, done);
        self.code.bind(yellow);
        self.colour(1, done);
        self.code.bind(red);
        self.colour(2, done);
    }
}
