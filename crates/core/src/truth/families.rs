//! The families of scenarios, and how a run takes turns among them.

use super::draw::{CAUSES, old};
use super::scenario::Scenario;
use super::strangers::STRANGERS;
use super::wild::{self, Draft, stranger};
use crate::units::Dice;
use crate::units::checksum::fnv1a;

/// Scenarios of one kind.
#[derive(Debug, Clone, Copy)]
pub struct ScenarioFamily {
    /// As it is asked for.
    pub name: &'static str,
    /// What is drawn, in a line.
    pub means: &'static str,
    pub(super) draw: Draw,
}

/// How a family is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Draw {
    /// One limit of [`CAUSES`], in turn, by seed and number.
    Causes(fn(u64, u32) -> Scenario),
    /// Whatever comes.
    Any(fn(&mut Dice) -> Draft),
}

/// The limits of the lab's own making, twelve causes in turn.
pub const OLD: &str = "old";

/// All of them, the old one first, other programs' traffic last.
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
    [&FIRST].into_iter().chain(&wild::FAMILIES).chain([&LAST])
}

/// Those that a name means: its own, `wild` (linerate's runs but the old ones) or `all` of
/// linerate's runs.
pub fn family(name: &str) -> Option<Vec<&'static ScenarioFamily>> {
    let is_meant = |family: &&ScenarioFamily| match name {
        "all" => family.name != STRANGERS,
        "wild" => matches!(family.draw, Draw::Any(_)),
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
        Draw::Causes(_) => CAUSES.len() as u32,
        Draw::Any(_) => 1,
    }
}
