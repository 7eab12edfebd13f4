//! Every server of the program beside a stranger who holds 500 connections and sends nothing, or
//! half a request: with 64 descriptors it serves the next client while all of them are still there.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};

use linerate_sys::proc::privilege::raise_descriptor_limit;
use linerate_testkit::eventually;
use socket2::{Domain, Socket, Type};

use crate::monitor::{address, command, file, get, run};
use crate::support::{Killed, PROGRAM, Served, spawn, stderr, words};
use crate::web::ask;

const DESCRIPTORS: usize = 64;
const CONNECTIONS: usize = 500;

/// The program with few descriptors.
fn narrow(here: &Path) -> Command {
    let mut command = Command::new("sh");
    let line = format!("ulimit -n {DESCRIPTORS} && exec \"$0\" \"$@\"");
    command.current_dir(here).args(["-c", &line, PROGRAM]);
    command
}

fn started(here: &Path, line: &str) -> (Killed, String) {
    let mut command = narrow(here);
    command.args(words(line));
    let mut child = Killed(spawn(command));
    let at = address(&mut child.0);
    (child, at)
}

/// The stranger's connections from an address of its own: every second one sends half a request.
fn stranger(at: &str, half: &[u8]) -> Vec<TcpStream> {
    let here = SocketAddr::from(([127, 0, 0, 2], 0));
    let to: SocketAddr = at.parse().unwrap();
    let connect = |number: usize| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&here.into()).unwrap();
        socket.connect(&to.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        if number.is_multiple_of(2) {
            // A server may have closed it before.
            let _ = stream.write_all(half);
        }
        stream
    };
    (0..CONNECTIONS).map(connect).collect()
}

fn is_there(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// The page that has these words is served beside the stranger, and again afterwards.
fn assert_serves(child: &mut Child, at: &str, page: &str, words: &str) {
    let held = stranger(at, b"GET / HTTP/1.1\r\nHost: local");
    let half_a_form = b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\ntest=";
    let forms = stranger(at, half_a_form);
    let answer = get(at, page);
    assert!(answer.contains(words), "{answer}");
    drop((held, forms));
    assert!(get(at, page).contains(words));
    assert!(is_there(child));
}

#[test]
fn the_http_servers_serve_the_next_client_beside_a_strangers_idle_connections() {
    raise_descriptor_limit().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    file(here, &served.address, "");

    let (mut web, at) = started(here, "web m.toml --db h.db --listen 0");
    assert_serves(&mut web.0, &at, "/", "HTTP/1.1 200 ");

    let (mut probe, at) = started(here, "probe m.toml --listen 0");
    assert_serves(&mut probe.0, &at, "/probe?target=loop", "linerate_probe_success 1\n");

    let (mut monitor, at) = started(here, "monitor m.toml --db h.db --metrics 0 --quiet");
    let held = stranger(&at, b"GET");
    let saved = || {
        let page = get(&at, "/metrics");
        let line = "outcome=\"saved\"} ";
        let count = page.split(line).nth(1).and_then(|rest| rest.lines().next());
        count.and_then(|count| count.parse::<u32>().ok()).expect(&page)
    };
    let before = saved();
    eventually("the monitor goes on measuring", || saved() > before);
    drop(held);
    assert_serves(&mut monitor.0, &at, "/metrics", "linerate_build_info");
}

#[test]
fn an_endpoint_serves_the_next_client_beside_a_strangers_idle_connections() {
    raise_descriptor_limit().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let others = ["--netperf=0", "--ttcp=0", "--ttcp-source=0", "--stamp=0"];
    let mut served = Served::by(narrow(here), &others);
    let at = served.address.clone();
    let port = at.rsplit(':').next().unwrap();
    let mut held = Vec::new();
    for busy in std::iter::once(&at).chain(&served.others) {
        held.push(stranger(busy, b"\xd1liner"));
        let descriptors = format!("/proc/{}/fd", served.child.id());
        eventually("descriptors are left for a client", || {
            std::fs::read_dir(&descriptors).unwrap().count() <= DESCRIPTORS - 6
        });
        for line in [
            format!("rr {at} -t 100ms --warm-up 0s --quiet"),
            format!("iperf3 -c 127.0.0.1 -p {port} -n 1M"),
        ] {
            let done = run(here, &line);
            assert_eq!(done.status.code(), Some(0), "{busy}: {line}: {}", stderr(&done));
        }
    }
    assert!(is_there(&mut served.child));
}

#[test]
fn a_page_of_another_site_reads_no_metrics_and_starts_no_probe() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    file(here, "127.0.0.1:1", "");
    let lines = [
        ("monitor m.toml --db h.db --quiet --metrics", "/metrics"),
        ("probe m.toml --listen", "/probe?target=loop"),
    ];
    for (line, page) in lines {
        let begin = |listen: &str| {
            let mut child = Killed(spawn(command(here, &format!("{line} {listen}"))));
            let at = address(&mut child.0);
            (child, at)
        };
        let (_child, at) = begin("0");
        let by =
            |at: &str, head: &str| ask(at, &format!("GET {page} HTTP/1.1\r\nHost: {head}"), "");
        assert!(by(&at, "localhost").starts_with("HTTP/1.1 200 "));
        for name in ["evil.example", "192.0.2.1:80"] {
            assert!(by(&at, name).starts_with("HTTP/1.1 403 "), "{name}");
        }
        if line.starts_with("probe") {
            for site in ["cross-site", "same-site"] {
                let head = format!("localhost\r\nSec-Fetch-Site: {site}");
                assert!(by(&at, &head).starts_with("HTTP/1.1 403 "), "{site}");
            }
            assert!(by(&at, "localhost\r\nSec-Fetch-Site: none").starts_with("HTTP/1.1 200 "));
        }
        drop(_child);
        let (_child, at) = begin("0.0.0.0:0");
        let at = at.replace("0.0.0.0", "127.0.0.1");
        assert!(by(&at, "192.0.2.1:80").starts_with("HTTP/1.1 200 "));
        assert!(by(&at, "evil.example").starts_with("HTTP/1.1 403 "));
    }
}
