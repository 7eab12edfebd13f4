//! The load: a session for each flow of it, connected beforehand and begun when it is its turn.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use linerate_core::plan::{Direction, Extent, Test};
use linerate_core::record::Record;
use linerate_core::units::Span;

use super::Request;
use crate::client::{Client, Live};
use crate::clock::{nanos, now_ns};
use crate::error::MeasureError;
use crate::shares::joined;
use crate::stop::Stop;

/// All that may be begun, in their order.
pub(super) struct Loads<'scope> {
    loads: Vec<LoadSession<'scope>>,
    begun: usize,
}

struct LoadSession<'scope> {
    /// Begins it; dropped, it never will.
    go: Option<Sender<()>>,
    is_begun: bool,
    received: Arc<Mutex<ReceivedCount>>,
    /// Counter of received bytes at the last look.
    last: ReceivedCount,
    thread: ScopedJoinHandle<'scope, LoadResult>,
}

/// Result of a load that has ended.
enum LoadResult {
    Loaded(Box<Loaded>),
    /// It was begun, and could not be or ended early.
    Failed(MeasureError),
    /// It was not begun; why it could not connect, if that was why.
    Unused(Option<MeasureError>),
}

/// Payload that the receiver has, and when; of a load that has not begun nothing.
#[derive(Debug, Clone, Copy, Default)]
struct ReceivedCount {
    bytes: u64,
    at_s: f64,
}

/// A load that has run.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) began_ns: u64,
    pub(super) record: Record,
}

impl<'scope> Loads<'scope> {
    /// So many sessions, each in a thread of its own.
    pub(super) fn connect<'env>(
        scope: &'scope Scope<'scope, 'env>,
        client: &Client,
        request: &Request,
        over: &'env Stop,
        count: u32,
    ) -> Self {
        let longest = client.welcome().limits.seconds;
        let loads = (0..count).map(|_| {
            let (connect, test) = (client.later(), load_test(request, longest));
            let (go, gone) = mpsc::channel();
            let received = Arc::new(Mutex::new(ReceivedCount::default()));
            let told = Arc::clone(&received);
            let thread = scope.spawn(move || match connect() {
                Ok(client) if gone.recv().is_ok() => run(client, &test, &told, over),
                Ok(_) => LoadResult::Unused(None),
                Err(error) => LoadResult::Unused(Some(error)),
            });
            LoadSession {
                go: Some(go),
                is_begun: false,
                received,
                last: ReceivedCount::default(),
                thread,
            }
        });
        Self { loads: loads.collect(), begun: 0 }
    }

    /// Begins the next one that has a session; false if there is none.
    pub(super) fn add(&mut self) -> bool {
        while let Some(load) = self.loads.get_mut(self.begun) {
            self.begun += 1;
            load.is_begun = load.go.take().is_some_and(|go| go.send(()).is_ok());
            if load.is_begun {
                return true;
            }
        }
        false
    }

    /// Whether one that was begun has ended by itself.
    pub(super) fn have_failed(&self) -> bool {
        let begun = &self.loads[..self.begun];
        begun.iter().any(|load| load.is_begun && load.thread.is_finished())
    }

    /// Number of loads that carry bytes.
    pub(super) fn count(&self) -> u32 {
        self.loads.iter().filter(|load| load.last.bytes > 0).count() as u32
    }

    /// What all have received since the last look, bits per second.
    pub(super) fn goodput_bps(&mut self, interval: Duration) -> f64 {
        let loads = self.loads.iter_mut();
        loads.map(|load| load.goodput_bps(interval)).sum()
    }

    /// Those that were begun, when all are over.
    ///
    /// # Errors
    /// One that was begun could not be, or ended early; none could connect.
    pub(super) fn end(mut self) -> Result<Vec<Loaded>, MeasureError> {
        self.loads.iter_mut().for_each(|load| load.go = None);
        let (mut loaded, mut failed, mut unused) = (Vec::new(), None, None);
        for load in self.loads {
            match joined(load.thread.join()) {
                LoadResult::Loaded(one) => loaded.push(*one),
                LoadResult::Failed(error) => failed = failed.or(Some(error)),
                LoadResult::Unused(error) => unused = unused.or(error),
            }
        }
        match failed.or(unused.filter(|_| loaded.is_empty())) {
            Some(error) => Err(error),
            None => Ok(loaded),
        }
    }
}

impl LoadSession<'_> {
    fn goodput_bps(&mut self, interval: Duration) -> f64 {
        let now = *lock(&self.received);
        let before = std::mem::replace(&mut self.last, now);
        let passed_s =
            if before.bytes == 0 { interval.as_secs_f64() } else { now.at_s - before.at_s };
        let bits = now.bytes.saturating_sub(before.bytes) as f64 * 8.0;
        if passed_s > 0.0 { bits / passed_s } else { 0.0 }
    }
}

impl ReceivedCount {
    fn new(live: &Live, direction: Direction) -> Self {
        let (bytes, at_s) = match direction {
            Direction::Up => (live.up_bytes, live.up_at_s),
            Direction::Down | Direction::Both => (live.down_bytes, live.at_s),
        };
        Self { bytes, at_s }
    }
}

/// Sends or receives until `over`.
fn run(mut client: Client, test: &Test, told: &Mutex<ReceivedCount>, over: &Stop) -> LoadResult {
    let mut began_ns = now_ns();
    let outcome = client.run(test, &mut |live| {
        let since = Duration::try_from_secs_f64(live.at_s).unwrap_or_default();
        began_ns = now_ns().saturating_sub(nanos(since));
        *lock(told) = ReceivedCount::new(live, test.direction);
        !over.is_requested()
    });
    match outcome {
        Err(_) if over.is_requested() => LoadResult::Unused(None),
        Err(error) => LoadResult::Failed(error),
        Ok(outcome) => match outcome.error {
            Some(error) if !over.is_requested() => LoadResult::Failed(error),
            _ => LoadResult::Loaded(Box::new(Loaded { began_ns, record: outcome.record })),
        },
    }
}

/// Each is one load of as many flows as were asked for, looked at often.
fn load_test(request: &Request, longest_s: f64) -> Test {
    let longest = Duration::try_from_secs_f64(longest_s).unwrap_or(Duration::MAX);
    Test {
        extent: Extent::Time(Span(request.longest().min(longest))),
        warm_up: Span(Duration::ZERO),
        interval: Span(LOOK),
        ..request.load.clone()
    }
}

/// Between two looks at a sender's socket.
const LOOK: Duration = Duration::from_millis(100);

fn lock(received: &Mutex<ReceivedCount>) -> MutexGuard<'_, ReceivedCount> {
    // It is replaced whole.
    received.lock().unwrap_or_else(PoisonError::into_inner)
}
