//! Requests in flight on a UDP flow. Any request and any answer may be lost or late.

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use linerate_core::plan::{ExchangeTest, MAX_DEPTH};
use linerate_core::wire::{StampAnswer, StampRequest};
use linerate_sys::poll::{self, Interest};
use linerate_sys::socket::{self, Arrival};

use super::pipeline::Requests;
use super::stamp;
use super::tag::{Patience, SLICE, Tag};
use super::tally::Tally;
use crate::clock::{now_ns, since_1970_ns};
use crate::retry::is_transient_for_datagrams;

/// Sends a datagram. An ICMP error that the kernel reports was caused by an earlier datagram.
pub(super) fn send(socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
    loop {
        match socket::send(socket, datagram) {
            Ok(_) => return Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives a datagram: its length and, with `stamp`, when and how it arrived.
pub(super) fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    stamp: bool,
) -> io::Result<(usize, Option<Arrival>)> {
    if !stamp {
        return Ok((socket::receive(socket, buffer)?, None));
    }
    let arrival = socket::receive_from(socket, buffer)?;
    Ok((arrival.length, Some(arrival)))
}

/// A request in flight. Its sequence number is `generation × slots + slot`, so that the number in
/// an answer leads to the slot. STAMP's numbers go up one by one; their slot is searched for.
#[derive(Clone, Copy, Default)]
struct RequestSlot {
    sequence: u64,
    start_ns: u64,
    sent_ns: u64,
    busy: bool,
}

pub(super) struct UdpRequests<'a> {
    socket: &'a UdpSocket,
    tag: Tag,
    /// For STAMP's packets: the session's number, and the sequence number of the next request.
    stamp: Option<(u16, u32)>,
    patience: Patience,
    request: Vec<u8>,
    response: Vec<u8>,
    /// Their number is a power of two, as the number of tags is.
    slots: Vec<RequestSlot>,
    /// The slot that has been free for longest is first, so that a tag repeats as late as possible.
    free: VecDeque<u32>,
    /// The slot whose request the kernel has not taken.
    unsent: Option<u32>,
    next_look_ns: u64,
}

impl<'a> UdpRequests<'a> {
    pub(super) fn new(socket: &'a UdpSocket, test: &ExchangeTest, flow: u32) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        if test.stamp {
            socket::note_arrivals(socket)?;
        }
        let tag = Tag::new(test);
        let depth = if test.rate_per_s.is_some() { MAX_DEPTH } else { test.depth };
        let slots = u64::from(depth.next_power_of_two()).min(tag.most_under_way()) as u32;
        Ok(Self {
            socket,
            tag,
            // No session has the number 0 (RFC 8972, 3).
            stamp: test.stamp.then_some((flow as u16 + 1, 0)),
            patience: Patience::default(),
            request: vec![0x5a; test.request_bytes as usize],
            // One byte more than a response has, so that a longer datagram is not taken for one. Of
            // a STAMP packet only the front has a meaning.
            response: vec![0; test.response_bytes as usize + 1],
            slots: (0..slots)
                .map(|slot| RequestSlot { sequence: slot.into(), ..RequestSlot::default() })
                .collect(),
            free: (0..slots).collect(),
            unsent: None,
            next_look_ns: 0,
        })
    }

    /// The slot of the request that `response` answers, if the request still waits.
    fn slot_of_response(&self) -> Option<usize> {
        let is_it = |slot: &RequestSlot| slot.busy && self.tag.is(slot.sequence, &self.response);
        if self.stamp.is_some() {
            return self.slots.iter().position(is_it);
        }
        let slot = self.tag.read(&self.response) as usize & (self.slots.len() - 1);
        is_it(&self.slots[slot]).then_some(slot)
    }

    fn release(&mut self, slot: usize) -> RequestSlot {
        let stride = self.slots.len() as u64;
        let entry = &mut self.slots[slot];
        let was = *entry;
        entry.busy = false;
        entry.sequence = entry.sequence.wrapping_add(stride);
        self.free.push_back(slot as u32);
        was
    }
}

impl Requests for UdpRequests<'_> {
    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn is_blocked(&self) -> bool {
        self.unsent.is_some()
    }

    fn has_number(&self) -> bool {
        !self.free.is_empty()
    }

    fn begin(&mut self, start_ns: u64, now_ns: u64) -> io::Result<()> {
        let slot = self.free.pop_front().expect("asked has_number before");
        let entry = &mut self.slots[slot as usize];
        (entry.start_ns, entry.sent_ns, entry.busy) = (start_ns, now_ns, true);
        if let Some((_, number)) = &mut self.stamp {
            // STAMP's numbers go up one by one, whichever slot is free.
            entry.sequence = u64::from(*number);
            *number = number.wrapping_add(1);
        }
        self.unsent = Some(slot);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(slot) = self.unsent else {
            return Ok(());
        };
        let sequence = self.slots[slot as usize].sequence;
        match self.stamp {
            Some((session, _)) => {
                StampRequest { sequence: sequence as u32, sent_ns: since_1970_ns(), session }
                    .write(&mut self.request)
            }
            None => self.tag.write(sequence, &mut self.request),
        }
        match send(self.socket, &self.request) {
            Ok(()) => self.unsent = None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn receive(&mut self, tally: &mut Tally<'_>) -> io::Result<bool> {
        let stamp = self.stamp.is_some();
        let (n, arrival) = match receive(self.socket, &mut self.response, stamp) {
            Ok(received) => received,
            Err(error) if is_transient_for_datagrams(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        // Reflectors may pad their answers to any length.
        let is_whole = match self.stamp {
            Some(_) => StampAnswer::read(&self.response[..n]).is_some(),
            None => n + 1 == self.response.len(),
        };
        if !is_whole {
            return Ok(true);
        }
        let Some(slot) = self.slot_of_response() else {
            return Ok(true);
        };
        let entry = self.slots[slot];
        let now = now_ns();
        self.patience.learn(now - entry.sent_ns);
        self.release(slot);
        tally.answered(entry.start_ns, now);
        if let Some(arrival) = arrival
            && let Some(answer) = StampAnswer::read(&self.response)
        {
            tally.stamped(entry.start_ns, &answer, stamp::arrived_ns(&arrival));
        }
        Ok(true)
    }

    fn expire(&mut self, now_ns: u64, tally: &mut Tally<'_>) {
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns + SLICE.as_nanos() as u64;
        let limit = self.patience.limit_ns();
        for slot in 0..self.slots.len() {
            let entry = self.slots[slot];
            if entry.busy && now_ns - entry.sent_ns > limit && self.unsent != Some(slot as u32) {
                tally.failed(self.release(slot).start_ns);
            }
        }
    }

    fn abandon(&mut self, tally: &mut Tally<'_>) {
        for entry in self.slots.iter().filter(|entry| entry.busy) {
            tally.abandoned(entry.start_ns);
        }
    }

    fn wait(&self, interest: Interest, timeout: Duration) -> io::Result<bool> {
        poll::wait_ready(self.socket, interest, timeout)
    }
}
