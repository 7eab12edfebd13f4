//! The monitor with an endpoint on loopback: what it saves, tells and shows.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_engine::{Slot, Stop, Target};
use linerate_history::{Filter, History, NewAlarm};
use linerate_testkit::{Need, eventually, free_port, made_or_skip, skip};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use crate::support::{Killed, PATIENCE, PROGRAM, Served, assert_says, ended_within, spawn, stderr};

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/record.json");

/// A file of one test, run again and again, with `more` in it.
pub(crate) fn file(directory: &Path, host: &str, more: &str) {
    let text = format!(
        "[[path]]\nname = \"loop\"\nhost = \"{host}\"\nlabels = {{ site = \"no\\\"rth\" }}\n\
         [[test]]\nname = \"asks\"\nevery = \"1s\"\njitter = \"0s\"\n\
         workload = {{ command = \"rr\", time = \"100ms\", warm-up = \"0s\" }}\n{more}"
    );
    fs::write(directory.join("m.toml"), text).unwrap();
}

pub(crate) fn command(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(line.split_whitespace()).current_dir(directory);
    command
}

pub(crate) fn run(directory: &Path, line: &str) -> Output {
    ended_within(spawn(command(directory, line)), PATIENCE)
}

pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Where a child says that it serves pages.
pub(crate) fn address(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("http://")));
    thread::spawn(move || lines.for_each(drop));
    let line = line.expect("it says where");
    let rest = line.split("http://").nth(1).unwrap();
    rest.split('/').next().unwrap().to_owned()
}

#[test]
fn due_tests_are_run_and_saved_although_an_endpoint_is_unreachable() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    let nobody = "[[path]]\nname = \"nobody\"\nhost = \"127.0.0.1:1\"\n";
    file(here, &served.address, nobody);
    let done = run(here, "monitor m.toml --once --db h.db");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert_says(&done, "asks nobody:");
    let out = String::from_utf8(done.stdout).unwrap();
    assert!(out.contains("asks loop: ") && out.contains("(run 1)"), "{out}");
    let history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    let labels = history.labels(1).unwrap();
    assert_eq!((labels["test"].as_str(), labels["site"].as_str()), ("asks", "no\"rth"));
    assert!(history.figures(1).unwrap().iter().any(|(name, _)| name == "carried_bytes"));
    assert!(!here.join("h.db").metadata().unwrap().permissions().readonly());
}

#[test]
fn once_ends_although_a_test_takes_longer_than_its_interval() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    file(here, &served.address, "");
    let text = fs::read_to_string(here.join("m.toml")).unwrap();
    let longer = text.replace("time = \"100ms\"", "time = \"2500ms\"");
    fs::write(here.join("m.toml"), longer).unwrap();
    let done = run(here, "monitor m.toml --once --db h.db");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    assert_eq!(history.list(&Filter::default()).unwrap().len(), 1);
}

#[test]
fn a_file_is_checked_and_nothing_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    file(here, "pit:5201", "");
    let said = run(here, "monitor m.toml --check --db h.db");
    let page = String::from_utf8(said.stdout).unwrap();
    assert!(page.starts_with("asks loop: "), "{page}");
    assert!(page.contains(" runs in 24 h, first at 20"), "{page}");
    assert!(!here.join("h.db").exists());
    file(here, "pit:5201", "evry = 1\n");
    let wrong = run(here, "monitor m.toml");
    assert_eq!(wrong.status.code(), Some(2));
    let error = stderr(&wrong);
    assert!(error.contains("m.toml: line 10, column 1: [[test]] has no key `evry`"), "{error}");
}

#[test]
fn a_history_has_one_monitor() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    file(here, "127.0.0.1:1", "");
    let mut first = Killed(spawn(command(here, "monitor m.toml --db h.db --metrics 0")));
    address(&mut first.0);
    let second = run(here, "monitor m.toml --once --db h.db");
    assert_eq!(second.status.code(), Some(1));
    assert_says(&second, "another monitor");
}

