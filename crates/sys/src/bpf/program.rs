//! Programs: code that the verifier has accepted; whether this kernel accepts any; test runs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use super::call::{self, Attributes, BpfCommand, bpf, object_name, open};
use super::{Attach, BpfError, info, query};
use crate::message::u32_at;

/// The code of a program, and how to load it.
#[derive(Debug, Clone, Copy)]
pub struct LoadRequest<'a> {
    /// The instructions (`struct bpf_insn`), which contain the descriptors of maps.
    pub instructions: &'a [[u8; 8]],
    /// Name shown to people; cut off after 15 bytes.
    pub name: &'a str,
    /// The kind of place at which it runs.
    pub kind: ProgramKind,
    /// Licence, on which the allowed helper functions depend: `GPL`, `Dual MIT/GPL`.
    pub license: &'a str,
}

/// The kind of place at which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// On packets of an interface: by TCX, or, without a direction, as a filter of clsact.
    SchedCls {
        /// The direction for TCX.
        attach: Option<Attach>,
    },
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: String,
}

impl Program {
    /// Loads the program.
    ///
    /// # Errors
    /// [`BpfError::Verifier`] with the verifier's log; [`BpfError::Call`], with `EPERM` if
    /// privileges are missing.
    pub fn load(request: &LoadRequest<'_>) -> Result<Self, BpfError> {
        // Loading is several times faster without a log. After a refusal it is repeated with one.
        let source = match load(request, &mut []) {
            Ok(fd) => {
                return Ok(Self { fd, name: request.name.to_owned() });
            }
            Err(source) => source,
        };
        if source.raw_os_error() == Some(libc::EPERM) {
            return Err(BpfError::new("load program", request.name)(source));
        }
        let mut log = vec![0; LOG_LENGTH];
        let again = load(request, &mut log);
        if let Ok(fd) = again {
            // The first attempt failed for a passing reason, such as a lack of memory.
            let name = request.name.to_owned();
            return Ok(Self { fd, name });
        }
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        Err(BpfError::Verifier {
            name: request.name.to_owned(),
            log: String::from_utf8_lossy(&log[..end]).into_owned(),
            source,
        })
    }

    /// The program that was pinned at `path`.
    ///
    /// # Errors
    /// `ENOENT` if there is none.
    pub fn from_pin(path: &Path) -> Result<Self, BpfError> {
        Ok(Self { fd: call::open_pinned(path)?, name: path.display().to_string() })
    }

    /// Pins it in a bpffs under `path`; it then outlives this process.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `ENOENT` if the directory does not exist.
    pub fn pin(&self, path: &Path) -> Result<(), BpfError> {
        call::pin(self.fd.as_fd(), path)
    }

    /// The kernel's id of the program; [`query`](super::query) lists those of an interface.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn id(&self) -> Result<u32, BpfError> {
        info::program_id(self.fd.as_fd())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

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

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `BPF_PROG_LOAD`; with a log if the buffer is not empty.
fn load(request: &LoadRequest<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let license = CString::new(request.license)?;
    let ProgramKind::SchedCls { attach } = request.kind;
    let mut attributes = Attributes::new()
        .u32(0, SCHED_CLS)
        .u32(4, request.instructions.len() as u32)
        .input(8, request.instructions.as_flattened())
        .input(16, license.as_bytes_with_nul())
        .bytes(48, &object_name(request.name))
        .u32(68, attach.map_or(0, |attach| attach as u32));
    if !log.is_empty() {
        attributes = attributes.u32(24, LOG_LEVEL).u32(28, log.len() as u32).output(32, log);
    }
    let mut attempts = 0;
    loop {
        // SAFETY: the number of instructions and the length of the log stand beside them; the
        // licence ends with NUL.
        match unsafe { open(BpfCommand::ProgLoad, &mut attributes) } {
            // A signal ends the verifier's work (`do_check` of kernel/bpf/verifier.c). It has been
            // taken since.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempts < ATTEMPTS => {
                attempts += 1;
            }
            result => return result,
        }
    }
}

/// As many as libbpf's (`PROG_LOAD_ATTEMPTS`).
const ATTEMPTS: u32 = 5;
/// `BPF_PROG_TYPE_SCHED_CLS`.
const SCHED_CLS: u32 = 3;
/// Log level 1: only the path that failed.
const LOG_LEVEL: u32 = 1;
/// Bytes for the log. Since Linux 6.4 the kernel keeps the end of a longer one.
const LOG_LENGTH: usize = 64 * 1024;

// Support by this kernel and for this process.

/// The support for eBPF programs on packets.
#[derive(Debug)]
pub struct Support {
    /// Whether programs on packets can be loaded, or the error: `EPERM` without the privileges,
    /// `ENOSYS` without bpf(2).
    pub programs: Result<(), BpfError>,
    /// Whether interfaces run programs by TCX (Linux 6.6); `None` if that could not be found out.
    pub tcx: Option<bool>,
}

impl Support {
    /// Whether a program can be loaded, and attached by TCX.
    pub fn is_whole(&self) -> bool {
        self.programs.is_ok() && self.tcx == Some(true)
    }
}

/// Finds out by loading a program that does nothing and by listing the programs of the loopback
/// interface. Nothing is changed.
pub fn probe() -> Support {
    // r0 = 0; exit
    let instructions = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let programs = Program::load(&LoadRequest {
        instructions: &instructions,
        name: "probe",
        kind: ProgramKind::SchedCls { attach: None },
        license: "GPL",
    });
    Support { programs: programs.map(drop), tcx: tcx() }
}

/// Index of the loopback interface, which is the first of each network namespace.
fn tcx() -> Option<bool> {
    match query(1, Attach::TcxEgress) {
        Ok(_) => Some(true),
        // A kernel without TCX does not know this attach type.
        Err(error) if error.errno() == Some(libc::EINVAL) => Some(false),
        Err(_) => None,
    }
}

// Test runs of a program on a given frame, which is not sent (`BPF_PROG_TEST_RUN`).

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
