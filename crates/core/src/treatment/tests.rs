//! Tests of the table, of the text of treatments, and of pairs.

use std::time::Duration;

use proptest::collection::hash_set;
use proptest::prelude::*;
use proptest::sample::select;

use super::table::{REFUSED, Setting};
use super::*;
use crate::plan::{Direction, Draft, End, Protocol, SendMethod, SocketOptions, Test, Traffic};
use crate::record::Record;
use crate::units::{BitRate, ByteCount, Span};

fn read(text: &str) -> Treatments {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    match text.parse::<Treatments>() {
        Err(error) => error.to_string(),
        Ok(treatments) => panic!("{text} is taken as {treatments}"),
    }
}

fn short(draft: Draft) -> Test {
    let draft = draft.time(Span(Duration::from_secs(1)));
    draft.warm_up(Span(Duration::ZERO)).resolve(1).unwrap()
}

fn stream(protocol: Protocol) -> Test {
    short(Test::stream().protocol(protocol).size(1400_u64))
}

fn requests() -> Test {
    short(Test::rr())
}

/// Texts that a kind of value takes.
fn texts(kind: ValueKind) -> BoxedStrategy<String> {
    let number = |least: u64, most: u64| (least..=most).prop_map(|n| n.to_string());
    match kind {
        ValueKind::Word(_) | ValueKind::Time { .. } | ValueKind::Frequency { .. } => {
            panic!("no treatment takes {kind}")
        }
        ValueKind::Switch => select(vec!["on", "off"]).prop_map(str::to_owned).boxed(),
        ValueKind::Bytes { least, most }
        | ValueKind::Rate { least, most }
        | ValueKind::RateOrMax { least, most }
        | ValueKind::Number { least, most, .. } => number(least, most).boxed(),
        ValueKind::Numbers { count, least, most, .. } => {
            proptest::collection::vec(number(least, most), count)
                .prop_map(|numbers| numbers.join(" "))
                .boxed()
        }
        ValueKind::Name => "[a-z][a-z0-9_]{0,14}".boxed(),
        ValueKind::Dscp => (0..64u8).prop_map(|n| n.to_string()).boxed(),
        ValueKind::Address => any::<std::net::IpAddr>().prop_map(|ip| ip.to_string()).boxed(),
        ValueKind::Cpus => select(vec!["0-3,8", "0", "none"]).prop_map(str::to_owned).boxed(),
        ValueKind::Policy => select(vec!["off", "passthrough"]).prop_map(str::to_owned).boxed(),
    }
}

/// One treatment of the table with a value that it takes, at an end where it may be.
fn treatments() -> impl Strategy<Value = String> {
    let plain = select(table().to_vec())
        .prop_filter("keys are apart", |entry| entry.setting != Setting::Sysctl)
        .prop_flat_map(|entry| {
            let ends = match entry.scope {
                Scope::Socket => vec![""],
                _ if entry.name == "route_source" => vec!["", "client."],
                _ => vec!["", "client.", "server."],
            };
            (select(ends), texts(entry.value))
                .prop_map(move |(end, value)| format!("{end}{}={value}", entry.name))
        });
    let sysctl = select(sysctls().to_vec()).prop_flat_map(|entry| {
        let key = entry.key.replace('*', "eth0");
        (select(vec!["", "server."]), texts(entry.value))
            .prop_map(move |(end, value)| format!("{end}sysctl:{key}={value}"))
    });
    prop_oneof![plain, sysctl]
}

