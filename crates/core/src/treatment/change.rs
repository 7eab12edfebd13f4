//! One change of a host: what travels to an endpoint, and what the engine applies. Also the kernel
//! settings that a change may set, the end at which treatments act, and the errors of treatments.

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::table::{Scope, Setting, acts_words, entry_of};
use super::{Pair, Treatment};
use crate::plan::{Direction, End, PlanError, Role, Test, Traffic};
use crate::toml_reader;
use crate::units::{Caveat, CaveatKind, shortened, suggestion};
use crate::value::{MAX_POLICY_BYTES, QosPolicy, Value, ValueKind};

/// A setting of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceSetting {
    /// Checksum offload for sent packets, and for received ones where the device has it.
    ChecksumOffload,
    /// Segmentation of TCP data by the device.
    Tso,
    /// Segmentation of UDP data by the device.
    Uso,
    /// Segmentation by the stack.
    Gso,
    /// Merging of received segments by the stack.
    Gro,
    /// The largest IP packet.
    Mtu,
    /// The delay of a received packet's interrupt.
    RxUsecs,
    /// Whether the driver adapts that delay to the load.
    AdaptiveRx,
}

/// A setting of the route to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteSetting {
    /// The largest IP packet.
    Mtu,
    /// The MSS to advertise.
    Advmss,
    /// Acknowledging every segment at once.
    Quickack,
    /// The source address.
    Source,
}

/// One change of a host; it travels on the wire and stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum HostChange {
    /// A setting of the device that leads to the peer.
    Device {
        /// The setting.
        setting: DeviceSetting,
        /// `on`, `off` or a number.
        value: String,
    },
    /// A setting of the route to the peer.
    Route {
        /// The setting.
        setting: RouteSetting,
        /// `on`, `off`, a number or an address.
        value: String,
    },
    /// A kernel setting.
    Sysctl {
        /// Its key, as sysctl(8) writes it.
        key: String,
        /// The value as the kernel writes it.
        value: String,
    },
    /// The DiffServ policy of the device that leads to the peer.
    Qos(QosPolicy),
}

impl HostChange {
    /// Checks that the table has the setting and accepts the value. An endpoint calls this for
    /// changes that a client asks for.
    ///
    /// # Errors
    /// The key is not in the table; the value is of another kind or out of range.
    pub fn check(&self) -> Result<(), TreatmentError> {
        self.value().map(drop)
    }

    /// The parsed value.
    ///
    /// # Errors
    /// As [`HostChange::check`].
    pub fn value(&self) -> Result<Value, TreatmentError> {
        let (setting, text) = match self {
            Self::Sysctl { key, value } => return read_sysctl(key, value),
            Self::Device { setting, value } => (Setting::Device(*setting), value),
            Self::Route { setting, value } => (Setting::Route(*setting), value),
            Self::Qos(policy) => return complete(policy),
        };
        entry_of(setting).read(text)
    }
}

impl fmt::Display for HostChange {
    /// In the notation of a treatment: `tso=off`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { setting, value } => write!(f, "{setting}={value}"),
            Self::Route { setting, value } => write!(f, "{setting}={value}"),
            Self::Sysctl { key, value } => write!(f, "sysctl:{key}={value}"),
            Self::Qos(policy) => write!(f, "{}={policy}", entry_of(Setting::Qos).name),
        }
    }
}

impl fmt::Display for DeviceSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(entry_of(Setting::Device(*self)).name)
    }
}

impl fmt::Display for RouteSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(entry_of(Setting::Route(*self)).name)
    }
}

/// A text that is no treatment, treatments that cannot be applied as they stand (nothing was
/// changed then), or one that had no effect.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TreatmentError {
    /// A text that is no treatment, or treatments that cannot be applied as they stand.
    #[error("{0}")]
    Invalid(String),
    /// The test has the option already, on both sides.
    #[error(
        "`{name}` is set for all runs already: give it as a treatment or as an option, not as both"
    )]
    Given {
        /// The treatment.
        name: &'static str,
    },
    /// The record of a run shows something else than was asked for.
    #[error("`{treatment}` did not take: the run had {found}: {why}")]
    NotTaken {
        /// The treatment.
        treatment: String,
        /// What the record shows.
        found: String,
        /// What may be the reason.
        why: &'static str,
    },
    /// With the treatment the test is outside its limits.
    #[error(transparent)]
    Test(#[from] PlanError),
}

