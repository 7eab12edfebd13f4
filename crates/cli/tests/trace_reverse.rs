//! `linerate trace --reverse`: the way back and each way's loss, and endpoints that cannot tell
//! them; `--as-table`.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_core::record::HostFacts;
use linerate_core::session::Server;
use linerate_core::session::message::{Limits, Welcome};
use linerate_core::wire::HELLO_BYTES;
use tempfile::TempDir;

use crate::support::{assert_says, has_no_lab, json, stderr};

fn trace(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.arg("trace").args(arguments).output().unwrap()
}

#[test]
fn the_way_back_is_the_endpoints_and_losses_have_a_direction() {
    // Ten probes, so that what is lost leaves each hop some; and a seed by which the first packets
    // get through: a SYN that is lost three times is given up.
    let output = trace(&[
        "--lab",
        "hops=4,rtt=900ms,up.loss=5%",
        "--timeout",
        "10s",
        "--reverse",
        "-n",
        "-q",
        "10",
        "--seed",
        "7",
        "--json",
    ]);
    if has_no_lab(&output) {
        return;
    }
    let document = json(&output);
    let reverse = &document["reverse"];
    let back = &reverse["trace"];
    assert_eq!(back["schema"], "linerate.trace/1", "{reverse}");
    assert_eq!(back["target"], document["source"], "it is traced to us: {reverse}");
    assert_eq!(back["source"], document["target"]);
    assert_eq!(back["reached"], true, "{reverse}");
    assert_eq!(back["hops"].as_array().unwrap().len(), 5, "{reverse}");
    assert!(back["reverse"].is_null());
    // Ten of 200 are expected; none happens once in 28,000 runs of other seeds.
    assert!(reverse["loss_there"]["lost"].as_u64() > Some(0), "{reverse}");
    assert_eq!(reverse["loss_there"]["sent"], 200, "{reverse}");
    assert_eq!(reverse["loss_back"]["sent"], 200, "{reverse}");
    assert!(!reverse["words"].as_array().unwrap().is_empty());
}

#[test]
fn the_way_back_has_a_table_of_its_own_over_both_families() {
    for family in ["-4", "-6"] {
        let path = ["--lab", "hops=2,rtt=900ms", "--timeout", "10s"];
        let output = trace(&[&path[..], &[family, "--reverse", "-n"]].concat());
        if has_no_lab(&output) {
            return;
        }
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("the way back, as"), "{text}");
        assert!(text.contains("It is 3 hops there and 3 back"), "{text}");
    }
}

/// An endpoint as it was before it could trace, for one client.
fn older_endpoint(listener: TcpListener) -> JoinHandle<()> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello).unwrap();
        let welcome = Welcome {
            software: "0.0.9".into(),
            token: "00".repeat(16),
            operations: vec!["stream".into(), "rr".into(), "crr".into()],
            limits: Limits {
                clients: 1,
                streams: 1,
                seconds: 1.0,
                rate_bps: None,
                connections: 100_000,
            },
            facts: Box::new(HostFacts::default()),
        };
        let mut server = Server::new(Duration::ZERO, None, false);
        answer(&mut server, &welcome, &mut stream);
    })
}

fn answer(server: &mut Server, welcome: &Welcome, stream: &mut TcpStream) {
    let mut bytes = [0; 4096];
    while !server.is_closed() {
        let n = stream.read(&mut bytes).unwrap();
        if n == 0 {
            return;
        }
        server.handle_input(Duration::ZERO, &bytes[..n]);
        if server.is_introduced() {
            server.welcome(Duration::ZERO, welcome.clone());
        }
        while let Some(bytes) = server.poll_transmit() {
            stream.write_all(&bytes).unwrap();
        }
    }
}

#[test]
fn an_older_endpoint_is_told_from_a_closed_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reverse = format!("--reverse={port}");
    let endpoint = older_endpoint(listener);
    let older = trace(&["127.0.0.1", &reverse]);
    endpoint.join().unwrap();
    assert_eq!(older.status.code(), Some(3), "{}", stderr(&older));
    assert_says(&older, "0.0.9 traces no way back");

    let none = trace(&["127.0.0.1", "--reverse=1"]);
    assert_eq!(none.status.code(), Some(1), "{}", stderr(&none));
    assert_says(&none, "linerate serve");
}

#[test]
fn networks_are_named_by_the_table() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("table.txt");
    let table = file.to_str().unwrap();
    fs::write(&file, "127.0.0.0/8 64500 Home\n127.0.0.0\t9\t64501_64502\n").unwrap();
    let output = trace(&["127.0.0.1", "-n", "--as-table", table, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let hop = &json(&output)["hops"][0];
    assert_eq!(hop["asn"], 64_501, "the longer prefix: {hop}");
    assert_eq!(hop["other_asns"][0], 64_502);
    let text = trace(&["127.0.0.1", "-n", "--as-table", table]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("64501/64502"), "{text}");

    fs::write(&file, "127.0.0.0/8 64500\n127.0.0.0/8 home\n").unwrap();
    let wrong = trace(&["127.0.0.1", "--as-table", table]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_says(&wrong, "line 2, column 13: `home` is no AS number");
}
