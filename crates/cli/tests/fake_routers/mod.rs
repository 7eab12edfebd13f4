//! `linerate trace` against routers that no lab has: they label, mark, refuse by every code, lie,
//! answer twice, late or over a longer way back. What is asserted is whose each answer is and what
//! is said of it; no time but those that the routers themselves wait at least.

mod network;
mod packet;

use std::thread;
use std::time::Duration;

use network::{Balance, Chain, Network, ROUND_TRIP, Router, forger, router, target};
use packet::Extras;
use serde_json::{Value, json};

const FAMILIES: [bool; 2] = [true, false];
const KINDS: [&str; 3] = ["udp", "icmp", "tcp"];

/// All of them at once: a trace waits most of its time.
fn together<T: Copy + Send>(all: impl IntoIterator<Item = T>, act: impl Fn(T) + Sync) {
    let act = &act;
    thread::scope(|scope| {
        all.into_iter().for_each(|one| {
            scope.spawn(move || act(one));
        });
    });
}

fn each_way(act: impl Fn(bool, &str) + Sync) {
    let ways = FAMILIES.into_iter().flat_map(|is_v4| KINDS.map(|kind| (is_v4, kind)));
    together(ways, |(is_v4, kind)| act(is_v4, kind));
}

fn hops(document: &Value) -> &[Value] {
    document["hops"].as_array().expect("hops")
}

fn steps(document: &Value) -> &[Value] {
    document["delay"]["steps"].as_array().expect("steps")
}

/// Each hop's address must be that of the router at its TTL, the last one the target's; `null`
/// where it is silent.
fn assert_route(document: &Value, is_v4: bool, length: usize, silent: &[usize], what: &str) {
    let found: Vec<Value> = hops(document).iter().map(|hop| hop["address"].clone()).collect();
    let mut right: Vec<Value> = (1..=length)
        .map(|ttl| if silent.contains(&ttl) { Value::Null } else { json!(router(is_v4, ttl)) })
        .collect();
    right.push(json!(target(is_v4)));
    assert_eq!(found, right, "{what}");
    let others = hops(document).iter().filter(|hop| !hop["other_addresses"].is_null());
    assert_eq!(others.count(), 0, "{what}: one address at each hop");
    assert_eq!(document["reached"], true, "{what}");
}

#[test]
fn each_answer_belongs_to_its_hop_in_chains_of_every_length() {
    // A network each, and one way after the other in it: the answers of sixty routers to all ways
    // at once are more frames than a kernel keeps for a host that is late (net.core.
    // netdev_max_backlog: 1000).
    let lengths_and_families =
        [1, 2, 29, 60].into_iter().flat_map(|length| FAMILIES.map(|is_v4| (length, is_v4)));
    together(lengths_and_families, |(length, is_v4)| {
        let Some(network) = Network::new("chains of every length", &Chain::of(length)) else {
            return;
        };
        for kind in KINDS {
            let (output, document) = network.trace(is_v4, &["--hops", "62", "--protocol", kind]);
            let what = format!("{length} routers, {kind}");
            assert!(output.status.success(), "{what}");
            assert_route(&document, is_v4, length, &[], &what);
            let back = hops(&document).iter().map(|hop| &hop["return_hops"]);
            let ttls = hops(&document).iter().map(|hop| &hop["ttl"]);
            assert!(back.eq(ttls), "{what}: as far back as there");
        }
    });
}

#[test]
fn silent_hops_are_told_from_rate_limited_ones() {
    let silent = Router { is_silent: true, ..Router::default() };
    // The first of three, and the one that is asked later.
    let limited = Router { answers: Some(&[0, 3]), ..Router::default() };
    let chain = Chain::of(12).with(3, silent).with(4, silent).with(6, limited).with(9, silent);
    together(FAMILIES, |is_v4| {
        // Of each run, since the limit is of the first probes.
        let Some(network) = Network::new("silent hops", &chain) else {
            return;
        };
        let (output, document) = network.trace(is_v4, &[]);
        assert!(output.status.success());
        assert_route(&document, is_v4, 12, &[3, 4, 9], "silent hops");
        let fates: Vec<&str> =
            hops(&document).iter().filter_map(|hop| hop["fate"].as_str()).collect();
        for (ttl, fate) in (1..).zip(&fates) {
            let right = match ttl {
                3 | 4 | 9 => "silent",
                6 => "rate_limited",
                _ => "answers",
            };
            assert_eq!(*fate, right, "hop {ttl} of {fates:?}");
        }
    });
}

