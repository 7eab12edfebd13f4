//! Everything that a scenario needs beside its path and hosts: kernel queues made by `tc`, traffic
//! of other programs from plain sockets, servers of other tools. Also measures what plain sockets
//! carry without linerate.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_core::plan::Direction;
use linerate_core::units::{BitRate, Family};
use linerate_engine::{Lab, Stop};
use linerate_sys::netns::Namespace;

use super::{CLIENT, KilledOnDrop, SERVER, TruthError};
use crate::scenario::{KernelShaper, OtherTraffic, Scenario};

/// Threads and servers beside a measured run; they end when this is dropped.
#[derive(Default)]
pub(super) struct Background {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
    _iperf3: Option<KilledOnDrop>,
}

/// Starts what the scenario needs beside its path.
///
/// # Errors
/// [`TruthError::LeftOut`] where it cannot be made here, or where this host is too slow at this
/// moment for its limit to be the lowest.
pub(super) fn start(lab: &Lab, scenario: &Scenario) -> Result<Background, TruthError> {
    if let Some(needed) = scenario.around.needs_bps {
        let carried = carried_bps(lab, scenario).map_err(TruthError::PlainSockets)?;
        if carried < needed {
            return Err(TruthError::LeftOut(format!(
                "plain sockets carry {} here now, and {} are needed for the limit to be the lowest",
                BitRate(carried as u64),
                BitRate(needed as u64)
            )));
        }
    }
    let mut background = Background::default();
    for shaper in &scenario.around.shapers {
        background.shape(lab, shaper)?;
    }
    for other in &scenario.around.traffic {
        let threads = send_other(lab, scenario.ip, other, &background.stop);
        (background.threads).extend(threads.map_err(TruthError::PlainSockets)?);
    }
    if scenario.around.is_iperf3 {
        background._iperf3 = Some(iperf3(lab)?);
    }
    Ok(background)
}

