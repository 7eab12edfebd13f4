//! Numbers and flags as the different versions of iperf3 write them.

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
pub(super) fn flag(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        _ => false,
    }
}
