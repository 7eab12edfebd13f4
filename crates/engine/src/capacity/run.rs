//! A run of `capacity` on a session with an endpoint: once, or as often as the search for the limit takes.

use linerate_core::capacity::{self, CapacityDocument, CapacityTest, Search};
use linerate_core::wire::message::{CAPACITY, Refusal, RefusalReason};

use super::round::Round;
use crate::client::Client;
use crate::error::MeasureError;

/// How this end holds connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapacityOptions {
    /// Descriptors of each worker, fewer than the host allows.
    pub descriptors: Option<u64>,
    /// Worker processes of each kind, fewer than usual. More connections than they can hold find the limit.
    pub workers: Option<u64>,
}

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityPhase {
    /// Both ends start their workers.
    Preparing,
    /// TCP connections are opened.
    Opening,
    /// UDP sockets are opened.
    OpeningUdp,
    /// An active connection's latency is measured.
    Measuring,
    /// All are held, and prove themselves alive in turn.
    Holding,
    /// Requests go over a part of them.
    Loading,
    /// Each proves itself alive once more.
    Proving,
    /// All is closed.
    Closing,
}

/// How a run goes, for a progress line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CapacityLive {
    /// Since it began, s.
    pub at_s: f64,
    /// What it is doing.
    pub phase: CapacityPhase,
    /// Connections and UDP sockets that are to be opened in this round.
    pub asked: u64,
    /// Open at present.
    pub open: u64,
    /// Gone.
    pub lost: u64,
}

/// One run's outcome: what there is to record, and what ended it early.
#[derive(Debug)]
pub struct CapacityOutcome {
    /// The document; partial if `error` is set.
    pub document: CapacityDocument,
    /// Why it ended before its time.
    pub error: Option<MeasureError>,
}

/// Answers false to end the run.
pub(super) type Observe<'a> = &'a mut dyn FnMut(&CapacityLive) -> bool;

impl Client {
    /// Whether the endpoint holds connections.
    ///
    /// # Errors
    /// [`MeasureError::Lacks`] if it is too old for that.
    pub fn check_holds(&self) -> Result<(), MeasureError> {
        let welcome = self.welcome();
        if welcome.operations.iter().any(|name| name == CAPACITY) {
            return Ok(());
        }
        Err(MeasureError::Lacks {
            peer: self.peer(),
            what: format!(
                "its linerate {} holds no connections: a newer one does",
                welcome.software
            ),
        })
    }

    /// Opens and holds connections, or searches for the number at which that stops. `observe` is called about a hundred
    /// times a second; if it answers false, the run is stopped as by [`crate::Stop::request`].
    ///
    /// # Errors
    /// It could not be begun: the endpoint does not have the operation or refuses, this host cannot start the workers.
    /// One that began always has an outcome.
    pub fn capacity(
        &mut self,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'_>,
    ) -> Result<CapacityOutcome, MeasureError> {
        self.check_holds()?;
        test.check().map_err(|error| {
            self.refused(Refusal {
                reason: RefusalReason::Test,
                message: error.to_string(),
            })
        })?;
        match test.find_limit {
            true => self.search_limit(test, options, observe),
            false => Round::prepare(self, test, options, observe).map(Round::go),
        }
    }

    /// The document is of the smallest round that was not held: that one says why.
    fn search_limit(
        &mut self,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'_>,
    ) -> Result<CapacityOutcome, MeasureError> {
        let is_tcp = test.connections > 0;
        let most = if is_tcp {
            test.connections
        } else {
            test.udp_sockets
        };
        // More than the endpoint's owner allows would only be refused.
        let most = most.min(self.welcome().limits.connections);
        let mut search = Search::new(most);
        let mut telling: Option<(u64, bool, CapacityOutcome)> = None;
        while let Some(asked) = search.next_number() {
            let (connections, udp_sockets) = if is_tcp { (asked, 0) } else { (0, asked) };
            let round = CapacityTest {
                connections,
                udp_sockets,
                churn_per_s: 0,
                load: None,
                latency: false,
                ..test.clone()
            };
            let outcome = Round::prepare(self, &round, options, observe)?.go();
            let document = &outcome.document;
            let pool = document.tcp.as_ref().or(document.udp.as_ref());
            let held = pool.map_or(0, |pool| pool.alive);
            let ended = outcome.error.is_some();
            if !ended {
                search.handle_round(held);
            }
            let is_held = held >= asked;
            let tells_more = telling
                .as_ref()
                .is_none_or(|(before, was_held, _)| *was_held || (!is_held && asked < *before));
            if tells_more || ended {
                telling = Some((asked, is_held, outcome));
            }
            if ended {
                break;
            }
        }
        let (.., mut outcome) = telling.ok_or(MeasureError::Interrupted)?;
        outcome.document.test.find_limit = true;
        outcome.document.search = Some(search.found());
        capacity::annotate(&mut outcome.document);
        Ok(outcome)
    }
}
