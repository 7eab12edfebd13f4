//! A mix: its members, when each starts, what an endpoint must allow for it; its file, and the
//! mixes that are built in.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::document::{Codec, LoadDocument};
use crate::plan::{
    Direction, Draft, Extent, PlanError, Protocol, Test, Traffic, Workload, option_of, options,
};
use crate::session::Owner;
use crate::session::message::{Refusal, RefusalReason};
use crate::session::operation::{Open, Operation};
use crate::toml_reader::{self, At, Fault, FileError, Section, check_names};
use crate::units::{Span, listed, shortened, suggestion};

/// Tests that run at the same time, with every choice made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Its name.
    pub name: String,
    /// A description.
    pub title: String,
    /// Measured time of the members that start with the mix.
    pub time: Span,
    /// Warm-up that the figures leave out.
    pub warm_up: Span,
    /// Time for which the probes are measured alone before the load.
    pub idle: Span,
    /// The members; at least one.
    pub members: Vec<Member>,
}

/// A test of a mix: a session of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, which no other member has.
    pub name: String,
    /// Start, after the start of the mix.
    pub start: Span,
    /// Its requests tell the latency of its class: it is measured before the load, too.
    pub probe: bool,
    /// The codec, if it is a call.
    pub codec: Option<Codec>,
    /// Whether its TCP connections negotiate ECN; `None` leaves it to the system.
    #[serde(default)]
    pub ecn: Option<bool>,
    /// Its streams are those of `--flows`, divided among the endpoints.
    #[serde(default)]
    pub scales: bool,
    /// With several endpoints its streams come from all of them.
    #[serde(default)]
    pub gathers: bool,
    /// The number of its endpoint, from 0.
    #[serde(default)]
    pub endpoint: usize,
    /// Its test.
    pub test: Test,
}

impl Mix {
    /// Seconds from the first byte of the load to its end.
    pub fn seconds(&self) -> f64 {
        self.warm_up.as_secs_f64() + self.time.as_secs_f64()
    }

    /// The same for an endpoint that does not answer STAMP's packets: round trips alone.
    pub fn without_stamp(&mut self) {
        for member in &mut self.members {
            if let Traffic::Rr(exchange) = &mut member.test.traffic {
                exchange.stamp = false;
            }
        }
    }

