//! What a scenario needs beside its path and hosts: kernel queues made by `tc`, traffic of other
//! programs, servers of other tools. Also measures what plain sockets carry without linerate.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_core::plan::Direction;
use linerate_core::truth::{Scenario, Shaper};
use linerate_core::units::BitRate;
use linerate_sys::netns::Namespace;

use super::{CLIENT, Running, SERVER, TruthError, traffic};
use crate::lab::Lab;
use crate::stop::Stop;

/// Whatever runs beside a measured run; it ends when this is dropped.
#[derive(Default)]
pub(super) struct Around {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
    _iperf3: Option<Running>,
}

/// Starts what the scenario needs beside its path.
///
/// # Errors
/// [`TruthError::LeftOut`] where it cannot be made here, or where this host is too slow at this
/// moment for its limit to be the lowest.
pub(super) fn make(lab: &Lab, scenario: &Scenario) -> Result<Around, TruthError> {
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
    let mut around = Around::default();
    for shaper in &scenario.around.shapers {
        around.shape(lab, shaper)?;
    }
    for other in &scenario.around.traffic {
        let threads = traffic::start(lab, scenario.ip, other, &around.stop);
        (around.threads).extend(threads.map_err(TruthError::PlainSockets)?);
    }
    if scenario.around.is_iperf3 {
        around._iperf3 = Some(iperf3(lab)?);
    }
    Ok(around)
}

impl Around {
    fn shape(&mut self, lab: &Lab, shaper: &Shaper) -> Result<(), TruthError> {
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

impl Drop for Around {
    fn drop(&mut self) {
        self.stop.request();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// An iperf3 server at the far end, once it listens.
fn iperf3(lab: &Lab) -> Result<Running, TruthError> {
    let left_out = |error: String| TruthError::LeftOut(format!("no `iperf3` here: {error}"));
    let Some(namespace) = lab.namespace(SERVER) else {
        return Err(left_out("there is no server".to_owned()));
    };
    let mut command = namespace.command("iperf3");
    command.args(["-s", "--forceflush"]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let server = command.spawn();
    let mut server = Running(server.map_err(|error| left_out(error.to_string()))?);
    let said = server.0.stdout.take().map(BufReader::new);
    let listens = said
        .into_iter()
        .flat_map(BufRead::lines)
        .map_while(Result::ok)
        .any(|line| line.contains("listening"));
    if listens {
        Ok(server)
    } else {
        Err(left_out("it does not listen".to_owned()))
    }
}

fn tc(namespace: &Namespace, words: &str) -> Result<(), TruthError> {
    let output = namespace.command("tc").args(words.split(' ')).output();
    let output = output.map_err(|error| TruthError::LeftOut(format!("no `tc` here: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or_default();
    Err(TruthError::LeftOut(format!("`tc {words}`: {said}")))
}

/// What one flow of plain sockets carries in the direction of the payload, bits/s.
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

pub(super) fn inside<T: Send>(
    lab: &Lab,
    host: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = lab.namespace(host).ok_or(io::ErrorKind::NotFound)?;
    namespace.run(work).map_err(io::Error::other)?
}

/// How often a waiting thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// How long plain sockets send.
const PROBED: Duration = Duration::from_millis(300);
