//! The same number of connections by a program that does nothing else: pairs of processes, one that
//! accepts and one that connects, without epoll, a word said or an account kept. It is what this
//! kernel and this machine have to give.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use linerate_core::capacity::{DESCRIPTOR_RESERVE, MAX_AT_PORT};
use linerate_sys::proc::privilege::raise_descriptor_limit;
use linerate_sys::socket::{ListenOptions, Mptcp, accept, listen, reset_on_close};
use socket2::{Domain, Protocol, Socket, Type};

/// First word of a process of one of the pairs.
pub(crate) const BARE_WORKER: &str = "bare-worker";

/// Opens so many, as many pairs at once as the limit of descriptors makes necessary; how long it
/// took until the last was connected. All are closed again by the time it answers.
pub(crate) fn open(count: u64) -> anyhow::Result<Duration> {
    let each = raise_descriptor_limit().context("the limit of descriptors")?;
    let each = each.soft.saturating_sub(DESCRIPTOR_RESERVE).clamp(1, MAX_AT_PORT);
    let pairs = count.div_ceil(each);
    let mut takers = Vec::new();
    let mut openers = Vec::new();
    for pair in 0..pairs {
        let share = count / pairs + u64::from(pair < count % pairs);
        let mut taker = Worker::start(&[TAKE, &share.to_string()])?;
        let port = taker.hear()?;
        let mut opener =
            Worker::start(&[OPEN, &share.to_string(), port.trim(), &pair.to_string()])?;
        opener.hear()?;
        takers.push(taker);
        openers.push(opener);
    }
    let began = Instant::now();
    for opener in &mut openers {
        opener.say()?;
    }
    for opener in &mut openers {
        opener.hear()?;
    }
    let took = began.elapsed();
    end(takers.into_iter().chain(openers).collect())?;
    Ok(took)
}

/// The part of one process: `take COUNT`, or `open COUNT PORT PAIR`.
pub(crate) fn run_bare_worker(words: &[String]) -> anyhow::Result<()> {
    raise_descriptor_limit().context("the limit of descriptors")?;
    let number = |at: usize| -> anyhow::Result<u32> {
        let word = words.get(at).context("a word is missing")?;
        Ok(word.parse()?)
    };
    match words.first().map(String::as_str) {
        Some(TAKE) => take(number(1)?),
        Some(OPEN) => connect(number(1)?, u16::try_from(number(2)?)?, number(3)?),
        _ => anyhow::bail!("neither {TAKE} nor {OPEN}"),
    }
}

fn take(count: u32) -> anyhow::Result<()> {
    let options = ListenOptions { backlog: BACKLOG, mptcp: Mptcp::Off };
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), options)?;
    reset_on_close(&listener)?;
    tell(&listener.local_addr()?.port().to_string())?;
    let mut taken = Vec::with_capacity(count as usize);
    for _ in 0..count {
        taken.push(accept(&listener)?);
    }
    wait_for_end()
}

fn connect(count: u32, port: u16, pair: u32) -> anyhow::Result<()> {
    let peer = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into();
    // Each from an address of its own: they have no port in common that would have to be looked
    // through.
    let source = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + pair);
    tell("ready")?;
    io::stdin().lock().read_exact(&mut [0])?;
    let mut connected = Vec::with_capacity(count as usize);
    let mut ports = FIRST_PORT..=u16::MAX;
    while connected.len() < count as usize {
        let port = ports.next().context("no local port is left")?;
        let socket = Socket::new_raw(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_reuse_address(true)?;
        match socket.bind(&SocketAddrV4::new(source, port).into()) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
            bound => bound?,
        }
        socket.connect(&peer)?;
        connected.push(socket);
    }
    tell("done")?;
    wait_for_end()
}

fn tell(word: &str) -> io::Result<()> {
    println!("{word}");
    io::stdout().flush()
}

/// Until the process that started this one has closed the other end, or is gone.
fn wait_for_end() -> anyhow::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn start(words: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg(BARE_WORKER)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("it is piped")?;
        Ok(Self { child, stdin, stdout: BufReader::new(stdout) })
    }

    fn say(&mut self) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("it is ending")?;
        Ok(stdin.write_all(b"\n")?)
    }

    fn hear(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let n = self.stdout.read_line(&mut line)?;
        ensure!(n > 0, "a process of the bare program has ended early");
        Ok(line)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All close what they have at once.
fn end(mut workers: Vec<Worker>) -> anyhow::Result<()> {
    for worker in &mut workers {
        worker.stdin = None;
    }
    for worker in &mut workers {
        let status = worker.child.wait()?;
        ensure!(status.success(), "a process of the bare program failed: {status}");
    }
    Ok(())
}

const TAKE: &str = "take";
const OPEN: &str = "open";
/// As linerate's endpoint asks for.
const BACKLOG: u32 = 4096;
/// First local port.
const FIRST_PORT: u16 = 22_000;
