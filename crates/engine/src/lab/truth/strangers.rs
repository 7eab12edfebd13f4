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

use linerate_core::capture::follow;
use linerate_core::ceilings::Cause;
use linerate_core::connection::ConnectionsDocument;
use linerate_core::plan::{Direction, Extent};
use linerate_core::truth::{Answer, Program, Scenario, SeenFrom, Trial};
use linerate_sys::netlink::sock_diag::{Filter, SockDiag};
use linerate_sys::netns::Namespace;
use linerate_sys::thread::cpu_time;

use super::programs::{self, Commands, PATHS, Place};
use super::{CLIENT, Running, SERVER, TruthError, around, build, set_up_device};
use crate::clock::{nanos, now_ns};
use crate::lab::LabPath;
use crate::lab::cpu::Allotment;
use crate::stop::Stop;
use crate::words::chain;

/// What was seen, and from where.
pub type Looks = Vec<(SeenFrom, ConnectionsDocument)>;

/// Runs a scenario with another program's traffic and judges what was found about it. The captures
/// are kept in `captures`, if a directory is given.
pub fn try_stranger(
    scenario: &Scenario,
    program: Program,
    captures: Option<&Path>,
    stop: &Stop,
) -> (Vec<Trial>, Looks) {
    match watched(scenario, program, captures, stop) {
        Ok(looks) => (Trial::from_looks(scenario, &looks), looks),
        Err(error) => {
            let answer = match error {
                TruthError::LeftOut(reason) => Answer::LeftOut { reason },
                error => Answer::Failed {
                    reason: chain(&error),
                },
            };
            let trial = Trial::new(scenario, answer, Vec::new());
            (vec![trial], Looks::new())
        }
    }
}

/// Explains the connections of a kept capture.
///
/// # Errors
/// It cannot be read, or is no capture with TCP in it.
pub fn explain_capture(path: &Path) -> io::Result<ConnectionsDocument> {
    let capture = follow(File::open(path)?, MAX_CONNECTIONS, |_| true);
    let capture = capture.map_err(io::Error::other)?;
    let mut document = ConnectionsDocument::from_capture(&path.display().to_string(), &capture);
    document.explain();
    Ok(document)
}

/// The file of a capture in the directory of kept ones.
pub fn capture_file(directory: &Path, scenario: &Scenario, sight: SeenFrom) -> PathBuf {
    let (number, cause) = (scenario.number, scenario.cause.name());
    directory.join(format!("{number:05}-{cause}.{}.pcap", sight.name()))
}

fn watched(
    scenario: &Scenario,
    program: Program,
    captures: Option<&Path>,
    stop: &Stop,
) -> Result<Looks, TruthError> {
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
    let _around = around::make(path.lab(), scenario)?;
    let address = path.lab().address(SERVER, Some(scenario.ip));
    let place = Place {
        address: address.unwrap_or(IpAddr::from([0; 4])),
        port: PORT,
        directory: &temporary.0,
    };
    let commands = programs::commands(program, scenario, &place)?;
    let site = Site {
        path: &path,
        scenario,
        captures: captures.unwrap_or(&temporary.0),
    };
    let captured = site.capture()?;
    let looks = site.look(&commands, stop)?;
    drop(captured);
    let packets = site.captured().filter_map(|sight| {
        let file = capture_file(site.captures, scenario, sight);
        Some((sight, explain_capture(&file).ok()?))
    });
    Ok(looks.into_iter().chain(packets).collect())
}

/// A scenario where it is to happen.
struct Site<'a> {
    path: &'a LabPath,
    scenario: &'a Scenario,
    captures: &'a Path,
}