    /// The same mix with several endpoints: every member with each of them. Streams that scale are
    /// shared out.
    ///
    /// # Errors
    /// It has too many members then, or fewer streams than endpoints.
    pub fn over(&self, hosts: &[String]) -> Result<Self, String> {
        let count = hosts.len();
        if count < 2 {
            return Ok(self.clone());
        }
        if self.members.len() * count > MAX_MEMBERS {
            return Err(format!(
                "{} has {} members for each of {count} endpoints: a mix has at most {MAX_MEMBERS}",
                self.name,
                self.members.len()
            ));
        }
        let each = |member: &Member| {
            (hosts.iter().enumerate())
                .map(|(endpoint, host)| member.with(endpoint, host, count))
                .collect::<Result<Vec<_>, _>>()
        };
        let members = self.members.iter().map(each).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { members: members.concat(), ..self.clone() })
    }

    /// The mix that a load document says was run.
    pub fn from_document(document: &LoadDocument, seed: u64) -> Option<Self> {
        let mut hosts: Vec<&str> = Vec::new();
        let mut members = Vec::new();
        for (number, ran) in (0..).zip(&document.members) {
            let host = ran.record.host.as_str();
            let known = hosts.iter().position(|other| *other == host);
            let endpoint = known.unwrap_or(hosts.len());
            if known.is_none() {
                hosts.push(host);
            }
            members.push(Member {
                name: ran.name.clone(),
                start: Span(Duration::try_from_secs_f64(ran.start_s).ok()?),
                probe: ran.probe,
                codec: ran.codec,
                ecn: ran.ecn,
                scales: false,
                gathers: false,
                endpoint,
                test: Test { seed: seed.wrapping_add(number), ..ran.record.plan.clone() },
            });
        }
        let end = |member: &Member| match member.test.extent {
            Extent::Time(time) => Some(member.start.0 + time.0),
            Extent::Bytes(_) | Extent::Count(_) => None,
        };
        let ends: Option<Vec<Duration>> = members.iter().map(end).collect();
        Some(Self {
            name: document.mix.clone(),
            title: document.title.clone(),
            time: Span(ends?.into_iter().max()?),
            warm_up: members.first()?.test.warm_up,
            idle: Span(Duration::try_from_secs_f64(document.idle_seconds).ok()?),
            members,
        })
    }

    /// Whether an endpoint allows all of its members that lets one client have so many sessions.
    ///
    /// # Errors
    /// Which member it does not allow, and why.
    pub fn check(&self, endpoint: usize, owner: &Owner<'_>, sessions: u64) -> Result<(), Refusal> {
        let is_there = |member: &&Member| member.endpoint == endpoint;
        let members = self.members.iter().filter(is_there).count();
        if members as u64 > sessions {
            return Err(Refusal {
                reason: RefusalReason::Limit,
                message: format!(
                    "{} has {members} members, each a client, and the endpoint takes {sessions} of \
                     one address: start it with a larger --max-clients",
                    self.name
                ),
            });
        }
        self.members.iter().filter(is_there).try_for_each(|member| {
            let open = Open { test: Box::new(member.test.clone()), profile: None };
            open.admit(owner).map_err(|refusal| Refusal {
                message: format!("`{}` cannot run: {}", member.name, refusal.message),
                ..refusal
            })
        })
    }

    /// Reads a mix from the text of a file.
    ///
    /// | table | key | value |
    /// |---|---|---|
    /// | the file | `title` | what it is; required |
    /// | | `time` | measured time, default `"10s"` |
    /// | | `warm-up` | left out before it, default a tenth, at most `"1s"` |
    /// | | `idle` | how long the probes are measured alone before, default `"3s"` |
    /// | `[[member]]` | `name` | required, each once |
    /// | | `start`, `time` | after the others, default 0; default to the mix's end |
    /// | | `probe` | requests that tell the latency of their class |
    /// | | `codec` | `g711` or `g729a`: UDP that is a call |
    /// | | `ecn` | its TCP connections negotiate ECN, or must not |
    /// | | `scales` | its `streams` are those of `--flows`; several endpoints share them |
    /// | | `gathers` | with several endpoints its streams come from them |
    /// | | `workload` | `command`: `stream`, `rr` or `crr`; and its long options |
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column.
    pub fn from_toml(name: &str, text: &str, choice: &MixChoice) -> Result<Self, FileError> {
        read(name, text, choice).map_err(|fault| fault.located(text))
    }

    /// The mix of linerate's that has that name.
    ///
    /// # Errors
    /// There is none, with one that looks like it; the choice does not fit it.
    pub fn named(name: &str, choice: &MixChoice) -> Result<Self, String> {
        let Some(text) = built_in(name) else {
            let known: Vec<&str> = names().collect();
            let hint = suggestion(name, &known)
                .unwrap_or_else(|| format!("there are {}", listed(&known, "and")));
            return Err(format!("there is no mix `{}`; {hint}", shortened(name)));
        };
        Self::from_toml(name, text, choice).map_err(|error| error.problem)
    }
}

impl Member {
    /// The member with one of several endpoints.
    fn with(&self, endpoint: usize, host: &str, of: usize) -> Result<Self, String> {
        let mut member = self.clone();
        member.name = format!("{} {host}", self.name);
        member.endpoint = endpoint;
        member.test.seed = self.test.seed.wrapping_add((endpoint * MAX_MEMBERS) as u64);
        if self.scales {
            let streams = (self.test.streams as usize + of - 1 - endpoint) / of;
            if streams == 0 {
                let has = self.test.streams;
                return Err(format!(
                    "`{}` has {has} flows for {of} endpoints: give --flows",
                    self.name
                ));
            }
            member.test.streams = streams as u32;
        }
        if self.gathers {
            member.test.direction = Direction::Down;
        }
        Ok(member)
    }

    /// Whether the packets of `probe` have this member's class, so that its round trips apply.
    pub(super) fn is_timed_by(&self, probe: &Self) -> bool {
        let dscp = |member: &Self| member.test.options.dscp.unwrap_or_default();
        let is_there = probe.probe && probe.endpoint == self.endpoint;
        is_there && probe.test.protocol == Protocol::Udp && dscp(probe) == dscp(self)
    }

    pub(super) fn is_udp_stream(&self) -> bool {
        matches!(self.test.traffic, Traffic::Stream(_)) && self.test.protocol == Protocol::Udp
    }
}

/// Members of a mix at most: what an endpoint lets one address have unless told otherwise.
pub const MAX_MEMBERS: usize = 48;

// The file of a mix, and the built-in mixes.

