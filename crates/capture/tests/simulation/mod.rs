//! A TCP transfer in virtual time, and the file that a capture of it makes, byte by byte.

#![allow(dead_code, reason = "each program uses a part")]

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// How frames stand in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Layer {
    Ethernet,
    /// So many VLAN tags.
    Vlan(u8),
    Cooked,
    Cooked2,
    Raw,
}

/// How the file is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct File {
    pub(crate) layer: Layer,
    pub(crate) is_ng: bool,
    /// The kind of pcapng block that packets stand in: 2 obsolete, 3 simple, 6 enhanced.
    pub(crate) block: u32,
    pub(crate) is_big_endian: bool,
    pub(crate) nanoseconds: bool,
    pub(crate) ipv6: bool,
    /// IPv6 extension headers before TCP.
    pub(crate) extensions: bool,
    pub(crate) snap: usize,
}

pub(crate) const USUAL: File = File {
    layer: Layer::Ethernet,
    is_ng: false,
    block: 6,
    is_big_endian: false,
    nanoseconds: false,
    ipv6: false,
    extensions: false,
    snap: 96,
};

/// A transfer from 192.0.2.1 to 192.0.2.2.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub(crate) bytes: u64,
    pub(crate) mss: u32,
    pub(crate) rtt_us: u64,
    /// Where it is captured, per cent of the way from the sender.
    pub(crate) place: u64,
    /// The receiver's window, bytes: a multiple of 128, below 8 MiB.
    pub(crate) window: u64,
    pub(crate) congestion_window: u64,
    /// Bits per second of the slowest link, with an endless queue.
    pub(crate) link_bps: u64,
    /// That link is before the capture.
    pub(crate) queue_before: bool,
    /// Data packets that are lost behind the capture and before it, by number.
    pub(crate) lost: BTreeSet<u64>,
    pub(crate) lost_before: bool,
    pub(crate) timestamps: bool,
    /// Tick of both ends' timestamps.
    pub(crate) tick_us: u64,
    /// The sender writes so much at once, and then waits.
    pub(crate) burst: Option<(u64, u64)>,
    /// Bits per second at which its own clock lets frames go.
    pub(crate) pace_bps: Option<u64>,
    pub(crate) first_seq: u32,
    /// Segments of one frame.
    pub(crate) offload: u32,
    pub(crate) handshake: bool,
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            bytes: 2_000_000,
            mss: 1448,
            rtt_us: 20_000,
            place: 0,
            window: 64 * 1024,
            congestion_window: 1 << 30,
            link_bps: 1_000_000_000,
            queue_before: false,
            lost: BTreeSet::new(),
            lost_before: false,
            timestamps: true,
            tick_us: 1000,
            burst: None,
            pace_bps: None,
            first_seq: 1000,
            offload: 1,
            handshake: true,
        }
    }
}

/// What was captured.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) at_us: u64,
    pub(crate) from_sender: bool,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) payload: u32,
    pub(crate) options: Vec<u8>,
    pub(crate) ip_id: u16,
    pub(crate) ttl: u8,
}

/// What is known of it.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) packets: Vec<Packet>,
    pub(crate) retransmitted: u64,
    pub(crate) most_in_flight: u64,
    pub(crate) seconds: f64,
}

const SCALE: u8 = 7;
const ISN_OF_PEER: u32 = 0xffff_fff0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// At the receiver: offset, bytes, the sender's clock.
    Data(u64, u32, u32),
    /// At the sender: acknowledged, start and end of what is beyond a gap, the receiver's clock.
    Ack(u64, u64, u64, u32),
    Write,
    Clock,
}

struct Run<'a> {
    transfer: &'a Transfer,
    now: u64,
    due: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    truth: Truth,
    sent: u64,
    acked: u64,
    written: u64,
    number: u64,
    /// The clock lets the next frame go then.
    due_to_send: u64,
    link_free: u64,
    echo: u32,
    repaired: BTreeSet<u64>,
    ip_id: u16,
}