impl Site<'_> {
    fn namespace(&self, host: &str) -> Result<&Namespace, TruthError> {
        let missing = || TruthError::LeftOut(format!("there is no {host}"));
        self.path.lab().namespace(host).ok_or_else(missing)
    }

    /// The hosts that send and receive.
    fn host(&self, sight: SeenFrom) -> &'static str {
        let of_sender = matches!(sight, SeenFrom::Sender | SeenFrom::SentPackets);
        let client_sends = self.scenario.test.direction != Direction::Down;
        if of_sender == client_sends {
            CLIENT
        } else {
            SERVER
        }
    }

    /// Where packets are captured. Packets show nothing about a limit of a CPU, and capturing would
    /// disturb a run at full speed.
    fn captured(&self) -> impl Iterator<Item = SeenFrom> {
        let sights = [SeenFrom::SentPackets, SeenFrom::ReceivedPackets];
        let is_told = !OF_CPU.contains(&self.scenario.cause) && programs::is_installed("tcpdump");
        sights.into_iter().filter(move |_| is_told)
    }

    /// Starts to capture at both ends.
    fn capture(&self) -> Result<Vec<Running>, TruthError> {
        let captured = self.captured().map(|sight| {
            let host = self.host(sight);
            let node = self.path.lab().topology().node(host);
            let interface = node.and_then(|node| node.interfaces.first());
            let mut command = self.namespace(host)?.command("tcpdump");
            command.args(["-n", "-U", "-s", "96", "-B", "8192", "-Z", "root", "-i"]);
            command.arg(interface.map_or("any", |interface| interface.name.as_str()));
            command
                .arg("-w")
                .arg(capture_file(self.captures, self.scenario, sight));
            command.args(["tcp", "port", &PORT.to_string()]);
            command.env("PATH", PATHS).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            let child = command.spawn().map_err(cannot("start tcpdump"))?;
            let mut running = Running(child);
            let said = running.0.stderr.take().map(BufReader::new);
            let mut lines = said.into_iter().flat_map(BufRead::lines);
            if lines.any(|line| line.is_ok_and(|line| line.contains("listening on"))) {
                return Ok(running);
            }
            Err(TruthError::LeftOut(
                "tcpdump captures nothing here".to_owned(),
            ))
        });
        captured.collect()
    }

    /// Starts the programs, and watches them.
    fn look(&self, commands: &Commands, stop: &Stop) -> Result<Looks, TruthError> {
        let mut server = self.start(SERVER, &commands.server)?;
        self.wait_for(&mut server, SERVER, Filter::LISTENERS, stop)?;
        let Extent::Time(time) = self.scenario.test.extent else {
            // To see the connection from its beginning, the watch begins before it.
            let time = WATCHES_AFTER + Duration::from_secs_f64(self.scenario.seconds()) + REST;
            let watchers = self.watchers("connections", "--interval", time)?;
            sleep(WATCHES_AFTER, stop);
            let _client = self.start(CLIENT, &commands.client)?;
            return documents(watchers);
        };
        let mut client = self.start(CLIENT, &commands.client)?;
        self.wait_for(&mut client, CLIENT, Filter::CONNECTIONS, stop)?;
        sleep(self.scenario.test.warm_up.0, stop);
        documents(self.watchers("explain", "--time", time.0)?)
    }

    /// One of the programs, as a user of its own, with its host's share of a CPU.
    fn start(&self, host: &str, command: &[String]) -> Result<Allotted, TruthError> {
        let setup = if host == CLIENT {
            &self.scenario.client
        } else {
            &self.scenario.server
        };
        let share = Allotment::new(setup.cpu)?;
        let mut all = as_user(self.namespace(host)?, self.user());
        all.args(command).stdin(Stdio::null());
        all.stdout(Stdio::null()).stderr(Stdio::null());
        let child = share.run(|| all.spawn())?;
        Ok(Allotted {
            running: Running(child.map_err(cannot("start a program"))?),
            _share: share,
        })
    }

    /// Nobody else's, so that nobody else's threads count for it; sshd lets in those alone who have
    /// an account.
    fn user(&self) -> u32 {
        if let Some(Program::Ssh | Program::Scp) = self.scenario.around.program {
            return 0;
        }
        FIRST_USER + self.scenario.number % USERS
    }

    /// Starts separate processes that watch both ends, as the user of the programs. Only that user
    /// may see whether a program waits, works or lacks CPU time; anybody may see the rest.
    fn watchers(
        &self,
        what: &str,
        option: &str,
        time: Duration,
    ) -> Result<Vec<(SeenFrom, Child)>, TruthError> {
        let of_programs = [Cause::ApplicationSend, Cause::ApplicationReceive];
        let user = if [&OF_CPU[..], &of_programs]
            .concat()
            .contains(&self.scenario.cause)
        {
            self.user()
        } else {
            NOBODY
        };
        let start = |sight| {
            let mut command = as_user(self.namespace(self.host(sight))?, user);
            // As an open file, because that user may not enter its directory.
            let program = File::open("/proc/self/exe").map_err(cannot("open this program"))?;
            command.arg("/proc/self/fd/0").stdin(program);
            let time = format!("{}ms", time.as_millis());
            command.args([what, "--port", &PORT.to_string(), option, &time]);
            command.args(["--json", "--quiet"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().map_err(cannot("start a watcher"))?;
            Ok((sight, child))
        };
        [SeenFrom::Sender, SeenFrom::Receiver]
            .into_iter()
            .map(start)
            .collect()
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
        let mut diag = namespace.run(SockDiag::open)?.map_err(io::Error::other);
        let diag = diag
            .as_mut()
            .map_err(|error| TruthError::LeftOut(error.to_string()))?;
        let filter = Filter {
            states,
            ports: vec![PORT],
            peers: Vec::new(),
        };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && !stop.is_requested() {
            let mut is_there = false;
            let looked = diag.sockets(&filter, |socket| {
                let moved = socket
                    .info
                    .map_or(0, |info| info.bytes_acked + info.bytes_received);
                is_there |= states == Filter::LISTENERS || moved >= CARRIES;
            });
            looked.map_err(|error| TruthError::LeftOut(error.to_string()))?;
            if is_there {
                return Ok(());
            }
            if let Ok(Some(status)) = program.running.0.try_wait() {
                return Err(TruthError::LeftOut(format!("its program ended: {status}")));
            }
            thread::sleep(LOOK);
        }
        Err(TruthError::LeftOut("its program does nothing".to_owned()))
    }
}

/// Begins a command as another user; a program and its arguments follow.
fn as_user(namespace: &Namespace, user: u32) -> Command {
    let mut command = namespace.command("setpriv");
    command.env("PATH", PATHS).arg(format!("--reuid={user}"));
    command.args([&format!("--regid={user}"), "--clear-groups"]);
    command
}

fn documents(watchers: Vec<(SeenFrom, Child)>) -> Result<Looks, TruthError> {
    let read = |(sight, child): (SeenFrom, Child)| {
        let output = child.wait_with_output().map_err(cannot("read a watcher"))?;
        Ok((sight, document(&output)?))
    };
    watchers.into_iter().map(read).collect()
}

fn document(output: &Output) -> Result<ConnectionsDocument, TruthError> {
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(TruthError::Watcher(said.trim().to_owned()));
    }
    let parsed = ConnectionsDocument::parse(&output.stdout);
    parsed.map_err(|error| TruthError::Watcher(error.to_string()))
}

