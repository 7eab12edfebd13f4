//! What is said of doubtful files, and that what is said is sure.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{self, Dice, Wishes};
use linerate_core::units::BitRate;
use linerate_qos::interpret::{State, interpret};
use linerate_qos::packet::Fields;
use linerate_qos::policy::{NoNames, PolicyFile};
use linerate_qos::rules::{Bindings, RuleSet};
use linerate_qos::warnings::{Doubt, warnings};

fn said(text: &str) -> Vec<String> {
    let file = PolicyFile::from_toml(text, &mut NoNames).unwrap();
    let speeds = BTreeMap::from([("fast0".to_owned(), BitRate(10_000_000_000))]);
    let warnings = warnings(&file, &speeds).unwrap();
    warnings.iter().map(ToString::to_string).collect()
}

/// Filters `a`, `b`, … with these conditions, all of one policy.
fn filters(conditions: &[&str]) -> String {
    let filters = conditions
        .iter()
        .zip('a'..)
        .map(|(conditions, name)| format!("[filter.{name}]\npolicy = \"p\"\n{conditions}\n"));
    let filters: String = filters.collect();
    format!("{filters}[policy.p]\ndscp = \"EF\"\n[adapter.eth0]\npolicies = [\"p\"]\n")
}

fn hidden(conditions: &[&str]) -> Vec<String> {
    said(&filters(conditions))
}

#[test]
fn a_filter_that_one_other_hides_is_named_with_it() {
    let said = hidden(&["protocol = \"tcp\"", "protocol = \"tcp\"\ndestination_port = 80"]);
    let expected =
        "4:1: filter `b` is never asked: `a`, which is asked before it, takes all its packets";
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with(&expected[4..]), "{said:?}");
    // Ports are TCP's and others': what asks for them only is wider.
    assert_eq!(hidden(&["protocol = \"tcp\"", "destination_port = 80"]), [""; 0]);
    // A filter of priority asked later is hidden by one that stands behind it.
    let said = hidden(&["priority = 2000\nuid = 5\nfamily = \"ipv4\"", "uid = \"1-9\""]);
    assert!(said[0].contains("filter `a` is never asked: `b`"), "{said:?}");
}

#[test]
fn what_a_packet_must_have_counts_as_asked() {
    for (wide, narrow) in [
        ("source = [\"0.0.0.0/0\", \"::/0\"]", "protocol = \"udp\""),
        ("dscp = \"0-63\"", "length = \"0-100\""),
        ("protocol = \"tcp\"", "tcp_flags = \"syn\""),
        ("port = \"0-65535\"", "tcp_flags = \"syn,!ack\""),
        ("address = [\"0.0.0.0/0\", \"::/0\"]", "icmp_type = 8"),
        ("family = \"ipv4\"", "source = \"198.18.0.0/15\""),
        ("ethertype = \"ipv4\"", "source = \"198.18.0.0/15\""),
    ] {
        let said = hidden(&[wide, narrow]);
        assert!(said.len() == 1 && said[0].contains("`b` is never asked"), "{wide}: {said:?}");
        assert_eq!(hidden(&[narrow, wide]), [""; 0], "{narrow}");
    }
    // A packet can lack what is asked for here.
    for (wide, narrow) in [
        ("port = \"0-65535\"", "protocol = \"tcp\""),
        ("protocol = \"0-255\"", "source = \"2001:2::/48\""),
        ("length = \"0-65575\"", "protocol = \"udp\""),
        ("uid = \"0-4294967294\"", "protocol = \"udp\""),
    ] {
        assert_eq!(hidden(&[wide, narrow]), [""; 0], "{wide}");
    }
}

#[test]
fn filters_that_hide_one_together_are_found() {
    let halves = ["source = \"198.18.0.0/16\"", "source = \"198.19.0.0/16\""];
    let said = hidden(&[halves[0], halves[1], "source = \"198.18.0.0/15\"\nprotocol = \"udp\""]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("filter `c` is never asked: `a`, `b`, which"), "{said:?}");
    assert_eq!(hidden(&[halves[0], "source = \"198.18.0.0/15\""]), [""; 0]);
    let said = hidden(&[
        "source_port = \"0-999\"",
        "destination_port = \"0-999\"",
        "source_port = \"1000-65535\"\ndestination_port = \"1000-65535\"",
        "protocol = [\"tcp\", \"udp\"]\nport = 80",
        "tcp_flags = \"rst\"",
    ]);
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn impossible_filters_and_ties_are_said() {
    let said = said(
        "[filter.a]\npolicy = \"p\"\nuid = 65534\n\
         [filter.b]\npolicy = \"p\"\nprotocol = \"udp\"\n\
         [filter.c]\npolicy = \"q\"\ndestination_port = 53\n\
         [filter.d]\npolicy = \"q\"\nprotocol = \"tcp\"\n\
         [policy.p]\ndscp = \"EF\"\n[policy.q]\ndscp = \"CS1\"\n\
         [adapter.eth0]\npolicies = [\"p\", \"q\"]\n",
    );
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("1:") && said[0].contains("`a` takes no packet"), "{said:?}");
    assert!(said[1].starts_with("7:"), "{said:?}");
    assert!(said[1].contains("filters `b` and `c` have the same priority 1000"), "{said:?}");
}

