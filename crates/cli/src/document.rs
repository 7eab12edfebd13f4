//! The documents that a command prints, stores and reads again.

use std::path::Path;

use anyhow::{Context, anyhow};
use linerate_core::analyze::{ANALYSIS_SCHEMA, Analysis};
use linerate_core::capacity::{self, CAPACITY_SCHEMA, CapacityDocument};
use linerate_core::ceilings;
use linerate_core::compare::{COMPARISON_SCHEMA, Comparison};
use linerate_core::experiment::{EXPERIMENT_SCHEMA, ExperimentDocument};
use linerate_core::host::{HOST_SCHEMA, HostDocument};
use linerate_core::lab::{LAB_SCHEMA, LabsDocument};
use linerate_core::profile::{PROFILE_SCHEMA, ProfileDocument};
use linerate_core::record::{
    CHECK_SCHEMA, Caveat, CaveatKind, Check, Environment, RECORD_SCHEMA, Record, SWEEP_SCHEMA,
    Status, Sweep,
};
use linerate_core::trace::{TRACE_SCHEMA, TraceDocument};
use linerate_core::truth::{Score, TRUTH_SCHEMA};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::files;

/// Largest document that is read, bytes: a thousand records with their intervals and samples.
const MAX_DOCUMENT: u64 = 64 << 20;

/// One of the documents, told apart by its `schema`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Document {
    /// One run.
    Record(Box<Record>),
    /// Sizes or repeats.
    Sweep(Sweep),
    /// A path examined.
    Check(Box<Check>),
    /// Two treatments against each other.
    Comparison(Box<Comparison>),
    /// Where the CPU time of a transfer went.
    Profile(Box<ProfileDocument>),
    /// The route to a host.
    Trace(Box<TraceDocument>),
    /// An experiment with all of its runs.
    Experiment(Box<ExperimentDocument>),
    /// Figures measured elsewhere.
    Analysis(Box<Analysis>),
    /// How often verdicts were right.
    Truth(Box<Score>),
    /// Labs that are up.
    Labs(LabsDocument),
    /// Settings of a host.
    Host(Box<HostDocument>),
    /// How many connections two ends held.
    Capacity(Box<CapacityDocument>),
}

/// Schemas of the documents that are read.
const SCHEMAS: [&str; 12] = [
    RECORD_SCHEMA,
    SWEEP_SCHEMA,
    CHECK_SCHEMA,
    COMPARISON_SCHEMA,
    PROFILE_SCHEMA,
    TRACE_SCHEMA,
    EXPERIMENT_SCHEMA,
    ANALYSIS_SCHEMA,
    TRUTH_SCHEMA,
    LAB_SCHEMA,
    HOST_SCHEMA,
    CAPACITY_SCHEMA,
];

