//! What an endpoint does for a client of `capacity`: workers that hold, their figures while they
//! do, and its account.

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
use super::workers::Workers;
use super::{CLOSING, MAX_WORKERS, readings, share};
use crate::clock::now;
use crate::shares::Share;
use crate::{host, words};

/// What there is to tell the client.
#[derive(Debug)]
pub(crate) enum HoldingNews {
    /// The workers listen.
    Ready(HoldPorts),
    /// They cannot; nothing is held.
    Refused(String),
    /// They could not be ended in order.
    Failed(&'static str),
    /// How it stands.
    Progress(HoldProgress),
    /// All is closed.
    Released(Box<CapacityHalf>),
}

/// Connections held for a client. Dropping it closes them.
pub(crate) struct Holding {
    stage: Stage,
    /// Of what all clients may hold, until all is closed: after the stage, whose end closes it.
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
    /// Asked for their reports, until then.
    Reporting(Workers, Duration),
    Closing(Receiver<Box<CapacityHalf>>),
    Over,
}

impl Holding {
    /// Starts the workers at the address that the client has connected to, for that client alone,
    /// which has a share of what the owner allows.
    ///
    /// # Errors
    /// What this host lacks, in words.
    pub(crate) fn start(
        request: &CapacityRequest,
        (local, client): (SocketAddr, IpAddr),
        token: Token,
        (share, owner_connections): (Share, u64),
    ) -> Result<Self, String> {
        let each = descriptor_limit().hard;
        let each = each.saturating_sub(DESCRIPTOR_RESERVE).max(1);
        let shares = share::workers(request.connections, each, MAX_WORKERS);
        // They need no socket for each: one process answers all.
        let udp_shares = share::workers(request.udp_sockets, u64::MAX, 1);
        let backlog = readings::somaxconn().min(BACKLOG);
        let mut address = local;
        address.set_port(0);
        let listen = |share: u64| Listen {
            terms: Terms {
                token: words::hexadecimal(&token.0),
                // Both are bounded by the request's own check.
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

    /// What there is to tell by now.
    pub(crate) fn look(&mut self) -> Option<HoldingNews> {
        if let Stage::Starting(workers) | Stage::Holding(workers) | Stage::Reporting(workers, _) =
            &mut self.stage
        {
            // A failed wait is made up for by the next.
            let _ = workers.listen(Duration::ZERO);
        }
        let now = now();
        match &self.stage {
            Stage::Starting(workers) => {
                let ports = workers.ports();
                self.look_at_ports(ports)
            }
            Stage::Holding(_) if now >= self.next_progress => {
                self.next_progress = now + PROGRESS_EVERY;
                Some(HoldingNews::Progress(self.progress(now)))
            }
            Stage::Reporting(workers, until) if workers.has_reported() || now >= *until => {
                self.close();
                None
            }
            Stage::Closing(half) => {
                let half = half.try_recv();
                self.look_at_half(half)
            }
            Stage::Holding(_) | Stage::Reporting(..) | Stage::Over => None,
        }
    }

    fn look_at_ports(
        &mut self,
        ports: Result<Option<Vec<Vec<u16>>>, String>,
    ) -> Option<HoldingNews> {
        match ports {
            Ok(None) => None,
            Ok(Some(ports)) => {
                if let Stage::Starting(workers) = self.take_stage() {
                    self.stage = Stage::Holding(workers);
                }
                Some(HoldingNews::Ready(self.hold_ports(&ports)))
            }
            Err(message) => {
                self.stage = Stage::Over;
                let words = format!("the endpoint cannot hold connections: {message}");
                Some(HoldingNews::Refused(words))
            }
        }
    }

    fn look_at_half(
        &mut self,
        half: Result<Box<CapacityHalf>, TryRecvError>,
    ) -> Option<HoldingNews> {
        let news = match half {
            Ok(half) => HoldingNews::Released(half),
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                HoldingNews::Failed("the endpoint could not close its connections in order")
            }
        };
        self.stage = Stage::Over;
        Some(news)
    }

    /// The client has had enough: the account comes next.
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

    fn progress(&self, now: Duration) -> HoldProgress {
        let Stage::Holding(workers) = &self.stage else {
            return HoldProgress::default();
        };
        HoldProgress {
            at_s: (now - self.began).as_secs_f64(),
            tcp: workers.status(workers.tcp()).open,
            udp: workers.status(workers.udp()).open,
            failures: workers.status(workers.all()).failures.list(),
        }
    }

    /// Ends the workers in a thread of its own, so that the session stays awake: a million takes
    /// some seconds.
    fn close(&mut self) {
        let Stage::Reporting(workers, _) = self.take_stage() else {
            return;
        };
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
                // Not with the session, which may be gone before.
                drop(share);
                half.memory.after = readings::memory_when_closed(&half.memory.before, false);
                half.counters = readings::counters_since(counters.as_ref());
                half.facts = Some(Box::new(host::facts(Some(client))));
                // Whoever is gone needs no account.
                let _ = sender.send(Box::new(half));
            });
        // Without a thread the workers are gone, and so is the receiver's other end: that is
        // noticed.
        drop(closing);
        self.stage = Stage::Closing(receiver);
    }
}

/// With many connections as little as an answer takes: a client that does not read makes this host
/// keep what it is sent.
fn send_buffer(request: &CapacityRequest) -> Option<u32> {
    let is_small = request.response_bytes <= u64::from(SEND_BUFFER);
    (request.connections > FEW && is_small).then_some(SEND_BUFFER)
}

/// Connections with as much room to send as the kernel gives them.
const FEW: u64 = 1_000;
/// Bytes; the kernel doubles it for what it needs itself.
const SEND_BUFFER: u32 = 4096;
/// Asked for; `net.core.somaxconn` may be less.
const BACKLOG: u32 = 4096;
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for the workers' reports.
const REPORTING: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_that_do_not_read_make_the_endpoint_keep_little() {
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
        // What does not fit would go out in pieces, and slower than it can.
        assert_eq!(send_buffer(&request(1_001, 4097)), None);
    }
}
