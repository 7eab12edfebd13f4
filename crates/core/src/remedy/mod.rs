//! Remedies: the change that lifts a limit, as data, and the command for it.
//!
//! Rules decide a [`Remedy`], and [`Remedy::typed`] writes its command. The command is never read
//! back: a program that applies a remedy uses the data. A record may come from a stranger, and
//! commands are pasted into a shell, so names get into a remedy only as [`Name`]s.

mod command;

use std::fmt;

pub(crate) use command::shell_safe;
pub use command::{CommandLine, Run, Target, host_set, shell_word};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::names::names;
use crate::plan::End;
use crate::units::BitRate;

/// A change that lifts a limit, or a look that shows where it is.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// The end to change; absent if that is not known, or if both ends are on one host.
    pub end: Option<End>,
    /// Further information in words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The shell command, with a comment that tells where to type it. It is not read back: a
    /// stranger's command is not to be pasted.
    #[serde(deserialize_with = "unread")]
    #[schemars(with = "String")]
    pub command: String,
    /// The parts of the command; empty in a remedy that was read.
    #[serde(skip)]
    pub line: CommandLine,
    /// The remedy that must be applied before it.
    pub first: Option<Box<Remedy>>,
}

fn unread<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| String::new())
}

/// The change of a remedy.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// An option of a further run.
    Option {
        /// Its key.
        object: RunOption,
        /// Its new value as typed; absent to leave it out.
        value: Option<String>,
    },
    /// A kernel setting of a host.
    HostSetting {
        /// Its key.
        object: String,
        /// Its new value: one figure, or several separated by blanks.
        value: String,
    },
    /// A metric of the route to the other end.
    RouteMetric {
        /// The metric.
        object: RouteMetric,
        /// Bytes.
        value: u32,
    },
    /// The MTU of a network device.
    DeviceMtu {
        /// The device.
        object: Name,
        /// Bytes.
        value: u32,
    },
    /// A key of a DiffServ policy's file, which is then applied.
    Policy {
        /// Name of the policy, or for `rate` of the adapter; absent for a new policy.
        object: Option<Name>,
        /// The key.
        key: PolicyKey,
        /// Its new value.
        value: BitRate,
    },
    /// The root queueing discipline of a network device.
    Discipline {
        /// The device.
        object: Name,
        /// The discipline.
        value: Discipline,
        /// Maximum rate of the device, so that the queue is in front of it; absent if it is
        /// already.
        rate: Option<BitRate>,
    },
    /// The maximum rate of each flow at a device's `fq`, changed by tc.
    FlowRate {
        /// The device.
        object: Name,
        /// The new maximum.
        value: BitRate,
    },
    /// A class of HTB that is not linerate's, changed by tc.
    TrafficClass {
        /// The class.
        object: Name,
        /// Its device.
        device: Name,
        /// Its guaranteed rate.
        rate: BitRate,
        /// Its maximum rate.
        value: BitRate,
    },
    /// A kernel module that has to be loaded.
    Module {
        /// Its name.
        object: Name,
    },
    /// A limit of the process that runs linerate.
    ProcessLimit {
        /// The limit.
        object: ProcessLimit,
        /// Its new value.
        value: u64,
    },
    /// A socket option of a program that is not linerate.
    Program {
        /// The option that does the same for linerate's own run.
        object: RunOption,
        /// The program, if it is known.
        program: Option<Name>,
        /// Its port.
        port: u16,
        /// Bytes, or a rate; absent to leave it to the kernel.
        value: Option<String>,
    },
    /// No change: a command that shows where the cause is.
    Look {
        /// The object to look at.
        object: LookObject,
    },
}

/// A metric of a route (ip-route(8)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RouteMetric {
    /// The largest IP packet.
    Mtu,
    /// The MSS that is advertised.
    Advmss,
}

/// A key of a policy's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyKey {
    /// Maximum rate of a class.
    Limit,
    /// Guaranteed rate of a class.
    Reserve,
    /// The rate of the link.
    Rate,
    /// The rate of the meter.
    Meter,
}

/// A queueing discipline that keeps its queues short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// A queue for each flow, each with CoDel (RFC 8290).
    FqCodel,
    /// fq_codel with a shaper (tc-cake(8)).
    Cake,
}

