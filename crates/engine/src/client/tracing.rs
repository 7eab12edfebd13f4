//! The reverse path: a trace from the endpoint to this host, and the losses in each direction.

use linerate_core::plan::{Direction, Extent, Protocol, StreamTest, Test, Traffic};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::session::operation::TRACE;
use linerate_core::trace::{OneWayLoss, ReverseDocument, TraceConfig, TraceDocument, TraceRequest};
use linerate_core::units::{BitRate, Dscp};

use super::Client;
use crate::error::MeasureError;
use crate::measure::flow::one_flow;

/// Numbered packets in each direction. If none of them is lost, the loss is at most 1.9 % (score
/// interval at 95 %).
const PACKETS: u64 = 200;
/// Packets per second: a burst would itself cause losses.
const PACKETS_PER_S: u64 = 200;
/// Payload of a packet, bytes, that makes it as long as a trace's own probes over IPv4.
const PAYLOAD: u64 = 32;

impl Client {
    /// Checks that the endpoint can trace the reverse path.
    ///
    /// # Errors
    /// [`MeasureError::Lacks`] if it is too old for that.
    pub(crate) fn check_traces(&self) -> Result<(), MeasureError> {
        self.check_has(TRACE, "traces no way back: a newer one does")
    }

    /// The reverse path of what `config` traces, and the losses in each direction. What the
    /// endpoint's owner does not allow of it becomes a caveat.
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
        let rate = self.welcome.limits.rate_bps.map_or(rate, |most| rate.min(most));
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
                // Drops at the socket's buffer are no losses of the path.
                let arrived = udp.received + udp.socket_drops.unwrap_or(0);
                Ok(OneWayLoss::new(udp.sent, arrived, udp.duplicated, udp.reordered))
            }
        }
    }
}

fn doubt(what: &str, why: &str) -> Caveat {
    Caveat::new(CaveatKind::NotReadable, format!("{what}: the endpoint refuses: {why}"), "")
}

fn numbered(direction: Direction, rate: BitRate, dscp: Dscp, seed: u64) -> Test {
    let traffic = Traffic::Stream(StreamTest { rate_bps: Some(rate), ..StreamTest::new(PAYLOAD) });
    let extent = Extent::Count(PACKETS);
    let mut test = one_flow(traffic, Protocol::Udp, direction, extent);
    test.options.dscp = Some(dscp);
    test.seed = seed;
    test
}
