//! netperf's clients: one thread for each control connection, which drives core's half of the
//! protocol, makes the data sockets ([`data`]) and runs the test as the endpoint runs its own
//! ([`running`]).

mod cpu;
mod data;
mod running;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use linerate_core::foreign::Tool;
use linerate_core::foreign::netperf::{DataTest, Refusal, Server, ServerEvent, Settings, errno};
use linerate_core::record::HostFacts;
use linerate_sys::proc::stat;

use self::data::Data;
use self::running::Running;
use super::Guest;
use super::accept::{Admission, accept};
use crate::clock::now;
use crate::control::{ControlSocket, Received};
use crate::endpoint::session::Context;
use crate::endpoint::{NetperfOptions, ServeEvent};
use crate::host;

/// Longest wait without looking at the stop flag.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// While a test runs: its end is noticed so late at most.
const TICK: Duration = Duration::from_millis(10);

/// Takes clients until the endpoint stops.
pub(in crate::endpoint) fn serve(
    context: &Arc<Context>,
    listeners: Vec<TcpListener>,
    options: &NetperfOptions,
) {
    let stop = context.stop.clone();
    accept(listeners, Admission::Spoken, &stop, |stream, peer| {
        let newcomer = options.passphrase.is_some().then_some(&stream);
        let Ok(guest) = Guest::admit(context, Tool::Netperf, peer, newcomer) else {
            return;
        };
        let passphrase = options.passphrase.clone();
        context.spawn("netperf", peer, move || {
            Session::run(guest, stream, passphrase);
        });
    });
}

/// What the session is doing.
enum Stage {
    Idle,
    /// The data sockets are there; nothing has come.
    Waiting(Box<Data>),
    Running(Box<Running>),
}

struct Session {
    guest: Guest,
    server: Server,
    stage: Stage,
    /// Which address of this host the client has connected to.
    local: SocketAddr,
    facts: HostFacts,
}

impl Session {
    /// Serves a client to its end.
    fn run(guest: Guest, stream: TcpStream, passphrase: Option<String>) {
        let (Ok(local), Ok(socket)) = (stream.local_addr(), ControlSocket::new(stream)) else {
            return;
        };
        socket.expect_signs_of_life();
        let facts = host::facts(Some(guest.peer().ip()));
        let settings = Settings {
            passphrase,
            limits: guest.context().limits,
            cpus: facts.cpu.count,
            cpu_rate: stat::user_hz() as f32,
        };
        let session = Self {
            guest,
            server: Server::new(now(), settings),
            stage: Stage::Idle,
            local,
            facts,
        };
        session.drive(socket);
    }

    fn drive(mut self, mut socket: ControlSocket) {
        let mut reason = None;
        while !self.server.is_closed() {
            self.look();
            self.transmit(&mut socket);
            match socket.receive(self.patience()) {
                Received::Bytes(bytes) => self.server.handle_input(now(), bytes),
                Received::Nothing => {}
                Received::Closed => self.server.handle_close(),
            }
            self.server.handle_timeout(now());
            while let Some(event) = self.server.poll_event() {
                match event {
                    ServerEvent::Test(test) => self.open(*test),
                    ServerEvent::Refused(refusal) => self.log_refusal(refusal),
                    ServerEvent::Closed(end) => reason = end.reason(),
                }
            }
            if self.guest.context().stop.is_requested() {
                reason = Some("the endpoint is shutting down".into());
                break;
            }
        }
        self.transmit(&mut socket);
        if let Stage::Running(running) = std::mem::replace(&mut self.stage, Stage::Idle) {
            // What there is of it is in the record.
            running.break_off(&self.guest, self.facts.clone());
        }
        self.guest.end_test();
        self.guest.left(reason);
        let context = Arc::clone(self.guest.context());
        context.part(self, socket, &[]);
    }

    fn transmit(&mut self, socket: &mut ControlSocket) {
        while let Some(bytes) = self.server.poll_transmit() {
            if socket.send(&bytes).is_err() {
                self.server.handle_close();
                return;
            }
        }
    }

    /// While data is waited for, that wait is the longer one: see [`Self::look`].
    fn patience(&self) -> Duration {
        let tick = match &self.stage {
            Stage::Idle => IDLE_TICK,
            Stage::Waiting(_) => Duration::ZERO,
            Stage::Running(_) => TICK,
        };
        match self.server.poll_timeout() {
            Some(at) => at.saturating_sub(now()).min(tick),
            None => tick,
        }
    }

    fn log_refusal(&self, refusal: Refusal) {
        (self.guest.context().log)(ServeEvent::Refused {
            peer: self.guest.peer(),
            reason: format!("netperf: {}", refusal.reason),
        });
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.guest.end_test();
        self.server.refuse(now(), refusal);
    }

    fn open(&mut self, test: DataTest) {
        self.guest.tell();
        let free = self.guest.enter().and_then(|()| self.guest.begin_test());
        if let Err(reason) = free {
            self.refuse(Refusal::new(errno::EBUSY, reason));
            return;
        }
        let limits = self.guest.context().limits;
        let data = Data::open(test, self.local, self.guest.peer().ip(), &limits).and_then(|data| {
            let claimed = self.guest.claim(&data.test);
            claimed.map_err(|reason| Refusal::new(errno::EBUSY, reason))?;
            Ok(data)
        });
        match data {
            Ok(data) => {
                self.server.ready(&data.ready(&self.facts));
                self.stage = Stage::Waiting(Box::new(data));
            }
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// What comes over the data sockets and from the running half.
    fn look(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Waiting(data) => self.wait(data),
            Stage::Running(mut running) => {
                if !running.is_over() {
                    self.stage = Stage::Running(running);
                    return;
                }
                let results = running.conclude(&self.guest, self.facts.clone());
                self.guest.end_test();
                self.server.report(now(), &results);
            }
        }
    }

    fn wait(&mut self, mut data: Box<Data>) {
        match data.arrived(TICK) {
            Ok(None) if data.is_overdue() => {
                let nothing = data.nothing();
                self.guest.end_test();
                match nothing {
                    Some(results) => self.server.report(now(), &results),
                    None => self.refuse(Refusal::new(
                        errno::ETIMEDOUT,
                        "nobody connected for the data",
                    )),
                }
            }
            Ok(None) => self.stage = Stage::Waiting(data),
            Ok(Some(source)) => match Running::start(*data, source) {
                Ok(running) => self.stage = Stage::Running(Box::new(running)),
                Err(refusal) => self.refuse(refusal),
            },
            Err(refusal) => self.refuse(refusal),
        }
    }
}
