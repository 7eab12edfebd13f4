//! A client of netserver's: one control connection and one data connection for each flow of a test.

mod connection;
mod test;

use std::net::SocketAddr;
use std::time::SystemTime;

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::Tool;
use linerate_core::foreign::netperf::{PORT, Results};
use linerate_core::plan::{Protocol, Test, Traffic};
use linerate_core::session::message::HalfReport;
use linerate_core::units::{DEFAULT_PORT, format_rfc3339};

use self::connection::Connection;
use self::test::{Adapted, adapt};
use super::{Ended, Found};
use crate::client::{Live, Outcome};
use crate::error::MeasureError;
use crate::host;
use crate::measure::flow::Flow;
use crate::measure::half::{Half, HalfEnd};
use crate::measure::shared::Marks;
use crate::measure::source::FlowSource;
use crate::stop::Stop;
use crate::target::Target;
use linerate_core::units::End;

/// A netserver.
#[derive(Debug)]
pub(super) struct Netperf {
    pub(super) found: Found,
}

impl Netperf {
    /// Finds the address that answers as a netserver; where the target has linerate's own port, at
    /// netperf's.
    ///
    /// # Errors
    /// Refused, unreachable, timed out, interrupted; something else answers.
    pub(super) fn find(target: Target, stop: Stop) -> Result<Self, MeasureError> {
        let addresses = target.addresses.iter().map(|address| {
            let mut address = *address;
            if address.port() == DEFAULT_PORT {
                address.set_port(PORT);
            }
            address
        });
        let target = Target {
            addresses: addresses.collect(),
            ..target
        };
        let connection = Connection::greet(&target, &stop)?;
        let found = Found::new(target, connection.peer, connection.connect_time, stop);
        Ok(Self { found })
    }

    /// Runs a test.
    ///
    /// # Errors
    /// netperf's protocol has no such test, or the netserver refuses it.
    pub(super) fn run(
        &mut self,
        test: &Test,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<Outcome, MeasureError> {
        let adapted = adapt(test).map_err(|what| self.found.lacks(what))?;
        let mut connections = Vec::new();
        for id in 0..adapted.test.flows() {
            let mut connection = Connection::greet(&self.found.target, &self.found.stop)?;
            connection.open(
                &test::request(&adapted.test, id, self.found.peer),
                &self.found.stop,
            )?;
            connections.push(connection);
        }
        let (flows, source) = self.connect(&adapted.test, &connections)?;
        let started_at = format_rfc3339(SystemTime::now());
        let marks = match adapted.test.protocol {
            Protocol::Udp => Marks::None,
            Protocol::Tcp | Protocol::Mptcp => Marks::Own,
        };
        let half = Half::start_marked(End::Client, &adapted.test, marks, None, flows, source)
            .map_err(MeasureError::host("cannot start the threads of the test"))?;
        let watched = self.found.watch(&adapted.test, &half, observe);
        Ok(self.outcome(adapted, started_at, half, connections, watched))
    }

    fn connect(
        &self,
        test: &Test,
        connections: &[Connection],
    ) -> Result<(Vec<Flow>, FlowSource), MeasureError> {
        if let Traffic::Crr(_) = test.traffic {
            let ports: Vec<SocketAddr> = connections.iter().map(Connection::data).collect();
            let source = connection::connect_each(test, &self.found.target, ports);
            return Ok((Vec::new(), source));
        }
        let flows = (0..).zip(connections).map(|(id, connection)| {
            let socket = connection.connect(test, id, &self.found.target, &self.found.stop)?;
            Ok(Flow { id, socket })
        });
        Ok((
            flows.collect::<Result<_, MeasureError>>()?,
            FlowSource::Bound,
        ))
    }

    fn outcome(
        &self,
        adapted: Adapted,
        started_at: String,
        half: Half,
        connections: Vec<Connection>,
        watched: Result<(), MeasureError>,
    ) -> Outcome {
        let Adapted { test, caveats } = adapted;
        let facts = host::facts_by(
            Some(self.found.peer.ip()),
            self.found.target.device.as_deref(),
        );
        // The ends of the data connections are what a netserver waits for.
        let HalfEnd {
            mut report,
            exchange,
            ..
        } = half.stop(facts);
        report.caveats.extend(caveats);
        let there = self.ask(&test, &report, connections);
        let (there, error) = match (there, watched) {
            (there, Err(error)) => (there.ok().flatten(), Some(error)),
            (Ok(there), Ok(())) => (there, None),
            (Err(error), Ok(())) => (None, Some(error)),
        };
        let ended = Ended {
            here: report,
            there,
            exchange: exchange.map(|outcome| ExchangeTotals::from(&outcome)),
            error,
        };
        self.found.outcome(Tool::Netperf, test, started_at, ended)
    }

    /// What the netserver tells of its half. Of requests it can only count what this end has
    /// counted; and for the end of connections that come and go it waits four seconds, which nobody
    /// else has to.
    fn ask(
        &self,
        test: &Test,
        here: &HalfReport,
        connections: Vec<Connection>,
    ) -> Result<Option<HalfReport>, MeasureError> {
        if !matches!(test.traffic, Traffic::Stream(_)) {
            return Ok(None);
        }
        let mut there = HalfReport::default();
        for (connection, flow) in connections.into_iter().zip(&here.flows) {
            let results: Results = connection.results(&self.found.stop)?;
            let told = results.to_half(flow).ok_or_else(|| MeasureError::Foreign {
                peer: self.found.peer,
                reason: "the netserver tells counts that this test cannot have had".to_owned(),
            })?;
            there.flows.push(told);
        }
        Ok(Some(there))
    }
}
