//! A mix: its members, when each starts, and what an endpoint must allow for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::document::LoadDocument;
use super::voice::Codec;
use crate::plan::{Direction, Extent, Protocol, Test, Traffic};
use crate::session::Owner;
use crate::session::message::{Refusal, RefusalReason};
use crate::session::operation::{Open, Operation};
use crate::units::Span;

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
