//! All tests of this kind in one program: each program of its own would be linked with everything.
//! A file beside this one is a module here, or it is never run: [`every_file_is_a_module`] looks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test says what it expects by panicking"
)]

#[test]
fn every_file_is_a_module() {
    let modules = include_str!("it.rs");
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for entry in std::fs::read_dir(directory).expect("the directory of this file") {
        let name = entry.expect("an entry").file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".rs")) else {
            continue;
        };
        let is_known =
            ["it", "commands"].contains(&name) || modules.contains(&format!("mod {name};"));
        assert!(is_known, "tests/{name}.rs is in no test program");
    }
}

mod browser;
mod bufferbloat;
mod capacity;
mod captures;
mod compare;
mod compare_undone;
mod connections;
mod docs;
mod experiment;
mod explain_connections;
mod fake_routers;
mod faults;
mod foreign;
mod history;
mod host;
mod inherited;
mod iperf3;
mod lab;
mod lab_path;
mod lab_spec;
mod mesh;
mod mesh_bus;
mod mesh_faults;
mod mesh_hostile;
mod mesh_many;
mod mesh_rate;
mod mesh_results;
mod mesh_world;
mod monitor;
#[cfg(feature = "postgres")]
mod monitor_outage;
mod nats_server;
mod packages;
mod profile;
mod projection;
mod prometheus;
mod python;
mod servers;
mod shells;
mod ssh;
mod streams;
mod support;
mod trace;
mod trace_path;
mod trace_reverse;
mod treatments;
mod web;
