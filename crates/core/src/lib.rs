#![forbid(unsafe_code)]
//! The logic of linerate: units, plans, records, the wire, the control session, the emulated link,
//! statistics, ceilings.
//!
//! This crate decides and touches nothing. It has no sockets, files, threads or clock: the time,
//! the seed and the bytes are arguments (see `clippy.toml`). It does not depend on Linux. Five of
//! its modules are crates of their own, which can be used without the rest.
//!
//! A test is made from options, each given once, and checked as a whole:
//!
//! ```
//! use linerate_core::plan::Test;
//!
//! # fn main() -> Result<(), linerate_core::plan::PlanError> {
//! let seed = 7;
//! let test = Test::stream().mss(536u32).resolve(seed)?;
//! assert_eq!(test.options.mss_bytes, Some(536));
//! assert!(Test::stream().mss(87u32).resolve(seed).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`units`] | rates, sizes, times, DSCP, endpoint names: parsing and printing |
//! | [`plan`] | the tests of a run; the table of their options |
//! | [`value`] | kinds of values with their ranges, for options, treatments and settings |
//! | [`pace`] | when the next unit of a paced sender is due |
//! | [`link`] | the emulated link: the fate of packets by rate, delay, queue and loss |
//! | [`lab`] | hosts, routers and links, resolved to addresses and routes |
//! | [`one_way`] | one-way delays and losses by two clocks, whose offset and drift are estimated |
//! | [`open_loop`] | when the requests of an open loop are due |
//! | [`record`] | the document that a run leaves: the JSON contract |
//! | [`assemble`] | the record of a run, from the reports of its two ends |
//! | [`wire`] | bytes on the wire: hello, frames, datagrams, encryption |
//! | [`foreign`] | other tools' protocols as pure state machines: iperf3, netperf, ttcp |
//! | [`session`] | the control session of client and endpoint: messages, pure state machines |
//! | [`stats`] | medians with intervals, histograms, loss and reordering counters |
//! | [`compare`] | A against B in pairs: DIFFERENT, EQUIVALENT or INCONCLUSIVE |
//! | [`ceilings`] | the rate that each cause would allow, and the verdict |
//! | [`proof`] | which changes of a test prove what limits it, and when that is proved |
//! | [`connection`] | verdicts on connections of any program, from what one end knows |
//! | [`remedy`] | the change that lifts a limit: data, and its command |
//! | [`responsiveness`] | round trips per minute under load: its rules and its figures |
//! | [`qoo`] | Quality of Outcome: the score of a path for an application |
//! | [`profile`] | where the CPU time of a transfer goes, by layer and end |
//! | [`treatment`] | the table of reversible changes, the two sides of a comparison |
//! | [`host`] | a host's limits and settings, and what each should be |
//! | [`capacity`] | how many connections two ends can hold |
//! | [`throughput`] | the highest rate of datagrams that a path carries, by frame size |
//! | [`load`] | mixes of tests on one clock; their totals, latency of classes, quality of calls |
//! | [`video`] | a player that chooses each chunk's rate by its buffer |
//! | [`experiment`] | experiment files: factors, cells, runs in their order, table and findings |
//! | [`monitor`] | tests that are repeated for ever: their file, which one is next |
//! | [`analyze`] | the same statistics and ceilings on figures that were measured elsewhere |
//! | [`trace`] | the route: which probes to send when, what answers say, where delay is added |
//! | [`capture`] | TCP connections of packet captures, followed packet by packet |
//! | [`toml_reader`] | TOML files of ours: known keys, problems by line and column |
//! | `names` | tables of the names of plain enums |

pub mod analyze;
pub mod assemble;
pub mod capacity;
pub mod ceilings;
pub mod compare;
pub mod connection;
pub mod experiment;
pub mod foreign;
pub mod host;
pub mod lab;
pub mod load;
pub mod monitor;
mod names;
pub mod one_way;
pub mod open_loop;
pub mod pace;
pub mod plan;
pub mod profile;
pub mod proof;
pub mod qoo;
pub mod record;
pub mod remedy;
pub mod responsiveness;
pub mod session;
pub mod throughput;
pub mod toml_reader;
pub mod treatment;
pub mod value;
pub mod video;
pub mod wire;

pub use linerate_capture as capture;
pub use linerate_link as link;
pub use linerate_stats as stats;
pub use linerate_trace as trace;
pub use linerate_units as units;