/// The user's choices for a mix.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MixChoice {
    /// A time that replaces the mix's.
    pub time: Option<Span>,
    /// Flows of the members that scale.
    pub flows: Option<u32>,
    /// Seed of every random choice.
    pub seed: u64,
}

/// The default mix.
pub const DEFAULT_MIX: &str = "rrul";

/// The text of a built-in mix.
pub fn built_in(name: &str) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

/// The names of the built-in mixes.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

fn read(name: &str, text: &str, choice: &MixChoice) -> Result<Mix, Fault> {
    let table = toml_reader::parse(text)?;
    let root = Section::new("the mix", 0, table.get_ref(), KEYS)?;
    let title = root.required("title", "what the mix is")?.value.to_owned();
    let time = choice.time.or(span(&root, "time")?).unwrap_or(DEFAULT_TIME);
    let warm_up = span(&root, "warm-up")?.unwrap_or(Span((time.0 / 10).min(MAX_WARM_UP)));
    let mut mix = Mix {
        name: name.to_owned(),
        title,
        time,
        warm_up,
        idle: span(&root, "idle")?.unwrap_or(DEFAULT_IDLE),
        members: Vec::new(),
    };
    let sections = root.sections("member", "[[member]]", MEMBER_KEYS)?;
    let mut scaling = false;
    for (number, section) in (0..).zip(&sections) {
        let member = member(section, &mix, number, choice)?;
        scaling |= member.scales;
        mix.members.push(member);
    }
    if choice.flows.is_some() && !scaling {
        let what = "this mix has the flows that it has";
        return Fault::contradiction(0, what, "--flows is for one with `scales = true`");
    }
    check_whole(&mix, &root, &sections)?;
    Ok(mix)
}

/// Checks that need all members.
fn check_whole(mix: &Mix, root: &Section<'_>, sections: &[Section<'_>]) -> Result<(), Fault> {
    if mix.members.is_empty() {
        return Err(root.missing("member", "each in a table [[member]]"));
    }
    if mix.members.len() > MAX_MEMBERS {
        let what = format!("{} members", mix.members.len());
        return Fault::contradiction(root.offset, what, "a mix has at most 48");
    }
    let asks = |asked: bool| mix.members.iter().find(|member| member.ecn == Some(asked));
    if let (Some(one), Some(other)) = (asks(true), asks(false)) {
        let what = format!("`ecn` on of `{}` and off of `{}`", one.name, other.name);
        let hint = "a host's connections all ask for it, or none";
        return Fault::contradiction(root.offset, what, hint);
    }
    let names = mix.members.iter().map(|member| member.name.as_str());
    check_names("members", sections, names)?;
    for (member, section) in mix.members.iter().zip(sections) {
        if member.codec.is_some() && mix.members.iter().all(|probe| !member.is_timed_by(probe)) {
            let what = format!("`{}` is a call without its delay", member.name);
            let hint = "add a probe by rr over UDP with the same `dscp`";
            return Fault::contradiction(section.offset, what, hint);
        }
    }
    Ok(())
}

fn member(
    section: &Section<'_>,
    mix: &Mix,
    number: u64,
    choice: &MixChoice,
) -> Result<Member, Fault> {
    let name = section.required("name", "what the member is called")?;
    let start = span(section, "start")?.unwrap_or(Span(Duration::ZERO));
    let left = mix.time.0.saturating_sub(start.0);
    let time = span(section, "time")?.map_or(left, |time| time.0.min(left));
    if time.is_zero() {
        let what = format!("`{}` begins when the mix ends", name.value);
        return Fault::contradiction(section.offset, what, "give an earlier `start`");
    }
    let scales = section.boolean("scales")?.unwrap_or(false);
    let flows = choice.flows.filter(|_| scales);
    let draft = draft(section, name.value, flows)?.time(Span(time)).warm_up(mix.warm_up);
    // Each has a phase of its own.
    let seed = choice.seed.wrapping_add(number);
    let test =
        draft.resolve(seed).map_err(|error| workload_fault(section.offset, name.value, error))?;
    let member = Member {
        name: name.value.to_owned(),
        start,
        probe: section.boolean("probe")?.unwrap_or(false),
        codec: section.choice("codec", "codec", &Codec::ALL)?,
        ecn: section.boolean("ecn")?,
        scales,
        gathers: section.boolean("gathers")?.unwrap_or(false),
        endpoint: 0,
        test,
    };
    check_member(section, &member)?;
    Ok(member)
}

