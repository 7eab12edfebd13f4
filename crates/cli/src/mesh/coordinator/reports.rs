//! The reports of agents: what is taken of them, and how it is saved.

use std::time::{Duration, Instant, SystemTime};

use anyhow::ensure;
use linerate_core::plan::Extent;
use linerate_core::record::RECORD_SCHEMA;
use linerate_core::units::{
    Nanos, format_rfc3339, format_rfc3339_seconds, parse_rfc3339, rfc3339_fraction_ns,
};
use linerate_engine::mesh::KeptReports;
use linerate_history::{Filter, HistoryError};
use linerate_mesh::bus::Delivery;
use linerate_mesh::message::{Outcome, Report, decode};
use linerate_mesh::{Input, Offered};
use linerate_report::document::{self, StoredDocument};

use super::{Coordinator, RUN, since_1970, test_of};
use crate::clock::now;
use crate::monitor::of_run;
use crate::{keep, output};

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
        let is_open = self.open.contains_key(&report.id);
        let mut bytes = None;
        match &report.outcome {
            Outcome::Started => {}
            Outcome::Finished { .. } if self.is_too_soon(&report) => {
                self.drop_report(site, "its result came sooner than its test lasts");
            }
            Outcome::Finished { document } => match self.save(&report, &offered, document) {
                Ok(saved) => {
                    if let Some((run, answer)) = &saved.line
                        && !self.quiet
                    {
                        let at = format_rfc3339_seconds(now());
                        // The run is saved, whether or not anybody reads the line.
                        let _ = output::print(&format!("{at} {said}: {answer} (run {run})\n"));
                    }
                    bytes = Some(saved.bytes);
                }
                Err(Unsaved::NotWhole(why)) => self.drop_report(site, &format!("{said}: {why:#}")),
                Err(Unsaved::NotNow(why)) if why.is_of_data() => {
                    if !self.set_aside(&report, &why) {
                        return false;
                    }
                }
                Err(Unsaved::NotNow(why)) => {
                    output::note(&format!("{said}: not saved, will be tried again: {why}"));
                    return false;
                }
            },
            Outcome::Failed { why } if is_open => output::note(&format!("{said}: {why}")),
            Outcome::Refused { why } if is_open => {
                output::note(&format!("{said}: refused: {why}"));
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
            output::note(&format!("{site}: {unsaid} report{plural} dropped: {why}"));
            (*said, *unsaid) = (Some(Instant::now()), 0);
        }
    }

    /// Whether a result comes before its test can have ended: a site has one run's room in the
    /// history for the time of one run.
    fn is_too_soon(&self, report: &Report) -> bool {
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
    fn set_aside(&self, report: &Report, why: &HistoryError) -> bool {
        let kept = KeptReports::open(&self.refused).and_then(|mut kept| kept.keep(report));
        let said = format!("{} {} to {}", report.test, report.from, report.to);
        match &kept {
            Ok(_) => output::note(&format!(
                "{said}: not saved, and not tried again: {why}; its report is kept as {}",
                self.refused.join(format!("{}.json", report.id)).display()
            )),
            Err(error) => output::note(&format!(
                "{said}: not saved ({why}), nor kept in {}, will be tried again: {error}",
                self.refused.display()
            )),
        }
        kept.is_ok()
    }

    /// Tells the schedule the outcome of one of its tasks.
    fn note(&mut self, report: &Report, bytes: Option<u64>) {
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
        }
        self.schedule.handle_input(now, input);
    }

    /// The document of a run of this task: a record of its workload, with a time that the offer
    /// allows.
    fn document(
        &self,
        offered: &Offered,
        waited: Option<Nanos>,
        text: &str,
    ) -> anyhow::Result<StoredDocument> {
        let schema = document::schema(text.as_bytes())?;
        ensure!(schema == RECORD_SCHEMA, "its document is not a record");
        let mut document = document::read(text.as_bytes())?;
        ensure!(document.why_partial().is_none(), "its document is not complete");
        let command = &self.mesh.tests[offered.test].command;
        for record in document.records_mut() {
            ensure!(record.workload.word() == command, "its document is of another workload");
            let told = since_1970(parse_rfc3339(&record.started_at)?);
            let now = since_1970(SystemTime::now());
            let began = offered.began(&self.mesh, told, now, waited);
            if began != told {
                let began = SystemTime::UNIX_EPOCH + Duration::from_nanos(began.0);
                record.started_at = format_rfc3339(began);
            }
        }
        Ok(document)
    }

    /// Saves a document, once even if it is reported several times.
    fn save(&mut self, report: &Report, offered: &Offered, text: &str) -> Result<Saved, Unsaved> {
        let open = self.open.get(&report.id);
        let waited = open.map(|open| self.now() - open.assignment.assigned_at);
        let document = self.document(offered, waited, text);
        let document = document.map_err(Unsaved::NotWhole)?;
        let records = document.records().unwrap_or_default();
        let bytes = records.iter().map(|record| record.bytes()).sum();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let own = [pair(RUN, &report.id), pair("from", &report.from)];
        let known = Filter { labels: own.to_vec(), most: Some(1), ..Filter::default() };
        let known = self.history.list(&known).map_err(Unsaved::NotNow)?;
        if !known.is_empty() {
            return Ok(Saved { bytes, line: None });
        }
        let mut labels = Vec::new();
        for (end, site) in [("from", offered.from), ("to", offered.to)] {
            let of_site = self.mesh.sites[site].labels.iter();
            labels.extend(of_site.map(|(key, value)| (format!("{end}_{key}"), value.clone())));
        }
        labels.extend(own);
        labels.push(pair("to", &report.to));
        labels.push(pair("test", &report.test));
        labels.push(pair("path", &format!("{}:{}", report.from, report.to)));
        let saved = keep::save(&mut self.history, &*document, &labels, Some(bytes));
        let run = saved.map_err(Unsaved::NotNow)?;
        if let Err(error) = self.push(run, labels) {
            output::note(&format!("run {run} was saved, but not sent on: {error}"));
        }
        Ok(Saved { bytes, line: Some((run, document.answer())) })
    }

    /// Sends the figures and the verdict of a saved run to the receiver of metrics.
    fn push(&self, run: i64, mut labels: Vec<(String, String)>) -> Result<(), HistoryError> {
        let Some(receiver) = &self.receiver else {
            return Ok(());
        };
        // A label of its own would make each run a series.
        labels.retain(|(key, _)| key != RUN);
        let only = Filter { id: Some(run), ..Filter::default() };
        let figures = self.history.figures(run)?;
        for saved in self.history.list(&only)? {
            let metrics = of_run(&labels, &figures, saved.cause.as_deref());
            let at_ns = saved.at_s.saturating_mul(1_000_000_000);
            let at_ns = at_ns.saturating_add(rfc3339_fraction_ns(&saved.started_at));
            receiver.send_at(&metrics, at_ns);
        }
        Ok(())
    }
}

/// A document that is in the history.
struct Saved {
    /// Bytes that the run carried.
    bytes: u64,
    /// The run's number and its answer, unless it was saved before.
    line: Option<(i64, String)>,
}

/// Why a document was not saved.
enum Unsaved {
    /// It is no complete document of a run.
    NotWhole(anyhow::Error),
    /// The history cannot be written now.
    NotNow(HistoryError),
}
