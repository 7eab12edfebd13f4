//! Puts the cells together: base, one level of each factor, and the quick form over them.

use std::net::IpAddr;

use super::super::cell::{Cell, ExperimentPath, Place};
use super::super::error::{ExperimentProblem, Fault};
use super::super::workload::{COMMANDS, Command, Draft, EXTENTS, Work};
use super::Files;
use super::factors::FileFactor;
use super::setting::{PathSetting, Setting};
use crate::lab::Topology;
use crate::link::PathSpec;
use crate::plan::Family;
use crate::toml_reader::{At, ReadProblem, shortened, suggestion};
use crate::treatment::Treatments;
use crate::units::EndpointName;

/// What cells are made of.
pub(super) struct Resolver<'a> {
    pub(super) base: Setting<'a>,
    pub(super) quick: Option<Setting<'a>>,
    pub(super) factors: &'a [FileFactor<'a>],
    /// The user's choice in place of the file's.
    pub(super) family: Option<Family>,
    pub(super) seed: u64,
    pub(super) files: Files<'a>,
}

/// Whose a key is: a level's key must fit its cell's command, others' are for the cells that they fit.
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
        let count = self.factors.iter().map(|factor| factor.levels.len()).product();
        (0..count).map(|number| self.cell(&self.levels_of(number))).collect()
    }

    fn levels_of(&self, number: usize) -> Vec<usize> {
        let mut rest = number;
        let mut levels: Vec<usize> = (self.factors.iter().rev())
            .map(|factor| {
                let level = rest % factor.levels.len();
                rest /= factor.levels.len();
                level
            })
            .collect();
        levels.reverse();
        levels
    }

    fn cell(&self, levels: &[usize]) -> Result<Cell, Fault> {
        let chosen: Vec<_> = (self.factors.iter().zip(levels))
            .map(|(factor, level)| &factor.levels[*level])
            .collect();
        let settings: Vec<&Setting<'a>> = chosen.iter().map(|level| &level.setting).collect();
        let work = self.work(&settings, levels)?;
        let treatments = self.treatments(&settings)?;
        if let (Work::Test(test), Some((at, treatments))) = (&work, &treatments) {
            let mut test = test.as_ref().clone();
            treatments
                .apply_to(&mut test)
                .map_err(|error| Fault::new(*at, ExperimentProblem::Treatment(error)))?;
        }
        Ok(Cell {
            levels: levels.to_vec(),
            place: self.place(&settings)?,
            work,
            treatments: treatments.map_or_else(Treatments::default, |(_, treatments)| treatments),
            lacks: chosen.iter().find_map(|level| level.lacks.map(str::to_owned)),
        })
    }

    /// The levels in words, to begin a sentence with.
    fn title(&self, levels: &[usize]) -> String {
        let names = self.factors.iter().zip(levels);
        let names: Vec<String> = names
            .map(|(factor, level)| format!("{} {}", factor.name, factor.levels[*level].name))
            .collect();
        match names.is_empty() {
            true => String::new(),
            false => shortened(&names.join(", ")) + ": ",
        }
    }

    fn work(&self, settings: &[&Setting<'a>], levels: &[usize]) -> Result<Work, Fault> {
        let all = self.base.workload.iter().map(|entry| (Owner::All, entry));
        let of_levels = settings.iter().enumerate().flat_map(|(index, setting)| {
            let entries = setting.workload.iter();
            entries.map(move |entry| (Owner::Level(index), entry))
        });
        let quick = self.quick.iter().flat_map(|quick| &quick.workload);
        let entries = all
            .chain(of_levels)
            .chain(quick.map(|entry| (Owner::All, entry)));
        let (commands, entries): (Vec<Entry>, Vec<Entry>) = entries
            .map(|(owner, (key, text))| Entry {
                owner,
                key: *key,
                text: text.clone(),
            })
            .partition(|entry| entry.key.value == "command");
        let own = commands.iter().filter(|entry| entry.owner == Owner::All);
        let base = own.last().map_or(Ok(Command::Stream), command)?;
        let command = commands.last().map_or(Ok(Command::Stream), command)?;
        let entries = fitting(entries, command, base != command)?;
        let mut draft = Draft::new(command);
        for entry in &entries {
            let Some(key) = command.key(entry.key.value) else {
                continue;
            };
            draft.set(key, &entry.text.value).map_err(|why| {
                let key = entry.key.value.to_owned();
                Fault::new(entry.text.offset, ExperimentProblem::Workload { key, why })
            })?;
        }
        draft.finish(self.seed).map_err(|why| {
            let named = entries.iter().find(|entry| is_about(&why, entry.key.value));
            // Else where it is that makes the cell what it is.
            let last = settings.last().map_or(self.base.offset, |last| last.offset);
            let offset = named.map_or(last, |entry| entry.text.offset);
            let cell = self.title(levels);
            Fault::new(offset, ExperimentProblem::Test { cell, why })
        })
    }

    /// All treatments of a cell, and where the last of them is.
    fn treatments(&self, settings: &[&Setting<'a>]) -> Result<Option<(usize, Treatments)>, Fault> {
        let own = self.base.treatments.iter();
        let given: Vec<&At<&str>> = own
            .chain(settings.iter().filter_map(|setting| setting.treatments.as_ref()))
            .filter(|at| at.value.trim() != "none")
            .collect();
        let Some(last) = given.last() else {
            return Ok(None);
        };
        let texts: Vec<&str> = given.iter().map(|at| at.value).collect();
        let treatments = texts.join(",").parse::<Treatments>();
        treatments
            .map(|treatments| Some((last.offset, treatments)))
            .map_err(|error| Fault::new(last.offset, ExperimentProblem::Treatment(error)))
    }

    fn place(&self, settings: &[&Setting<'a>]) -> Result<Place, Fault> {
        let mut path = self.base.path.clone();
        for setting in settings.iter().copied().chain(&self.quick) {
            let is_real = path.host.is_some();
            let other = &setting.path;
            if is_real && (!other.lab.is_empty() || other.topology.is_some()) {
                let hint = "a real path is as it is: leave the key out, or give a lab";
                return Fault::contradiction(setting.offset, "`lab` or `topology`", hint);
            }
            path = path.merged(other);
        }
        Ok(Place {
            family: self.family.or(path.family.map(family).transpose()?),
            client_cpu: path.client_cpu.map(share).transpose()?,
            server_cpu: path.server_cpu.map(share).transpose()?,
            path: self.path(&path)?,
        })
    }

    fn path(&self, path: &PathSetting<'a>) -> Result<ExperimentPath, Fault> {
        if let Some(host) = &path.host {
            let name = host.value.parse::<EndpointName>().map_err(|error| {
                let why = error.to_string();
                let name = "host".to_owned();
                Fault::new(host.offset, ExperimentProblem::File { name, why })
            })?;
            return Ok(ExperimentPath::Host(name));
        }
        if let Some(topology) = path.topology {
            return self.topology(path, topology);
        }
        let (text, offset) = joined(&path.lab, self.base.offset);
        let spec = match text.is_empty() {
            true => Ok(PathSpec::default()),
            false => text.parse(),
        };
        let spec: PathSpec = spec.map_err(|error| {
            let spec = shortened(&text);
            Fault::new(offset, ExperimentProblem::Spec { spec, error })
        })?;
        if let Some(at) = path.client.or(path.server).or(path.address) {
            let hint = "a path's hosts are client and server; give a `topology`";
            return Fault::contradiction(at.offset, "`client`, `server` and `address`", hint);
        }
        Ok(ExperimentPath::Lab {
            topology: Box::new(Topology::of_path(&spec)),
            name: spec.to_string(),
            spec: Some(Box::new(spec)),
            client: "client".to_owned(),
            server: "server".to_owned(),
            address: None,
        })
    }

    fn topology(
        &self,
        path: &PathSetting<'a>,
        file: At<&'a str>,
    ) -> Result<ExperimentPath, Fault> {
        if let Some(fragment) = path.lab.first() {
            let hint = "a topology has a `spec` for each of its links";
            return Fault::contradiction(fragment.offset, "`lab`", hint);
        }
        let text = (self.files)(file.value).map_err(|why| {
            let name = shortened(file.value);
            Fault::new(file.offset, ExperimentProblem::File { name, why })
        })?;
        let topology = Topology::from_toml(&text)
            .map_err(|error| Fault::new(file.offset, Box::new(error).into()))?;
        let host = |at: Option<At<&str>>, default: &str| {
            let name = at.map_or(default, |at| at.value);
            if topology.node(name).is_some() {
                return Ok(name.to_owned());
            }
            let names: Vec<&str> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
            let at = At {
                offset: at.map_or(file.offset, |at| at.offset),
                value: name,
            };
            Err(Fault::unknown(at, "host", &names))
        };
        let client = host(path.client, "client")?;
        let server = host(path.server, "server")?;
        let address = path.address.map(|at| address(&topology, &server, at)).transpose()?;
        Ok(ExperimentPath::Lab {
            name: file.value.to_owned(),
            spec: None,
            topology: Box::new(topology),
            client,
            server,
            address,
        })
    }
}

/// The keys that the command has, each once. Keys that are meant for all cells are left out where they do not fit;
/// of keys that exclude each other, the later ones count.
fn fitting(
    entries: Vec<Entry<'_>>,
    command: Command,
    is_other: bool,
) -> Result<Vec<Entry<'_>>, Fault> {
    let mut kept: Vec<Entry> = Vec::new();
    for entry in entries {
        if command.key(entry.key.value).is_none() {
            let is_known = COMMANDS.iter().any(|(_, other)| other.key(entry.key.value).is_some());
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
    let by_time = !kept.iter().any(|entry| ["bytes", "count"].contains(&entry.key.value));
    kept.retain(|entry| by_time || entry.owner != Owner::All || entry.key.value != "warm-up");
    Ok(kept)
}

/// Whether a message on a whole test begins with a key: as it is, or in words.
fn is_about(why: &str, key: &str) -> bool {
    let why = why.trim_start_matches('`');
    [key, &key.replace('-', " ")].into_iter().any(|name| {
        let rest = why.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '`']))
    })
}

