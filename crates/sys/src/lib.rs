//! What linerate touches: Linux, one system call to one small safe function.
//!
//! This crate knows Linux and not linerate: there is no test, record or verdict in it. It is the
//! only one with `unsafe`, and each such block says why it is sound. Nothing falls back in silence:
//! what a kernel does not have is `None`, what it does not allow is an error that names the call,
//! and [`proc::Probe`] answers what a host has: its value, what is missing, or what kept it from
//! telling. What is made on a host (a namespace, a link in it) ends with its owner. Every parser of
//! `/proc` is a function of text, apart from the one that reads the file.
//!
//! The types to know: [`tcp_info::TcpInfo`], [`udp_batch::BatchSender`] and
//! [`udp_batch::BatchReceiver`], [`poll::Poller`], [`netlink::Netlink`], [`ethtool::Ethtool`],
//! [`netns::Namespace`] and [`netns::Pair`].
//!
//! | module | what is in it |
//! |---|---|
//! | [`socket`] | making sockets; their options, set and read back; their memory and queues |
//! | [`tcp_info`] | `TCP_INFO`, every field that this kernel has |
//! | [`udp_batch`] | many datagrams for one call, with and without segmentation offload |
//! | [`packet`] | whole Ethernet frames of one link, offload headers included |
//! | [`splice`] | bulk TCP without copying, and receiving without looking |
//! | [`probe`] | a trace's probes and answers: TTLs, error queues, raw ICMP; names of addresses |
//! | [`poll`] | waiting for many sockets (epoll), and for one |
//! | [`inherit`] | listening sockets from systemd or inetd; whether there was a standard output |
//! | [`netlink`] | links, addresses, routes, neighbours, qdiscs, TCP metrics; all TCP sockets |
//! | [`ethtool`] | drivers, their offloads and figures |
//! | [`bpf`] | eBPF: programs on packets, their maps, links and pins |
//! | [`netns`] | network namespaces and what one command alone sees mounted; two hosts joined |
//! | [`mod@proc`] | `/proc` and `/sys`: CPU time, counters, drops, settings, limits, privileges |
//! | [`process`] | other processes: who they are, and ending them; the program's own pages |
//! | [`thread`] | CPU time, waiting time and scheduling of this process's threads |
//! | [`clock`], [`idle`] | monotonic time and precise waits; keeping CPUs awake, and what that takes |
//! | [`perf`], [`symbols`] | samples of what CPUs or threads are doing; names of functions |
//! | [`resolver`] | what a static program looks names up by |
//! | [`signal`] | SIGINT, SIGTERM and SIGHUP as something to wait for |
//! | [`mod@file`] | files that others may replace by links; changed directories; cached pages |
//! | [`errno`] | error numbers that callers tell apart |
//!
//! `call_error` and `message` are shared by these: the error of a call, control messages.

pub mod bpf;
mod call_error;
pub mod clock;
pub mod errno;
pub mod ethtool;
pub mod file;
pub mod idle;
pub mod inherit;
mod message;
pub mod netlink;
pub mod netns;
pub mod packet;
pub mod perf;
pub mod poll;
pub mod probe;
pub mod proc;
pub mod process;
pub mod resolver;
pub mod signal;
pub mod socket;
pub mod splice;
pub mod symbols;
pub mod tcp_info;
pub mod thread;
pub mod udp_batch;

pub use call_error::CallError;
