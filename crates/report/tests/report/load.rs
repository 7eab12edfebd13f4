//! What a terminal shows of a mix.

use insta::assert_snapshot;
use linerate_core::load::{
    LoadDocument, LoadMember, LoadOneWay, Member, Mix, MixChoice, WayDelay, built_in,
};
use linerate_core::one_way::ClockOffset;
use linerate_core::plan::{Direction, Workload};
use linerate_core::record::{FlowRecord, Leg, Record, UdpEvidence};
use linerate_core::stats::LatencyBuckets;
use linerate_report::Document;
use linerate_report::document::Charted;
use linerate_report::text::Style;

use crate::samples::{both, latency, rr, whole};

fn ran(member: &Member) -> LoadMember {
    let test = member.test.clone();
    let mut record = match (member.test.workload(), member.codec) {
        (Workload::Stream, None) => both(),
        (Workload::Stream, Some(_)) => call(&member.test.direction),
        _ => rr(),
    };
    if member.probe {
        record.latency_us = Some(latency(252_000.0, 100));
    }
    record.protocol = test.protocol;
    record.plan = test;
    let mut ran = LoadMember::new(member, member.probe.then(|| latency(20_100.0, 30)), record);
    ran.started_s = Some(0.000_12);
    ran
}

fn call(direction: &Direction) -> Record {
    let mut record = Record { workload: Workload::Stream, ..both() };
    record.caveats.clear();
    record.flows.clear();
    record.legs = direction
        .parts()
        .iter()
        .map(|&direction| {
            let mut leg = Leg::new(direction);
            leg.throughput_bps = Some(68_800.0);
            leg.udp = Some(UdpEvidence {
                sent: 500,
                received: 495,
                lost: 5,
                loss_runs: Some(2),
                jitter_us: 2_100.0,
                ..UdpEvidence::default()
            });
            leg
        })
        .collect();
    let flow = both().flows.into_iter().next().expect("it has flows");
    let flow = |direction| FlowRecord { direction, throughput_bps: 68_800.0, ..flow.clone() };
    record.flows = direction.parts().iter().copied().map(flow).collect();
    record
}

pub(crate) fn document(name: &str) -> LoadDocument {
    let text = built_in(name).expect("it is built in");
    let mix = Mix::from_toml(name, text, &MixChoice::default()).expect("it can be read");
    let mut document = LoadDocument::new(&mix, 7, mix.members.iter().map(ran).collect());
    document.start_skew_us = Some(210.0);
    document.arrival_skew_us = Some(480.0);
    document
}

#[test]
fn the_answer_of_a_mix_is_its_totals_its_latencies_and_the_bottleneck() {
    for name in ["rrul", "voip", "web"] {
        let text = document(name).text(Style::default());
        assert!(text.lines().count() <= 24, "{text}");
        assert_snapshot!(format!("load_{name}"), text);
    }
}

#[test]
fn the_latency_under_load_is_drawn_from_the_histogram() {
    let mut document = document("voip");
    let drawn = |document: &LoadDocument| {
        let charts = document.charts();
        let latency = charts.iter().find(|chart| chart.name == "latency").expect("it has probes");
        latency.svg(900)
    };
    let of_quantiles = drawn(&document);
    for member in &mut document.members {
        let buckets = (1..200).map(|at| (2000.0 * f64::from(at), 3)).collect();
        member.record.latency_histogram = Some(LatencyBuckets(buckets));
    }
    assert!(drawn(&document).len() > of_quantiles.len() + 1000);
}

#[test]
fn the_details_have_every_member() {
    assert_snapshot!(document("voip").text(whole()));
}

#[test]
fn where_neither_way_adds_anything_no_zeros_stand_beside_what_round_trips_add() {
    let clock = ClockOffset {
        offset_us: 0.0,
        offset_error_us: 9.0,
        drift_ppm: 0.0,
        drift_min_ppm: 0.0,
        drift_max_ppm: 0.0,
    };
    let mut mix = document("rrul");
    for (added_us, words) in [
        ([-12.0, 0.0], "nothing added either way, by the UDP probes"),
        ([-12.0, 248_000.0], "248 ms added down, 0 µs up"),
    ] {
        let [up, down] = added_us.map(|added_us| WayDelay {
            idle_us: Some(latency(100.0, 30)),
            loaded_us: latency(100.0, 30),
            added_us: Some(added_us),
        });
        mix.one_way = Some(LoadOneWay { up, down, queue: None, clock });
        let text = mix.text(Style::default());
        assert!(text.contains(words), "{text}");
    }
}
