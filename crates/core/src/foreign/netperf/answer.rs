//! The two answers of a server: it is ready, and the results.

use super::super::{are_possible, other_half};
use super::request::{Message, Refusal};
use super::{Block, Width, kind};
use crate::session::message::{FlowHalf, UdpReceived};

/// The server is ready: the port for the data, and the settings in force.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ready {
    /// Port that the data goes to.
    pub port: u16,
    /// `SO_RCVBUF`, bytes as read back.
    pub receive_buffer: u32,
    /// Bytes of each read.
    pub receive_bytes: u32,
    /// `SO_SNDBUF`, bytes as read back.
    pub send_buffer: u32,
    /// Bytes of each write.
    pub send_bytes: u32,
    /// `TCP_NODELAY` is on.
    pub nodelay: bool,
    /// The results will say what the CPUs did.
    pub measure_cpu: bool,
    /// Ticks per second in which the CPU time is counted; zero where it is not.
    pub cpu_rate: f32,
    /// Length of the test, as in the request.
    pub length: u32,
    /// Sends in a row and µs between their beginnings, if this end paces.
    pub burst: Option<(u32, u32)>,
    /// Traffic class of this end's packets.
    pub traffic_class: Option<u8>,
    /// Processor, as its maker calls it.
    pub cpu_model: String,
}

/// Shares of the whole machine's CPU time while the test ran, percent; idle time is the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuShares {
    /// All but idle.
    pub busy: f32,
    /// User and nice.
    pub user: f32,
    /// System.
    pub system: f32,
    /// Idle while I/O was in progress.
    pub iowait: f32,
    /// Hardware interrupts.
    pub irq: f32,
    /// Software interrupts.
    pub softirq: f32,
    /// The busiest CPU's number and its own share.
    pub peak: Option<(u32, f32)>,
}

/// The results of a test, as the server counted them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// Payload received, bytes.
    pub received_bytes: u64,
    /// Reads, or datagrams.
    pub receive_calls: u32,
    /// Payload sent, bytes.
    pub sent_bytes: u64,
    /// Writes, or datagrams.
    pub send_calls: u32,
    /// Datagrams that found no buffer.
    pub failed_sends: u32,
    /// Whole transactions.
    pub transactions: u32,
    /// The measured time, seconds.
    pub seconds: f32,
    /// CPU time, if it was asked for and could be measured.
    pub cpu: Option<CpuShares>,
    /// CPUs of the host.
    pub cpus: u32,
    /// `SO_RCVBUF` at the end, bytes.
    pub receive_buffer: u32,
    /// `SO_SNDBUF` at the end, bytes.
    pub send_buffer: u32,
    /// Segments retransmitted; `None` where this end is not the sender of a stream.
    pub retransmitted: Option<u32>,
    /// The interface's name, towards the client.
    pub interface: String,
    /// Its driver.
    pub driver: String,
    /// Congestion control, if that was asked for.
    pub congestion: String,
}

/// netperf's number for CPU time counted by /proc/stat.
const PROC_STAT: u32 = 8;
/// And for not at all.
const UNMEASURED: u32 = 0;
/// `cpu_util` and its kin where they were not measured.
const NONE: f32 = -1.0;

/// Words of an OMNI response before its texts, by width.
const RESPONSE_WORDS: (usize, usize) = (16, 18);
/// Fewest and most words of an OMNI result.
const RESULT_WORDS: (usize, usize) = (21, 27);

impl Results {
    pub(super) fn cpu_method(&self) -> u32 {
        if self.cpu.is_some() { PROC_STAT } else { UNMEASURED }
    }
}

/// The answer to a request that is taken.
pub(super) fn ready(message: Message, width: Width, ready: &Ready) -> Block {
    match message {
        Message::Omni => omni_ready(width, ready),
        Message::Classic(classic) => classic.ready(width, ready),
    }
}

/// The answer when the test is over.
pub(super) fn results(message: Message, width: Width, results: &Results) -> Block {
    match message {
        Message::Omni => omni_results(width, results),
        Message::Classic(classic) => classic.results(width, results),
    }
}

/// The answer to a request that is not taken.
pub(super) fn refused(message: Option<Message>, width: Width, refusal: &Refusal) -> Block {
    let kind = match message {
        Some(Message::Classic(classic)) => classic.request() + 1,
        Some(Message::Omni) | None => kind::OMNI_RESPONSE,
    };
    Block::new(width, kind).with_second(refusal.errno)
}

fn omni_ready(width: Width, ready: &Ready) -> Block {
    let flags = u32::from(ready.nodelay) | u32::from(ready.measure_cpu) << 3;
    let burst = ready.burst.unwrap_or((0, 0));
    // Clock rate and security are unknown here; the priority is the kernel's.
    let words = [
        ready.receive_buffer,
        ready.receive_bytes,
        1,
        ready.send_buffer,
        ready.send_bytes,
        1,
        flags,
        ready.cpu_rate.to_bits(),
        ready.length,
        0,
        0,
        ready.port.into(),
        burst.0,
        burst.1,
        0,
        0,
        u32::MAX,
        ready.traffic_class.map_or(u32::MAX, u32::from),
    ];
    let count = by_width(width, RESPONSE_WORDS);
    let mut block = Block::of_words(width, kind::OMNI_RESPONSE, &words[..count]);
    let model = 33;
    block.set_text(count, model, 80, &ready.cpu_model);
    block
}

