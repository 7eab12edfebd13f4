//! Runs that ended at each limit, and the next limit of runs that did not.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::remedy::{Change, ProcessLimit};

/// 20,000 connections over a path between two hosts of 32 GB, all of them open and alive.
fn sample() -> Value {
    let end = json!({
        "tcp": {"opened": 20_000, "most": 20_000, "alive": 20_000},
        "workers": 2,
        "user_bytes": 4_000_000,
        "memory": {
            "before": {"slab_bytes": 100_000_000_u64, "available_bytes": 30_000_000_000_u64, "files": 1_000,
                       "tcp_memory_pages": 5, "conntrack": 3, "cgroup_bytes": 10_000_000},
            "height": {"slab_bytes": 200_000_000_u64, "available_bytes": 29_900_000_000_u64, "files": 21_000,
                       "tcp_memory_pages": 5, "conntrack": 3, "cgroup_bytes": 110_000_000},
        },
        "limits": {
            "descriptors_each": 20_000, "workers_most": 200, "files": 2_466_170, "nr_open": 1_048_576,
            "port_range": [32_768, 60_999], "somaxconn": 4096, "syn_backlog": 4096,
            "tcp_memory_pages": [100_000, 200_000, 300_000], "conntrack": 65_536,
            "cgroup_bytes": 1_000_000_000_u64, "epoll_watches": 7_000_000,
        },
    });
    json!({
        "schema": "linerate.capacity/1", "started_at": "", "host": "pit", "peer": "198.18.0.2:5201",
        "family": "ipv4", "status": "complete",
        "test": {"connections": 20_000, "udp_sockets": 0, "hold": 1.0, "heartbeat": 1.0, "latency": false,
                 "find_limit": false, "seed": 1},
        "tcp": {"asked": 20_000, "opened": 20_000, "alive": 20_000},
        "client": end, "server": end, "seconds": 3.0, "environment": {"client": {}}, "caveats": [], "seed": 1,
    })
}

/// 12,000 of 20,000, and what is changed beside it.
fn stopped(change: impl FnOnce(&mut Value)) -> StoppedBy {
    let mut value = sample();
    value["tcp"] = json!({"asked": 20_000, "opened": 12_000, "alive": 12_000});
    value["client"]["tcp"] = json!({"opened": 12_000, "most": 12_000, "alive": 12_000});
    change(&mut value);
    annotated(value).stopped_by.expect("it has stopped")
}

fn annotated(value: Value) -> CapacityDocument {
    let mut document: CapacityDocument = serde_json::from_value(value).expect("it is a document");
    annotate(&mut document);
    document
}

fn failed(cause: &str) -> Value {
    json!([{"cause": cause, "count": 8_000}])
}

fn typed(by: &StoppedBy) -> String {
    let remedy = by.remedy.as_ref();
    remedy.map_or_else(String::new, |remedy| remedy.command.clone())
}

#[test]
fn a_run_that_held_all_connections_was_stopped_by_nothing() {
    let document = annotated(sample());
    assert_eq!(document.stopped_by, None);
    let next = document.next_limit.unwrap();
    // 890 MB of the control group's, at 5 kB each.
    assert_eq!(next.limit, LimitKind::GroupMemory);
    assert_eq!(next.would_stop_at, Some(198_000));
    let stops: Vec<u64> = document.limits.iter().filter_map(|row| row.would_stop_at).collect();
    assert!(stops.is_sorted(), "{stops:?}");
    assert_eq!(document.limits[0], next);
}

#[test]
fn a_run_that_the_user_ended_was_stopped_by_no_limit() {
    let mut value = sample();
    value["status"] = json!("partial");
    value["tcp"] = json!({"asked": 20_000, "opened": 12_000, "alive": 12_000});
    // The client's probe, which it closes at the end.
    value["server"]["tcp"]["lost"] = json!([{"cause": "reset", "count": 1}]);
    assert_eq!(annotated(value.clone()).stopped_by, None);
    value["client"]["tcp"]["failures"] = failed("descriptors");
    let by = annotated(value).stopped_by.expect("the client has met a limit");
    assert_eq!(by.limit, LimitKind::ProcessDescriptors);
}

#[test]
fn on_one_kernel_each_connection_takes_two_files_and_the_host_has_one_limit() {
    let mut value = sample();
    value["environment"] = json!({"client": {}, "shared_kernel": true});
    value["client"]["memory"]["height"]["files"] = json!(41_000);
    let document = annotated(value);
    let mut files = document.limits.iter().filter(|row| row.limit == LimitKind::HostFiles);
    let row = files.next().unwrap();
    assert_eq!(row.end, LimitEnd::Both);
    assert_eq!(row.would_stop_at, Some(20_000 + (2_466_170 - 41_000) / 2));
    assert_eq!(files.next(), None);
}