fn cannot(what: &'static str) -> impl Fn(io::Error) -> TruthError {
    move |error| TruthError::LeftOut(format!("cannot {what}: {error}"))
}

fn sleep(time: Duration, stop: &Stop) {
    stop.sleep_until(now_ns() + nanos(time), Duration::ZERO, |_| ());
}

/// Share of its time that a thread on each CPU gets of it.
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
    running: Running,
    _share: Allotment,
}

/// A directory that any user can read, with `own` in it that any user can write: what root makes in
/// there could be another user's link. It goes with the scenario.
struct Temporary(PathBuf);

impl Temporary {
    fn new(scenario: &Scenario) -> Result<Self, TruthError> {
        let (process, number) = (std::process::id(), scenario.number);
        let name = format!("linerate-stranger-{process}-{number}");
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
const FREE: f64 = 0.75;
const PROBED: Duration = Duration::from_millis(200);
const PORT: u16 = 5280;
/// Numbers of users that no host has.
const FIRST_USER: u32 = 61_000;
const USERS: u32 = 4000;
const NOBODY: u32 = 65_534;
/// A connection that has carried so many bytes carries the transfer: it is more than a request.
const CARRIES: u64 = 2000;
/// How long a program may take to begin.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(20);
/// How long a process may take until its first look, also on a busy machine.
const WATCHES_AFTER: Duration = Duration::from_millis(800);
/// A transfer's last looks.
const REST: Duration = Duration::from_millis(700);
const MAX_CONNECTIONS: usize = 100;
