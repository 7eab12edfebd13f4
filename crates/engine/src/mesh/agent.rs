//! The agent of a site. It announces the site on the bus, takes the tasks that the site's owner
//! allows, runs them against the endpoints of other agents, and sends each result until the bus has
//! taken it.
//!
//! The agent connects to the bus and listens for tests, and for nothing else. One thread talks to
//! the bus, one waits for tasks, and each run has a thread of its own.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use linerate_core::plan::{MAX_SECONDS, Test, Workload};
use linerate_core::session::message::Limits as EndpointLimits;
use linerate_core::units::ByteCount;
use linerate_core::wire::Key;
use linerate_mesh::OwnerLimits;
use linerate_mesh::bus::{BEAT, Bus, BusError, Delivery};
use linerate_mesh::message::{Outcome, Presence, Report, Running, Task, decode, encode};
use linerate_sys::netns::Namespace;

use super::owner::SiteOwner;
use super::{KeptReports, MeshError};
use crate::endpoint::{Admission, Booked, Endpoint, ServeOptions};
use crate::error::MeasureError;
use crate::stop::Stop;
use crate::words::Say;

/// Longest single wait for a task. A request to stop is noticed after it at the latest.
const WAIT: Duration = Duration::from_secs(1);
/// Pause between two attempts to reach a bus that does not answer.
const PAUSE: Duration = Duration::from_millis(500);
/// Most runs at the same time; the schedule asks for fewer.
const MAX_RUNNING: usize = 32;

/// What an agent is given when it starts.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The site's name in the mesh.
    pub site: String,
    /// Where other sites reach its endpoint. Without it they use what the mesh's file says, or
    /// `bind`.
    pub address: Option<String>,
    /// The address that its endpoint listens on; without it, all addresses of the host.
    pub bind: Option<IpAddr>,
    /// The port of its endpoint; 0 takes a free one.
    pub port: u16,
    /// The key of the mesh, which all its endpoints have.
    pub key: Option<Key>,
    /// What the site's owner allows.
    pub limits: OwnerLimits,
    /// The directory for results that the bus has not taken yet.
    pub unsent: PathBuf,
}

/// An agent at work, until it is dropped.
#[derive(Debug)]
pub struct Agent {
    stop: Stop,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Agent {
    /// Starts the site's endpoint, and an agent that takes tasks from the bus, in `namespace` or in
    /// the caller's network namespace.
    ///
    /// # Errors
    /// The port or the directory cannot be used, or a thread cannot be started.
    pub fn start(
        options: AgentOptions,
        bus: Arc<dyn Bus>,
        namespace: Option<&Namespace>,
        say: Say,
    ) -> Result<Self, MeshError> {
        let unsent = KeptReports::open(&options.unsent)
            .map_err(|source| MeshError::Unsent { directory: options.unsent.clone(), source })?;
        let owner = Arc::new(SiteOwner::new(options.limits.clone(), &options.unsent));
        let serve = serve_options(&options, &owner);
        let bind = || Endpoint::bind(&serve);
        let endpoint = match namespace {
            Some(namespace) => namespace.run(bind)??,
            None => bind()?,
        };
        let address = endpoint.addresses()[0];
        let mut agent = Self { stop: Stop::new(), address, threads: Vec::new() };
        let stop = agent.stop.clone();
        let serve = move || {
            // If serving fails, the tests of other sites against this one fail and are reported.
            let _ = endpoint.serve(&stop, |_| {});
        };
        agent.threads.push(started(namespace, "endpoint", serve)?);
        let bound = options.bind.map(|_| address.to_string());
        let work = BusThread {
            address: options.address.clone().or(bound),
            life: life(),
            stop: agent.stop.clone(),
            owner,
            running: Vec::new(),
            options,
            bus,
            unsent,
            say,
        };
        agent.threads.push(started(namespace, "agent", || work.run())?);
        Ok(agent)
    }

    /// The address on which its endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.request();
        for thread in self.threads.drain(..) {
            // Each thread ends on the stop; a panic in it has been printed already.
            let _ = thread.join();
        }
    }
}