/// The same law a hundred times over is for who has the time: `LINERATE_KILLS=100`.
#[test]
fn a_monitor_that_is_killed_at_any_moment_loses_no_run_and_saves_none_twice() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    file(here, &served.address, "");
    let kills = std::env::var("LINERATE_KILLS").ok().and_then(|kills| kills.parse().ok());
    let mut said = Vec::new();
    for number in 0..kills.unwrap_or(20) {
        let mut child = spawn(command(here, "monitor m.toml --db h.db"));
        // Anywhere in the second in which it begins, runs, saves and waits.
        thread::sleep(Duration::from_millis(number * 7919 % 1300));
        child.kill().unwrap();
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        child.wait().unwrap();
        let numbers = out.lines().filter_map(|line| line.split("(run ").nth(1)?.strip_suffix(')'));
        said.extend(numbers.map(|number| number.parse::<i64>().unwrap()));
    }
    // However slow the machine was, one is run to its end.
    let last = run(here, "monitor m.toml --once --db h.db");
    assert_eq!(last.status.code(), Some(0), "{}", stderr(&last));
    let history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    let runs = history.list(&Filter::default()).unwrap();
    let mut begun: Vec<&str> = runs.iter().map(|run| run.started_at.as_str()).collect();
    assert!(!begun.is_empty());
    begun.dedup();
    assert_eq!(begun.len(), runs.len(), "a slot was run twice: {begun:?}");
    for run in said {
        let document = history.document(run).unwrap().expect("a run that was said is there");
        let document: Value = serde_json::from_str(&document).expect("whole");
        assert_eq!(document["status"], "complete");
    }
    for run in &runs {
        assert!(!history.figures(run.id).unwrap().is_empty() && !run.labels.is_empty());
    }
}

/// Saves a run of the monitor's test by hand, with its rate and the bytes that it carried.
pub(crate) fn save_run(history: &mut History, started_at: &str, figures: [f64; 2], document: &str) {
    save_named_run(history, started_at, "transactions_per_s", figures, document);
}

fn save_named_run(
    history: &mut History,
    started_at: &str,
    metric: &str,
    figures: [f64; 2],
    document: &str,
) {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let names = [metric, "carried_bytes"].map(str::to_owned);
    let figures: Vec<_> = names.into_iter().zip(figures).collect();
    let run = linerate_history::NewRun {
        started_at,
        schema: "linerate.record/1",
        path: "x",
        workload: "rr",
        detail: "tcp",
        series: "asks to loop",
        answer: "x",
        cause: None,
        figures: &figures,
        pairs: &[],
        labels: &[pair("test", "asks"), pair("path", "loop")],
        document,
    };
    history.save(&run).unwrap();
}

/// Saves `count` runs with about `level` transactions/s.
pub(crate) fn save_series(history: &mut History, from: usize, count: usize, level: f64) {
    let document = fs::read_to_string(RECORD).unwrap();
    let mut document: Value = serde_json::from_str(&document).unwrap();
    for number in from..from + count {
        let kernel = if level > 1e4 { "6.1" } else { "6.12" };
        document["environment"]["client"]["kernel"] = kernel.into();
        let started_at = format!("2026-01-{:02}T{:02}:00:00Z", number / 24 + 1, number % 24);
        let value = level * (1.0 + 0.001 * (number * 7 % 10) as f64);
        save_run(history, &started_at, [value, 1.0], &document.to_string());
    }
}