impl Background {
    /// Makes a queue of the kernel, and changes it in steps if it has them.
    fn shape(&mut self, lab: &Lab, shaper: &KernelShaper) -> Result<(), TruthError> {
        let Some(namespace) = lab.namespace(&shaper.node) else {
            return Err(TruthError::LeftOut(format!("there is no {}", shaper.node)));
        };
        let of_device = |words: &String| words.replace("DEV", &shaper.interface);
        for words in &shaper.setup {
            tc(namespace, &of_device(words))?;
        }
        let Some(steps) = &shaper.steps else {
            return Ok(());
        };
        let commands: Vec<String> = steps.commands.iter().map(of_device).collect();
        let (inside, stop, every) = (namespace.clone(), self.stop.clone(), steps.every.0);
        self.threads.push(thread::spawn(move || {
            let mut begin = Instant::now();
            for words in commands.iter().cycle() {
                begin += every;
                while !stop.is_requested() && Instant::now() < begin {
                    thread::sleep(LOOK.min(begin - Instant::now().min(begin)));
                }
                if stop.is_requested() || tc(&inside, words).is_err() {
                    return;
                }
            }
        }));
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.request();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// An iperf3 server at the far end, once it listens.
fn iperf3(lab: &Lab) -> Result<KilledOnDrop, TruthError> {
    let left_out = |error: String| TruthError::LeftOut(format!("no `iperf3` here: {error}"));
    let Some(namespace) = lab.namespace(SERVER) else {
        return Err(left_out("there is no server".to_owned()));
    };
    let mut command = namespace.command("iperf3");
    command.args(["-s", "--forceflush"]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let server = command.spawn();
    let mut server = KilledOnDrop(server.map_err(|error| left_out(error.to_string()))?);
    let said = server.0.stdout.take().map(BufReader::new);
    let listens = said
        .into_iter()
        .flat_map(BufRead::lines)
        .map_while(Result::ok)
        .any(|line| line.contains("listening"));
    if listens { Ok(server) } else { Err(left_out("it does not listen".to_owned())) }
}

/// Runs `tc` in a namespace.
fn tc(namespace: &Namespace, words: &str) -> Result<(), TruthError> {
    let output = namespace
        .command("tc")
        .args(words.split(' '))
        .output()
        .map_err(|error| TruthError::LeftOut(format!("no `tc` here: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().next().unwrap_or_default();
    Err(TruthError::LeftOut(format!("`tc {words}`: {first}")))
}

/// The rate that one flow of plain sockets carries in the direction of the payload, bits/s.
fn carried_bps(lab: &Lab, scenario: &Scenario) -> io::Result<f64> {
    let (from, to) = match scenario.test.direction {
        Direction::Down => (SERVER, CLIENT),
        Direction::Up | Direction::Both => (CLIENT, SERVER),
    };
    let address = lab.address(to, Some(scenario.ip));
    let there = SocketAddr::new(address.unwrap_or(IpAddr::from([127, 0, 0, 1])), 0);
    let listener = inside(lab, to, || TcpListener::bind(there))?;
    let there = listener.local_addr()?;
    let mut sender = inside(lab, from, || TcpStream::connect(there))?;
    let (mut receiver, _) = listener.accept()?;
    let end = Instant::now() + PROBED;
    thread::scope(|scope| {
        scope.spawn(move || {
            let piece = vec![0; 131_072];
            while Instant::now() < end && sender.write_all(&piece).is_ok() {}
        });
        let (mut buffer, mut bytes) = (vec![0; 131_072], 0);
        let begin = Instant::now();
        loop {
            match receiver.read(&mut buffer)? {
                0 => return Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64()),
                read => bytes += read,
            }
        }
    })
}

/// Does something in a host's namespace.
fn inside<T: Send>(
    lab: &Lab,
    host: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = lab.namespace(host).ok_or(io::ErrorKind::NotFound)?;
    namespace.run(work).map_err(io::Error::other)?
}

/// Starts another program's traffic; the threads end when `stop` is requested.
fn send_other(
    lab: &Lab,
    ip: Family,
    other: &OtherTraffic,
    stop: &Stop,
) -> io::Result<Vec<JoinHandle<()>>> {
    let (from, to) = match other.direction {
        Direction::Down => (SERVER, CLIENT),
        Direction::Up | Direction::Both => (CLIENT, SERVER),
    };
    let address = lab.address(to, Some(ip));
    let there = SocketAddr::new(address.unwrap_or(IpAddr::from([127, 0, 0, 1])), 0);
    if let Some(rate_bps) = other.udp_bps {
        let sink = inside(lab, to, || UdpSocket::bind(there))?;
        let there = sink.local_addr()?;
        let any: SocketAddr = match there {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let source = inside(lab, from, || UdpSocket::bind(any))?;
        source.connect(there)?;
        let stop = stop.clone();
        // Nobody reads it: what its buffer does not hold is dropped there, after the path.
        return Ok(vec![thread::spawn(move || {
            datagrams(&source, rate_bps, &stop);
            drop(sink);
        })]);
    }
    let listener = inside(lab, to, || TcpListener::bind(there))?;
    let there = listener.local_addr()?;
    let mut threads = Vec::new();
    for _ in 0..other.flows {
        let sender = inside(lab, from, || TcpStream::connect(there))?;
        let (receiver, _) = listener.accept()?;
        sender.set_write_timeout(Some(FLOW_LOOK))?;
        receiver.set_read_timeout(Some(FLOW_LOOK))?;
        let [first, second] = [stop.clone(), stop.clone()];
        threads.push(thread::spawn(move || send(sender, &first)));
        threads.push(thread::spawn(move || receive(receiver, &second)));
    }
    Ok(threads)
}

/// Sends datagrams evenly, a few at once, and makes up for what it missed.
fn datagrams(source: &UdpSocket, rate_bps: u64, stop: &Stop) {
    let message = [0; 1200];
    let (begin, mut sent) = (Instant::now(), 0.0);
    while !stop.is_requested() {
        let due = begin.elapsed().as_secs_f64() * rate_bps as f64 / 8.0;
        while sent < due {
            // A full queue or buffer drops it.
            let _ = source.send(&message);
            sent += message.len() as f64;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends as fast as possible.
fn send(mut flow: TcpStream, stop: &Stop) {
    let piece = vec![0; 65_536];
    while !stop.is_requested() {
        match flow.write(&piece) {
            Err(error) if !waits(&error) => return,
            _ => {}
        }
    }
}

/// Reads whatever comes.
fn receive(mut flow: TcpStream, stop: &Stop) {
    let mut buffer = vec![0; 65_536];
    while !stop.is_requested() {
        match flow.read(&mut buffer) {
            Ok(0) => return,
            Err(error) if !waits(&error) => return,
            _ => {}
        }
    }
}

/// Whether a call that failed is to be made again.
fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Time in which a waiting thread notices that it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Time for which plain sockets send.
const PROBED: Duration = Duration::from_millis(300);
/// Time in which a waiting flow notices that it is to end.
const FLOW_LOOK: Duration = Duration::from_millis(200);
