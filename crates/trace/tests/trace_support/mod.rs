//! A network in memory with virtual time: routers that answer, limit, lose, mark and lie, and real
//! bytes.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a test says what it expects by panicking")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use linerate_trace::{
    Answer, AnswerKind, PathFinder, PathMtu, Probe, ProbeCodec, ProbeKind, TraceConfig, Tracer,
    least_size,
};
use linerate_units::Nanos;

/// More steps than any trace needs: what goes on longer does not end.
const MAX_STEPS: usize = 2_000_000;

/// A router, or the target as the last one.
#[derive(Debug, Clone)]
pub(crate) struct Router {
    pub(crate) address: IpAddr,
    /// Which routers of the next level it balances over.
    pub(crate) next: Vec<usize>,
    /// Packet by packet, at random or in turn, instead of by flow.
    pub(crate) by_packet: Option<ByPacket>,
    /// The target, nearer than by other ways.
    pub(crate) is_target: bool,
    pub(crate) is_silent: bool,
    /// Time to make an answer.
    pub(crate) slow: Nanos,
    pub(crate) bucket: Option<Bucket>,
    /// Forwards nothing, and answers so with this code.
    pub(crate) unreachable: Option<u8>,
    /// Forwards nothing larger, and answers so.
    pub(crate) mtu: Option<u32>,
    /// And says nothing about it.
    pub(crate) hides_mtu: bool,
    /// Forwards with this traffic class.
    pub(crate) remark: Option<u8>,
    /// Forwards with another source address and port, as a NAT does; answers to it come back
    /// translated.
    pub(crate) is_nat: bool,
}

/// How a router chooses among the next ones for each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByPacket {
    AtRandom,
    InTurn,
}

/// The kernel's limit of ICMP errors to one peer.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    pub(crate) interval: u64,
    pub(crate) burst: u64,
    pub(crate) tokens: u64,
    pub(crate) last: u64,
}

impl Bucket {
    /// `icmp_ratelimit` of 1000 ms and `XRLIM_BURST_FACTOR` 6.
    pub(crate) fn linux() -> Self {
        Self::of(6)
    }

    pub(crate) fn of(burst: u64) -> Self {
        let interval = 1_000_000_000;
        Self { interval, burst, tokens: burst * interval, last: 0 }
    }

