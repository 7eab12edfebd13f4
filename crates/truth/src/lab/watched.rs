//! Runs a scenario whose traffic other programs make. Separate processes without privilege watch it
//! at both ends, and its packets are captured.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use linerate_core::capture::follow;
use linerate_core::ceilings::Cause;
use linerate_core::connection::ConnectionsDocument;
use linerate_core::plan::{Direction, Extent};
use linerate_engine::connections::{Place, Selection, Watch, explain_connections};
use linerate_engine::{LabPath, Stop};
use linerate_sys::netlink::sock_diag::{Filter, SockDiag};
use linerate_sys::netns::Namespace;
use linerate_sys::thread::cpu_time;

use super::programs::{self, Commands, PATHS, TransferServer};
use super::{
    CLIENT, CpuAllotment, KilledOnDrop, SERVER, TruthError, beside, build, reason, set_up_device,
};
use crate::scenario::{Scenario, TrafficProgram};
use crate::trial::{Answer, SeenFrom, Trial};

/// The connections that were observed, and from where.
pub(crate) type Observations = Vec<(SeenFrom, ConnectionsDocument)>;

/// Runs a scenario with another program's traffic and judges what was found about it. The captures
/// are kept in `captures`, if a directory is given.
pub(crate) fn try_other_program(
    scenario: &Scenario,
    program: TrafficProgram,
    captures: Option<&Path>,
    stop: &Stop,
) -> (Vec<Trial>, Observations) {
    match watched(scenario, program, captures, stop) {
        Ok(observed) => (Trial::from_observations(scenario, &observed), observed),
        Err(error) => {
            let answer = match error {
                TruthError::LeftOut(reason) => Answer::LeftOut { reason },
                error => Answer::Failed { reason: reason(error) },
            };
            let trial = Trial::new(scenario, answer, Vec::new());
            (vec![trial], Observations::new())
        }
    }
}

/// Explains the connections of a kept capture.
///
/// # Errors
/// It cannot be read, or is no capture with TCP in it.
pub(crate) fn explain_capture(path: &Path) -> io::Result<ConnectionsDocument> {
    let capture = follow(File::open(path)?, MAX_CONNECTIONS, |_| true).map_err(io::Error::other)?;
    let mut document = ConnectionsDocument::from_capture(&path.display().to_string(), &capture);
    document.explain();
    Ok(document)
}

/// The file of a capture in the directory of kept ones.
pub(crate) fn capture_file(directory: &Path, scenario: &Scenario, from: SeenFrom) -> PathBuf {
    let (number, cause) = (scenario.number, scenario.cause.name());
    directory.join(format!("{number:05}-{cause}.{}.pcap", from.name()))
}

/// Makes the traffic, and watches it.
fn watched(
    scenario: &Scenario,
    program: TrafficProgram,
    captures: Option<&Path>,
    stop: &Stop,
) -> Result<Observations, TruthError> {
    programs::require("setpriv")?;
    if OF_CPU.contains(&scenario.cause) && free_share() < FREE {
        let reason =
            "other work takes more than a quarter of this host's CPUs: they would be its limit";
        return Err(TruthError::LeftOut(reason.to_owned()));
    }
    let temporary = Temporary::new(scenario)?;
    let path = build(scenario)?;
    for (name, setup) in [(CLIENT, &scenario.client), (SERVER, &scenario.server)] {
        set_up_device(&path, name, setup)?;
    }
    let _background = beside::start(path.lab(), scenario)?;
    let address = path.lab().address(SERVER, Some(scenario.ip));
    let server = TransferServer {
        address: address.unwrap_or(IpAddr::from([0; 4])),
        port: PORT,
        directory: &temporary.0,
    };
    let commands = programs::commands(program, scenario, &server)?;
    let run = WatchedRun { path: &path, scenario, captures: captures.unwrap_or(&temporary.0) };
    let captured = run.capture()?;
    let sockets = run.watch(&commands, stop)?;
    drop(captured);
    let packets = run.captured().filter_map(|from| {
        let file = capture_file(run.captures, scenario, from);
        Some((from, explain_capture(&file).ok()?))
    });
    Ok(sockets.into_iter().chain(packets).collect())
}

/// A scenario in its lab.
struct WatchedRun<'a> {
    path: &'a LabPath,
    scenario: &'a Scenario,
    captures: &'a Path,
}

