//! Builds the cells: the base, one level of each factor, and the overrides of the quick form.

use super::super::model::Cell;
use super::super::workload::{COMMANDS, Command, EXTENTS, Work, WorkDraft};
use super::Files;
use super::factors::{FileFactor, all_levels};
use super::setting::Setting;
use crate::plan::Workload;
use crate::toml_reader::{At, Fault};
use crate::treatment::Treatments;
use crate::units::{Family, shortened};

/// Everything in the file of which cells are built.
pub(super) struct Resolver<'a> {
    pub(super) base: Setting<'a>,
    pub(super) quick: Option<Setting<'a>>,
    pub(super) factors: &'a [FileFactor<'a>],
    /// The user's address family, which replaces the file's.
    pub(super) family: Option<Family>,
    pub(super) seed: u64,
    pub(super) files: Files<'a>,
}

/// Whose a key is: a level's key must fit its cell's command, others' are for the cells that they
/// fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    All,
    Level(usize),
}

struct Entry<'a> {
    owner: Owner,
    key: At<&'a str>,
    text: At<String>,
}

impl<'a> Resolver<'a> {
    /// All cells, the last factor's levels changing first.
    pub(super) fn cells(&self) -> Result<Vec<Cell>, Fault> {
        let cells = all_levels(self.factors);
        cells.iter().map(|levels| self.cell(levels)).collect()
    }

    fn cell(&self, levels: &[usize]) -> Result<Cell, Fault> {
        let chosen: Vec<_> = (self.factors.iter().zip(levels))
            .map(|(factor, level)| &factor.levels[*level])
            .collect();
        let settings: Vec<&Setting<'a>> = chosen.iter().map(|level| &level.setting).collect();
        let work = self.work(&settings, levels)?;
        let treatments = self.treatments(&settings)?;
        if let (Work::Test(test), Some((at, treatments))) = (&work, &treatments) {
            let applied = treatments.apply_to(&mut test.as_ref().clone());
            applied.map_err(|error| Fault::new(*at, error))?;
        }
        if let (Work::Load(_), Some((at, _))) = (&work, &treatments) {
            let hint = "the command `load` has none: vary the path";
            return Fault::contradiction(*at, "`treatments`", hint);
        }
        let lacks = chosen.iter().find_map(|level| level.lacks);
        Ok(Cell {
            levels: levels.to_vec(),
            place: self.place(&settings)?,
            work,
            treatments: treatments.map_or_else(Treatments::default, |(_, treatments)| treatments),
            lacks: lacks.map(str::to_owned),
        })
    }

    /// The levels in words, for the start of a sentence.
    fn title(&self, levels: &[usize]) -> String {
        let names = self.factors.iter().zip(levels);
        let names: Vec<String> = names
            .map(|(factor, level)| format!("{} {}", factor.name, factor.levels[*level].name))
            .collect();
        if names.is_empty() {
            String::new()
        } else {
            shortened(&names.join(", ")) + ": "
        }
    }

