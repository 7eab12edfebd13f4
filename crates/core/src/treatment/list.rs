//! Treatments as people write them: `mss=536,server.tso=off`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change::HostChange;
use super::error::TreatmentError;
use super::exclusions;
use super::sysctl;
use super::table::{Entry, Scope, Setting, find};
use crate::plan::End;
use crate::units::shortened;
use crate::value::{MAX_POLICY_BYTES, MAX_REMOTE_POLICY_BYTES, QosPolicy, Value, ValueKind};

/// Treatments of one side at most; as many travel to an endpoint at once.
pub const MAX_TREATMENTS: usize = 32;

/// One treatment with its value.
#[derive(Debug, Clone)]
pub struct Treatment {
    entry: &'static Entry,
    /// As written; without it, both ends for a socket and the client for anything else.
    end: Option<End>,
    /// Of a kernel setting.
    key: Option<String>,
    value: Value,
    /// The value as it was written.
    text: String,
}

/// One side of a comparison: any number of treatments, none by default. It is written and stored as
/// text; two are equal if they do the same, however their values are written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Treatments(Vec<Treatment>);

impl Treatments {
    /// Nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them, as they were written.
    pub fn iter(&self) -> impl Iterator<Item = &Treatment> {
        self.0.iter()
    }

    /// What is to be changed on the host of one end, in the order in which it was written: devices,
    /// routes and kernel settings.
    pub fn host_changes(&self, end: End) -> Vec<HostChange> {
        let here = self.0.iter().filter(|treatment| treatment.is_at(end));
        here.filter_map(Treatment::host_change).collect()
    }

    /// Reads the files that treatments name; `read` gives the text of one, or says why it cannot be
    /// read.
    ///
    /// # Errors
    /// [`TreatmentError::File`]: it cannot be read, is empty, or too large for where it is to be
    /// applied.
    pub fn load(
        &mut self,
        read: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<(), TreatmentError> {
        for treatment in &mut self.0 {
            let most = if treatment.is_at(End::Server) {
                MAX_REMOTE_POLICY_BYTES
            } else {
                MAX_POLICY_BYTES
            };
            let Value::Policy(QosPolicy::File { name, text }) = &mut treatment.value else {
                continue;
            };
            let fault = |why: String| TreatmentError::File {
                name: shortened(name),
                why,
            };
            let found = read(name).map_err(fault)?;
            if !(1..=most).contains(&found.len()) {
                return Err(fault(format!(
                    "it has {} bytes; a policy here has 1 to {most}",
                    found.len()
                )));
            }
            *text = found;
        }
        Ok(())
    }

    /// Whether the end has that treatment, and its value.
    pub(super) fn value_of(&self, end: End, entry: &'static Entry) -> Option<&Value> {
        let same = |treatment: &&Treatment| treatment.is_at(end) && treatment.entry == entry;
        self.0.iter().find(same).map(|treatment| &treatment.value)
    }

    /// Adds what a control needs.
    pub(super) fn push(&mut self, treatment: Treatment) -> Result<(), TreatmentError> {
        if self.0.iter().any(|other| other.is_same_thing(&treatment)) {
            let name = treatment.name();
            return Err(TreatmentError::Repeated { name });
        }
        self.0.push(treatment);
        match self.0.len() {
            0..=MAX_TREATMENTS => Ok(()),
            count => Err(TreatmentError::TooMany { count }),
        }
    }
}

impl Treatment {
    /// What the table says of it.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// Its value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Whether it concerns that end.
    pub fn is_at(&self, end: End) -> bool {
        match (self.end, self.entry.scope) {
            (Some(own), _) => own == end,
            (None, Scope::Socket) => true,
            (None, _) => end == End::Client,
        }
    }

    /// A treatment of a device at one end.
    pub(super) fn of_device(entry: &'static Entry, end: End, on: bool) -> Self {
        let value = Value::Switch(on);
        Self {
            entry,
            end: (end == End::Server).then_some(end),
            key: None,
            text: value.to_string(),
            value,
        }
    }

    /// The key of a kernel setting.
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// As written, without its value.
    pub(super) fn name(&self) -> String {
        let end = self.end.map(|end| format!("{end}.")).unwrap_or_default();
        match &self.key {
            Some(key) => format!("{end}{}:{key}", self.entry.name),
            None => format!("{end}{}", self.entry.name),
        }
    }

    fn is_same_thing(&self, other: &Self) -> bool {
        let ends = [End::Client, End::Server];
        self.entry == other.entry
            && self.key == other.key
            && ends.iter().any(|end| self.is_at(*end) && other.is_at(*end))
    }

