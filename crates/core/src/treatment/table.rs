//! The table of treatments. Treatments of sockets are options of a test and come from that table
//! ([`options`]); a new treatment of a host is an entry in `hosts.toml` and code in the engine.

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::change::{DeviceSetting, RouteSetting, TreatmentError, source_of};
use super::list::{Treatment, Treatments};
use crate::plan::{Direction, End, Role, Test, TestOption, options};
use crate::record::{EndReport, FlowRecord, Record, TcpSender};
use crate::toml_reader;
use crate::units::{shortened, suggestion, words};
use crate::value::{Value, ValueKind};

/// The part of a host that a treatment changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The data sockets of a run.
    Socket,
    /// The network device that leads to the peer.
    Device,
    /// The route to the peer.
    Route,
    /// A kernel setting of the host, or of its network namespace.
    Host,
}

/// A treatment: its name and its description.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name. For kernel settings this is `sysctl`; a colon and the key follow.
    pub name: &'static str,
    /// The part of a host that it changes.
    pub scope: Scope,
    /// The accepted values; those of `sysctl` depend on its key.
    pub value: ValueKind,
    /// Its meaning.
    pub means: &'static str,
    /// The end of the payload at which it acts, if it acts at one end only. For `sysctl` each key
    /// has its own.
    pub acts: Option<Role>,
    /// Whether it changes mainly CPU time.
    #[serde(default)]
    pub costs_cpu: bool,
    /// Requirement of the host.
    pub needs: &'static str,
    /// Means by which it is applied.
    pub applied: &'static str,
    /// Means by which it is read back.
    pub read_back: &'static str,
    /// How the previous state is restored.
    pub undone: &'static str,
    /// What else changes with it, if anything.
    pub changes_also: Option<&'static str>,
    #[serde(skip)]
    pub(super) setting: Setting,
}

/// The setting of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Setting {
    Socket(&'static TestOption),
    Device(DeviceSetting),
    Route(RouteSetting),
    #[default]
    Sysctl,
    Qos,
}

impl Entry {
    /// The value that `text` is for this treatment.
    pub(super) fn read(&self, text: &str) -> Result<Value, TreatmentError> {
        let read = self.value.read(text);
        read.map_err(|_| TreatmentError::value(self.name, text, self.value))
    }

    /// The accepted values in words, with their range.
    pub fn range(&self) -> String {
        match self.setting {
            Setting::Sysctl => "what the key takes".to_owned(),
            _ => self.value.to_string(),
        }
    }

    /// Whether iperf3, iproute2, ethtool or the kernel has it under that name.
    fn is_also(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        let aliases = match self.setting {
            Setting::Socket(option) => option.aliases,
            _ => &[],
        };
        aliases.iter().any(|alias| alias.replace('-', "_") == name)
            || elsewhere(self.name).split_whitespace().any(|own| own == name)
    }

    /// What an entry of `hosts.toml` sets, by its name.
    fn host_setting(&self) -> Option<Setting> {
        let name = |name: &'static str| IntoDeserializer::<Error>::into_deserializer(name);
        match (self.scope, self.name) {
            (Scope::Host, "sysctl") => Some(Setting::Sysctl),
            (Scope::Device, "qos") => Some(Setting::Qos),
            (Scope::Device, device) => {
                let setting = DeviceSetting::deserialize(name(device));
                setting.ok().map(Setting::Device)
            }
            (Scope::Route, route) => {
                let setting = RouteSetting::deserialize(name(route.strip_prefix("route_")?));
                setting.ok().map(Setting::Route)
            }
            _ => None,
        }
    }
}

/// Where a treatment acts, in words.
pub fn acts_words(acts: Option<Role>) -> &'static str {
    match acts {
        Some(Role::Sender) => "where data is sent",
        Some(Role::Receiver) => "where data is received",
        None => "at both ends",
    }
}

words! {
    Scope name { "socket" Socket, "device" Device, "route" Route, "host" Host }
}

impl Scope {
    /// The ends to which the scope applies, and the prefix of the other end.
    pub fn ends(self) -> &'static str {
        match self {
            Self::Socket => {
                "at both ends, each of which takes what concerns it (source: the client's)"
            }
            Self::Device | Self::Route | Self::Host => {
                "of this host, or with server. before the name of the endpoint's"
            }
        }
    }
}

/// All treatments, in the order of their scopes.
pub fn table() -> &'static [Entry] {
    &TABLE
}

/// Names that users ask for but that are no treatments, each with the reason.
pub fn refused() -> &'static [(&'static str, &'static str)] {
    REFUSED
}

/// The entry of that name.
///
/// # Errors
/// There is no such treatment, or the name is refused.
pub(super) fn find(name: &str) -> Result<&'static Entry, TreatmentError> {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err(TreatmentError::refused(name, why));
    }
    let found = table().iter().find(|entry| entry.name == name);
    found.ok_or_else(|| {
        let (name, hint) = (shortened(name), hint(name));
        TreatmentError::new(format!("there is no treatment `{name}`; {hint}"))
    })
}