impl Transfer {
    /// Runs it.
    pub(crate) fn run(&self) -> Truth {
        let mut run = Run {
            transfer: self,
            now: 1_000_000,
            due: BinaryHeap::new(),
            order: 0,
            truth: Truth::default(),
            sent: 0,
            acked: 0,
            written: self.burst.map_or(self.bytes, |(bytes, _)| bytes),
            number: 0,
            due_to_send: 0,
            link_free: 0,
            echo: 0,
            repaired: BTreeSet::new(),
            ip_id: 1,
        };
        run.handshake();
        run.transfer();
        run.truth.packets.sort_by_key(|packet| packet.at_us);
        run.truth.seconds = (run.now - 1_000_000 - self.rtt_us) as f64 / 1e6;
        run.truth
    }

    /// TCP's clock.
    fn clock(&self, at_us: u64) -> u32 {
        (at_us / self.tick_us) as u32
    }

    fn before_capture(&self) -> u64 {
        self.rtt_us / 2 * self.place / 100
    }

    fn behind_capture(&self) -> u64 {
        self.rtt_us / 2 - self.before_capture()
    }
}

impl Run<'_> {
    fn handshake(&mut self) {
        let transfer = self.transfer;
        let (begin, half) = (self.now, transfer.rtt_us / 2);
        let (near, far) = (transfer.before_capture(), transfer.behind_capture());
        self.now += 2 * half;
        if !transfer.handshake {
            return;
        }
        let mut options = vec![2, 4];
        options.extend((transfer.mss as u16 + 12 * u16::from(transfer.timestamps)).to_be_bytes());
        options.extend([4, 2, 3, 3, SCALE, 1]);
        let stamped = |at: u64, echo: u32| {
            let mut options = options.clone();
            if transfer.timestamps {
                options.extend([1, 1, 8, 10]);
                options.extend(transfer.clock(at).to_be_bytes());
                options.extend(echo.to_be_bytes());
            }
            while options.len() % 4 != 0 {
                options.push(0);
            }
            options
        };
        let syn = (transfer.first_seq, 0, 0x02, stamped(begin, 0));
        let answer = (
            ISN_OF_PEER,
            transfer.first_seq.wrapping_add(1),
            0x12,
            stamped(begin + half, transfer.clock(begin)),
        );
        for (at, from_sender, (seq, ack, flags, options)) in
            [(begin + near, true, syn), (begin + half + far, false, answer)]
        {
            self.truth.packets.push(Packet {
                at_us: at,
                from_sender,
                seq,
                ack,
                flags,
                window: 64_240,
                payload: 0,
                options,
                ip_id: 0,
                ttl: 64,
            });
        }
        self.echo = transfer.clock(begin + half);
        self.segment([2 * half + begin; 2], 0, 0, true);
    }

    /// A data segment, or the pure acknowledgement of the handshake; when it is stamped, and when it
    /// leaves.
    fn segment(&mut self, [stamped, at]: [u64; 2], offset: u64, payload: u32, captured: bool) {
        if !captured {
            return;
        }
        self.ip_id = self.ip_id.wrapping_add(1).max(1);
        let transfer = self.transfer;
        self.truth.packets.push(Packet {
            at_us: at + transfer.before_capture(),
            from_sender: true,
            seq: transfer.first_seq.wrapping_add(1).wrapping_add(offset as u32),
            ack: ISN_OF_PEER.wrapping_add(1),
            flags: 0x10,
            window: 500,
            payload,
            options: stamps(transfer, transfer.clock(stamped), self.echo),
            ip_id: self.ip_id,
            ttl: 64,
        });
    }

    fn transfer(&mut self) {
        if let Some((_, wait)) = self.transfer.burst {
            self.at(self.now + wait, Event::Write);
        }
        self.send();
        let (mut received, mut beyond) = (0_u64, BTreeSet::<(u64, u64)>::new());
        while let Some(Reverse((at, _, event))) = self.due.pop() {
            self.now = at;
            match event {
                Event::Write => {
                    if let Some((bytes, wait)) = self.transfer.burst {
                        self.written = (self.written + bytes).min(self.transfer.bytes);
                        if self.written < self.transfer.bytes {
                            self.at(at + wait, Event::Write);
                        }
                    }
                    self.send();
                }
                Event::Clock => self.send(),
                Event::Data(offset, bytes, value) => {
                    let end = offset + u64::from(bytes);
                    if offset <= received {
                        received = received.max(end);
                        while let Some((start, end)) = beyond.first().copied() {
                            if start > received {
                                break;
                            }
                            received = received.max(end);
                            beyond.pop_first();
                        }
                    } else {
                        beyond.insert((offset, end));
                    }
                    self.acknowledge(received, &beyond, value);
                }
                Event::Ack(ack, start, end, value) => self.handle_ack(ack, start, end, value),
            }
        }
    }

    fn acknowledge(&mut self, received: u64, beyond: &BTreeSet<(u64, u64)>, value: u32) {
        let transfer = self.transfer;
        let own = transfer.clock(self.now);
        let mut options = stamps(transfer, own, value);
        let block = beyond
            .first()
            .map_or((0, 0), |first| (first.0, beyond.last().expect("the first is there").1));
        if block.1 > 0 {
            let base = transfer.first_seq.wrapping_add(1);
            options.extend([1, 1, 5, 10]);
            options.extend(base.wrapping_add(block.0 as u32).to_be_bytes());
            options.extend(base.wrapping_add(block.1 as u32).to_be_bytes());
        }
        self.truth.packets.push(Packet {
            at_us: self.now + transfer.behind_capture(),
            from_sender: false,
            seq: ISN_OF_PEER.wrapping_add(1),
            ack: transfer.first_seq.wrapping_add(1).wrapping_add(received as u32),
            flags: 0x10,
            window: (transfer.window >> SCALE) as u16,
            payload: 0,
            options,
            ip_id: 0,
            ttl: 64,
        });
        let arrives = self.now + transfer.rtt_us / 2;
        self.at(arrives, Event::Ack(received, block.0, block.1, own));
    }

    fn handle_ack(&mut self, ack: u64, start: u64, end: u64, value: u32) {
        if ack >= self.acked {
            self.echo = value;
        }
        self.acked = self.acked.max(ack);
        if end > start && start > ack && self.repaired.insert(ack) {
            // The first gap is sent again, once.
            let bytes = (start - ack).min(u64::from(self.transfer.mss)) as u32;
            self.truth.retransmitted += 1;
            self.send_segment(ack, bytes);
        }
        self.send();
    }

    fn send(&mut self) {
        let most = u64::from(self.transfer.mss * self.transfer.offload);
        loop {
            let window = self.transfer.window.min(self.transfer.congestion_window);
            let room = (self.acked + window).saturating_sub(self.sent);
            let waiting = self.written.min(self.transfer.bytes) - self.sent.min(self.written);
            let bytes = most.min(waiting);
            let least = u64::from(self.transfer.mss).min(waiting);
            if waiting == 0 || room < least {
                return;
            }
            let bytes = bytes
                .min(room / u64::from(self.transfer.mss).max(1) * u64::from(self.transfer.mss))
                .max(least);
            if let Some(pace) = self.transfer.pace_bps {
                if self.now < self.due_to_send {
                    return;
                }
                self.due_to_send = self.now + bytes * 8_000_000 / pace;
                self.at(self.due_to_send, Event::Clock);
            }
            let offset = self.sent;
            self.sent += bytes;
            self.truth.most_in_flight = self.truth.most_in_flight.max(self.sent - self.acked);
            self.send_segment(offset, bytes as u32);
        }
    }

    fn send_segment(&mut self, offset: u64, bytes: u32) {
        // The first gap is filled once, and without a timeout: that retransmission arrives.
        let is_repair = self.repaired.contains(&offset);
        let is_lost = !is_repair && self.transfer.lost.contains(&self.number);
        self.number += 1;
        let takes = u64::from(bytes) * 8 * 1_000_000 / self.transfer.link_bps;
        let free = self.link_free.max(self.now) + takes;
        let leaves = if self.transfer.queue_before { free } else { self.now };
        let captured = !(is_lost && self.transfer.lost_before);
        self.segment([self.now, leaves], offset, bytes, captured);
        if is_lost {
            return;
        }
        self.link_free = free;
        let arrives = self.link_free + self.transfer.rtt_us / 2;
        self.at(arrives, Event::Data(offset, bytes, self.transfer.clock(self.now)));
    }

    fn at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.due.push(Reverse((at, self.order, event)));
    }
}