    fn allows(&mut self, now: Nanos) -> bool {
        let passed = now.0.saturating_sub(self.last);
        self.tokens = (self.tokens + passed).min(self.burst * self.interval);
        self.last = now.0;
        let is_allowed = self.tokens >= self.interval;
        if is_allowed {
            self.tokens -= self.interval;
        }
        is_allowed
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Net {
    /// By distance; the last level is the target alone.
    pub(crate) levels: Vec<Vec<Router>>,
    /// One way, each link.
    pub(crate) link: Nanos,
    /// Each link loses packets with this probability, of both directions.
    pub(crate) loss: f64,
    /// The path goes round from this distance (0 is the first router) to the last router before the
    /// target.
    pub(crate) loop_from: Option<usize>,
    /// Routers quote 8 bytes of the transport only.
    pub(crate) short_quotes: bool,
    /// Each answer comes a second time.
    pub(crate) duplicates: bool,
    pub(crate) dice: Dice,
    /// What routers say would fit, instead of what does.
    pub(crate) told_mtu: Option<u32>,
    /// Packets that were sent.
    pub(crate) packets: u64,
    /// All packets take the first router of this level, and after so many packets the second.
    pub(crate) route_change: Option<(u64, usize)>,
    /// Answers that nobody caused.
    pub(crate) noise: Vec<(Nanos, Answer)>,
    /// Who answered each probe, and after how long.
    pub(crate) truth: BTreeMap<u16, (IpAddr, Nanos)>,
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64 / (1u64 << 53) as f64) < probability
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(crate) fn address(level: usize, place: usize, is_v6: bool) -> IpAddr {
    let (level, place) = (u8::try_from(level).unwrap(), u8::try_from(place).unwrap());
    if is_v6 {
        let place = u16::from(place) + 1;
        IpAddr::from([0x2001, 2, 0, 0, 0, 0, u16::from(level), place])
    } else {
        IpAddr::from([198, 18, level, place + 1])
    }
}

impl Net {
    /// `length` hops, the last of them the target, 2 ms of RTT each.
    pub(crate) fn chain(length: usize) -> Self {
        Self::wide(&vec![1; length], false)
    }

    pub(crate) fn chain_v6(length: usize) -> Self {
        Self::wide(&vec![1; length], true)
    }

    /// Levels of so many routers, each balancing over all of the next level.
    pub(crate) fn wide(widths: &[usize], is_v6: bool) -> Self {
        let level = |(level, width): (usize, &usize)| {
            let after = widths.get(level + 1).copied().unwrap_or(0);
            let router = |place| Router {
                address: address(level, place, is_v6),
                next: (0..after).collect(),
                by_packet: None,
                is_target: false,
                is_silent: false,
                slow: Nanos::ZERO,
                bucket: None,
                unreachable: None,
                mtu: None,
                hides_mtu: false,
                remark: None,
                is_nat: false,
            };
            (0..*width).map(router).collect()
        };
        Self {
            levels: widths.iter().enumerate().map(level).collect(),
            link: Nanos::from_millis(1),
            loss: 0.0,
            loop_from: None,
            short_quotes: false,
            duplicates: false,
            told_mtu: None,
            dice: Dice(1),
            packets: 0,
            route_change: None,
            noise: Vec::new(),
            truth: BTreeMap::new(),
        }
    }

    /// The kernel's default limits everywhere.
    pub(crate) fn with_linux_limits(mut self) -> Self {
        for router in self.levels.iter_mut().flatten() {
            router.bucket = Some(Bucket::linux());
        }
        self
    }

    /// The router at this TTL, where a level has one alone.
    pub(crate) fn at(&mut self, ttl: usize) -> &mut Router {
        &mut self.levels[ttl - 1][0]
    }

    pub(crate) fn target(&self) -> IpAddr {
        self.levels.last().unwrap()[0].address
    }

    pub(crate) fn rtt(&self) -> Nanos {
        Nanos(2 * self.link.0 * self.levels.len() as u64)
    }

    pub(crate) fn config(&self) -> TraceConfig {
        TraceConfig::new(self.target())
    }

    pub(crate) fn codec(&self, kind: ProbeKind, session: u16) -> ProbeCodec {
        let is_v6 = self.target().is_ipv6();
        ProbeCodec {
            kind,
            source: address(255, 0, is_v6),
            target: self.target(),
            source_port: 50_000,
            target_port: if kind == ProbeKind::Tcp { 443 } else { 33_434 },
            session,
        }
    }

    /// Level and place of each router on the way of a flow's packet, without end if it goes in a
    /// circle. `packet` is its number.
    fn way(&self, flow: u16, packet: u64) -> impl Iterator<Item = (usize, usize)> {
        let count = self.levels.len();
        let level_at = move |hop: usize| match self.loop_from {
            Some(from) => {
                let length = count - 1 - from;
                if hop < from { hop } else { from + (hop - from) % length }
            }
            None => hop,
        };
        let hops = if self.loop_from.is_some() { 300 } else { count };
        let mut place = 0;
        (0..hops).map(move |hop| {
            let level = level_at(hop);
            if self.loop_from.is_some() {
                place = 0;
            } else if hop == 0 {
                place = mix(u64::from(flow) + 1) as usize % self.levels[0].len();
            } else {
                let Router { next, by_packet, .. } = &self.levels[level - 1][place];
                let random = match by_packet {
                    None => mix(u64::from(flow) << 16 | (level as u64) << 8 | place as u64),
                    Some(ByPacket::AtRandom) => mix(self.dice.0 ^ packet << 16 ^ level as u64),
                    Some(ByPacket::InTurn) => packet,
                };
                place = match self.route_change {
                    Some((after, at)) if at == level => usize::from(packet >= after),
                    _ => next[random as usize % next.len()],
                };
            }
            (level, place)
        })
    }

    /// What comes back for a probe, and when.
    pub(crate) fn send(
        &mut self,
        now: Nanos,
        probe: &Probe,
        codec: &ProbeCodec,
    ) -> Vec<(Nanos, Answer)> {
        let way: Vec<(usize, usize)> = self.way(probe.flow, self.packets).collect();
        self.packets += 1;
        let mut class = probe.traffic_class();
        let mut is_translated = false;
        for (hop, (level, place)) in way.iter().copied().enumerate() {
            let distance = Nanos(self.link.0 * (hop as u64 + 1));
            if self.dice.chance(self.loss) {
                return Vec::new();
            }
            let router = self.levels[level][place].clone();
            let is_target = level + 1 == self.levels.len() || router.is_target;
            let is_used_up = usize::from(probe.ttl) == hop + 1;
            let does_not_fit = router.mtu.filter(|mtu| u32::from(probe.size) > *mtu);
            let kind = match (is_target, is_used_up, router.unreachable, does_not_fit) {
                (true, ..) => match codec.kind {
                    ProbeKind::Udp => AnswerKind::PortUnreachable,
                    ProbeKind::Icmp => AnswerKind::EchoReply,
                    ProbeKind::Tcp => AnswerKind::TcpSynAck,
                },
                (false, true, ..) => AnswerKind::TimeExceeded,
                (false, false, Some(code), _) => AnswerKind::Unreachable { code },
                (false, false, None, Some(_)) if router.hides_mtu => return Vec::new(),
                (false, false, None, Some(mtu)) => {
                    AnswerKind::TooBig { mtu: self.told_mtu.unwrap_or(mtu) }
                }
                _ => {
                    class = router.remark.unwrap_or(class);
                    is_translated |= router.is_nat;
                    continue;
                }
            };
            return self.answer(
                now,
                probe,
                codec,
                (level, place),
                distance,
                kind,
                class,
                is_translated,
            );
        }
        Vec::new()
    }

    #[allow(clippy::too_many_arguments, reason = "all that an answer depends on")]
    fn answer(
        &mut self,
        now: Nanos,
        probe: &Probe,
        codec: &ProbeCodec,
        (level, place): (usize, usize),
        distance: Nanos,
        kind: AnswerKind,
        class: u8,
        is_translated: bool,
    ) -> Vec<(Nanos, Answer)> {
        let short = self.short_quotes;
        let router = &mut self.levels[level][place];
        let is_error = !matches!(kind, AnswerKind::EchoReply | AnswerKind::TcpSynAck);
        let is_limited = match &mut router.bucket {
            Some(bucket) if is_error => !bucket.allows(now + distance),
            _ => false,
        };
        if router.is_silent || is_limited {
            return Vec::new();
        }
        let (from, slow) = (router.address, router.slow);
        let links = distance.0 / self.link.0.max(1);
        for _ in 0..links {
            if self.dice.chance(self.loss) {
                return Vec::new();
            }
        }
        let rtt = distance + distance + slow;
        let reply_ttl = Some((65u64.saturating_sub(links)) as u8);
        let answer = if kind == AnswerKind::TcpSynAck {
            let segment = syn_ack(&codec.transport(probe));
            codec.read_tcp(from, reply_ttl, &segment)
        } else {
            let message = icmp_message(codec, probe, kind, class, is_translated, short);
            codec.read_icmp(from, reply_ttl, &message)
        };
        let answer = answer.expect("a true answer is understood");
        assert_eq!(answer.kind, kind);
        self.truth.insert(probe.id.0, (from, rtt));
        let mut answers = vec![(now + rtt, answer.clone())];
        if self.duplicates {
            answers.push((now + rtt + Nanos::from_micros(300), answer));
        }
        answers
    }
}

/// The target's answer to a SYN.
fn syn_ack(syn: &[u8]) -> Vec<u8> {
    let mut answer = vec![0; 20];
    answer[..2].copy_from_slice(&syn[2..4]);
    answer[2..4].copy_from_slice(&syn[..2]);
    let sequence = u32::from_be_bytes(syn[4..8].try_into().unwrap());
    answer[4..8].copy_from_slice(&77u32.to_be_bytes());
    answer[8..12].copy_from_slice(&sequence.wrapping_add(1).to_be_bytes());
    answer[12] = 5 << 4;
    answer[13] = 0x12;
    answer
}

/// An ICMP message from its type on, with the packet as the router saw it.
pub(crate) fn icmp_message(
    codec: &ProbeCodec,
    probe: &Probe,
    kind: AnswerKind,
    class: u8,
    is_translated: bool,
    short: bool,
) -> Vec<u8> {
    let is_v6 = codec.target.is_ipv6();
    let transport = codec.transport(probe);
    if kind == AnswerKind::EchoReply {
        let mut reply = transport;
        reply[0] = if is_v6 { 129 } else { 0 };
        return reply;
    }
    let mut message = vec![0; 8];
    let (type_, code) = match (kind, is_v6) {
        (AnswerKind::TimeExceeded, false) => (11, 0),
        (AnswerKind::TimeExceeded, true) => (3, 0),
        (AnswerKind::PortUnreachable, false) => (3, 3),
        (AnswerKind::PortUnreachable, true) => (1, 4),
        (AnswerKind::Unreachable { code }, false) => (3, code),
        (AnswerKind::Unreachable { code }, true) => (1, code),
        (AnswerKind::TooBig { .. }, false) => (3, 4),
        (AnswerKind::TooBig { .. }, true) => (2, 0),
        _ => panic!("{kind:?} is no ICMP error"),
    };
    message[..2].copy_from_slice(&[type_, code]);
    if let AnswerKind::TooBig { mtu } = kind {
        message[4..8].copy_from_slice(&mtu.to_be_bytes());
    }
    let mut quote = ip_packet(codec, probe, &transport, class, 1);
    if is_translated {
        // Another source address; its port as well for UDP and TCP.
        let at = if is_v6 { 23 } else { 15 };
        quote[at] ^= 0x55;
    }
    let header = if is_v6 { 40 } else { 20 };
    let most = if is_v6 { 1_232 } else { 548 };
    quote.truncate(if short { header + 8 } else { most });
    message.extend_from_slice(&quote);
    message
}

/// The whole packet.
pub(crate) fn ip_packet(
    codec: &ProbeCodec,
    probe: &Probe,
    transport: &[u8],
    class: u8,
    ttl: u8,
) -> Vec<u8> {
    let mut packet = match (codec.source, codec.target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let length = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
            let id = codec.identification(probe.id).to_be_bytes();
            let mut header = vec![0x45, class, length[0], length[1], id[0], id[1], 0x40, 0];
            header.extend_from_slice(&[ttl, codec.protocol(), 0, 0]);
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&target.octets());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let length = u16::try_from(transport.len()).unwrap().to_be_bytes();
            let mut header = vec![0x60 | class >> 4, class << 4, 0, 0, length[0], length[1]];
            header.extend_from_slice(&[codec.protocol(), ttl]);
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&target.octets());
            header
        }
        _ => panic!("two families"),
    };
    packet.extend_from_slice(transport);
    packet
}

