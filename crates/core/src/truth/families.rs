//! The families of scenarios, and how a run takes turns among them.

use super::draw::{CAUSES, old};
use super::scenario::Scenario;
use super::wild::{self, Draft};
use crate::units::Dice;
use crate::units::checksum::fnv1a;

/// Scenarios of one kind.
#[derive(Debug, Clone, Copy)]
pub struct ScenarioFamily {
    /// As it is asked for.
    pub name: &'static str,
    /// What is drawn, in a line.
    pub means: &'static str,
    /// `None`: one limit of [`CAUSES`], by the lab's own means.
    pub(super) draw: Option<fn(&mut Dice) -> Draft>,
}

/// The limits of the lab's own making, twelve causes in turn.
pub const OLD: &str = "old";

/// All of them, the old one first.
pub fn families() -> impl Iterator<Item = &'static ScenarioFamily> {
    static FIRST: ScenarioFamily = ScenarioFamily {
        name: OLD,
        means: "one limit of the lab's making for each of twelve causes, clearly the lowest",
        draw: None,
    };
    [&FIRST].into_iter().chain(&wild::FAMILIES)
}

/// Those that a name means: its own, `wild` (all but the old one) or `all`.
pub fn family(name: &str) -> Option<Vec<&'static ScenarioFamily>> {
    let is_meant = |family: &&ScenarioFamily| match name {
        "all" => true,
        "wild" => family.draw.is_some(),
        _ => family.name == name,
    };
    Some(families().filter(is_meant).collect()).filter(|found: &Vec<_>| !found.is_empty())
}

/// Draws `count` scenarios, the families in turn and in the old one the causes, shuffled. The
/// scenario of a number depends on the seed and the families, and not on `count`.
pub fn draw(seed: u64, count: u32, families: &[&ScenarioFamily]) -> Vec<Scenario> {
    let turns: Vec<(&ScenarioFamily, u32)> = (families.iter())
        .flat_map(|family| (0..weight(family)).map(move |place| (*family, place)))
        .collect();
    if turns.is_empty() {
        return Vec::new();
    }
    let scenario = |number: u32| {
        let (family, place) = turns[number as usize % turns.len()];
        let turn = number / turns.len() as u32;
        let Some(draft) = family.draw else {
            let own = turn * weight(family) + place;
            return Scenario {
                number,
                ..old(seed, own)
            };
        };
        // Each family has dice of its own, so that another beside it changes nothing.
        let stream = fnv1a(family.name.as_bytes()) ^ u64::from(turn);
        draft(&mut Dice::new(seed, stream)).scenario(family.name, number, seed)
    };
    let mut scenarios: Vec<Scenario> = (0..count).map(scenario).collect();
    Dice::new(seed, u64::MAX).shuffle(&mut scenarios);
    scenarios
}

/// Turns of a round.
fn weight(family: &ScenarioFamily) -> u32 {
    match family.draw {
        None => CAUSES.len() as u32,
        Some(_) => 1,
    }
}
