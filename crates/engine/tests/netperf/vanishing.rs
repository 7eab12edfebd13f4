//! Clients that are gone in the middle of something.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use linerate_testkit::{PATIENCE, eventually, uninterrupted};

use super::bench::Bench;
use super::dialogue::{BLOCK, Control, PORT, request, send_stream, tcp, udp};

/// How far a client gets before it is gone.
const STEPS: u32 = 7;

/// Where a test is served, threads have these names.
const WORKERS: [&str; 4] = ["netperf", "flow-0", "sampler", "ttcp"];

#[test]
fn a_thousand_clients_that_vanish_leave_nothing_and_the_next_is_served() {
    own_process!();
    let bench = Bench::start();
    let names = ["tcp_stream", "tcp_maerts", "tcp_rr", "tcp_crr", "udp_stream", "udp_rr"];
    let requests: Vec<Vec<u8>> = names.iter().map(|name| request(name)).collect();
    for client in 0..1000u32 {
        let request = &requests[client as usize % requests.len()];
        vanish(&bench, request, names[client as usize % names.len()], client / 6 % STEPS);
    }
    eventually("no worker is left", || workers() == 0);
    let mut control = Control::connect(bench.netperf);
    let data = control.open(&requests[0], PORT);
    send_stream(data, 1 << 20);
    assert_eq!(control.hear().wide(0), 1 << 20);
}

/// Goes `step` steps of a test and is gone.
fn vanish(bench: &Bench, request: &[u8], name: &str, step: u32) {
    let mut control = TcpStream::connect(bench.netperf).expect("it listens");
    control.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // Whoever finds the endpoint full is turned away: that is a way to vanish, too.
    let mut go = || -> std::io::Result<()> {
        if step == 0 {
            return Ok(());
        }
        let part = if step == 1 { 100 } else { BLOCK };
        control.write_all(&request[..part])?;
        if step < 3 {
            return Ok(());
        }
        let mut ready = [0; BLOCK];
        control.read_exact(&mut ready)?;
        let port = u32::from_be_bytes(*ready[8 + 4 * PORT..].first_chunk().expect("a word"));
        let mut data = bench.netperf;
        data.set_port(port as u16);
        match step {
            3 => {}
            _ if name.starts_with("udp") => _ = udp(data).send(&[1])?,
            4 => drop(TcpStream::connect(data)?),
            5 => tcp(data).write_all(&[1; 3])?,
            _ => {
                let mut stream = tcp(data);
                stream.write_all(&[1])?;
                // Until the test runs, where it answers at all.
                stream.set_read_timeout(Some(Duration::from_millis(2)))?;
                let _ = stream.read(&mut [0; 1]);
            }
        }
        Ok(())
    };
    let _ = go();
}

fn workers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| WORKERS.contains(&name.trim())).count()
}

#[test]
fn a_silent_control_connection_is_closed_in_time() {
    let bench = Bench::start();
    let mut silent = TcpStream::connect(bench.netperf).expect("it listens");
    silent.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let end = uninterrupted(|| silent.read(&mut [0; 1]));
    assert_eq!(end.expect("an end"), 0);
}