    pub(super) fn work(&self, settings: &[&Setting<'a>], levels: &[usize]) -> Result<Work, Fault> {
        let all = self.base.workload.iter().map(|entry| (Owner::All, entry));
        let of_levels = settings.iter().enumerate().flat_map(|(index, setting)| {
            let entries = setting.workload.iter();
            entries.map(move |entry| (Owner::Level(index), entry))
        });
        let quick = self.quick.iter().flat_map(|quick| &quick.workload);
        let quick = quick.map(|entry| (Owner::All, entry));
        let entries = all.chain(of_levels).chain(quick);
        let (commands, entries): (Vec<Entry>, Vec<Entry>) = entries
            .map(|(owner, (key, text))| Entry {
                owner,
                key: *key,
                text: text.clone(),
            })
            .partition(|entry| entry.key.value == "command");
        let named =
            |entry: Option<&Entry>| entry.map_or(Ok(Command::Test(Workload::Stream)), command);
        let mut own = commands.iter().filter(|entry| entry.owner == Owner::All);
        let base = named(own.next_back())?;
        let command = named(commands.last())?;
        let entries = fitting(entries, command, base != command)?;
        let mut draft = WorkDraft::new(command);
        for entry in &entries {
            let key = entry.key.value;
            let set = draft.set(key, &entry.text.value);
            set.map_err(|why| Fault::new(entry.text.offset, why))?;
        }
        draft.resolve(self.seed).map_err(|(key, why)| {
            let named = entries.iter().find(|entry| entry.key.value == key);
            // Else where it is that makes the cell what it is.
            let last = settings.last().map_or(self.base.offset, |last| last.offset);
            let offset = named.map_or(last, |entry| entry.text.offset);
            Fault::new(offset, format!("{}{why}", self.title(levels)))
        })
    }

    /// All treatments of a cell, and the place of the last one.
    fn treatments(&self, settings: &[&Setting<'a>]) -> Result<Option<(usize, Treatments)>, Fault> {
        let own = self.base.treatments.iter();
        let of_levels = settings.iter().flat_map(|setting| &setting.treatments);
        let given = own.chain(of_levels).filter(|at| at.value.trim() != "none");
        let given: Vec<&At<&str>> = given.collect();
        let Some(last) = given.last() else {
            return Ok(None);
        };
        let texts: Vec<&str> = given.iter().map(|at| at.value).collect();
        let fault = |error| Fault::new(last.offset, error);
        let mut treatments: Treatments = texts.join(",").parse().map_err(fault)?;
        treatments.load(self.files).map_err(fault)?;
        Ok(Some((last.offset, treatments)))
    }
}

/// The keys that the command has, each once. Keys that are meant for all cells are left out where
/// they do not fit; of keys that exclude each other, the later ones count.
fn fitting(
    entries: Vec<Entry<'_>>,
    command: Command,
    is_other: bool,
) -> Result<Vec<Entry<'_>>, Fault> {
    let mut kept: Vec<Entry> = Vec::new();
    for entry in entries {
        if !command.keys().contains(&entry.key.value) {
            let mut all = COMMANDS.iter();
            let is_known = all.any(|(_, other)| other.keys().contains(&entry.key.value));
            if entry.owner == Owner::All && is_other && is_known {
                continue;
            }
            return Err(unknown_key(entry.key, command));
        }
        let is_extent = |key: &str| EXTENTS.contains(&key);
        let rival = kept.iter().find(|other| {
            let differs = other.key.value != entry.key.value && other.owner == entry.owner;
            differs && is_extent(other.key.value) && is_extent(entry.key.value)
        });
        if let Some(rival) = rival
            && entry.owner != Owner::All
        {
            let what = format!("`{}` and `{}`", rival.key.value, entry.key.value);
            return Fault::contradiction(entry.key.offset, what, "a run ends by one of them");
        }
        kept.retain(|other| {
            let both_extents = is_extent(other.key.value) && is_extent(entry.key.value);
            other.key.value != entry.key.value && !both_extents
        });
        kept.push(entry);
    }
    let mut entries = kept.iter();
    let by_time = !entries.any(|entry| EXTENTS[1..].contains(&entry.key.value));
    kept.retain(|entry| by_time || entry.owner != Owner::All || entry.key.value != "warm-up");
    Ok(kept)
}

fn command(entry: &Entry<'_>) -> Result<Command, Fault> {
    let text = entry.text.value.as_str();
    let found = COMMANDS.iter().find(|(name, _)| *name == text);
    found.map(|(_, command)| *command).ok_or_else(|| {
        let names = COMMANDS.map(|(name, _)| name);
        Fault::unknown(entry.text.as_str(), "command", &names)
    })
}

fn unknown_key(key: At<&str>, command: Command) -> Fault {
    let keys = command.keys();
    let otherwise = format!("its keys are {}", keys.join(", "));
    Fault::unknown_key(key, "the workload", keys, otherwise)
}
