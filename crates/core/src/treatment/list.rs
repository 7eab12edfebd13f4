//! Treatments as people write them, `mss=536,server.tso=off`, and the two sides of a comparison.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change::{DeviceSetting, HostChange, TreatmentError, read_sysctl};
use super::table::{Entry, Scope, Setting, entry_of, find};
use crate::plan::End;
use crate::units::shortened;
use crate::value::{MAX_POLICY_BYTES, MAX_REMOTE_POLICY_BYTES, QosPolicy, Value, ValueKind};

/// Largest number of treatments on one side, and in a message to an endpoint.
const MAX_TREATMENTS: usize = 32;

/// One treatment with its value.
#[derive(Debug, Clone)]
pub struct Treatment {
    entry: &'static Entry,
    /// The end as written. If none is: both ends for a socket, the client for anything else.
    end: Option<End>,
    /// The key, if it is a kernel setting.
    key: Option<String>,
    value: Value,
    /// The value as it was written.
    text: String,
}

/// One side of a comparison: any number of treatments, none by default. It is written and stored as
/// text; two are equal if they do the same, however their values are written.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Treatments(Vec<Treatment>);

impl Treatments {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The treatments, in the order in which they were written.
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
    /// One cannot be read, is empty, or too large for where it is to be applied.
    pub fn load(
        &mut self,
        read: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<(), TreatmentError> {
        for treatment in &mut self.0 {
            let max = if treatment.is_at(End::Server) {
                MAX_REMOTE_POLICY_BYTES
            } else {
                MAX_POLICY_BYTES
            };
            let Value::Policy(QosPolicy::File { name, text }) = &mut treatment.value else {
                continue;
            };
            let fault = |why: String| {
                TreatmentError::new(format!("the policy `{}`: {why}", shortened(name)))
            };
            let found = read(name).map_err(fault)?;
            let bytes = found.len();
            if !(1..=max).contains(&bytes) {
                let why = format!("it has {bytes} bytes; a policy here has 1 to {max}");
                return Err(fault(why));
            }
            *text = found;
        }
        Ok(())
    }

    /// The value of that treatment at an end, if the end has it.
    pub(super) fn value_of(&self, end: End, entry: &'static Entry) -> Option<&Value> {
        let same = |treatment: &&Treatment| treatment.is_at(end) && treatment.entry == entry;
        self.0.iter().find(same).map(|treatment| &treatment.value)
    }

    /// Adds a treatment that a control needs.
    pub(super) fn push(&mut self, treatment: Treatment) -> Result<(), TreatmentError> {
        if self.0.iter().any(|other| other.is_same_thing(&treatment)) {
            return Err(TreatmentError::repeated(&treatment.name()));
        }
        self.0.push(treatment);
        match self.0.len() {
            0..=MAX_TREATMENTS => Ok(()),
            count => Err(TreatmentError::new(format!(
                "{count} treatments are given; at most {MAX_TREATMENTS} may be"
            ))),
        }
    }
}

impl Treatment {
    /// Its entry in the table.
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

    /// The treatment as written, without its value.
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
            (Setting::Sysctl, Some(key)) => Some(HostChange::Sysctl { key: key.clone(), value }),
            (Setting::Qos, _) => match &self.value {
                Value::Policy(policy) => Some(HostChange::Qos(policy.clone())),
                _ => None,
            },
            (Setting::Socket(_), _) | (Setting::Sysctl, None) => None,
        }
    }
}

impl PartialEq for Treatment {
    /// Equal if both set the same thing at the same ends to the same value.
    fn eq(&self, other: &Self) -> bool {
        let ends = [End::Client, End::Server];
        self.entry == other.entry
            && self.key == other.key
            && self.value == other.value
            && ends.iter().all(|end| self.is_at(*end) == other.is_at(*end))
    }
}

impl PartialEq for Treatments {
    /// Whether both have the same treatments, in any order; no treatment occurs twice.
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().all(|one| other.0.contains(one))
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
        check_exclusions(&treatments)?;
        Ok(treatments)
    }
}

