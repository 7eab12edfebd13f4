//! Turns what the sockets receive into answers for the strategies.

use linerate_core::trace::{Answer, AnswerKind, ProbeCodec, ProbeIdentity, ProbeKind, Quoted};
use linerate_core::units::Nanos;
use linerate_sys::probe::{ErrorOrigin, ExtendedError, ProbeSocket, ReceiveBuffer, Received};

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
