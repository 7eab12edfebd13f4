//! What answers at a host: linerate's own endpoint, or another tool's server.
//!
//! [`Partner::connect`] finds out which, and greets it; [`Partner::run`] is [`Client::run`] for all
//! of them. What another tool's server cannot do, or cannot report, is an error or a caveat.

mod iperf3;
mod netperf;
mod stamp;

use std::collections::HashSet;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::netperf::PORT;
use linerate_core::foreign::{ForeignRun, Role, Tool};
use linerate_core::plan::{
    Direction, Extent, Plan, Protocol, SocketOptions, StreamTest, Test, Traffic,
};
use linerate_core::record::{HostFacts, Record, Status};
use linerate_core::session::SessionError;
use linerate_core::session::message::HalfReport;
use linerate_core::units::{DEFAULT_PORT, End, Family};
use linerate_sys::netlink::sock_diag::{Filter, SockDiag};
use linerate_sys::proc::processes::{self, Owner};
use linerate_sys::tcp_info::TcpInfo;

pub use self::iperf3::Accounts;
use self::iperf3::{BUSY_FOR, Iperf3};
use crate::campaign::{self, Campaign, Observer};
use crate::client::{
    Client, Live, Observe, Outcome, Profiles, connect_unless, planned_end, tcp_flow_socket,
};
use crate::clock::now;
use crate::error::MeasureError;
use crate::host;
use crate::measure::flow::Flow;
use crate::measure::half::{Half, HalfOptions};
use crate::measure::source::FlowSource;
use crate::stop::Stop;
use crate::target::Target;

/// The other end of a test, after the greeting.
#[derive(Debug)]
pub enum Partner {
    /// linerate's own endpoint.
    Own(Box<Client>),
    /// Another tool's server.
    Foreign(Foreign),
}

/// Another tool's server.
#[derive(Debug)]
pub struct Foreign {
    address: Box<ServerAddress>,
    server: ForeignServer,
}

/// Where another tool's server answers, and how it is reached.
#[derive(Debug)]
struct ServerAddress {
    /// The target, with the one address that answers.
    target: Target,
    peer: SocketAddr,
    connect_time: Duration,
    stop: Stop,
    /// A test lasts until the stop is requested.
    open_ended: bool,
}

/// The results of a test with another tool's server.
struct PartnerResult {
    here: HalfReport,
    there: Option<HalfReport>,
    exchange: Option<ExchangeTotals>,
    error: Option<MeasureError>,
}

#[derive(Debug)]
enum ForeignServer {
    Iperf3(Box<Iperf3>),
    Netperf,
    Stamp,
}

impl Partner {
    /// Connects to what answers at `target`; with `via` only to that tool's server.
    ///
    /// # Errors
    /// As [`Client::connect`]; nothing answers that linerate can talk to; linerate is no client of
    /// that tool; another tool's server answers although the target has a key.
    pub fn connect(target: Target, via: Option<Tool>, stop: Stop) -> Result<Self, MeasureError> {
        let has_key = target.key.is_some();
        let at_netservers_port = || target.addresses.iter().any(|a| a.port() == PORT);
        let tool = match via {
            Some(tool) => tool,
            // A netserver does not answer linerate's greeting.
            None if !has_key && at_netservers_port() => Tool::Netperf,
            None if !has_key && iperf3_listens_here(&target) => Tool::Iperf3,
            None => match Client::connect(target.clone(), stop.clone()) {
                Ok(client) => return Ok(Self::Own(Box::new(client))),
                Err(error) => match tool_that_answered(&error) {
                    Some(tool) => tool,
                    None if has_key => return Err(error),
                    None => return netserver_instead(target, stop, error),
                },
            },
        };
        if has_key {
            // Other tools' protocols are not encrypted: anybody on the path could pose as it.
            let host = target.name;
            return Err(MeasureError::NoKey { host, tool });
        }
        let found = match tool {
            Tool::Iperf3 => Foreign::find_iperf3(target, stop, BUSY_FOR),
            Tool::Netperf => Foreign::find_netperf(target, stop),
            Tool::Stamp => {
                stamp::find(target, stop).map(|found| Foreign::new(found, ForeignServer::Stamp))
            }
            Tool::Ttcp => return Err(MeasureError::NoClient { tool }),
        };
        let foreign = found.map_err(|error| match via {
            Some(_) => error.of_server(tool),
            None => error.of_server_that_left(tool),
        })?;
        Ok(Self::Foreign(foreign))
    }