impl Document {
    /// Reads the document that a file holds.
    ///
    /// # Errors
    /// The file cannot be read, is too large, is not whole (with line and column), or is something
    /// else.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = files::read_at_most(path, MAX_DOCUMENT).map_err(Failure::usage)?;
        Self::parse(&bytes)
            .with_context(|| path.display().to_string())
            .map_err(Failure::usage)
    }

    /// Every run in the document; a comparison has the figures of its runs alone, and so have some
    /// of an experiment's.
    pub(crate) fn records_mut(&mut self) -> Box<dyn Iterator<Item = &mut Record> + '_> {
        match self {
            Self::Record(record) => Box::new(std::iter::once(record.as_mut())),
            Self::Profile(profile) => Box::new(std::iter::once(profile.record.as_mut())),
            Self::Sweep(sweep) => Box::new(sweep.rows.iter_mut()),
            Self::Check(check) => Box::new(check.up.iter_mut().chain(&mut check.down)),
            Self::Experiment(whole) => {
                Box::new((whole.runs.iter_mut()).filter_map(|run| run.record.as_deref_mut()))
            }
            Self::Comparison(_)
            | Self::Trace(_)
            | Self::Analysis(_)
            | Self::Truth(_)
            | Self::Labs(_)
            | Self::Capacity(_)
            | Self::Host(_) => Box::new(std::iter::empty()),
        }
    }

    /// Computes anew what is concluded from the document's own evidence: ceilings and verdicts,
    /// limits.
    pub(crate) fn annotate(&mut self) {
        self.records_mut().for_each(ceilings::annotate);
        if let Self::Capacity(document) = self {
            capacity::annotate(document);
        }
    }

    /// What each run was made on, with its caveats; a check's and a comparison's own, too.
    pub(crate) fn environments_mut(
        &mut self,
    ) -> Box<dyn Iterator<Item = (&mut Environment, &mut Vec<Caveat>)> + '_> {
        fn of(record: &mut Record) -> (&mut Environment, &mut Vec<Caveat>) {
            (&mut record.environment, &mut record.caveats)
        }
        match self {
            Self::Record(record) => Box::new(std::iter::once(of(record))),
            Self::Profile(profile) => Box::new(std::iter::once(of(&mut profile.record))),
            Self::Sweep(sweep) => Box::new(sweep.rows.iter_mut().map(of)),
            Self::Check(check) => Box::new(
                (check.up.iter_mut().chain(&mut check.down).map(of))
                    .chain([(&mut check.environment, &mut check.caveats)]),
            ),
            Self::Comparison(whole) => Box::new(std::iter::once((
                &mut whole.environment,
                &mut whole.caveats,
            ))),
            Self::Capacity(whole) => Box::new(std::iter::once((
                &mut whole.environment,
                &mut whole.caveats,
            ))),
            // They were made on a path of their own, or on none.
            Self::Trace(_)
            | Self::Experiment(_)
            | Self::Analysis(_)
            | Self::Truth(_)
            | Self::Labs(_)
            | Self::Host(_) => Box::new(std::iter::empty()),
        }
    }

    /// Why a run of the document ended before its time, if one did.
    pub(crate) fn why_partial(&self) -> Option<&str> {
        match self {
            Self::Record(record) => why_partial(record.status, &record.caveats),
            Self::Profile(profile) => why_partial(profile.record.status, &profile.record.caveats),
            Self::Sweep(sweep) => {
                let mut rows = sweep.rows.iter();
                rows.find_map(|row| why_partial(row.status, &row.caveats))
            }
            Self::Check(check) => why_partial(check.status, &check.caveats),
            Self::Comparison(whole) => why_partial(whole.status, &whole.caveats),
            Self::Experiment(whole) => why_partial(whole.status, &whole.caveats),
            Self::Capacity(whole) => why_partial(whole.status, &whole.caveats),
            // Where it was stopped is said by its end.
            Self::Trace(_) => None,
            Self::Analysis(_) | Self::Truth(_) | Self::Labs(_) | Self::Host(_) => None,
        }
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        /// Every document says first what it is; the rest is skipped here, but must be whole.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head =
            serde_json::from_slice(bytes).context("not a whole document of linerate's")?;
        let document = match head.schema.as_str() {
            RECORD_SCHEMA => serde_json::from_slice(bytes).map(Self::Record),
            SWEEP_SCHEMA => serde_json::from_slice(bytes).map(Self::Sweep),
            CHECK_SCHEMA => serde_json::from_slice(bytes).map(Self::Check),
            COMPARISON_SCHEMA => serde_json::from_slice(bytes).map(Self::Comparison),
            PROFILE_SCHEMA => serde_json::from_slice(bytes).map(Self::Profile),
            TRACE_SCHEMA => serde_json::from_slice(bytes).map(Self::Trace),
            EXPERIMENT_SCHEMA => serde_json::from_slice(bytes).map(Self::Experiment),
            ANALYSIS_SCHEMA => serde_json::from_slice(bytes).map(Self::Analysis),
            TRUTH_SCHEMA => serde_json::from_slice(bytes).map(Self::Truth),
            LAB_SCHEMA => serde_json::from_slice(bytes).map(Self::Labs),
            HOST_SCHEMA => serde_json::from_slice(bytes).map(Self::Host),
            CAPACITY_SCHEMA => serde_json::from_slice(bytes).map(Self::Capacity),
            other => {
                return Err(anyhow!(
                    "its schema is `{}`; this version explains {}",
                    other.chars().take(60).collect::<String>(),
                    SCHEMAS.join(", ")
                ));
            }
        };
        document.with_context(|| format!("not a whole {}", head.schema))
    }
}

fn why_partial(status: Status, caveats: &[Caveat]) -> Option<&str> {
    if status == Status::Complete {
        return None;
    }
    let reason = caveats
        .iter()
        .find(|caveat| caveat.kind == CaveatKind::Partial);
    Some(reason.map_or("the reason is not known", |caveat| &caveat.message))
}

#[cfg(test)]
pub(crate) mod tests {
    use linerate_core::lab::{LabShown, LinkStatus};
    use linerate_core::plan::{Direction, Extent, Protocol, Test};
    use linerate_core::plan::{ReceiveMethod, SendMethod, StreamTest, Traffic, Workload};
    use linerate_core::record::{Environment, LabDirection};
    use linerate_core::units::{Family, Span};

    use super::*;

