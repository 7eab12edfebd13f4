//! Holding connections, with and without faults. Workers are this program, started again, so that
//! it needs its own `main`. Each test has its own endpoint.
#![allow(clippy::print_stderr, reason = "it is its own harness, and says what it skips")]

mod faults;
mod limits;
mod support;
mod whole;

use std::panic::catch_unwind;
use std::process::ExitCode;

use linerate_engine::{CAPACITY_WORKER, run_capacity_worker};

type Test = (&'static str, fn());

const TESTS: [Test; 10] = [
    (
        "all_of_20000_connections_and_10000_udp_sockets_stay_alive",
        whole::all_of_20000_connections_and_10000_udp_sockets_stay_alive,
    ),
    ("ipv6_holds_as_well", whole::ipv6_holds_as_well),
    ("churn_and_load_lose_nothing", whole::churn_and_load_lose_nothing),
    (
        "a_descriptor_limit_is_reported_and_everything_is_freed",
        limits::a_descriptor_limit_is_reported_and_everything_is_freed,
    ),
    ("running_out_of_ports_is_reported", limits::running_out_of_ports_is_reported),
    ("the_search_finds_a_limit", limits::the_search_finds_a_limit),
    (
        "an_endpoint_that_is_killed_ends_the_run_with_an_error",
        faults::an_endpoint_that_is_killed_ends_the_run_with_an_error,
    ),
    (
        "after_a_client_that_is_killed_the_next_is_served",
        faults::after_a_client_that_is_killed_the_next_is_served,
    ),
    ("a_worker_that_is_killed_is_counted", faults::a_worker_that_is_killed_is_counted),
    (
        "a_run_that_is_stopped_reports_what_it_held",
        faults::a_run_that_is_stopped_reports_what_it_held,
    ),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(CAPACITY_WORKER) => return worker(),
        Some(support::ENDPOINT) => return support::serve_in_this_process(),
        Some(support::CLIENT) => return support::hold_in_this_process(&words),
        _ => {}
    }
    // As the usual harness has it: words that are no options choose tests.
    let wanted: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let mut passed = 0;
    let mut failures = Vec::new();
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let is_passed = catch_unwind(test).is_ok();
        eprintln!("test {name} ... {}", if is_passed { "ok" } else { "FAILED" });
        if is_passed {
            passed += 1;
        } else {
            failures.push(name);
        }
    }
    // The words by which the usual harness says what failed.
    if failures.is_empty() {
        eprintln!("test result: ok. {passed} passed; 0 failed");
        return ExitCode::SUCCESS;
    }
    eprintln!("\nfailures:\n    {}\n", failures.join("\n    "));
    eprintln!("test result: FAILED. {passed} passed; {} failed", failures.len());
    ExitCode::FAILURE
}

fn worker() -> ExitCode {
    match run_capacity_worker() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
