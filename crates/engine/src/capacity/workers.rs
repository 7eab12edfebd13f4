//! The worker processes of one end: the share of the connections that each gets, starting them,
//! giving them orders, taking their reports, and ending them whatever happens.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linerate_core::capacity::{CapacityHalf, FailureCause, HoldPort, MAX_AT_PORT};
use linerate_sys::poll::Poller;

use super::message::{Channel, Order, Report, Status, WorkerMessage, WorkerRole};
use super::worker::CAPACITY_WORKER;
use crate::clock::now;

/// Index of everything that is for TCP connections, where UDP sockets have their own.
pub(super) const TCP: usize = 0;
pub(super) const UDP: usize = 1;

struct Worker {
    child: Child,
    /// Closing it is the order to end.
    channel: Option<Channel>,
    ports: Option<Vec<u16>>,
    /// The last report; its status is the last one that was received.
    report: Report,
    has_reported: bool,
    orders: u64,
}

/// Processes that hold connections. Dropping this ends them, and with them their connections.
pub(super) struct Workers {
    all: Vec<Worker>,
    /// Number of workers for TCP; the others are for UDP.
    tcp: usize,
    poller: Poller,
    /// Why a worker could not take its role.
    failure: Option<String>,
}

impl Workers {
    /// Starts a process for each role; those for TCP come first.
    ///
    /// # Errors
    /// A process cannot be started.
    pub(super) fn start([tcp, udp]: [Vec<WorkerRole>; 2]) -> io::Result<Self> {
        let mut workers = Self {
            all: Vec::with_capacity(tcp.len() + udp.len()),
            tcp: tcp.len(),
            poller: Poller::new()?,
            failure: None,
        };
        for role in tcp.into_iter().chain(udp) {
            let (ours, theirs) = UnixStream::pair()?;
            // Everything that can fail comes before the process, which must be waited for.
            let mut channel = Channel::new(ours)?;
            workers.poller.add(&channel, workers.all.len() as u64)?;
            let child = Command::new("/proc/self/exe")
                .arg(CAPACITY_WORKER)
                .stdin(OwnedFd::from(theirs))
                .stdout(Stdio::null())
                // A worker writes nothing there, unless it panics.
                .stderr(Stdio::inherit())
                // Ctrl-C at the terminal is to reach only this process.
                .process_group(0)
                .spawn()?;
            // If the process has ended at once, the next wait notices that.
            let _ = channel.send(&role);
            workers.all.push(Worker {
                child,
                channel: Some(channel),
                ports: None,
                report: Report::default(),
                has_reported: false,
                orders: 1,
            });
        }
        Ok(workers)
    }

    pub(super) fn all(&self) -> Range<usize> {
        0..self.all.len()
    }

    /// The workers for [`TCP`], or those for [`UDP`].
    pub(super) fn pool(&self, which: usize) -> Range<usize> {
        [0..self.tcp, self.tcp..self.all.len()][which].clone()
    }

    /// Gives an order to a worker, unless that has ended.
    pub(super) fn tell(&mut self, index: usize, order: &Order) {
        let Some(worker) = self.all.get_mut(index) else {
            return;
        };
        worker.orders += 1;
        let Some(channel) = &mut worker.channel else {
            return;
        };
        if channel.send(order).is_err() {
            self.lose(index);
        }
    }

    pub(super) fn tell_all(&mut self, order: &Order) {
        for index in 0..self.all.len() {
            self.tell(index, order);
        }
    }

    /// Gives each of some workers its own order.
    pub(super) fn tell_each(&mut self, which: Range<usize>, order: impl Fn(usize) -> Order) {
        for (share, index) in which.enumerate() {
            self.tell(index, &order(share));
        }
    }

    /// Takes the messages that arrive within `timeout`.
    ///
    /// # Errors
    /// Epoll fails.
    pub(super) fn listen(&mut self, timeout: Duration) -> io::Result<()> {
        let heard: Vec<u64> = self.poller.wait(timeout)?.collect();
        for index in heard {
            self.hear(index as usize);
        }
        Ok(())
    }

    fn hear(&mut self, index: usize) {
        loop {
            let worker = &mut self.all[index];
            let Some(channel) = &mut worker.channel else {
                return;
            };
            let message = match channel.receive() {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(_) => return self.lose(index),
            };
            match message {
                WorkerMessage::Ready { ports } => worker.ports = Some(ports),
                WorkerMessage::Status(status) => worker.report.status = status,
                WorkerMessage::Report(report) => {
                    (worker.report, worker.has_reported) = (*report, true);
                }
                WorkerMessage::Failed { message } => {
                    self.failure.get_or_insert(message);
                    return self.lose(index);
                }
            }
        }
    }

    /// Records that a worker has ended, and with it its connections.
    fn lose(&mut self, index: usize) {
        let worker = &mut self.all[index];
        worker.channel = None;
        let status = &mut worker.report.status;
        status.lost.add(FailureCause::WorkerLost, status.open);
        (status.open, status.busy) = (0, false);
        status.stopped = Some(FailureCause::WorkerLost);
        if worker.ports.is_none() {
            let ended = "a worker process ended before it had begun".to_owned();
            self.failure.get_or_insert(ended);
        }
    }

