//! A session-reflector of STAMP's (RFC 8762), a router's for one: it answers test packets, and
//! there is no connection.

use std::time::{Duration, SystemTime};

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::Tool;
use linerate_core::plan::{Test, Traffic};
use linerate_core::units::{DEFAULT_PORT, End, format_rfc3339};
use linerate_core::wire::{STAMP_BYTES, STAMP_PORT, StampAnswer, StampRequest};

use super::{Ended, Found};
use crate::client::{Live, Outcome, udp_socket};
use crate::clock::{now, since_1970_ns};
use crate::error::MeasureError;
use crate::host;
use crate::measure::flow::{Flow, FlowSocket};
use crate::measure::half::{Half, HalfEnd};
use crate::measure::options;
use crate::measure::shared::Marks;
use crate::measure::source::FlowSource;
use crate::stop::Stop;
use crate::target::Target;

/// Packets that may be lost before nobody is there.
const TRIES: u32 = 4;
/// For an answer to one.
const PATIENCE: Duration = Duration::from_millis(500);

/// A session-reflector.
#[derive(Debug)]
pub(super) struct Stamp {
    pub(super) found: Found,
}

impl Stamp {
    /// Finds the address that reflects; where the target has linerate's own port, at STAMP's.
    ///
    /// # Errors
    /// Nobody answers.
    pub(super) fn find(target: Target, stop: Stop) -> Result<Self, MeasureError> {
        let mut last = None;
        for mut peer in target.addresses.clone() {
            if peer.port() == DEFAULT_PORT {
                peer.set_port(STAMP_PORT);
            }
            let asked = ask(&target, peer, &stop).map_err(MeasureError::connect(peer));
            match asked {
                Ok(Some(time)) => {
                    let found = Found::new(target, peer, time, stop);
                    return Ok(Self { found });
                }
                _ if stop.is_requested() => return Err(MeasureError::Interrupted),
                Ok(None) => {
                    let reason = "no STAMP reflector answers there: it may answer none but \
                        addresses \
                                  that its owner has named (`linerate serve --stamp \
                                  --stamp-allow`)";
                    let reason = reason.to_owned();
                    last = Some(MeasureError::Foreign { peer, reason });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(MeasureError::Interrupted))
    }

    /// Runs a test.
    ///
    /// # Errors
    /// It is not of STAMP's packets, or could not be begun.
    pub(super) fn run(
        &mut self,
        test: &Test,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<Outcome, MeasureError> {
        let is_stamp = matches!(&test.traffic, Traffic::Rr(exchange) if exchange.stamp);
        if !is_stamp {
            let what = "a STAMP reflector answers nothing but STAMP's packets: `rr -u --stamp`";
            return Err(self.found.lacks(what.to_owned()));
        }
        let flow = |id| {
            let Found { target, peer, .. } = &self.found;
            let port = test.options.source_port_of(id);
            let socket = udp_socket(target, *peer, port).map_err(MeasureError::connect(*peer))?;
            options::apply_udp(&socket, &test.options, true)?;
            let socket = FlowSocket::Udp(socket);
            Ok(Flow { id, socket })
        };
        let flows = (0..test.flows()).map(flow);
        let flows = flows.collect::<Result<Vec<_>, MeasureError>>()?;
        let started_at = format_rfc3339(SystemTime::now());
        let half = Half::start_marked(
            End::Client,
            test,
            Marks::None,
            None,
            flows,
            FlowSource::Bound,
        );
        let half = half.map_err(MeasureError::host("cannot start the threads of the test"))?;
        let error = self.found.watch(test, &half, observe).err();
        let facts = host::facts_by(
            Some(self.found.peer.ip()),
            self.found.target.device.as_deref(),
        );
        let HalfEnd {
            report, exchange, ..
        } = half.stop(facts);
        let ended = Ended {
            here: report,
            there: None,
            exchange: exchange.map(|outcome| ExchangeTotals::from(&outcome)),
            error,
        };
        Ok(self
            .found
            .outcome(Tool::Stamp, test.clone(), started_at, ended))
    }
}

/// How long the first answer took; `None` if there is none.
fn ask(
    target: &Target,
    peer: std::net::SocketAddr,
    stop: &Stop,
) -> std::io::Result<Option<Duration>> {
    let socket = udp_socket(target, peer, 0)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut packet = [0; STAMP_BYTES + 1];
    for sequence in 0..TRIES {
        if stop.is_requested() {
            break;
        }
        let began = now();
        let request = StampRequest {
            sequence,
            sent_ns: since_1970_ns(),
            session: 0,
        };
        request.write(&mut packet);
        socket.send(&packet[..STAMP_BYTES])?;
        match socket.recv(&mut packet) {
            Ok(n) if StampAnswer::read(&packet[..n]).is_some() => return Ok(Some(now() - began)),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Ok(None)
}
