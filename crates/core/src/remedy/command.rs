//! The shell command of a remedy.
//!
//! A run is typed as it was made, with one option changed: without its other options another limit
//! would be the next one.

use std::collections::BTreeMap;
use std::iter;
use std::net::IpAddr;

use super::{
    Change, Discipline, LookObject, Name, PolicyKey, ProcessLimit, Remedy, RouteMetric, RunOption,
};
use crate::plan::{End, ReceiveMethod, Test, Traffic, option_of};
use crate::units::{BitRate, Family};

/// The run that a remedy is for.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// The target of the run.
    pub target: Target,
    /// Address family.
    pub family: Family,
    /// The test, in the direction that the remedy is for; `None` for a connection of another
    /// program, which cannot be made again.
    pub test: Option<Test>,
    /// Kernel settings of both ends, the client's first.
    pub sysctls: [Option<&'a BTreeMap<String, String>>; 2],
    /// Addresses of both ends, the client's first.
    pub addresses: [Option<IpAddr>; 2],
}

/// The target of a run.
#[derive(Debug, Clone)]
pub enum Target {
    /// An endpoint; its port where it is not the usual one and not part of its name.
    Endpoint(Option<Name>, Option<u16>),
    /// An emulated path, as `--lab` reads it; checked to stand between single quotes.
    Lab(String),
    /// The other end of a connection of another program.
    OtherProgram(Option<IpAddr>),
}

impl Remedy {
    /// The remedy with its command. `run` is `None` if there is no transfer to repeat.
    pub fn typed(mut self, run: Option<&Run<'_>>) -> Self {
        self.line = line(&self, run);
        self.command = self.line.with_reason(&self.reason);
        self
    }
}

/// A command line and what is to be known for typing it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandLine {
    /// The words, as a shell takes them.
    pub words: String,
    /// The place to type it; empty: at the client.
    pub place: String,
    /// A change that the words do not have, such as that of a file; may be empty.
    pub note: String,
}

impl CommandLine {
    /// The words, with place, note and reason in a comment; an empty reason is left out.
    pub fn with_reason(&self, reason: &str) -> String {
        let joined = |parts: [&str; 2], by: &str| {
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(by)
        };
        let comment = joined([&self.place, &joined([&self.note, reason], ", ")], ": ");
        if comment.is_empty() { self.words.clone() } else { format!("{}  # {comment}", self.words) }
    }
}

/// The command that sets kernel settings of its host; `linerate host undo` restores them.
pub fn host_set<'a>(settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let quoted = |(key, value)| format!("{}={}", shell_word(key), shell_word(value));
    let words: Vec<String> = settings.into_iter().map(quoted).collect();
    format!("linerate host set {}", words.join(" "))
}

