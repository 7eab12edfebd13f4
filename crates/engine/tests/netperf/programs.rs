//! The programs themselves, where they are installed: netperf is in no free repository, iperf (2)
//! and nuttcp are.

use std::path::PathBuf;
use std::process::{Command, Output};

use linerate_core::foreign::Tool;
use linerate_testkit::{Need, skip};

use super::bench::Bench;

/// The path of a program, or the reason why it is missing.
pub(crate) fn program(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found =
        std::env::split_paths(&path).map(|place| place.join(name)).find(|file| file.is_file());
    if found.is_none() {
        let need = match name {
            "nuttcp" => Need::Nuttcp,
            "iperf" => Need::Iperf,
            _ => Need::Netperf,
        };
        skip(need, format_args!("no {name} here ({package})"));
    }
    found
}

fn run(program: &PathBuf, line: &str) -> Output {
    let output = Command::new(program).args(line.split_whitespace()).output().expect("it starts");
    assert!(output.status.success(), "{line}: {output:?}");
    output
}

#[test]
fn a_stock_netperf_gets_a_figure_from_each_of_its_tests() {
    let Some(netperf) = program("netperf", "build it from its source") else {
        return;
    };
    let bench = Bench::start();
    let port = bench.netperf.port();
    let tests = ["TCP_STREAM", "TCP_MAERTS", "TCP_RR", "TCP_CRR", "TCP_CC", "UDP_STREAM", "UDP_RR"];
    for test in tests {
        let line = format!("-H 127.0.0.1 -4 -p {port} -t {test} -l 1 -P 0 -c -C");
        let text = String::from_utf8_lossy(&run(&netperf, &line).stdout).into_owned();
        let figures: Vec<f64> =
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(figures.iter().any(|figure| *figure > 100.0), "{test}: {text}");
        assert_eq!(bench.record().via, Some(Tool::Netperf), "{test}");
    }
}

#[test]
fn a_stock_iperf_2_takes_the_sink_for_a_server() {
    let Some(iperf) = program("iperf", "apt-get install iperf") else {
        return;
    };
    let bench = Bench::start();
    let port = bench.sink.port();
    run(&iperf, &format!("-c 127.0.0.1 -p {port} -t 1"));
    let record = bench.record();
    assert_eq!(record.via, Some(Tool::Ttcp));
    assert!(record.bytes() > 1 << 20);
}
