//! A run of `capacity` on a session with an endpoint: once, or as often as the search for the limit
//! takes.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use linerate_core::capacity::{self, CapacityDocument, CapacityTest, Search};
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::operation::CAPACITY;
use linerate_sys::socket;

use super::round::Round;
use crate::client::Client;
use crate::error::MeasureError;

/// How this end holds connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapacityOptions {
    /// Descriptors of each worker, fewer than the host allows.
    pub descriptors: Option<u64>,
    /// Worker processes of each kind, fewer than usual. More connections than they can hold find
    /// the limit.
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

/// Refuses addresses to connect from that this host has not got.
fn are_local(sources: &[IpAddr]) -> Result<(), MeasureError> {
    let is_elsewhere = |address: &&IpAddr| {
        let bound = socket::udp_socket(SocketAddr::new(**address, 0), None, false);
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    };
    match sources.iter().find(is_elsewhere) {
        Some(address) => Err(MeasureError::NotLocal { address: *address }),
        None => Ok(()),
    }
}

impl Client {
    /// Whether the endpoint holds connections.
    ///
    /// # Errors
    /// [`MeasureError::Lacks`] if it is too old for that.
    pub fn check_holds(&self) -> Result<(), MeasureError> {
        let welcome = self.welcome();
        if welcome.has(CAPACITY) {
            return Ok(());
        }
        Err(MeasureError::Lacks {
            peer: self.peer(),
            what: format!(
                "its linerate {} holds no connections: its owner allows none (--max-connections \
                 0), or it is too old",
                welcome.software
            ),
        })
    }

    /// Opens and holds connections, or searches for the number at which that stops. `observe` is
    /// called about a hundred times a second; if it answers false, the run is stopped as by
    /// [`crate::Stop::request`].
    ///
    /// # Errors
    /// It could not be begun: the endpoint does not have the operation or refuses, this host cannot
    /// start the workers. One that began always has an outcome.
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
        are_local(&test.sources)?;
        if test.find_limit {
            self.search_limit(test, options, observe)
        } else {
            Round::prepare(self, test, options, observe).map(Round::go)
        }
    }

    /// Rounds until the limit is known, or all that the owner allows is held. The document is that
    /// of the smallest round that was not held, since it says why; where all were held, of the
    /// largest.
    fn search_limit(
        &mut self,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'_>,
    ) -> Result<CapacityOutcome, MeasureError> {
        let allowed = self.welcome().limits.connections;
        let most = test.connections.max(test.udp_sockets);
        let mut search = Search::new(most.min(allowed));
        let mut kept: Option<CapacityOutcome> = None;
        while let Some(asked) = search.next_number() {
            let outcome = match Round::prepare(self, &round_of(test, asked), options, observe) {
                Ok(round) => round.go(),
                Err(error) => match &mut kept {
                    // What the rounds before have found is worth more than nothing.
                    Some(found) => {
                        found.error = Some(error);
                        break;
                    }
                    None => return Err(error),
                },
            };
            let held = held(&outcome.document);
            let is_over = outcome.error.is_some();
            if held < asked || is_over || search.found().stops_at.is_none() {
                kept = Some(outcome);
            }
            if is_over {
                break;
            }
            search.handle_round(held);
        }
        let mut outcome = kept.ok_or(MeasureError::Interrupted)?;
        outcome.document.test.find_limit = true;
        outcome.document.search = Some(search.found());
        capacity::annotate(&mut outcome.document);
        Ok(outcome)
    }
}

/// A round of a search: so many, held for a moment, and nothing else.
fn round_of(test: &CapacityTest, asked: u64) -> CapacityTest {
    let (connections, udp_sockets) = match test.connections {
        0 => (0, asked),
        _ => (asked, 0),
    };
    CapacityTest {
        connections,
        udp_sockets,
        churn_per_s: 0,
        load: None,
        latency: false,
        find_limit: false,
        ..test.clone()
    }
}

/// How many were there to the end.
fn held(document: &CapacityDocument) -> u64 {
    let pool = document.tcp.as_ref().or(document.udp.as_ref());
    pool.map_or(0, |pool| pool.alive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::{Categorized, Category};

    #[test]
    fn an_address_of_another_host_is_refused_before_anything_is_opened() {
        let [own, other] = ["127.0.0.2", "198.18.255.254"].map(|text| text.parse().unwrap());
        are_local(&[own]).unwrap();
        let error = are_local(&[own, other]).unwrap_err();
        assert_eq!(error.category(), Category::Usage);
        assert!(error.to_string().contains("198.18.255.254"), "{error}");
    }
}
