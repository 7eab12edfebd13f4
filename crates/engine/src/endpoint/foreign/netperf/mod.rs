//! netperf's clients. Each control connection has a thread, which drives core's half of the
//! protocol, makes the data sockets ([`data`]) and runs the test as the endpoint runs its own
//! ([`running`]).

mod data;
mod running;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use linerate_core::foreign::Tool;
use linerate_core::foreign::netperf::{
    DataTest, End, Refusal, Server, ServerEvent, Settings, errno,
};
use linerate_core::record::{HostFacts, Status};
use linerate_sys::proc::stat;

use self::data::Data;
use self::running::Running;
use super::super::clients::Guesses;
use super::ForeignClient;
use super::ports::{ForeignAdmission, accept};
use crate::clock::now;
use crate::control::ControlSocket;
use crate::endpoint::NetperfOptions;
use crate::endpoint::session::Context;
use crate::host;

/// Longest wait without a look at the stop flag.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// The same while a test runs, whose end is to be noticed soon.
const TICK: Duration = Duration::from_millis(10);

/// Serves clients until the endpoint stops.
pub(in crate::endpoint) fn serve(
    context: &Arc<Context>,
    listeners: Vec<TcpListener>,
    options: &NetperfOptions,
) {
    let stop = context.stop.clone();
    let guesses = Arc::<Guesses>::default();
    accept(listeners, ForeignAdmission::FirstByte, &stop, |stream, peer| {
        if guesses.are_used_up(peer.ip()) {
            return context.log_refusal(peer, "netperf: too many wrong passphrases".to_owned());
        }
        let newcomer = options.passphrase.is_some().then_some(&stream);
        let Some(client) = ForeignClient::admit(context, Tool::Netperf, peer, newcomer) else {
            return;
        };
        let (passphrase, guesses) = (options.passphrase.clone(), Arc::clone(&guesses));
        context.spawn("netperf", peer, move || {
            NetperfSession::run(client, stream, passphrase, guesses);
        });
    });
}

/// What the session does at present.
enum NetperfStage {
    Idle,
    /// The data sockets are open; no data has arrived.
    Waiting(Box<Data>),
    Running(Box<Running>),
}

struct NetperfSession {
    client: ForeignClient,
    server: Server,
    stage: NetperfStage,
    /// The address of this host to which the client has connected.
    local: SocketAddr,
    facts: HostFacts,
    guesses: Arc<Guesses>,
}

impl NetperfSession {
    /// Serves a client until it leaves.
    fn run(
        client: ForeignClient,
        stream: TcpStream,
        passphrase: Option<String>,
        guesses: Arc<Guesses>,
    ) {
        let (Ok(local), Ok(socket)) = (stream.local_addr(), ControlSocket::new(stream)) else {
            return;
        };
        socket.expect_signs_of_life();
        let facts = host::facts(Some(client.peer.ip()));
        let settings = Settings {
            passphrase,
            limits: client.context.options.limits,
            cpus: facts.cpu.count,
            cpu_rate: stat::user_hz() as f32,
        };
        let session = Self {
            client,
            server: Server::new(now(), settings),
            stage: NetperfStage::Idle,
            local,
            facts,
            guesses,
        };
        session.drive(socket);
    }

    fn drive(mut self, mut socket: ControlSocket) {
        let mut reason = None;
        while !self.server.is_closed() {
            self.look();
            let patience = self.patience();
            socket.drive(&mut self.server, patience);
            while let Some(event) = self.server.poll_event() {
                match event {
                    ServerEvent::Test(test) => self.open(*test),
                    ServerEvent::Refused(refusal) => self.log_refusal(refusal),
                    ServerEvent::Closed(end) => {
                        if end == End::Passphrase {
                            self.guesses.note_wrong(self.client.peer.ip());
                        }
                        reason = end.reason();
                    }
                }
            }
            if self.client.context.stop.is_requested() {
                reason = Some("the endpoint is shutting down".into());
                break;
            }
        }
        socket.transmit(&mut self.server);
        if let NetperfStage::Running(running) =
            std::mem::replace(&mut self.stage, NetperfStage::Idle)
        {
            running.end(&self.client, self.facts.clone(), Status::Partial);
        }
        self.client.end_test();
        self.client.log_end(reason);
        let context = Arc::clone(&self.client.context);
        context.part(self, socket, &[]);
    }

    /// A session that waits for data waits at the data sockets, in [`Self::look`].
    fn patience(&self) -> Duration {
        match &self.stage {
            NetperfStage::Idle => IDLE_TICK,
            NetperfStage::Waiting(_) => Duration::ZERO,
            NetperfStage::Running(_) => TICK,
        }
    }

    fn log_refusal(&self, refusal: Refusal) {
        let reason = format!("netperf: {}", refusal.reason);
        let client = &self.client;
        client.context.log_refusal(client.peer, reason);
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.client.end_test();
        self.server.refuse(now(), refusal);
    }

    fn open(&mut self, test: DataTest) {
        self.client.log_client();
        match self.open_data(test) {
            Ok(data) => {
                self.server.ready(&data.ready(&self.facts));
                self.stage = NetperfStage::Waiting(Box::new(data));
            }
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn open_data(&self, test: DataTest) -> Result<Data, Refusal> {
        let busy = |reason| Refusal::new(errno::EBUSY, reason);
        let client = &self.client;
        client.presence.enter().map_err(busy)?;
        client.place.begin_test().map_err(busy)?;
        let limits = &client.context.options.limits;
        let data = Data::open(test, self.local, client.peer.ip(), limits)?;
        client.claim(&data.test).map_err(busy)?;
        Ok(data)
    }

    /// Looks at the data sockets and at the running half.
    fn look(&mut self) {
        match std::mem::replace(&mut self.stage, NetperfStage::Idle) {
            NetperfStage::Idle => {}
            NetperfStage::Waiting(data) => self.wait(data),
            NetperfStage::Running(mut running) => {
                if !running.is_over() {
                    self.stage = NetperfStage::Running(running);
                    return;
                }
                let results = running.end(&self.client, self.facts.clone(), Status::Complete);
                self.server.report(now(), &results);
            }
        }
    }

    fn wait(&mut self, mut data: Box<Data>) {
        match data.arrived(TICK) {
            Ok(None) if data.is_overdue() => {
                let nothing = data.nothing();
                self.client.end_test();
                match nothing {
                    Some(results) => self.server.report(now(), &results),
                    None => {
                        self.refuse(Refusal::new(errno::ETIMEDOUT, "nobody connected for the data"))
                    }
                }
            }
            Ok(None) => self.stage = NetperfStage::Waiting(data),
            Ok(Some(source)) => match Running::start(*data, source) {
                Ok(running) => self.stage = NetperfStage::Running(Box::new(running)),
                Err(refusal) => self.refuse(refusal),
            },
            Err(refusal) => self.refuse(refusal),
        }
    }
}