/// What all strategies have in common.
pub(crate) trait Machine {
    fn poll_transmit(&mut self, now: Nanos) -> Option<Probe>;
    fn handle_answer(&mut self, received: Nanos, answer: Answer);
    fn handle_timeout(&mut self, now: Nanos);
    fn poll_timeout(&self) -> Option<Nanos>;
    fn is_done(&self) -> bool;
    fn session(&self) -> u16;
}

macro_rules! machine {
    ($name:ty) => {
        impl Machine for $name {
            fn poll_transmit(&mut self, now: Nanos) -> Option<Probe> {
                <$name>::poll_transmit(self, now)
            }
            fn handle_answer(&mut self, received: Nanos, answer: Answer) {
                <$name>::handle_answer(self, received, answer);
            }
            fn handle_timeout(&mut self, now: Nanos) {
                <$name>::handle_timeout(self, now);
            }
            fn poll_timeout(&self) -> Option<Nanos> {
                <$name>::poll_timeout(self)
            }
            fn is_done(&self) -> bool {
                <$name>::is_done(self)
            }
            fn session(&self) -> u16 {
                <$name>::session(self)
            }
        }
    };
}
machine!(Tracer);
machine!(PathFinder);
machine!(PathMtu);

/// A run that has ended.
pub(crate) struct Run<M> {
    pub(crate) machine: M,
    pub(crate) sent: Vec<(Nanos, Probe)>,
    pub(crate) ended: Nanos,
}