impl TreatmentError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// A treatment that is given twice for one end.
    pub fn repeated(name: &str) -> Self {
        Self::new(format!("`{name}` is given twice"))
    }

    /// A treatment that is known, and refused.
    pub(super) fn refused(name: &str, why: &str) -> Self {
        Self::new(format!("`{name}` is refused: {why}"))
    }

    /// A value of another kind than `wanted`, or out of its range.
    pub(super) fn value(name: &str, value: &str, wanted: impl Display) -> Self {
        let value = shortened(value);
        Self::new(format!("`{name}={value}`: it must be {wanted}"))
    }

    /// Two treatments of one side that exclude each other.
    pub(super) fn excluded(one: impl Display, other: impl Display, why: &str) -> Self {
        Self::new(format!("`{one}` and `{other}` exclude each other: {why}"))
    }

    /// A test whose traffic does not have what is treated.
    pub(super) fn unfit(name: &str, why: &str) -> Self {
        Self::new(format!("`{name}` does not fit this test: {why}"))
    }
}

fn complete(policy: &QosPolicy) -> Result<Value, TreatmentError> {
    if policy.is_complete() {
        Ok(Value::Policy(policy.clone()))
    } else {
        let wanted = format!("a policy's file that was read, of 1 to {MAX_POLICY_BYTES} bytes");
        let name = entry_of(Setting::Qos).name;
        Err(TreatmentError::value(name, &policy.to_string(), wanted))
    }
}

/// The address of a [`RouteSetting::Source`], if the change is one.
pub(super) fn source_of(change: &HostChange) -> Option<IpAddr> {
    match change {
        HostChange::Route { setting: RouteSetting::Source, value } => value.parse().ok(),
        _ => None,
    }
}

// The kernel settings that a treatment may change (`sysctls.toml`).

/// A kernel setting.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Sysctl {
    /// The key; a `*` in it stands for the name of a device.
    pub key: &'static str,
    /// The accepted values.
    pub value: ValueKind,
    /// Its effect.
    pub means: &'static str,
    /// The end of the payload at which it acts, if it is only one.
    pub acts: Option<Role>,
    /// Whether it changes mainly CPU time.
    #[serde(default)]
    pub costs_cpu: bool,
    /// What else changes with it, if anything.
    pub changes_also: Option<&'static str>,
}

/// The kernel settings that a treatment may change, by key.
///
/// They are those of `net.*` that decide what a transfer gets or costs. Other settings are refused,
/// at this host and at an endpoint: a setting that outlives its comparison, opens the host to
/// others or removes routes cannot be a treatment.
pub fn sysctls() -> &'static [Sysctl] {
    &SYSCTLS
}

/// The entry of a key; `None` if a treatment may not change it.
pub fn sysctl_of(key: &str) -> Option<&'static Sysctl> {
    SYSCTLS.iter().find(|entry| entry.matches(key))
}

/// The value that `text` is for a kernel setting.
///
/// # Errors
/// The key is not in the list; the value is of another kind or out of range.
pub(super) fn read_sysctl(key: &str, text: &str) -> Result<Value, TreatmentError> {
    let entry = sysctl_of(key).ok_or_else(|| {
        let (key, hint) = (shortened(key), hint(key));
        TreatmentError::new(format!(
            "the kernel setting `{key}` is not among those that a treatment may change; {hint}"
        ))
    })?;
    let read = entry.value.read(text);
    read.map_err(|_| TreatmentError::value(key, text, entry.value))
}

impl Sysctl {
    fn matches(&self, key: &str) -> bool {
        match self.key.split_once('*') {
            None => self.key == key,
            Some((before, after)) => key
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after))
                .is_some_and(is_device),
        }
    }
}

/// The name of one device, and not `all` or `default`, which stand for others. In a key a slash
/// stands for the dot of a name (sysctl(8)).
fn is_device(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/@".contains(&byte);
    // IFNAMSIZ is 16 with the terminating zero.
    (1..16).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('/')
        && !["all", "default"].contains(&name)
}

fn hint(key: &str) -> String {
    let keys = SYSCTLS.iter().map(|entry| entry.key);
    suggestion(key, keys).unwrap_or_else(|| {
        let count = SYSCTLS.len();
        format!("there are {count} of net.core, net.ipv4, net.ipv6 and net.mptcp")
    })
}

static SYSCTLS: LazyLock<Vec<Sysctl>> =
    LazyLock::new(|| toml_reader::entries(include_str!("sysctls.toml")));

// The end of the payload at which treatments act, which decides what a comparison can show.

impl Treatment {
    /// The end of the payload at which the treatment acts, if it acts at one end only.
    fn acts(&self) -> Option<Role> {
        match self.entry().setting {
            Setting::Sysctl => sysctl_of(self.key()?)?.acts,
            _ => self.entry().acts,
        }
    }

    fn costs_cpu(&self) -> bool {
        let setting = self.key().and_then(sysctl_of);
        setting.map_or(self.entry().costs_cpu, |setting| setting.costs_cpu)
    }