#[test]
fn a_call_that_failed_names_its_limit_and_whose_it_is() {
    for (cause, limit, command) in [
        ("descriptors", LimitKind::ProcessDescriptors, "ulimit -n 20001  # as root, before"),
        ("files", LimitKind::HostFiles, "linerate host set fs.file-max="),
        ("ports", LimitKind::Ports, "linerate host set net.ipv4.ip_local_port_range='1024 65535'"),
        ("watches", LimitKind::Watches, "sysctl -w fs.epoll.max_user_watches="),
        ("not_permitted", LimitKind::Forbidden, ""),
        ("garbled", LimitKind::Unknown, ""),
    ] {
        let by = stopped(|value| value["client"]["tcp"]["failures"] = failed(cause));
        assert_eq!((by.limit, by.at), (limit, 12_000), "{cause}");
        assert!(typed(&by).starts_with(command), "{cause}: {}", typed(&by));
        assert!(by.evidence[0].starts_with("8000 times at this host"), "{:?}", by.evidence);
    }
}

#[test]
fn the_endpoints_own_failure_is_the_cause_of_the_clients() {
    let by = stopped(|value| {
        value["client"]["tcp"]["failures"] = failed("timed_out");
        value["server"]["tcp"]["failures"] = failed("descriptors");
    });
    assert_eq!(by.limit, LimitKind::ProcessDescriptors);
    assert_eq!(by.end, Some(LimitEnd::Server));
    assert!(typed(&by).ends_with("`linerate serve` on the endpoint's host"), "{}", typed(&by));
}

#[test]
fn counters_tell_which_queue_let_no_more_in() {
    for (key, limit) in [
        ("ListenOverflows", LimitKind::AcceptQueue),
        ("TCPReqQFullDrop", LimitKind::SynQueue),
        ("Unheard", LimitKind::Unknown),
    ] {
        let by = stopped(|value| {
            value["client"]["tcp"]["failures"] = failed("timed_out");
            value["server"]["counters"] = json!({key: 7});
        });
        assert_eq!(by.limit, limit, "{key}");
    }
}

#[test]
fn memory_is_the_groups_the_buffers_or_the_hosts() {
    let of = |change: fn(&mut Value)| {
        let by = stopped(|value| {
            value["client"]["tcp"]["failures"] = failed("memory");
            change(value);
        });
        (by.limit, typed(&by))
    };
    let (group, remedy) =
        of(|value| value["client"]["memory"]["height"]["cgroup_bytes"] = json!(999_000_000));
    assert_eq!(group, LimitKind::GroupMemory);
    assert!(remedy.starts_with("systemd-run --scope -p MemoryMax=1"), "{remedy}");
    let (buffers, remedy) =
        of(|value| value["client"]["memory"]["height"]["tcp_memory_pages"] = json!(300_000));
    assert_eq!(buffers, LimitKind::TcpMemory);
    assert_eq!(remedy, "linerate host set net.ipv4.tcp_mem='200000 400000 600000'");
    assert_eq!(of(|_| {}), (LimitKind::HostMemory, String::new()));
}

#[test]
fn a_process_that_the_kernel_killed_for_its_group_names_the_group() {
    let by = stopped(|value| {
        value["client"]["tcp"]["lost"] = failed("worker_lost");
        value["client"]["memory"]["height"]["cgroup_bytes"] = json!(990_000_000);
    });
    assert_eq!(by.limit, LimitKind::GroupMemory);
}

#[test]
fn a_full_table_of_connections_and_the_owners_word_are_known() {
    let by = stopped(|value| {
        value["client"]["tcp"]["failures"] = failed("timed_out");
        value["server"]["memory"]["height"]["conntrack"] = json!(65_536);
        value["server"]["limits"]["conntrack"] = json!(65_536);
    });
    assert_eq!((by.limit, by.end), (LimitKind::Conntrack, Some(LimitEnd::Server)));
    assert!(typed(&by).contains("nf_conntrack_max="), "{}", typed(&by));
    let by = stopped(|value| {
        value["client"]["tcp"]["failures"] = failed("crowded");
        value["server"]["limits"]["owner_connections"] = json!(12_000);
    });
    assert_eq!(by.limit, LimitKind::Owner);
    assert_eq!(typed(&by), "linerate serve --max-connections 20000  # on the endpoint's host");
}

#[test]
fn who_ends_a_run_is_no_limit() {
    let mut value = sample();
    value["status"] = json!("partial");
    value["tcp"] = json!({"asked": 20_000, "opened": 5_000, "alive": 5_000});
    value["client"]["tcp"] = json!({"opened": 5_000, "most": 5_000});
    assert_eq!(annotated(value).stopped_by, None);
}

#[test]
fn descriptors_beyond_nr_open_need_that_first() {
    let by = stopped(|value| {
        value["client"]["tcp"]["failures"] = failed("descriptors");
        value["client"]["limits"]["workers_most"] = json!(1);
        value["client"]["limits"]["nr_open"] = json!(20_000);
    });
    let begins = "linerate host set fs.nr_open=21000 && ulimit -n 21000";
    assert!(typed(&by).starts_with(begins), "{}", typed(&by));
}