/// A limit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessLimit {
    /// `RLIMIT_NOFILE`.
    Descriptors,
    /// Memory of its control group, bytes.
    Memory,
}

/// Something to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LookObject {
    /// The path MTU, router by router.
    PathMtu,
    /// The rules by which routers change the MSS.
    RouterRules,
    /// Packet trains, both directions and the latency under load: a check of the path.
    Path,
    /// The CPU time of both ends by layer.
    CpuTime,
    /// The programs of a host that use its CPUs.
    Programs,
    /// How far the kernel's tuning lets receive buffers grow (`net.ipv4.tcp_rmem`).
    ReceiveBuffers,
    /// How far it lets send buffers grow (`net.ipv4.tcp_wmem`).
    SendBuffers,
    /// A connection of any program.
    #[serde(untagged)]
    Connection {
        /// One of its ports.
        port: u16,
    },
}

/// An option of the command that made the run, or of `linerate serve` at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOption {
    /// Bytes of a write, or of a datagram.
    Size,
    /// Flows.
    Streams,
    /// How long it lasts.
    Time,
    /// Rate of a UDP sender.
    Rate,
    /// Rate at which the application writes.
    WriteRate,
    /// Rate at which the application reads.
    ReadRate,
    /// Both buffers.
    Window,
    /// The window that the receiver may advertise.
    ReceiveWindow,
    /// Buffer of the sender.
    SendBuffer,
    /// The largest segment.
    Mss,
    /// Rate of the sender's pacing.
    Pacing,
    /// Congestion control.
    Congestion,
    /// Connections that the endpoint's owner allows.
    MaxConnections,
    /// Addresses that connections come from.
    Sources,
}

names! {
    /// The key of the option, as its long form has it.
    RunOption::key: Size "size", Streams "streams", Time "time", Rate "rate",
        WriteRate "write-rate", ReadRate "read-rate", Window "window",
        ReceiveWindow "receive-window", SendBuffer "send-buffer", Mss "mss", Pacing "pacing",
        Congestion "congestion", MaxConnections "max-connections", Sources "sources";
}

impl RunOption {
    /// The option as it is typed.
    pub fn flag(self) -> String {
        match self {
            Self::Congestion => "-C".to_owned(),
            Self::Window => "-w".to_owned(),
            _ => format!("--{}", self.key()),
        }
    }
}

/// A name that means nothing to a shell: letters, digits and `.:_-%@[]`, no `-` at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Name(String);