    /// Begins a new session with the same endpoint; other tools have one for each test anyway.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) fn renew(&mut self) -> Result<(), MeasureError> {
        match self {
            Self::Own(client) => client.renew(),
            Self::Foreign(_) => Ok(()),
        }
    }

    /// The tool whose server it is; `None` for linerate's own endpoint.
    pub fn tool(&self) -> Option<Tool> {
        match self {
            Self::Own(_) => None,
            Self::Foreign(foreign) => Some(foreign.tool()),
        }
    }

    /// How long it took to make a connection.
    pub fn connect_time(&self) -> Duration {
        match self {
            Self::Own(client) => client.connect_time(),
            Self::Foreign(foreign) => foreign.address.connect_time,
        }
    }

    /// Has later tests last until the stop is requested, which is then no early end. The result is
    /// the longest time that the other end allows, seconds, where it says one.
    pub fn set_open_ended(&mut self) -> Option<f64> {
        match self {
            Self::Own(client) => {
                client.set_open_ended();
                Some(client.welcome().limits.seconds)
            }
            Self::Foreign(foreign) => {
                foreign.set_open_ended();
                None
            }
        }
    }

    /// Runs a test, as [`Client::run`].
    ///
    /// # Errors
    /// The test could not begin, or the server's protocol has no such test. A test that began has
    /// an [`Outcome`].
    pub fn run(&mut self, test: &Test, observe: Observe<'_>) -> Result<Outcome, MeasureError> {
        match self {
            Self::Own(client) => client.run(test, observe),
            Self::Foreign(foreign) => foreign.run(test, observe),
        }
    }

    /// Runs a plan. What was run before an error is kept.
    ///
    /// # Errors
    /// The very first run could not begin.
    pub fn run_plan(
        &mut self,
        plan: &Plan,
        observer: &mut dyn Observer,
    ) -> Result<Campaign, MeasureError> {
        let connected = self.connect_time();
        campaign::run_plan(&mut |test, observe| self.run(test, observe), plan, connected, observer)
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
    /// Connects to an iperf3 server, or to an endpoint that is to act as one. No test is requested
    /// yet.
    ///
    /// # Errors
    /// As [`Client::connect`]; a server that does not listen is not waited for.
    pub fn iperf3(target: Target, stop: Stop) -> Result<Self, MeasureError> {
        Self::find_iperf3(target, stop, Duration::ZERO)
    }

    fn find_iperf3(target: Target, stop: Stop, patience: Duration) -> Result<Self, MeasureError> {
        let (address, iperf3) = Iperf3::find(target, stop, patience)?;
        Ok(Self::new(address, ForeignServer::Iperf3(Box::new(iperf3))))
    }

    fn find_netperf(target: Target, stop: Stop) -> Result<Self, MeasureError> {
        netperf::find(target, stop).map(|address| Self::new(address, ForeignServer::Netperf))
    }

    fn new(address: ServerAddress, server: ForeignServer) -> Self {
        let address = Box::new(address);
        Self { address, server }
    }

    fn tool(&self) -> Tool {
        match &self.server {
            ForeignServer::Iperf3(_) => Tool::Iperf3,
            ForeignServer::Netperf => Tool::Netperf,
            ForeignServer::Stamp => Tool::Stamp,
        }
    }

    /// The server's address and port.
    pub fn peer(&self) -> SocketAddr {
        self.address.peer
    }

    /// The cookie of the next test with an iperf3 server.
    pub fn cookie(&self) -> Option<&str> {
        let letters = &self.as_iperf3()?.cookie.0;
        std::str::from_utf8(letters.strip_suffix(&[0])?).ok()
    }

    /// Segment size of the connection to an iperf3 server, bytes.
    pub fn mss(&self) -> Option<u32> {
        let info = TcpInfo::read(self.as_iperf3()?.first.as_ref()?).ok()?;
        Some(info.snd_mss).filter(|mss| *mss > 0)
    }

    /// Has later tests last until the stop is requested, which is then no early end.
    pub fn set_open_ended(&mut self) {
        self.address.open_ended = true;
    }

    /// Asks an iperf3 server to send its own output.
    pub fn want_output(&mut self) {
        if let ForeignServer::Iperf3(iperf3) = &mut self.server {
            iperf3.wants_output = true;
        }
    }

    /// The results of both ends of the last test with an iperf3 server.
    pub fn take_accounts(&mut self) -> Option<Accounts> {
        match &mut self.server {
            ForeignServer::Iperf3(iperf3) => iperf3.accounts.take(),
            ForeignServer::Netperf | ForeignServer::Stamp => None,
        }
    }

    fn as_iperf3(&self) -> Option<&Iperf3> {
        match &self.server {
            ForeignServer::Iperf3(iperf3) => Some(iperf3),
            ForeignServer::Netperf | ForeignServer::Stamp => None,
        }
    }

    /// As [`Partner::run`].
    ///
    /// # Errors
    /// As there.
    pub fn run(&mut self, test: &Test, observe: Observe<'_>) -> Result<Outcome, MeasureError> {
        match &mut self.server {
            ForeignServer::Iperf3(iperf3) => iperf3.run(&self.address, test, observe),
            ForeignServer::Netperf => netperf::run(&self.address, test, observe),
            ForeignServer::Stamp => stamp::run(&self.address, test, observe),
        }
    }
}