#[test]
fn every_icmp_unreachable_code_is_named() {
    // Without those that have a meaning of their own: port unreachable, too big.
    let codes = |is_v4: bool| {
        (0..16u8).filter(
            move |code| {
                if is_v4 { ![3, 4].contains(code) } else { *code != 4 && *code < 9 }
            },
        )
    };
    together(FAMILIES, |is_v4| {
        together(codes(is_v4), |code| {
            let refusing = Router { refuses: Some(code), ..Router::default() };
            let chain = Chain::of(5).with(3, refusing);
            let Some(network) = Network::new("every code of a refusal", &chain) else {
                return;
            };
            let (output, document) = network.trace(is_v4, &[]);
            assert_eq!(output.status.code(), Some(1), "{document}");
            let end = json!({"reason": "unreachable", "ttl": 3, "code": code});
            assert_eq!(document["end"], end);
            let words = document["end_words"].as_str().unwrap();
            assert!(words.ends_with(&format!("(code {code})")), "{words}");
            assert!(!words.contains("no RFC names"), "{words}");
            assert_eq!(hops(&document).len(), 3);
            assert_eq!(hops(&document)[2]["address"], json!(router(is_v4, 3)));
        });
    });
}

#[test]
fn a_router_that_clears_the_dscp_is_found() {
    let clears = Router { marks: Some(0), ..Router::default() };
    let Some(network) = Network::new("a cleared class", &Chain::of(6).with(3, clears)) else {
        return;
    };
    each_way(|is_v4, kind| {
        let (_, document) = network.trace(is_v4, &["--dscp", "EF", "--protocol", kind]);
        for hop in &hops(&document)[..6] {
            let ttl = hop["ttl"].as_u64().unwrap();
            let class = if ttl <= 3 { 46 } else { 0 };
            assert_eq!(hop["dscp"], class, "{kind}: {hop}");
            let is_remarked = hop["is_remarked"] == true;
            assert_eq!(is_remarked, ttl == 4, "{kind}: {hop}");
        }
    });
}

#[test]
fn labels_are_read_in_the_new_form_and_the_old() {
    let labelled = |label, has_length| Router {
        extras: Extras { label: Some((label, has_length)), ..Extras::default() },
        ..Router::default()
    };
    let chain = Chain::of(5).with(2, labelled(24_015, true)).with(3, labelled(99, false));
    let Some(network) = Network::new("labels", &chain) else {
        return;
    };
    each_way(|is_v4, kind| {
        let (_, document) = network.trace(is_v4, &["--protocol", kind]);
        assert_route(&document, is_v4, 5, &[], kind);
        for (ttl, label) in [(2, Some(24_015)), (3, Some(99)), (4, None)] {
            let found = hops(&document)[ttl - 1]["mpls"][0]["label"].as_u64();
            assert_eq!(found, label, "{kind}: {document}");
        }
        // Both are in the tunnel: whichever is slower, no step ends between them or at one.
        let tunnels: Vec<&Value> =
            steps(&document).iter().map(|step| &step["tunnel_ttls"]).collect();
        assert_eq!(tunnels.iter().filter(|ttls| **ttls == &json!([2, 3])).count(), 1, "{document}");
        assert!(steps(&document).iter().all(|step| step["to_ttl"] != 2 && step["to_ttl"] != 3));
    });
}

#[test]
fn forged_answers_are_ignored() {
    let forges = Router { forges: true, ..Router::default() };
    let chain = Chain::of(6).with(2, forges).with(4, forges).with(5, forges);
    let Some(network) = Network::new("forged answers", &chain) else {
        return;
    };
    each_way(|is_v4, kind| {
        let (output, document) = network.trace(is_v4, &["--protocol", kind]);
        assert!(output.status.success());
        assert_route(&document, is_v4, 6, &[], kind);
        let text = document.to_string();
        assert!(!text.contains(&forger(is_v4).to_string()), "{kind}: {text}");
    });
}