#[test]
fn rates_that_do_not_fit_are_said() {
    let file = |policies: &str, adapters: &str| {
        said(&format!(
            "[filter.a]\npolicy = \"p\"\nprotocol = \"udp\"\n[filter.b]\npolicy = \"q\"\nprotocol \
             = \"tcp\"\n\
             {policies}\n{adapters}"
        ))
    };
    let eth0 = "[adapter.eth0]\npolicies = [\"p\", \"q\"]\n";
    let slow = format!("{eth0}rate = \"10mbit\"\n");
    let halves = "[policy.p]\nreserve = \"60%\"\n[policy.q]\nreserve = \"50%\"";
    let without_rate = file(halves, eth0);
    assert_eq!(without_rate.len(), 1, "{without_rate:?}");
    assert!(without_rate[0].contains("reserve 110 % of it"), "{without_rate:?}");
    let more = file("[policy.p]\nreserve = \"6mbit\"\n[policy.q]\nreserve = \"40%\"", &slow);
    assert_eq!(more.len(), 1, "{more:?}");
    assert!(more[0].contains("must be left"), "{more:?}");
    let below =
        file("[policy.p]\nreserve = \"6mbit\"\nlimit = \"50%\"\n[policy.q]\ndscp = 1", &slow);
    assert!(below.len() == 1 && below[0].contains("limit"), "{below:?}");
    let fits = "[policy.p]\nreserve = \"5mbit\"\n[policy.q]\nreserve = \"40%\"";
    assert_eq!(file(fits, &slow), [""; 0]);
    let fast = format!("{slow}[adapter.fast0]\npolicies = [\"q\"]\n");
    let differs = file(fits, &fast);
    assert!(differs.len() == 1 && differs[0].contains("in percent"), "{differs:?}");
}

/// One filter of a policy `p` with these keys, on adapters with these.
fn policy(keys: &str, adapter: &str) -> Vec<String> {
    said(&format!(
        "[filter.a]\npolicy = \"p\"\nprotocol = \
         \"udp\"\n[policy.p]\n{keys}\n[adapter.eth0]\npolicies = [\"p\"]\n{adapter}"
    ))
}

#[test]
fn what_is_refused_for_a_policy_names_its_line_once() {
    let keys = "reserve = \"6mbit\"\nlimit = \"50%\"";
    let said = policy(keys, "rate = \"10mbit\"");
    assert_eq!(said.len(), 1, "{said:?}");
    let (place, words) = said[0].split_once(": ").unwrap();
    assert!(place.starts_with("4:"), "{said:?}");
    let expected = "it cannot be applied: policy `p` limits to";
    assert!(words.starts_with(expected), "{said:?}");
}

#[test]
fn a_share_of_an_unknown_rate_is_said() {
    // Whether a driver tells it only the host knows.
    assert_eq!(policy("limit = \"20%\"", ""), [""; 0]);
    assert_eq!(policy("limit = \"20%\"", "rate = \"10mbit\""), [""; 0]);
    assert_eq!(policy("dscp = 1", ""), [""; 0]);
}

#[test]
fn a_meter_that_drops_every_full_frame_is_said() {
    let single = |bursts: &str, red: &str| {
        let rates = "kind = \"srtcm\", committed = \"1mbit\"";
        policy(&format!("meter = {{ {rates}, {bursts}, {red} }}"), "")
    };
    let drops = "drop_red = true";
    let said = single("committed_burst = 1513", drops);
    assert!(said.len() == 1 && said[0].contains("drops every frame above"), "{said:?}");
    assert_eq!(single("committed_burst = 1514", drops), [""; 0]);
    let yellow = "committed_burst = 1000, excess_burst = 2000";
    assert_eq!(single(yellow, drops), [""; 0]);
    assert_eq!(single("committed_burst = 1000", "red = 1"), [""; 0]);
}

#[test]
fn classes_of_packets_that_come_in_are_said() {
    let adapter = "rate = \"10mbit\"\ningress = true";
    let said = policy("limit = \"20%\"", adapter);
    assert!(
        said.len() == 1 && said[0].contains("packets that come in have no classes"),
        "{said:?}"
    );
    assert_eq!(policy("dscp = 1", adapter), [""; 0]);
}