#[test]
fn a_change_is_reported_once_with_other_changes_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    let mut history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    // Far faster and far slower than loopback is: the monitor's own run is the last of a plain
    // change.
    save_series(&mut history, 0, 40, 1e9);
    save_series(&mut history, 40, 6, 1.0);
    drop(history);
    let alarm = "[alarm]\ncommand = [\"sh\", \"-c\", \"test ! -e broken && cat >> told.jsonl\"]\n";
    file(here, &served.address, alarm);
    fs::write(here.join("broken"), "").unwrap();
    let failed = run(here, "monitor m.toml --once --db h.db");
    assert_says(&failed, "alarm: sh: exit status: 1");
    fs::remove_file(here.join("broken")).unwrap();
    let until = Instant::now() + PATIENCE;
    let told = || fs::read_to_string(here.join("told.jsonl")).unwrap_or_default();
    while told().is_empty() {
        assert!(Instant::now() < until, "{}", told());
        run(here, "monitor m.toml --once --db h.db");
    }
    run(here, "monitor m.toml --once --db h.db");
    let lines: Vec<Value> =
        told().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "told once");
    assert_eq!(lines[0]["schema"], "linerate.alarm/1");
    assert_eq!(
        (&lines[0]["test"], &lines[0]["labels"]["site"]),
        (&"asks".into(), &"no\"rth".into())
    );
    assert_eq!(lines[0]["metric"], "transactions_per_s");
    assert_eq!(lines[0]["run"], 41);
    assert_eq!(lines[0]["beside"][0]["what"], "kernel here");
    assert!(lines[0]["change_percent"].as_f64().unwrap() < -99.0);
}

#[test]
fn a_change_of_a_bulk_test_is_proved_and_the_alarm_has_the_proof() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    let mut history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    for number in 0..46 {
        let level = if number < 40 { 1e15 } else { 1.0 };
        let started_at = format!("2026-01-01T00:{number:02}:00Z");
        let value = level * (1.0 + 0.001 * f64::from(number));
        save_named_run(&mut history, &started_at, "throughput_bps", [value, 1.0], "{}");
    }
    file(here, &served.address, "[alarm]\ncommand = [\"sh\", \"-c\", \"cat >> told.jsonl\"]\n");
    let text = fs::read_to_string(here.join("m.toml")).unwrap();
    // In so long a time something arrives, however busy the host is.
    let text = text.replace("\"rr\", time = \"100ms\"", "\"stream\", time = \"500ms\"");
    fs::write(here.join("m.toml"), text).unwrap();
    let until = Instant::now() + PATIENCE;
    let told = || fs::read_to_string(here.join("told.jsonl")).unwrap_or_default();
    let mut said = String::new();
    while told().is_empty() {
        assert!(Instant::now() < until, "{said}");
        said = stderr(&run(here, "monitor m.toml --once --db h.db"));
    }
    let alarm: Value = serde_json::from_str(&told()).expect("it is told once");
    let now = &alarm["now"][0];
    assert!(said.contains("now: "), "{said}");
    assert!(["proved", "likely", "open"].contains(&now["proof"].as_str().unwrap()), "{alarm}");
    let run = alarm["proof_run"].as_i64().unwrap();
    assert_eq!(history.labels(run).unwrap()["proof"], "change");
    let document: Value = serde_json::from_str(&history.document(run).unwrap().unwrap()).unwrap();
    assert_eq!(document["verdict"]["proof"], now["proof"]);
    assert!(document["experiments_bytes"].as_u64() > document["bytes"].as_u64());
    assert!(document["command"].as_array().unwrap().contains(&"--prove".into()), "{document}");
}

/// The history `h.db`, with an alarm of which the webhook has not been told.
fn with_alarm(directory: &Path) -> History {
    let mut history = linerate_history::open(&directory.join("h.db").as_path().into()).unwrap();
    let alarm = NewAlarm {
        owner: "",
        series: "asks loop ",
        run: 1,
        change: "{\"schema\":\"linerate.alarm/1\"}",
        channels: &["webhook"],
    };
    history.raise(&alarm).unwrap();
    history
}

#[test]
fn a_webhook_gets_the_change() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let history = with_alarm(here);
    let port = hook.local_addr().unwrap().port();
    file(here, "127.0.0.1:1", &format!("[alarm]\nwebhook = \"http://127.0.0.1:{port}/a?b=c\"\n"));
    let child = spawn(command(here, "monitor m.toml --once --db h.db"));
    let mut stream = BufReader::new(accepted(&hook));
    let (head, body) = http_request(&mut stream).unwrap();
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    stream.get_mut().write_all(answer).unwrap();
    let done = ended_within(child, PATIENCE);
    assert!(head.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{head}");
    assert!(String::from_utf8_lossy(&body).contains("alarm/1\"}"));
    assert!(!stderr(&done).contains("alarm:"), "{}", stderr(&done));
    assert_eq!(history.untold("", "webhook").unwrap(), []);
}

