//! A test while it runs, and its results afterwards.

use std::time::{Duration, Instant, SystemTime};

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::ForeignRun;
use linerate_core::foreign::netperf::{
    DataTest, Length, PAD_SECONDS, Refusal, Results, Role, errno,
};
use linerate_core::plan::{Test, Traffic};
use linerate_core::record::{HostFacts, Status};
use linerate_core::session::message::{FlowHalf, Limits};
use linerate_core::units::{End, format_rfc3339};

use super::super::{ForeignClient, Standstill};
use super::data::{CpuWatch, Data, FirstData};
use crate::measure::flow::Marks;
use crate::measure::half::Half;
use crate::measure::source::FlowSource;

/// A test of short connections is over when none has arrived for this long after the test's time.
const QUIET: Duration = Duration::from_millis(300);

/// A running test.
pub(super) struct Running {
    asked: DataTest,
    test: Test,
    half: Half,
    cpu: Option<CpuWatch>,
    limits: Limits,
    started_at: String,
    began: Instant,
    /// Number of transactions.
    seen: Standstill,
    /// Receive and send buffer of the data socket, bytes.
    buffers: (u32, u32),
}

impl Running {
    /// Starts the test with the data that has arrived.
    ///
    /// # Errors
    /// No threads.
    pub(super) fn start(data: Data, arrival: FirstData) -> Result<Self, Refusal> {
        let buffers = data.buffers();
        let (flows, source) = match arrival {
            FirstData::Flow(flow) => (vec![flow], FlowSource::Bound),
            FirstData::Connections(source) => (Vec::new(), source),
        };
        let options = Marks::None.into();
        let half =
            Half::start(End::Server, &data.test, flows, source, options).map_err(|error| {
                Refusal::new(errno::EINVAL, format!("cannot start the test: {error}"))
            })?;
        let began = Instant::now();
        Ok(Self {
            buffers,
            asked: data.asked,
            test: data.test,
            half,
            cpu: data.cpu,
            limits: data.limits,
            started_at: format_rfc3339(SystemTime::now()),
            began,
            seen: Standstill::new(),
        })
    }

    /// Whether the test is over.
    pub(super) fn is_over(&mut self) -> bool {
        if self.half.all_done() || self.began.elapsed() >= self.longest() {
            return true;
        }
        match (self.asked.role, self.asked.length) {
            (Role::Send, _) => self.half.is_finished(),
            (Role::Connect | Role::ConnectExchange, Length::Units(units)) => {
                self.half.messages() >= units.into()
            }
            (Role::Connect | Role::ConnectExchange, Length::Seconds(_)) => {
                self.half.is_finished() && self.seen.lasts(self.half.messages()) >= QUIET
            }
            _ => false,
        }
    }

    fn longest(&self) -> Duration {
        // What this end sends ends in time; what it receives may arrive late.
        let late = match self.asked.role {
            Role::Send => 0,
            _ => PAD_SECONDS,
        };
        let seconds = self.asked.seconds(&self.limits) + f64::from(late);
        Duration::from_secs_f64(seconds)
    }

    /// Stops the test and logs its record; the results are for the client.
    pub(super) fn end(self, client: &ForeignClient, facts: HostFacts, status: Status) -> Results {
        let cpus = facts.cpu.count;
        let device = facts.device.clone();
        let elapsed = self.began.elapsed();
        let (transactions, bytes) = (self.half.messages(), self.half.moved_bytes());
        let report = client.stop(self.half, || facts);
        let cpu = self.cpu.and_then(CpuWatch::end);
        let mut results = match report.flows.first() {
            Some(flow) => results(&self.asked, flow, transactions, bytes),
            None => Results::default(),
        };
        // Flows of datagrams and short connections do not report their buffers.
        if results.receive_buffer == 0 && results.send_buffer == 0 {
            (results.receive_buffer, results.send_buffer) = self.buffers;
        }
        results.cpu = cpu;
        results.cpus = cpus;
        if results.seconds == 0.0 {
            results.seconds = elapsed.as_secs_f32();
        }
        if let Some(device) = device {
            results.interface = device.name;
            results.driver = device.driver.unwrap_or_default();
        }
        let remote = report.flows.first().map(|flow| flow.remote.clone());
        let peer = remote.filter(|remote| !remote.is_empty());
        let exchange = matches!(self.test.traffic, Traffic::Rr(_) | Traffic::Crr(_))
            .then(|| ExchangeTotals { transactions, ..ExchangeTotals::default() });
        let run = client.served(self.test, self.started_at, status, report);
        client.log_test(ForeignRun {
            peer: peer.unwrap_or_else(|| run.peer.clone()),
            exchange,
            ..run
        });
        results
    }
}

/// The results of a flow for the client: all bytes that it moved, not only those of the measured
/// time.
fn results(asked: &DataTest, flow: &FlowHalf, transactions: u64, bytes: u64) -> Results {
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let mut results =
        Results { seconds: flow.seconds as f32, retransmitted: None, ..Results::default() };
    if let Some(tcp) = &flow.tcp {
        let (sender, receiver) = (tcp.sender(), tcp.receiver.as_ref());
        results.send_buffer = sender.map_or(0, |end| count(end.send_buffer_bytes));
        let buffer = receiver.and_then(|end| end.buffer_bytes);
        results.receive_buffer = count(buffer.unwrap_or(0));
        results.retransmitted = Some(count(tcp.retransmitted_segments().unwrap_or(0)));
        if asked.name_congestion {
            let own = sender.and_then(|end| end.congestion.as_ref());
            let congestion = own.or(receiver.and_then(|end| end.congestion.as_ref()));
            results.congestion = congestion.cloned().unwrap_or_default();
        }
    }
    match asked.role {
        Role::Receive => {
            results.received_bytes = bytes;
            results.receive_calls = count(flow.messages);
        }
        Role::Send => {
            results.sent_bytes = bytes;
            results.send_calls = count(flow.messages);
            results.failed_sends = flow.udp_sent.as_ref().map_or(0, |sent| count(sent.refused));
        }
        Role::Exchange | Role::ConnectExchange | Role::Connect => {
            results.transactions = count(transactions);
            results.received_bytes = transactions * u64::from(asked.request_bytes);
            results.sent_bytes = transactions * u64::from(asked.response_bytes);
            results.receive_calls = results.transactions;
            results.send_calls = results.transactions;
        }
    }
    results
}