fn omni_results(width: Width, results: &Results) -> Block {
    let cpu = results.cpu;
    let share = |pick: fn(&CpuShares) -> f32| cpu.as_ref().map_or(NONE, pick).to_bits();
    let peak = cpu.and_then(|cpu| cpu.peak);
    let mut words = vec![
        (results.received_bytes >> 32) as u32,
        results.received_bytes as u32,
        results.receive_calls,
        results.receive_buffer,
        (results.sent_bytes >> 32) as u32,
        results.sent_bytes as u32,
        results.send_calls,
        results.send_buffer,
        results.failed_sends,
        results.transactions,
        results.seconds.to_bits(),
        share(|cpu| cpu.busy),
    ];
    if width == Width::Wide {
        words.extend([
            share(|cpu| cpu.user),
            share(|cpu| cpu.system),
            share(|cpu| cpu.iowait),
            share(|cpu| cpu.irq),
            share(|cpu| cpu.softirq),
        ]);
    }
    // The client works the service demand out itself. No PCI numbers.
    words.extend([
        NONE.to_bits(),
        results.cpu_method(),
        results.cpus,
        peak.map_or(u32::MAX, |(cpu, _)| cpu),
        peak.map_or(NONE, |(_, share)| share).to_bits(),
        0,
        0,
        0,
        0,
    ]);
    if width == Width::Wide {
        words.push(results.retransmitted.unwrap_or(u32::MAX));
    }
    debug_assert_eq!(words.len(), by_width(width, RESULT_WORDS));
    let count = words.len();
    let mut block = Block::of_words(width, kind::OMNI_RESULTS, &words);
    block.set_text(count, 0, 16, &results.interface);
    block.set_text(count, 16, 32, &results.driver);
    if width == Width::Wide {
        block.set_text(count, 160, 16, &results.congestion);
    }
    block
}

fn by_width(width: Width, (narrow, wide): (usize, usize)) -> usize {
    match width {
        Width::Narrow => narrow,
        Width::Wide => wide,
    }
}

impl Ready {
    /// Reads the OMNI response of a netserver with wide blocks; the errno instead if it refuses.
    ///
    /// # Errors
    /// The second word.
    pub fn parse(block: &Block) -> Result<Self, i32> {
        if block.second() != 0 {
            return Err(block.second());
        }
        let flags = block.word(6);
        Ok(Self {
            receive_buffer: block.word(0),
            receive_bytes: block.word(1),
            send_buffer: block.word(3),
            send_bytes: block.word(4),
            nodelay: flags & 1 != 0,
            measure_cpu: flags & 8 != 0,
            cpu_rate: finite(block.float(7)),
            length: block.word(8),
            port: u16::try_from(block.word(11)).unwrap_or(0),
            burst: Some((block.word(12), block.word(13))).filter(|burst| *burst != (0, 0)),
            traffic_class: u8::try_from(block.int(17)).ok(),
            // 33 bytes of system model before it: the words do not divide them.
            cpu_model: block.text_at(18, 33, 80),
        })
    }
}

impl Results {
    /// Reads the OMNI results of a netserver 2.7; the errno instead if it failed.
    ///
    /// # Errors
    /// The second word.
    pub fn parse(block: &Block) -> Result<Self, i32> {
        if block.second() != 0 {
            return Err(block.second());
        }
        let wide =
            |high: usize| u64::from(block.word(high)) << 32 | u64::from(block.word(high + 1));
        let share = |index: usize| percent(block.float(index));
        let peak = u32::try_from(block.int(20)).ok().zip(share(21));
        let cpu = share(11).map(|busy| CpuShares {
            busy,
            user: share(12).unwrap_or(0.0),
            system: share(13).unwrap_or(0.0),
            iowait: share(14).unwrap_or(0.0),
            irq: share(15).unwrap_or(0.0),
            softirq: share(16).unwrap_or(0.0),
            peak,
        });
        Ok(Self {
            received_bytes: wide(0),
            receive_calls: block.word(2),
            receive_buffer: block.word(3),
            sent_bytes: wide(4),
            send_calls: block.word(6),
            send_buffer: block.word(7),
            failed_sends: block.word(8),
            transactions: block.word(9),
            seconds: block.float(10),
            cpu,
            cpus: block.word(19),
            retransmitted: u32::try_from(block.int(26)).ok(),
            interface: block.text_at(27, 0, 16),
            driver: block.text_at(27, 16, 32),
            congestion: block.text_at(27, 160, 16),
        })
    }

    /// The netserver's half of `flow`; `None` if its counts or its time cannot be of this test.
    pub fn to_half(&self, flow: &FlowHalf) -> Option<FlowHalf> {
        let sends = !flow.sends;
        let (bytes, messages) = if sends {
            (self.sent_bytes, self.send_calls)
        } else {
            (self.received_bytes, self.receive_calls)
        };
        let seconds = f64::from(self.seconds);
        if !are_possible(bytes, flow) || !(0.0..=MAX_SECONDS).contains(&seconds) {
            return None;
        }
        let udp_received = flow.udp_sent.as_ref().map(|sent| UdpReceived {
            received: messages.into(),
            expected: Some(sent.sent),
            ..UdpReceived::default()
        });
        // A sender's time is its own and not the receiver's.
        let seconds = Some(seconds).filter(|_| !sends);
        let (messages, again) = (Some(messages.into()), self.retransmitted.map(u64::from));
        Some(FlowHalf { udp_received, ..other_half(flow, bytes, messages, seconds, again) })
    }
}

/// Longest that a test can have been, seconds.
const MAX_SECONDS: f64 = 1e6;

/// A time or a rate: what is none is zero.
fn finite(number: f32) -> f32 {
    if number.is_finite() && number >= 0.0 { number } else { 0.0 }
}

/// A share of the machine, with a little room for rounding; -1 is none.
fn percent(number: f32) -> Option<f32> {
    (0.0..=101.0).contains(&number).then_some(number)
}
