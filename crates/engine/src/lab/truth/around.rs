//! What a scenario has beside its path and its hosts: queues of the kernel's, made by `tc`, and
//! what plain sockets carry without them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::plan::Direction;
use linerate_core::truth::{Scenario, Shaper};
use linerate_core::units::BitRate;
use linerate_sys::netns::Namespace;

use super::{CLIENT, SERVER, TruthError};
use crate::lab::Lab;

/// Makes what the scenario has beside its path.
///
/// # Errors
/// [`TruthError::LeftOut`] where it cannot be made here, or where this host is too slow at this
/// moment for its limit to be the lowest.
pub(super) fn make(lab: &Lab, scenario: &Scenario) -> Result<(), TruthError> {
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
    for shaper in &scenario.around.shapers {
        shape(lab, shaper)?;
    }
    Ok(())
}

fn shape(lab: &Lab, shaper: &Shaper) -> Result<(), TruthError> {
    let Some(namespace) = lab.namespace(&shaper.node) else {
        return Err(TruthError::LeftOut(format!("there is no {}", shaper.node)));
    };
    for words in &shaper.setup {
        tc(namespace, &words.replace("DEV", &shaper.interface))?;
    }
    Ok(())
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

fn inside<T: Send>(
    lab: &Lab,
    host: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = lab.namespace(host).ok_or(io::ErrorKind::NotFound)?;
    namespace.run(work).map_err(io::Error::other)?
}

/// How long plain sockets send.
const PROBED: Duration = Duration::from_millis(300);
