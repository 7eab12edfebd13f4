//! The reports of agents: what is taken of them, and how it is saved.

use std::time::{Duration, Instant, SystemTime};

use linerate_core::plan::Extent;
use linerate_core::record::{RECORD_SCHEMA, Record, Status};
use linerate_core::units::{Nanos, format_rfc3339, parse_rfc3339};
use linerate_history::{Filter, HistoryError};
use linerate_mesh::bus::Delivery;
use linerate_mesh::message::{Outcome, Report, decode};
use linerate_mesh::{Input, Offered};

use super::super::KeptReports;
use super::{Coordinator, MeshResult, RUN, test_of};
use crate::clock::{nanos, since_1970_ns};

/// Time between two lines about reports of one site that are dropped.
const SAY_EVERY: Duration = Duration::from_secs(60);

impl Coordinator<'_> {
    /// Takes a report; `false` if it must come again.
    pub(super) fn take(&mut self, delivery: &Delivery) -> bool {
        let site = &delivery.site;
        let report: Report = match decode(&delivery.body) {
            Ok(report) => report,
            Err(error) => {
                self.drop_report(site, &error.to_string());
                return true;
            }
        };
        let offered = match self.offers.find(&self.mesh, site, &report) {
            Ok(offered) => offered,
            Err(error) => {
                self.drop_report(site, &error.to_string());
                return true;
            }
        };
        let said = format!("{} {} to {}", report.test, report.from, report.to);
        if offered.is_proof {
            self.take_of_proof(&report, &said, &offered);
            return true;
        }
        let is_open = self.open.contains_key(&report.id);
        let mut bytes = None;
        match &report.outcome {
            Outcome::Started => {}
            Outcome::Finished { .. } if self.is_too_soon(&report) => {
                self.drop_report(site, "its result came sooner than its test lasts");
            }
            Outcome::Finished { document } => match self.save(&report, &said, &offered, document) {
                Ok(carried) => {
                    bytes = Some(carried);
                    self.count(offered.test);
                }
                Err(Unsaved::NotWhole(why)) => self.drop_report(site, &format!("{said}: {why}")),
                Err(Unsaved::NotNow(why)) if why.is_of_data() => {
                    if !self.set_aside(&report, &said, &why) {
                        return false;
                    }
                }
                Err(Unsaved::NotNow(why)) => {
                    (self.say)(&format!("{said}: not saved, will be tried again: {why}"));
                    return false;
                }
            },
            Outcome::Failed { why } if is_open => (self.say)(&format!("{said}: {why}")),
            Outcome::Refused { why } if is_open => {
                (self.say)(&format!("{said}: refused: {why}"));
            }
            // Said before, or by an earlier coordinator.
            Outcome::Failed { .. } | Outcome::Refused { .. } => {}
        }
        self.note(&report, bytes);
        true
    }

    /// Says why reports of a site are dropped; once a minute, since they may be many.
    fn drop_report(&mut self, site: &str, why: &str) {
        let number = self.mesh.site(site);
        let (said, unsaid) = self.dropped.entry(number).or_default();
        *unsaid += 1;
        if said.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
            let plural = if *unsaid == 1 { "" } else { "s" };
            (self.say)(&format!("{site}: {unsaid} report{plural} dropped: {why}"));
            (*said, *unsaid) = (Some(Instant::now()), 0);
        }
    }

    /// Whether a result comes before its test can have ended: a site has one run's room in the
    /// history for the time of one run.
    pub(super) fn is_too_soon(&self, report: &Report) -> bool {
        self.open.get(&report.id).is_some_and(|open| {
            let work = test_of(&self.mesh.tests[open.assignment.test].work);
            let Some(Extent::Time(time)) = work.map(|work| work.extent) else {
                return false;
            };
            self.now().0 < open.assignment.assigned_at.0 + time.0.as_nanos() as u64
        })
    }

    /// Keeps a result that the history does not take in a file of its own. False if that cannot be
    /// written now.
    fn set_aside(&self, report: &Report, said: &str, why: &HistoryError) -> bool {
        let kept = KeptReports::open(&self.refused).and_then(|mut kept| kept.keep(report));
        match &kept {
            Ok(_) => (self.say)(&format!(
                "{said}: not saved, and not tried again: {why}; its report is kept as {}",
                self.refused.join(format!("{}.json", report.id)).display()
            )),
            Err(error) => (self.say)(&format!(
                "{said}: not saved ({why}), nor kept in {}, will be tried again: {error}",
                self.refused.display()
            )),
        }
        kept.is_ok()
    }

    /// Tells the schedule the outcome of one of its tasks.
    pub(super) fn note(&mut self, report: &Report, bytes: Option<u64>) {
        let now = self.now();
        let Some(open) = self.open.get(&report.id) else {
            return;
        };
        let assignment = open.assignment;
        self.once.idle = Instant::now();
        let task = assignment.id;
        let input = match (&report.outcome, bytes) {
            (Outcome::Started, _) => {
                return self.schedule.handle_input(now, Input::Started(task));
            }
            (_, Some(bytes)) => Input::Finished { task, bytes },
            (outcome, None) => Input::Failed {
                task,
                why: match outcome {
                    Outcome::Refused { .. } => linerate_mesh::Failure::Refused,
                    _ => linerate_mesh::Failure::Tried,
                },
            },
        };
        self.open.remove(&report.id);
        if bytes.is_some() {
            self.once.measured(assignment.test, [assignment.from, assignment.to]);
            // Before the schedule begins another cycle.
            self.end_tests();
        }
        self.schedule.handle_input(now, input);
    }

    /// The record of a run of this task: complete, of its workload, and with a time that the offer
    /// allows.
    pub(super) fn record(
        &self,
        offered: &Offered,
        waited: Option<Nanos>,
        text: &str,
    ) -> Result<Record, String> {
        let read = serde_json::from_str(text);
        let mut record: Record =
            read.map_err(|error| format!("its document is not a whole record: {error}"))?;
        if record.schema != RECORD_SCHEMA {
            return Err("its document is not a record".to_owned());
        }
        if record.status != Status::Complete {
            return Err("its document is not complete".to_owned());
        }
        if record.workload.word() != self.mesh.tests[offered.test].command {
            return Err("its document is of another workload".to_owned());
        }
        let told = parse_rfc3339(&record.started_at).map_err(|error| error.to_string())?;
        let told = Nanos(told.duration_since(SystemTime::UNIX_EPOCH).map_or(0, nanos));
        let began = offered.began(&self.mesh, told, Nanos(since_1970_ns()), waited);
        if began != told {
            let began = SystemTime::UNIX_EPOCH + Duration::from_nanos(began.0);
            record.started_at = format_rfc3339(began);
        }
        Ok(record)
    }

    /// Saves a document, once even if it is reported several times. Returns the bytes that its run
    /// carried.
    fn save(
        &mut self,
        report: &Report,
        said: &str,
        offered: &Offered,
        text: &str,
    ) -> Result<u64, Unsaved> {
        let open = self.open.get(&report.id);
        let waited = open.map(|open| self.now() - open.assignment.assigned_at);
        let record = &self.record(offered, waited, text).map_err(Unsaved::NotWhole)?;
        let bytes = record.bytes();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let own = [pair(RUN, &report.id), pair("from", &report.from)];
        let known = Filter { labels: own.to_vec(), most: Some(1), ..Filter::default() };
        let known = self.history.list(&known).map_err(Unsaved::NotNow)?;
        if !known.is_empty() {
            return Ok(bytes);
        }
        self.save_record(report, said, offered, record, None).map_err(Unsaved::NotNow)?;
        Ok(bytes)
    }

    /// Saves a record with the labels of its test and sites, and of a proof with why it was made.
    pub(super) fn save_record(
        &mut self,
        report: &Report,
        said: &str,
        offered: &Offered,
        record: &Record,
        proof: Option<(String, String)>,
    ) -> Result<(), HistoryError> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let own = [pair(RUN, &report.id), pair("from", &report.from)];
        let mut labels = Vec::from_iter(proof);
        for (end, site) in [("from", offered.from), ("to", offered.to)] {
            let of_site = self.mesh.sites[site].labels.iter();
            labels.extend(of_site.map(|(key, value)| (format!("{end}_{key}"), value.clone())));
        }
        labels.extend(own);
        labels.push(pair("to", &report.to));
        labels.push(pair("test", &report.test));
        labels.push(pair("path", &format!("{}:{}", report.from, report.to)));
        let of_all = record.leg().and_then(|leg| leg.experiments_bytes);
        let bytes = of_all.unwrap_or_else(|| record.bytes());
        let result = MeshResult { said, record, labels, bytes };
        (self.save)(&mut self.history, &result)
    }
}

/// Why a document was not saved.
enum Unsaved {
    /// It is no complete document of a run.
    NotWhole(String),
    /// The history cannot be written now.
    NotNow(HistoryError),
}
