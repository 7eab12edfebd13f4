//! A host in a namespace of its own, and behind its link a thread that is every router and the
//! target.

use std::net::IpAddr;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_sys::netlink::{Prefix, Route};
use linerate_sys::netns::Pair;
use linerate_sys::packet::{Outgoing, PacketSocket, VirtioHeader};
use linerate_sys::poll::wait_readable;
use linerate_testkit::{Need, skip};
use serde_json::Value;

use super::packet::{self, Extras, ICMP, ICMPV6, Packet};

/// Of the first router; nobody's, so that the kernel at the far end leaves its packets alone.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
/// From a probe to its answer, wherever that comes from. A trace waits for twice that and a little
/// more: a machine that stands still for three seconds loses no answer.
pub(crate) const ROUND_TRIP: Duration = Duration::from_secs(3);
/// The kernel's memory for frames.
const RING_BYTES: usize = 3 << 20;

/// How one router behaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Router {
    /// Answers nothing; or, of the probes that reach it, by their order, all but these.
    pub(crate) is_silent: bool,
    pub(crate) answers: Option<&'static [usize]>,
    /// Forwards everything in this class.
    pub(crate) marks: Option<u8>,
    /// Forwards nothing, and says so with this code of "destination unreachable".
    pub(crate) refuses: Option<u8>,
    /// Sends each answer so often more.
    pub(crate) again: usize,
    /// Sends it so much later.
    pub(crate) later: Duration,
    /// Sends, before the right one, answers that quote packets which nobody has sent.
    pub(crate) forges: bool,
    /// There are two of it, over which the one before balances.
    pub(crate) twin: Option<Balance>,
    /// Its answers come back over so many hops more than they went.
    pub(crate) detour: u8,
    /// Quotes the packet with an IPv6 extension header that was put in on the way.
    pub(crate) quotes_options: bool,
    pub(crate) extras: Extras,
}

/// What decides which of two routers a packet takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Balance {
    /// The target port of UDP.
    ByFlow,
    /// The number of packets before.
    ByPacket,
}

/// Routers one after another, and the target.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) routers: Vec<Router>,
    /// The target answers.
    pub(crate) has_target: bool,
}

impl Chain {
    pub(crate) fn of(length: usize) -> Self {
        Self { routers: vec![Router::default(); length], has_target: true }
    }

    /// The same with another router at this TTL.
    pub(crate) fn with(mut self, ttl: usize, router: Router) -> Self {
        self.routers[ttl - 1] = router;
        self
    }
}

/// The address of the router at a TTL.
pub(crate) fn router(is_v4: bool, ttl: usize) -> IpAddr {
    let ttl = u8::try_from(ttl).expect("a TTL");
    if is_v4 {
        IpAddr::from([198, 19, 1, ttl])
    } else {
        IpAddr::from([0x2001, 2, 0, 1, 0, 0, 0, u16::from(ttl)])
    }
}

/// The address of the other one, where there are two.
fn twin(is_v4: bool, ttl: usize) -> IpAddr {
    let ttl = u8::try_from(ttl).expect("a TTL");
    if is_v4 {
        IpAddr::from([198, 19, 2, ttl])
    } else {
        IpAddr::from([0x2001, 2, 0, 2, 0, 0, 0, u16::from(ttl)])
    }
}

pub(crate) fn target(is_v4: bool) -> IpAddr {
    if is_v4 { IpAddr::from([198, 19, 0, 9]) } else { IpAddr::from([0x2001, 2, 0, 9, 0, 0, 0, 9]) }
}

/// Who sends what is forged.
pub(crate) fn forger(is_v4: bool) -> IpAddr {
    if is_v4 {
        IpAddr::from([198, 19, 66, 66])
    } else {
        IpAddr::from([0x2001, 2, 0, 0x66, 0, 0, 0, 0x66])
    }
}

/// The host and its routers, until this is dropped.
pub(crate) struct Network {
    pair: Pair,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// None, after saying why, where this host allows no namespaces.
    pub(crate) fn new(test: &str, chain: &Chain) -> Option<Self> {
        let pair = match Pair::create() {
            Ok(pair) => pair,
            Err(error) => {
                skip(Need::Lab, format_args!("{test}: {error}"));
                return None;
            }
        };
        let gateways: [(IpAddr, IpAddr); 2] = [
            (IpAddr::from([198, 18, 0, 254]), IpAddr::from([0; 4])),
            (IpAddr::from([0x2001, 2, 0, 0, 0, 0, 0, 0xfe]), IpAddr::from([0u16; 8])),
        ];
        let configured = pair.a.namespace.configure(|netlink| {
            for (gateway, everything) in gateways {
                netlink.add_permanent_neighbour(Pair::LINK, gateway, MAC)?;
                let mut route = Route::new(Prefix::new(everything, 0));
                route.gateway = Some(gateway);
                netlink.add_route(&route)?;
            }
            Ok(())
        });
        configured.expect("a namespace of our own can be configured");
        let open = pair.b.namespace.run(|| PacketSocket::open_within(Pair::LINK, RING_BYTES));
        let socket = open.expect("a thread of the namespace").expect("root may open it");
        let stop = Arc::new(AtomicBool::new(false));
        let routers = Routers {
            chain: chain.clone(),
            seen: vec![0; chain.routers.len()],
            socket,
            waiting: Vec::new(),
        };
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || routers.run(&asked));
        Some(Self { pair, stop, thread: Some(thread) })
    }

    /// `linerate trace -n --json …` at the host.
    pub(crate) fn trace(&self, is_v4: bool, arguments: &[&str]) -> (Output, Value) {
        let program = env!("CARGO_BIN_EXE_linerate");
        let mut command = self.pair.a.namespace.command(program);
        command.args(["trace", &target(is_v4).to_string(), "-n", "--json"]);
        let output = command
            .args(["--timeout", "10s"])
            .args(arguments)
            .output()
            .expect("linerate can be run");
        let document = serde_json::from_slice(&output.stdout);
        let document = document.unwrap_or_else(|_| {
            panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr))
        });
        (output, document)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the routers have failed");
        }
    }
}