/// The entry of a setting.
pub(super) fn entry_of(setting: Setting) -> &'static Entry {
    let entry = table().iter().find(|entry| entry.setting == setting);
    entry.expect("each setting has its entry, which a test holds")
}

fn hint(name: &str) -> String {
    if name.starts_with("net.") {
        return format!("did you mean `sysctl:{}`?", shortened(name));
    }
    if let Some(entry) = table().iter().find(|entry| entry.is_also(name)) {
        return format!("did you mean `{}`?", entry.name);
    }
    let names: Vec<_> = table().iter().map(|entry| entry.name).collect();
    let listed = || format!("the treatments are {}", names.join(", "));
    suggestion(name, &names).unwrap_or_else(listed)
}

/// The names of a treatment elsewhere, with `_` between words.
fn elsewhere(treatment: &str) -> &'static str {
    match treatment {
        "congestion" => "cc ca cong congctl congestion_control tcp_congestion",
        "receive_window" => "window rwnd rwin rcvbuf receive_buffer so_rcvbuf",
        "send_buffer" => "sndbuf sendbuf send_window so_sndbuf",
        "pacing" => "rate maxrate bitrate pacing_rate",
        "mss" => "segment_size maxseg",
        "nodelay" => "nagle tcp_nodelay",
        "dscp" => "tos dsfield",
        "checksum_offload" => "csum checksum tx rx",
        "rx_usecs" => "coalesce",
        "route_advmss" => "advmss",
        _ => "",
    }
}

/// Names that users ask for but that do not do what they say, each with the reason.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (
        "window_clamp",
        "TCP_WINDOW_CLAMP does not hold on Linux, the window grows past it; use `receive_window`",
    ),
    (
        "route_window",
        "Linux uses a route's window only for the scale in the SYN, the window grows past it; use \
         `receive_window`",
    ),
    (
        "sg",
        "without scatter-gather Linux switches tso, gso and checksum offload off too, and no \
         control can keep them on",
    ),
];

const WITH_SOCKET: &str = "it goes with the run's sockets";

fn socket(option: &'static TestOption) -> Option<Entry> {
    let treatment = option.treatment?;
    Some(Entry {
        name: option.name,
        scope: Scope::Socket,
        value: option.kind,
        means: treatment.means,
        acts: treatment.acts,
        costs_cpu: treatment.costs_cpu,
        needs: treatment.needs,
        applied: treatment.applied,
        read_back: treatment.read_back,
        undone: WITH_SOCKET,
        changes_also: None,
        setting: Setting::Socket(option),
    })
}

static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let sockets = options().iter().filter_map(socket);
    let entries: Vec<Entry> = toml_reader::entries(include_str!("hosts.toml"));
    let hosts = entries.into_iter().map(|entry| Entry {
        setting: entry.host_setting().expect("a test reads all entries"),
        ..entry
    });
    sockets.chain(hosts).collect()
});

// The effect of treatments: how those of sockets get into a plan, and what the record of a run
// shows of them. Reading an option back shows what the kernel was told, not what it did.

impl Treatments {
    /// Checks each treatment whose effect a record shows: segments and path MTU on the wire, the
    /// window that the sender saw, the congestion control in force, the source address of flows,
    /// the method of sending. The others were read back when they were applied.
    ///
    /// # Errors
    /// [`TreatmentError::NotTaken`] with the first treatment whose effect is missing: the run does
    /// not show this treatment.
    pub fn took(&self, record: &Record) -> Result<(), TreatmentError> {
        for treatment in self.iter() {
            let flows = record.flows.iter();
            let mut faults = flows.filter_map(|flow| fault_of_flow(treatment, flow));
            let fault = faults.next().or_else(|| fault_of_end(treatment, record));
            if let Some((found, why)) = fault {
                let treatment = treatment.to_string();
                return Err(TreatmentError::NotTaken { treatment, found, why });
            }
        }
        Ok(())
    }

    /// Sets the socket options of a test. Changes of hosts are in [`Treatments::host_changes`].
    ///
    /// # Errors
    /// The test has the option already, its traffic has no such option, or the changed test is
    /// outside its limits. The test may have been changed in part.
    pub fn apply_to(&self, test: &mut Test) -> Result<(), TreatmentError> {
        for treatment in self.iter() {
            let entry = treatment.entry();
            if let Setting::Socket(option) = entry.setting {
                set(option, entry.name, treatment.value(), test)?;
            }
        }
        self.name_route_source(test)?;
        self.check_routes(test)?;
        test.check()?;
        Ok(())
    }

    /// A change of the route to the peer. The endpoint knows the address of the control connection,
    /// and changes the route to that address.
    fn check_routes(&self, test: &Test) -> Result<(), TreatmentError> {
        let route = self.iter().find(|treatment| {
            treatment.entry().scope == Scope::Route && treatment.is_at(End::Server)
        });
        match (test.options.source, route) {
            (Some(_), Some(route)) => Err(TreatmentError::unfit(
                route.entry().name,
                "the endpoint's route is that to the address of the control connection, and the \
                 data connections come from another one (source, route_source)",
            )),
            _ => Ok(()),
        }
    }