proptest! {
    #[test]
    fn a_written_value_reads_back_the_same(parts in hash_set(treatments(), 0..5)) {
        let text = if parts.is_empty() { "none".to_owned() } else { parts.into_iter().collect::<Vec<_>>().join(",") };
        // Some of them exclude each other, or are the same thing twice.
        if let Ok(treatments) = text.parse::<Treatments>() {
            prop_assert_eq!(treatments.to_string(), text);
            let json = serde_json::to_string(&treatments).unwrap();
            prop_assert_eq!(serde_json::from_str::<Treatments>(&json).unwrap(), treatments);
        }
    }

    #[test]
    fn each_treatment_of_the_table_is_taken_alone(text in treatments()) {
        let treatments = read(&text);
        prop_assert_eq!(treatments.iter().count(), 1);
        for end in [End::Client, End::Server] {
            for change in treatments.host_changes(end) {
                prop_assert_eq!(change.check(), Ok(()));
                let json = serde_json::to_string(&change).unwrap();
                prop_assert_eq!(serde_json::from_str::<HostChange>(&json).unwrap(), change);
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9:._=, -]{0,60}|\\PC{0,60}") {
        let _ = text.parse::<Treatments>();
    }

    #[test]
    fn both_sides_of_a_pair_differ_in_checksums_alone(other in treatments()) {
        let (a, b) = (read("none"), read("checksum_offload=off"));
        if let Ok(pair) = pair(&a, &b) {
            prop_assert_eq!(pair.b.iter().count(), pair.a.iter().count() + 1);
        }
        // Whatever stands on both sides needs no control.
        let same = read(&other);
        let made = pair(&same, &same).unwrap();
        prop_assert_eq!(made.a, same);
    }
}

#[test]
fn names_are_unique_and_none_is_refused() {
    for (position, entry) in table().iter().enumerate() {
        let others = &table()[position + 1..];
        assert!(others.iter().all(|other| other.name != entry.name));
        assert!(others.iter().all(|other| other.setting != entry.setting));
        assert!(REFUSED.iter().all(|(name, _)| *name != entry.name));
        for text in [entry.means, entry.needs, entry.read_back] {
            assert!(!text.is_empty(), "{}", entry.name);
        }
    }
}

#[test]
fn every_setting_of_a_host_has_its_entry() {
    use DeviceSetting as D;
    let switches = [D::ChecksumOffload, D::Tso, D::Uso, D::Gso, D::Gro, D::AdaptiveRx];
    let switches = switches.map(|setting| (setting, "on"));
    let figures = [(D::Mtu, "1500"), (D::RxUsecs, "50")];
    for (setting, value) in switches.into_iter().chain(figures) {
        assert!(read(&format!("{setting}={value}")).host_changes(End::Client).iter().all(
            |change| matches!(change, HostChange::Device { setting: own, .. } if *own == setting)
        ));
    }
    use RouteSetting as R;
    for setting in [R::Mtu, R::Advmss, R::Quickack, R::Source] {
        assert!(!setting.to_string().is_empty());
    }
}

#[test]
fn kernel_settings_are_of_the_network_and_in_order() {
    let keys: Vec<_> = sysctls().iter().map(|entry| entry.key).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    assert!(keys.len() >= 60);
    for entry in sysctls() {
        assert!(entry.key.starts_with("net."), "{}", entry.key);
        match entry.value {
            ValueKind::Number { least, most, .. } | ValueKind::Numbers { least, most, .. } => {
                assert!(least < most, "{}", entry.key);
            }
            ValueKind::Name => {}
            kind => panic!("{} is {kind}", entry.key),
        }
    }
}

#[test]
fn without_an_end_sockets_are_of_both_and_hosts_of_the_client() {
    let treatments = read("mss=536,tso=off,server.gro=off,sysctl:net.ipv4.tcp_sack=0");
    let texts = |end| {
        let changes = treatments.host_changes(end);
        changes.iter().map(HostChange::to_string).collect::<Vec<_>>()
    };
    assert_eq!(texts(End::Client), ["tso=off", "sysctl:net.ipv4.tcp_sack=0"]);
    assert_eq!(texts(End::Server), ["gro=off"]);
    let ends = [End::Client, End::Server];
    let mss = treatments.iter().next().unwrap();
    assert!(ends.iter().all(|end| mss.is_at(*end)));
}

#[test]
fn treatments_with_the_same_effect_are_equal() {
    assert_eq!(read("receive_window=64KiB,tso=off"), read("client.tso=off, receive_window=65536"));
    assert_ne!(read("tso=off"), read("server.tso=off"));
    assert_eq!(read("none"), Treatments::default());
    assert_eq!(read(" none "), Treatments::default());
}

#[test]
fn values_travel_as_the_kernel_has_them() {
    let changes = read("sysctl:net.ipv4.tcp_rmem=4096  131072 6291456").host_changes(End::Client);
    let HostChange::Sysctl { value, .. } = &changes[0] else {
        panic!("{changes:?}");
    };
    assert_eq!(value, "4096 131072 6291456");
    let json = serde_json::to_string(&read("server.mtu=1400").host_changes(End::Server)).unwrap();
    assert_eq!(json, r#"[{"scope":"device","setting":"mtu","value":"1400"}]"#);
}

#[test]
fn what_is_wrong_is_said_with_its_range_or_the_nearest_name() {
    for (text, message) in [
        ("", "``: write `none` for nothing"),
        ("mss", "`mss`: write NAME=VALUE, with commas between several, or `none`"),
        ("none,mss=536", "`none`: it means that there is none, and stands alone"),
        ("=536", "`=536`: a name belongs before the `=`"),
        ("msss=536", "there is no treatment `msss`; did you mean `mss`?"),
        ("cc=reno", "there is no treatment `cc`; did you mean `congestion`?"),
        ("fq-rate=1mbit", "there is no treatment `fq-rate`; did you mean `pacing`?"),
        (
            "net.ipv4.tcp_sack=0",
            "there is no treatment `net.ipv4.tcp_sack`; did you mean `sysctl:net.ipv4.tcp_sack`?",
        ),
        (
            "sysctl:net.ipv4.tcp_sac=0",
            "the kernel setting `net.ipv4.tcp_sac` is not among those that a treatment may change; \
             did you mean \
             `net.ipv4.tcp_sack`?",
        ),
        (
            "sysctl:tcp_rmem=1 2 3",
            "the kernel setting `tcp_rmem` is not among those that a treatment may change; did you \
             mean \
             `net.ipv4.tcp_rmem`?",
        ),
        ("mss=12", "`mss=12`: it must be 88 to 32767 bytes"),
        ("tso=yes", "`tso=yes`: it must be on or off"),
        (
            "sysctl:net.ipv4.tcp_rmem=1 2",
            "`net.ipv4.tcp_rmem=1 2`: it must be 3 numbers with blanks between them, each 1 to \
             2147483647 bytes",
        ),
        ("tso=on,tso=off", "`tso` is given twice"),
        ("tso=on,client.tso=on", "`client.tso` is given twice"),
        (
            "server.source=192.0.2.1",
            "`server.source` is refused: an endpoint answers from the address at which it was \
             asked",
        ),
        (
            "server.mss=536",
            "`server.mss` is refused: the options of sockets hold at both ends, each of which \
             takes what concerns it; \
             leave the end out",
        ),
        (
            "tso=on,checksum_offload=off",
            "`checksum_offload=off` and `tso=on` exclude each other: segmentation by the device \
             needs its checksums",
        ),
        (
            "sysctl:net.ipv4.tcp_rmem=1 2 3,receive_window=1MiB",
            "`receive_window=1MiB` and `sysctl:net.ipv4.tcp_rmem=1 2 3` exclude each other: the \
             option of the socket \
             wins, and the setting would do nothing",
        ),
        (
            "rx_usecs=50,adaptive_rx=on",
            "`adaptive_rx=on` and `rx_usecs=50` exclude each other: a driver that adapts it sets \
             rx_usecs by itself",
        ),
        ("mss:x=1", "`mss:x=1`: only `sysctl` has a key after a colon"),
        ("sysctl=1", "`sysctl=1`: write the key, as in sysctl:net.ipv4.tcp_sack=0"),
    ] {
        assert_eq!(refusal(text), message, "{text}");
    }
    let many: Vec<_> = sysctls()
        .iter()
        .filter(|entry| matches!(entry.value, ValueKind::Number { least: 0, .. }))
        .map(|entry| format!("sysctl:{}=0", entry.key.replace('*', "eth0")))
        .collect();
    assert!(refusal(&many.join(",")).contains("at most 32"));
}

#[test]
fn only_listed_settings_of_one_device_are_taken() {
    for key in [
        "kernel.core_pattern",
        "net.ipv4.tcp_rmem/../../../kernel.core_pattern",
        "net.ipv4.conf.all.forwarding",
        "net.ipv4.conf.default.forwarding",
        "net.ipv4.conf..forwarding",
        "net.ipv4.conf.a.b.forwarding",
        "net.ipv4.conf./etc.forwarding",
        "net.ipv4.route.flush",
        "net.ipv6.conf.all.forwarding",
    ] {
        let change = HostChange::Sysctl { key: key.to_owned(), value: "1".to_owned() };
        let error = change.check().unwrap_err().to_string();
        assert!(error.contains("is not among those that a treatment may change"), "{key}");
    }
    let vlan = HostChange::Sysctl {
        key: "net.ipv4.conf.eth0/100.forwarding".to_owned(),
        value: "1".to_owned(),
    };
    assert_eq!(vlan.check(), Ok(()));
}

#[test]
fn an_endpoint_refuses_what_a_stranger_makes_up() {
    for json in [
        r#"{"scope":"device","setting":"tso","value":"maybe"}"#,
        r#"{"scope":"device","setting":"mtu","value":"1"}"#,
        r#"{"scope":"route","setting":"advmss","value":"-1"}"#,
        r#"{"scope":"route","setting":"source","value":"pit"}"#,
        r#"{"scope":"sysctl","key":"kernel.panic","value":"1"}"#,
        r#"{"scope":"sysctl","key":"net.ipv4.tcp_sack","value":"2"}"#,
    ] {
        let change: HostChange = serde_json::from_str(json).unwrap();
        assert!(change.check().is_err(), "{json}");
    }
    for json in [
        r#"{"scope":"device","setting":"sg","value":"off"}"#,
        r#"{"scope":"socket","setting":"mss","value":"536"}"#,
        r#"{"scope":"sysctl","value":"1"}"#,
    ] {
        assert!(serde_json::from_str::<HostChange>(json).is_err(), "{json}");
    }
}

#[test]
fn checksums_are_compared_with_segmentation_off_on_both_sides() {
    let made = pair(&read("none"), &read("checksum_offload=off")).unwrap();
    assert_eq!(made.a.to_string(), "tso=off,uso=off,gso=off");
    assert_eq!(made.b.to_string(), "checksum_offload=off,tso=off,uso=off,gso=off");
    assert_eq!(
        made.notes,
        ["On the client's device tso, uso, gso are off on both sides: Linux switches \
             segmentation offload off together \
             with checksum offload, and its cost would be taken for that of the checksum."]
    );
    let at_server = pair(
        &read("server.checksum_offload=on,server.tso=off,server.uso=off,server.gso=off"),
        &read("server.checksum_offload=off,server.tso=off,server.uso=off"),
    )
    .unwrap();
    assert_eq!(
        at_server.b.to_string(),
        "server.checksum_offload=off,server.tso=off,server.uso=off,server.gso=off"
    );
    assert!(at_server.notes[0].starts_with("On the server's device gso is off"));
}

#[test]
fn a_control_that_contradicts_what_was_asked_is_refused() {
    let error =
        pair(&read("checksum_offload=on,tso=on"), &read("checksum_offload=off")).unwrap_err();
    let begin = "`checksum_offload` and `tso=on` exclude each other";
    assert!(error.to_string().starts_with(begin), "{error}");
}

#[test]
fn a_thing_against_itself_is_a_comparison_and_is_said() {
    let made = pair(&read("checksum_offload=off"), &read("checksum_offload=off")).unwrap();
    assert_eq!(made.a.to_string(), "checksum_offload=off");
    assert_eq!(made.notes.len(), 1);
    let plain = pair(&read("none"), &read("mss=536")).unwrap();
    assert!(plain.notes.is_empty() && plain.a.is_empty());
}

#[test]
fn treatments_of_sockets_become_options_of_the_test() {
    let mut test = stream(Protocol::Tcp);
    let text = "receive_window=64KiB,send_buffer=32KiB,mss=536,pacing=20mbit,congestion=reno,nodelay=on,quickack=off,\
                dscp=EF,zerocopy=on,busy_poll=50,source=192.0.2.1,tso=off";
    read(text).apply_to(&mut test).unwrap();
    let expected = SocketOptions {
        receive_window_bytes: Some(ByteCount(65_536)),
        send_buffer_bytes: Some(ByteCount(32_768)),
        mss_bytes: Some(536),
        pacing_bps: Some(BitRate(20_000_000)),
        congestion: Some("reno".to_owned()),
        nodelay: true,
        quickack: Some(false),
        source_port: None,
        dscp: Some("EF".parse().unwrap()),
        busy_poll_us: Some(50),
        source: Some("192.0.2.1".parse().unwrap()),
    };
    assert_eq!(test.options, expected);
    let Traffic::Stream(stream) = &test.traffic else {
        panic!("{test:?}");
    };
    assert_eq!(stream.send, SendMethod::ZeroCopy);
    assert!(serde_json::to_string(&test).unwrap().contains(r#""source":"192.0.2.1""#));
}

#[test]
fn an_option_that_the_test_has_already_is_no_treatment() {
    for option in [
        "receive_window=1MiB",
        "send_buffer=1MiB",
        "mss=536",
        "pacing=1mbit",
        "congestion=reno",
        "nodelay=off",
        "quickack=on",
        "dscp=EF",
        "zerocopy=off",
        "discard=off",
        "busy_poll=1",
        "source=::1",
    ] {
        let name = option.split('=').next().unwrap();
        let mut test = stream(Protocol::Tcp);
        let given = match name {
            "nodelay" => "nodelay=on",
            "zerocopy" => "zerocopy=on",
            "discard" => "discard=on",
            _ => option,
        };
        read(given).apply_to(&mut test).unwrap();
        let error = read(option).apply_to(&mut test).unwrap_err();
        assert!(
            matches!(error, TreatmentError::Given { name: own } if own == name),
            "{option}: {error}"
        );
    }
}

/// A run of one TCP flow, as its JSON has it.
fn record(direction: &str, tcp: &str) -> Record {
    let mut test = stream(Protocol::Tcp);
    test.direction = match direction {
        "up" => Direction::Up,
        _ => Direction::Down,
    };
    let test = serde_json::to_string(&test).unwrap();
    let json = format!(
        r#"{{"schema":"linerate.record/1","status":"complete","started_at":"2026-01-01T00:00:00Z","host":"pit",
        "peer":"198.18.0.2:5201","workload":"stream","protocol":"tcp","family":"ipv4","direction":"{direction}",
        "plan":{test},"seconds":1.0,
        "legs":[{{"direction":"{direction}","sender":{{"method":"write"}},"receiver":{{"method":"read"}}}}],
        "flows":[{{"id":0,"direction":"{direction}","throughput_bps":1.0,"bytes":1,"local":"198.18.0.1:4000",
        "remote":"198.18.0.2:5201","tcp":{tcp}}}],
        "intervals":[],"caveats":[],"environment":{{"client":{{}}}},"seed":1}}"#
    );
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_treatment_without_effect_in_the_record_did_not_take() {
    let tcp =
        r#"{"mss_bytes":524,"pmtu_bytes":1400,"congestion":"reno","send_window_bytes":65536}"#;
    for (direction, text, took) in [
        ("up", "mss=536", true),
        ("up", "mss=1000", false),
        ("up", "mss=500", false),
        ("up", "congestion=reno", true),
        ("up", "congestion=cubic", false),
        ("up", "receive_window=64KiB", true),
        ("up", "receive_window=1MiB", true),
        ("up", "receive_window=16KiB", false),
        ("up", "zerocopy=off", true),
        ("up", "zerocopy=on", false),
        ("up", "discard=off", true),
        ("up", "discard=on", false),
        ("up", "source=198.18.0.1", true),
        ("up", "source=198.18.0.9", false),
        ("up", "route_source=198.18.0.9", false),
        ("up", "route_mtu=1400", true),
        ("up", "route_mtu=1300", false),
        ("up", "server.route_mtu=1300", true),
        ("down", "route_mtu=1300", true),
        ("down", "server.mtu=1300", false),
        ("up", "route_advmss=500", true),
        ("up", "server.route_advmss=500", false),
        ("down", "route_advmss=500", false),
        ("down", "route_advmss=536", true),
        ("up", "tso=off,sysctl:net.ipv4.tcp_sack=0", true),
    ] {
        let result = read(text).took(&record(direction, tcp));
        assert_eq!(result.is_ok(), took, "{direction} {text}: {result:?}");
    }
}

#[test]
fn an_option_that_the_traffic_lacks_is_no_treatment() {
    for (text, mut test) in [
        ("mss=536", stream(Protocol::Udp)),
        ("pacing=1mbit", stream(Protocol::Udp)),
        ("quickack=on", stream(Protocol::Udp)),
        ("source=192.0.2.1", stream(Protocol::Udp)),
        ("route_source=192.0.2.1", stream(Protocol::Udp)),
        ("zerocopy=on", stream(Protocol::Udp)),
        ("zerocopy=on", requests()),
        ("discard=on", stream(Protocol::Udp)),
        ("discard=on", requests()),
    ] {
        let error = read(text).apply_to(&mut test).unwrap_err();
        let is_unfit = error.to_string().contains("does not fit this test");
        assert!(is_unfit, "{text}: {error}");
    }
    // The endpoint would change the route to the address of the control connection.
    for text in
        ["source=192.0.2.1,server.route_mtu=1400", "route_source=192.0.2.1,server.route_advmss=536"]
    {
        let error = read(text).apply_to(&mut stream(Protocol::Tcp)).unwrap_err();
        assert!(error.to_string().contains("control connection"), "{error}");
    }
    let own = "source=192.0.2.1,route_mtu=1400,server.mtu=1400";
    read(own).apply_to(&mut stream(Protocol::Tcp)).unwrap();
    let mut routed = stream(Protocol::Tcp);
    read("route_source=192.0.2.1").apply_to(&mut routed).unwrap();
    assert_eq!(routed.options.source, Some("192.0.2.1".parse().unwrap()));
    let mut datagrams = stream(Protocol::Udp);
    read("receive_window=1MiB,send_buffer=1MiB,dscp=LE,busy_poll=10")
        .apply_to(&mut datagrams)
        .unwrap();
    let mut requests = requests();
    read("nodelay=off").apply_to(&mut requests).unwrap();
    assert!(!requests.options.nodelay);
}

fn policies(name: &str) -> Result<String, String> {
    match name {
        "mark.toml" => Ok("[filter.all]\npolicy = \"mark\"\n".to_owned()),
        "empty.toml" => Ok(String::new()),
        "long.toml" => Ok("#".repeat(MAX_REMOTE_POLICY_BYTES + 1)),
        _ => Err("there is none".to_owned()),
    }
}

#[test]
fn a_policys_text_travels_with_its_name() {
    let mut treatments = read("qos=mark.toml,server.qos=passthrough");
    let before = treatments.host_changes(End::Client);
    let message = before[0].check().unwrap_err().to_string();
    assert!(message.contains("`qos=mark.toml`: it must be a policy's file that was read"));
    treatments.load(&policies).unwrap();
    assert_eq!(treatments.to_string(), "qos=mark.toml,server.qos=passthrough");
    let changes = treatments.host_changes(End::Client);
    assert_eq!(changes[0].check(), Ok(()));
    let json = serde_json::to_string(&changes).unwrap();
    assert_eq!(
        json,
        r##"[{"scope":"qos","policy":"file","name":"mark.toml","text":"[filter.all]\npolicy = \"mark\"\n"}]"##
    );
    assert_eq!(serde_json::from_str::<Vec<HostChange>>(&json).unwrap(), changes);
    let json = serde_json::to_string(&treatments.host_changes(End::Server)).unwrap();
    assert_eq!(json, r#"[{"scope":"qos","policy":"passthrough"}]"#);
}

#[test]
fn a_policy_that_cannot_be_had_is_named() {
    for (text, words) in [
        ("qos=none.toml", "the policy `none.toml`: there is none"),
        (
            "qos=empty.toml",
            "the policy `empty.toml`: it has 0 bytes; a policy here has 1 to 1048576",
        ),
        (
            "server.qos=long.toml",
            "the policy `long.toml`: it has 32769 bytes; a policy here has 1 to 32768",
        ),
    ] {
        let message = read(text).load(&policies).unwrap_err().to_string();
        assert_eq!(message, words);
    }
    read("qos=long.toml").load(&policies).unwrap();
    assert!(refusal("qos=").contains("off, passthrough, or the name of a policy's file"));
}