impl WatchedRun<'_> {
    /// The namespace of a host.
    fn namespace(&self, host: &str) -> Result<&Namespace, TruthError> {
        let missing = || TruthError::LeftOut(format!("there is no {host}"));
        self.path.lab().namespace(host).ok_or_else(missing)
    }

    /// The host from which the traffic is seen.
    fn host(&self, from: SeenFrom) -> &'static str {
        let of_sender = matches!(from, SeenFrom::Sender | SeenFrom::SentPackets);
        let client_sends = self.scenario.test.direction != Direction::Down;
        if of_sender == client_sends { CLIENT } else { SERVER }
    }

    /// The places where packets are captured. Packets show nothing about a limit of a CPU, and
    /// capturing would disturb a run at full speed.
    fn captured(&self) -> impl Iterator<Item = SeenFrom> {
        let places = [SeenFrom::SentPackets, SeenFrom::ReceivedPackets];
        let shows = !OF_CPU.contains(&self.scenario.cause) && programs::is_installed("tcpdump");
        places.into_iter().filter(move |_| shows)
    }

    /// Starts to capture at both ends.
    fn capture(&self) -> Result<Vec<KilledOnDrop>, TruthError> {
        let captured = self.captured().map(|from| {
            let host = self.host(from);
            let node = self.path.lab().topology().node(host);
            let interface = node.and_then(|node| node.interfaces.first());
            let mut command = self.namespace(host)?.command("tcpdump");
            command.args(["-n", "-U", "-s", "96", "-B", "8192", "-Z", "root", "-i"]);
            command.arg(interface.map_or("any", |interface| interface.name.as_str()));
            command.arg("-w").arg(capture_file(self.captures, self.scenario, from));
            command.args(["tcp", "port", &PORT.to_string()]);
            command.env("PATH", PATHS).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            let child = command.spawn().map_err(cannot("start tcpdump"))?;
            let mut tcpdump = KilledOnDrop(child);
            let said = tcpdump.0.stderr.take().map(BufReader::new);
            let mut lines = said.into_iter().flat_map(BufRead::lines);
            if lines.any(|line| line.is_ok_and(|line| line.contains("listening on"))) {
                return Ok(tcpdump);
            }
            Err(TruthError::LeftOut("tcpdump captures nothing here".to_owned()))
        });
        captured.collect()
    }

    /// Starts the programs, and watches them.
    fn watch(&self, commands: &Commands, stop: &Stop) -> Result<Observations, TruthError> {
        let mut server = self.start(SERVER, &commands.server)?;
        self.wait_for(&mut server, SERVER, Filter::LISTENERS, stop)?;
        let Extent::Time(time) = self.scenario.test.extent else {
            // To see the connection from its beginning, the watch begins before it.
            let time = WATCHES_AFTER + Duration::from_secs_f64(self.scenario.seconds()) + REST;
            let watchers = self.watchers("--transfer", time)?;
            sleep(WATCHES_AFTER, stop);
            let _client = self.start(CLIENT, &commands.client)?;
            return documents(watchers);
        };
        let mut client = self.start(CLIENT, &commands.client)?;
        self.wait_for(&mut client, CLIENT, Filter::CONNECTIONS, stop)?;
        sleep(self.scenario.test.warm_up.0, stop);
        documents(self.watchers("--explain", time.0)?)
    }

    /// Starts one of the programs, as a user of its own, with its host's share of a CPU.
    fn start(&self, host: &str, command: &[String]) -> Result<Allotted, TruthError> {
        let setup = if host == CLIENT { &self.scenario.client } else { &self.scenario.server };
        let share = CpuAllotment::new(setup.cpu)?;
        let mut all = as_user(self.namespace(host)?, self.user());
        all.args(command).stdin(Stdio::null());
        all.stdout(Stdio::null()).stderr(Stdio::null());
        let child = share.run(|| all.spawn())?;
        Ok(Allotted {
            process: KilledOnDrop(child.map_err(cannot("start a program"))?),
            _share: share,
        })
    }

    /// The user of the programs: nobody else's, so that nobody else's threads count for it. sshd
    /// lets in those alone who have an account.
    fn user(&self) -> u32 {
        if let Some(TrafficProgram::Ssh | TrafficProgram::Scp) = self.scenario.around.program {
            return 0;
        }
        FIRST_USER + self.scenario.number % USERS
    }

    /// Starts separate processes that watch both ends, as the user of the programs. Only that user
    /// may see whether a program waits, works or lacks CPU time; anybody may see the rest.
    fn watchers(&self, how: &str, time: Duration) -> Result<Vec<(SeenFrom, Child)>, TruthError> {
        let of_programs = [Cause::ApplicationSend, Cause::ApplicationReceive];
        let user = if [&OF_CPU[..], &of_programs].concat().contains(&self.scenario.cause) {
            self.user()
        } else {
            NOBODY
        };
        let start = |from| {
            let mut command = as_user(self.namespace(self.host(from))?, user);
            // As an open file, because that user may not enter its directory.
            let program = File::open("/proc/self/exe").map_err(cannot("open this program"))?;
            command.arg("/proc/self/fd/0").stdin(program);
            let time = time.as_millis().to_string();
            command.args([WatchArgs::COMMAND, how, &PORT.to_string(), &time]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().map_err(cannot("start a watcher"))?;
            Ok((from, child))
        };
        [SeenFrom::Sender, SeenFrom::Receiver].into_iter().map(start).collect()
    }

    /// Waits until a host has a socket of the program's in one of these states; if it is a
    /// connection, until it carries.
    fn wait_for(
        &self,
        program: &mut Allotted,
        host: &str,
        states: u32,
        stop: &Stop,
    ) -> Result<(), TruthError> {
        let namespace = self.namespace(host)?;
        let mut diag = namespace
            .run(SockDiag::open)?
            .map_err(|error| TruthError::LeftOut(error.to_string()))?;
        let filter = Filter { states, ports: vec![PORT], peers: Vec::new() };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && !stop.is_requested() {
            let mut is_there = false;
            let looked = diag.sockets(&filter, |socket| {
                let moved = socket.info.map_or(0, |info| info.bytes_acked + info.bytes_received);
                is_there |= states == Filter::LISTENERS || moved >= CARRIES;
            });
            looked.map_err(|error| TruthError::LeftOut(error.to_string()))?;
            if is_there {
                return Ok(());
            }
            if let Ok(Some(status)) = program.process.0.try_wait() {
                return Err(TruthError::LeftOut(format!("its program ended: {status}")));
            }
            thread::sleep(LOOK);
        }
        Err(TruthError::LeftOut("its program does nothing".to_owned()))
    }
}

