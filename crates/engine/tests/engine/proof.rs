//! Proofs of what holds a test back, over loopback. How fast the runs are is the machine's; what is
//! asserted is what was changed, how often, and what is said of it.

use linerate_core::plan::*;
use linerate_core::proof::{ProofBudget, intervention};
use linerate_core::record::Record;
use linerate_core::session::message::Limits;
use linerate_core::units::ByteCount;
use linerate_engine::{Observer, Partner, prove_bottleneck};

use super::support::{LIMITS, Served, stream};

/// Keeps the phases.
#[derive(Default)]
struct Phases(Vec<String>);

impl Observer for Phases {
    fn phase(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn interval(&mut self, _: &linerate_core::record::Interval) -> bool {
        true
    }
}

fn window_of_64_kib(direction: Direction) -> Test {
    let window = Some(ByteCount(64 << 10));
    let options = SocketOptions { receive_window_bytes: window, ..SocketOptions::default() };
    Test { direction, options, ..stream() }
}

fn prove(served: &Served, test: &Test, budget: ProofBudget) -> (Record, Vec<String>) {
    let mut partner = Partner::Own(Box::new(served.client()));
    let mut phases = Phases::default();
    let (record, error) = prove_bottleneck(&mut partner, test, budget, &mut phases).unwrap();
    assert!(error.is_none(), "{error:?}");
    (record, phases.0)
}

#[test]
fn the_runs_of_a_proof_are_within_its_budget_and_the_record_is_of_the_plain_test() {
    let served = Served::start();
    for direction in [Direction::Up, Direction::Down] {
        let test = window_of_64_kib(direction);
        let budget = ProofBudget { runs: 4, ..ProofBudget::default() };
        let (record, phases) = prove(&served, &test, budget);
        assert_eq!(record.plan, test);
        assert!((1..=4).contains(&phases.len()), "{phases:?}");
        let leg = record.leg().unwrap();
        let changed: u32 = leg.experiments.iter().map(|change| change.runs).sum();
        assert!(changed as usize <= phases.len() / 2, "{phases:?}");
        for change in &leg.experiments {
            assert!(intervention(&change.change).is_some(), "{change:?}");
            let [low, high] = change.interval;
            assert!(low <= change.ratio && change.ratio <= high, "{change:?}");
        }
        let proof = record.verdict().unwrap().proof.as_ref().expect("changes were made");
        assert!(proof.causes.len() <= 2);
    }
}

#[test]
fn what_an_endpoint_refuses_or_slows_down_is_left_out_and_said() {
    let few = Limits { streams: 1, ..LIMITS };
    let slow = Limits { rate_bps: Some(20_000_000), ..LIMITS };
    for limits in [few, slow] {
        let served = Served::with(std::net::Ipv4Addr::LOCALHOST.into(), limits, None);
        let test = window_of_64_kib(Direction::Up);
        let (record, phases) = prove(&served, &test, ProofBudget::default());
        let leg = record.leg().unwrap();
        assert!(leg.experiments.iter().all(|change| change.change != "streams=2"), "{leg:?}");
        if phases.iter().any(|phase| phase.ends_with("twice the flows")) {
            let not_made = &leg.experiments_not_made;
            assert!(not_made.iter().any(|not| not.change == "streams=2"), "{not_made:?}");
        }
    }
}

#[test]
fn both_directions_at_once_are_measured_and_have_no_proof() {
    let served = Served::start();
    let test = Test { direction: Direction::Both, ..stream() };
    let (record, phases) = prove(&served, &test, ProofBudget::default());
    assert_eq!((phases.len(), record.legs.len()), (1, 2));
    assert!(record.legs.iter().all(|leg| leg.experiments.is_empty()));
}
