//! The endpoint's part of `capacity` for one client: the workers that hold its connections, their
//! figures meanwhile, and the report at the end.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use linerate_core::capacity::{
    CapacityHalf, CapacityRequest, DESCRIPTOR_RESERVE, HoldPort, HoldPorts, HoldProgress,
    MemoryCourse, MemoryReading,
};
use linerate_core::wire::Token;
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::proc::privilege::descriptor_limit;

use super::accept::PATIENCE_S;
use super::message::{Listen, Order, Terms, WorkerRole};
use super::worker::RECEIVE_BUFFER;
use super::workers::{TCP, UDP, Workers};
use super::{CLOSING, MAX_WORKERS, readings, workers};
use crate::clock::now;
use crate::host;

/// News for the client.
#[derive(Debug)]
pub(crate) enum HoldingNews {
    /// The workers listen at these ports.
    Ready(HoldPorts),
    /// The workers cannot listen; nothing is held.
    Refused(String),
    /// The connections could not be closed properly.
    Failed(&'static str),
    /// Connections that are held at present.
    Progress(HoldProgress),
    /// Everything is closed.
    Released(Box<CapacityHalf>),
}

/// Claim on the endpoint's budget, given back when it is dropped.
type Claim = Box<dyn Send>;

/// Connections held for a client; they are closed when it is dropped.
pub(crate) struct Holding {
    stage: HoldStage,
    /// The client's claim on this host's resources, until the connections are closed: dropped after
    /// the stage, which closes them.
    claim: Option<Claim>,
    client: IpAddr,
    shares: Vec<u64>,
    udp_shares: Vec<u64>,
    backlog: u32,
    allowed: u64,
    began: Duration,
    next_progress: Duration,
    before: MemoryReading,
    counters: Option<ProtocolCounters>,
}

enum HoldStage {
    Starting(Workers),
    Holding(Workers),
    /// The workers were asked for their reports; longest wait for them.
    Reporting(Workers, Duration),
    Closing(Receiver<Box<CapacityHalf>>),
    Over,
}

impl Holding {
    /// Starts the workers at the address to which the client has connected. They take connections
    /// of that client alone. `claim` is for what it [costs](cost), of `allowed` connections.
    ///
    /// # Errors
    /// The message says what this host lacks.
    pub(crate) fn start(
        request: &CapacityRequest,
        (local, client): (SocketAddr, IpAddr),
        token: Token,
        (claim, allowed): (Claim, u64),
    ) -> Result<Self, String> {
        let [shares, udp_shares] = shares(request);
        let backlog = readings::somaxconn().min(BACKLOG);
        let mut address = local;
        address.set_port(0);
        let listen = |share: u64| Listen {
            terms: Terms::new(token, request, None),
            address,
            client: client.to_canonical(),
            counts: workers::port_shares(share),
            backlog,
            send_buffer: send_buffer(request),
        };
        let before = readings::memory();
        let counters = ProtocolCounters::read().ok();
        let tcp = shares.iter().map(|share| WorkerRole::AcceptTcp(listen(*share)));
        let udp = udp_shares.iter().map(|share| WorkerRole::AnswerUdp(listen(*share)));
        let workers = Workers::start([tcp.collect(), udp.collect()])
            .map_err(|error| format!("the endpoint cannot start its workers: {error}"))?;
        Ok(Self {
            stage: HoldStage::Starting(workers),
            claim: Some(claim),
            client,
            shares,
            udp_shares,
            backlog,
            allowed,
            began: now(),
            next_progress: Duration::ZERO,
            before,
            counters,
        })
    }

    /// The next news for the client, if there are any.
    pub(crate) fn look(&mut self) -> Option<HoldingNews> {
        if let HoldStage::Starting(workers)
        | HoldStage::Holding(workers)
        | HoldStage::Reporting(workers, _) = &mut self.stage
        {
            // If a wait fails, the next one makes up for it.
            let _ = workers.listen(Duration::ZERO);
        }
        let now = now();
        match self.take_stage() {
            HoldStage::Starting(workers) => match workers.ports() {
                Ok(None) => self.stage = HoldStage::Starting(workers),
                Ok(Some(ports)) => {
                    self.stage = HoldStage::Holding(workers);
                    return Some(HoldingNews::Ready(self.hold_ports(&ports)));
                }
                Err(message) => {
                    let message = format!("the endpoint cannot hold connections: {message}");
                    return Some(HoldingNews::Refused(message));
                }
            },
            HoldStage::Holding(workers) if now >= self.next_progress => {
                self.next_progress = now + PROGRESS_EVERY;
                let progress = self.progress(&workers, now);
                self.stage = HoldStage::Holding(workers);
                return Some(HoldingNews::Progress(progress));
            }
            HoldStage::Reporting(workers, until) if workers.has_reported() || now >= until => {
                self.close(workers);
            }
            HoldStage::Closing(half) => match half.try_recv() {
                Ok(half) => return Some(HoldingNews::Released(half)),
                Err(TryRecvError::Empty) => self.stage = HoldStage::Closing(half),
                Err(TryRecvError::Disconnected) => {
                    let failure = "the endpoint could not close its connections in order";
                    return Some(HoldingNews::Failed(failure));
                }
            },
            other => self.stage = other,
        }
        None
    }

