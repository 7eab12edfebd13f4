//! Mixes on loopback: members beside each other, and what an endpoint does not allow.

use linerate_core::load::{Mix, MixChoice};
use linerate_core::record::Status;
use linerate_core::session::message::Limits;
use linerate_engine::{MeasureError, Stop, Target, load};

use super::support::{LIMITS, Served};

const MIX: &str = r#"
title = "two beside each other"
time = "400ms"
idle = "200ms"

[[member]]
name = "bulk"
workload = { command = "stream", direction = "both", streams = 2 }

[[member]]
name = "late"
start = "100ms"
workload = { command = "crr" }

[[member]]
name = "probe"
probe = true
workload = { command = "rr", protocol = "udp", rate = 100 }
"#;

fn mix(text: &str) -> Mix {
    Mix::from_toml("own", text, &MixChoice::default()).unwrap()
}

#[test]
fn the_members_of_a_mix_run_beside_each_other_and_each_leaves_its_record() {
    let served = Served::with(
        [127, 0, 0, 1].into(),
        Limits {
            clients: 4,
            ..LIMITS
        },
        None,
    );
    let target = Target::at("here", served.address);
    let (document, error) = load(&target, &mix(MIX), 7, &Stop::new(), &mut ()).unwrap();
    assert!(error.is_none(), "{error:?}");
    assert_eq!(document.status, Status::Complete);
    let names: Vec<&str> = document
        .members
        .iter()
        .map(|member| member.name.as_str())
        .collect();
    assert_eq!(names, ["bulk", "late", "probe"]);
    let started: Vec<f64> = document
        .members
        .iter()
        .filter_map(|member| member.started_s)
        .collect();
    assert_eq!(started.len(), 3);
    assert!(started[1] >= 0.1, "{started:?}");
    assert!(document.start_skew_us.is_some());
    for total in [document.up, document.down] {
        let total = total.unwrap();
        assert!(total.flows == 2 && total.throughput_bps > 0.0, "{total:?}");
    }
    assert!(document.idle_latency_us > Some(0.0) && document.loaded_latency_us > Some(0.0));
    assert!(document.members[1].record.transactions > Some(0));
}

#[test]
fn what_cannot_run_ends_the_mix_before_it_begins() {
    let served = Served::start();
    let target = Target::at("here", served.address);
    let refused = |text: &str| load(&target, &mix(text), 7, &Stop::new(), &mut ());
    // Three of four places are one address's.
    let fourth = "[[member]]\nname = \"one more\"\nworkload = { command = \"rr\" }\n";
    let error = refused(&format!("{MIX}{fourth}")).unwrap_err();
    assert!(error.to_string().contains("4 members"), "{error}");
    // Found out only when its connection is made: the others wait, and are told.
    let lacking = MIX.replace(
        "command = \"crr\"",
        "command = \"stream\", congestion = \"nothing\"",
    );
    let error = refused(&lacking).unwrap_err();
    assert!(!matches!(error, MeasureError::Interrupted), "{error}");
    assert!(error.to_string().contains("nothing"), "{error}");
}