fn stamps(transfer: &Transfer, value: u32, echo: u32) -> Vec<u8> {
    if !transfer.timestamps {
        return Vec::new();
    }
    let mut options = vec![1, 1, 8, 10];
    options.extend(value.to_be_bytes());
    options.extend(echo.to_be_bytes());
    options
}

impl File {
    /// The bytes of a file with these packets, their headers alone.
    pub(crate) fn write(&self, packets: &[Packet]) -> Vec<u8> {
        self.write_with(packets, false)
    }

    /// With their payload, as far as it is kept.
    pub(crate) fn write_whole(&self, packets: &[Packet]) -> Vec<u8> {
        self.write_with(packets, true)
    }

    fn write_with(&self, packets: &[Packet], is_whole: bool) -> Vec<u8> {
        let mut file = self.head();
        for packet in packets {
            let mut frame = self.frame(packet);
            let wire = frame.len() + packet.payload as usize;
            if is_whole {
                frame.resize(wire, 0);
            }
            let kept = &frame[..frame.len().min(self.snap)];
            let wire = wire as u32;
            let at = packet.at_us;
            if self.is_ng {
                let ticks = if self.nanoseconds { at * 1000 } else { at };
                let mut body = Vec::new();
                let timed = [0, (ticks >> 32) as u32, ticks as u32, kept.len() as u32, wire];
                let words = if self.block == 3 { &timed[4..] } else { &timed };
                words.iter().for_each(|word| body.extend(self.word(*word)));
                body.extend(kept);
                body.resize(body.len().next_multiple_of(4), 0);
                self.block(&mut file, self.block, &body);
            } else {
                let part = at % 1_000_000 * if self.nanoseconds { 1000 } else { 1 };
                let words = [(at / 1_000_000) as u32, part as u32, kept.len() as u32, wire];
                words.iter().for_each(|word| file.extend(self.word(*word)));
                file.extend(kept);
            }
        }
        file
    }