#[test]
fn duplicate_answers_count_once() {
    let doubles = Router { again: 2, ..Router::default() };
    let Some(network) = Network::new("doubled answers", &Chain::of(6).with(2, doubles)) else {
        return;
    };
    each_way(|is_v4, kind| {
        let (_, document) = network.trace(is_v4, &["--protocol", kind]);
        assert_route(&document, is_v4, 6, &[], kind);
        let hop = &hops(&document)[1];
        let answered = hop["rtt_us"].as_array().unwrap().len() as u64;
        assert!(answered <= hop["sent"].as_u64().unwrap(), "{hop}");
        let doubled = document["answers_duplicate"].as_u64().unwrap();
        assert_eq!(doubled, 2 * answered, "{kind}: they came before the target's");
    });
}

/// The target is silent, so that the trace goes on for longer.
#[test]
fn a_late_answer_counts_for_its_own_hop() {
    const LATE: Duration = ROUND_TRIP.saturating_add(Duration::from_millis(100));
    let late = Router { later: LATE, ..Router::default() };
    let chain = Chain { has_target: false, ..Chain::of(4).with(2, late) };
    let Some(network) = Network::new("late answers", &chain) else {
        return;
    };
    together(FAMILIES, |is_v4| {
        let (output, document) = network.trace(is_v4, &["--hops", "8"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(document["end"], json!({"reason": "silent", "after_ttl": 4}));
        let late = &hops(&document)[1];
        assert_eq!(late["address"], json!(router(is_v4, 2)));
        let times = late["rtt_us"].as_array().unwrap();
        let least = LATE.as_secs_f64() * 1e6;
        assert!(times.iter().all(|time| time.as_f64().unwrap() >= least), "{late}");
    });
}

#[test]
fn a_longer_way_back_is_told_from_the_way_there() {
    let detour = Router { detour: 5, ..Router::default() };
    let Some(network) = Network::new("a longer way back", &Chain::of(6).with(4, detour)) else {
        return;
    };
    together(FAMILIES, |is_v4| {
        let (_, document) = network.trace(is_v4, &[]);
        for hop in hops(&document) {
            let ttl = hop["ttl"].as_u64().unwrap();
            let back = ttl + if ttl == 4 { 5 } else { 0 };
            assert_eq!(hop["return_hops"], back, "{hop}");
        }
        let extra = |ttl: &Value| if *ttl == 4 { 5 } else { 0 };
        for step in steps(&document) {
            let longer = extra(&step["to_ttl"]) - extra(&step["after_ttl"]);
            assert_eq!(step["return_extra_hops"], longer, "{step}");
        }
    });
}

#[test]
fn balancing_by_packet_is_told_from_balancing_by_flow() {
    let by = |twin| Router { twin: Some(twin), ..Router::default() };
    let chain = Chain::of(5).with(2, by(Balance::ByPacket)).with(4, by(Balance::ByFlow));
    let Some(network) = Network::new("balancing by packet", &chain) else {
        return;
    };
    // One after the other: another trace would take its turns at the router.
    for is_v4 in FAMILIES {
        let (output, document) = network.trace(is_v4, &["--paths"]);
        assert!(output.status.success(), "{document}");
        let by_packet = |of: &Value| -> Vec<u64> {
            let all = of.as_array().expect("TTLs").iter();
            let balanced = all.filter(|one| one["is_by_packet"] == true);
            balanced.filter_map(|one| one["ttl"].as_u64()).collect()
        };
        // Probes of one flow alone, and flows that were sent once more.
        assert_eq!(by_packet(&document["hops"]), [2], "{document}");
        assert_eq!(by_packet(&document["paths"]["levels"]), [2], "{document}");
        let paths = document["paths"]["paths"].as_array().expect("paths");
        assert_eq!(paths.len(), 2, "by the flow's router at hop 4 alone: {document}");
        assert!(paths.iter().all(|path| path["hops"][1].is_null()), "{document}");
    }
}

#[test]
fn extension_headers_hide_no_answer() {
    let with_headers =
        Router { extras: Extras { has_headers: true, ..Extras::default() }, ..Router::default() };
    let quoting = Router { quotes_options: true, ..Router::default() };
    let chain = Chain::of(5).with(2, with_headers).with(4, quoting);
    let Some(network) = Network::new("extension headers", &chain) else {
        return;
    };
    together(KINDS, |kind| {
        let (output, document) = network.trace(false, &["--protocol", kind]);
        assert!(output.status.success());
        assert_route(&document, false, 5, &[], kind);
    });
}