    /// A stream of one second at so many bits per second.
    pub(crate) fn record(throughput_bps: f64) -> Record {
        let second = Span::from_secs_f64(1.0).unwrap();
        Record {
            schema: RECORD_SCHEMA.to_owned(),
            status: Status::Complete,
            started_at: "2026-01-01T00:00:00Z".to_owned(),
            host: "pit".to_owned(),
            peer: "198.18.0.1:5201".to_owned(),
            workload: Workload::Stream,
            protocol: Protocol::Tcp,
            family: Family::Ipv4,
            direction: Direction::Up,
            plan: Test {
                traffic: Traffic::Stream(StreamTest {
                    message_bytes: 131_072,
                    send: SendMethod::Copy,
                    receive: ReceiveMethod::Read,
                    verify: false,
                    whole: false,
                    write_rate_bps: None,
                    read_rate_bps: None,
                    rate_bps: None,
                    offload: false,
                    train: false,
                }),
                protocol: Protocol::Tcp,
                direction: Direction::Up,
                streams: 1,
                extent: Extent::Time(second),
                warm_up: Span::from_secs_f64(0.0).unwrap(),
                interval: second,
                options: linerate_core::plan::SocketOptions::default(),
                seed: 1,
            },
            throughput_bps: Some(throughput_bps),
            seconds: 1.0,
            bytes: (throughput_bps / 8.0) as u64,
            messages: None,
            transactions: None,
            transactions_per_s: None,
            connections_per_s: None,
            latency_us: None,
            latency_histogram: None,
            send_lag_us: None,
            requests_not_sent: None,
            failed: None,
            corrupted_bytes: None,
            path_train: None,
            via: None,
            served: false,
            sender: None,
            receiver: None,
            tcp: None,
            udp: None,
            flows: vec![],
            directions: Default::default(),
            intervals: vec![],
            ceilings: vec![],
            verdict: None,
            caveats: vec![],
            environment: Environment::default(),
            seed: 1,
        }
    }

    pub(crate) fn sweep(rows: Vec<Record>) -> Sweep {
        Sweep {
            schema: SWEEP_SCHEMA.to_owned(),
            rows,
            figures: vec![],
            caveats: vec![],
        }
    }

    pub(crate) fn check(up: Option<Record>, down: Option<Record>) -> Check {
        Check {
            schema: CHECK_SCHEMA.to_owned(),
            status: Status::Complete,
            started_at: "2026-01-01T00:00:00Z".to_owned(),
            host: "pit".to_owned(),
            path: Default::default(),
            one_sided: up.is_none() && down.is_none(),
            up,
            down,
            up_throughput_bps: None,
            down_throughput_bps: None,
            idle_latency_us: None,
            loaded_latency_us: None,
            loaded_latency_by_direction_us: Default::default(),
            hidden_fault: None,
            route: None,
            caveats: vec![],
            environment: Environment::default(),
        }
    }

    fn labs() -> LabsDocument {
        LabsDocument {
            schema: LAB_SCHEMA.to_owned(),
            labs: vec![LabShown {
                name: "lab".to_owned(),
                pid: 7,
                hosts: vec![],
                baseline_rtt_us: Some(60.0),
                links: Some(vec![LinkStatus {
                    name: "a-b".to_owned(),
                    between: ["a", "b"].map(str::to_owned),
                    spec: "rtt=2ms".to_owned(),
                    mtu_bytes: 1500,
                    up: Some(LabDirection::default()),
                    down: None,
                }]),
                running: vec![],
            }],
        }
    }

    fn documents() -> [Document; 6] {
        [
            Document::Host(Box::new(HostDocument::new(Default::default()))),
            Document::Labs(labs()),
            Document::Truth(Box::new(Score::of(1, vec![], vec![]))),
            Document::Record(Box::new(record(1e6))),
            Document::Sweep(sweep(vec![record(1e6), record(2e6)])),
            Document::Check(Box::new(check(Some(record(1e6)), None))),
        ]
    }

    #[test]
    fn every_document_reads_back_as_it_was_written() {
        for document in documents() {
            let text = serde_json::to_vec_pretty(&document).unwrap();
            assert_eq!(Document::parse(&text).unwrap(), document);
        }
    }

    #[test]
    fn a_document_cut_anywhere_is_refused_with_its_place() {
        for document in documents() {
            let text = serde_json::to_string_pretty(&document).unwrap();
            for end in (0..text.len() - 1).step_by(7) {
                let error = format!(
                    "{:#}",
                    Document::parse(&text.as_bytes()[..end]).unwrap_err()
                );
                assert!(
                    error.contains("line ") && error.contains("column "),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn another_schema_is_refused_by_its_name() {
        let error = Document::parse(br#"{"schema": "linerate.record/2"}"#).unwrap_err();
        assert!(error.to_string().contains("`linerate.record/2`"), "{error}");
    }

    #[test]
    fn the_reason_of_a_partial_run_is_found_in_its_caveats() {
        let mut cut = record(1e6);
        cut.status = Status::Partial;
        cut.caveats = vec![Caveat::new(CaveatKind::Partial, "interrupted", "")];
        let document = Document::Sweep(sweep(vec![record(1e6), cut]));
        assert_eq!(document.why_partial(), Some("interrupted"));
        for whole in documents() {
            assert_eq!(whole.why_partial(), None);
        }
    }
}
