//! One direction of a run.

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with_macros::skip_serializing_none;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{
    Ceiling, ChangeResult, EndReport, FlowRecord, Interval, NotMade, Record, TcpEvidence,
    TcpSender, UdpEvidence, Verdict,
};
use crate::plan::Direction;

/// One direction of a run, as its sender and its receiver saw it. Requests and responses have one,
/// that of the end that asks.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// `up`: the client sends. `down`: the endpoint sends.
    pub direction: Direction,
    /// Goodput counted by the receiver, payload bits per second; absent for requests and responses.
    pub throughput_bps: Option<f64>,
    /// Payload counted by the receiver, bytes.
    #[serde(default)]
    pub bytes: u64,
    /// How even the rate was; absent for requests, and for fewer than 16 steps.
    pub steps: Option<StepRates>,
    /// The cost at the sending end.
    pub sender: Option<EndReport>,
    /// The cost at the receiving end.
    pub receiver: Option<EndReport>,
    /// TCP: sums over the flows; the worst flow for figures that cannot be summed.
    pub tcp: Option<TcpEvidence>,
    /// UDP: sums over the flows.
    pub udp: Option<UdpEvidence>,
    /// The rate that each cause would allow, lowest first.
    #[serde(default)]
    pub ceilings: Vec<Ceiling>,
    /// The bottleneck.
    pub verdict: Option<Verdict>,
    /// Changes of one thing at a time, and what the rate did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<ChangeResult>,
    /// Changes that were not possible, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments_not_made: Vec<NotMade>,
    /// Payload of all runs of the experiments, the plain ones included, bytes: each run's rate for
    /// all the time that it took.
    pub experiments_bytes: Option<u64>,
}

/// Rates in steps of equal length, usually 100 ms. A clock (a shaper, pacing) keeps most of them
/// equal, even if other traffic disturbs some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepRates {
    /// Length of a step, seconds.
    pub step_s: f64,
    /// Lower quartile, payload bits per second.
    pub p25_bps: f64,
    /// Median.
    pub p50_bps: f64,
    /// Upper quartile.
    pub p75_bps: f64,
    /// 90th percentile.
    pub p90_bps: f64,
}

impl StepRates {
    /// The quantiles of the rates of all steps; `None` for too few.
    pub fn new(mut rates: Vec<f64>, step_s: f64) -> Option<Self> {
        let count = rates.len();
        rates.sort_by(f64::total_cmp);
        let quantile = |share: f64| rates[(share * (count - 1) as f64).round() as usize];
        (count >= MIN_STEPS && step_s > 0.0).then(|| Self {
            step_s,
            p25_bps: quantile(0.25),
            p50_bps: quantile(0.5),
            p75_bps: quantile(0.75),
            p90_bps: quantile(0.9),
        })
    }
}

/// Least number of steps with meaningful quartiles.
const MIN_STEPS: usize = 16;

impl Leg {
    /// A direction without any figures.
    pub fn new(direction: Direction) -> Self {
        Self { direction, ..Self::default() }
    }

    /// TCP's figures from the sender's kernel.
    pub fn tcp_sender(&self) -> Option<&TcpSender> {
        self.tcp.as_ref()?.sender()
    }

    /// The reports of sender and receiver, as far as they are known.
    pub fn ends(&self) -> impl Iterator<Item = (&'static str, &EndReport)> {
        let ends = [("sender", &self.sender), ("receiver", &self.receiver)].into_iter();
        ends.filter_map(|(name, end)| Some((name, end.as_ref()?)))
    }
}

impl Record {
    /// The only direction that ran; `None` if both did.
    pub fn leg(&self) -> Option<&Leg> {
        self.legs.first().filter(|_| self.legs.len() == 1)
    }

    /// A direction that ran.
    pub fn leg_to(&self, direction: Direction) -> Option<&Leg> {
        self.legs.iter().find(|leg| leg.direction == direction)
    }

    /// Goodput over all directions, payload bits per second.
    pub fn throughput_bps(&self) -> Option<f64> {
        throughput_bps(&self.legs)
    }

    /// The key and value by which runs are compared and ranked: transactions, or else the
    /// throughput.
    pub fn headline(&self) -> Option<(&'static str, f64)> {
        let transactions = self.transactions_per_s.map(|n| ("transactions_per_s", n));
        transactions.or_else(|| Some(("throughput_bps", self.throughput_bps()?)))
    }

