//! The sockets of a trace: probes out, answers in.
//!
//! The methods that show the most are tried first. What a host does not allow is replaced by what
//! it does allow; the document names the [`Method`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_core::trace::{
    Answer, AnswerKind, Probe, ProbeCodec, ProbeIdentity, ProbeKind, Quoted,
};
use linerate_core::units::Nanos;
use linerate_sys::errno::{EMSGSIZE, ENOBUFS, ENODEV, ENOPROTOOPT, EPROTO};
use linerate_sys::poll::{Poller, wait_readable};
use linerate_sys::probe::{
    ErrorOrigin, ExtendedError, ProbeSocket, ReceiveBuffer, Received, source_for,
};

use super::findings::TraceError;
use super::syn::SynProbes;

/// How probes are sent and answers received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// UDP datagrams; all ICMP messages by a raw socket.
    UdpRaw,
    /// UDP datagrams with their error queue.
    UdpErrors,
    /// Echo requests by a raw ICMP socket.
    IcmpRaw,
    /// Echo requests by an ICMP datagram socket with its error queue.
    IcmpErrors,
    /// SYN segments by a raw TCP socket; all ICMP messages by another.
    TcpRaw,
    /// A connection attempt for each probe.
    TcpConnect,
}

impl Method {
    /// Its name, as in a document.
    pub fn name(self) -> &'static str {
        match self {
            Self::UdpRaw => "UDP socket, raw ICMP socket",
            Self::UdpErrors => "UDP socket with error queue",
            Self::IcmpRaw => "raw ICMP socket",
            Self::IcmpErrors => "ICMP datagram socket with error queue",
            Self::TcpRaw => "raw TCP and ICMP sockets",
            Self::TcpConnect => "TCP connection attempts with error queues",
        }
    }

    /// What cannot be known this way, and could with `CAP_NET_RAW`.
    pub(crate) fn blind_spot(self) -> Option<&'static str> {
        match self {
            Self::UdpRaw | Self::IcmpRaw | Self::TcpRaw => None,
            Self::UdpErrors | Self::IcmpErrors => Some(
                "without CAP_NET_RAW the quoted headers are not seen: no DSCP or ECN on the way, \
                 no MPLS labels, no NAT",
            ),
            Self::TcpConnect => Some(
                "without CAP_NET_RAW each SYN has a source port of its own, so that equal-cost \
                 paths mix, and the quoted \
                 headers are not seen: no DSCP or ECN on the way, no MPLS labels, no NAT",
            ),
        }
    }
}

/// Where a trace goes, and how.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) target: IpAddr,
    pub(super) source: IpAddr,
    pub(super) device: Option<String>,
    pub(super) kind: ProbeKind,
    pub(super) port: u16,
    /// Source port or identifier that was used before: another one would be another flow.
    pub(super) local_port: Option<u16>,
}

/// The first source port of TCP probes: above the range that kernels take ports from, so that no
/// connection of this host has one (net.ipv4.ip_local_port_range is 32768 to 60999 by default).
const FIRST_TCP_PORT: u16 = 61_000;
/// Sending fails with an earlier error that waits on the socket; so many may wait in a row.
const ATTEMPTS: u32 = 16;

impl Way {
    pub(super) fn find(
        (target, source): (IpAddr, Option<IpAddr>),
        device: Option<String>,
        (kind, port): (ProbeKind, u16),
    ) -> Result<Self, TraceError> {
        if let Some(source_address) = source
            && source_address.is_ipv4() != target.is_ipv4()
        {
            return Err(TraceError::Families { source_address, target });
        }
        let found = source_for(target, device.as_deref()).map_err(|source| {
            match (source.kind(), &device) {
                (io::ErrorKind::NotFound, Some(device)) => no_device(device, source),
                _ if source.raw_os_error() == Some(ENODEV) => {
                    no_device(device.as_deref().unwrap_or_default(), source)
                }
                _ => TraceError::NoRoute { target, device: device.clone(), source },
            }
        })?;
        Ok(Self { target, source: source.unwrap_or(found), device, kind, port, local_port: None })
    }
}