    /// With these options (code, length said, value) in each block, an end of options or none, and
    /// with the places of its blocks.
    pub(crate) fn write_blocks(
        &self,
        packets: &[Packet],
        options: &[(u16, u16, Vec<u8>)],
        ends: bool,
    ) -> (Vec<u8>, Vec<(usize, usize)>) {
        let mut more = Vec::new();
        for (code, length, value) in options {
            more.extend(self.half(*code));
            more.extend(self.half(*length));
            more.extend(value);
            more.resize(more.len().next_multiple_of(4), 0);
        }
        if ends {
            more.extend([0; 4]);
        }
        let plain = self.write(packets);
        let (mut file, mut blocks, mut at) = (Vec::new(), Vec::new(), 0);
        while at < plain.len() {
            let field: [u8; 4] = plain[at + 4..at + 8].try_into().expect("four bytes");
            let length = if self.is_big_endian {
                u32::from_be_bytes(field)
            } else {
                u32::from_le_bytes(field)
            } as usize;
            let kind: [u8; 4] = plain[at..at + 4].try_into().expect("four bytes");
            let kind = if self.is_big_endian {
                u32::from_be_bytes(kind)
            } else {
                u32::from_le_bytes(kind)
            };
            let begin = file.len();
            let body = [&plain[at + 8..at + length - 4], &more[..]].concat();
            self.block(&mut file, kind, &body);
            blocks.push((begin, file.len()));
            at += length;
        }
        (file, blocks)
    }

