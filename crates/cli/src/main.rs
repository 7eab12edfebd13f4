#![forbid(unsafe_code)]
//! The command line of linerate: arguments → plan → engine → document.
//!
//! Nothing is sent before the whole command line is resolved and checked. Stdout carries the
//! document and nothing else; progress, warnings and errors go to stderr.
//!
//! | module | what is in it |
//! |---|---|
//! | [`args`] | the options of each command, as clap reads them |
//! | [`plan`] | options → [`linerate_core::plan::Plan`], by the table of a test's options |
//! | [`target`] | the endpoint's name → addresses, key, route; an endpoint started by ssh |
//! | [`lab`] | `lab up`, `exec`, `status`, `down` |
//! | [`load`] | mixes of tests beside each other |
//! | [`site`] | the emulated path of `--lab`; who undoes the treatments of a killed process |
//! | [`commands`] | which module executes a command; `check`, `stream`, `rr`, `crr`; manual pages |
//! | [`compare`] | `compare`: two treatments against each other |
//! | [`capacity`] | many connections, held; the search for their limit |
//! | [`config`] | the user's file of defaults |
//! | [`connections`] | TCP connections of this host, whoever's they are |
//! | [`analyze`] | figures that were measured elsewhere |
//! | [`explain`], [`capture`] | verdicts on stored documents, other programs, packet captures |
//! | [`rerun`], [`baseline`] | a stored document run again; an earlier one set beside a run |
//! | [`history`], [`keep`] | runs that were saved; where they are |
//! | [`monitor`] | tests on a schedule, alarms, metrics; tests when Prometheus asks |
//! | [`push`] | metrics that are sent to a collector or a store; posts to webhooks |
//! | [`mesh`] | many sites: the coordinator, a site's agent |
//! | [`turn`] | one test of a monitor at a time |
//! | [`web`] | the history as pages for a browser |
//! | [`access`] | who may read pages and metrics |
//! | [`serve`] | `serve`: the endpoint |
//! | [`run`] | calls of the engine that several commands share |
//! | [`report`] | stored documents as a page with charts |
//! | [`stored`](mod@stored) | what an argument FILE names: a file, stdin, a saved run |
//! | [`experiment`] | the experiments of `run` |
//! | [`profile`](mod@profile) | where the CPU time of a transfer goes |
//! | [`trace`] | the route to a host |
//! | [`qos`] | `qos`: policies of this host's interfaces |
//! | [`host`] | `host`: this host's limits and settings |
//! | [`iperf3`] | iperf3's command line and output |
//! | [`output`], [`progress`] | stdout, `--output` and stderr |
//! | [`files`] | files that the user names |
//! | [`gate`] | `--fail-below` |
//! | [`failure`] | errors and their exit status |
//! | [`typed`] | the command line as it was typed, for errors, documents and `rerun` |
//! | [`usage`] | what clap refuses, in one line |

mod access;
mod analyze;
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "its comments are help texts, in which [v6]:port is no link"
)]
mod args;
mod baseline;
mod capacity;
mod capture;
mod commands;
mod compare;
mod config;
mod connections;
mod experiment;
mod explain;
mod failure;
mod files;
mod gate;
mod history;
mod host;
mod iperf3;
mod keep;
mod lab;
mod load;
mod mesh;
mod monitor;
mod output;
mod plan;
mod profile;
mod progress;
mod push;
mod qos;
mod report;
mod rerun;
mod run;
mod serve;
mod site;
mod stored;
mod target;
mod throughput;
mod trace;
mod turn;
mod typed;
mod unpack;
mod usage;
mod web;

use std::panic;
use std::process::{ExitCode, abort};

fn main() -> ExitCode {
    end_at_panic();
    linerate_engine::use_built_in_resolver();
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(words) = iperf3::words_of(&words) {
        return ExitCode::from(iperf3::execute(&words));
    }
    let done = usage::parse(words).and_then(|cli| commands::execute(cli.command));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// A panic of any thread ends the process in every build, as it does in a release, which does not
/// unwind: tests see what users see.
fn end_at_panic() {
    let print_panic = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        print_panic(panic);
        abort();
    }));
}
