//! The worker processes of one end: started, told, listened to, and ended whatever happens.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linerate_core::capacity::FailureCause;
use linerate_sys::poll::Poller;

use super::message::{Channel, Order, Report, Status, Word};
use super::tally::Tally;
use super::worker::CAPACITY_WORKER;
use crate::clock::now;

struct Member {
    child: Child,
    /// Closing it is the order to end.
    channel: Option<Channel>,
    ports: Option<Vec<u16>>,
    /// Before anything was opened, bytes.
    memory: Option<u64>,
    status: Status,
    report: Option<Report>,
    orders: u64,
}

/// Processes that hold connections. Dropping it ends them, and with them all that they hold.
pub(super) struct Crew {
    members: Vec<Member>,
    poller: Poller,
    /// What a worker could not do.
    failure: Option<String>,
}

/// What all of them hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) open: u64,
    pub(super) opened: u64,
    pub(super) last_open_ns: u64,
    pub(super) stopped: Option<FailureCause>,
    pub(super) failures: Tally,
    pub(super) lost: Tally,
}

impl Crew {
    /// Starts a process for each order.
    ///
    /// # Errors
    /// A process cannot be started.
    pub(super) fn start(orders: &[Order]) -> io::Result<Self> {
        let mut crew = Self {
            members: Vec::with_capacity(orders.len()),
            poller: Poller::new()?,
            failure: None,
        };
        for order in orders {
            let (ours, theirs) = UnixStream::pair()?;
            // What can fail comes before the process, which somebody must wait for.
            let mut channel = Channel::new(ours)?;
            crew.poller.add(&channel, crew.members.len() as u64)?;
            let child = Command::new("/proc/self/exe")
                .arg(CAPACITY_WORKER)
                .stdin(OwnedFd::from(theirs))
                .stdout(Stdio::null())
                // A worker says nothing there, unless it panics.
                .stderr(Stdio::inherit())
                // What is typed at the terminal is for this process to pass on.
                .process_group(0)
                .spawn()?;
            // One that has ended at once is noticed when it is listened to.
            let _ = channel.send(order);
            crew.members.push(Member {
                child,
                channel: Some(channel),
                ports: None,
                memory: None,
                status: Status::default(),
                report: None,
                orders: 1,
            });
        }
        Ok(crew)
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Tells one of them; those that have ended are told nothing.
    pub(super) fn tell(&mut self, index: usize, order: &Order) {
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        member.orders += 1;
        let Some(channel) = &mut member.channel else {
            return;
        };
        if channel.send(order).is_err() {
            self.lose(index);
        }
    }

    pub(super) fn tell_all(&mut self, order: &Order) {
        for index in 0..self.members.len() {
            self.tell(index, order);
        }
    }

    /// Tells each of some of them something of its own.
    pub(super) fn tell_each(&mut self, which: Range<usize>, order: impl Fn(usize) -> Order) {
        for (share, index) in which.enumerate() {
            self.tell(index, &order(share));
        }
    }

    /// Listens for at most so long.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub(super) fn listen(&mut self, timeout: Duration) -> io::Result<()> {
        let heard: Vec<u64> = self.poller.wait(timeout)?.collect();
        for index in heard {
            self.hear(index as usize);
        }
        Ok(())
    }

    fn hear(&mut self, index: usize) {
        loop {
            let member = &mut self.members[index];
            let Some(channel) = &mut member.channel else {
                return;
            };
            match channel.receive::<Word>() {
                Ok(None) => return,
                Ok(Some(Word::Ready { ports, memory })) => {
                    (member.ports, member.memory) = (Some(ports), memory);
                }
                Ok(Some(Word::Status(status))) => member.status = status,
                Ok(Some(Word::Report(report))) => {
                    member.status = report.status.clone();
                    member.report = Some(*report);
                }
                Ok(Some(Word::Failed { message })) => {
                    self.failure.get_or_insert(message);
                    return self.lose(index);
                }
                Err(_) => return self.lose(index),
            }
        }
    }

    /// It has ended; all that it held is gone.
    fn lose(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.channel = None;
        let mut lost = Tally::default();
        lost.add_all(&member.status.lost);
        lost.add(FailureCause::WorkerLost, member.status.open);
        member.status.lost = lost.list();
        member.status.open = 0;
        member.status.busy = false;
        member.status.stopped = Some(FailureCause::WorkerLost);
        if member.ports.is_none() {
            let ended = "a worker process ended before it had begun".to_owned();
            self.failure.get_or_insert(ended);
        }
    }

    /// The ports of each, once all are ready.
    ///
    /// # Errors
    /// What one of them could not do.
    pub(super) fn ports(&self) -> Result<Option<Vec<Vec<u16>>>, String> {
        match &self.failure {
            Some(message) => Err(message.clone()),
            None => Ok(self.members.iter().map(|m| m.ports.clone()).collect()),
        }
    }

    /// Whether all that are left have done what they were told last.
    pub(super) fn is_idle(&self) -> bool {
        self.members.iter().all(|member| {
            member.channel.is_none()
                || (member.status.orders >= member.orders && !member.status.busy)
        })
    }

    /// Whether the reports of those that are left are there.
    pub(super) fn has_reported(&self) -> bool {
        let mut left = self.members.iter().filter(|m| m.channel.is_some());
        left.all(|member| member.report.is_some())
    }

    /// The reports of some of them.
    pub(super) fn reports(&self, which: Range<usize>) -> impl Iterator<Item = &Report> {
        let members = self.members[which].iter();
        members.filter_map(|member| member.report.as_ref())
    }

    /// What some of them hold.
    pub(super) fn totals(&self, which: Range<usize>) -> Totals {
        let mut totals = Totals::default();
        for Member { status, .. } in &self.members[which] {
            totals.last_open_ns = totals.last_open_ns.max(status.last_open_ns);
            totals.open += status.open;
            totals.opened += status.opened;
            totals.stopped = totals.stopped.or(status.stopped);
            totals.failures.add_all(&status.failures);
            totals.lost.add_all(&status.lost);
        }
        totals
    }

    /// Memory of some of them before anything was opened, bytes.
    pub(super) fn memory_before(&self, which: Range<usize>) -> Option<u64> {
        let members = self.members[which].iter();
        members.map(|member| member.memory).sum()
    }

    /// Ends them: each closes all that it holds. Waits for their end, and kills those that take
    /// longer than `patience`.
    pub(super) fn end(mut self, patience: Duration) {
        for member in &mut self.members {
            member.channel = None;
        }
        let until = now() + patience;
        for member in &mut self.members {
            while now() < until && matches!(member.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // One that has ended already, and was waited for, is not hit: its number is kept with
            // it.
            let _ = member.child.kill();
        }
        for member in &mut self.members {
            let _ = member.child.wait();
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(2);
