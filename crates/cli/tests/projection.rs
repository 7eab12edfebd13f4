//! What a change would bring, projected and then done, over a pair of veth devices.

use std::thread;
use std::time::Duration;

use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic};
use linerate_core::profile::projection::{
    CostModel, ETHERNET_MTU, Known, Projection, Unprojected, design_of, fit, median_error_percent,
    project_all,
};
use linerate_core::units::Span;
use linerate_engine::{Client, DesignOptions, LabOptions, LabPath, Stop, prove, run_design};
use linerate_report::text::{Style, projections};
use linerate_sys::netns::Namespace;
use linerate_testkit::{Need, skip};

const SEED: u64 = 1981;

fn stream() -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest::new(128 << 10)),
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 1,
        extent: Extent::Time(Span(Duration::from_secs(1))),
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions::default(),
        seed: SEED,
    }
}

/// Does something at the client of a lab of two hosts with a plain veth pair between them, MTU
/// 1500.
fn in_lab(act: impl FnOnce(&mut Client) + Send) {
    if let Err(error) = Namespace::create("probe") {
        skip(Need::Lab, format_args!("needs network namespaces: {error}"));
        return;
    }
    let spec = "mtu=1500".parse().unwrap();
    let path = LabPath::build(&spec, None, &LabOptions::default()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            path.enter().unwrap();
            let mut client = Client::connect(path.target(), Stop::new()).unwrap();
            act(&mut client);
        });
    });
}

fn milliseconds(ms: u64) -> Span {
    Span(Duration::from_millis(ms))
}

#[test]
fn a_design_over_veth_gives_a_model_and_projections() {
    in_lab(|client| {
        let options = DesignOptions {
            test: stream(),
            path_mtu_bytes: Some(ETHERNET_MTU),
            runs: 1,
            pairs: 8,
            time: milliseconds(500),
            seed: SEED,
        };
        let designed = run_design(client, &options, &mut ()).unwrap();
        // What veth has not; and what a run that the machine held up leaves no count of.
        let held_back = designed.left_out.iter().find(|one| one.point == "held_back_64k");
        assert!(held_back.is_some_and(|one| one.why.contains("does not have it")));
        assert!(!designed.runs.is_empty());
        // Runs of half a second on a busy machine may give no model.
        let Ok(model) = fit(&designed.runs, SEED) else {
            return;
        };
        let (all, others) = project_all(&model, &designed, &Known::default());
        for one in &all {
            let [low, high] = one.throughput_interval_bps;
            assert!(low <= high, "{one:?}");
        }
        let mut others_named = others.iter().map(|one| one.what_if.as_str());
        assert!(others_named.any(|name| name == "interrupts_held_back"), "{others:?}");
        eprintln!("{}", projections(&[model], &all, &others, Style::default()));
    });
}

/// The table of `docs/profile-projection.md`; minutes long, and of no use on a busy machine.
#[test]
#[ignore = "measures; run it by itself, on a quiet machine, in release"]
fn every_projection_that_can_be_had_beside_its_measurement() {
    let seconds = |name: &str, usual: u64| {
        std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
    };
    let time = milliseconds(seconds("PROVE_MS", 1000));
    let runs = seconds("PROVE_RUNS", 4) as u32;
    let pairs = seconds("PROVE_PAIRS", 8) as u32;
    let mut models: Vec<CostModel> = Vec::new();
    let mut all: Vec<Projection> = Vec::new();
    let mut others: Vec<Unprojected> = Vec::new();
    in_lab(|client| {
        let is_asked = |test: &Test| {
            let only = std::env::var("PROVE_ONLY").unwrap_or_default();
            only.is_empty() || format!("{:?}", test.protocol).eq_ignore_ascii_case(&only)
        };
        let tests = [Protocol::Tcp, Protocol::Udp].map(|protocol| design_of(protocol, &stream()));
        for test in tests.into_iter().filter(is_asked) {
            let options = DesignOptions {
                test,
                path_mtu_bytes: Some(ETHERNET_MTU),
                runs,
                pairs,
                time,
                seed: SEED,
            };
            let designed = run_design(client, &options, &mut ()).unwrap();
            eprintln!("left out: {:?}", designed.left_out);
            if std::env::var_os("PROVE_RUNS_SHOWN").is_some() {
                designed.runs.iter().for_each(|run| eprintln!("{run:?}"));
            }
            let model = fit(&designed.runs, SEED).unwrap();
            let (mut projected, none) = project_all(&model, &designed, &Known::default());
            others.extend(none);
            prove(client, &options, &mut projected, &mut ()).unwrap();
            models.push(model);
            all.extend(projected);
        }
    });
    eprintln!("{}", projections(&models, &all, &others, Style::default()));
    eprintln!("median error of throughput: {:.1?} %", median_error_percent(&all));
}
