//! Whatever answers at a host: linerate's own endpoint, or another tool's server.
//!
//! [`Partner::connect`] tells what it is and greets it; [`Partner::run`] is [`Client::run`] whoever
//! it is. What another tool's server cannot do, or cannot tell, is an error or a caveat.

mod iperf3;
mod netperf;
mod stamp;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::netperf::PORT;
use linerate_core::foreign::{ForeignRun, Role, Tool};
use linerate_core::plan::{Direction, Extent, Plan, Test, Traffic};
use linerate_core::record::{Record, Status};
use linerate_core::session::SessionError;
use linerate_core::session::message::HalfReport;
use linerate_core::units::{DEFAULT_PORT, Family};
use linerate_sys::tcp_info::TcpInfo;

pub use self::iperf3::Accounts;
use self::iperf3::{BUSY_FOR, Iperf3};
use self::netperf::Netperf;
use self::stamp::Stamp;
use crate::campaign::{self, Campaign, Observer};
use crate::client::{Client, Live, Outcome, Profiles};
use crate::clock::now;
use crate::error::MeasureError;
use crate::measure::half::Half;
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

/// Where it answers, and how it is reached.
#[derive(Debug)]
struct Found {
    /// With the one address.
    target: Target,
    peer: SocketAddr,
    connect_time: Duration,
    stop: Stop,
}

/// What a test with it ended with.
struct Ended {
    here: HalfReport,
    there: Option<HalfReport>,
    exchange: Option<ExchangeTotals>,
    error: Option<MeasureError>,
}

#[derive(Debug)]
enum Server {
    Iperf3(Box<Iperf3>),
    Netperf(Box<Netperf>),
    Stamp(Box<Stamp>),
}

