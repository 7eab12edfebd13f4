//! TCP's evidence of one flow, read from its socket throughout the run.

use std::net::TcpStream;

use linerate_core::record::{TcpEvidence, TcpSample};
use linerate_sys::socket;
use linerate_sys::tcp_info::TcpInfo;

use super::flow::FlowSocket;
use super::shared::FlowState;
use super::tcp_readings::{ReceiverFacts, SenderFacts, TcpReadings};
use super::window::WindowKeeper;

/// Reads one flow's socket, as its sender or as its receiver.
pub(crate) struct TcpProbe {
    /// A separate descriptor: the worker may close its own before the last reading.
    socket: TcpStream,
    sends: bool,
    readings: TcpReadings,
    /// Holds a receiver's window at a set size.
    keeper: Option<WindowKeeper>,
}

impl TcpProbe {
    /// The probe of a flow, which also holds a receiver's window at `window`; `None` if the flow is
    /// not TCP's or makes its connections within the run.
    pub(crate) fn from_flow(flow: &FlowState, window: Option<u64>) -> Option<Self> {
        let Some(FlowSocket::Tcp(stream)) = &flow.socket else {
            return None;
        };
        let keeper = window.filter(|_| !flow.sends).map(WindowKeeper::new);
        Some(Self { keeper, ..Self::new(stream, flow.sends)? })
    }

    pub(crate) fn new(stream: &TcpStream, sends: bool) -> Option<Self> {
        Some(Self {
            socket: stream.try_clone().ok()?,
            sends,
            readings: TcpReadings::default(),
            keeper: None,
        })
    }

    /// Corrects the window that is to be held, and reads nothing else.
    pub(crate) fn settle(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.look(&self.socket);
        }
    }

    pub(crate) fn begin(&mut self) {
        self.readings.begin(TcpInfo::read(&self.socket).ok());
    }

    /// Takes a reading; `at_ns` counts from the beginning of the measured time.
    pub(crate) fn sample(&mut self, at_ns: u64) {
        self.settle();
        let Ok(info) = TcpInfo::read(&self.socket) else {
            return;
        };
        if self.sends {
            let memory = socket::memory(&self.socket).ok();
            let queue = memory.map(|memory| memory.send_queue);
            self.readings.sender(at_ns, info, queue);
        } else {
            self.readings.receiver(info, socket::unread(&self.socket).ok());
        }
    }

    pub(crate) fn thin_out(&mut self) {
        self.readings.thin_out();
    }

    /// The evidence and, for a sender, its course. `bytes` is the payload that this end moved.
    pub(crate) fn evidence(mut self, bytes: u64) -> (Option<TcpEvidence>, Vec<TcpSample>) {
        let evidence: Option<TcpEvidence> = if self.sends {
            let facts = self.sender_facts();
            self.readings.sender_evidence(facts, bytes).map(Into::into)
        } else {
            let facts = self.receiver_facts();
            self.readings.receiver_evidence(facts).map(Into::into)
        };
        let samples = evidence.is_some().then(|| self.readings.samples());
        (evidence, samples.unwrap_or_default())
    }

    fn receiver_facts(&self) -> ReceiverFacts {
        ReceiverFacts {
            congestion: socket::congestion(&self.socket).ok(),
            buffer_bytes: socket::receive_buffer(&self.socket).ok().map(u64::from),
            buffer_locked: self.keeper.is_some(),
        }
    }

    fn sender_facts(&self) -> SenderFacts {
        let mptcp = socket::mptcp_info(&self.socket).ok().flatten();
        // Kernels before 5.14 do not tell: then the buffer is taken to be tuned by the kernel.
        let locks = socket::buffer_locks(&self.socket).unwrap_or_default();
        SenderFacts {
            congestion: socket::congestion(&self.socket).ok(),
            buffer_bytes: socket::send_buffer(&self.socket).map_or(0, u64::from),
            buffer_locked: locks.send,
            subflows: mptcp.map(|info| u32::from(info.subflows) + 1),
            mptcp_fallback: mptcp.map(|info| info.fallback),
        }
    }
}