/// Runs a machine over a network until it is done.
pub(crate) fn run<M: Machine>(mut machine: M, net: &mut Net, kind: ProbeKind) -> Run<M> {
    let codec = net.codec(kind, machine.session());
    let mut pending: BTreeMap<(Nanos, usize), Answer> = BTreeMap::new();
    for (number, (at, answer)) in std::mem::take(&mut net.noise).into_iter().enumerate() {
        pending.insert((at, usize::MAX - number), answer);
    }
    let mut sent = Vec::new();
    let mut now = Nanos::ZERO;
    let mut number = 0;
    for _ in 0..MAX_STEPS {
        machine.handle_timeout(now);
        while let Some(probe) = machine.poll_transmit(now) {
            for (at, answer) in net.send(now, &probe, &codec) {
                pending.insert((at, number), answer);
                number += 1;
            }
            sent.push((now, probe));
        }
        let Some(timer) = machine.poll_timeout() else {
            assert!(machine.is_done());
            return Run { machine, sent, ended: now };
        };
        match pending.first_key_value() {
            Some((&(at, _), _)) if at <= timer => {
                let (_, answer) = pending.pop_first().unwrap();
                now = now.max(at);
                machine.handle_answer(now, answer);
            }
            _ => now = now.max(timer),
        }
    }
    panic!("no end after {MAX_STEPS} steps, {} probes, {} ms", sent.len(), now.0 / 1_000_000);
}

/// A trace of a network, by UDP and the defaults.
pub(crate) fn trace(net: &mut Net) -> Run<Tracer> {
    let config = net.config();
    trace_with(net, config)
}

pub(crate) fn trace_with(net: &mut Net, config: TraceConfig) -> Run<Tracer> {
    let kind = config.kind;
    let tracer = Tracer::new(config, Nanos::ZERO, 42).expect("the configuration is in range");
    run(tracer, net, kind)
}

/// The smallest probe of a kind to a target.
pub(crate) fn smallest(kind: ProbeKind, target: IpAddr) -> u16 {
    least_size(kind, target)
}
