//! The agent of a site: it says that it is there, takes the tasks that its owner allows, runs them
//! against the endpoints of other agents, and says what came of them until the bus has it.
//!
//! It connects to the bus and listens for tests alone. One thread speaks to the bus, one waits for
//! tasks, and each run has its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use linerate_core::plan::{MAX_SECONDS, Test, Workload};
use linerate_core::session::message::Limits as EndpointLimits;
use linerate_core::wire::Key;
use linerate_mesh::bus::{BEAT, Bus, Delivery};
use linerate_mesh::message::{Outcome, Presence, Report, Running, Task, decode, encode};
use linerate_mesh::{OwnerLimits, TestRequest, max_bytes};
use linerate_sys::netns::{Namespace, NamespaceError};
use thiserror::Error;

use super::run;
use super::unsent::Unsent;
use super::used::Used;
use crate::endpoint::{Endpoint, ServeOptions};
use crate::error::MeasureError;
use crate::stop::Stop;
use crate::words;

/// How one wait for a task lasts; Ctrl-C is noticed after it at the latest.
const WAIT: Duration = Duration::from_secs(1);
/// Between two attempts at a bus that is not to be reached.
const PAUSE: Duration = Duration::from_millis(500);
/// Runs at once; the schedule asks for fewer.
const MAX_RUNNING: usize = 32;

/// A site's own.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// Its name in the mesh.
    pub site: String,
    /// Where the others reach its endpoint; without it as the mesh's file says, or at `bind`.
    pub address: Option<String>,
    /// Address that the endpoint listens on; all without it.
    pub bind: Option<IpAddr>,
    /// Its port; 0 takes a free one.
    pub port: u16,
    /// The mesh's key: of its endpoint, and of those that it tests against.
    pub key: Option<Key>,
    /// What its owner allows.
    pub limits: OwnerLimits,
    /// Directory of what the bus does not have yet.
    pub unsent: PathBuf,
}