/// All of them.
struct Routers {
    chain: Chain,
    /// Probes that each has seen.
    seen: Vec<usize>,
    socket: PacketSocket,
    /// Frames, and when they are to be sent.
    waiting: Vec<(Instant, Vec<u8>)>,
}

impl Routers {
    fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            wait_readable(&self.socket, Duration::from_millis(5))
                .expect("a socket can be waited for");
            let mut came = Vec::new();
            while let Some(received) = self.socket.receive().expect("the link is there") {
                came.push(received.frame.to_vec());
            }
            for frame in came {
                if let Some(packet) = Packet::of_frame(&frame) {
                    let host = frame[6..12].try_into().expect("six bytes");
                    self.take(&packet, host);
                }
            }
            self.send_what_is_due();
        }
    }

    fn send_what_is_due(&mut self) {
        let now = Instant::now();
        let (due, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(at, _)| *at <= now);
        self.waiting = waiting;
        for (at, frame) in due {
            let outgoing = Outgoing { header: VirtioHeader::default(), frame: &frame };
            // Where there is no room it goes with the next ones.
            if self.socket.send(&[outgoing]).expect("a frame of ours is right") == 0 {
                self.waiting.push((at, frame));
            }
        }
    }

    fn take(&mut self, packet: &Packet, host: [u8; 6]) {
        let is_v4 = packet.target.is_ipv4();
        if packet.target != target(is_v4) {
            return;
        }
        let mut class = packet.class;
        for ttl in 1..=self.chain.routers.len() {
            let router = self.chain.routers[ttl - 1];
            let arrived = packet.marked(class, 1);
            if router.refuses.is_some() || usize::from(packet.ttl) == ttl {
                self.answer(ttl, &arrived, host);
                return;
            }
            class = router.marks.unwrap_or(class);
        }
        if self.chain.has_target
            && let Some(message) = packet::direct_answer(&packet.marked(class, 1))
        {
            let ttl = reply_ttl(self.chain.routers.len() + 1, 0);
            let ends = (packet.target, packet.source);
            let answer = packet::ip(ends, ttl, message, false);
            self.waiting.push((Instant::now() + ROUND_TRIP, frame(host, &answer)));
        }
    }

    /// The router's answer to a packet that has come as far as there.
    fn answer(&mut self, ttl: usize, arrived: &Packet, host: [u8; 6]) {
        let behaviour = self.chain.routers[ttl - 1];
        let number = self.seen[ttl - 1];
        self.seen[ttl - 1] += 1;
        let is_left_out = behaviour.answers.is_some_and(|answered| !answered.contains(&number));
        if behaviour.is_silent || is_left_out {
            return;
        }
        let is_v4 = arrived.target.is_ipv4();
        let (protocol, exceeded, unreachable) = if is_v4 { (ICMP, 11, 3) } else { (ICMPV6, 3, 1) };
        let (kind, code) = behaviour.refuses.map_or((exceeded, 0), |code| (unreachable, code));
        let quoted =
            if behaviour.quotes_options { arrived.with_options() } else { arrived.clone() };
        let message = packet::error(kind, code, &quoted, behaviour.extras);
        let reply_ttl = reply_ttl(ttl, behaviour.detour);
        let at = Instant::now() + ROUND_TRIP;
        if behaviour.forges {
            for forged in forgeries(arrived) {
                let message = packet::error(exceeded, 0, &forged, Extras::default());
                let ends = (forger(is_v4), arrived.source);
                let answer = packet::ip(ends, reply_ttl, (protocol, message), false);
                self.waiting.push((at, frame(host, &answer)));
            }
        }
        let is_twin = match behaviour.twin {
            None => false,
            Some(Balance::ByFlow) => arrived.transport()[3] % 2 == 1,
            Some(Balance::ByPacket) => number % 2 == 1,
        };
        let from = if is_twin { twin(is_v4, ttl) } else { router(is_v4, ttl) };
        let ends = (from, arrived.source);
        let has_headers = behaviour.extras.has_headers;
        let answer = packet::ip(ends, reply_ttl, (protocol, message), has_headers);
        for _ in 0..=behaviour.again {
            self.waiting.push((at + behaviour.later, frame(host, &answer)));
        }
    }
}

/// Packets that were never sent: of another session, and to another port.
fn forgeries(arrived: &Packet) -> [Packet; 2] {
    let header = arrived.bytes.len() - arrived.transport().len();
    let changed = |at: usize| {
        let mut packet = arrived.clone();
        for byte in packet.bytes.iter_mut().skip(header + at).take(2) {
            *byte ^= 0x55;
        }
        packet
    };
    // The payload of UDP and of an echo begins with the session; the sequence number of a SYN too,
    // and its ports are first.
    match arrived.protocol {
        packet::TCP => [changed(4), changed(4)],
        _ => [changed(8), changed(8).marked(arrived.class, 9)],
    }
}

/// As if it had come over as many hops, and the detour.
fn reply_ttl(ttl: usize, detour: u8) -> u8 {
    65 - u8::try_from(ttl).expect("a TTL below 64") - detour
}

fn frame(host: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = match packet[0] >> 4 {
        4 => [0x08, 0x00],
        _ => [0x86, 0xdd],
    };
    [&host[..], &MAC, &kind, packet].concat()
}