/// A self-signed certificate of 127.0.0.1 and its key, `c.pem` and `k.pem`.
fn certificate(directory: &Path) -> bool {
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
                     -config /dev/null -subj /CN=hooks -addext subjectAltName=IP:127.0.0.1 \
                     -addext basicConstraints=critical,CA:FALSE -keyout k.pem -out c.pem";
    let mut openssl = Command::new("openssl");
    let openssl = openssl.args(arguments.split_whitespace()).current_dir(directory);
    openssl.output().is_ok_and(|made| made.status.success())
}

#[test]
fn a_webhook_is_told_over_tls_only_if_this_host_trusts_it() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    if !certificate(here) {
        skip(Need::Openssl, "needs openssl 3: apt-get install openssl");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let key = PrivateKeyDer::from_pem_file(here.join("k.pem")).unwrap();
    let chain = vec![CertificateDer::from_pem_file(here.join("c.pem")).unwrap()];
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let server = Arc::new(server);
    // Who does not trust the certificate sends no request.
    let hooked = thread::spawn(move || {
        loop {
            let connection = ServerConnection::new(Arc::clone(&server)).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(connection, accepted(&listener)));
            if let Ok(request) = http_request(&mut stream) {
                let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                stream.get_mut().write_all(answer).unwrap();
                return request;
            }
        }
    });
    let hook = format!("[alarm]\nwebhook = \"https://127.0.0.1:{port}/a\"\n");
    file(here, "127.0.0.1:1", &hook);
    let history = with_alarm(here);
    let tell = |trusted: &str| {
        let mut command = command(here, "monitor m.toml --once --db h.db");
        command.env("SSL_CERT_FILE", here.join(trusted));
        spawn(command)
    };
    fs::write(here.join("none.pem"), "").unwrap();
    let untold = ended_within(tell("none.pem"), PATIENCE);
    assert_says(&untold, "certificate");
    assert_eq!(history.untold("", "webhook").unwrap().len(), 1);
    let told = ended_within(tell("c.pem"), PATIENCE);
    let (head, body) = hooked.join().unwrap();
    assert!(head.starts_with("POST /a HTTP/1.1"), "{head}");
    assert!(String::from_utf8_lossy(&body).contains("alarm/1"));
    assert!(!stderr(&told).contains("alarm:"), "{}", stderr(&told));
    assert_eq!(history.untold("", "webhook").unwrap(), []);
}

/// The next connection; none comes from a program that has ended.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut next = None;
    eventually("somebody connects", || {
        next = listener.accept().ok();
        next.is_some()
    });
    let (stream, _) = next.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Head and body of a request that says how long it is.
fn http_request(stream: &mut impl BufRead) -> io::Result<(String, Vec<u8>)> {
    let (mut head, mut line) = (String::new(), String::new());
    while stream.read_line(&mut line)? > 2 {
        head += &std::mem::take(&mut line);
    }
    let length = head.to_lowercase();
    let length = length.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
    let mut body = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}

/// What a collector is sent: it answers the first request with `first`, the others with 200.
fn collected(listener: &TcpListener, first: &str, count: usize) -> Vec<(String, Value)> {
    let mut sent = Vec::new();
    while sent.len() < count {
        let mut stream = BufReader::new(accepted(listener));
        let (head, body) = http_request(&mut stream).unwrap();
        let status = if sent.is_empty() { first } else { "200 OK" };
        // At once: who has the status goes.
        let answer = format!("HTTP/1.1 {status}\r\n\r\n{{}}");
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        sent.push((head, serde_json::from_slice(&body).unwrap()));
    }
    sent
}