    fn head(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let link: u16 = match self.layer {
            Layer::Ethernet | Layer::Vlan(_) => 1,
            Layer::Cooked => 113,
            Layer::Cooked2 => 276,
            Layer::Raw => 101,
        };
        if self.is_ng {
            let mut body = self.word(0x1a2b_3c4d).to_vec();
            body.extend(self.half(1));
            body.extend(self.half(0));
            body.extend([0xff; 8]);
            self.block(&mut file, 0x0a0d_0d0a, &body);
            let mut body = self.half(link).to_vec();
            body.extend(self.half(0));
            body.extend(self.word(self.snap as u32));
            body.extend(self.half(9));
            body.extend(self.half(1));
            body.extend([if self.nanoseconds { 9 } else { 6 }, 0, 0, 0]);
            body.extend(self.word(0));
            self.block(&mut file, 1, &body);
        } else {
            file.extend(self.word(if self.nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
            file.extend(self.half(2));
            file.extend(self.half(4));
            let words = [0, 0, self.snap as u32, link.into()];
            words.iter().for_each(|word| file.extend(self.word(*word)));
        }
        file
    }

    fn block(&self, file: &mut Vec<u8>, kind: u32, body: &[u8]) {
        let length = self.word(body.len() as u32 + 12);
        file.extend(self.word(kind));
        file.extend(length);
        file.extend(body);
        file.extend(length);
    }

    pub(crate) fn word(&self, word: u32) -> [u8; 4] {
        if self.is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() }
    }

    fn half(&self, half: u16) -> [u8; 2] {
        if self.is_big_endian { half.to_be_bytes() } else { half.to_le_bytes() }
    }

    /// Headers alone: nobody keeps the payload.
    fn frame(&self, packet: &Packet) -> Vec<u8> {
        let ether_type: [u8; 2] = if self.ipv6 { [0x86, 0xdd] } else { [8, 0] };
        let mut frame = match self.layer {
            Layer::Ethernet => [&[0; 12], &ether_type[..]].concat(),
            Layer::Vlan(tags) => {
                let tags = [0x81, 0, 0, 5].repeat(tags.into());
                [&[0; 12], &tags[..], &ether_type].concat()
            }
            Layer::Cooked => [&[0; 14], &ether_type[..]].concat(),
            Layer::Cooked2 => [&ether_type[..], &[0; 18]].concat(),
            Layer::Raw => Vec::new(),
        };
        let tcp = 20 + packet.options.len();
        let whole = tcp + packet.payload as usize;
        let ends = if packet.from_sender { [1, 2] } else { [2, 1] };
        if self.ipv6 {
            let extra: &[u8] = if self.extensions {
                &[60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0]
            } else {
                &[]
            };
            let next = if self.extensions { 0 } else { 6 };
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(length(whole + extra.len()).to_be_bytes());
            frame.extend([next, packet.ttl]);
            for end in ends {
                frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
            }
            frame.extend(extra);
        } else {
            frame.extend([0x45, 0]);
            frame.extend(length(whole + 20).to_be_bytes());
            frame.extend(packet.ip_id.to_be_bytes());
            frame.extend([0x40, 0, packet.ttl, 6, 0, 0]);
            for end in ends {
                frame.extend([192, 0, 2, end]);
            }
        }
        let ports: [u16; 2] = if packet.from_sender { [40_000, 443] } else { [443, 40_000] };
        ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
        frame.extend(packet.seq.to_be_bytes());
        frame.extend(packet.ack.to_be_bytes());
        frame.extend([(tcp as u8 / 4) << 4, packet.flags]);
        frame.extend(packet.window.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(&packet.options);
        frame
    }
}

/// A header has no length for a packet that is larger.
fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(0)
}
