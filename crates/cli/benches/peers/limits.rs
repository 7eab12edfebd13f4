//! What no program on this machine can be much faster than: bare programs, which make the system
//! calls that a workload cannot do without, over loopback, and nothing else.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::process::parent_id;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cases::{Copies, Workload};
use crate::measurement::Metric;

/// The best of several short measurements each: what disturbs only makes them slower. Thousands of
/// what the name says each second, if it says nothing else.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// A copy out of a buffer of 128 KiB into memory that no cache of a core holds, Gbit/s.
    copy_gbps: f64,
    calls: f64,
    /// There and back between two threads that wait for each other in a pipe: two wake-ups.
    wake_ups: f64,
    /// Writes of 32 bytes to a connection whose other end reads 64 KiB at once.
    messages: f64,
    /// A byte there and back on a connection.
    turns: f64,
    /// Connect, a byte there and back, close.
    connections: f64,
}

const TRIES: usize = 5;
const BUFFER: usize = 128 << 10;
const MEMORY: usize = 16 << 20;

impl Limits {
    /// Takes about a second.
    pub(crate) fn measure() -> anyhow::Result<Self> {
        let thousands = |count: u32, took: Duration| f64::from(count) / 1e3 / took.as_secs_f64();
        Ok(Self {
            copy_gbps: MEMORY as f64 * 8.0 / 1e9 / copy()?.as_secs_f64(),
            calls: thousands(CALLS, calls()?),
            wake_ups: thousands(TURNS, wake_ups()?),
            messages: thousands(CALLS, messages()?),
            turns: thousands(TURNS, turns()?),
            connections: thousands(CONNECTIONS, connections()?),
        })
    }

    /// What `metric` cannot be far beyond; `None` where that is not known.
    pub(crate) fn of(&self, workload: Workload, metric: Metric) -> Option<f64> {
        match (workload, metric) {
            (Workload::Stream { copies: Copies::Both, flows: 1, .. }, Metric::Goodput) => {
                Some(self.copy_gbps)
            }
            (
                Workload::Stream { message: ..=128, copies: Copies::Both, batch: 1, flows: 1 },
                Metric::UnitsPerSecond,
            ) => Some(self.messages),
            (
                Workload::Requests { spin: false, flows: 1, depth: 1, udp: false },
                Metric::UnitsPerSecond,
            ) => Some(self.turns),
            (Workload::Connections { flows: 1 }, Metric::UnitsPerSecond) => Some(self.connections),
            _ => None,
        }
    }

    /// All of them as rows of a table.
    pub(crate) fn rows(&self) -> String {
        let thousands = [
            ("system calls that do nothing", self.calls),
            ("two threads that wake each other, there and back", self.wake_ups),
            ("TCP: writes of 32 bytes", self.messages),
            ("TCP: a byte there and back", self.turns),
            ("TCP: connect, a byte there and back, close", self.connections),
        ];
        let mut rows = format!("| copies by one core | {:.0} Gbit/s |\n", self.copy_gbps);
        for (what, figure) in thousands {
            let _ = writeln!(rows, "| {what} | {figure:.1} thousand/s |");
        }
        rows
    }
}

/// The best of several.
fn best(mut turn: impl FnMut() -> io::Result<()>) -> io::Result<Duration> {
    let mut least = Duration::MAX;
    for _ in 0..TRIES {
        let began = Instant::now();
        turn()?;
        least = least.min(began.elapsed());
    }
    Ok(least)
}

fn copy() -> io::Result<Duration> {
    let buffer = vec![1_u8; BUFFER];
    let mut memory = vec![0_u8; MEMORY];
    best(|| {
        for piece in black_box(&mut memory).chunks_exact_mut(BUFFER) {
            piece.copy_from_slice(black_box(&buffer));
        }
        Ok(())
    })
}

const CALLS: u32 = 100_000;

fn calls() -> io::Result<Duration> {
    best(|| {
        for _ in 0..CALLS {
            black_box(parent_id());
        }
        Ok(())
    })
}

const TURNS: u32 = 5_000;

fn wake_ups() -> io::Result<Duration> {
    let (mut asked, mut ask) = io::pipe()?;
    let (mut answered, mut answer) = io::pipe()?;
    let other = thread::spawn(move || {
        let mut byte = [0];
        while asked.read_exact(&mut byte).is_ok() && answer.write_all(&byte).is_ok() {}
    });
    let least = best(|| {
        for _ in 0..TURNS {
            ask.write_all(&[1])?;
            answered.read_exact(&mut [0])?;
        }
        Ok(())
    });
    drop(ask);
    let _ = other.join();
    least
}

/// A connection over loopback; its other end belongs to `serve`, in a thread of its own.
fn connected(
    serve: impl FnOnce(TcpStream) -> io::Result<()> + Send + 'static,
    run: impl FnOnce(&TcpStream) -> io::Result<Duration>,
) -> io::Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, _) = listener.accept()?;
    for end in [&socket, &theirs] {
        end.set_nodelay(true)?;
    }
    let other = thread::spawn(move || serve(theirs));
    let least = run(&socket);
    socket.shutdown(Shutdown::Both)?;
    let _ = other.join();
    least
}

fn messages() -> io::Result<Duration> {
    let read = |mut socket: TcpStream| {
        let mut buffer = vec![0; 64 << 10];
        while socket.read(&mut buffer)? > 0 {}
        Ok(())
    };
    connected(read, |mut socket| {
        // As a bulk sender's: messages may share a segment.
        socket.set_nodelay(false)?;
        best(|| (0..CALLS).try_for_each(|_| socket.write_all(&[1; 32])))
    })
}

fn echo(mut socket: &TcpStream) -> io::Result<()> {
    socket.read_exact(&mut [0])?;
    socket.write_all(&[1])
}

fn turns() -> io::Result<Duration> {
    let answer = |socket: TcpStream| {
        while echo(&socket).is_ok() {}
        Ok(())
    };
    connected(answer, |mut socket| {
        best(|| {
            for _ in 0..TURNS {
                socket.write_all(&[1])?;
                socket.read_exact(&mut [0])?;
            }
            Ok(())
        })
    })
}

const CONNECTIONS: u32 = 1_000;

fn connections() -> io::Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let wanted = CONNECTIONS as usize * TRIES;
    let other = thread::spawn(move || {
        // It closes first: the ports of whoever connects are free at once.
        for socket in listener.incoming().take(wanted).flatten() {
            let _ = echo(&socket);
        }
    });
    let mut ended = None;
    let least = best(|| {
        for _ in 0..CONNECTIONS {
            let mut socket = TcpStream::connect(address)?;
            socket.write_all(&[1])?;
            // The connection before: there is time until the response.
            drop(ended.take());
            // The byte, and the end.
            socket.read_to_end(&mut Vec::with_capacity(2))?;
            ended = Some(socket);
        }
        Ok(())
    });
    // What failed leaves the other waiting.
    if least.is_ok() {
        let _ = other.join();
    }
    least
}