    /// Begins to release the connections, as the client has asked: the reports come first.
    pub(crate) fn release(&mut self) {
        if let HoldStage::Starting(mut workers) | HoldStage::Holding(mut workers) =
            self.take_stage()
        {
            workers.tell_all(&Order::Report);
            self.stage = HoldStage::Reporting(workers, now() + REPORTING);
        }
    }

    fn take_stage(&mut self) -> HoldStage {
        std::mem::replace(&mut self.stage, HoldStage::Over)
    }

    fn hold_ports(&self, ports: &[Vec<u16>]) -> HoldPorts {
        let (tcp, udp) = ports.split_at(self.shares.len());
        let of = |workers: &[Vec<u16>], shares: &[u64]| {
            let mut all = Vec::new();
            for (ports, share) in workers.iter().zip(shares) {
                let counted = ports.iter().zip(workers::port_shares(*share));
                all.extend(counted.map(|(&port, count)| HoldPort { port, count }));
            }
            all
        };
        HoldPorts {
            tcp: of(tcp, &self.shares),
            udp: of(udp, &self.udp_shares),
            backlog: self.backlog,
            patience_s: PATIENCE_S,
        }
    }

    fn progress(&self, workers: &Workers, now: Duration) -> HoldProgress {
        HoldProgress {
            at_s: (now - self.began).as_secs_f64(),
            tcp: workers.status(workers.pool(TCP)).open,
            udp: workers.status(workers.pool(UDP)).open,
            failures: workers.status(workers.all()).failures.list(),
        }
    }

    /// Ends the workers in a thread of its own, so that the session is not blocked: to close a
    /// million connections takes some seconds.
    fn close(&mut self, workers: Workers) {
        let mut half = workers.account();
        half.memory = MemoryCourse {
            before: self.before.clone(),
            height: readings::memory(),
            after: MemoryReading::default(),
        };
        half.limits = readings::limits(MAX_WORKERS);
        half.limits.owner_connections = Some(self.allowed);
        let (client, counters) = (self.client, self.counters.take());
        let claim = self.claim.take();
        let (sender, receiver) = sync_channel(1);
        let closing = thread::Builder::new().name("closing".into()).spawn(move || {
            workers.end(CLOSING);
            // Here and not with the session, which may end before.
            drop(claim);
            half.memory.after = readings::memory_when_closed(&half.memory.before, false);
            half.counters = readings::counters_since(counters.as_ref());
            half.facts = Some(Box::new(host::facts(Some(client))));
            // The session may have gone.
            let _ = sender.send(Box::new(half));
        });
        // If no thread can be started, the workers end with the closure, and the receiver notices
        // that its sender is gone.
        drop(closing);
        self.stage = HoldStage::Closing(receiver);
    }
}

/// The connections of each worker for TCP, and the sockets of that for UDP.
fn shares(request: &CapacityRequest) -> [Vec<u64>; 2] {
    let each = descriptor_limit().hard.saturating_sub(DESCRIPTOR_RESERVE).max(1);
    [
        workers::shares(request.connections, each, MAX_WORKERS),
        // UDP needs no socket for each peer: one process answers all.
        workers::shares(request.udp_sockets, u64::MAX, 1),
    ]
}

/// The most memory that a client can make this host take, bytes, and the number of workers.
pub(crate) fn cost(request: &CapacityRequest) -> (u64, u64) {
    let [tcp, udp] = shares(request);
    let workers = (tcp.len() + udp.len()) as u64;
    let udp_ports = udp.iter().map(|share| workers::port_shares(*share).len() as u64);
    let each = CONNECTION_BYTES + 2 * u64::from(send_buffer(request));
    let memory = request.connections.saturating_mul(each)
        + udp_ports.sum::<u64>() * 2 * u64::from(RECEIVE_BUFFER)
        + workers * WORKER_BYTES;
    (memory, workers)
}

/// The send buffer of each connection, bytes, which the kernel doubles: it takes an answer whole,
/// and bounds what a client that does not read can make this host keep.
fn send_buffer(request: &CapacityRequest) -> u32 {
    // The check of the request bounds it.
    MIN_SEND_BUFFER.max(request.response_bytes as u32)
}

const MIN_SEND_BUFFER: u32 = 4096;
/// Memory of a connection without its buffers, bytes: the kernel's socket, file and epoll entry
/// (4.2 KiB on x86-64), and the worker's own.
const CONNECTION_BYTES: u64 = 5 << 10;
/// Memory of a worker process without its connections, bytes.
const WORKER_BYTES: u64 = 2 << 20;
/// Accept queue that is asked for; `net.core.somaxconn` may be less.
const BACKLOG: u32 = 4096;
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for the workers' reports.
const REPORTING: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_can_make_this_host_take_grows_with_its_connections_and_its_answers() {
        let cost = |connections, udp_sockets, response_bytes| {
            cost(&CapacityRequest {
                connections,
                udp_sockets,
                seconds: 1.0,
                request_bytes: 8,
                response_bytes,
            })
        };
        let (memory, workers) = cost(20_000, 10_000, 64);
        assert!(workers >= 2);
        // What the documentation shows fits the share of one address on a host of 2 GiB.
        let of_workers = (workers - 2) * WORKER_BYTES;
        assert!(memory - of_workers < 384 << 20, "{memory} B");
        assert!(memory > 20_000 * CONNECTION_BYTES);
        assert!(cost(20_000, 0, 1 << 20).0 > 20_000 << 21);
        assert!(cost(0, 10_000_000, 64).0 < 10 << 30);
    }
}
