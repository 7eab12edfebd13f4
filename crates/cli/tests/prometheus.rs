//! A real Prometheus scrapes a monitor, and takes what a monitor and a mesh send to it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use linerate_history::Filter;
use linerate_testkit::{Need, eventually, free_port, made_or_skip, skip};
use serde_json::Value;

use crate::monitor::{address, command, file, get, mesh_of_two, run};
use crate::support::{Killed, Served, spawn, stderr};

/// A server that scrapes `target` each second and takes OTLP, and its address; none, after saying
/// why, where there is no Prometheus.
fn server(here: &Path, target: &str) -> Option<(Killed, String)> {
    let found = Command::new("prometheus").arg("--version").output();
    let version = made_or_skip(Need::Prometheus, found)?;
    let is_2 = String::from_utf8_lossy(&version.stdout).contains("version 2.");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: scraped\n  \
         static_configs: [{{targets: [\"{target}\"]}}]\n"
    );
    fs::write(here.join("prometheus.yml"), text).unwrap();
    let at = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("prometheus");
    command.current_dir(here).args([
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=tsdb",
        match is_2 {
            true => "--enable-feature=otlp-write-receiver",
            false => "--web.enable-otlp-receiver",
        },
    ]);
    command.arg(format!("--web.listen-address={at}"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let server = Killed(child.unwrap());
    eventually("Prometheus is ready", || {
        std::net::TcpStream::connect(&at).is_ok()
            && get(&at, "/-/ready").starts_with("HTTP/1.1 200")
    });
    Some((server, at))
}

/// The samples of an expression: their labels and values.
fn ask(at: &str, expression: &str) -> Vec<Value> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = get(at, &format!("/api/v1/query?query={encoded}"));
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    // The body of a short answer is not chunked.
    let from = body.find('{').unwrap_or(0);
    let to = body.rfind('}').map_or(body.len(), |at| at + 1);
    let answer: Value = serde_json::from_str(&body[from..to]).expect(body);
    assert_eq!(answer["status"], "success", "{answer}");
    answer["data"]["result"].as_array().unwrap().clone()
}

/// The figures of the last run are what Prometheus has for them.
fn assert_has_last_run(at: &str, job: &str, history: &Path) {
    let history = linerate_history::open(&history.into()).unwrap();
    let run = history.list(&Filter::default()).unwrap()[0].id;
    let figures = history.figures(run).unwrap();
    assert!(!figures.is_empty());
    let labels = history.labels(run).unwrap();
    let (test, path) = (&labels["test"], &labels["path"]);
    for (figure, value) in figures {
        let expression = format!(
            "last_over_time(linerate_result{{job=\"{job}\",test=\"{test}\",path=\"{path}\",\
             figure=\"{figure}\"}}[1h])"
        );
        eventually("Prometheus has the figure", || !ask(at, &expression).is_empty());
        let found = ask(at, &expression);
        let text = found[0]["value"][1].as_str().unwrap();
        assert_eq!(text.parse::<f64>().unwrap(), value, "{job} {figure}");
    }
}

/// The command ends well, and the receiver has refused nothing.
fn assert_written(here: &Path, line: &str) {
    let done = run(here, line);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let said = stderr(&done);
    assert!(!said.contains("--otlp"), "{said}");
}

#[test]
fn a_prometheus_scrapes_a_monitor_and_takes_what_monitor_and_mesh_send() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    file(here, &served.address, "");
    let done = run(here, "monitor m.toml --once --db scraped.db");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    // Its only run stays the last one.
    let text = fs::read_to_string(here.join("m.toml")).unwrap();
    let seldom = text.replace("every = \"1s\"", "every = \"720h\"");
    fs::write(here.join("seldom.toml"), seldom).unwrap();
    let line = "monitor seldom.toml --db scraped.db --metrics 0 --quiet";
    let mut monitor = Killed(spawn(command(here, line)));
    let target = address(&mut monitor.0);
    let Some((_server, at)) = server(here, &target) else {
        return;
    };
    assert_has_last_run(&at, "scraped", &here.join("scraped.db"));
    assert_eq!(ask(&at, "linerate_build_info{job=\"scraped\"}").len(), 1);

    let to = format!("http://{at}/api/v1/otlp/v1/metrics");
    if get(&at, "/api/v1/otlp/v1/metrics").starts_with("HTTP/1.1 404") {
        skip(Need::PrometheusOtlp, "it is older than 2.47");
        return;
    }
    let line = format!("monitor m.toml --once --db written.db --otlp {to}");
    assert_written(here, &line);
    assert_has_last_run(&at, "linerate-monitor", &here.join("written.db"));

    mesh_of_two(here);
    let line = format!("mesh up mesh.toml --once --db mesh.db --otlp {to}");
    assert_written(here, &line);
    assert_has_last_run(&at, "linerate-mesh", &here.join("mesh.db"));
}
