//! The families of scenarios, and the order in which a run takes turns among them.

use super::draw::{CAUSES, old};
use super::scenario::Scenario;
use super::strangers::STRANGERS;
use super::wild::{self, Draft, stranger};
use crate::units::Dice;
use crate::units::checksum::fnv1a;

/// A family: scenarios of one kind.
#[derive(Debug, Clone, Copy)]
pub struct ScenarioFamily {
    /// Its name.
    pub name: &'static str,
    /// Its scenarios, in a line.
    pub means: &'static str,
    pub(super) draw: Draw,
}

/// The function that draws scenarios of a family.
#[derive(Debug, Clone, Copy)]
pub(super) enum Draw {
    /// By seed and number, with the limits of [`CAUSES`] in turn.
    Causes(fn(u64, u32) -> Scenario),
    /// With a random cause.
    Any(fn(&mut Dice) -> Draft),
}

/// Name of the family with limits that the lab makes, twelve causes in turn.
pub const OLD: &str = "old";

/// All families, the old one first, other programs' traffic last.
pub fn families() -> impl Iterator<Item = &'static ScenarioFamily> {
    static FIRST: ScenarioFamily = ScenarioFamily {
        name: OLD,
        means: "one limit of the lab's making for each of twelve causes, clearly the lowest",
        draw: Draw::Causes(old),
    };
    static LAST: ScenarioFamily = ScenarioFamily {
        name: STRANGERS,
        means: "as old, and the kernel's TBF and HTB, with other programs' traffic",
        draw: Draw::Causes(stranger),
    };
    [&FIRST].into_iter().chain(wild::FAMILIES).chain([&LAST])
}

/// The families of a name: one of theirs, `wild` (linerate's runs without the old family) or `all`
/// (all of linerate's runs).
pub fn family(name: &str) -> Option<Vec<&'static ScenarioFamily>> {
    let is_meant = |family: &&ScenarioFamily| match name {
        "all" => family.name != STRANGERS,
        "wild" => matches!(family.draw, Draw::Any(_)),
        _ => family.name == name,
    };
    Some(families().filter(is_meant).collect()).filter(|found: &Vec<_>| !found.is_empty())
}

/// Draws `count` scenarios from the families in turn, in random order; the old family takes its
/// causes in turn. The scenario of a number depends on the seed and the families, and not on
/// `count`.
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
        let draft = match family.draw {
            Draw::Any(draft) => draft,
            Draw::Causes(draw) => {
                let own = turn * weight(family) + place;
                return Scenario {
                    number,
                    ..draw(seed, own)
                };
            }
        };
        // Each family has dice of its own, so that other families do not change its scenarios.
        let stream = fnv1a(family.name.as_bytes()) ^ u64::from(turn);
        draft(&mut Dice::new(seed, stream)).scenario(family.name, number, seed)
    };
    let mut scenarios: Vec<Scenario> = (0..count).map(scenario).collect();
    Dice::new(seed, u64::MAX).shuffle(&mut scenarios);
    scenarios
}

/// Number of turns of a family in each round.
fn weight(family: &ScenarioFamily) -> u32 {
    match family.draw {
        Draw::Causes(_) => CAUSES.len() as u32,
        Draw::Any(_) => 1,
    }
}
