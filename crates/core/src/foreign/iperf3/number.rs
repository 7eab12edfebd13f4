//! Numbers and flags as the different versions of iperf3 write them.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A count: whole and not negative, also where it was written as a float (`1e+10`).
pub(super) fn count(value: &Value) -> Option<u64> {
    /// Beyond it a double does not have every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(count) = value.as_u64() {
        return Some(count);
    }
    let number = value.as_f64()?;
    (0.0..=EXACT).contains(&number).then_some(number as u64)
}

/// A count that may be −1 for "not known"; a version with unsigned JSON writes that as 2⁶⁴ − 1.
pub(super) fn count_if_known(value: &Value) -> Option<u64> {
    count(value).filter(|count| *count < 1 << 62)
}

/// A flag: `true`, or any number but 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flag(pub(super) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::Bool(flag) => flag,
            Value::Number(number) => number.as_f64() != Some(0.0),
            _ => false,
        }))
    }
}