impl Name {
    /// The name; `None` if the text is not one.
    pub fn new(text: &str) -> Option<Self> {
        let harmless = |c: char| c.is_ascii_alphanumeric() || ".:_-%@[]".contains(c);
        let is_name = !text.is_empty() && !text.starts_with('-') && text.chars().all(harmless);
        is_name.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(&text).ok_or_else(|| "a name of letters, digits and .:_-%@[]".to_owned())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl Remedy {
    /// A remedy without a command.
    pub fn new(change: Change, end: Option<End>) -> Self {
        let (reason, command, line) = Default::default();
        Self { change, end, reason, command, line, first: None }
    }

    /// A remedy that gives an option of the run another value.
    pub fn option(object: RunOption, value: impl fmt::Display) -> Self {
        let value = Some(value.to_string());
        Self::new(Change::Option { object, value }, None)
    }

    /// A remedy that leaves an option of the run out.
    pub fn without(object: RunOption) -> Self {
        let value = None;
        Self::new(Change::Option { object, value }, None)
    }

    /// A remedy that changes nothing, and shows where the cause is.
    pub fn look(object: LookObject, end: Option<End>) -> Self {
        Self::new(Change::Look { object }, end)
    }

    /// A remedy that sets a kernel setting.
    pub fn host_setting(end: Option<End>, key: &str, figures: &[u64]) -> Self {
        let words: Vec<String> = figures.iter().map(u64::to_string).collect();
        let (object, value) = (key.to_owned(), words.join(" "));
        Self::new(Change::HostSetting { object, value }, end)
    }

    /// The remedy with further information.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// The remedy after another one.
    pub fn after(mut self, first: Remedy) -> Self {
        self.first = Some(Box::new(first));
        self
    }

    /// Whether it changes something, rather than only showing it.
    pub fn changes(&self) -> bool {
        !matches!(self.change, Change::Look { .. })
    }
}

names! {
    /// The name in ip-route(8).
    RouteMetric::name: Mtu "mtu", Advmss "advmss";
    /// The name in tc(8).
    Discipline::name: FqCodel "fq_codel", Cake "cake";
}

// The size of a socket buffer that fills a path.

/// Buffer with which a connection fills a path that holds `product_bytes` (rate × round-trip time),
/// bytes: twice that, since about half of it is payload (`tcp_win_from_space`, include/net/tcp.h)
/// and a queue wants room; more where less than half of it is known to be. A power of two, as
/// buffers of large transfers are by custom, that the kernel takes.
pub(crate) fn buffer_for(product_bytes: f64, payload_share: Option<f64>) -> u64 {
    let times = payload_share.map_or(2.0, |share| (ROOM / share).max(2.0));
    power_of_two(times * product_bytes)
}

/// A size at least as large that the kernel takes for a buffer.
pub(crate) fn power_of_two(bytes: f64) -> u64 {
    // The cast saturates.
    (bytes.ceil() as u64).clamp(MIN_BUFFER, MAX_BUFFER).next_power_of_two()
}

/// What is in flight over the product of rate and delay: acknowledgements come in batches, and what
/// they free is not filled at once.
const ROOM: f64 = 1.25;
/// Smallest buffer worth asking for, bytes.
const MIN_BUFFER: u64 = 65_536;
/// Largest power of two that the kernel takes for a buffer, bytes.
pub(crate) const MAX_BUFFER: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_in_json_has_kind_end_object_and_value_with_its_command() {
        let figures = [4096, 131_072, 8_388_608];
        let remedy =
            Remedy::host_setting(Some(End::Server), "net.ipv4.tcp_rmem", &figures).typed(None);
        let json = serde_json::to_value(&remedy).unwrap();
        let expected = serde_json::json!({
            "kind": "host_setting",
            "end": "server",
            "object": "net.ipv4.tcp_rmem",
            "value": "4096 131072 8388608",
            "command": "linerate host set net.ipv4.tcp_rmem='4096 131072 8388608'  \
                        # on the endpoint's host",
        });
        assert_eq!(json, expected);
        let read: Remedy = serde_json::from_value(json).unwrap();
        assert_eq!(read.command, "");
        assert_eq!(read.typed(None), remedy);
    }

    #[test]
    fn a_remedys_commands_stand_in_the_order_of_execution() {
        let limit = |end| Remedy::host_setting(Some(end), "net.core.rmem_max", &[7]);
        let option = || Remedy::option(RunOption::ReceiveWindow, 7);
        let here = option().after(limit(End::Client)).typed(None).command;
        assert_eq!(
            here,
            "linerate host set net.core.rmem_max=7 && linerate capacity --receive-window 7"
        );
        let there = option().after(limit(End::Server)).typed(None).command;
        assert!(there.contains("=7  # on the endpoint's host, and then: "), "{there}");
    }

    #[test]
    fn a_command_without_its_reason_keeps_its_place() {
        let setting = |end| Remedy::host_setting(end, "net.ipv4.tcp_sack", &[1]);
        let bare = "linerate host set net.ipv4.tcp_sack=1";
        let alone = |remedy: Remedy| remedy.typed(None).line.with_reason("");
        assert_eq!(alone(setting(None)), bare);
        assert_eq!(alone(setting(None).because("no faster")), bare);
        let there = setting(Some(End::Server)).because("no faster");
        assert_eq!(alone(there), format!("{bare}  # on the endpoint's host"));
    }

    #[test]
    fn a_name_says_nothing_to_a_shell() {
        for text in ["", "-x", "a b", "a;b", "$(reboot)", "a'b", "a\nb", "`a`"] {
            assert_eq!(Name::new(text), None, "{text:?}");
            let json = serde_json::Value::from(text);
            assert!(serde_json::from_value::<Name>(json).is_err(), "{text:?}");
        }
        for text in ["eth0.7", "1:12", "fe80::1%eth0", "[2001:db8::1]", "reno"] {
            assert_eq!(Name::new(text).unwrap().to_string(), text);
        }
    }
}
