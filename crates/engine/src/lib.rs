#![forbid(unsafe_code)]
//! What drives a measurement: gives core the time, the bytes and the kernel.
//!
//! Sessions, plans and verdicts are core's; system calls are sys's. This crate introduces them: it
//! connects the two ends, runs the threads that carry the data, and collects what both kernels say.
//! It has no `unsafe`, decides no verdict and prints nothing. What a lab sets and makes lies in
//! namespaces of its own, which end with the process; a treatment of a host is written to a journal
//! first and undone, at the latest by the next start. An endpoint waits for no client without a
//! deadline, and sends test traffic to no address that has not answered first.
//!
//! [`Endpoint::bind`] and [`Endpoint::serve`] are `linerate serve`. [`Client::connect`] greets one;
//! [`Client::run`] runs one test and gives an [`Outcome`], [`Partner::run_plan`] all sizes and
//! repeats and gives a [`Campaign`]; [`run_treated`] runs one under a treatment, and [`compare()`]
//! holds two treatments against each other. [`check()`] examines a path. [`prepare_for_lab`], then
//! [`LabPath::build`], make an emulated one with an endpoint on it; [`Demo`] is one with a hidden
//! fault, [`hold_lab`] a lab that other processes use. A [`Stop`] ends any of them early, and what
//! there is by then is in the record. [`MeasureError`] says in words what failed, and its
//! [`Category`] which exit status that deserves.
//!
//! | module | what is in it |
//! |---|---|
//! | `endpoint` | accepting, UDP challenges, one thread for each client's session |
//! | `client`, `campaign` | a session with an endpoint, its packet trains; a plan run on it |
//! | `target`, `reach` | where the endpoint is; why it is not reached |
//! | `partner` | what answers at a host: an endpoint, or another tool's server |
//! | `treated`, `compare` | a run under a treatment; two treatments against each other |
//! | `load` | mixes of tests on one clock; a load beside a comparison's runs |
//! | `responsiveness` | round trips per minute |
//! | `experiment` | the runs of an experiment, each on a path of its own, and their file |
//! | `capacity` | worker processes that hold connections |
//! | `throughput` | the highest rate of datagrams that a path carries |
//! | [`connections`] | TCP connections of this host, whoever's, watched from outside |
//! | `check`, `path` | the examination of a path; what one end alone can see of it |
//! | `trace` | the route to a host: sockets for core's strategies, names looked up meanwhile |
//! | `lab` | hosts, routers and links on this machine; the pump that emulates the links |
//! | `lab_process` | how a program in a lab finds the process that holds it |
//! | [`qos`] | DiffServ policies on this host's interfaces |
//! | `own_endpoint` | an endpoint in this process, for loopback and the lab |
//! | `measure` | one end's half of a run: a worker for each flow, the sampler, the host's meter |
//! | `profiler` | one end's: samples of what its CPUs do while a run is measured |
//! | `shares` | state that threads share: locks, shares of a limited quantity |
//! | `profile` | runs with both ends profiled, and what a change would bring |
//! | `host` | what this host is like, for the record |
//! | [`host_settings`] | its limits and settings: read and judged, set and kept, put back |
//! | [`mesh`] | a mesh's coordinator; the agent of a site; the bus inside of one process |
//! | [`monitor`] | tests on a schedule, their alarms; old runs deleted |
//! | `control` | the control connection as a socket |
//! | `treatment` | changes of this host, journalled, read back and undone |
//! | `state_files` | files that a process leaves for later ones: logs, locks, ownership |
//! | `stop` | Ctrl-C, and requests to stop |
//! | `retry` | errors of system calls that are to be made again |
//! | `error`, `category` | what can go wrong; the exit status that it deserves |
//! | `clock`, `words` | the one monotonic clock; small texts |

mod campaign;
mod capacity;
mod category;
mod check;
mod client;
mod clock;
mod compare;
pub mod connections;
mod control;
mod endpoint;
mod error;
mod experiment;
mod host;
pub mod host_settings;
mod lab;
mod lab_process;
mod load;
mod measure;
pub mod mesh;
pub mod monitor;
mod own_endpoint;
mod partner;
mod path;
mod profile;
mod profiler;
mod proof;
pub mod qos;
mod reach;
mod responsiveness;
mod retry;
mod shares;
mod state_files;
mod stop;
mod target;
mod throughput;
mod trace;
mod treated;
mod treatment;
mod words;

pub use campaign::{Campaign, Observer};
pub use capacity::{
    CAPACITY_WORKER, CapacityLive, CapacityOptions, CapacityOutcome, CapacityPhase,
    run_capacity_worker,
};
pub use category::{Categorized, Category};
pub use check::{BulkOptions, CheckOptions, check, knows_congestion};
pub use client::{Client, Live, Outcome, Profiles, Slot};
pub use clock::{since_1970_ns, since_1970_s};
pub use compare::{CompareObserver, CompareOptions, Sides, compare, compare_sides};
pub use endpoint::{
    AccessError, Admission, Booked, Endpoint, Iperf3Access, NetperfOptions, Running, ServeEvent,
    ServeOptions, StampOptions,
};
pub use error::MeasureError;
pub use experiment::{
    ExperimentError, ExperimentObserver, ExperimentProgress, ExperimentSite, RecordsFile,
    run_experiment,
};
pub use lab::{
    CpuQuota, Demo, HostState, Lab, LabDirectory, LabEnds, LabError, LabOptions, LabPath,
    LabReport, LabState, hold_lab, prepare as prepare_for_lab, start_holder,
};
pub use lab_process::{LAB_EXEC, LAB_PROCESS};
pub use linerate_sys::clock::{format_moment, since_boot};
pub use linerate_sys::inherit::{listeners as inherited_listeners, stdout_was_closed};
pub use linerate_sys::resolver::use_built_in as use_built_in_resolver;
pub use linerate_sys::thread::set_affinity;
pub use load::load;
pub use measure::flow::{LiveFlow, LiveTcp};
pub use own_endpoint::{fresh_seed, random_hex};
pub use partner::{Accounts, Foreign, Partner};
pub use profile::{
    DesignOptions, WhatIfOptions, disk_beside, profile, prove, run_design, time_of_what_ifs,
    what_ifs,
};
pub use proof::prove_bottleneck;
pub use reach::{check_scope, interface_of};
pub use state_files::{StateError, open_lock, with_ending};
pub use stop::{Stop, stop_on_signal};
pub use target::Target;
pub use throughput::{largest_frame, throughput};
pub use trace::{
    Method, TraceError, TraceOptions, WatchPace, join_reverse, may_send_echo, trace, watch,
};
pub use treated::run_treated;
pub use treatment::{Applied, TreatError, start_treatment_watch, undo_leftovers, watch_treatments};
