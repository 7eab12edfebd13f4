//! Whatever answers at a host: linerate's own endpoint, or another tool's server.
//!
//! [`Partner::connect`] tells what it is and greets it; [`Partner::run`] is [`Client::run`] whoever
//! it is. What another tool's server cannot do, or cannot tell, is an error or a caveat.

mod iperf3;
mod netperf;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_core::foreign::Tool;
use linerate_core::foreign::netperf::PORT;
use linerate_core::plan::{Plan, Test};
use linerate_core::record::Record;
use linerate_core::session::SessionError;
use linerate_core::units::DEFAULT_PORT;

use self::iperf3::Iperf3;
use self::netperf::Netperf;
use crate::campaign::{self, Campaign, Observer};
use crate::client::{Client, Live, Outcome};
use crate::error::MeasureError;
use crate::stop::Stop;
use crate::target::Target;

/// What answers, greeted.
#[derive(Debug)]
pub enum Partner {
    /// linerate's own endpoint.
    Own(Box<Client>),
    /// A server of another tool's.
    Foreign(Foreign),
}

/// A server of another tool's.
#[derive(Debug)]
pub struct Foreign(Server);

#[derive(Debug)]
enum Server {
    Iperf3(Box<Iperf3>),
    Netperf(Box<Netperf>),
}

impl Partner {
    /// Connects to what answers at `target`; with `via` only to a server of that tool's.
    ///
    /// # Errors
    /// As [`Client::connect`]; nothing there that linerate can talk to; linerate is no client of
    /// that tool.
    pub fn connect(target: Target, via: Option<Tool>, stop: Stop) -> Result<Self, MeasureError> {
        let tool = match via {
            Some(tool) => tool,
            // A netserver answers nothing to a greeting that is not its own.
            None if target.addresses.iter().any(|a| a.port() == PORT) => Tool::Netperf,
            None => match Client::connect(target.clone(), stop.clone()) {
                Ok(client) => return Ok(Self::Own(Box::new(client))),
                Err(error) => match found(&error) {
                    Some(tool) => tool,
                    None => return netserver_instead(target, stop, error),
                },
            },
        };
        let server = match tool {
            Tool::Iperf3 => Server::Iperf3(Box::new(Iperf3::find(target, stop)?)),
            Tool::Netperf => Server::Netperf(Box::new(Netperf::find(target, stop)?)),
            Tool::Ttcp => return Err(MeasureError::NoClient { tool }),
        };
        Ok(Self::Foreign(Foreign(server)))
    }

    /// The tool whose server it is, unless it is linerate's.
    pub fn tool(&self) -> Option<Tool> {
        match self {
            Self::Own(_) => None,
            Self::Foreign(foreign) => Some(foreign.tool()),
        }
    }

    /// How long a connection took to be made.
    pub fn connect_time(&self) -> Duration {
        match self {
            Self::Own(client) => client.connect_time(),
            Self::Foreign(foreign) => foreign.connect_time(),
        }
    }

    /// Runs a test, as [`Client::run`].
    ///
    /// # Errors
    /// The test could not be begun, or is none that the server's protocol has. One that began has
    /// an [`Outcome`].
    pub fn run(
        &mut self,
        test: &Test,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<Outcome, MeasureError> {
        match self {
            Self::Own(client) => client.run(test, observe),
            Self::Foreign(foreign) => foreign.run(test, observe),
        }
    }

    /// Runs a plan, as [`Client::run_plan`].
    ///
    /// # Errors
    /// The very first run could not be begun.
    pub fn run_plan(
        &mut self,
        plan: &Plan,
        observer: &mut dyn Observer,
    ) -> Result<Campaign, MeasureError> {
        campaign::run_plan(&mut |test, observe| self.run(test, observe), plan, observer)
    }

    /// One run, its intervals shown to `observer`.
    pub(crate) fn run_once(
        &mut self,
        test: &Test,
        observer: &mut dyn Observer,
    ) -> Result<(Record, Option<MeasureError>), MeasureError> {
        campaign::run_once(&mut |test, observe| self.run(test, observe), test, observer)
    }
}

impl Foreign {
    fn tool(&self) -> Tool {
        match &self.0 {
            Server::Iperf3(_) => Tool::Iperf3,
            Server::Netperf(_) => Tool::Netperf,
        }
    }

    /// Its address and port.
    pub fn peer(&self) -> SocketAddr {
        match &self.0 {
            Server::Iperf3(iperf3) => iperf3.peer(),
            Server::Netperf(netperf) => netperf.peer(),
        }
    }

    fn connect_time(&self) -> Duration {
        match &self.0 {
            Server::Iperf3(iperf3) => iperf3.connect_time(),
            Server::Netperf(netperf) => netperf.connect_time(),
        }
    }

    fn run(
        &mut self,
        test: &Test,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<Outcome, MeasureError> {
        match &mut self.0 {
            Server::Iperf3(iperf3) => iperf3.run(test, observe),
            Server::Netperf(netperf) => netperf.run(test, observe),
        }
    }
}

/// Where nothing listens at linerate's port, a netserver may at its own; otherwise the error
/// stands.
fn netserver_instead(
    target: Target,
    stop: Stop,
    error: MeasureError,
) -> Result<Partner, MeasureError> {
    let refused = matches!(&error, MeasureError::Connect { peer, reason }
        if peer.port() == DEFAULT_PORT && reason.kind() == ErrorKind::ConnectionRefused);
    match refused.then(|| Netperf::find(target, stop)) {
        Some(Ok(netperf)) => Ok(Partner::Foreign(Foreign(Server::Netperf(Box::new(
            netperf,
        ))))),
        Some(Err(MeasureError::Interrupted)) => Err(MeasureError::Interrupted),
        Some(Err(_)) | None => Err(error),
    }
}

/// The tool whose server has answered linerate's greeting.
fn found(error: &MeasureError) -> Option<Tool> {
    match error {
        MeasureError::Session {
            reason: SessionError::NotLinerate(name),
            ..
        } if name.contains(Tool::Iperf3.name()) => Some(Tool::Iperf3),
        _ => None,
    }
}
