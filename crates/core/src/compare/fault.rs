//! Validity faults: events that make a run unfit for a comparison.
//!
//! They are declared before the first run and looked for in each. A pair with one is excluded
//! whole, whichever of its runs has it: a run that is left out because of its own figure would bend
//! the comparison.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::{CaveatKind, EndReport, Leg, Record, Status};
use crate::units::{TextError, suggestion, words};

/// An event that makes a run unfit for a comparison.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Segments were retransmitted.
    Retransmissions,
    /// Retransmission timeouts.
    Timeouts,
    /// Datagrams were lost on the path.
    Loss,
    /// A receive queue or socket buffer of a host overran.
    BufferOverruns,
    /// Payload arrived other than it was sent.
    Corruption,
    /// Something else used the CPUs of a host, or its hypervisor took them.
    BusyHost,
    /// The clock is not fit for the times measured.
    Clock,
    /// The CPUs of a host were slowed down for heat.
    Thermal,
    /// The run ended early. This fault is always looked for.
    Incomplete,
    /// A figure to compare is missing, or is 0 in one run of the pair alone, so that there is no
    /// ratio. Always looked for.
    NoRatio,
}

/// The faults that a user may declare.
pub const FAULTS: [Fault; 8] = [
    Fault::Retransmissions,
    Fault::Timeouts,
    Fault::Loss,
    Fault::BufferOverruns,
    Fault::Corruption,
    Fault::BusyHost,
    Fault::Clock,
    Fault::Thermal,
];

/// Share of the CPUs that something else may use, percent. A daemon that wakes up takes less, a
/// build more.
const OTHER_LOAD: f64 = 20.0;

// As on the command line and in documents.
words! {
    Fault name {
        "retransmissions" Retransmissions,
        "timeouts" Timeouts,
        "loss" Loss,
        "buffer_overruns" BufferOverruns,
        "corruption" Corruption,
        "busy_host" BusyHost,
        "clock" Clock,
        "thermal" Thermal,
        "incomplete" Incomplete,
        "no_ratio" NoRatio,
    }
}

