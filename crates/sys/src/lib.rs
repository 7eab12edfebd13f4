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
//! [`udp_batch::BatchReceiver`],
//! [`poll::Poller`], [`netlink::Netlink`], [`ethtool::Ethtool`], [`netns::Namespace`] and
//! [`netns::Pair`].
//!
//! | module | what is in it |
//! |---|---|
//! | [`socket`] | making sockets; their options, set and read back; their memory and queues |
//! | [`tcp_info`] | `TCP_INFO`, every field that this kernel has |
//! | [`udp_batch`] | many datagrams for one call, with and without segmentation offload |
//! | [`packet`] | whole Ethernet frames of one link, offload headers included |
//! | [`splice`] | bulk TCP without copying, and receiving without looking |
//! | [`probe`] | datagrams with a TTL of their own, error queues, raw ICMP: what a trace sends and gets |
//! | [`poll`] | waiting for many sockets (epoll), and for one |
//! | [`inherit`] | listening sockets from systemd or inetd; whether there was a standard output |
//! | [`netlink`] | links, addresses, routes, neighbours, qdiscs, TCP metrics; all TCP sockets, whoever's |
//! | [`ethtool`] | drivers and their offloads |
//! | [`file`](mod@file) | what of a file is in memory, what came from storage |
//! | [`bpf`] | eBPF: programs on packets, their maps, links and pins |
//! | [`netns`] | network namespaces, with root and without; joining those of another process; private mounts; two hosts joined by a link |
//! | [`mod@proc`] | `/proc` and `/sys`: CPU time, softirqs, drops, counters, settings, limits, privileges |
//! | [`process`] | the program's own pages; [`process`] | other processes: who they are, and ending them |
//! | [`thread`] | CPU time, waiting time and scheduling of this process's threads |
//! | [`clock`], [`idle`] | monotonic time and precise waits; keeping CPUs awake, and what that takes |
//! | [`perf`] | samples of what CPUs or threads are doing; names of the kernel's functions and of this process's |
//! | [`resolver`] | what a static program looks names up by |
//! | [`signal`] | SIGINT, SIGTERM and SIGHUP as something to wait for |
//! | [`mod@file`] | opening a file that somebody may have put a link in the place of; what changes in directories |
//! | [`errno`] | error numbers that callers tell apart |

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
