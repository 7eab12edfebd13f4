//! Builds the cells: the base, one level of each factor, and the overrides of the quick form. The
//! path of a cell is a spec joined from fragments, a topology's file, or an endpoint.

use std::net::IpAddr;

use super::super::model::{
    COMMANDS, Cell, Command, EXTENTS, ExperimentPath, Place, Work, WorkDraft,
};
use super::levels::{FileFactor, LevelSetting, PathKeys, all_levels};
use super::{Files, file_text};
use crate::lab::Topology;
use crate::link::PathSpec;
use crate::plan::Workload;
use crate::toml_reader::{At, FAMILIES, Fault, KeyText};
use crate::treatment::Treatments;
use crate::units::{Family, parts, shortened};

/// Everything in the file of which cells are built.
pub(super) struct Resolver<'a> {
    pub(super) base: LevelSetting<'a>,
    pub(super) quick: Option<LevelSetting<'a>>,
    pub(super) factors: &'a [FileFactor<'a>],
    /// The user's address family, which replaces the file's.
    pub(super) family: Option<Family>,
    pub(super) seed: u64,
    pub(super) files: Files<'a>,
}

/// A key of a workload, its value, and the number of the level that has it: a level's key must fit
/// its cell's command, others' are for the cells that they fit.
#[derive(Clone, Copy)]
struct CellEntry<'a> {
    level: Option<usize>,
    key: At<&'a str>,
    text: At<&'a str>,
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
        let settings: Vec<&LevelSetting<'a>> = chosen.iter().map(|level| &level.setting).collect();
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
        let name = |(factor, level): (&FileFactor, &usize)| {
            format!("{} {}", factor.name, factor.levels[*level].name)
        };
        let names: Vec<String> = self.factors.iter().zip(levels).map(name).collect();
        if names.is_empty() { String::new() } else { shortened(&names.join(", ")) + ": " }
    }

    pub(super) fn work(
        &self,
        settings: &[&LevelSetting<'a>],
        levels: &[usize],
    ) -> Result<Work, Fault> {
        let numbered = settings.iter().enumerate();
        let of_levels = numbered.map(|(level, setting)| (Some(level), *setting));
        let quick = self.quick.iter().map(|quick| (None, quick));
        let tables = [(None, &self.base)].into_iter().chain(of_levels).chain(quick);
        let (commands, entries): (Vec<CellEntry>, Vec<CellEntry>) = tables
            .flat_map(|(level, setting)| entries_of(level, &setting.workload))
            .partition(|entry| entry.key.value == "command");
        let named = |entry: Option<&CellEntry>| match entry {
            None => Ok(Command::Test(Workload::Stream)),
            Some(entry) => entry.text.choice("command", &COMMANDS),
        };
        let mut own = commands.iter().filter(|entry| entry.level.is_none());
        let base = named(own.next_back())?;
        let command = named(commands.last())?;
        let entries = fitting(entries, command, base != command)?;
        let mut draft = WorkDraft::new(command);
        for entry in &entries {
            let set = draft.set(entry.key.value, entry.text.value);
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
    fn treatments(
        &self,
        settings: &[&LevelSetting<'a>],
    ) -> Result<Option<(usize, Treatments)>, Fault> {
        let own = self.base.treatments.iter();
        let of_levels = settings.iter().flat_map(|setting| &setting.treatments);
        let given = Vec::from_iter(own.chain(of_levels).filter(|at| at.value.trim() != "none"));
        let Some(last) = given.last() else {
            return Ok(None);
        };
        let texts: Vec<&str> = given.iter().map(|at| at.value).collect();
        let text = texts.join(",");
        let mut treatments: Treatments = last.map(|_| text.as_str()).read()?;
        let loaded = treatments.load(self.files);
        loaded.map_err(|error| Fault::new(last.offset, error))?;
        Ok(Some((last.offset, treatments)))
    }

    fn place(&self, settings: &[&LevelSetting<'a>]) -> Result<Place, Fault> {
        let mut path = self.base.path.clone();
        for setting in settings.iter().copied().chain(&self.quick) {
            let other = &setting.path;
            let makes_one = other.get("lab").or(other.get("topology")).is_some();
            if path.get("host").is_some() && makes_one {
                let hint = "a real path is as it is, and this level makes one of its own: the file \
                    runs on labs alone";
                return Fault::contradiction(setting.offset, "`lab` or `topology`", hint);
            }
            path.extend(other);
        }
        if let (Some(_), Some(at)) = (path.get("host"), path.get("server_cpu")) {
            let hint = "the endpoint of a real path has the CPUs that it has, and other clients: \
                run it on a lab";
            return Fault::contradiction(at.offset, "`server_cpu`", hint);
        }
        let family = path.get("family").map(|at| at.choice("family", &FAMILIES));
        Ok(Place {
            family: self.family.or(family.transpose()?),
            client_cpu: path.get("client_cpu").map(share).transpose()?,
            server_cpu: path.get("server_cpu").map(share).transpose()?,
            path: self.path(&path)?,
        })
    }

    fn path(&self, path: &PathKeys) -> Result<ExperimentPath, Fault> {
        if let Some(host) = path.get("host") {
            let name = host.value.parse();
            let fault = |error| Fault::new(host.offset, format!("host: {error}"));
            return Ok(ExperimentPath::Host(name.map_err(fault)?));
        }
        if let Some(topology) = path.get("topology") {
            return self.topology(path, topology);
        }
        let fragments: Vec<At<&str>> = path.fragments().collect();
        let text = joined(&fragments);
        let spec = match text.as_str() {
            "" => Ok(PathSpec::default()),
            text => text.parse(),
        };
        let offset = fragments.last().map_or(self.base.offset, |last| last.offset);
        let spec: PathSpec = spec.map_err(|error| {
            let spec = shortened(&text);
            Fault::new(offset, format!("in the spec `{spec}`, {error}"))
        })?;
        let of_topology = ["client", "server", "address"];
        if let Some(at) = of_topology.into_iter().find_map(|key| path.get(key)) {
            let hint = "a path's hosts are client and server; give a `topology`";
            return Fault::contradiction(at.offset, "`client`, `server` and `address`", hint);
        }
        Ok(ExperimentPath::from_spec(spec))
    }

    fn topology(&self, path: &PathKeys, file: At<&str>) -> Result<ExperimentPath, Fault> {
        if let Some(fragment) = path.get("lab") {
            let hint = "a topology has a `spec` for each of its links";
            return Fault::contradiction(fragment.offset, "`lab`", hint);
        }
        let topology = Topology::from_toml(&file_text(file, self.files)?)
            .map_err(|error| Fault::new(file.offset, format!("in the topology, {error}")))?;
        let host = |key: &'static str| {
            let at = path.get(key).unwrap_or(file.map(|_| key));
            if topology.node(at.value).is_some() {
                return Ok(at.value.to_owned());
            }
            let names = topology.nodes.iter().map(|node| node.name.as_str());
            Err(Fault::unknown(at, "host", &names.collect::<Vec<_>>()))
        };
        let (client, server) = (host("client")?, host("server")?);
        let address = path.get("address").map(|at| address(&topology, &server, at));
        Ok(ExperimentPath::Lab {
            name: file.value.to_owned(),
            spec: None,
            address: address.transpose()?,
            topology: Box::new(topology),
            client,
            server,
        })
    }
}

/// The keys of a workload that are a level's, or all cells'.
fn entries_of<'e>(
    level: Option<usize>,
    workload: &'e [KeyText<'_>],
) -> impl Iterator<Item = CellEntry<'e>> {
    let entries = workload.iter();
    entries.map(move |(key, text)| CellEntry { level, key: *key, text: text.as_str() })
}

