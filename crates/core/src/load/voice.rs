//! The quality of a call: the E-model (ITU-T G.107, 06/2015) with its default values and echo
//! cancelled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A codec, with its parameters for G.107.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// ITU-T G.711, 64 kbit/s, with its concealment of lost packets (Appendix I).
    G711,
    /// ITU-T G.729 Annex A, 8 kbit/s.
    G729a,
}

impl Codec {
    /// All codecs by name.
    pub const ALL: [(&'static str, Self); 2] = [("g711", Self::G711), ("g729a", Self::G729a)];

    /// Equipment impairment Ie without loss, and the robustness Bpl against random loss (G.113,
    /// Appendix I).
    fn impairment(self) -> (f64, f64) {
        match self {
            Self::G711 => (0.0, 25.1),
            Self::G729a => (11.0, 19.0),
        }
    }
}

/// The rating R, 0 to 93.2, at that one-way delay from mouth to ear and that random loss.
pub(super) fn rating(codec: Codec, delay_ms: f64, loss_percent: f64) -> f64 {
    let (ie, bpl) = codec.impairment();
    // G.107 (7-29), BurstR = 1.
    let equipment = ie + (95.0 - ie) * loss_percent / (loss_percent + bpl);
    (BEST - delay_impairment(delay_ms) - equipment).max(0.0)
}

/// Idd, G.107 (7-27) with sT = 1 and mT = 100 ms.
fn delay_impairment(delay_ms: f64) -> f64 {
    if delay_ms <= 100.0 {
        return 0.0;
    }
    let x = (delay_ms / 100.0).log2();
    let root = |x: f64| (1.0 + x.powi(6)).powf(1.0 / 6.0);
    25.0 * (root(x) - 3.0 * root(x / 3.0) + 2.0)
}

/// The mean opinion of listeners, 1 (bad) to 4.5, of a rating (G.107, Annex B).
pub(super) fn mos(rating: f64) -> f64 {
    match rating {
        r if r <= 0.0 => 1.0,
        r if r >= 100.0 => 4.5,
        r => (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0),
    }
}

/// R with all of G.107's default values.
const BEST: f64 = 93.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opinions_are_those_of_the_table_of_g_107() {
        // Table B.1: R as the lower limit of a category, and its MOS.
        for (r, expected) in
            [(93.2, 4.41), (90.0, 4.34), (80.0, 4.03), (70.0, 3.60), (60.0, 3.10), (50.0, 2.58)]
        {
            assert!((mos(r) - expected).abs() < 0.01, "{r}: {}", mos(r));
        }
        assert_eq!((mos(-1.0), mos(0.0), mos(100.0)), (1.0, 1.0, 4.5));
        assert_eq!(rating(Codec::G711, 0.0, 0.0), 93.2);
    }

    #[test]
    fn loss_costs_what_g_113_lists() {
        // G.113, Table I.2, G.711 with concealment and random loss: Ie at 2, 3, 5, 7 percent.
        for (loss, ie) in [(2.0, 7.0), (3.0, 10.0), (5.0, 15.0), (7.0, 20.0)] {
            let found = 93.2 - rating(Codec::G711, 0.0, loss);
            assert!((found - ie).abs() < 1.0, "{loss}: {found}");
        }
    }

    #[test]
    fn delay_costs_what_was_published_of_it() {
        // Janssen et al., "Assessing voice quality in packet-based telephony", 2002, Table 3:
        // one-way delays at which R falls to 70 without echo, by Ie of the codec: 0, 5, 10, 20.
        for (ie, delay_ms) in [(0.0, 400.0), (5.0, 342.0), (10.0, 294.0), (20.0, 213.0)] {
            let r = 94.2 - ie - delay_impairment(delay_ms);
            assert!((r - 70.0).abs() < 0.7, "{delay_ms}: {r}");
        }
        assert_eq!(delay_impairment(100.0), 0.0);
    }
}