#[test]
fn udp_alone_is_counted_in_sockets() {
    let mut value = sample();
    value["tcp"] = Value::Null;
    value["udp"] = json!({"asked": 10_000, "opened": 10_000, "alive": 10_000});
    value["client"]["udp"] = json!({"opened": 10_000, "most": 10_000});
    let document = annotated(value);
    let ports = document.limits.iter().find(|row| row.limit == LimitKind::Ports);
    assert_eq!(ports.and_then(|row| row.would_stop_at), Some(28_232));
    assert!(document.limits.iter().all(|row| row.limit != LimitKind::Conntrack));
}

#[test]
fn absurd_figures_overflow_nothing() {
    let mut value = sample();
    for key in
        ["descriptors_each", "workers_most", "files", "epoll_watches", "conntrack", "cgroup_bytes"]
    {
        value["client"]["limits"][key] = json!(u64::MAX);
        value["server"]["limits"][key] = json!(0);
    }
    value["client"]["tcp"]["most"] = json!(u64::MAX);
    value["client"]["limits"]["port_range"] = json!([65_535, 0]);
    value["server"]["limits"]["tcp_memory_pages"] = json!([u64::MAX, u64::MAX, u64::MAX]);
    value["client"]["tcp"]["failures"] =
        json!([{"cause": "files", "count": u64::MAX}, {"cause": "files", "count": u64::MAX}]);
    value["tcp"]["alive"] = json!(0);
    let by = annotated(value).stopped_by.unwrap();
    assert_eq!(by.limit, LimitKind::HostFiles);
}

proptest! {
    #[test]
    fn no_remedy_lowers_a_limit(
        figures in prop::collection::vec(prop_oneof![0..100_000_u64, 0..=1_u64 << 40], 12),
        ports in any::<(u16, u16)>(), (asked, opened) in (1..1_000_000_u64, 0..1_000_000_u64),
        cause in proptest::sample::select(vec!["descriptors", "files", "ports", "watches"]),
    ) {
        let names = ["descriptors_each", "files", "somaxconn", "syn_backlog", "conntrack",
                     "cgroup_bytes", "epoll_watches", "orphans", "time_wait"];
        let mut value = sample();
        let mut has = std::collections::BTreeMap::new();
        for (name, figure) in names.iter().zip(&figures) {
            value["client"]["limits"][*name] = json!(figure);
            value["server"]["limits"][*name] = json!(figure);
            has.insert(*name, *figure);
        }
        for end in ["client", "server"] {
            value[end]["limits"]["tcp_memory_pages"] = json!(figures[9..12]);
            value[end]["limits"]["port_range"] = json!(ports);
        }
        value["test"]["connections"] = json!(asked);
        value["tcp"] = json!({"asked": asked, "opened": opened, "alive": opened});
        value["client"]["tcp"] =
            json!({"opened": opened, "most": opened, "alive": opened, "failures": failed(cause)});
        let document = annotated(value);
        let limits = document.limits.iter().filter_map(|row| row.remedy.as_ref());
        let stopped = document.stopped_by.iter().filter_map(|by| by.remedy.as_ref());
        for remedy in limits.chain(stopped) {
            let now: Vec<u64> = match &remedy.change {
                Change::ProcessLimit { object: ProcessLimit::Descriptors, .. } => {
                    vec![has["descriptors_each"]]
                }
                Change::ProcessLimit { .. } => vec![has["cgroup_bytes"]],
                Change::HostSetting { object, .. } => match object.as_str() {
                    "net.ipv4.tcp_mem" => figures[9..12].to_vec(),
                    "fs.file-max" => vec![has["files"]],
                    "net.core.somaxconn" => vec![has["somaxconn"]],
                    "net.ipv4.tcp_max_syn_backlog" => vec![has["syn_backlog"]],
                    "net.netfilter.nf_conntrack_max" => vec![has["conntrack"]],
                    "fs.epoll.max_user_watches" => vec![has["epoll_watches"]],
                    "net.ipv4.tcp_max_orphans" => vec![has["orphans"]],
                    "net.ipv4.tcp_max_tw_buckets" => vec![has["time_wait"]],
                    "net.ipv4.ip_local_port_range" => {
                        let low = ports.0.min(1024);
                        let widest = format!("{low} 65535");
                        prop_assert!(remedy.command.contains(&widest), "{:?} {:?}", ports, remedy);
                        continue;
                    }
                    other => panic!("{other} is not tested"),
                },
                _ => continue,
            };
            let wanted: Vec<u64> = match &remedy.change {
                Change::ProcessLimit { value, .. } => vec![*value],
                Change::HostSetting { value, .. } => {
                    value.split(' ').map(|word| word.parse().unwrap()).collect()
                }
                _ => unreachable!("the others have gone on"),
            };
            prop_assert!(now.iter().zip(&wanted).all(|(now, it)| now <= it), "{:?} {:?}", now, remedy);
        }
    }
}
