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
use linerate_sys::proc::limits::descriptor_limit;

use super::accept::PATIENCE_S;
use super::message::{Listen, Order, Role, Terms};
use super::workers::{TCP, UDP, Workers};
use super::{CLOSING, MAX_WORKERS, readings, share};
use crate::clock::now;
use crate::host;
use crate::shares::Share;

/// News for the client.
#[derive(Debug)]
pub(crate) enum HoldingNews {
    /// The workers listen at these ports.
    Ready(HoldPorts),
    /// The workers cannot listen; nothing is held.
    Refused(String),
    /// The connections could not be closed properly.
    Failed(&'static str),
    /// What is held at present.
    Progress(HoldProgress),
    /// Everything is closed.
    Released(Box<CapacityHalf>),
}

/// Connections held for a client; they are closed when it is dropped.
pub(crate) struct Holding {
    stage: Stage,
    /// The client's share of all connections, until they are closed: dropped after the stage, which
    /// closes them.
    share: Option<Share>,
    client: IpAddr,
    shares: Vec<u64>,
    udp_shares: Vec<u64>,
    backlog: u32,
    owner_connections: u64,
    began: Duration,
    next_progress: Duration,
    before: MemoryReading,
    counters: Option<ProtocolCounters>,
}

enum Stage {
    Starting(Workers),
    Holding(Workers),
    /// The workers were asked for their reports; longest wait for them.
    Reporting(Workers, Duration),
    Closing(Receiver<Box<CapacityHalf>>),
    Over,
}

impl Holding {
    /// Starts the workers at the address to which the client has connected. They take connections
    /// of that client alone. `share` is its part of the connections that the owner allows.
    ///
    /// # Errors
    /// The message says what this host lacks.
    pub(crate) fn start(
        request: &CapacityRequest,
        (local, client): (SocketAddr, IpAddr),
        token: Token,
        (share, owner_connections): (Share, u64),
    ) -> Result<Self, String> {
        let each = descriptor_limit().hard;
        let each = each.saturating_sub(DESCRIPTOR_RESERVE).max(1);
        let shares = share::workers(request.connections, each, MAX_WORKERS);
        // UDP needs no socket for each peer: one process answers all.
        let udp_shares = share::workers(request.udp_sockets, u64::MAX, 1);
        let backlog = readings::somaxconn().min(BACKLOG);
        let mut address = local;
        address.set_port(0);
        let listen = |share: u64| Listen {
            terms: Terms {
                token,
                // The check of the request bounds both.
                request_bytes: request.request_bytes as u32,
                response_bytes: request.response_bytes as u32,
                descriptors: None,
            },
            address,
            client: client.to_canonical(),
            counts: share::ports(share),
            backlog,
            send_buffer: send_buffer(request),
        };
        let before = readings::memory();
        let counters = ProtocolCounters::read().ok();
        let tcp = shares.iter().map(|share| Role::AcceptTcp(listen(*share)));
        let udp = udp_shares
            .iter()
            .map(|share| Role::AnswerUdp(listen(*share)));
        let workers = Workers::start([tcp.collect(), udp.collect()])
            .map_err(|error| format!("the endpoint cannot start its workers: {error}"))?;
        Ok(Self {
            stage: Stage::Starting(workers),
            share: Some(share),
            client,
            shares,
            udp_shares,
            backlog,
            owner_connections,
            began: now(),
            next_progress: Duration::ZERO,
            before,
            counters,
        })
    }

    /// The next news for the client, if there are any.
    pub(crate) fn look(&mut self) -> Option<HoldingNews> {
        if let Stage::Starting(workers) | Stage::Holding(workers) | Stage::Reporting(workers, _) =
            &mut self.stage
        {
            // If a wait fails, the next one makes up for it.
            let _ = workers.listen(Duration::ZERO);
        }
        let now = now();
        match self.take_stage() {
            Stage::Starting(workers) => match workers.ports() {
                Ok(None) => self.stage = Stage::Starting(workers),
                Ok(Some(ports)) => {
                    self.stage = Stage::Holding(workers);
                    return Some(HoldingNews::Ready(self.hold_ports(&ports)));
                }
                Err(message) => {
                    let message = format!("the endpoint cannot hold connections: {message}");
                    return Some(HoldingNews::Refused(message));
                }
            },
            Stage::Holding(workers) if now >= self.next_progress => {
                self.next_progress = now + PROGRESS_EVERY;
                let progress = self.progress(&workers, now);
                self.stage = Stage::Holding(workers);
                return Some(HoldingNews::Progress(progress));
            }
            Stage::Reporting(workers, until) if workers.has_reported() || now >= until => {
                self.close(workers);
            }
            Stage::Closing(half) => match half.try_recv() {
                Ok(half) => return Some(HoldingNews::Released(half)),
                Err(TryRecvError::Empty) => self.stage = Stage::Closing(half),
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
        if let Stage::Starting(mut workers) | Stage::Holding(mut workers) = self.take_stage() {
            workers.tell_all(&Order::Report);
            self.stage = Stage::Reporting(workers, now() + REPORTING);
        }
    }

    fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Over)
    }

    fn hold_ports(&self, ports: &[Vec<u16>]) -> HoldPorts {
        let (tcp, udp) = ports.split_at(self.shares.len());
        let of = |workers: &[Vec<u16>], shares: &[u64]| {
            let mut all = Vec::new();
            for (ports, share) in workers.iter().zip(shares) {
                let counted = ports.iter().zip(share::ports(*share));
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
        half.limits.owner_connections = Some(self.owner_connections);
        let (client, counters) = (self.client, self.counters.take());
        let share = self.share.take();
        let (sender, receiver) = sync_channel(1);
        let closing = thread::Builder::new()
            .name("closing".into())
            .spawn(move || {
                workers.end(CLOSING);
                // Here and not with the session, which may end before.
                drop(share);
                half.memory.after = readings::memory_when_closed(&half.memory.before, false);
                half.counters = readings::counters_since(counters.as_ref());
                half.facts = Some(Box::new(host::facts(Some(client))));
                // The session may have gone.
                let _ = sender.send(Box::new(half));
            });
        // If no thread can be started, the workers end with the closure, and the receiver notices
        // that its sender is gone.
        drop(closing);
        self.stage = Stage::Closing(receiver);
    }
}

/// The send buffer of each connection, if it is to be small: with many connections a client that
/// does not read could fill this host's memory with answers.
fn send_buffer(request: &CapacityRequest) -> Option<u32> {
    let is_small = request.response_bytes <= u64::from(SEND_BUFFER);
    (request.connections > FEW && is_small).then_some(SEND_BUFFER)
}

/// Up to this many connections have the kernel's usual send buffer.
const FEW: u64 = 1_000;
/// The small send buffer, bytes; the kernel doubles it.
const SEND_BUFFER: u32 = 4096;
/// Accept queue that is asked for; `net.core.somaxconn` may be less.
const BACKLOG: u32 = 4096;
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for the workers' reports.
const REPORTING: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_with_small_answers_have_small_send_buffers() {
        let request = |connections, response_bytes| CapacityRequest {
            connections,
            udp_sockets: 0,
            seconds: 1.0,
            request_bytes: 8,
            response_bytes,
        };
        assert_eq!(send_buffer(&request(1_000, 8)), None);
        assert_eq!(send_buffer(&request(1_001, 8)), Some(4096));
        assert_eq!(send_buffer(&request(1_001, 4096)), Some(4096));
        // Larger answers would go out in pieces, and slower than possible.
        assert_eq!(send_buffer(&request(1_001, 4097)), None);
    }
}