impl ServerAddress {
    fn new(target: Target, peer: SocketAddr, connect_time: Duration, stop: Stop) -> Self {
        let addresses = vec![peer];
        let target = Target { addresses, ..target };
        Self { target, peer, connect_time, stop, open_ended: false }
    }

    fn lacks(&self, what: String) -> MeasureError {
        let peer = self.peer;
        MeasureError::Lacks { peer, what }
    }

    /// Facts of this host, and of the interface by which the server is reached.
    fn host_facts(&self) -> HostFacts {
        host::facts_by(Some(self.peer.ip()), self.target.device.as_deref())
    }

    /// Makes a TCP connection for flow `id`, and sends its `first` bytes.
    fn connect(
        &self,
        peer: SocketAddr,
        test: &Test,
        options: &SocketOptions,
        id: u32,
        first: &[u8],
    ) -> Result<TcpStream, MeasureError> {
        let is_stopped = || self.stop.is_requested();
        let connected = tcp_flow_socket(&self.target, peer, test, options, id)
            .and_then(|s| connect_unless(s, peer, self.target.connect_timeout, is_stopped))
            .and_then(|mut stream| stream.write_all(first).map(|()| stream));
        connected.map_err(|error| {
            if is_stopped() {
                MeasureError::Interrupted
            } else {
                MeasureError::connect(peer)(error)
            }
        })
    }

