//! A limit on the numbers of a peer's message, whatever their field.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Largest count that an endpoint may report. Counters of a run are summed over its flows, of which
/// there are at most 256: below this no sum overflows, and no run reaches it.
const LARGEST: u64 = 1 << 55;

/// Any JSON all of whose counts are within [`LARGEST`]. Rates are not summed, and the kernel's
/// pacing rate on loopback has no bound that a host would keep to.
pub(super) struct Bounded;

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BoundsWalk)
    }
}

struct BoundsWalk;

impl<'de> Visitor<'de> for BoundsWalk {
    type Value = Bounded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JSON whose counts are at most {LARGEST}")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Bounded, E> {
        Ok(Bounded)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Bounded, E> {
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Bounded, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Bounded, E> {
        if value.abs() > LARGEST as f64 {
            return Err(E::custom(format_args!("the figure {value:e} is absurd")));
        }
        Ok(Bounded)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Bounded, E> {
        Ok(Bounded)
    }

    fn visit_unit<E: Error>(self) -> Result<Bounded, E> {
        Ok(Bounded)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Bounded, A::Error> {
        while items.next_element::<Bounded>()?.is_some() {}
        Ok(Bounded)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Bounded, A::Error> {
        while let Some(key) = fields.next_key::<String>()? {
            if key.ends_with("_bps") {
                fields.next_value::<IgnoredAny>()?;
            } else {
                fields.next_value::<Bounded>()?;
            }
        }
        Ok(Bounded)
    }
}