    /// The caveat of a treatment at an end where it has no effect on the test.
    fn misplaced(&self, direction: Direction) -> Option<Caveat> {
        let acts = self.acts()?;
        let right = acts.end(direction);
        let is_host = self.entry().scope != Scope::Socket;
        if !is_host || self.is_at(right) {
            return None;
        }
        let name = self.name();
        let bare = name.trim_start_matches("client.").trim_start_matches("server.");
        let (whose, does) = match (right, acts) {
            (End::Server, Role::Receiver) => ("this host", "sends"),
            (End::Server, Role::Sender) => ("this host", "receives"),
            (End::Client, Role::Receiver) => ("the endpoint's host", "sends"),
            (End::Client, Role::Sender) => ("the endpoint's host", "receives"),
        };
        let other = match right {
            End::Server => format!("server.{bare}"),
            End::Client => bare.to_owned(),
        };
        let turned = match direction {
            Direction::Down => "leave -R out",
            Direction::Up | Direction::Both => "use -R",
        };
        Some(Caveat::new(
            CaveatKind::Misplaced,
            format!("{bare} acts {}, and {whose} {does}", acts_words(Some(acts))),
            format!("{turned}, or give {other}"),
        ))
    }
}

impl Pair {
    /// The treatments in which the two sides differ.
    fn differing(&self) -> impl Iterator<Item = &Treatment> {
        let sides = [(&self.a, &self.b), (&self.b, &self.a)];
        sides.into_iter().flat_map(|(one, other)| {
            one.iter().filter(move |it| !other.iter().any(|same| same == *it))
        })
    }

    /// Caveats for treatments in which the sides differ but which are at an end where they change
    /// almost nothing. With requests and responses both ends send and receive.
    pub fn misplaced(&self, test: &Test) -> Vec<Caveat> {
        if !matches!(test.traffic, Traffic::Stream(_)) || test.direction == Direction::Both {
            return Vec::new();
        }
        let differing = self.differing();
        let mut found = Vec::from_iter(differing.filter_map(|it| it.misplaced(test.direction)));
        found.dedup();
        found
    }

    /// The figures to compare beside the rate where the sides differ in CPU cost: the CPU time of
    /// threads and soft interrupts at the ends concerned.
    pub fn cpu_figures(&self) -> Vec<&'static str> {
        let concerns = |role: Role| {
            let mut costly = self.differing().filter(|it| it.costs_cpu());
            costly.any(|it| it.acts().is_none_or(|acts| acts == role))
        };
        let paths = [(Role::Sender, SENDER_CPU), (Role::Receiver, RECEIVER_CPU)];
        Vec::from_iter(paths.into_iter().filter(|it| concerns(it.0)).map(|(_, path)| path))
    }
}

const SENDER_CPU: &str = "sender.service_demand_threads_us_per_kib";
const RECEIVER_CPU: &str = "receiver.service_demand_threads_us_per_kib";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatment::pair;

    fn sides(a: &str, b: &str) -> Pair {
        pair(&a.parse().unwrap(), &b.parse().unwrap()).unwrap()
    }

    fn said(pair: &Pair) -> Vec<String> {
        let found = pair.misplaced(&stream(Direction::Up)).into_iter();
        found.map(|caveat| format!("{}: {}", caveat.message, caveat.remedy)).collect()
    }

    fn stream(direction: Direction) -> Test {
        Test::stream().direction(direction).resolve(1).unwrap()
    }

    #[test]
    fn a_treatment_at_the_end_that_it_does_not_concern_says_where_it_belongs() {
        let gro = sides("gro=on", "gro=off");
        assert_eq!(
            said(&gro),
            ["gro acts where data is received, and this host sends: use -R, or give server.gro"]
        );
        assert!(gro.misplaced(&stream(Direction::Down)).is_empty());
        assert!(gro.misplaced(&stream(Direction::Both)).is_empty());
        let tso = sides("server.tso=on", "server.tso=off");
        assert_eq!(
            said(&tso),
            ["tso acts where data is sent, and the endpoint's host receives: use -R, or give tso"]
        );
        let window = sides("none", "sysctl:net.ipv4.tcp_rmem=4096 65536 131072");
        assert_eq!(window.misplaced(&stream(Direction::Up)).len(), 1);
        assert!(said(&sides("none", "receive_window=50KiB")).is_empty());
    }

    #[test]
    fn treatments_that_cost_cpu_time_are_compared_by_it_at_their_ends() {
        for (a, b, metrics) in [
            ("gro=on", "gro=off", &[RECEIVER_CPU][..]),
            ("none", "zerocopy=on", &[SENDER_CPU]),
            ("checksum_offload=on", "checksum_offload=off", &[SENDER_CPU, RECEIVER_CPU]),
            ("none", "sysctl:net.core.busy_read=50", &[SENDER_CPU, RECEIVER_CPU]),
            ("none", "mss=536", &[]),
            ("tso=on,mss=1000", "tso=on,mss=536", &[]),
        ] {
            assert_eq!(sides(a, b).cpu_figures(), metrics, "{a} {b}");
        }
    }
}
