//! Both ways together: the endpoint's trace, the loss in each direction, and conclusions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::TraceDocument;
use crate::outcome::PathEnd;
use linerate_stats::wilson;
use linerate_units::Caveat;

/// The way back.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReverseDocument {
    /// Address and port of the endpoint that traced it.
    pub endpoint: String,
    /// Its trace to the address from which this host's packets reach it.
    pub trace: Option<Box<TraceDocument>>,
    /// Loss of packets from here to the endpoint.
    pub loss_there: Option<OneWayLoss>,
    /// Loss of packets from the endpoint to here.
    pub loss_back: Option<OneWayLoss>,
    /// Conclusions from both ways, a sentence each.
    pub words: Vec<String>,
    /// What limits the worth of these figures.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

impl ReverseDocument {
    /// Draws conclusions once the way there is known.
    pub fn conclude(&mut self, forward: &TraceDocument) {
        self.words = loss_in_words(self.loss_there.as_ref(), self.loss_back.as_ref());
        if let Some(back) = &self.trace {
            self.words.extend(hops_in_words(forward.end, back.end));
            if Some(back.target) != forward.source {
                self.words.push(format!(
                    "The endpoint sees this host as {}: a NAT is between, and its trace ends \
                     there.",
                    back.target
                ));
            }
        }
    }
}

/// Numbered packets in one direction: sent by one end, counted by the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneWayLoss {
    /// Packets sent.
    pub sent: u64,
    /// Different packets that arrived.
    pub received: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Their share, percent.
    pub lost_percent: f64,
    /// Its interval at 95 %, percent, if losses do not come in bursts.
    pub interval_percent: [f64; 2],
    /// Packets that arrived more than once.
    pub duplicated: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
}

impl OneWayLoss {
    /// Computes the loss from both ends' counts; `None` if nothing was sent. If more is said to
    /// have arrived than was sent, something else was counted too, and all packets arrived.
    pub fn new(sent: u64, received: u64, duplicated: u64, reordered: u64) -> Option<Self> {
        let received = received.min(sent);
        let lost = sent - received;
        let share = wilson(lost, sent).ok()?;
        Some(Self {
            sent,
            received,
            lost,
            lost_percent: 100.0 * share.share,
            interval_percent: [100.0 * share.low, 100.0 * share.high],
            duplicated,
            reordered,
        })
    }

    fn is_above(&self, other: &Self) -> bool {
        self.interval_percent[0] > other.interval_percent[1]
    }
}

fn loss_in_words(there: Option<&OneWayLoss>, back: Option<&OneWayLoss>) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(there.map(|loss| one_loss(loss, "there")));
    words.extend(back.map(|loss| one_loss(loss, "back")));
    if let (Some(there), Some(back)) = (there, back) {
        if there.is_above(back) {
            words.push("The way there loses more than the way back.".into());
        } else if back.is_above(there) {
            words.push("The way back loses more than the way there.".into());
        }
    }
    words
}

fn one_loss(loss: &OneWayLoss, way: &str) -> String {
    let [low, high] = loss.interval_percent;
    match loss.lost {
        0 => {
            format!("On the way {way} none of {} packets was lost: at most {high:.1} %.", loss.sent)
        }
        lost => format!(
            "On the way {way} {lost} of {} packets were lost: {:.1} % (interval {low:.1} to \
             {high:.1} %, 95 %).",
            loss.sent, loss.lost_percent
        ),
    }
}

fn hops_in_words(there: PathEnd, back: PathEnd) -> Option<String> {
    let (PathEnd::Reached { ttl: there }, PathEnd::Reached { ttl: back }) = (there, back) else {
        return None;
    };
    let hops = if there == 1 { "hop" } else { "hops" };
    let so = if there == back {
        "; whether by the same routers cannot be told, since each answers from the side that it \
         was asked from."
    } else {
        ": they are not the same path."
    };
    Some(format!("It is {there} {hops} there and {back} back{so}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn losses_are_told_by_direction() {
        let none = OneWayLoss::new(200, 200, 0, 0).unwrap();
        let some = OneWayLoss::new(200, 150, 0, 0).unwrap();
        let words = loss_in_words(Some(&some), Some(&none));
        assert_eq!(
            words,
            [
                "On the way there 50 of 200 packets were lost: 25.0 % (interval 19.5 to 31.4 %, 95 \
                 %).",
                "On the way back none of 200 packets was lost: at most 1.9 %.",
                "The way there loses more than the way back.",
            ]
        );
        assert_eq!(loss_in_words(Some(&some), Some(&some)).len(), 2);
        assert_eq!(OneWayLoss::new(0, 0, 0, 0), None);
        assert_eq!(OneWayLoss::new(5, 9, 4, 0).unwrap().lost, 0);
    }

    proptest! {
        #[test]
        fn a_loss_is_a_share_and_lies_in_its_interval(sent in 1..1u64 << 55, received: u64) {
            let loss = OneWayLoss::new(sent, received, 0, 0).unwrap();
            prop_assert_eq!(loss.lost + loss.received, sent);
            let [low, high] = loss.interval_percent;
            prop_assert!((0.0..=100.0).contains(&loss.lost_percent));
            prop_assert!(low <= loss.lost_percent + 1e-9 && loss.lost_percent <= high + 1e-9);
        }
    }
}
