//! A child process: started at its place, waited for with its cost, ended by its own PID.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use linerate_sys::thread as sys_thread;

use crate::cost::Account;

/// A running child; dropping it ends it.
pub(crate) struct Process {
    name: String,
    child: Child,
    output: File,
    reaped: bool,
}

/// A child that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// What it wrote to stdout and stderr.
    pub(crate) output: String,
    pub(crate) cpu: Duration,
}

/// The socket by which a server shows that it is ready.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Listening {
    Tcp(u16),
    Udp(u16),
}

impl Process {
    /// Starts `command`, on the CPU `pin` if there is one.
    pub(crate) fn start(mut command: Command, pin: Option<u32>) -> anyhow::Result<Self> {
        let name = format!("{command:?}");
        let output = tempfile::tempfile().context("cannot make a temporary file")?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let child = spawn(command, pin).with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, output, reaped: false })
    }

    /// Waits until it has the socket open.
    pub(crate) fn wait_until_listening(&mut self, socket: Listening) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.listens(socket)? {
            if Instant::now() > deadline || Account::read(self.child.id())?.ended {
                let output = self.read_output()?;
                bail!("{} does not listen: {output}", self.name);
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits for its end, which must come within `limit`.
    pub(crate) fn wait(mut self, limit: Duration) -> anyhow::Result<Ended> {
        let deadline = Instant::now() + limit;
        while !Account::read(self.child.id())?.ended {
            if Instant::now() > deadline {
                bail!("{} did not end within {limit:?}", self.name);
            }
            // Seldom enough not to take CPU time from those that are measured.
            thread::sleep(Duration::from_millis(10));
        }
        self.reap()
    }

    /// Ends it, if it has not ended of itself within `grace`.
    pub(crate) fn end(mut self, grace: Duration) -> anyhow::Result<Ended> {
        let deadline = Instant::now() + grace;
        while Instant::now() < deadline && !Account::read(self.child.id())?.ended {
            thread::sleep(Duration::from_millis(10));
        }
        self.child.kill()?;
        while !Account::read(self.child.id())?.ended {
            thread::sleep(Duration::from_millis(1));
        }
        self.reap()
    }

    fn reap(&mut self) -> anyhow::Result<Ended> {
        let cpu = Account::read(self.child.id())?.cpu;
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(Ended { status, output: self.read_output()?, cpu })
    }

    fn read_output(&mut self) -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        self.output.rewind()?;
        self.output.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Looks at the sockets of the child's own network namespace.
    fn listens(&self, socket: Listening) -> anyhow::Result<bool> {
        let (protocol, port, state) = match socket {
            Listening::Tcp(port) => ("tcp", port, TCP_LISTEN),
            Listening::Udp(port) => ("udp", port, UDP_UNCONNECTED),
        };
        let port = format!(":{port:04X}");
        for version in ["", "6"] {
            let path = format!("/proc/{}/net/{protocol}{version}", self.child.id());
            let table = match fs::read_to_string(&path) {
                // A host without IPv6.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                table => table.with_context(|| format!("cannot read {path}"))?,
            };
            let mut rows = table.lines().map(|row| row.split_whitespace());
            if rows.any(|mut row| {
                row.nth(1).is_some_and(|local| local.ends_with(&port)) && row.nth(1) == Some(state)
            }) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            // It may have ended already, which is what is wanted.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// How long a server may take to open its socket.
const PATIENCE: Duration = Duration::from_secs(5);

/// States of /proc/net/tcp and /proc/net/udp (include/net/tcp_states.h): TCP_LISTEN, TCP_CLOSE.
const TCP_LISTEN: &str = "0A";
const UDP_UNCONNECTED: &str = "07";

/// A child inherits the CPUs of the thread that starts it.
fn spawn(mut command: Command, pin: Option<u32>) -> anyhow::Result<Child> {
    let Some(cpu) = pin else {
        return Ok(command.spawn()?);
    };
    let before = sys_thread::affinity()?;
    sys_thread::set_affinity(&[cpu])?;
    let child = command.spawn();
    sys_thread::set_affinity(&before)?;
    Ok(child?)
}