fn no_device(device: &str, source: io::Error) -> TraceError {
    TraceError::Device { device: device.to_owned(), source }
}

/// Sockets with what their bytes mean.
pub(super) struct ProbeChannel {
    codec: ProbeCodec,
    method: Method,
    /// Sends, and receives unless `listener` does.
    sender: Option<ProbeSocket>,
    /// Receives all ICMP messages.
    listener: Option<ProbeSocket>,
    syn_probes: Option<SynProbes>,
    poller: Poller,
    buffer: ReceiveBuffer,
}

impl ProbeChannel {
    /// Sockets for probes of that way with the session's number.
    pub(super) fn open(way: &mut Way, session: u16) -> Result<Self, TraceError> {
        let poller = Poller::new().map_err(|source| kernel("make a poller", source))?;
        let mut channel = Self {
            codec: ProbeCodec {
                kind: way.kind,
                source: way.source,
                target: way.target,
                source_port: 0,
                target_port: way.port,
                session,
            },
            method: Method::UdpRaw,
            sender: None,
            listener: None,
            syn_probes: None,
            poller,
            buffer: ReceiveBuffer::new(),
        };
        match way.kind {
            ProbeKind::Udp => channel.open_udp(way)?,
            ProbeKind::Icmp => channel.open_icmp(way)?,
            ProbeKind::Tcp => channel.open_tcp(way)?,
        }
        for socket in [&channel.sender, &channel.listener].into_iter().flatten() {
            let added = channel.poller.add(socket, 0);
            added.map_err(|source| kernel("watch a socket", source))?;
        }
        way.local_port = Some(channel.codec.source_port);
        Ok(channel)
    }

    pub(super) fn method(&self) -> Method {
        self.method
    }

    fn open_udp(&mut self, way: &Way) -> Result<(), TraceError> {
        let device = way.device.as_deref();
        self.listener = if_allowed("ICMP", way, ProbeSocket::icmp(way.source, device))?;
        let has_raw = self.listener.is_some();
        let local = |port| SocketAddr::new(way.source, port);
        let open = |port| ProbeSocket::udp(local(port), device, !has_raw);
        let before = way.local_port.and_then(|port| open(port).ok());
        let sender = before.map_or_else(|| open(0), Ok);
        let sender =
            sender.map_err(|source| no_socket("UDP", way, "an address of this host", source))?;
        self.codec.source_port = local_port(&sender)?;
        self.sender = Some(sender);
        self.method = if has_raw { Method::UdpRaw } else { Method::UdpErrors };
        Ok(())
    }

    fn open_icmp(&mut self, way: &Way) -> Result<(), TraceError> {
        let device = way.device.as_deref();
        if let Some(raw) = if_allowed("ICMP", way, ProbeSocket::icmp(way.source, device))? {
            // The session's number will do as the identifier; core tells others' answers by the
            // payload.
            self.codec.source_port = way.local_port.unwrap_or(self.codec.session);
            self.sender = Some(raw);
            self.method = Method::IcmpRaw;
            return Ok(());
        }
        let needs = "CAP_NET_RAW, or a group of the caller's in sysctl net.ipv4.ping_group_range; \
                     --protocol udp needs neither";
        let socket = ProbeSocket::echo(way.source, device)
            .map_err(|source| no_socket("ICMP", way, needs, source))?;
        self.codec.source_port = local_port(&socket)?;
        self.sender = Some(socket);
        self.method = Method::IcmpErrors;
        Ok(())
    }