impl Fault {
    /// What of it a record shows, in words with its figure. [`Fault::NoRatio`] is of a pair, and
    /// shows in no record.
    pub fn seen_in(self, record: &Record) -> Option<String> {
        match self {
            Self::Retransmissions => retransmissions(record),
            Self::Timeouts => {
                let timeouts = sum(record, |leg| leg.tcp_sender()?.timeouts)?;
                counted(timeouts, "retransmission timeouts")
            }
            Self::Loss => {
                let lost = sum(record, |leg| Some(leg.udp.as_ref()?.lost))?;
                counted(lost, "datagrams lost")
            }
            Self::BufferOverruns => overruns(record),
            Self::Corruption => counted(record.corrupted_bytes?, "bytes arrived changed"),
            Self::BusyHost => caveat(record, CaveatKind::BusyHost).or_else(|| other_load(record)),
            Self::Clock => caveat(record, CaveatKind::Clock),
            Self::Thermal => throttles(record),
            Self::Incomplete => (record.status == Status::Partial).then(|| {
                caveat(record, CaveatKind::Partial)
                    .unwrap_or_else(|| "the run ended before its time".to_owned())
            }),
            Self::NoRatio => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = TextError;

    fn from_str(word: &str) -> Result<Self, TextError> {
        let found = FAULTS.into_iter().find(|fault| fault.name() == word);
        found.ok_or_else(|| {
            let word: String = word.chars().take(40).collect();
            let names = FAULTS.map(Fault::name);
            let hint = suggestion(&word, names)
                .unwrap_or_else(|| format!("they are {}", names.join(", ")));
            TextError::new(&word, format!("there is no such fault; {hint}"))
        })
    }
}

/// The sum over the directions that have the figure.
fn sum(record: &Record, figure: impl Fn(&Leg) -> Option<u64>) -> Option<u64> {
    let figures = record.legs.iter().filter_map(figure);
    figures.reduce(u64::saturating_add)
}

fn counted(count: u64, what: &str) -> Option<String> {
    (count > 0).then(|| format!("{count} {what}"))
}

/// Segments retransmitted because they were lost. Those that the receiver reported to have had
/// already (DSACK) were not: packets had overtaken each other, as they do over a virtual device
/// when a thread moves to another CPU.
fn retransmissions(record: &Record) -> Option<String> {
    let lost = |leg: &Leg| {
        let spurious = leg.tcp_sender().and_then(|tcp| tcp.dsack_duplicates);
        let all = leg.tcp.as_ref()?.retransmitted_segments()?;
        Some(all.saturating_sub(spurious.unwrap_or(0)))
    };
    let lost = sum(record, lost)?;
    counted(lost, "retransmitted segments")
}

/// Drops of socket buffers and receive queues, at both ends.
fn overruns(record: &Record) -> Option<String> {
    let socket = sum(record, |leg| leg.udp.as_ref()?.socket_drops).unwrap_or(0);
    if let Some(words) = counted(socket, "datagrams dropped by the receiver's socket") {
        return Some(words);
    }
    record.ends().find_map(|(_, end)| {
        let dropped =
            counted(end.softnet_dropped.unwrap_or(0), "packets dropped by a receive queue");
        dropped.or_else(|| {
            OVERRUN_COUNTERS.iter().find_map(|name| {
                let count = end.counters.get(*name).copied().unwrap_or(0);
                (count > 0).then(|| format!("{name} rose by {count}"))
            })
        })
    })
}

/// The kernel's counters of buffers that were full.
const OVERRUN_COUNTERS: [&str; 4] =
    ["UdpRcvbufErrors", "TcpExtTCPBacklogDrop", "TcpExtTCPRcvQDrop", "TcpExtPruneCalled"];

fn caveat(record: &Record, kind: CaveatKind) -> Option<String> {
    let found = record.caveats.iter().find(|caveat| caveat.kind == kind)?;
    Some(found.message.clone())
}

/// What neither the test's threads nor soft interrupts used. On one kernel the other end, and the
/// emulator of the path, are among what is counted: nothing can be said there.
fn other_load(record: &Record) -> Option<String> {
    if record.environment.shared_kernel {
        return None;
    }
    record.ends().find_map(|(name, end)| {
        let percent = other_percent(end, record.seconds)?;
        (percent > OTHER_LOAD)
            .then(|| format!("something else used {percent:.0} % of the {name}'s CPUs"))
    })
}

fn other_percent(end: &EndReport, seconds: f64) -> Option<f64> {
    let own = end.cpu_seconds.total() + end.softirq_seconds?;
    let whole = f64::from(end.cpus) * seconds;
    (whole > 0.0).then_some(end.host_cpu_percent? - 100.0 * own / whole)
}

/// The number of thermal throttle events; `None` where the host does not count them.
fn throttles(record: &Record) -> Option<String> {
    record.ends().find_map(|(name, end)| {
        let throttles = end.thermal_throttles?;
        counted(throttles, &format!("thermal throttles of the {name}'s CPUs"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::samples::record;
    use crate::record::{Caveat, CpuSeconds, TcpSender, UdpEvidence};

    #[test]
    fn faults_read_back_as_they_are_written() {
        for fault in FAULTS {
            assert_eq!(fault.name().parse(), Ok(fault));
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.name());
        }
        for never in [Fault::Incomplete, Fault::NoRatio] {
            assert!(never.name().parse::<Fault>().is_err());
        }
    }

    #[test]
    fn an_unknown_fault_is_answered_by_the_nearest_or_by_all() {
        let error = "retransmission".parse::<Fault>().unwrap_err().to_string();
        assert!(error.ends_with("did you mean `retransmissions`?"), "{error}");
        let error = "rain".parse::<Fault>().unwrap_err().to_string();
        assert!(error.ends_with("corruption, busy_host, clock, thermal"), "{error}");
    }

    #[test]
    fn a_clean_run_has_no_fault() {
        for fault in FAULTS.into_iter().chain([Fault::Incomplete]) {
            assert_eq!(fault.seen_in(&record(1e6)), None, "{fault}");
        }
    }

    #[test]
    fn each_fault_is_seen_in_its_own_figure() {
        let mut bad = record(1e6);
        bad.status = Status::Partial;
        bad.corrupted_bytes = Some(4);
        bad.caveats = vec![Caveat::new(CaveatKind::Clock, "hpet", "")];
        let tcp =
            TcpSender { retransmitted_segments: 3, timeouts: Some(1), ..TcpSender::default() };
        bad.legs[0].tcp = Some(tcp.clone().into());
        bad.legs[0].udp =
            Some(UdpEvidence { lost: 2, socket_drops: Some(9), ..UdpEvidence::default() });
        bad.legs[0].sender = Some(EndReport {
            cpus: 4,
            host_cpu_percent: Some(70.0),
            softirq_seconds: Some(0.1),
            cpu_seconds: CpuSeconds { user: 0.2, system: 0.7 },
            ..EndReport::default()
        });
        let seen = |fault: Fault| fault.seen_in(&bad).unwrap_or_default();
        assert_eq!(seen(Fault::Retransmissions), "3 retransmitted segments");
        let overtaken = |spurious: u64| {
            let mut record = bad.clone();
            let dsack_duplicates = Some(spurious);
            record.legs[0].tcp = Some(TcpSender { dsack_duplicates, ..tcp.clone() }.into());
            Fault::Retransmissions.seen_in(&record)
        };
        assert_eq!(overtaken(2).unwrap(), "1 retransmitted segments");
        assert_eq!(overtaken(3), None);
        assert_eq!(seen(Fault::Timeouts), "1 retransmission timeouts");
        assert_eq!(seen(Fault::Loss), "2 datagrams lost");
        assert_eq!(seen(Fault::BufferOverruns), "9 datagrams dropped by the receiver's socket");
        assert_eq!(seen(Fault::Corruption), "4 bytes arrived changed");
        assert_eq!(seen(Fault::Clock), "hpet");
        assert_eq!(seen(Fault::Incomplete), "the run ended before its time");
        // One CPU of four was the test's own: 45 % of the 70 % are somebody else's.
        assert_eq!(seen(Fault::BusyHost), "something else used 45 % of the sender's CPUs");
    }

    #[test]
    fn an_overrun_is_seen_in_the_hosts_counters_without_a_socket() {
        let mut bad = record(1e6);
        bad.legs[0].receiver = Some(EndReport {
            counters: [("TcpExtTCPRcvQDrop".to_owned(), 5)].into(),
            ..EndReport::default()
        });
        let seen = Fault::BufferOverruns.seen_in(&bad);
        assert_eq!(seen.as_deref(), Some("TcpExtTCPRcvQDrop rose by 5"));
    }

    #[test]
    fn heat_is_a_fault_where_it_is_counted() {
        let mut warm = record(1e6);
        let throttled =
            |count| Some(EndReport { thermal_throttles: Some(count), ..EndReport::default() });
        warm.legs[0].receiver = throttled(0);
        assert_eq!(Fault::Thermal.seen_in(&warm), None);
        warm.legs[0].receiver = throttled(3);
        assert_eq!(
            Fault::Thermal.seen_in(&warm).as_deref(),
            Some("3 thermal throttles of the receiver's CPUs")
        );
    }

    #[test]
    fn on_one_kernel_the_other_end_is_no_stranger() {
        let mut local = record(1e6);
        local.environment.shared_kernel = true;
        local.legs[0].sender = Some(EndReport {
            cpus: 1,
            host_cpu_percent: Some(100.0),
            softirq_seconds: Some(0.0),
            ..EndReport::default()
        });
        assert_eq!(Fault::BusyHost.seen_in(&local), None);
    }
}
