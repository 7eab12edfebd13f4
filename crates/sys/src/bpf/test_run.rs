//! Running a program on a packet that is none (`BPF_PROG_TEST_RUN`).

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::call::{Attributes, Command, bpf};
use super::{BpfError, Program};
use crate::bytes::u32_at;

/// What to run it on.
#[derive(Debug, Clone, Copy)]
pub struct TestRun<'a> {
    /// The frame, Ethernet header first; at least 14 bytes, at least 34 and 54 with the EtherTypes
    /// of IPv4 and IPv6.
    pub frame: &'a [u8],
    /// What is known beside it.
    pub context: Context,
    /// How often, on the same packet, at least once.
    pub repeat: u32,
}

/// The parts of `struct __sk_buff` that a test run takes, or tells of afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Context {
    /// `skb->mark`.
    pub mark: u32,
    /// `skb->priority`.
    pub priority: u32,
    /// The interface by which it came in.
    pub ingress_interface: u32,
    /// The interface to which it belongs; 0 for the loopback of this network namespace.
    pub interface: u32,
    /// Twenty bytes that programs may write.
    pub cb: [u32; 5],
    /// Bytes on the wire; 0 for those of the frame.
    pub wire_length: u32,
    /// Segments of an offloaded packet.
    pub gso_segments: u32,
    /// Payload bytes of each.
    pub gso_size: u32,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRunResult {
    /// What the program returned.
    pub verdict: u32,
    /// The packet afterwards.
    pub frame: Vec<u8>,
    /// What is known beside it afterwards.
    pub context: Context,
    /// How long one run took, the mean of all, in whole nanoseconds.
    pub duration: Duration,
}

impl Program {
    /// Runs it.
    ///
    /// # Errors
    /// `EINVAL` for a frame that is too short for its EtherType or a context that the kernel does
    /// not take.
    pub fn test_run(&self, run: &TestRun<'_>) -> Result<TestRunResult, BpfError> {
        let error = BpfError::new("run program", self.name());
        let context_in = run.context.to_bytes();
        let mut context_out = [0; CONTEXT_LENGTH];
        // A program can put VLAN tags in.
        let mut frame = vec![0; run.frame.len() + ROOM];
        let room = frame.len() as u32;
        let mut attributes = Attributes::new()
            .u32(0, self.as_fd().as_raw_fd() as u32)
            .u32(8, run.frame.len() as u32)
            .u32(12, room)
            .input(16, run.frame)
            .output(24, &mut frame)
            .u32(32, run.repeat)
            .u32(40, CONTEXT_LENGTH as u32)
            .u32(44, CONTEXT_LENGTH as u32)
            .input(48, &context_in)
            .output(56, &mut context_out);
        // SAFETY: the lengths of all four buffers stand beside them.
        if let Err(source) = unsafe { bpf(Command::ProgTestRun, &mut attributes) } {
            return Err(error(source));
        }
        let verdict = attributes.read_u32(4);
        let length = attributes.read_u32(12) as usize;
        let duration = Duration::from_nanos(attributes.read_u32(36).into());
        frame.truncate(length);
        Ok(TestRunResult {
            verdict,
            frame,
            context: Context::from_bytes(&context_out),
            duration,
        })
    }
}

impl Context {
    fn to_bytes(mut self) -> [u8; CONTEXT_LENGTH] {
        let mut bytes = [0; CONTEXT_LENGTH];
        for (offset, value) in OFFSETS.into_iter().zip(self.fields()) {
            bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; CONTEXT_LENGTH]) -> Self {
        let mut context = Self::default();
        for (offset, value) in OFFSETS.into_iter().zip(context.fields()) {
            *value = u32_at(bytes, offset).expect("the offsets are within the structure");
        }
        context
    }

    /// In the order of [`OFFSETS`].
    fn fields(&mut self) -> [&mut u32; 12] {
        let [cb0, cb1, cb2, cb3, cb4] = &mut self.cb;
        [
            &mut self.mark,
            &mut self.priority,
            &mut self.ingress_interface,
            &mut self.interface,
            cb0,
            cb1,
            cb2,
            cb3,
            cb4,
            &mut self.wire_length,
            &mut self.gso_segments,
            &mut self.gso_size,
        ]
    }
}

/// Of mark, priority, ingress_ifindex, ifindex, cb, wire_len, gso_segs and gso_size in `struct
/// __sk_buff`.
const OFFSETS: [usize; 12] = [8, 32, 36, 40, 48, 52, 56, 60, 64, 160, 164, 176];
/// `sizeof(struct __sk_buff)` up to `gso_size`, and what pads it.
const CONTEXT_LENGTH: usize = 192;
/// Bytes that a packet can grow by.
const ROOM: usize = 256;