#[test]
fn what_is_said_to_be_hidden_is_never_taken() {
    let mut dice = Dice::new(11);
    let wishes =
        Wishes { filters: 12, owners: true, tags_beside: true, meters: false, track: false };
    let mut said = 0;
    for _ in 0..400 {
        let file = common::file(&mut dice, &wishes);
        let never: BTreeSet<String> = (warnings(&file, &BTreeMap::new()).unwrap().into_iter())
            .filter_map(|warning| match warning.doubt {
                Doubt::Hidden { filter, .. } | Doubt::Impossible { filter } => Some(filter),
                _ => None,
            })
            .collect();
        said += never.len();
        let rules = RuleSet::new(&file, &file.adapters[0], &Bindings::stand_in(&file)).unwrap();
        for _ in 0..100 {
            let recipe = common::packet(&mut dice, &file, &wishes);
            let metadata = recipe.metadata();
            let fields = Fields::new(&recipe.frame(), recipe.link, &metadata);
            let decision = interpret(&rules, &fields, &metadata, 1, &mut State::default());
            if let Some(rule) = decision.rule {
                let taking = rules.family(fields.family())[rule].filter;
                let name = &rules.filters[taking].0;
                assert!(!never.contains(name), "`{name}` takes {recipe:#?}\n{file:#?}");
            }
        }
    }
    assert!(said > 300, "{said} filters were said to take nothing");
}

/// A rule that takes nothing of any packet can go without a change; if all of those are found for
/// single covers, then a filter written twice is always found.
#[test]
fn a_filter_written_twice_is_always_found() {
    let mut dice = Dice::new(12);
    let wishes =
        Wishes { filters: 8, owners: true, tags_beside: true, meters: false, track: false };
    for _ in 0..300 {
        let mut file = common::file(&mut dice, &wishes);
        let mut twice = file.filters[dice.below(8) as usize].clone();
        twice.name = "twice".to_owned();
        twice.priority += 1;
        file.filters.push(twice);
        let found = warnings(&file, &BTreeMap::new()).unwrap();
        let is_it = |doubt: &Doubt| match doubt {
            Doubt::Hidden { filter, .. } | Doubt::Impossible { filter } => filter == "twice",
            _ => false,
        };
        assert!(found.iter().any(|warning| is_it(&warning.doubt)), "{file:#?}");
    }
}

#[test]
fn a_thousand_filters_are_looked_at() {
    look_at(1000);
}

/// The size that is promised: under a second in a release build.
#[test]
#[ignore = "for a release build: run it with `--release -- --ignored`"]
fn five_thousand_filters_are_looked_at() {
    look_at(5000);
}

/// Single addresses and ports, all apart; and ranges that overlap in many ways.
fn look_at(filters: u32) {
    let mut exact = String::new();
    let mut wide = String::new();
    for number in 0..filters {
        let (low, high) = (number % 250, number / 250);
        exact += &format!(
            "[filter.e{number}]\npolicy = \"p\"\nprotocol = \"tcp\"\nsource = \
             \"198.18.{high}.{low}\"\n\
             destination = \"198.19.{low}.{high}\"\nsource_port = {number}\ndestination_port = \
             443\n"
        );
        let first = number * 7 % 50_000;
        wide += &format!(
            "[filter.w{number}]\npolicy = \"p\"\nprotocol = \"udp\"\nsource = \
             \"198.18.0.{low}-198.18.{}.0\"\n\
             source_port = \"{first}-{}\"\ndestination_port = \"{}-65535\"\n",
            high + 1,
            first + 9000,
            number * 11 % 60_000,
        );
    }
    // The very first has all of it.
    wide += "[filter.last]\npolicy = \"p\"\nprotocol = \"udp\"\nsource = \"198.18.0.200\"\n\
        source_port = 100\ndestination_port = 65535\n";
    let said = [exact, wide].map(|filters| {
        let adapter = "[adapter.eth0]\npolicies = [\"p\"]\n";
        let text = format!("{filters}[policy.p]\ndscp = 1\n{adapter}");
        let file = PolicyFile::from_toml(&text, &mut NoNames).unwrap();
        warnings(&file, &BTreeMap::new()).unwrap().len()
    });
    assert_eq!(said[0], 0, "filters that have nothing in common hide nothing");
    assert!(said[1] > 0, "wide filters hide the last");
}

#[test]
fn a_protocol_that_is_an_extension_header_of_ipv6_is_said() {
    let said = |lines: &str| {
        let text = format!(
            "[filter.f]\npolicy = \"p\"\n{lines}\n[policy.p]\n[adapter.eth0]\npolicies = [\"p\"]\n"
        );
        let file = PolicyFile::from_toml(&text, &mut NoNames).unwrap();
        let found = warnings(&file, &BTreeMap::new()).unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(said("protocol = \"ah\"").contains("no packet of IPv6"));
    assert!(
        said("protocol = [\"mobility-header\", \"hip\"]\nfamily = \"ipv6\"").contains("no packet")
    );
    assert_eq!(said("protocol = \"ah\"\nfamily = \"ipv4\""), "");
    assert_eq!(said("protocol = [\"ah\", \"esp\"]"), "");
}
