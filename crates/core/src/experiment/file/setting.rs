//! The settings in `[path]`, `[workload]`, a level and `[quick]`, of which a cell is built.

use super::Choice;
use crate::toml_reader::{At, Fault, Section, Value, text};
use crate::treatment::Treatments;

/// A key, and the text of its value.
pub(super) type KeyText<'a> = (At<&'a str>, At<String>);

/// The keys of a path and a workload, before they are merged with others'.
#[derive(Debug, Clone, Default)]
pub(super) struct Setting<'a> {
    /// The place in the file.
    pub(super) offset: usize,
    pub(super) workload: Vec<KeyText<'a>>,
    pub(super) path: PathSetting<'a>,
    pub(super) treatments: Option<At<&'a str>>,
}

/// Keys of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct PathSetting<'a> {
    /// The fragments of a spec, in order.
    pub(super) lab: Vec<At<String>>,
    pub(super) topology: Option<At<&'a str>>,
    pub(super) client: Option<At<&'a str>>,
    pub(super) server: Option<At<&'a str>>,
    pub(super) address: Option<At<&'a str>>,
    pub(super) host: Option<At<String>>,
    pub(super) family: Option<At<&'a str>>,
    pub(super) client_cpu: Option<At<&'a str>>,
    pub(super) server_cpu: Option<At<&'a str>>,
}

impl<'a> Setting<'a> {
    /// What the file sets for all cells, with the path that the user chose in its place.
    pub(super) fn of_file(root: &Section<'a>, choice: &Choice) -> Result<Self, Fault> {
        let path = root.section("path", "[path]", PATH_KEYS)?;
        let offset = path.as_ref().map_or(0, |path| path.offset);
        let mut path = path.map_or(Ok(PathSetting::default()), |section| {
            let host = section.string("host")?;
            Ok::<_, Fault>(PathSetting {
                host: host.map(|at| at.map(str::to_owned)),
                ..PathSetting::read(&section)?
            })
        })?;
        if choice.host.is_some() || choice.lab.is_some() {
            let at = |text: &String| At {
                offset,
                value: text.clone(),
            };
            path = PathSetting {
                lab: choice.lab.iter().map(at).collect(),
                host: choice.host.as_ref().map(|host| at(&host.to_string())),
                family: path.family,
                ..PathSetting::default()
            };
        }
        path.check_kind(offset)?;
        Ok(Self {
            offset,
            workload: workload(root)?,
            path,
            treatments: treatments(root)?,
        })
    }

    /// Reads the settings of `[[factor.level]]`.
    pub(super) fn of_level(section: &Section<'a>) -> Result<Self, Fault> {
        Ok(Self {
            offset: section.offset,
            workload: workload(section)?,
            path: PathSetting::read(section)?,
            treatments: treatments(section)?,
        })
    }

    /// Reads the settings of `[quick]`.
    pub(super) fn of_quick(section: Option<&Section<'a>>) -> Result<Option<Self>, Fault> {
        let Some(section) = section else {
            return Ok(None);
        };
        Ok(Some(Self {
            offset: section.offset,
            workload: workload(section)?,
            path: PathSetting {
                lab: fragments(section)?,
                ..PathSetting::default()
            },
            treatments: None,
        }))
    }
}

impl<'a> PathSetting<'a> {
    fn read(section: &Section<'a>) -> Result<Self, Fault> {
        Ok(Self {
            lab: fragments(section)?,
            topology: section.string("topology")?,
            client: section.string("client")?,
            server: section.string("server")?,
            address: section.string("address")?,
            host: None,
            family: section.string("family")?,
            client_cpu: section.string("client_cpu")?,
            server_cpu: section.string("server_cpu")?,
        })
    }

    /// Checks that a path has only one of a lab, a topology and a host.
    fn check_kind(&self, offset: usize) -> Result<(), Fault> {
        let named = [self.topology.is_some(), self.host.is_some()];
        let given = named.into_iter().chain([!self.lab.is_empty()]);
        match given.filter(|is_given| *is_given).count() {
            0 | 1 => Ok(()),
            _ => Fault::contradiction(offset, "[path]", "give one of `lab`, `topology` and `host`"),
        }
    }

    /// These keys, replaced by those of `over`.
    pub(super) fn merged(&self, over: &Self) -> Self {
        let mut lab = match over.topology {
            Some(_) => Vec::new(),
            None => self.lab.clone(),
        };
        lab.extend(over.lab.iter().cloned());
        Self {
            lab,
            topology: over.topology.or(self.topology),
            client: over.client.or(self.client),
            server: over.server.or(self.server),
            address: over.address.or(self.address),
            host: over.host.clone().or_else(|| self.host.clone()),
            family: over.family.or(self.family),
            client_cpu: over.client_cpu.or(self.client_cpu),
            server_cpu: over.server_cpu.or(self.server_cpu),
        }
    }
}

fn fragments(section: &Section<'_>) -> Result<Vec<At<String>>, Fault> {
    let lab = section.string("lab")?;
    Ok(lab.map(|at| at.map(str::to_owned)).into_iter().collect())
}

/// The keys of a workload with the texts of their values, in the order of the file.
pub(super) fn workload<'a>(section: &Section<'a>) -> Result<Vec<KeyText<'a>>, Fault> {
    let entries = section.entries("workload")?;
    let entry = |(key, value): (At<&'a str>, &Value<'a>)| Ok((key, text(key.value, value)?));
    entries.into_iter().map(entry).collect()
}

/// Reads and checks treatments, so that an error names their place.
fn treatments<'a>(section: &Section<'a>) -> Result<Option<At<&'a str>>, Fault> {
    let Some(at) = section.string("treatments")? else {
        return Ok(None);
    };
    match at.value.parse::<Treatments>() {
        Ok(_) => Ok(Some(at)),
        Err(error) => Err(Fault::new(at.offset, error)),
    }
}

const PATH_KEYS: &str = "lab topology client server address host family client_cpu server_cpu";