impl FromStr for Treatment {
    type Err = TreatmentError;

    fn from_str(text: &str) -> Result<Self, TreatmentError> {
        let malformed = |why| TreatmentError::new(format!("`{}`: {why}", shortened(text)));
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
        let keyed = name.split_once(':');
        let (name, key) = keyed.map_or((name, None), |(name, key)| (name, Some(key)));
        let entry = find(name)?;
        check_end(entry, end)?;
        let written = written.trim();
        let (value, key) = match (entry.setting, key) {
            (Setting::Sysctl, Some(key)) => (read_sysctl(key, written)?, Some(key.to_owned())),
            (Setting::Sysctl, None) => {
                return Err(malformed("write the key, as in sysctl:net.ipv4.tcp_sack=0"));
            }
            (_, Some(_)) => return Err(malformed("only `sysctl` has a key after a colon")),
            (_, None) => (entry.read(written)?, None),
        };
        // Several numbers are separated by white space, which is written as one blank.
        let text = written.split_ascii_whitespace().collect::<Vec<_>>();
        Ok(Self { entry, end, key, value, text: text.join(" ") })
    }
}

fn split_end(name: &str) -> (Option<End>, &str) {
    let mut ends = [End::Client, End::Server].into_iter();
    let found = ends.find_map(|end| {
        let rest = name.strip_prefix(&end.to_string())?.strip_prefix('.')?;
        Some((Some(end), rest))
    });
    found.unwrap_or((None, name))
}

/// Socket options belong to the whole test; each end applies those that concern it.
fn check_end(entry: &'static Entry, end: Option<End>) -> Result<(), TreatmentError> {
    let Some(end) = end else { return Ok(()) };
    let refused = |why| {
        let name = format!("{end}.{}", entry.name);
        Err(TreatmentError::refused(&name, why))
    };
    let is_source = entry.value == ValueKind::Address;
    match (is_source, entry.scope, end) {
        (true, _, End::Server) => {
            refused("an endpoint answers from the address at which it was asked")
        }
        (false, Scope::Socket, _) => refused(
            "the options of sockets hold at both ends, each of which takes what concerns it; leave \
             the end out",
        ),
        _ => Ok(()),
    }
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name(), self.text)
    }
}

impl fmt::Display for Treatments {
    /// The text as it was written; `none` for no treatments.
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

// The two sides of a comparison, and the control with which a treatment changes only what its name
// says.

/// The two sides of a comparison, with their controls.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Side A.
    pub a: Treatments,
    /// Side B.
    pub b: Treatments,
    /// What was added to the sides and why, in whole sentences for the record.
    pub notes: Vec<String>,
}

/// Checks both sides and adds their controls. Where only one side switches checksum offload off,
/// both sides get segmentation offload switched off, because Linux switches it off with checksum
/// offload. Two equal sides are no error: that compares a thing with itself.
///
/// # Errors
/// The control contradicts a treatment that was given, such as `tso=on` beside `checksum_offload`.
pub fn pair(a: &Treatments, b: &Treatments) -> Result<Pair, TreatmentError> {
    let mut made = Pair { a: a.clone(), b: b.clone(), notes: Vec::new() };
    if a == b {
        let note = "Both sides are treated alike: what differs is chance.";
        made.notes.push(note.to_owned());
    }
    for end in [End::Client, End::Server] {
        made.control_checksums(end)?;
    }
    check_exclusions(&made.a)?;
    check_exclusions(&made.b)?;
    Ok(made)
}

