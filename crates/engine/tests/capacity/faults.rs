//! Ends that are killed, and runs that are stopped.

use std::net::SocketAddr;
use std::process::Command;

use linerate_core::capacity::{CapacityTest, FailureCause};
use linerate_core::record::Status;
use linerate_engine::{CapacityOptions, CapacityPhase, Stop};

use crate::support::{
    CLIENT, ENDPOINT, Served, assert_clean, children, client, count_of, run, span, start, test,
    wait_until,
};

fn long(connections: u64, udp_sockets: u64) -> CapacityTest {
    CapacityTest { hold: span(60.0), ..test(connections, udp_sockets) }
}

pub(crate) fn an_endpoint_that_is_killed_ends_the_run_with_an_error() {
    let (mut endpoint, line) = start(&[ENDPOINT]);
    let address: SocketAddr = line.parse().expect("it says where it listens");
    let pid = endpoint.0.id();
    let mut killed = Vec::new();
    let outcome = client(address, Stop::new())
        .capacity(&long(500, 200), &CapacityOptions::default(), &mut |live| {
            if live.phase == CapacityPhase::Holding && live.open == 700 && killed.is_empty() {
                killed = children(pid);
                signal(pid, "KILL");
            }
            true
        })
        .expect("it has begun");
    let _ = endpoint.0.wait();
    assert!(outcome.error.is_some(), "the session is gone");
    let document = &outcome.document;
    assert_eq!(document.status, Status::Partial);
    assert_eq!(document.tcp.as_ref().map(|tcp| tcp.opened), Some(500));
    assert_eq!(document.server, None);
    assert!(!killed.is_empty(), "the endpoint had workers");
    // They ended with the endpoint, and with them all that they held.
    wait_until("the endpoint's workers have ended", || killed.iter().all(|pid| !is_running(*pid)));
    assert_clean(&outcome);
}

pub(crate) fn after_a_client_that_is_killed_the_next_is_served() {
    let served = Served::start();
    let own = std::process::id();
    let address = served.address.to_string();
    let (mut killed, line) = start(&[CLIENT, &address]);
    assert_eq!(line, "held");
    let workers = children(killed.0.id());
    assert!(!workers.is_empty());
    killed.0.kill().expect("it is running");
    killed.0.wait().expect("it is this process's own");
    wait_until("the client's workers have ended", || workers.iter().all(|pid| !is_running(*pid)));
    wait_until("the endpoint's workers have ended", || children(own).is_empty());
    let outcome = run(served.address, &test(500, 100), &CapacityOptions::default());
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    assert_eq!(outcome.document.tcp.as_ref().map(|tcp| tcp.alive), Some(500));
    assert_clean(&outcome);
}

pub(crate) fn a_worker_that_is_killed_is_counted() {
    let (_endpoint, line) = start(&[ENDPOINT]);
    let address: SocketAddr = line.parse().expect("it says where it listens");
    let before = children(std::process::id());
    let mut told = false;
    let test = CapacityTest { hold: span(1.0), ..test(400, 0) };
    let options = CapacityOptions { descriptors: Some(300), workers: None };
    let outcome = client(address, Stop::new())
        .capacity(&test, &options, &mut |live| {
            if !told && live.phase == CapacityPhase::Holding {
                told = true;
                let workers = children(std::process::id());
                let worker = workers.iter().find(|pid| !before.contains(pid));
                signal(*worker.expect("two hold them"), "KILL");
            }
            true
        })
        .expect("it has begun");
    let tcp = outcome.document.tcp.as_ref().expect("it was asked for");
    let lost = count_of(&tcp.losses, FailureCause::WorkerLost);
    assert!(lost > 0 && tcp.alive + lost == 400, "{tcp:?}");
    assert_eq!(tcp.lost, lost);
}

pub(crate) fn a_run_that_is_stopped_reports_what_it_held() {
    let served = Served::start();
    for phase in [CapacityPhase::Opening, CapacityPhase::Holding] {
        let stop = Stop::new();
        let test = CapacityTest { latency: true, ..long(600, 0) };
        let outcome = client(served.address, stop.clone())
            .capacity(&test, &CapacityOptions::default(), &mut |live| {
                if live.phase == phase {
                    stop.request();
                }
                true
            })
            .expect("it has begun");
        assert!(outcome.error.is_some(), "it was interrupted");
        let document = &outcome.document;
        assert_eq!(document.status, Status::Partial);
        assert_eq!(document.stopped_by, None, "{phase:?}: a user is no limit");
        let tcp = document.tcp.as_ref().expect("it was asked for");
        assert_eq!((tcp.alive, tcp.lost), (tcp.opened, 0), "{tcp:?}");
        assert!(phase == CapacityPhase::Opening || tcp.opened == 600, "{tcp:?}");
        assert!(document.server.is_some(), "there was time to ask the endpoint");
        assert_clean(&outcome);
    }
}

/// To a process that this one has started.
fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.expect("kill(1) is there").success());
}

/// Neither gone nor waiting to be waited for.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
