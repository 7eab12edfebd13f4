//! A run of `capacity` on a session with an endpoint: one round, or as many as the search for the
//! limit takes.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use linerate_core::capacity::{self, CapacityDocument, CapacityTest, Search};
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::operation::CAPACITY;
use linerate_sys::socket;

use super::round::Round;
use crate::client::Client;
use crate::error::MeasureError;

/// Limits of this end, lower than the host's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapacityOptions {
    /// Most descriptors of each worker.
    pub descriptors: Option<u64>,
    /// Most worker processes for TCP, and for UDP.
    pub workers: Option<u64>,
}

/// The present phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityPhase {
    /// Both ends start their workers.
    Preparing,
    /// TCP connections are opened.
    Opening,
    /// UDP sockets are opened.
    OpeningUdp,
    /// The latency of an active connection is measured.
    Measuring,
    /// All connections are held; heartbeats check them in turn.
    Holding,
    /// Requests go over some of the connections.
    Loading,
    /// A last heartbeat checks every connection.
    Proving,
    /// All connections are closed.
    Closing,
}

/// The progress of a run, for a progress line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CapacityLive {
    /// Time since the round began, s.
    pub at_s: f64,
    /// The present phase.
    pub phase: CapacityPhase,
    /// Connections and UDP sockets that are to be opened in this round.
    pub asked: u64,
    /// Connections and UDP sockets that are open.
    pub open: u64,
    /// Connections and UDP sockets that were open and are lost.
    pub lost: u64,
}

/// The outcome of a run: its document, and what ended it early.
#[derive(Debug)]
pub struct CapacityOutcome {
    /// The document; partial if `error` is set.
    pub document: CapacityDocument,
    /// Why the run ended early.
    pub error: Option<MeasureError>,
}

/// Gets the progress; the run ends if it returns false.
pub(super) type Observe<'a> = &'a mut dyn FnMut(&CapacityLive) -> bool;

/// Refuses source addresses that this host does not have.
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
    /// Checks that the endpoint can hold connections.
    ///
    /// # Errors
    /// [`MeasureError::Lacks`] if it is too old for that.
    pub(crate) fn check_holds(&self) -> Result<(), MeasureError> {
        let lack = "holds no connections: its owner allows none (--max-connections 0), or it is \
                    too old";
        self.check_has(CAPACITY, lack)
    }

    /// Opens and holds connections, or searches for the largest number that can be held. `observe`
    /// is called about a hundred times a second; if it returns false, the run is stopped as by
    /// [`crate::Stop::request`].
    ///
    /// # Errors
    /// The run could not begin: the endpoint does not have the operation, or refuses it; this host
    /// cannot start the workers. A run that began always has an outcome.
    pub fn capacity(
        &mut self,
        test: &CapacityTest,
        options: &CapacityOptions,
        observe: Observe<'_>,
    ) -> Result<CapacityOutcome, MeasureError> {
        self.check_holds()?;
        test.check().map_err(|error| {
            self.refused(Refusal { reason: RefusalReason::Test, message: error.to_string() })
        })?;
        are_local(&test.sources)?;
        if test.find_limit {
            self.search_limit(test, options, observe)
        } else {
            Round::prepare(self, test, options, observe).map(Round::go)
        }
    }

    /// Makes rounds until the limit is known, or until all that the owner allows is held. The
    /// document is that of the smallest round that failed, because it shows why; if none failed,
    /// that of the largest.
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
                    // The result of the earlier rounds is kept.
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

/// A round of a search: it opens this many, holds them for a moment, and does nothing else.
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

/// How many connections, or UDP sockets, were alive at the end.
fn held(document: &CapacityDocument) -> u64 {
    let pool = document.tcp.as_ref().or(document.udp.as_ref());
    pool.map_or(0, |pool| pool.alive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::{Categorized, Category};

    #[test]
    fn a_source_address_of_another_host_is_refused() {
        let [own, other] = ["127.0.0.2", "198.18.255.254"].map(|text| text.parse().unwrap());
        are_local(&[own]).unwrap();
        let error = are_local(&[own, other]).unwrap_err();
        assert_eq!(error.category(), Category::Usage);
        assert!(error.to_string().contains("198.18.255.254"), "{error}");
    }
}