    fn host_change(&self) -> Option<HostChange> {
        let value = self.value.to_string();
        match (self.entry.setting, &self.key) {
            (Setting::Device(setting), _) => Some(HostChange::Device { setting, value }),
            (Setting::Route(setting), _) => Some(HostChange::Route { setting, value }),
            (Setting::Sysctl, Some(key)) => Some(HostChange::Sysctl {
                key: key.clone(),
                value,
            }),
            (Setting::Qos, _) => match &self.value {
                Value::Policy(policy) => Some(HostChange::Qos(policy.clone())),
                _ => None,
            },
            (Setting::Socket(_), _) | (Setting::Sysctl, None) => None,
        }
    }
}

impl PartialEq for Treatment {
    /// The same thing at the same ends with the same value.
    fn eq(&self, other: &Self) -> bool {
        let ends = [End::Client, End::Server];
        self.entry == other.entry
            && self.key == other.key
            && self.value == other.value
            && ends.iter().all(|end| self.is_at(*end) == other.is_at(*end))
    }
}

impl PartialEq for Treatments {
    /// The same treatments, in any order; none is there twice.
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().all(|one| other.0.contains(one))
    }
}

impl JsonSchema for Treatments {
    fn schema_name() -> Cow<'static, str> {
        "Treatments".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string"})
    }
}

impl FromStr for Treatments {
    type Err = TreatmentError;

    /// `none`, or `NAME=VALUE` with commas between.
    fn from_str(text: &str) -> Result<Self, TreatmentError> {
        let mut treatments = Self::default();
        if text.trim() == NONE {
            return Ok(treatments);
        }
        for part in text.split(',') {
            treatments.push(part.trim().parse()?)?;
        }
        exclusions::check(&treatments)?;
        Ok(treatments)
    }
}

impl FromStr for Treatment {
    type Err = TreatmentError;

    fn from_str(text: &str) -> Result<Self, TreatmentError> {
        let malformed = |why| TreatmentError::Malformed {
            text: shortened(text),
            why,
        };
        if text.is_empty() {
            return Err(malformed("write `none` for nothing"));
        }
        let Some((name, written)) = text.split_once('=') else {
            return Err(malformed(match text {
                NONE => "it means that there is none, and stands alone",
                _ => "write NAME=VALUE, with commas between several, or `none`",
            }));
        };
        if name.trim().is_empty() {
            return Err(malformed("a name belongs before the `=`"));
        }
        let (end, name) = split_end(name.trim());
        let (name, key) = match name.split_once(':') {
            Some((name, key)) => (name, Some(key)),
            None => (name, None),
        };
        let entry = find(name)?;
        check_end(entry, end)?;
        let written = written.trim();
        let (value, key) = match (entry.setting, key) {
            (Setting::Sysctl, Some(key)) => (sysctl::read(key, written)?.1, Some(key.to_owned())),
            (Setting::Sysctl, None) => {
                return Err(malformed("write the key, as in sysctl:net.ipv4.tcp_sack=0"));
            }
            (_, Some(_)) => return Err(malformed("only `sysctl` has a key after a colon")),
            (_, None) => (read_value(entry, written)?, None),
        };
        // Blanks of any width stand between several numbers: one of them in the text.
        let text = written.split_ascii_whitespace().collect::<Vec<_>>();
        Ok(Self {
            entry,
            end,
            key,
            value,
            text: text.join(" "),
        })
    }
}

fn split_end(name: &str) -> (Option<End>, &str) {
    let ends = [End::Client, End::Server];
    ends.into_iter()
        .find_map(|end| {
            let rest = name.strip_prefix(&end.to_string())?.strip_prefix('.')?;
            Some((Some(end), rest))
        })
        .unwrap_or((None, name))
}

/// The options of sockets are those of a whole test, and each end takes what concerns it.
fn check_end(entry: &'static Entry, end: Option<End>) -> Result<(), TreatmentError> {
    let Some(end) = end else { return Ok(()) };
    let refused = |why| {
        Err(TreatmentError::Refused {
            name: format!("{end}.{}", entry.name),
            why,
        })
    };
    let is_source = entry.value == ValueKind::Address;
    match (is_source, entry.scope, end) {
        (true, _, End::Server) => {
            refused("an endpoint answers from the address at which it was asked")
        }
        (true, _, End::Client) => Ok(()),
        (false, Scope::Socket, _) => refused(
            "the options of sockets hold at both ends, each of which takes what concerns it; leave \
             the end out",
        ),
        (false, _, _) => Ok(()),
    }
}

fn read_value(entry: &'static Entry, text: &str) -> Result<Value, TreatmentError> {
    entry.value.read(text).map_err(|_| TreatmentError::Value {
        name: entry.name.to_owned(),
        value: shortened(text),
        wanted: entry.value.to_string(),
    })
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name(), self.text)
    }
}

impl fmt::Display for Treatments {
    /// As written; `none` for nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str(NONE);
        }
        let texts: Vec<_> = self.0.iter().map(Treatment::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl TryFrom<String> for Treatments {
    type Error = TreatmentError;

    fn try_from(text: String) -> Result<Self, TreatmentError> {
        text.parse()
    }
}

impl From<Treatments> for String {
    fn from(treatments: Treatments) -> Self {
        treatments.to_string()
    }
}

const NONE: &str = "none";