    /// Watches a running test until it is over at this end.
    fn watch(&self, test: &Test, half: &Half, observe: Observe<'_>) -> Result<(), MeasureError> {
        let mut over_since = None;
        loop {
            std::thread::sleep(half.patience().min(Duration::from_millis(20)));
            if !observe(&live(half)) || self.stop.is_requested() {
                return planned_end(self.open_ended, MeasureError::Interrupted);
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

    fn outcome(&self, tool: Tool, test: Test, started_at: String, ended: PartnerResult) -> Outcome {
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

/// What of a stream no other tool's server has.
fn stream_lacks(test: &Test, stream: &StreamTest) -> [(bool, &'static str); 6] {
    let up = test.direction != Direction::Down;
    let down = test.direction != Direction::Up;
    [
        (stream.verify, "--verify"),
        (stream.whole, "--whole"),
        (stream.train, "a packet train"),
        (stream.batch.is_some() && down, "--batch at the server"),
        (stream.read_rate_bps.is_some() && up, "--read-rate at the server"),
        (test.works_at(End::Server), "--send-work or --receive-work at the server"),
    ]
}

/// Refuses a test for the first thing that it asks for and another tool's server (`named` with its
/// article) does not have: one of `missing`, or what none of them has.
fn refuse_lacking(named: &str, test: &Test, missing: &[(bool, &str)]) -> Result<(), String> {
    let options = &test.options;
    let always = [
        (test.protocol == Protocol::Mptcp, "--protocol mptcp"),
        (options.quickack.is_some(), "the treatment quickack"),
        (options.busy_poll_us.is_some(), "the treatment busy_poll"),
    ];
    match missing.iter().chain(&always).find(|(asked, _)| *asked) {
        Some((_, what)) => Err(format!(
            "{named} answers there, which has no {what}: run `linerate serve` on that host"
        )),
        None => Ok(()),
    }
}

/// Longest wait for the end of a server's stream after this end has measured.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// Longest wait for the answers to the last requests.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Starts this end's half of a test.
fn start_half(
    test: &Test,
    options: impl Into<HalfOptions>,
    flows: Vec<Flow>,
    source: FlowSource,
) -> Result<Half, MeasureError> {
    Half::start(End::Client, test, flows, source, options.into())
        .map_err(MeasureError::host("cannot start the threads of the test"))
}

/// The progress of a running test. Only the server knows what it has received, so that the bytes
/// sent stand for those.
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

/// If nothing listens at linerate's port, a netserver may at netperf's; if not, `error` stands.
fn netserver_instead(
    target: Target,
    stop: Stop,
    error: MeasureError,
) -> Result<Partner, MeasureError> {
    let refused = matches!(&error, MeasureError::Connect { peer, reason }
        if peer.port() == DEFAULT_PORT && reason.kind() == ErrorKind::ConnectionRefused);
    match refused.then(|| Foreign::find_netperf(target, stop)) {
        Some(Ok(netserver)) => Ok(Partner::Foreign(netserver)),
        Some(Err(MeasureError::Interrupted)) => Err(MeasureError::Interrupted),
        Some(Err(_)) | None => Err(error),
    }
}

/// Whether iperf3 listens at a loopback address of the target, as far as this user may see: the
/// greeting would use up a server that serves a single client (`iperf3 -s -1`).
fn iperf3_listens_here(target: &Target) -> bool {
    let addresses = target.addresses.iter();
    let at_loopback = addresses.filter(|at| at.ip().to_canonical().is_loopback());
    let filter = Filter {
        ports: at_loopback.map(SocketAddr::port).collect(),
        ..Filter::new(Filter::LISTENERS)
    };
    if filter.ports.is_empty() {
        return false;
    }
    let mut inodes = HashSet::new();
    let listed = SockDiag::open()
        .and_then(|mut diag| diag.sockets(&filter, |socket| _ = inodes.insert(socket.inode)));
    let owners = processes::owners(&inodes, None).unwrap_or_default().by_inode;
    let is_iperf3 = |owner: &Owner| owner.name == Tool::Iperf3.name();
    listed.is_ok() && !owners.is_empty() && owners.values().all(is_iperf3)
}

/// The tool whose server has answered linerate's greeting, if that can be told.
fn tool_that_answered(error: &MeasureError) -> Option<Tool> {
    match error {
        MeasureError::Session { reason: SessionError::NotLinerate(name), .. }
            if name.contains(Tool::Iperf3.name()) =>
        {
            Some(Tool::Iperf3)
        }
        _ => None,
    }
}