fn started(
    namespace: Option<&Namespace>,
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, MeshError> {
    let cannot = MeasureError::host("cannot start the agent");
    Ok(match namespace {
        Some(namespace) => namespace.spawn_thread(name, work)?,
        None => thread::Builder::new().name(name.to_owned()).spawn(work).map_err(cannot)?,
    })
}

/// The owner's limits, as the endpoint applies them to tests of other sites.
fn serve_options(options: &AgentOptions, owner: &Arc<SiteOwner>) -> ServeOptions {
    let longest = options.limits.longest;
    let is_limited = options.limits != OwnerLimits::default();
    ServeOptions {
        admission: is_limited.then(|| owner.clone() as Arc<dyn Admission>),
        allow_profiles: false,
        bind: options.bind,
        port: options.port,
        key: options.key.clone(),
        ..ServeOptions::within(EndpointLimits {
            clients: 64,
            streams: 256,
            seconds: longest.map_or(MAX_SECONDS, |span| span.as_secs_f64()),
            rate_bps: options.limits.rate.map(|rate| rate.0),
            connections: 0,
        })
    }
}

/// A random name for this start of the agent, by which the coordinator tells it from earlier ones.
fn life() -> String {
    let mut bytes = [0; 8];
    // Without random numbers the name is always the same, and a restart goes unnoticed.
    let _ = getrandom::fill(&mut bytes);
    HEXLOWER.encode(&bytes)
}

/// The thread that talks to the bus.
struct BusThread {
    options: AgentOptions,
    address: Option<String>,
    life: String,
    bus: Arc<dyn Bus>,
    unsent: KeptReports,
    stop: Stop,
    owner: Arc<SiteOwner>,
    running: Vec<Active>,
    say: Say,
}

/// A run under way.
struct Active {
    task: Task,
    stop: Stop,
    until: Instant,
    booked: Booked,
    thread: JoinHandle<()>,
}

#[expect(clippy::large_enum_variant, reason = "there are a few of them in a second")]
enum Event {
    /// A message came. If it is a task, with the addresses of the endpoint to test against.
    Taken(Delivery, Result<(Task, Vec<SocketAddr>), String>),
    /// A run has ended, with the bytes that it carried, where they are known.
    Ended(Report, Option<u64>),
}

impl BusThread {
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
                    // The run is announced before the next task can come.
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

    /// Starts the thread that waits for tasks. The other thread acknowledges them as it begins
    /// them.
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
        // A lost announcement only delays tasks: the next one follows soon.
        let _ = self.bus.announce(&self.options.site, &encode(&presence));
    }

    /// Begins a task if the message is one and the owner allows it. True if it runs now.
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
            // The bus delivered it again, because its acknowledgement came late.
            let _ = self.bus.acknowledge(delivery);
            return false;
        }
        // A task that cannot be acknowledged would come again, so it is not begun.
        if self.bus.acknowledge(delivery).is_err() {
            return false;
        }
        match self.admitted(&task, &addresses) {
            Ok((work, booked)) => {
                task.work = work;
                self.report(&task, Outcome::Started);
                self.spawn(task, (addresses, booked), taken, sender)
            }
            Err(why) => {
                (self.say)(&format!("{} with {}: refused: {why}", task.test, task.other()));
                self.report(&task, Outcome::Refused { why });
                false
            }
        }
    }

    /// The test of a task within the owner's limits, and its entry in the owner's book; or why the
    /// owner does not allow it.
    fn admitted(&self, task: &Task, addresses: &[SocketAddr]) -> Result<(Test, Booked), String> {
        if task.runner() != self.options.site {
            return Err(format!("it is for {}", task.runner()));
        }
        if self.running.len() >= MAX_RUNNING {
            return Err(format!("{MAX_RUNNING} tests are running here already"));
        }
        self.owner.admit_task(task, addresses)
    }

    fn publish(&self, report: &Report) -> Result<(), BusError> {
        self.bus.publish(&self.options.site, &report.key(), &encode(report))
    }

    /// Reports what became of a task, without keeping it. If the report is lost, the coordinator
    /// waits until the task's lease is over.
    fn report(&self, task: &Task, outcome: Outcome) {
        let _ = self.publish(&Report::new(task, outcome));
    }

    fn spawn(
        &mut self,
        task: Task,
        (addresses, booked): (Vec<SocketAddr>, Booked),
        taken: Instant,
        sender: &Sender<Event>,
    ) -> bool {
        let stop = Stop::new();
        let (own, key, sender) = (task.clone(), self.options.key.clone(), sender.clone());
        let asked = stop.clone();
        let work = move || {
            let (outcome, bytes) = super::run(&own, addresses, key, asked);
            // Nobody receives this once the agent has ended.
            let _ = sender.send(Event::Ended(Report::new(&own, outcome), bytes));
        };
        match thread::Builder::new().name("run".to_owned()).spawn(work) {
            Ok(thread) => {
                let until = taken + Duration::from_secs(task.lease_s.into());
                self.running.push(Active { task, stop, until, booked, thread });
                true
            }
            Err(error) => {
                self.owner.ended(booked, Some(0));
                let why = format!("this host cannot start a thread: {error}");
                self.report(&task, Outcome::Failed { why });
                false
            }
        }
    }

    /// Stops runs that take longer than their lease, since they would disturb the next one.
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
            self.owner.ended(active.booked, bytes);
        }
        if let Outcome::Failed { why } = &report.outcome
            && !self.stop.is_requested()
        {
            (self.say)(&format!("{} of {} to {}: {why}", report.test, report.from, report.to));
        }
        match self.unsent.keep(report) {
            Ok(0) => {}
            Ok(dropped) => (self.say)(&format!(
                "the bus takes no results; the oldest {dropped} were dropped: at most {} and {} are \
                 kept",
                KeptReports::MAX_REPORTS,
                ByteCount(KeptReports::MAX_BYTES),
            )),
            Err(error) => {
                (self.say)(&format!("a result cannot be kept: {error}"));
                let _ = self.publish(report);
            }
        }
    }

    /// Sends the results that are kept, for as long as no announcement is due. True if the bus has
    /// taken all of them.
    fn send(&mut self) -> bool {
        let until = Instant::now() + BEAT;
        while let Some(oldest) = self.unsent.oldest() {
            match oldest {
                Ok(report) if Instant::now() < until => {
                    if self.publish(&report).is_err() {
                        return false;
                    }
                }
                Ok(_) => return false,
                Err(other) => {
                    (self.say)(&format!("{} is not a result and is removed", other.display()))
                }
            }
            if self.unsent.forget_oldest().is_err() {
                return false;
            }
        }
        true
    }

    /// Ends the runs. Results of runs that have ended meanwhile are kept and sent.
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

/// Reads a task, and finds the addresses of the endpoint that it is to be run against.
fn task(delivery: &Delivery) -> Result<(Task, Vec<SocketAddr>), String> {
    let task: Task = decode(&delivery.body).map_err(|error| error.to_string())?;
    let addresses = super::addresses(&task)?;
    Ok((task, addresses))
}

/// The next event, if one comes within a tenth of a second.
fn next(events: &Receiver<Event>) -> Option<Event> {
    events.recv_timeout(Duration::from_millis(100)).ok()
}