impl Pair {
    fn control_checksums(&mut self, end: End) -> Result<(), TreatmentError> {
        let checksums = entry_of(Setting::Device(DeviceSetting::ChecksumOffload));
        if self.a.value_of(end, checksums) == self.b.value_of(end, checksums) {
            return Ok(());
        }
        let mut added = Vec::new();
        for setting in CONTROLS {
            let entry = entry_of(Setting::Device(setting));
            for side in [&mut self.a, &mut self.b] {
                match side.value_of(end, entry) {
                    Some(Value::Switch(false)) => continue,
                    Some(_) => {
                        let why = "comparing checksums needs segmentation off on both sides: \
                            Linux switches it off together with them";
                        let on = format!("{}=on", entry.name);
                        return Err(TreatmentError::excluded(checksums.name, on, why));
                    }
                    None => side.push(Treatment::of_device(entry, end, false))?,
                }
                added.push(entry.name);
            }
        }
        added.dedup();
        if !added.is_empty() {
            self.notes.push(format!(
                "On the {end}'s device {} off on both sides: Linux switches segmentation offload \
                 off together with checksum offload, and its cost would be taken for that of the \
                 checksum.",
                match added.as_slice() {
                    [one] => format!("{one} is"),
                    several => format!("{} are", several.join(", ")),
                }
            ));
        }
        Ok(())
    }
}

/// The settings that Linux switches with checksum offload, and the stack's own segmentation, which
/// would replace segmentation by the device.
const CONTROLS: [DeviceSetting; 3] = [DeviceSetting::Tso, DeviceSetting::Uso, DeviceSetting::Gso];

/// Pairs of treatments that exclude each other at one end, and the reason. The names are without
/// the end.
type Exclusion = (&'static str, &'static str, fn(&Value, &Value) -> bool, &'static str);

/// # Errors
/// Two treatments of one side exclude each other.
fn check_exclusions(treatments: &Treatments) -> Result<(), TreatmentError> {
    for end in [End::Client, End::Server] {
        let here: Vec<&Treatment> = treatments.iter().filter(|one| one.is_at(end)).collect();
        for (first, second, excludes, why) in EXCLUSIONS {
            let named = |name: &str| here.iter().find(|one| plain_name(one) == name);
            if let (Some(one), Some(other)) = (named(first), named(second))
                && excludes(one.value(), other.value())
            {
                return Err(TreatmentError::excluded(one, other, why));
            }
        }
    }
    Ok(())
}

fn plain_name(treatment: &Treatment) -> &str {
    treatment.key().unwrap_or(treatment.entry().name)
}

fn always(_: &Value, _: &Value) -> bool {
    true
}

fn off_and_on(one: &Value, other: &Value) -> bool {
    (one, other) == (&Value::Switch(false), &Value::Switch(true))
}

fn on_and_any(one: &Value, _: &Value) -> bool {
    *one == Value::Switch(true)
}

fn differ(one: &Value, other: &Value) -> bool {
    one != other
}

fn less_than(one: &Value, other: &Value) -> bool {
    matches!((one, other), (Value::Number(one), Value::Number(other)) if one < other)
}

const NEEDS_CHECKSUMS: &str = "segmentation by the device needs its checksums";
const SOCKET_WINS: &str = "the option of the socket wins, and the setting would do nothing";

const EXCLUSIONS: &[Exclusion] = &[
    ("checksum_offload", "tso", off_and_on, NEEDS_CHECKSUMS),
    ("checksum_offload", "uso", off_and_on, NEEDS_CHECKSUMS),
    ("quickack", "route_quickack", differ, "the route wins, and the option would do nothing"),
    ("source", "route_source", always, "a bound socket does not ask the route for its address"),
    (
        "mtu",
        "route_mtu",
        less_than,
        "the route would send packets that are too large for the device",
    ),
    ("adaptive_rx", "rx_usecs", on_and_any, "a driver that adapts it sets rx_usecs by itself"),
    ("receive_window", "net.ipv4.tcp_rmem", always, SOCKET_WINS),
    ("send_buffer", "net.ipv4.tcp_wmem", always, SOCKET_WINS),
    ("congestion", "net.ipv4.tcp_congestion_control", always, SOCKET_WINS),
    ("busy_poll", "net.core.busy_read", always, SOCKET_WINS),
];
