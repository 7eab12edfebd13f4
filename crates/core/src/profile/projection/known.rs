//! What is known of a transfer besides the runs of the design.

use crate::ceilings::{Cause, Ceiling};
use crate::profile::{EndLayers, Layer, ProfileDocument};

/// Parts of an end's CPU time by layer, as a profile tells them: shares, 0–1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LayerShares {
    /// Bytes moved between the application and the kernel.
    pub copy: f64,
    /// Checksums that the CPU computed.
    pub checksum: f64,
}

/// What is known besides the model.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Layers of the sender and of the receiver, under the test as it is.
    pub layers: Option<[LayerShares; 2]>,
    /// Ceilings of the test as it is.
    pub ceilings: Vec<Ceiling>,
    /// What holds it back.
    pub cause: Option<Cause>,
    /// Seed of the intervals.
    pub seed: u64,
}

impl Known {
    /// By the profile of the test as it is.
    pub fn new(document: &ProfileDocument) -> Self {
        let record = &document.record;
        let ends = (document.sender.as_ref(), document.receiver.as_ref());
        Self {
            layers: match ends {
                (Some(sender), Some(receiver)) => Some([sender, receiver].map(LayerShares::new)),
                _ => None,
            },
            ceilings: record
                .leg()
                .map_or_else(Vec::new, |leg| leg.ceilings.clone()),
            cause: record.verdict().map(|verdict| verdict.cause),
            seed: record.seed,
        }
    }

    /// Where no profile was taken.
    pub fn nothing(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }
}

impl LayerShares {
    /// The layers that a design may not tell from others.
    fn new(end: &EndLayers) -> Self {
        let share = |layer: Layer| {
            let costs = end.layers.iter().filter(|cost| cost.layer == layer);
            costs.map(|cost| cost.share_percent).sum::<f64>() / 100.0
        };
        Self {
            copy: share(Layer::Copy),
            checksum: share(Layer::Checksum),
        }
    }
}