    fn open_tcp(&mut self, way: &Way) -> Result<(), TraceError> {
        let device = way.device.as_deref();
        let raw = ProbeSocket::tcp(way.source, device, way.port).and_then(|tcp| {
            let icmp = ProbeSocket::icmp(way.source, device)?;
            Ok((tcp, icmp))
        });
        let fresh = FIRST_TCP_PORT + self.codec.session % 2_048;
        self.codec.source_port = way.local_port.unwrap_or(fresh);
        match if_allowed("TCP", way, raw)? {
            Some((tcp, icmp)) => {
                self.sender = Some(tcp);
                self.listener = Some(icmp);
                self.method = Method::TcpRaw;
            }
            None => {
                self.syn_probes = Some(SynProbes::new(way.clone(), self.codec.clone()));
                self.method = Method::TcpConnect;
            }
        }
        Ok(())
    }

    /// Sends a probe. A full queue or an unreachable neighbour is a lost probe and no error.
    pub(super) fn send(&mut self, probe: &Probe) -> Result<(), TraceError> {
        if let Some(syn_probes) = &mut self.syn_probes {
            return syn_probes.send(probe, &self.poller);
        }
        let Some(sender) = &self.sender else {
            return Ok(());
        };
        let bytes = match self.method {
            Method::IcmpRaw | Method::TcpRaw => self.codec.transport(probe),
            _ => self.codec.datagram(probe),
        };
        let port = self.codec.ports(probe.flow).map_or(0, |(_, target)| target);
        let to = SocketAddr::new(self.codec.target, port);
        for _ in 0..ATTEMPTS {
            match sender.send(to, probe.ttl, probe.traffic_class(), &bytes) {
                Ok(()) => return Ok(()),
                // An answer to an earlier probe; it stays in the error queue.
                Err(error) if is_of_path(&error) => {}
                Err(error) if is_momentary(&error) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(EMSGSIZE) => {
                    return Err(TraceError::TooLarge { size: probe.size });
                }
                Err(source) => return Err(kernel("send a probe", source)),
            }
        }
        Ok(())
    }

    /// Waits until something may have come, or for `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> Result<(), TraceError> {
        let waited = wait_readable(&self.poller, timeout);
        waited.map_err(|source| kernel("wait for answers", source))?;
        Ok(())
    }

    /// All answers that have come, with their times.
    pub(super) fn receive(
        &mut self,
        answer: &mut dyn FnMut(Nanos, Answer),
    ) -> Result<(), TraceError> {
        if let Some(syn_probes) = &mut self.syn_probes {
            return syn_probes.receive(&mut self.poller, &mut self.buffer, answer);
        }
        if let Some(listener) = &self.listener {
            drain(listener, &mut self.buffer, |received| {
                read_message(&self.codec, false, received, answer);
            });
        }
        let Some(sender) = &self.sender else {
            return Ok(());
        };
        if matches!(self.method, Method::UdpErrors | Method::IcmpErrors) {
            drain_errors(sender, &mut self.buffer, |received| {
                read_error(&self.codec, received, answer);
            });
        }
        // Replies to UDP probes say nothing; they are only taken out of the queue.
        let is_read = !matches!(self.method, Method::UdpRaw | Method::UdpErrors);
        let is_segment = self.method == Method::TcpRaw;
        if self.method != Method::UdpRaw {
            drain(sender, &mut self.buffer, |received| {
                if is_read {
                    read_message(&self.codec, is_segment, received, answer);
                }
            });
        }
        Ok(())
    }
}

fn local_port(socket: &ProbeSocket) -> Result<u16, TraceError> {
    socket
        .local_address()
        .map(|address| address.port())
        .map_err(|source| kernel("read a socket's address", source))
}

/// `None` if it takes privileges that this process lacks.
fn if_allowed<T>(
    what: &'static str,
    way: &Way,
    made: io::Result<T>,
) -> Result<Option<T>, TraceError> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(no_socket(what, way, "a raw socket on an address of this host", error)),
    }
}

fn no_socket(what: &'static str, way: &Way, needs: &str, source: io::Error) -> TraceError {
    TraceError::NoSocket { what, address: way.source, needs: format!("it needs {needs}"), source }
}

