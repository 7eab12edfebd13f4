//! A test while it runs, and what is said of it afterwards.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::netperf::{
    DataTest, Length, PAD_SECONDS, Refusal, Results, Role, errno,
};
use linerate_core::foreign::{self, ForeignRun, Tool};
use linerate_core::plan::{Test, Traffic};
use linerate_core::record::{HostFacts, Status};
use linerate_core::session::message::{FlowHalf, Limits};
use linerate_core::units::{Family, format_rfc3339};

use super::super::Guest;
use super::cpu::CpuWatch;
use super::data::{Data, FirstData};
use crate::endpoint::terms::owners_limit;
use crate::measure::half::{Half, HalfEnd};
use crate::measure::shared::Marks;
use crate::measure::source::FlowSource;
use linerate_core::units::End;

/// Connections that come and go are over when none has come for so long after the test's time.
const QUIET: Duration = Duration::from_millis(300);

/// A running test.
pub(super) struct Running {
    asked: DataTest,
    test: Test,
    half: Half,
    cpu: Option<CpuWatch>,
    peer: IpAddr,
    limits: Limits,
    started_at: String,
    began: Instant,
    /// Transactions at the last look, and since when they are as many.
    seen: (u64, Instant),
    /// Of the data socket, receive and send, bytes.
    buffers: (u32, u32),
}

impl Running {
    /// Begins with the data that has come.
    ///
    /// # Errors
    /// No threads.
    pub(super) fn start(data: Data, arrival: FirstData) -> Result<Self, Refusal> {
        let buffers = data.buffers();
        let (flows, source) = match arrival {
            FirstData::Flow(flow) => (vec![flow], FlowSource::Bound),
            FirstData::Connections(source) => (Vec::new(), source),
        };
        let half = Half::start_marked(End::Server, &data.test, Marks::None, None, flows, source)
            .map_err(|error| {
                Refusal::new(errno::EINVAL, format!("cannot start the test: {error}"))
            })?;
        let began = Instant::now();
        Ok(Self {
            buffers,
            asked: data.asked,
            test: data.test,
            half,
            cpu: data.cpu,
            peer: data.peer,
            limits: data.limits,
            started_at: format_rfc3339(SystemTime::now()),
            began,
            seen: (0, began),
        })
    }

    /// Whether there is nothing more to wait for.
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
                self.half.is_finished() && self.is_quiet()
            }
            _ => false,
        }
    }

    fn is_quiet(&mut self) -> bool {
        let messages = self.half.messages();
        if messages != self.seen.0 {
            self.seen = (messages, Instant::now());
        }
        self.seen.1.elapsed() >= QUIET
    }

    fn longest(&self) -> Duration {
        // What this end sends ends in time; what it waits for may come late.
        let late = match self.asked.role {
            Role::Send => 0,
            _ => PAD_SECONDS,
        };
        let seconds = self.asked.seconds(&self.limits) + f64::from(late);
        Duration::from_secs_f64(seconds)
    }

    /// Stops it, leaves its record, and says what the client is told.
    pub(super) fn conclude(self, guest: &Guest, facts: HostFacts) -> Results {
        self.end(guest, facts, Status::Complete)
    }

    /// The client is gone.
    pub(super) fn break_off(self, guest: &Guest, facts: HostFacts) {
        self.end(guest, facts, Status::Partial);
    }

    fn end(self, guest: &Guest, facts: HostFacts, status: Status) -> Results {
        let cpus = facts.cpu.count;
        let device = facts.device.clone();
        let elapsed = self.began.elapsed();
        let (transactions, bytes) = (self.half.messages(), self.half.moved_bytes());
        let HalfEnd { mut report, .. } = self.half.stop(facts);
        let cpu = self.cpu.and_then(CpuWatch::end);
        report
            .caveats
            .extend(self.limits.rate_bps.map(owners_limit));
        let mut results = match report.flows.first() {
            Some(flow) => results(&self.asked, flow, transactions, bytes),
            None => Results::default(),
        };
        // Of datagrams and of connections that come and go, too.
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
        let peer = report
            .flows
            .first()
            .map(|flow| flow.remote.clone())
            .filter(|remote| !remote.is_empty());
        guest.tested(ForeignRun {
            tool: Tool::Netperf,
            version: None,
            role: foreign::Role::Served,
            host: self.peer.to_string(),
            peer: peer.unwrap_or_else(|| guest.peer().to_string()),
            family: Family::from(self.peer),
            started_at: self.started_at,
            status,
            here: report,
            there: None,
            exchange: matches!(self.test.traffic, Traffic::Rr(_) | Traffic::Crr(_)).then(|| {
                ExchangeTotals {
                    transactions,
                    ..ExchangeTotals::default()
                }
            }),
            test: self.test,
        });
        results
    }
}

/// What the client is told of a flow: all that it moved, not only in the measured time.
fn results(asked: &DataTest, flow: &FlowHalf, transactions: u64, bytes: u64) -> Results {
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let mut results = Results {
        seconds: flow.seconds as f32,
        retransmitted: None,
        ..Results::default()
    };
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