/// Checks that a member's keys fit its workload.
fn check_member(section: &Section<'_>, member: &Member) -> Result<(), Fault> {
    let name = &member.name;
    let is_stream = member.test.workload() == Workload::Stream;
    let (what, hint) = if member.ecn.is_some() && member.test.protocol == Protocol::Udp {
        let what = format!("`ecn` of `{name}`, which is over UDP");
        (what, "TCP alone negotiates it")
    } else if member.gathers && !is_stream {
        let what = format!("`gathers` of `{name}`, which is no stream");
        (what, "requests go from the client")
    } else if member.probe && is_stream {
        let what = format!("`{name}` is a probe without requests");
        (what, "a probe is of `rr` or `crr`")
    } else if member.codec.is_some() && !member.is_udp_stream() {
        let what = format!("`{name}` is a call over no datagrams");
        (what, "a call is of `stream` with protocol udp")
    } else {
        return Ok(());
    };
    Fault::contradiction(section.offset, what, hint)
}

/// `workload = { command = "rr", rate = 10 }`
fn draft(section: &Section<'_>, member: &str, flows: Option<u32>) -> Result<Draft, Fault> {
    let hint = "`{ command = \"stream\" }`, rr or crr, and its options";
    let command = section.command(hint)?;
    let Some(workload) = Workload::from_word(command.value) else {
        return Fault::malformed(command, "command of a mix", "write stream, rr or crr");
    };
    let mut draft = Draft::new(workload);
    for (key, text) in section.texts("workload")? {
        if key.value == "command" {
            continue;
        }
        check_key(workload, key)?;
        if key.value == "streams" && flows.is_some() {
            continue;
        }
        let set = draft.set(key.value, &text.value);
        set.map_err(|error| workload_fault(text.offset, member, error))?;
    }
    Ok(draft.maybe(Draft::streams, flows))
}

/// A member has its time from the mix, and no option that its command has not.
fn check_key(workload: Workload, key: At<&str>) -> Result<(), Fault> {
    if EXTENTS.contains(&key.value) {
        let what = format!("`{}` of a member's workload", key.value);
        let hint = "the members end together: give `start` or `time` beside `name`";
        return Fault::contradiction(key.offset, what, hint);
    }
    if option_of(workload, key.value).is_some() {
        return Ok(());
    }
    let is_known = |known: &&str| option_of(workload, known).is_some();
    let has = options().iter().map(|option| option.key).filter(is_known);
    let otherwise = format!("`linerate {} --help` has them", workload.word());
    Err(Fault::unknown_key(key, "the workload", has, otherwise))
}

fn workload_fault(offset: usize, member: &str, error: PlanError) -> Fault {
    Fault::new(offset, format!("`{}`: {error}", shortened(member)))
}

fn span(section: &Section<'_>, key: &'static str) -> Result<Option<Span>, Fault> {
    let (range, hint) = match key {
        "idle" => (0..=30_000, "write \"0s\" to \"30s\""),
        "start" => (0..=50_000, "write \"0s\" to \"50s\""),
        "warm-up" => (0..=60_000, "write \"0s\" to \"1min\""),
        _ => (100..=3_600_000, "write \"100ms\" to \"1h\""),
    };
    let fits = |span: &Span| range.contains(&span.0.as_millis());
    section.parsed(key, key, hint, fits)
}

const KEYS: &str = "title time warm-up idle member";
const MEMBER_KEYS: &str = "name start time probe codec ecn scales gathers workload";
/// Keys that set the end of a test.
const EXTENTS: [&str; 5] = ["time", "bytes", "count", "total", "warm-up"];
const DEFAULT_TIME: Span = Span(Duration::from_secs(10));
const DEFAULT_IDLE: Span = Span(Duration::from_secs(3));
const MAX_WARM_UP: Duration = Duration::from_secs(1);

const BUILT_IN: &[(&str, &str)] = &[
    ("rrul", include_str!("mixes/rrul.toml")),
    ("rrul_be", include_str!("mixes/rrul_be.toml")),
    ("tcp_nup", include_str!("mixes/tcp_nup.toml")),
    ("tcp_ndown", include_str!("mixes/tcp_ndown.toml")),
    ("tcp_8up", include_str!("mixes/tcp_8up.toml")),
    ("voip", include_str!("mixes/voip.toml")),
    ("video", include_str!("mixes/video.toml")),
    ("gaming", include_str!("mixes/gaming.toml")),
    ("web", include_str!("mixes/web.toml")),
    ("incast", include_str!("mixes/incast.toml")),
    ("burst", include_str!("mixes/burst.toml")),
];