fn command(entry: &Entry<'_>) -> Result<Command, Fault> {
    let text = entry.text.value.as_str();
    let found = COMMANDS.iter().find(|(name, _)| *name == text);
    found.map(|(_, command)| *command).ok_or_else(|| {
        let names = COMMANDS.map(|(name, _)| name);
        let at = At {
            offset: entry.text.offset,
            value: text,
        };
        Fault::unknown(at, "command", &names)
    })
}

fn unknown_key(key: At<&str>, command: Command) -> Fault {
    let keys = command.keys();
    let hint = suggestion(key.value, keys.iter().copied());
    let problem = ReadProblem::UnknownKey {
        place: "the workload",
        key: shortened(key.value),
        hint: hint.unwrap_or_else(|| format!("its keys are {}", keys.join(", "))),
    };
    Fault::new(key.offset, problem.into())
}

/// The spec that fragments make together, and where the last of them is. A key takes the place of the same key before
/// it, and one for both directions that of those for one.
fn joined(fragments: &[At<String>], base: usize) -> (String, usize) {
    let mut entries: Vec<(&str, &str)> = Vec::new();
    for fragment in fragments {
        let of_fragment: Vec<(&str, &str)> = entries_of(&fragment.value)
            .into_iter()
            .map(|entry| (entry.split('=').next().unwrap_or(entry).trim(), entry))
            .collect();
        entries.retain(|(key, _)| {
            let bare = key.trim_start_matches("up.").trim_start_matches("down.");
            !of_fragment.iter().any(|(other, _)| other == key || *other == bare)
        });
        entries.extend(of_fragment);
    }
    let texts: Vec<&str> = entries.iter().map(|(_, entry)| *entry).collect();
    let offset = fragments.last().map_or(base, |last| last.offset);
    (texts.join(","), offset)
}

