//! bpf(2): programs on packets, their maps, links and pins, without clang, libbpf or BTF.
//!
//! A [`Program`] is instructions that the kernel's verifier has taken; what it keeps is in a
//! [`Map`]; a [`TcxLink`] runs it on the packets of an interface. Each lives as long as a
//! descriptor or a pin: [`Map::pin`] and [`TcxLink::pin`] give it a name in a [bpffs](mount), by
//! which a later process finds it. Nothing here knows what a program is for.
//!
//! All of it needs `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON` in the first user namespace, in
//! practice root;
//! [`probe`] tells what this kernel has.

mod call;
mod error;
mod info;
mod link;
mod map;
mod mount;
mod pin;
mod probe;
mod program;
mod test_run;

pub use error::BpfError;
pub use info::{LinkInfo, MapInfo};
pub use link::{Attach, TcxLink, query};
pub use map::{Map, MapKind, MapRequest};
pub use mount::{BPFFS, mount};
pub use pin::unpin;
pub use probe::{Support, probe};
pub use program::{LoadRequest, Program, ProgramKind};
pub use test_run::{Context, TestRun, TestRunResult};

#[cfg(test)]
mod tests;
