//! Figures as evidence writes them.

use crate::units::{BitRate, ByteCount};

/// A share (0–1) in percent, with two significant digits at least.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        small if small > 0.0 && small < 1.0 => format!("{value:.2} %"),
        few if few > 0.0 && few < 10.0 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

/// A rate, bits per second.
pub(super) fn bps(value: f64) -> String {
    BitRate(value.round() as u64).to_string()
}

/// A size, bytes.
pub(super) fn bytes(value: f64) -> String {
    ByteCount(value.round() as u64).to_string()
}