/// `a=1,loss=ge(1%,2%)` at the commas that are not within parentheses.
fn entries_of(spec: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = spec.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

fn family(at: At<&str>) -> Result<Family, Fault> {
    match at.value {
        "ipv4" => Ok(Family::Ipv4),
        "ipv6" => Ok(Family::Ipv6),
        _ => Fault::malformed(at, "family", "write \"ipv4\" or \"ipv6\""),
    }
}

/// `"25%"` of one CPU.
fn share(at: At<&str>) -> Result<u32, Fault> {
    let digits = at.value.strip_suffix('%').unwrap_or(at.value);
    match digits.trim().parse::<u32>() {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Fault::malformed(at, "share of a CPU", "write \"1%\" to \"100%\""),
    }
}

fn address(topology: &Topology, server: &str, at: At<&str>) -> Result<IpAddr, Fault> {
    let Ok(address) = at.value.parse::<IpAddr>() else {
        return Fault::malformed(at, "address", "write 198.18.5.1 or 2001:2::1");
    };
    let interfaces = topology.node(server).map(|node| node.interfaces.iter());
    let mut own = interfaces.into_iter().flatten().flat_map(|interface| &interface.addresses);
    match own.any(|own| own.address == address) {
        true => Ok(address),
        false => {
            let what = format!("`{}`", at.value);
            Fault::contradiction(at.offset, what, "the server does not have it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(fragments: &[&str]) -> String {
        let fragments: Vec<At<String>> = (fragments.iter())
            .map(|text| At {
                offset: 0,
                value: (*text).to_owned(),
            })
            .collect();
        joined(&fragments, 0).0
    }

    #[test]
    fn a_fragment_replaces_its_own_keys_and_adds_the_others() {
        let base = "rate=10mbit,rtt=29ms,loss=ge(1%,20%)";
        assert_eq!(spec(&[base]), base);
        assert_eq!(
            spec(&[base, "loss=0.5%,hops=1"]),
            "rate=10mbit,rtt=29ms,loss=0.5%,hops=1"
        );
        assert_eq!(spec(&[base, "", "rtt=1ms"]), "rate=10mbit,loss=ge(1%,20%),rtt=1ms");
    }

    #[test]
    fn what_is_said_for_both_directions_replaces_what_was_said_for_one() {
        assert_eq!(spec(&["up.loss=1%,down.rate=1mbit", "loss=2%"]), "down.rate=1mbit,loss=2%");
        assert_eq!(spec(&["loss=2%", "up.loss=1%"]), "loss=2%,up.loss=1%");
    }
}
