//! The schemas in the repository are those of the types.
//! `UPDATE_SCHEMAS=1 cargo test -p linerate-report` writes them anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use linerate_report::document::DOCUMENTS;
use linerate_report::json;
use serde_json::Value;

use crate::documents::documents;

fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas"))
}

#[test]
fn checked_in_schemas_are_those_of_the_types_and_no_others() {
    let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
    for kind in DOCUMENTS {
        let name = kind.name();
        let path = directory().join(format!("{name}.json"));
        let generated = json::document(&kind.json_schema());
        if update {
            fs::write(&path, &generated).unwrap();
        }
        let checked_in = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            checked_in == generated,
            "schemas/{name}.json is not the schema of its type: UPDATE_SCHEMAS=1 cargo test -p \
             linerate-report"
        );
    }
    let expected: BTreeSet<String> =
        DOCUMENTS.iter().map(|kind| format!("{}.json", kind.name())).collect();
    let found: BTreeSet<String> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected);
}

/// What is wrong with `value` by the parts of JSON Schema that generated schemas have.
fn faults(schema: &Value, root: &Value, value: &Value, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#'));
        found.extend(faults(target.expect(name), root, value, place));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    if !types.is_empty() && !types.iter().any(|name| is_of_type(value, name)) {
        found.push(format!("{place}: {value} is not of {types:?}"));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        found.push(format!("{place}: {value} is not {}", schema["const"]));
    }
    let is_listed = |values: &Vec<Value>| values.contains(value);
    if schema["enum"].as_array().is_some_and(|values| !is_listed(values)) {
        found.push(format!("{place}: {value} is not of {}", schema["enum"]));
    }
    for one in schema["allOf"].as_array().into_iter().flatten() {
        found.extend(faults(one, root, value, place));
    }
    for key in ["anyOf", "oneOf"] {
        let mut ways = schema[key].as_array().into_iter().flatten().peekable();
        let has_ways = ways.peek().is_some();
        if has_ways && !ways.any(|way| faults(way, root, value, place).is_empty()) {
            found.push(format!("{place}: {value} is none of {key}"));
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(faults(&schema["items"], root, item, &format!("{place}/{number}")));
    }
    let Some(members) = value.as_object() else {
        return found;
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !members.contains_key(name.as_str().unwrap_or_default()) {
            found.push(format!("{place}: {name} is missing"));
        }
    }
    for (name, member) in members {
        let own = &schema["properties"][name];
        let of_others = &schema["additionalProperties"];
        let of_member = if own.is_null() { of_others } else { own };
        found.extend(faults(of_member, root, member, &format!("{place}/{name}")));
    }
    found
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => unreachable!("{other} is no type of JSON"),
    }
}

#[test]
fn every_document_is_what_its_schema_says() {
    for document in documents() {
        let value: Value = serde_json::from_str(&document.json()).unwrap();
        let kind = DOCUMENTS.iter().find(|kind| value["schema"] == kind.schema);
        let schema: Value = kind.expect("it is one of them").json_schema().to_value();
        let faults = faults(&schema, &schema, &value, kind.unwrap().name());
        assert_eq!(faults, [""; 0]);
    }
}

/// A key with one of these words says its unit; a share is of 0 to 1.
const UNITS: [&str; 17] = [
    "ppm", "bps", "us", "ms", "ns", "s", "seconds", "second", "hz", "bytes", "kib", "percent",
    "ttl", "ttls", "pages", "share", "ratio",
];

/// Or what is counted.
const COUNTED: [&str; 32] = [
    "answers",
    "blocks",
    "calls",
    "changes",
    "connections",
    "cpus",
    "datagrams",
    "drops",
    "events",
    "files",
    "flows",
    "frames",
    "hops",
    "instructions",
    "messages",
    "orphans",
    "packets",
    "others",
    "pairs",
    "policies",
    "probes",
    "requests",
    "rounds",
    "routers",
    "rows",
    "rules",
    "runs",
    "samples",
    "segments",
    "sockets",
    "streams",
    "transactions",
];

/// In the unit of the key that holds them, or of the metric beside them.
const STATISTICS: [&str; 42] = [
    "r",
    "mos",
    "was",
    "is",
    "was_interval",
    "is_interval",
    "was_quartiles",
    "is_quartiles",
    "a",
    "b",
    "best",
    "change_per_run",
    "deviation",
    "difference",
    "figure",
    "from",
    "high",
    "jitter",
    "last",
    "least",
    "low",
    "max",
    "mean",
    "measured_interval",
    "median",
    "others_median",
    "min",
    "most",
    "p50",
    "p90",
    "p99",
    "p999",
    "report",
    "scale",
    "system",
    "to",
    "user",
    "value",
    "worst",
    "at",
    "used",
    "would_stop_at",
];