    /// An endpoint accepts data connections only from the address that the test names. So a source
    /// address that a route prefers is named in the test, and sockets are bound to it, too.
    fn name_route_source(&self, test: &mut Test) -> Result<(), TreatmentError> {
        let changes = self.host_changes(End::Client);
        let Some(address) = changes.iter().find_map(source_of) else {
            return Ok(());
        };
        match find("source")?.setting {
            Setting::Socket(source) => set(source, "route_source", &Value::Address(address), test),
            _ => Ok(()),
        }
    }
}

/// What a record shows instead of a treatment's effect, and the likely reason.
type Fault = (String, &'static str);

fn fault(found: impl ToString, why: &'static str) -> Option<Fault> {
    Some((found.to_string(), why))
}

fn fault_of_flow(treatment: &Treatment, flow: &FlowRecord) -> Option<Fault> {
    let (sender, receiver) = match flow.direction {
        Direction::Down => (End::Server, End::Client),
        Direction::Up | Direction::Both => (End::Client, End::Server),
    };
    // No other treatment has an address.
    if let Value::Address(address) = treatment.value() {
        let local: Option<std::net::SocketAddr> = flow.local.parse().ok();
        let other = local.filter(|local| local.ip() != *address)?;
        return fault(other, "the flow came from another address");
    }
    let tcp = flow.tcp.as_ref()?.sender()?;
    match (treatment.entry().setting, treatment.value()) {
        (Setting::Socket(option), value) => fault_of_socket(option.name, value, tcp),
        (
            Setting::Route(RouteSetting::Mtu) | Setting::Device(DeviceSetting::Mtu),
            Value::Number(mtu),
        ) if treatment.is_at(sender) && u64::from(tcp.pmtu_bytes) > *mtu => {
            fault(format!("pmtu_bytes {}", tcp.pmtu_bytes), "the sender's path has a larger MTU")
        }
        (Setting::Route(RouteSetting::Advmss), Value::Number(mss))
            if treatment.is_at(receiver) && u64::from(tcp.mss_bytes) > *mss =>
        {
            fault(format!("mss_bytes {}", tcp.mss_bytes), "the sender's segments are larger")
        }
        _ => None,
    }
}

fn fault_of_socket(name: &str, value: &Value, tcp: &TcpSender) -> Option<Fault> {
    match (name, value) {
        ("mss", Value::Number(asked)) => {
            let mss = u64::from(tcp.mss_bytes);
            let found = format!("mss_bytes {mss}");
            if mss > *asked {
                fault(found, "the segments are larger")
            } else if mss + MAX_OPTIONS < *asked {
                fault(found, "the path or the peer takes no larger segments")
            } else {
                None
            }
        }
        ("congestion", Value::Name(asked)) => {
            let other = tcp.congestion.as_ref().filter(|name| *name != asked)?;
            fault(other, "another congestion control was in force")
        }
        ("receive_window", Value::Number(asked)) => {
            let most = *asked as f64 * MAX_WINDOW;
            let window = tcp.send_window_bytes?;
            let why = "the kernel's least buffer offers more, or the window is not held";
            fault(format!("send_window_bytes {window}"), why).filter(|_| window as f64 > most)
        }
        _ => None,
    }
}

fn fault_of_end(treatment: &Treatment, record: &Record) -> Option<Fault> {
    let wanted = *treatment.value() == Value::Switch(true);
    let legs = record.legs.iter();
    let (ends, ways, why): (Vec<&Option<EndReport>>, &[&str], _) = match treatment.entry().name {
        "zerocopy" => {
            let ends = legs.map(|leg| &leg.sender);
            (ends.collect(), ZERO_COPY, "the sender took another way")
        }
        "discard" => {
            let ends = legs.map(|leg| &leg.receiver);
            (ends.collect(), DISCARD, "the receiver took another way")
        }
        _ => return None,
    };
    let ends = ends.into_iter().flatten();
    let mut methods = ends.filter_map(|end| end.method.as_deref());
    let other = methods.find(|method| ways.contains(method) != wanted)?;
    fault(other, why)
}

/// # Errors
/// The traffic does not have the option, or the test has it already.
fn set(
    option: &TestOption,
    name: &'static str,
    value: &Value,
    test: &mut Test,
) -> Result<(), TreatmentError> {
    if let Some(why) = option.why_unfit(test) {
        return Err(TreatmentError::unfit(name, &why));
    }
    if option.value_in(test) != option.default_in(test) {
        return Err(TreatmentError::Given { name });
    }
    option.put(test, value);
    Ok(())
}

/// Maximum length of a segment's TCP options, bytes (RFC 9293).
const MAX_OPTIONS: u64 = 40;
/// The window is adjusted continuously and may exceed the asked value by this factor meanwhile.
const MAX_WINDOW: f64 = 1.25;
/// The engine's names of methods without a copy.
const ZERO_COPY: &[&str] = &["vmsplice", "sendfile"];
const DISCARD: &[&str] = &["discard"];
