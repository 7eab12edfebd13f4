//! bpf(2): programs on packets, their maps, links and pins, without clang, libbpf or BTF.
//!
//! A [`Program`] is code that the kernel's verifier has accepted, a [`Map`] is its memory, and a
//! [`TcxLink`] runs it on the packets of an interface. Each lives as long as a descriptor or a pin:
//! [`Map::pin`] and [`TcxLink::pin`] give it a name in a [bpffs](mount()), by which a later process
//! finds it. Nothing here knows what a program is for.
//!
//! It needs `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON` in the initial user namespace, in practice
//! root. [`probe`] says what this kernel and this process can do.

mod call;
mod info;
mod link;
mod map;
mod program;

pub use call::{BPFFS, BpfError, mount, unpin};
pub use info::{LinkInfo, MapInfo};
pub use link::{Attach, TcxLink, query};
pub use map::{Map, MapKind, MapRequest};
pub use program::{
    Context, LoadRequest, Program, ProgramKind, Support, TestRun, TestRunResult, probe,
};

#[cfg(test)]
mod tests;