/// A word as a POSIX shell takes it, quoted only where it must be: a device may be called
/// `$(reboot)`.
pub fn shell_word(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || ".:_-%,/+@".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether a text can stand between single quotes and says nothing else there.
pub(crate) fn shell_safe(text: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || ".,=%()+:_-/~ ".contains(c);
    text.chars().all(harmless)
}

/// The line of a remedy, after those of the remedies before it.
fn line(remedy: &Remedy, run: Option<&Run<'_>>) -> CommandLine {
    let mut line = step(remedy, run);
    for earlier in iter::successors(remedy.first.as_deref(), |step| step.first.as_deref()) {
        let before = step(earlier, run);
        line.words = if before.place.is_empty() || earlier.end == remedy.end {
            format!("{} && {}", before.words, line.words)
        } else {
            format!("{}  # {}, and then: {}", before.words, before.place, line.words)
        };
    }
    line
}

/// The line of one remedy alone.
fn step(remedy: &Remedy, run: Option<&Run<'_>>) -> CommandLine {
    let at_server = remedy.end == Some(End::Server);
    let mut place = String::new();
    if at_server {
        place = at_endpoint(run);
    }
    let mut note = String::new();
    let words = match &remedy.change {
        Change::Option { object, value } => {
            if value.is_none() {
                note = format!("without {}", object.flag());
            }
            with_option(run, *object, value.as_deref())
        }
        Change::HostSetting { object, value } => {
            let compared = run.and_then(|run| compared(run, remedy.end?, object, value));
            if compared.is_some() {
                place.clear();
            }
            compared.unwrap_or_else(|| host_setting(object, value))
        }
        Change::RouteMetric { object, value } => route(run, remedy.end, *object, *value),
        Change::DeviceMtu { object, value } => format!("ip link set dev {object} mtu {value}"),
        Change::Policy { object, key, value } => {
            note = format!("with {}", policy(object.as_ref(), *key, *value));
            "linerate qos apply FILE".to_owned()
        }
        Change::TrafficClass { object, device, rate, value } => {
            let (rate, value) = (rate.typed(), value.typed());
            format!("tc class change dev {device} classid {object} htb rate {rate} ceil {value}")
        }
        Change::FlowRate { object, value } => {
            format!("tc qdisc change dev {object} root fq maxrate {}", value.typed())
        }
        Change::Discipline { object, value, rate } => discipline(object, *value, *rate),
        Change::Module { object } => format!("modprobe {object}"),
        Change::ProcessLimit { object, value } => {
            return process_limit(*object, *value, at_server, place);
        }
        Change::Program { object, program: name, port, value } => {
            let (words, what) = program(*object, name.as_ref(), *port, value.as_deref());
            note = what;
            words
        }
        Change::Look { object } => {
            let (words, what) = look(*object, remedy.end, run);
            what.clone_into(&mut note);
            words
        }
    };
    CommandLine { words, place, note }
}

fn process_limit(limit: ProcessLimit, value: u64, at_server: bool, place: String) -> CommandLine {
    let program = if at_server { "serve" } else { "capacity" };
    match limit {
        ProcessLimit::Memory => CommandLine {
            words: format!("systemd-run --scope -p MemoryMax={value} linerate {program}"),
            place,
            note: String::new(),
        },
        ProcessLimit::Descriptors => CommandLine {
            words: format!("ulimit -n {value}"),
            place: String::new(),
            note: raised_before(program, at_server),
        },
    }
}

/// fq_codel has no shaper: HTB is one.
fn discipline(device: &Name, kind: Discipline, rate: Option<BitRate>) -> String {
    let name = kind.name();
    let root = format!("tc qdisc replace dev {device} root");
    match (kind, rate.map(BitRate::typed)) {
        (_, None) => format!("{root} {name}"),
        (Discipline::Cake, Some(rate)) => format!("{root} cake bandwidth {rate}"),
        (Discipline::FqCodel, Some(rate)) => format!(
            "{root} handle 1: htb default 1 && tc class add dev {device} parent 1: classid 1:1 \
             htb rate {rate} && tc qdisc add dev {device} parent 1:1 {name}"
        ),
    }
}

/// The command of a look, and what it shows.
fn look(object: LookObject, end: Option<End>, run: Option<&Run<'_>>) -> (String, &'static str) {
    match (object, run) {
        (LookObject::Connection { port }, _) => (format!("linerate explain --port {port}"), ""),
        (LookObject::PathMtu, Some(run)) if end.is_none() => {
            let to = match &run.target {
                // Probes go to ports of their own.
                Target::Endpoint(name, _) => target(&Target::Endpoint(name.clone(), None)),
                other => target(other),
            };
            (format!("linerate trace {to} --mtu"), "")
        }
        (LookObject::PathMtu, _) => (
            format!("tracepath -n {}", peer(run, end)),
            "shows behind which router the MTU is small",
        ),
        (LookObject::RouterRules, _) => {
            ("nft list ruleset".to_owned(), "on the routers: shows a rule with tcp option maxseg")
        }
        (LookObject::Path, Some(run)) => (format!("linerate check {}", target(&run.target)), ""),
        (LookObject::Path, None) => ("linerate check HOST".to_owned(), ""),
        (LookObject::CpuTime, _) => {
            let profile = run.and_then(|run| again(run, Some("profile"), None));
            (profile.unwrap_or_else(|| "linerate profile HOST".to_owned()), "")
        }
        (LookObject::Programs, _) => (
            "top -o %CPU".to_owned(),
            "shows which programs use the CPUs: measure when they are idle",
        ),
        (LookObject::ReceiveBuffers, _) => ("linerate host show net.ipv4.tcp_rmem".to_owned(), ""),
        (LookObject::SendBuffers, _) => ("linerate host show net.ipv4.tcp_wmem".to_owned(), ""),
    }
}

fn at_endpoint(run: Option<&Run<'_>>) -> String {
    match run.map(|run| &run.target) {
        Some(Target::OtherProgram(Some(address))) => format!("on {address}"),
        Some(Target::OtherProgram(None)) => "on the other end's host".to_owned(),
        _ => "on the endpoint's host".to_owned(),
    }
}

/// The command after a change of the program's own directive, if it is known, and the change.
fn program(
    object: RunOption,
    program: Option<&Name>,
    port: u16,
    value: Option<&str>,
) -> (String, String) {
    let (option, nginx, apache) = match object {
        RunOption::SendBuffer => ("SO_SNDBUF", "sndbuf", Some("SendBufferSize")),
        RunOption::ReceiveWindow => ("SO_RCVBUF", "rcvbuf", Some("ReceiveBufferSize")),
        _ => ("SO_MAX_PACING_RATE", "", None),
    };
    let name = program.map(|Name(name)| name.as_str());
    match (name, apache) {
        (Some("nginx"), Some(_)) => {
            let listen = match value {
                None => format!("after `listen {port}` without {nginx}="),
                Some(bytes) => format!("after `listen {port} {nginx}={bytes}`"),
            };
            ("nginx -s reload".to_owned(), listen)
        }
        (Some("apache2" | "httpd"), Some(directive)) => {
            let after = format!("after `{directive} {}`", value.unwrap_or("0"));
            ("apachectl graceful".to_owned(), after)
        }
        _ => {
            let name = name.unwrap_or("the program");
            let asked = value.map(|bytes| format!(", or with {bytes} bytes")).unwrap_or_default();
            let look = format!("linerate explain --port {port}");
            (look, format!("after {name} runs without {option}{asked}"))
        }
    }
}

/// A hard limit is raised by root alone, and no further than `fs.nr_open`.
fn raised_before(program: &str, at_server: bool) -> String {
    let place = if at_server { " on the endpoint's host" } else { "" };
    format!("as root, before `linerate {program}`{place}")
}

fn host_setting(key: &str, value: &str) -> String {
    // Derived from the host's memory at boot; of the table that `host set` has it is no entry.
    if key == "fs.epoll.max_user_watches" {
        return format!("sysctl -w {key}={value}");
    }
    host_set([(key, value)])
}

/// The same run on the same emulated path with a setting as it was and as it is to be: a host of
/// such a path is gone with it. `None` where there is no such path, or the run has what comparisons
/// have not.
fn compared(run: &Run<'_>, end: End, key: &str, value: &str) -> Option<String> {
    let Traffic::Stream(stream) = &run.test.as_ref()?.traffic else {
        return None;
    };
    let is_plain = !stream.whole && !stream.verify && stream.receive == ReceiveMethod::Read;
    let was = figures(run.sysctls[usize::from(end == End::Server)]?.get(key)?)?;
    let is_lab = matches!(run.target, Target::Lab(_));
    let run = again(run, Some("compare"), None).filter(|_| is_lab && is_plain)?;
    Some(format!("{run} --a '{end}.sysctl:{key}={was}' --b '{end}.sysctl:{key}={value}'"))
}

/// A setting of figures, with one blank between them.
fn figures(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_figure = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    (!words.is_empty() && words.iter().all(is_figure)).then(|| words.join(" "))
}

/// Gives the route to the other end another metric and keeps the rest of it: `fibmatch` prints the
/// route itself, as `change` reads it, and not what it comes to for one address.
fn route(run: Option<&Run<'_>>, end: Option<End>, metric: RouteMetric, bytes: u32) -> String {
    let ip = match run.map(|run| run.family) {
        Some(Family::Ipv6) => "ip -6 route",
        Some(Family::Ipv4) | None => "ip route",
    };
    let (to, metric) = (peer(run, end), metric.name());
    format!(
        "{ip} change $({ip} get fibmatch {to} | sed -E 's/ {metric} (lock )?[0-9]+//') {metric} \
         {bytes}"
    )
}

/// Address of the end opposite to `end`.
fn peer(run: Option<&Run<'_>>, end: Option<End>) -> String {
    let address = run.and_then(|run| run.addresses[usize::from(end? == End::Client)]);
    address.map_or_else(|| "PEER".to_owned(), |address| address.to_string())
}

fn policy(name: Option<&Name>, key: PolicyKey, value: BitRate) -> String {
    let value = value.typed();
    let assigned = match key {
        PolicyKey::Limit => format!("limit = \"{value}\""),
        PolicyKey::Reserve => format!("reserve = \"{value}\""),
        PolicyKey::Rate => format!("rate = \"{value}\""),
        PolicyKey::Meter => format!("a meter for {value}"),
    };
    match (name, key) {
        (Some(name), PolicyKey::Rate) => format!("{assigned} in [adapter.{name}]"),
        (Some(name), _) => format!("{assigned} in [policy.{name}]"),
        (None, _) => format!("a policy of its own for this traffic that has {assigned}"),
    }
}

fn with_option(run: Option<&Run<'_>>, option: RunOption, value: Option<&str>) -> String {
    let command = match option {
        RunOption::MaxConnections => Some("linerate serve".to_owned()),
        RunOption::Sources => None,
        _ => run.and_then(|run| again(run, None, Some(option))),
    };
    let words = command.unwrap_or_else(|| "linerate capacity".to_owned());
    match value {
        Some(value) => format!("{words} {} {value}", option.flag()),
        None => words,
    }
}

/// The run as it was made, without one of its options. How long it lasts limits nothing: a time is
/// not said, and takes the place of an amount. `verb` is another command for the same test.
fn again(run: &Run<'_>, verb: Option<&str>, dropped: Option<RunOption>) -> Option<String> {
    let mut test = run.test.clone()?;
    let verb = verb.unwrap_or(test.workload().word());
    // A record may be a stranger's.
    let is_name = |name: &String| Name::new(name).is_some();
    test.options.congestion = test.options.congestion.filter(is_name);
    let mut without = vec!["time", "warm-up", "interval"];
    if let Some(option) = dropped.and_then(|option| option_of(test.workload(), option.key())) {
        without.push(option.key);
        without.extend(option.excludes);
    }
    let family = (run.family == Family::Ipv6).then(|| "-6".to_owned());
    let words = ["linerate".to_owned(), verb.to_owned(), target(&run.target)]
        .into_iter()
        .chain(family)
        .chain(test.typed(&without));
    Some(words.collect::<Vec<_>>().join(" "))
}

fn target(target: &Target) -> String {
    match target {
        Target::Lab(spec) => format!("--lab '{spec}'"),
        Target::OtherProgram(Some(address)) => address.to_string(),
        Target::OtherProgram(None) => "HOST".to_owned(),
        Target::Endpoint(None, port) => endpoint("HOST", *port),
        Target::Endpoint(Some(Name(host)), port) => endpoint(host, *port),
    }
}

fn endpoint(host: &str, port: Option<u16>) -> String {
    match port {
        Some(port) => format!("{host} -p {port}"),
        None => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_only_where_a_shell_would_take_them_apart() {
        for (word, quoted) in [
            ("pit.example:5201", "pit.example:5201"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("[2001:2::1]:5201", "'[2001:2::1]:5201'"),
            ("a;reboot", "'a;reboot'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }

    #[test]
    fn a_devices_name_is_quoted_in_the_command_that_sets_its_setting() {
        let command = host_set([("device.$(reboot).tso", "on"), ("net.ipv4.tcp_rmem", "1 2 3")]);
        assert_eq!(
            command,
            "linerate host set 'device.$(reboot).tso'=on net.ipv4.tcp_rmem='1 2 3'"
        );
    }
}