pub(super) fn kernel(what: &str, source: io::Error) -> TraceError {
    TraceError::Kernel { what: what.to_owned(), source }
}

/// An ICMP error that waited on the socket.
fn is_of_path(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let is_unreachable =
        matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable);
    is_unreachable || matches!(error.raw_os_error(), Some(EPROTO | ENOPROTOOPT))
}

/// The probe is lost on this host: no room in a queue, a firewall.
fn is_momentary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::PermissionDenied)
        || error.raw_os_error() == Some(ENOBUFS)
}

// From what the sockets receive to answers for the strategies.

pub(super) fn drain(
    socket: &ProbeSocket,
    buffer: &mut ReceiveBuffer,
    mut read: impl FnMut(&Received<'_>),
) {
    loop {
        match socket.receive(buffer) {
            Ok(Some(received)) => read(&received),
            Ok(None) => return,
            // An ICMP error: it is in the error queue as well, and cleared here.
            Err(_) => {}
        }
    }
}

pub(super) fn drain_errors(
    socket: &ProbeSocket,
    buffer: &mut ReceiveBuffer,
    mut read: impl FnMut(&Received<'_>),
) {
    while let Ok(Some(received)) = socket.receive_error(buffer) {
        read(&received);
    }
}

/// Reads an ICMP message, or a TCP segment if `is_segment`. What is not ours is another program's.
pub(super) fn read_message(
    codec: &ProbeCodec,
    is_segment: bool,
    received: &Received<'_>,
    answer: &mut dyn FnMut(Nanos, Answer),
) {
    let Some(from) = received.from else { return };
    let read = if is_segment {
        codec.read_tcp(from.ip(), received.ttl, received.bytes)
    } else {
        codec.read_icmp(from.ip(), received.ttl, received.bytes)
    };
    if let Ok(found) = read {
        answer(Nanos(received.at_ns), found);
    }
}

/// An entry of the error queue: the probe by its payload, its flow by the port that it was sent to.
pub(super) fn read_error(
    codec: &ProbeCodec,
    received: &Received<'_>,
    answer: &mut dyn FnMut(Nanos, Answer),
) {
    let identity = codec.identify_datagram(received.bytes);
    let (Some(error), Some(identity)) = (received.error, identity) else {
        return;
    };
    let port = received.from.map(|to| to.port());
    let flow = match codec.kind {
        ProbeKind::Udp => port.and_then(|port| port.checked_sub(codec.target_port)),
        ProbeKind::Icmp | ProbeKind::Tcp => identity.flow,
    };
    let identity = ProbeIdentity { flow, ..identity };
    if let Some(found) = answer_of(error, received.ttl, identity) {
        answer(Nanos(received.at_ns), found);
    }
}

/// What an error of the queue says of a probe; `None` for this host's own errors and what no probe
/// causes.
pub(super) fn answer_of(
    error: ExtendedError,
    reply_ttl: Option<u8>,
    identity: ProbeIdentity,
) -> Option<Answer> {
    let kind = match (error.origin, error.kind, error.code) {
        (ErrorOrigin::Icmp, 11, 0) | (ErrorOrigin::Icmpv6, 3, 0) => AnswerKind::TimeExceeded,
        (ErrorOrigin::Icmp, 3, 3) | (ErrorOrigin::Icmpv6, 1, 4) => AnswerKind::PortUnreachable,
        (ErrorOrigin::Icmp, 3, 4) | (ErrorOrigin::Icmpv6, 2, _) => {
            AnswerKind::TooBig { mtu: error.info }
        }
        (ErrorOrigin::Icmp, 3, code) | (ErrorOrigin::Icmpv6, 1, code) => {
            AnswerKind::Unreachable { code }
        }
        _ => return None,
    };
    Some(Answer {
        identity,
        from: error.offender?,
        kind,
        reply_ttl,
        quoted: Quoted::default(),
        mpls: Vec::new(),
    })
}
