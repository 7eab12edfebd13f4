//! The way back: what the endpoint traces to here, and what is lost in each direction.

use std::time::Duration;

use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::session::operation::TRACE;
use linerate_core::trace::{OneWayLoss, ReverseDocument, TraceConfig, TraceDocument, TraceRequest};
use linerate_core::units::{BitRate, Dscp, Span};

use super::Client;
use crate::error::MeasureError;

/// Numbered packets in each direction: none lost of so many are at most 1.9 % (the score interval
/// at 95 %).
const PACKETS: u64 = 200;
/// So many a second: a burst would lose packets by itself.
const PACKETS_PER_S: u64 = 200;
/// What makes them as long as a trace's own probes over IPv4.
const PAYLOAD: u64 = 32;

impl Client {
    /// Whether the endpoint traces the way back.
    ///
    /// # Errors
    /// [`MeasureError::Lacks`] if it is too old for that.
    pub fn check_traces(&self) -> Result<(), MeasureError> {
        if self.welcome.has(TRACE) {
            return Ok(());
        }
        Err(MeasureError::Lacks {
            peer: self.peer,
            what: format!(
                "its linerate {} traces no way back: a newer one does",
                self.welcome.software
            ),
        })
    }

    /// The way back of what `config` traces, and what is lost in each direction. What the
    /// endpoint's owner does not allow of that becomes a caveat.
    ///
    /// # Errors
    /// The endpoint does not have the operation; the session failed or was interrupted.
    pub fn trace_back(
        &mut self,
        config: &TraceConfig,
        seed: u64,
    ) -> Result<ReverseDocument, MeasureError> {
        self.check_traces()?;
        let mut caveats = Vec::new();
        let loss_there = self.one_way(Direction::Up, (config.dscp, seed), &mut caveats)?;
        let loss_back = self.one_way(Direction::Down, (config.dscp, seed), &mut caveats)?;
        let trace = self.ask_for_trace(TraceRequest::back_of(config), &mut caveats)?;
        Ok(ReverseDocument {
            endpoint: self.peer.to_string(),
            trace: trace.map(Box::new),
            loss_there,
            loss_back,
            words: Vec::new(),
            caveats,
        })
    }

    fn ask_for_trace(
        &mut self,
        request: TraceRequest,
        caveats: &mut Vec<Caveat>,
    ) -> Result<Option<TraceDocument>, MeasureError> {
        match self.ask(request) {
            Err(MeasureError::Refused { refusal, .. }) => {
                caveats.push(doubt("the way back is not known", &refusal.message));
                Ok(None)
            }
            outcome => outcome.map(|document| Some(*document)),
        }
    }

    fn one_way(
        &mut self,
        direction: Direction,
        (dscp, seed): (Dscp, u64),
        caveats: &mut Vec<Caveat>,
    ) -> Result<Option<OneWayLoss>, MeasureError> {
        let rate = PAYLOAD * 8 * PACKETS_PER_S;
        let rate = self
            .welcome
            .limits
            .rate_bps
            .map_or(rate, |most| rate.min(most));
        let test = numbered(direction, BitRate(rate.max(1)), dscp, seed);
        let outcome = match self.run(&test, &mut |_| true) {
            Err(MeasureError::Refused { refusal, .. }) => {
                caveats.push(doubt("losses are not known by direction", &refusal.message));
                return Ok(None);
            }
            outcome => outcome?,
        };
        match (outcome.error, outcome.record.udp()) {
            (Some(error), _) => Err(error),
            (None, None) => Ok(None),
            (None, Some(udp)) => {
                // What a socket's buffer drops is no loss of the path.
                let arrived = udp.received + udp.socket_drops.unwrap_or(0);
                Ok(OneWayLoss::new(
                    udp.sent,
                    arrived,
                    udp.duplicated,
                    udp.reordered,
                ))
            }
        }
    }
}

fn doubt(what: &str, why: &str) -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!("{what}: the endpoint refuses: {why}"),
        "",
    )
}

fn numbered(direction: Direction, rate: BitRate, dscp: Dscp, seed: u64) -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest {
            rate_bps: Some(rate),
            ..StreamTest::new(PAYLOAD)
        }),
        protocol: Protocol::Udp,
        direction,
        streams: 1,
        extent: Extent::Count(PACKETS),
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions {
            dscp: Some(dscp),
            ..SocketOptions::default()
        },
        seed,
    }
}