impl Partner {
    /// Connects to what answers at `target`; with `via` only to a server of that tool's.
    ///
    /// # Errors
    /// As [`Client::connect`]; nothing there that linerate can talk to; linerate is no client of
    /// that tool; another tool's server, where the target has a key.
    pub fn connect(target: Target, via: Option<Tool>, stop: Stop) -> Result<Self, MeasureError> {
        let has_key = target.key.is_some();
        let at_netservers_port = || target.addresses.iter().any(|a| a.port() == PORT);
        let tool = match via {
            Some(tool) => tool,
            // A netserver answers nothing to a greeting that is not its own.
            None if !has_key && at_netservers_port() => Tool::Netperf,
            None => match Client::connect(target.clone(), stop.clone()) {
                Ok(client) => return Ok(Self::Own(Box::new(client))),
                Err(error) => match found(&error) {
                    Some(tool) => tool,
                    None if has_key => return Err(error),
                    None => return netserver_instead(target, stop, error),
                },
            },
        };
        if has_key {
            // It speaks in clear: whoever is on the path could be it.
            let host = target.name;
            return Err(MeasureError::NoKey { host, tool });
        }
        let server = match tool {
            Tool::Iperf3 => {
                Iperf3::find(target, stop, BUSY_FOR).map(|found| Server::Iperf3(Box::new(found)))
            }
            Tool::Netperf => {
                Netperf::find(target, stop).map(|found| Server::Netperf(Box::new(found)))
            }
            Tool::Stamp => Stamp::find(target, stop).map(|found| Server::Stamp(Box::new(found))),
            Tool::Ttcp => return Err(MeasureError::NoClient { tool }),
        };
        let server = server.map_err(|error| match via {
            Some(_) => error.of_server(tool),
            None => error.of_server_that_left(tool),
        })?;
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
            Self::Foreign(foreign) => foreign.found().connect_time,
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
        let connected = self.connect_time();
        campaign::run_plan(
            &mut |test, observe| self.run(test, observe),
            plan,
            connected,
            observer,
        )
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
    /// Connects to an iperf3 server, or to an endpoint that is to act as one. Nothing is asked yet.
    ///
    /// # Errors
    /// As [`Client::connect`]; one that does not listen is not waited for.
    pub fn iperf3(target: Target, stop: Stop) -> Result<Self, MeasureError> {
        let found = Iperf3::find(target, stop, Duration::ZERO)?;
        Ok(Self(Server::Iperf3(Box::new(found))))
    }

    fn tool(&self) -> Tool {
        match &self.0 {
            Server::Iperf3(_) => Tool::Iperf3,
            Server::Netperf(_) => Tool::Netperf,
            Server::Stamp(_) => Tool::Stamp,
        }
    }

    /// Its address and port.
    pub fn peer(&self) -> SocketAddr {
        self.found().peer
    }

    /// What an iperf3 server's next test is called.
    pub fn cookie(&self) -> Option<&str> {
        let letters = &self.as_iperf3()?.cookie.0;
        std::str::from_utf8(letters.strip_suffix(&[0])?).ok()
    }

    /// Segment size of the connection to an iperf3 server, bytes.
    pub fn mss(&self) -> Option<u32> {
        let info = TcpInfo::read(self.as_iperf3()?.first.as_ref()?).ok()?;
        Some(info.snd_mss).filter(|mss| *mss > 0)
    }

    /// An iperf3 server is to send what it prints.
    pub fn want_output(&mut self) {
        if let Server::Iperf3(iperf3) = &mut self.0 {
            iperf3.wants_output = true;
        }
    }

    /// What both ends said of the last test with an iperf3 server.
    pub fn take_accounts(&mut self) -> Option<Accounts> {
        match &mut self.0 {
            Server::Iperf3(iperf3) => iperf3.accounts.take(),
            Server::Netperf(_) | Server::Stamp(_) => None,
        }
    }

    fn as_iperf3(&self) -> Option<&Iperf3> {
        match &self.0 {
            Server::Iperf3(iperf3) => Some(iperf3),
            Server::Netperf(_) | Server::Stamp(_) => None,
        }
    }

    fn found(&self) -> &Found {
        match &self.0 {
            Server::Iperf3(iperf3) => &iperf3.found,
            Server::Netperf(netperf) => &netperf.found,
            Server::Stamp(stamp) => &stamp.found,
        }
    }

    /// As [`Partner::run`].
    ///
    /// # Errors
    /// As there.
    pub fn run(
        &mut self,
        test: &Test,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<Outcome, MeasureError> {
        match &mut self.0 {
            Server::Iperf3(iperf3) => iperf3.run(test, observe),
            Server::Netperf(netperf) => netperf.run(test, observe),
            Server::Stamp(stamp) => stamp.run(test, observe),
        }
    }
}

impl Found {
    fn new(target: Target, peer: SocketAddr, connect_time: Duration, stop: Stop) -> Self {
        let addresses = vec![peer];
        Self {
            target: Target {
                addresses,
                ..target
            },
            peer,
            connect_time,
            stop,
        }
    }

    fn lacks(&self, what: String) -> MeasureError {
        let peer = self.peer;
        MeasureError::Lacks { peer, what }
    }

    /// Stays with a running test until it is over at this end.
    fn watch(
        &self,
        test: &Test,
        half: &Half,
        observe: &mut dyn FnMut(&Live) -> bool,
    ) -> Result<(), MeasureError> {
        let mut over_since = None;
        loop {
            std::thread::sleep(half.patience().min(Duration::from_millis(20)));
            if !observe(&live(half)) || self.stop.is_requested() {
                return Err(MeasureError::Interrupted);
            }
            let is_over = match (&test.traffic, test.extent) {
                (Traffic::Stream(_), Extent::Bytes(_) | Extent::Count(_))
                    if test.direction == Direction::Up =>
                {
                    half.all_sent()
                }
                _ => half.is_finished(),
            };
            if !is_over {
                continue;
            }
            let over = *over_since.get_or_insert_with(now);
            let since = now().saturating_sub(over);
            let settle = match (&test.traffic, test.direction) {
                _ if half.all_done() => Duration::ZERO,
                (Traffic::Stream(_), _) if half.all_received() => Duration::ZERO,
                (Traffic::Stream(_), _) => LAST_BYTES,
                (Traffic::Rr(_) | Traffic::Crr(_), _) => LAST_ANSWERS,
            };
            if since >= settle {
                return Ok(());
            }
        }
    }

    fn outcome(&self, tool: Tool, test: Test, started_at: String, ended: Ended) -> Outcome {
        let foreign_run = ForeignRun {
            tool,
            version: None,
            role: Role::Used,
            test,
            host: self.target.name.clone(),
            peer: self.peer.to_string(),
            family: Family::from(self.peer.ip()),
            started_at,
            status: match ended.error {
                Some(_) => Status::Partial,
                None => Status::Complete,
            },
            here: ended.here,
            there: ended.there,
            exchange: ended.exchange,
        };
        Outcome {
            record: foreign_run.into_record(),
            error: ended.error,
            profiles: Profiles::default(),
            probes: Vec::new(),
        }
    }
}

/// How long a sending server may go on after this end has measured.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// After the last request, for its answer.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// How a running test is to be shown. What has arrived there only the server knows.
fn live(half: &Half) -> Live {
    let here = half.progress();
    Live {
        at_s: here.at_s,
        warm_up_s: half.warm_up_s(),
        up_bytes: half.sent_bytes(),
        up_at_s: here.at_s,
        down_bytes: here.received_bytes,
        transactions: half.messages(),
        flows: half.flows(),
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
