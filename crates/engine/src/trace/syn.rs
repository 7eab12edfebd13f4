//! TCP probes without privilege: each is a connection attempt.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_core::trace::{Answer, AnswerKind, Probe, ProbeCodec, ProbeId, ProbeIdentity, Quoted};
use linerate_core::units::Nanos;
use linerate_sys::poll::Poller;
use linerate_sys::probe::{ReceiveBuffer, SynAnswer, SynSocket};

use super::channel::{Way, answer_of, kernel};
use super::findings::TraceError;

/// Attempts that are not answered yet.
pub(super) struct SynProbes {
    way: Way,
    codec: ProbeCodec,
    open: HashMap<u64, SynProbe>,
}

struct SynProbe {
    id: ProbeId,
    flow: u16,
    socket: SynSocket,
}

impl SynProbes {
    pub(super) fn new(way: Way, codec: ProbeCodec) -> Self {
        Self { way, codec, open: HashMap::new() }
    }

    pub(super) fn send(&mut self, probe: &Probe, poller: &Poller) -> Result<(), TraceError> {
        let to = SocketAddr::new(self.way.target, self.way.port);
        let marks = (probe.ttl, probe.traffic_class());
        let socket = SynSocket::send(self.way.source, to, marks, self.way.device.as_deref())
            .map_err(|source| kernel("send a SYN", source))?;
        let number = u64::from(probe.id.0);
        // A socket that is connected or has failed becomes writable.
        let watched = poller.add_writable(&socket, number);
        watched.map_err(|source| kernel("watch a socket", source))?;
        let probe = SynProbe { id: probe.id, flow: probe.flow, socket };
        self.open.insert(number, probe);
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        poller: &mut Poller,
        buffer: &mut ReceiveBuffer,
        answer: &mut dyn FnMut(Nanos, Answer),
    ) -> Result<(), TraceError> {
        let ready: Vec<u64> = poller
            .wait(Duration::ZERO)
            .map_err(|source| kernel("wait for answers", source))?
            .collect();
        for number in ready {
            let Some(probe) = self.open.get(&number) else {
                continue;
            };
            match probe.socket.answer(buffer) {
                Ok(None) => continue,
                Ok(Some((found, at_ns))) => {
                    if let Some(found) = self.read(found, probe) {
                        answer(Nanos(at_ns), found);
                    }
                }
                // It timed out, or an error came that says nothing about the path.
                Err(_) => {}
            }
            self.open.remove(&number);
        }
        Ok(())
    }

    fn read(&self, found: SynAnswer, probe: &SynProbe) -> Option<Answer> {
        let identity = ProbeIdentity {
            sequence: probe.id.0,
            session: Some(self.codec.session),
            flow: Some(probe.flow),
        };
        let kind = match found {
            SynAnswer::Error(error, ttl) => return answer_of(error, ttl, identity),
            SynAnswer::Accepted => AnswerKind::TcpSynAck,
            SynAnswer::Refused => AnswerKind::TcpRst,
        };
        Some(Answer {
            identity,
            from: self.way.target,
            kind,
            reply_ttl: None,
            quoted: Quoted::default(),
            mpls: Vec::new(),
        })
    }
}