/// Why there is no agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Its endpoint.
    #[error(transparent)]
    Endpoint(#[from] MeasureError),
    /// The directory of what is not sent yet.
    #[error("cannot keep results in {}: {source}", directory.display())]
    Unsent {
        /// Which one.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its place in a lab.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// A site at work, until it is dropped.
#[derive(Debug)]
pub struct Agent {
    stop: Stop,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

/// Says something to the owner.
pub(super) type Say = Arc<dyn Fn(&str) + Send + Sync>;

impl Agent {
    /// Serves, and takes tasks from the bus; in `namespace`, or where the caller is.
    ///
    /// # Errors
    /// The port or the directory cannot be had.
    pub fn start(
        options: AgentOptions,
        bus: Arc<dyn Bus>,
        namespace: Option<&Namespace>,
        say: Say,
    ) -> Result<Self, AgentError> {
        let unsent = Unsent::open(&options.unsent).map_err(|source| AgentError::Unsent {
            directory: options.unsent.clone(),
            source,
        })?;
        let serve = serve_options(&options);
        let bind = || Endpoint::bind(&serve);
        let endpoint = match namespace {
            Some(namespace) => namespace.run(bind)??,
            None => bind()?,
        };
        let address = endpoint.addresses()[0];
        let mut agent = Self {
            stop: Stop::new(),
            address,
            threads: Vec::new(),
        };
        let stop = agent.stop.clone();
        let serve = move || {
            // What goes wrong there, others see as tests that fail.
            let _ = endpoint.serve(&stop, |_| {});
        };
        agent.threads.push(started(namespace, "endpoint", serve)?);
        let bound = options.bind.map(|_| address.to_string());
        let work = Work {
            address: options.address.clone().or(bound),
            life: life(),
            stop: agent.stop.clone(),
            used: Used::open(&options.unsent),
            running: Vec::new(),
            options,
            bus,
            unsent,
            say,
        };
        agent
            .threads
            .push(started(namespace, "agent", || work.run())?);
        Ok(agent)
    }

    /// Where its endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.request();
        for thread in self.threads.drain(..) {
            // Each looks at the stop; a panic there was printed.
            let _ = thread.join();
        }
    }
}

fn started(
    namespace: Option<&Namespace>,
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, AgentError> {
    let cannot = MeasureError::host("cannot start the agent");
    Ok(match namespace {
        Some(namespace) => namespace.spawn_thread(name, work)?,
        None => thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(cannot)?,
    })
}

/// What the owner's limits are for those who test against this site.
fn serve_options(options: &AgentOptions) -> ServeOptions {
    let longest = options.limits.longest;
    ServeOptions {
        bind: options.bind,
        port: options.port,
        key: options.key.clone(),
        ..ServeOptions::within(EndpointLimits {
            clients: 64,
            streams: 256,
            seconds: longest.map_or(MAX_SECONDS, |span| span.as_secs_f64()),
            rate_bps: options.limits.rate.map(|rate| rate.0),
            connections: 1000,
        })
    }
}

/// Another one for each start, which nobody can guess.
fn life() -> String {
    let mut bytes = [0; 8];
    // Without random numbers it is the same one each time: then a start is not told from the last.
    let _ = getrandom::fill(&mut bytes);
    words::hexadecimal(&bytes)
}

/// The thread that speaks to the bus.
struct Work {
    options: AgentOptions,
    address: Option<String>,
    life: String,
    bus: Arc<dyn Bus>,
    unsent: Unsent,
    stop: Stop,
    used: Used,
    running: Vec<Active>,
    say: Say,
}

/// A run that goes on.
struct Active {
    task: Task,
    stop: Stop,
    until: Instant,
    /// What it may carry, and when that was entered.
    booked: (u64, u64),
    thread: JoinHandle<()>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "there are a few of them in a second"
)]
enum Event {
    /// With where the endpoint is, if it is a task.
    Taken(Delivery, Result<(Task, Vec<SocketAddr>), String>),
    /// With what it has carried.
    Ended(Report, Option<u64>),
}

impl Work {
    fn run(mut self) {
        let (sender, events) = channel();
        let taker = self.taker(sender.clone());
        let mut beaten: Option<Instant> = None;
        let mut unsent = true;
        while !self.stop.is_requested() {
            if beaten.is_none_or(|at| at.elapsed() >= BEAT) {
                self.announce();
                beaten = Some(Instant::now());
                unsent = unsent && !self.send();
            }
            self.end_overdue();
            match next(&events) {
                Some(Event::Taken(delivery, task)) => {
                    // Known to all before the next task can come.
                    let has_begun = self.begin(&delivery, task, &sender);
                    beaten = beaten.filter(|_| !has_begun);
                }
                Some(Event::Ended(report, bytes)) => {
                    self.ended(&report, bytes);
                    unsent = !self.send();
                    beaten = None;
                }
                None => {}
            }
        }
        self.leave(taker, &events);
    }

    /// Waits for tasks; each is acknowledged by who begins it.
    fn taker(&self, sender: Sender<Event>) -> Option<JoinHandle<()>> {
        let (bus, stop) = (self.bus.clone(), self.stop.clone());
        let (site, say) = (self.options.site.clone(), self.say.clone());
        let take = move || {
            let mut is_lost = false;
            while !stop.is_requested() {
                match bus.take(&site, WAIT) {
                    Ok(taken) => {
                        is_lost = false;
                        let Some(delivery) = taken else {
                            continue;
                        };
                        let task = task(&delivery);
                        if sender.send(Event::Taken(delivery, task)).is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        if !is_lost {
                            say(&format!("{error}; tried again until it is back"));
                        }
                        is_lost = true;
                        thread::sleep(PAUSE);
                    }
                }
            }
        };
        let named = thread::Builder::new().name("tasks".to_owned());
        named.spawn(take).ok()
    }

    fn announce(&self) {
        let running = self.running.iter().map(|active| Running {
            id: active.task.id.clone(),
            to: active.task.other().to_owned(),
        });
        let presence = Presence {
            site: self.options.site.clone(),
            address: self.address.clone(),
            workloads: Workload::WORDS.iter().map(|it| (*it).to_owned()).collect(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            life: self.life.clone(),
            running: running.collect(),
        };
        // Who does not hear it asks for nothing; the next one comes soon.
        let _ = self.bus.announce(&self.options.site, &encode(&presence));
    }

    /// Begins a task, if it is one and the owner allows it; whether it runs.
    fn begin(
        &mut self,
        delivery: &Delivery,
        task: Result<(Task, Vec<SocketAddr>), String>,
        sender: &Sender<Event>,
    ) -> bool {
        let (mut task, addresses) = match task {
            Ok(task) => task,
            Err(error) => {
                (self.say)(&format!("a task was dropped: {error}"));
                let _ = self.bus.acknowledge(delivery);
                return false;
            }
        };
        let taken = Instant::now();
        if self.running.iter().any(|active| active.task.id == task.id) {
            // Delivered again, as its acknowledgement was late.
            let _ = self.bus.acknowledge(delivery);
            return false;
        }
        // One that cannot be acknowledged is not begun: it would come again.
        if self.bus.acknowledge(delivery).is_err() {
            return false;
        }
        match self.admitted(&task, &addresses) {
            Ok(work) => {
                task.work = work;
                self.say_of(&task, Outcome::Started);
                self.spawn(task, addresses, taken, sender)
            }
            Err(why) => {
                (self.say)(&format!(
                    "{} with {}: refused: {why}",
                    task.test,
                    task.other()
                ));
                self.say_of(&task, Outcome::Refused { why });
                false
            }
        }
    }

    /// Whether this site's owner allows it.
    fn admitted(&mut self, task: &Task, addresses: &[SocketAddr]) -> Result<Test, String> {
        if task.runner() != self.options.site {
            return Err(format!("it is for {}", task.runner()));
        }
        if self.running.len() >= MAX_RUNNING {
            return Err(format!("{MAX_RUNNING} tests run here"));
        }
        let now = unix_seconds();
        let mut work = task.work.clone();
        for address in addresses {
            let request = TestRequest {
                site: task.other(),
                address: address.ip(),
                test: &work,
            };
            let limits = &self.options.limits;
            let admitted = limits.admit(&request, self.used.carried(now), now);
            work = admitted.map_err(|refusal| refusal.to_string())?;
        }
        Ok(work)
    }

    /// Said if the bus is there: who does not hear it waits until the lease is over.
    fn say_of(&self, task: &Task, outcome: Outcome) {
        let report = Report::new(task, outcome);
        let _ = self
            .bus
            .publish(&self.options.site, &report.key(), &encode(&report));
    }

    fn spawn(
        &mut self,
        task: Task,
        addresses: Vec<SocketAddr>,
        taken: Instant,
        sender: &Sender<Event>,
    ) -> bool {
        let stop = Stop::new();
        let booked = (unix_seconds(), max_bytes(&task.work).unwrap_or(0));
        self.used.add(booked.0, booked.1);
        let (own, key, sender) = (task.clone(), self.options.key.clone(), sender.clone());
        let asked = stop.clone();
        let work = move || {
            let (outcome, bytes) = run::run(&own, addresses, key, asked);
            // Nobody listens any more once the agent ends.
            let _ = sender.send(Event::Ended(Report::new(&own, outcome), bytes));
        };
        match thread::Builder::new().name("run".to_owned()).spawn(work) {
            Ok(thread) => {
                let until = taken + Duration::from_secs(task.lease_s.into());
                self.running.push(Active {
                    task,
                    stop,
                    until,
                    booked,
                    thread,
                });
                true
            }
            Err(error) => {
                let why = format!("this host starts no thread: {error}");
                self.say_of(&task, Outcome::Failed { why });
                false
            }
        }
    }

    /// A run that takes longer than its lease is in the way of the next one.
    fn end_overdue(&self) {
        for active in &self.running {
            if Instant::now() >= active.until {
                active.stop.request();
            }
        }
    }

    fn ended(&mut self, report: &Report, bytes: Option<u64>) {
        let is_it = |active: &Active| active.task.id == report.id;
        if let Some(at) = self.running.iter().position(is_it) {
            let active = self.running.swap_remove(at);
            let _ = active.thread.join();
            self.used.correct(active.booked, bytes);
        }
        if let Outcome::Failed { why } = &report.outcome
            && !self.stop.is_requested()
        {
            (self.say)(&format!(
                "{} of {} to {}: {why}",
                report.test, report.from, report.to
            ));
        }
        if let Err(error) = self.unsent.keep(report) {
            (self.say)(&format!("a result cannot be kept: {error}"));
            let _ = self
                .bus
                .publish(&self.options.site, &report.key(), &encode(report));
        }
    }

    /// Sends what is kept; whether the bus has all of it.
    fn send(&self) -> bool {
        let Ok((reports, others)) = self.unsent.all() else {
            return false;
        };
        for other in others {
            (self.say)(&format!("{}: no result: removed", other.display()));
            let _ = std::fs::remove_file(other);
        }
        reports.iter().all(|report| {
            let sent = self
                .bus
                .publish(&self.options.site, &report.key(), &encode(report));
            sent.is_ok() && self.unsent.forget(&report.id).is_ok()
        })
    }

    /// Ends its runs; what came to its end just now is kept.
    fn leave(mut self, taker: Option<JoinHandle<()>>, events: &Receiver<Event>) {
        self.running.iter().for_each(|active| active.stop.request());
        for active in self.running.drain(..) {
            let _ = active.thread.join();
        }
        let _ = taker.map(JoinHandle::join);
        while let Ok(event) = events.try_recv() {
            if let Event::Ended(report, bytes) = event {
                self.ended(&report, bytes);
            }
        }
        self.send();
        let _ = self.bus.withdraw(&self.options.site);
    }
}

/// A task, and the addresses of the endpoint that it is to be run against.
fn task(delivery: &Delivery) -> Result<(Task, Vec<SocketAddr>), String> {
    let task: Task = decode(&delivery.body).map_err(|error| error.to_string())?;
    let addresses = run::addresses(&task)?;
    Ok((task, addresses))
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// What happens within a moment.
fn next(events: &Receiver<Event>) -> Option<Event> {
    events.recv_timeout(Duration::from_millis(100)).ok()
}