    /// The headline as a figure to rank runs by; without one the run is the last.
    pub fn rank(&self) -> f64 {
        self.headline().map_or(f64::NEG_INFINITY, |(_, rate)| rate)
    }

    /// Payload received over all directions, bytes.
    pub fn bytes(&self) -> u64 {
        bytes(&self.legs)
    }

    /// The bottleneck of the only direction.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.leg()?.verdict.as_ref()
    }

    /// TCP's figures from the sender's kernel in the only direction.
    pub fn tcp_sender(&self) -> Option<&TcpSender> {
        self.leg()?.tcp_sender()
    }

    /// UDP's figures of the only direction.
    pub fn udp(&self) -> Option<&UdpEvidence> {
        self.leg()?.udp.as_ref()
    }

    /// The reports of both ends, by direction.
    pub fn ends(&self) -> impl Iterator<Item = (&'static str, &EndReport)> {
        self.legs.iter().flat_map(Leg::ends)
    }

    /// The flows of one direction.
    pub fn flows_of(&self, leg: &Leg) -> impl Iterator<Item = &FlowRecord> {
        let direction = leg.direction;
        let flows = self.flows.iter();
        flows.filter(move |flow| flow.direction == direction)
    }

    /// The intervals of one direction.
    pub fn intervals_of(&self, leg: &Leg) -> impl Iterator<Item = &Interval> {
        let direction = leg.direction;
        let is_of = move |interval: &&Interval| interval.direction.is_none_or(|d| d == direction);
        self.intervals.iter().filter(is_of)
    }
}

fn throughput_bps(legs: &[Leg]) -> Option<f64> {
    let rates = legs.iter().filter_map(|leg| leg.throughput_bps);
    rates.reduce(|a, b| a + b)
}

fn bytes(legs: &[Leg]) -> u64 {
    let bytes = legs.iter().map(|leg| leg.bytes);
    bytes.fold(0, u64::saturating_add)
}

/// The keys that stand in the record itself, where scripts look for them: `legs`, the sums over
/// them, and all keys of an only leg. Only `legs` is read back.
pub(super) mod keys {
    use super::*;

    #[derive(Deserialize)]
    struct Legs {
        legs: Vec<Leg>,
    }

    pub(in crate::record) fn serialize<S: Serializer>(
        legs: &[Leg],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(rate) = throughput_bps(legs) {
            map.serialize_entry("throughput_bps", &rate)?;
        }
        map.serialize_entry("bytes", &bytes(legs))?;
        if let [only] = legs {
            entry(&mut map, "sender", &only.sender)?;
            entry(&mut map, "receiver", &only.receiver)?;
            entry(&mut map, "tcp", &only.tcp)?;
            entry(&mut map, "udp", &only.udp)?;
            map.serialize_entry("ceilings", &only.ceilings)?;
            entry(&mut map, "verdict", &only.verdict)?;
            if !only.experiments.is_empty() {
                map.serialize_entry("experiments", &only.experiments)?;
            }
            if !only.experiments_not_made.is_empty() {
                map.serialize_entry("experiments_not_made", &only.experiments_not_made)?;
            }
            entry(&mut map, "experiments_bytes", &only.experiments_bytes)?;
        }
        map.serialize_entry("legs", legs)?;
        map.end()
    }

    fn entry<M: SerializeMap, T: Serialize>(
        map: &mut M,
        key: &str,
        value: &Option<T>,
    ) -> Result<(), M::Error> {
        let mut values = value.iter();
        values.try_for_each(|value| map.serialize_entry(key, value))
    }

    pub(in crate::record) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Leg>, D::Error> {
        Ok(Legs::deserialize(deserializer)?.legs)
    }

    /// The keys of a leg without its direction, and the list of legs.
    pub(in crate::record) fn schema(generator: &mut SchemaGenerator) -> Schema {
        let legs = generator.subschema_for::<Vec<Leg>>();
        let mut schema = Leg::json_schema(generator);
        let object = schema.ensure_object();
        object.remove("description");
        object.insert("required".into(), ["legs", "bytes"].into());
        let properties = object.get_mut("properties").and_then(|p| p.as_object_mut());
        if let Some(properties) = properties {
            properties.remove("direction");
            properties.insert("legs".into(), legs.into());
        }
        schema
    }
}