#[test]
fn a_collector_gets_the_metrics_and_one_that_is_away_disturbs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    file(here, &served.address, "");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let monitor = |listener: &TcpListener, options: &str| {
        let at = listener.local_addr().unwrap();
        let line = format!("monitor m.toml --quiet --otlp http://{at} {options}");
        Killed(spawn(command(here, &line)))
    };
    // That before the run, again, and that after it.
    let mut child = monitor(&listener, "--db h.db");
    let sent = collected(&listener, "503 Service Unavailable", 3);
    child.0.kill().unwrap();
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("answered 503") && said.contains("takes metrics again"), "{said}");
    // What waits at the end is sent.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut once = monitor(&listener, "--db once.db --once");
    let last = collected(&listener, "200 OK", 2).pop().unwrap().1;
    assert!(last.to_string().contains("transactions_per_s"), "{last}");
    assert_eq!(once.0.wait().unwrap().code(), Some(0));
    assert_eq!(sent[0].1, sent[1].1);
    let (head, request) = &sent[2];
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!((head.to_lowercase()).contains("content-type: application/json\r\n"), "{head}");
    let of = &request["resourceMetrics"][0];
    let service = &of["resource"]["attributes"][0];
    assert_eq!(service["key"], "service.name");
    assert_eq!(service["value"]["stringValue"], "linerate-monitor");
    let metrics = of["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let named = |name: &str| {
        let found = metrics.iter().find(|metric| metric["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {metrics:#?}"))
    };
    let results = named("linerate_result")["gauge"]["dataPoints"].as_array().unwrap();
    let history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    let mut figures = history.figures(1).unwrap().into_iter();
    assert_eq!(results.len(), figures.len());
    assert!(results.iter().all(|point| {
        let (name, value) = figures.next().unwrap();
        let labels = point["attributes"].as_array().unwrap();
        let last = labels.last().unwrap();
        let at: u64 = point["timeUnixNano"].as_str().unwrap().parse().unwrap();
        last["key"] == "figure"
            && last["value"]["stringValue"] == name
            && point["asDouble"] == value
            && at > 1_700_000_000_000_000_000
    }));
    let runs = &named("linerate_monitor_runs_total")["sum"];
    assert_eq!((&runs["aggregationTemporality"], &runs["isMonotonic"]), (&2.into(), &true.into()));
    assert_eq!(runs["dataPoints"][0]["asDouble"], 1.0);
    assert!(runs["dataPoints"][0]["startTimeUnixNano"].is_string());

    let away = run(here, "monitor m.toml --once --db away.db --otlp http://127.0.0.1:1");
    assert_eq!(away.status.code(), Some(0), "{}", stderr(&away));
    assert_says(&away, "--otlp 127.0.0.1:1: ");
    assert_says(&away, "the tests go on");
    assert!(String::from_utf8_lossy(&away.stdout).contains("(run 1)"));
    let wrong = run(here, "monitor m.toml --otlp ftp://collector:4318");
    assert_eq!(wrong.status.code(), Some(2));
    assert_says(&wrong, "http://HOST:PORT");
    let gone = run(here, "monitor m.toml --remote-write http://127.0.0.1:1");
    assert_eq!(gone.status.code(), Some(2));
    assert_says(&gone, "--otlp");
}

/// `mesh.toml`: two sites on this host, and a short test between them.
pub(crate) fn mesh_of_two(directory: &Path) {
    let ports = [(); 2].map(|()| free_port());
    let mesh = format!(
        "[[site]]\nname = \"x\"\nhost = \"127.0.0.1:{}\"\n[[site]]\nname = \"y\"\nhost = \
         \"127.0.0.1:{}\"\n[[test]]\nname = \"ping\"\nevery = \"10min\"\nworkload = {{ \
         command = \"rr\", time = \"100ms\", warm-up = \"0s\" }}\n",
        ports[0], ports[1]
    );
    fs::write(directory.join("mesh.toml"), mesh).unwrap();
}