/// Arguments of a process that watches the connections of a port on behalf of [`WatchedRun`].
#[derive(Debug, Parser)]
#[command(name = Self::COMMAND)]
pub(crate) struct WatchArgs {
    /// Explain the connections that are there, as `linerate explain` does
    #[arg(long, conflicts_with = "transfer")]
    explain: bool,
    /// See a transfer from its beginning to its end, as `linerate connections` does
    #[arg(long)]
    transfer: bool,
    /// Port of the connections
    port: u16,
    /// Time to watch, ms
    time: u64,
}

impl WatchArgs {
    /// The first word of the command.
    pub(crate) const COMMAND: &str = "watch-connections";
}

/// Watches connections in this process.
///
/// # Errors
/// There are none, or they cannot be seen.
pub(crate) fn watch(args: &WatchArgs, stop: &Stop) -> anyhow::Result<ConnectionsDocument> {
    let time = Duration::from_millis(args.time);
    let selection =
        Selection { ports: vec![args.port], place: Place::Here, ..Selection::default() };
    let mut document = if args.transfer {
        Some(watch_transfer(&selection, time, stop)?)
    } else {
        explain_connections(&selection, time, stop, || ())?
    };
    let seen = document.take_if(|document| !document.connections.is_empty());
    let mut document = seen.context("no TCP connection was seen")?;
    document.asked = args.explain.then(|| format!("with port {}", args.port));
    Ok(document)
}

/// Looks at connections as often as `linerate connections --interval` does.
fn watch_transfer(
    selection: &Selection,
    time: Duration,
    stop: &Stop,
) -> anyhow::Result<ConnectionsDocument> {
    let mut watch = Watch::open(selection)?;
    let (begin, looks) = (Instant::now(), watch.looks_within(time));
    for look in 1..=looks {
        sleep((time * look / looks).saturating_sub(begin.elapsed()), stop);
        watch.look()?;
    }
    let mut document = watch.document();
    watch.name_owners(&mut document, usize::MAX)?;
    Ok(document)
}