    /// The ports of each worker, once all are ready.
    ///
    /// # Errors
    /// The message says why a worker could not take its role.
    pub(super) fn ports(&self) -> Result<Option<Vec<Vec<u16>>>, String> {
        match &self.failure {
            Some(message) => Err(message.clone()),
            None => Ok(self.all.iter().map(|m| m.ports.clone()).collect()),
        }
    }

    /// Whether all workers that are left have carried out their last order.
    pub(super) fn is_idle(&self) -> bool {
        self.busy() == 0
    }

    /// Number of workers that are left and have not carried out their last order.
    pub(super) fn busy(&self) -> usize {
        let is_busy = |worker: &&Worker| {
            let status = &worker.report.status;
            worker.channel.is_some() && (status.orders < worker.orders || status.busy)
        };
        self.all.iter().filter(is_busy).count()
    }

    /// Whether all workers that are left have sent their reports.
    pub(super) fn has_reported(&self) -> bool {
        let mut left = self.all.iter().filter(|worker| worker.channel.is_some());
        left.all(|worker| worker.has_reported)
    }

    /// The sum of the reports of some workers.
    pub(super) fn report(&self, which: Range<usize>) -> Report {
        Report::sum(self.all[which].iter().map(|worker| &worker.report))
    }

    /// The sum of the states of some workers.
    pub(super) fn status(&self, which: Range<usize>) -> Status {
        let mut sum = Status::default();
        for worker in &self.all[which] {
            sum.add(&worker.report.status);
        }
        sum
    }

    /// One end's half of the document, from the reports of all workers.
    pub(super) fn account(&self) -> CapacityHalf {
        let all = self.report(self.all());
        CapacityHalf {
            tcp: self.report(self.pool(TCP)).counts(),
            udp: self.report(self.pool(UDP)).counts(),
            workers: self.all.len() as u32,
            cpu_seconds: all.cpu,
            user_bytes: all.memory,
            user_bytes_before: all.memory_before,
            ..CapacityHalf::default()
        }
    }

    /// Ends the workers, each of which closes its connections. Waits for them, and kills those that
    /// take longer than `patience`.
    pub(super) fn end(mut self, patience: Duration) {
        for worker in &mut self.all {
            worker.channel = None;
        }
        let until = now() + patience;
        for worker in &mut self.all {
            while now() < until && matches!(worker.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.all {
            // This cannot hit another process: `Child` knows whether its own was waited for.
            let _ = worker.child.kill();
        }
        for worker in &mut self.all {
            let _ = worker.child.wait();
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(2);

// Division of the connections between the workers.

/// The connections of each worker, with as few workers as possible: at most `each` per worker, and
/// at most `max` workers. If these do not suffice, each gets more than it can hold, and finds the
/// limit.
pub(super) fn shares(total: u64, each: u64, max: u64) -> Vec<u64> {
    let needed = total.div_ceil(each.max(1)).clamp(1, max.max(1));
    match total {
        0 => Vec::new(),
        total => even(total, needed),
    }
}

/// Divides `total` into parts that differ by 1 at most; the larger ones come first.
pub(super) fn even(total: u64, parts: u64) -> Vec<u64> {
    let (share, more) = (total / parts.max(1), total % parts.max(1));
    (0..parts).map(|part| share + u64::from(part < more)).collect()
}

/// The connections that each port of an endpoint's worker takes: fewer than there are local ports
/// for one destination.
pub(super) fn port_shares(connections: u64) -> Vec<u64> {
    even(connections, connections.div_ceil(MAX_AT_PORT).max(1))
}

/// Divides the endpoint's ports between workers with these shares, in order, so that two workers
/// have the same port only where they must.
pub(super) fn deal(ports: &[HoldPort], shares: &[u64]) -> Vec<Vec<HoldPort>> {
    let mut left = ports.iter().copied();
    let mut current = left.next();
    let mut dealt = Vec::with_capacity(shares.len());
    for share in shares {
        let mut wanted = *share;
        let mut own = Vec::new();
        while wanted > 0 {
            let Some(port) = &mut current else {
                break;
            };
            let count = wanted.min(port.count);
            if count > 0 {
                own.push(HoldPort { count, ..*port });
            }
            wanted -= count;
            port.count -= count;
            if port.count == 0 {
                current = left.next();
            }
        }
        dealt.push(own);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_workers_that_suffice_have_even_shares() {
        assert_eq!(shares(0, 19_000, 8), Vec::<u64>::new());
        assert_eq!(shares(19_000, 19_000, 8), [19_000]);
        assert_eq!(shares(20_001, 19_000, 8), [10_001, 10_000]);
        assert_eq!(shares(100, 10, 2), [50, 50]);
        assert_eq!(port_shares(50_000), [16_667, 16_667, 16_666]);
        assert_eq!(port_shares(7), [7]);
    }

    #[test]
    fn ports_are_divided_completely() {
        let port = |port, count| HoldPort { port, count };
        let ports = [port(1, 30), port(2, 30), port(3, 30)];
        let dealt = deal(&ports, &[45, 40]);
        assert_eq!(dealt[0], [port(1, 30), port(2, 15)]);
        assert_eq!(dealt[1], [port(2, 15), port(3, 25)]);
        assert_eq!(deal(&ports, &[90]), [ports.to_vec()]);
        assert_eq!(deal(&[], &[5]), [vec![]]);
    }
}
