//! Runs a program on a given frame without sending it (`BPF_PROG_TEST_RUN`).

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::call::{Attributes, BpfCommand, bpf};
use super::{BpfError, Program};
use crate::bytes::u32_at;

/// The input of a test run.
#[derive(Debug, Clone, Copy)]
pub struct TestRun<'a> {
    /// The frame, Ethernet header first; at least 14 bytes, at least 34 and 54 with the EtherTypes
    /// of IPv4 and IPv6.
    pub frame: &'a [u8],
    /// Metadata of the frame.
    pub context: Context,
    /// Number of runs on the same frame, at least 1.
    pub repeat: u32,
}

/// The members of `struct __sk_buff` that a test run takes or returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Context {
    /// `skb->mark`.
    pub mark: u32,
    /// `skb->priority`.
    pub priority: u32,
    /// Index of the interface by which it arrived (`ingress_ifindex`).
    pub ingress_interface: u32,
    /// Index of its interface; 0 for the loopback interface of this network namespace.
    pub interface: u32,
    /// Scratch space of programs (`cb`).
    pub cb: [u32; 5],
    /// Bytes on the wire (`wire_len`); 0 for the length of the frame.
    pub wire_length: u32,
    /// Number of segments of an offloaded packet.
    pub gso_segments: u32,
    /// Payload bytes of each segment.
    pub gso_size: u32,
}

/// The result of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRunResult {
    /// The program's return value.
    pub verdict: u32,
    /// The frame after the run.
    pub frame: Vec<u8>,
    /// Its metadata after the run.
    pub context: Context,
    /// Mean duration of a run, whole nanoseconds.
    pub duration: Duration,
}

impl Program {
    /// Runs the program on a frame.
    ///
    /// # Errors
    /// `EINVAL` if the frame is too short for its EtherType, or for metadata that the kernel does
    /// not accept.
    pub fn test_run(&self, run: &TestRun<'_>) -> Result<TestRunResult, BpfError> {
        let error = BpfError::new("run program", self.name());
        let context_in = run.context.to_bytes();
        let mut context_out = [0; CONTEXT_LENGTH];
        // The program may add VLAN tags.
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
        if let Err(source) = unsafe { bpf(BpfCommand::ProgTestRun, &mut attributes) } {
            return Err(error(source));
        }
        let verdict = attributes.read_u32(4);
        let length = attributes.read_u32(12) as usize;
        let duration = Duration::from_nanos(attributes.read_u32(36).into());
        frame.truncate(length);
        Ok(TestRunResult { verdict, frame, context: Context::from_bytes(&context_out), duration })
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

    /// The members in the order of [`OFFSETS`].
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

/// Offsets of mark, priority, ingress_ifindex, ifindex, cb, wire_len, gso_segs and gso_size in
/// `struct __sk_buff`.
const OFFSETS: [usize; 12] = [8, 32, 36, 40, 48, 52, 56, 60, 64, 160, 164, 176];
/// Length of `struct __sk_buff` up to `gso_size` with its padding.
const CONTEXT_LENGTH: usize = 192;
/// Bytes by which a program can lengthen a frame.
const ROOM: usize = 256;