/// Begins a command as another user; a program and its arguments follow.
fn as_user(namespace: &Namespace, user: u32) -> Command {
    let mut command = namespace.command("setpriv");
    command.env("PATH", PATHS).arg(format!("--reuid={user}"));
    command.args([&format!("--regid={user}"), "--clear-groups"]);
    command
}

/// The documents of watchers, once they have ended.
fn documents(watchers: Vec<(SeenFrom, Child)>) -> Result<Observations, TruthError> {
    let read = |(from, child): (SeenFrom, Child)| {
        let output = child.wait_with_output().map_err(cannot("read a watcher"))?;
        Ok((from, document(&output)?))
    };
    watchers.into_iter().map(read).collect()
}

/// The document that a watcher printed.
fn document(output: &Output) -> Result<ConnectionsDocument, TruthError> {
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(TruthError::Watcher(said.trim().to_owned()));
    }
    let parsed = ConnectionsDocument::parse(&output.stdout);
    parsed.map_err(|error| TruthError::Watcher(error.to_string()))
}

/// An error that leaves a scenario out.
fn cannot(what: &'static str) -> impl Fn(io::Error) -> TruthError {
    move |error| TruthError::LeftOut(format!("cannot {what}: {error}"))
}

/// Sleeps, until a stop is requested.
fn sleep(time: Duration, stop: &Stop) {
    let end = Instant::now() + time;
    while !stop.is_requested() && Instant::now() < end {
        thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
}

/// Smallest share of its time that a thread on each CPU gets of it.
fn free_share() -> f64 {
    let spin = || {
        let (begin, before) = (Instant::now(), cpu_time());
        while begin.elapsed() < PROBED {
            std::hint::spin_loop();
        }
        (cpu_time() - before).as_secs_f64() / begin.elapsed().as_secs_f64()
    };
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let spinning: Vec<_> = (0..cpus).map(|_| scope.spawn(spin)).collect();
        let shares = spinning.into_iter().filter_map(|one| one.join().ok());
        shares.fold(1.0, f64::min)
    })
}

/// A program that ends with the scenario, and then its share of a CPU.
struct Allotted {
    process: KilledOnDrop,
    _share: CpuAllotment,
}

/// A directory that any user can read, with `own` in it that any user can write: what root makes in
/// there could be another user's link. It goes with the scenario.
struct Temporary(PathBuf);

impl Temporary {
    fn new(scenario: &Scenario) -> Result<Self, TruthError> {
        let (process, number) = (std::process::id(), scenario.number);
        let name = format!("linerate-truth-{process}-{number}");
        let path = std::env::temp_dir().join(name);
        let make = |path: &Path, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::create_dir(path).and_then(|()| fs::set_permissions(path, mode))
        };
        let made = make(&path, 0o755).and_then(|()| make(&path.join("own"), 0o777));
        made.map_err(cannot("make a directory"))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Causes that are limits of a CPU.
const OF_CPU: [Cause; 3] = [Cause::CpuSend, Cause::CpuReceive, Cause::SegmentSize];
/// Least [`free_share`] with which a limit of a CPU is run.
const FREE: f64 = 0.75;
/// Time for which [`free_share`] looks.
const PROBED: Duration = Duration::from_millis(200);
/// Port of the transfer.
const PORT: u16 = 5280;
/// The least of the numbers of users that no host has, and how many are used.
const FIRST_USER: u32 = 61_000;
const USERS: u32 = 4000;
/// Number of the user `nobody`.
const NOBODY: u32 = 65_534;
/// Bytes from which on a connection carries the transfer, and no mere request.
const CARRIES: u64 = 2000;
/// Time that a program may take to begin.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time in which a wait notices its end.
const LOOK: Duration = Duration::from_millis(20);
/// Time that a process may take until its first look, also on a busy machine.
const WATCHES_AFTER: Duration = Duration::from_millis(800);
/// Time for the last looks at a transfer.
const REST: Duration = Duration::from_millis(700);
/// Most connections of a capture that are followed.
const MAX_CONNECTIONS: usize = 100;