/// Shares (0–1) and ratios.
const SHARES: [&str; 16] = [
    "fairness",
    "interval",
    "times_as_long",
    "confidence",
    "coverage",
    "loss_spacing_variation",
    "loss_window_variation",
    "p_value",
    "path_over_disk",
    "ratio",
    "ratio_by_clock",
    "share",
    "share_of_ceiling",
    "smallest_p_value",
    "n_a",
    "n_b",
];

/// How many were, or did, what the key says: packets, connections, sockets.
const COUNTS: [&str; 103] = [
    "nxdomain",
    "overlapped",
    "refused",
    "retransmitted_syns",
    "retried",
    "unfinished",
    "chunks",
    "down_lost",
    "stalls",
    "switches",
    "up_lost",
    "alive",
    "asked",
    "batch",
    "borrowed",
    "borrows",
    "closed",
    "conntrack",
    "corrupted",
    "count",
    "delivered",
    "delivered_ce",
    "depth",
    "descriptors_each",
    "dropped",
    "dropped_aqm",
    "dropped_loss",
    "dropped_mtu",
    "dropped_policer",
    "dropped_queue",
    "dsack_duplicates",
    "duplicated",
    "epoll_watches",
    "failed",
    "filters",
    "green",
    "groups",
    "heartbeats_answered",
    "heartbeats_sent",
    "half_open",
    "held",
    "holds",
    "larger",
    "lended",
    "lends",
    "limit",
    "lost",
    "malformed",
    "marked",
    "missing",
    "nr_open",
    "objects",
    "offered",
    "opened",
    "overflowed",
    "overflows",
    "overlimits",
    "periods",
    "receive_softirqs",
    "received",
    "red",
    "reordered",
    "reordering_seen",
    "repeats",
    "right",
    "rpm",
    "rpm_of_mean",
    "send_refused",
    "sent",
    "sizes",
    "smaller",
    "softnet_dropped",
    "softnet_squeezed",
    "somaxconn",
    "stops_at",
    "subflows",
    "syn_backlog",
    "syn_cookies",
    "syn_retransmissions",
    "syncookies",
    "tcp_allocated",
    "tcp_in_use",
    "tcp_time_wait",
    "thermal_throttles",
    "throttled",
    "throttled_periods",
    "time_wait",
    "timeouts",
    "times",
    "trials",
    "udp_in_use",
    "unanswered_timeouts",
    "unanswered",
    "usable",
    "waiting",
    "workers",
    "workers_most",
    "yellow",
    "intervals",
    "left_out",
    "unexplained",
    "unknown",
    "zero_windows",
];

/// Which one it is.
const NAMES: [&str; 30] = [
    "packet",
    "status",
    "asn",
    "attempt",
    "block",
    "code",
    "column",
    "cpu",
    "decimals",
    "dscp",
    "ecn",
    "flow",
    "id",
    "index",
    "label",
    "largest",
    "line",
    "number",
    "other_asns",
    "pair",
    "pid",
    "port",
    "priority",
    "repeat",
    "run",
    "seed",
    "source_port",
    "step",
    "traffic_class",
    "vlan_priority",
];

/// Named before this test was: they get a unit or a noun with the next version of their schema.
const UNTIL_THE_NEXT_VERSION: [&str; 5] = ["n", "late", "length", "mtu", "population"];

#[test]
fn every_number_has_a_unit_or_says_what_it_counts() {
    let mut unknown = BTreeSet::new();
    for kind in DOCUMENTS {
        let schema: Value = kind.json_schema().to_value();
        numbers(&schema, &mut |key, described| {
            let has = |words: &[&str]| key.split('_').any(|word| words.contains(&word));
            let is_known = [&STATISTICS[..], &SHARES, &COUNTS, &NAMES, &UNTIL_THE_NEXT_VERSION];
            let is_known = is_known.iter().any(|keys| keys.contains(&key));
            if !described || !(is_known || has(&UNITS) || has(&COUNTED)) {
                unknown.insert(format!("{}: {key}", kind.name()));
            }
        });
    }
    assert_eq!(
        unknown,
        BTreeSet::new(),
        "a key ends in its unit, or is described and in a list above"
    );
}

/// Each key of a number, and whether it is described.
fn numbers(schema: &Value, see: &mut dyn FnMut(&str, bool)) {
    for (key, member) in schema["properties"].as_object().into_iter().flatten() {
        if is_number(member) {
            // The only member of a variant has the variant's description.
            let described = [member, schema].map(|part| part["description"].is_string());
            see(key, described.contains(&true));
        }
    }
    let members = schema.as_object().into_iter().flatten().map(|(_, member)| member);
    let items = schema.as_array().into_iter().flatten();
    members.chain(items).for_each(|part| numbers(part, see));
}

fn is_number(schema: &Value) -> bool {
    let is = |name: &Value| name == "number" || name == "integer";
    let types = &schema["type"];
    let of_ways = schema["anyOf"].as_array().into_iter().flatten();
    is(types)
        || types.as_array().is_some_and(|types| types.iter().any(is))
        || of_ways.into_iter().any(is_number)
        || schema.get("items").is_some_and(is_number)
}
