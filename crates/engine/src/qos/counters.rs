//! What filters and policies have counted.

use linerate_qos::interpret::CounterReport;
use linerate_sys::bpf::Map;

use super::error::QosError;
use super::state::Hooked;

/// The counters of one program.
#[derive(Debug)]
pub(super) struct Readings {
    map: Map,
}

impl Readings {
    pub(super) fn new(map: Map) -> Self {
        Self { map }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> u32 {
        self.map.info().entries
    }

    /// What a slot counted since the map was made, all CPUs together; zero beyond its end.
    pub(super) fn slot(&self, slot: u32) -> Result<[u64; 7], QosError> {
        let mut sum = [0_u64; 7];
        if slot >= self.slots() {
            return Ok(sum);
        }
        let values = self.map.lookup(&slot.to_ne_bytes())?.unwrap_or_default();
        let words = values.as_chunks::<8>().0.iter();
        for (place, word) in words.enumerate() {
            let of = &mut sum[place % 7];
            *of = of.wrapping_add(u64::from_ne_bytes(*word));
        }
        Ok(sum)
    }

    /// What a name counted since it began to.
    pub(super) fn named(
        &self,
        hooked: &Hooked,
        name: &str,
        slot: Option<u32>,
    ) -> Result<CounterReport, QosError> {
        let Some(slot) = slot else {
            return Ok(CounterReport::default());
        };
        let mut counted = self.slot(slot)?;
        if let Some(base) = hooked.base.get(name) {
            for (counted, base) in counted.iter_mut().zip(base) {
                *counted = counted.wrapping_sub(*base);
            }
        }
        Ok(counted.into())
    }
}