#[test]
fn a_collector_gets_each_result_of_a_mesh() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    mesh_of_two(here);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let line = format!("mesh up mesh.toml --once --db mesh.db --otlp http://{at}/own/path");
    let mut mesh = Killed(spawn(command(here, &line)));
    let (head, request) = collected(&listener, "200 OK", 1).remove(0);
    assert_eq!(mesh.0.wait().unwrap().code(), Some(0));
    assert!(head.starts_with("POST /own/path HTTP/1.1\r\n"), "{head}");
    let sent = request.to_string();
    assert!(sent.contains("linerate-mesh") && sent.contains("service.instance.id"), "{sent}");
    assert!(sent.contains("transactions_per_s"), "{sent}");
    assert!(!sent.contains(r#""key":"run""#), "each run a series: {sent}");
}

#[test]
fn a_monitor_waits_until_another_one_has_given_the_slot_back() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    file(here, &served.address, "");
    let target = Target::at("endpoint", served.address.parse().unwrap());
    let long = Duration::from_secs(900);
    let taken = Slot::take(target, long, PATIENCE, &Stop::new(), &mut |_| ());
    let slot = taken.unwrap();
    let busy = run(here, "monitor m.toml --once --db h.db");
    let words = stderr(&busy);
    assert!(words.contains("the endpoint is busy until "), "{words}");
    assert!(words.contains("asked again in a minute") && busy.stdout.is_empty());
    drop(slot);
    eventually("the slot is given back", || {
        let done = run(here, "monitor m.toml --once --db h.db");
        String::from_utf8_lossy(&done.stdout).contains("(run 1)")
    });
}

#[test]
fn prometheus_reads_the_last_results_and_probes_what_the_file_permits() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    file(here, &served.address, "");
    run(here, "monitor m.toml --once --db h.db");
    let mut monitor = Killed(spawn(command(here, "monitor m.toml --db h.db --metrics 0 --quiet")));
    let at = address(&mut monitor.0);
    let page = get(&at, "/metrics");
    let own = "test=\"asks\",path=\"loop\",site=\"no\\\"rth\"";
    assert!(
        page.contains(&format!("linerate_result{{{own},figure=\"transactions_per_s\"}} ")),
        "{page}"
    );
    assert!(
        page.contains(
            "linerate_monitor_runs_total{test=\"asks\",path=\"loop\",outcome=\"failed\"} 0"
        )
    );
    promtool(&page);
    assert!(get(&at, "/").starts_with("HTTP/1.1 404"));
    let dashboard = include_str!("../../../packaging/grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut names = Vec::new();
    metric_names(&dashboard, &mut names);
    assert!(names.len() > 9, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("# TYPE {name} ")), "{name} is not served");
    }
    drop(monitor);
    let mut probe = Killed(spawn(command(here, "probe m.toml --listen 0")));
    let at = address(&mut probe.0);
    let page = get(&at, "/probe?target=loop&module=asks");
    promtool(&page);
    assert!(page.contains("\nlinerate_probe_success 1\n"), "{page}");
    assert!(page.contains("linerate_result{figure=\"transactions_per_s\"} "), "{page}");
    assert!(get(&at, "/probe?target=192.0.2.1&module=asks").starts_with("HTTP/1.1 403"));
    assert!(get(&at, "/probe?target=loop&module=other").starts_with("HTTP/1.1 404"));
}

/// Prometheus's own tool finds nothing to say of the page.
fn promtool(answer: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Some(mut child) = made_or_skip(Need::Promtool, started) else {
        return;
    };
    let (_, page) = answer.split_once("\r\n\r\n").unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{}", stderr(&said));
}

/// The metrics that the expressions of a dashboard name.
fn metric_names(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| match value {
            Value::String(text) if key == "expr" || key == "query" => {
                let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                names.extend(words.filter(|word| word.starts_with("linerate_")).map(str::to_owned));
            }
            value => metric_names(value, names),
        }),
        Value::Array(items) => items.iter().for_each(|item| metric_names(item, names)),
        _ => {}
    }
}