/// The keys that the command has, each once. Keys that are meant for all cells are left out where
/// they do not fit; of keys that exclude each other, the later ones count.
fn fitting(
    entries: Vec<CellEntry<'_>>,
    command: Command,
    is_other: bool,
) -> Result<Vec<CellEntry<'_>>, Fault> {
    let mut kept: Vec<CellEntry> = Vec::new();
    for entry in entries {
        if !command.keys().contains(&entry.key.value) {
            let mut all = COMMANDS.iter();
            let is_known = all.any(|(_, other)| other.keys().contains(&entry.key.value));
            if entry.level.is_none() && is_other && is_known {
                continue;
            }
            let keys = command.keys();
            let otherwise = format!("its keys are {}", keys.join(", "));
            return Err(Fault::unknown_key(entry.key, "the workload", keys, otherwise));
        }
        let is_extent = |key: &str| EXTENTS.contains(&key);
        let rival = kept.iter().find(|other| {
            let differs = other.key.value != entry.key.value && other.level == entry.level;
            differs && is_extent(other.key.value) && is_extent(entry.key.value)
        });
        if let Some(rival) = rival
            && entry.level.is_some()
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
    kept.retain(|entry| by_time || entry.level.is_some() || entry.key.value != "warm-up");
    Ok(kept)
}

/// The spec that fragments make together. A key takes the place of the same key before it, and one
/// for both directions that of those for one.
fn joined<'a>(fragments: &[At<&'a str>]) -> String {
    let mut entries: Vec<(&str, &str)> = Vec::new();
    for fragment in fragments {
        let keyed = |entry: &'a str| (entry.split('=').next().unwrap_or(entry).trim(), entry);
        let given = parts(fragment.value).filter(|part| !part.trim().is_empty());
        let own = Vec::from_iter(given.map(keyed));
        entries.retain(|(key, _)| {
            let bare = key.trim_start_matches("up.").trim_start_matches("down.");
            !own.iter().any(|(other, _)| other == key || *other == bare)
        });
        entries.extend(own);
    }
    let texts: Vec<&str> = entries.iter().map(|(_, entry)| *entry).collect();
    texts.join(",")
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
    let hint = "write 198.18.5.1 or 2001:2::1";
    let address: IpAddr = at.parsed("address", hint, |_| true)?;
    let interfaces = topology.node(server).into_iter().flat_map(|node| &node.interfaces);
    let mut own = interfaces.flat_map(|interface| &interface.addresses);
    if own.any(|own| own.address == address) {
        Ok(address)
    } else {
        let what = format!("`{}`", at.value);
        Fault::contradiction(at.offset, what, "the server does not have it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(fragments: &[&str]) -> String {
        let fragments = fragments.iter().map(|text| At::new(0, *text));
        joined(&fragments.collect::<Vec<_>>())
    }

    #[test]
    fn a_fragment_replaces_its_own_keys_and_adds_the_others() {
        let base = "rate=10mbit,rtt=29ms,loss=ge(1%,20%)";
        assert_eq!(spec(&[base]), base);
        assert_eq!(spec(&[base, "loss=0.5%,hops=1"]), "rate=10mbit,rtt=29ms,loss=0.5%,hops=1");
        assert_eq!(spec(&[base, "", "rtt=1ms"]), "rate=10mbit,loss=ge(1%,20%),rtt=1ms");
    }

    #[test]
    fn a_key_for_both_directions_replaces_the_key_of_one() {
        assert_eq!(spec(&["up.loss=1%,down.rate=1mbit", "loss=2%"]), "down.rate=1mbit,loss=2%");
        assert_eq!(spec(&["loss=2%", "up.loss=1%"]), "loss=2%,up.loss=1%");
    }
}
