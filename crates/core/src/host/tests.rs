//! Tests of the table, of the advice, and of what is refused.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::treatment::{ValueKind, sysctls};
use crate::units::{BitRate, Span};

/// A host whose every setting is the kernel's usual one, with one physical device of 10 Gbit/s.
fn host() -> HostView {
    let device = DeviceView {
        name: "eth0".into(),
        speed_bps: Some(10_000_000_000),
        is_physical: true,
        rx_queues: 1,
        tx_queues: 4,
        rx_ring_max: Some(4096),
        tx_ring_max: Some(4096),
        adapts: false,
    };
    let mut view = HostView {
        kernel: "6.18.44".into(),
        cpus: 8,
        memory_bytes: 16 << 30,
        page_bytes: 4096,
        congestion_controls: vec!["reno".into(), "cubic".into(), "bbr".into()],
        queueing_disciplines: vec!["fq".into(), "fq_codel".into()],
        devices: vec![device],
        ..HostView::default()
    };
    for (key, text) in USUAL {
        put(&mut view, key, text);
    }
    view
}

fn put(view: &mut HostView, key: &str, text: &str) {
    let reading = Reading::Value { text: text.into(), obstacle: None };
    view.readings.insert(key.into(), reading);
}

const USUAL: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ("net.core.rmem_max", "212992"),
    ("net.core.wmem_max", "212992"),
    ("net.ipv4.tcp_mem", "190000 250000 380000"),
    ("net.ipv4.udp_mem", "380000 500000 760000"),
    ("net.ipv4.tcp_moderate_rcvbuf", "1"),
    ("net.ipv4.tcp_window_scaling", "1"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.core.default_qdisc", "pfifo_fast"),
    ("net.ipv4.tcp_mtu_probing", "0"),
    ("net.ipv4.tcp_no_metrics_save", "0"),
    ("net.ipv4.tcp_no_ssthresh_metrics_save", "1"),
    ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ("fs.file-max", "1600000"),
    ("fs.nr_open", "1048576"),
    ("process.nofile", "1024 20000"),
    ("net.ipv4.ip_local_port_range", "32768 60999"),
    ("net.core.somaxconn", "4096"),
    ("net.ipv4.tcp_max_syn_backlog", "1024"),
    ("net.ipv4.tcp_syncookies", "1"),
    ("net.ipv4.tcp_tw_reuse", "2"),
    ("net.ipv4.tcp_max_tw_buckets", "65536"),
    ("net.ipv4.tcp_max_orphans", "65536"),
    ("net.ipv4.tcp_fin_timeout", "60"),
    ("net.netfilter.nf_conntrack_max", "262144"),
    ("net.netfilter.nf_conntrack_buckets", "262144"),
    ("net.netfilter.nf_conntrack_tcp_timeout_established", "432000"),
    ("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "120"),
    ("net.core.netdev_max_backlog", "1000"),
    ("net.core.busy_poll", "0"),
    ("net.core.busy_read", "0"),
    ("device.eth0.rx_ring", "512"),
    ("device.eth0.tx_ring", "512"),
    ("device.eth0.rx_usecs", "50"),
    ("device.eth0.tx_usecs", "50"),
    ("device.eth0.rx_frames", "0"),
    ("device.eth0.adaptive_rx", "off"),
    ("device.eth0.checksum_offload", "on"),
    ("device.eth0.tso", "on"),
    ("device.eth0.gso", "on"),
    ("device.eth0.gro", "on"),
    ("device.eth0.txqueuelen", "1000"),
    ("device.eth0.rps_cpus", "none"),
    ("device.eth0.xps_cpus", "none"),
    ("device.eth0.irq_cpus", "0-7"),
    ("cpu.governor", "schedutil"),
];

fn path(rate: &str, rtt: &str) -> Need {
    Need::of_path(rate.parse::<BitRate>().unwrap(), rtt.parse::<Span>().unwrap())
}

fn right(need: &Need, view: &HostView, key: &str) -> Option<String> {
    let reports = advise(need, view, &[key.to_owned()]);
    let [report] = &reports[..] else {
        panic!("{key}: {reports:?}");
    };
    assert_eq!(report.right.is_some(), report.state == SettingState::Change, "{report:?}");
    report.right.clone()
}

#[test]
fn the_table_has_each_setting_once_and_says_all_of_it() {
    let mut keys = BTreeSet::new();
    for setting in settings() {
        assert!(keys.insert(setting.key), "{} is there twice", setting.key);
        for text in [setting.limits, setting.formula, setting.source, setting.means] {
            assert!(!text.is_empty(), "{}", setting.key);
        }
    }
    let usual: BTreeSet<String> = USUAL.iter().map(|(key, _)| key.replace("eth0", "*")).collect();
    for key in keys {
        assert!(usual.contains(key), "no rule was tried on {key}");
    }
}

#[test]
fn what_a_treatment_may_change_has_its_range_and_meaning_from_there() {
    for entry in sysctls() {
        let key = entry.key.replace('*', "eth0");
        assert_eq!(find(&key).unwrap().value, entry.value, "{key}");
        assert_eq!(find(&key).unwrap().means, entry.means, "{key}");
    }
}

#[test]
fn buffers_are_twice_what_fills_the_path() {
    let view = host();
    let rmem = |need: &Need| right(need, &view, "net.ipv4.tcp_rmem");
    // 10 Gbit/s over 80 ms are 100 MB; twice that, as a power of two.
    let long = path("10gbit", "80ms");
    assert_eq!(rmem(&long).as_deref(), Some("4096 131072 268435456"));
    assert_eq!(right(&long, &view, "net.ipv4.tcp_wmem").as_deref(), Some("4096 16384 268435456"));
    assert_eq!(right(&long, &view, "net.core.rmem_max").as_deref(), Some("134217728"));
    // 1 Gbit/s over 25 ms need 6,250,000 bytes, which are there; over 26 ms they are not.
    assert_eq!(rmem(&path("1gbit", "25ms")), None);
    assert_eq!(rmem(&path("1gbit", "26ms")).as_deref(), Some("4096 131072 8388608"));
    // The kernel takes no buffer above 2^30.
    assert_eq!(rmem(&path("1tbit", "1min")).as_deref(), Some("4096 131072 1073741824"));
    let report = &advise(&long, &view, &["net.ipv4.tcp_rmem".into()])[0];
    assert_eq!(report.inputs["needed_bytes"], 200_000_000.0);
    assert!(report.why.contains("10 Gbit/s over 80 ms"), "{}", report.why);
}

#[test]
fn proposed_values_are_in_range_and_judged_fine() {
    let needs = [
        path("100gbit", "1ms"),
        path("10gbit", "300ms").with_profile(Profile::Wan, None),
        Need::default().with_profile(Profile::Lan, Some(100_000_000_000)),
        Need::default().with_profile(Profile::ManyConnections, None),
        Need { connections: Some(30_000), ..path("1gbit", "1ms") },
    ];
    for need in needs {
        let mut view = host();
        let mut settled = false;
        for _ in 0..3 {
            let wrong: Vec<_> = advise(&need, &view, &[])
                .into_iter()
                .filter(|report| report.state == SettingState::Change)
                .collect();
            settled = wrong.iter().all(|report| report.place == Place::Process);
            for report in wrong.iter().filter(|report| report.place != Place::Process) {
                let right = report.right.as_deref().unwrap();
                let value = Assignment::new(&report.key, right)
                    .unwrap_or_else(|error| panic!("{need:?}: {error}"));
                assert_eq!(value.text(), right, "as the kernel writes it");
                put(&mut view, &report.key, right);
            }
        }
        assert!(settled, "{need:?}: what is advised is not enough for the rule itself");
    }
}

#[test]
fn nothing_is_advised_without_a_need_but_what_is_always_right() {
    let mut view = host();
    let wrong = |view: &HostView| -> Vec<String> {
        let all = advise(&Need::default(), view, &[]);
        let wrong = all.into_iter().filter(|report| report.state == SettingState::Change);
        wrong.map(|report| report.key).collect()
    };
    assert_eq!(wrong(&view), Vec::<String>::new());
    let open = advise(&Need::default(), &view, &["net.ipv4.tcp_rmem".into()]);
    assert_eq!(open[0].state, SettingState::Open);
    assert!(open[0].why.contains("--rtt"), "{}", open[0].why);
    for key in ["net.ipv4.tcp_sack", "net.ipv4.tcp_window_scaling", "net.ipv4.tcp_syncookies"] {
        put(&mut view, key, "0");
    }
    put(&mut view, "device.eth0.tso", "off");
    assert_eq!(
        wrong(&view),
        [
            "net.ipv4.tcp_window_scaling",
            "net.ipv4.tcp_sack",
            "net.ipv4.tcp_syncookies",
            "device.eth0.tso"
        ]
    );
    put(&mut view, "device.eth0.tso", "off (fixed)");
    assert!(!wrong(&view).contains(&"device.eth0.tso".to_owned()));
}

#[test]
fn connections_need_ports_descriptors_and_queues() {
    let view = host();
    let need = Need { connections: Some(500_000), ..Need::default() };
    for (key, expected) in [
        ("fs.nr_open", None),
        ("fs.file-max", None),
        ("process.nofile", Some("501024")),
        ("net.ipv4.ip_local_port_range", Some("1024 65535")),
        ("net.core.somaxconn", Some("5000")),
        ("net.ipv4.tcp_max_tw_buckets", Some("500000")),
        ("net.netfilter.nf_conntrack_max", Some("625000")),
        ("net.netfilter.nf_conntrack_tcp_timeout_established", Some("86400")),
        ("net.ipv4.tcp_tw_reuse", Some("1")),
        ("net.ipv4.tcp_mem", Some("500000 1000000 1500000")),
    ] {
        let found = right(&need, &view, key);
        match key {
            "net.ipv4.tcp_mem" => assert_eq!(found.unwrap().split(' ').nth(1), Some("1000000")),
            _ => assert_eq!(found.as_deref(), expected, "{key}"),
        }
    }
    // Half-open connections have a limit of their own only without cookies.
    let syn = "net.ipv4.tcp_max_syn_backlog";
    assert_eq!(right(&need, &view, syn), None);
    let mut bare = host();
    put(&mut bare, "net.ipv4.tcp_syncookies", "0");
    assert_eq!(right(&need, &bare, syn).as_deref(), Some("5000"));
    // More than half of the memory is not given away.
    let huge = Need { connections: Some(1 << 30), ..Need::default() };
    let mem = right(&huge, &view, "net.ipv4.tcp_mem").unwrap();
    assert_eq!(mem.split(' ').nth(2), Some("2097152"), "8 GiB in pages of 4 KiB");
}

#[test]
fn profiles_take_what_is_not_given() {
    let view = host();
    let wan = Need::default().with_profile(Profile::Wan, view.speed_bps());
    let own = wan.path.unwrap();
    assert_eq!((own.rate_bps, own.rtt_us, own.origin), (1e10, 1e5, NeedOrigin::Profile));
    assert_eq!(right(&wan, &view, "net.ipv4.tcp_congestion_control").as_deref(), Some("bbr"));
    assert_eq!(right(&wan, &view, "net.core.default_qdisc").as_deref(), Some("fq"));
    let given = path("1gbit", "20ms").with_profile(Profile::Wan, view.speed_bps());
    assert_eq!(given.path.unwrap().origin, NeedOrigin::Given);
    let lan = Need::default().with_profile(Profile::Lan, view.speed_bps());
    for (key, value) in [
        ("net.core.busy_read", "50"),
        ("cpu.governor", "performance"),
        ("device.eth0.rps_cpus", "0-7"),
        ("device.eth0.rx_ring", "1024"),
    ] {
        assert_eq!(right(&lan, &view, key).as_deref(), Some(value), "{key}");
    }
    for profile in Profile::ALL {
        assert_eq!(profile.name().parse(), Ok(profile));
    }
    assert!("wlan".parse::<Profile>().unwrap_err().contains("many-connections"));
}

#[test]
fn unreadable_settings_are_reported_as_such() {
    let mut view = host();
    view.readings.insert("cpu.governor".into(), Reading::Unsupported("no cpufreq".into()));
    view.readings.insert("net.ipv4.tcp_sack".into(), Reading::Unknown("not permitted".into()));
    view.readings.remove("net.core.somaxconn");
    let reports = advise(&Need::default(), &view, &[]);
    assert_eq!(reports.len(), settings().len(), "each of the table, and the one device's");
    let of = |key: &str| reports.iter().find(|report| report.key == key).unwrap();
    assert_eq!(of("cpu.governor").state, SettingState::Unsupported);
    assert_eq!(of("cpu.governor").why, "no cpufreq");
    assert_eq!(of("net.ipv4.tcp_sack").state, SettingState::Unknown);
    assert_eq!(of("net.core.somaxconn").state, SettingState::Unknown);
    // A form that no kernel has is not guessed at.
    put(&mut view, "net.ipv4.tcp_rmem", "many");
    let odd = advise(&path("1gbit", "1ms"), &view, &["net.ipv4.tcp_rmem".into()]);
    assert_eq!(odd[0].state, SettingState::Unknown);
}

#[test]
fn keys_of_devices_may_have_dots() {
    let own = device_key("device.eth0.100.rx_ring").unwrap();
    assert_eq!((own.device, own.name), ("eth0.100", "rx_ring"));
    for key in [
        "device.eth0",
        "device..rx_ring",
        "device.a/b.tso",
        "device...tso",
        "eth0.tso",
        "device.sixteen-letters0.tso",
    ] {
        assert_eq!(device_key(key), None, "{key}");
    }
    assert_eq!(find("device.eth0.100.rx_ring").unwrap().key, "device.*.rx_ring");
    assert!(find("device.eth0.speed").is_err());
}

#[test]
fn assignments_out_of_range_are_refused_with_the_range() {
    for (word, part) in [
        ("net.ipv4.tcp_sack=2", "net.ipv4.tcp_sack=2: it must be 0 to 1"),
        ("net.ipv4.tcp_rmem=1 2", "3 numbers with blanks between them"),
        ("net.ipv4.tcp_rmem=4096 2048 8192", "none less than the one before it"),
        ("net.ipv4.ip_local_port_range=60000 1024", "none less than the one before it"),
        ("fs.nr_open=63", "64 to 2147483584"),
        ("net.core.somaxconn=-1", "1 to 2147483647"),
        ("net.core.somaxconn=", "1 to 2147483647"),
        ("net.ipv4.tcp_max_orphans=2147483648", "0 to 2147483647"),
        ("device.eth0.tso=1", "on or off"),
        ("device.eth0.rps_cpus=3-1", "CPUs, 0 to 8191"),
        ("device.*.tso=on", "name it"),
        ("process.nofile=1 2", "ulimit -n"),
        ("net.ipv4.tcp_sak=1", "did you mean `net.ipv4.tcp_sack`?"),
        ("tcp_rmem=1 2 3", "did you mean `net.ipv4.tcp_rmem`?"),
        ("kernel.panic=1", "there is no setting `kernel.panic`"),
        ("net.ipv4.tcp_sack", "it must be KEY=VALUE"),
        ("net.ipv4.conf.all.forwarding=1", "there is no setting"),
        ("net.ipv4.tcp_congestion_control=a b", "a name of"),
    ] {
        let message = assignments(&[word]).unwrap_err().to_string();
        assert!(message.contains(part), "{word}: {message}");
    }
    let twice = assignments(&["net.ipv4.tcp_sack=1", "net.ipv4.tcp_sack=0"]).unwrap_err();
    assert_eq!(twice.to_string(), "`net.ipv4.tcp_sack` is given twice");
    let many = vec!["net.ipv4.tcp_sack=1"; setting::MAX_ASSIGNMENTS + 1];
    let many = assignments(&many).unwrap_err().to_string();
    assert!(many.ends_with("settings are given; at most 200 may be"), "{many}");
    let set =
        assignments(&["device.eth0.irq_cpus=8,0-1,1", "net.ipv4.tcp_rmem= 1  02 3 "]).unwrap();
    assert_eq!(set[0].text(), "0-1,8");
    assert_eq!(set[1].text(), "1 2 3");
    assert!(set[1].check_persistent().is_ok());
    let error = set[0].check_persistent().unwrap_err().to_string();
    assert!(error.contains("udev"), "{error}");
    assert!(check_keys(&["device.*.tso", "net.ipv4.tcp_ecn"]).is_ok());
    assert!(check_keys(&["net.ipv4.nosuch_at_all"]).is_err());
}

#[test]
fn lists_of_cpus_read_back_as_written() {
    let read = |text: &str| ValueKind::Cpus.read(text).ok().map(|value| value.to_string());
    for text in ["0", "0-3", "0,2", "0-1,4-7,9", "none"] {
        assert_eq!(read(text).as_deref(), Some(text));
    }
    for text in ["", ",", "a", "-1", "1-", "8192", "0-99999999", "+1"] {
        assert_eq!(read(text), None, "{text:?}");
    }
}

#[test]
fn our_file_keeps_what_others_wrote_into_it() {
    let mut file = SysctlFile::parse("");
    file.set("net.ipv4.tcp_sack", "1");
    file.set("net.ipv4.tcp_rmem", "1 2 3");
    file.set("net.ipv4.tcp_sack", "0");
    let text = file.text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["net.ipv4.tcp_sack = 0", "net.ipv4.tcp_rmem = 1 2 3"]);
    assert_eq!(SysctlFile::parse(&text), file);
    let others = format!("{text}# mine\n-net/ipv4/tcp_ecn=\t1\n");
    let mut file = SysctlFile::parse(&others);
    assert_eq!(file.value("net.ipv4.tcp_ecn").as_deref(), Some("1"));
    assert_eq!(file.value("net.ipv4.tcp_rmem").as_deref(), Some("1 2 3"));
    file.remove("net.ipv4.tcp_sack");
    file.remove("net.ipv4.tcp_rmem");
    assert!(!file.is_empty());
    assert!(file.text().ends_with("# mine\n-net/ipv4/tcp_ecn=\t1\n"));
    file.remove("net.ipv4.tcp_ecn");
    assert!(!file.is_empty(), "somebody's comment is in it");
    let mut own = SysctlFile::parse(&text);
    own.remove("net.ipv4.tcp_sack");
    own.remove("net.ipv4.tcp_rmem");
    assert!(own.is_empty());
}

#[test]
fn a_command_that_is_printed_is_one_that_is_taken() {
    let view = host();
    let reports = advise(
        &path("10gbit", "80ms"),
        &view,
        &["net.ipv4.tcp_rmem".into(), "net.core.rmem_max".into()],
    );
    let commands: Vec<String> = reports.iter().filter_map(SettingReport::command).collect();
    assert_eq!(
        commands,
        [
            "linerate host set net.ipv4.tcp_rmem='4096 131072 268435456'",
            "linerate host set net.core.rmem_max=134217728"
        ]
    );
}

proptest::proptest! {
    #[test]
    fn any_file_is_read_and_written_again(text in "[ -~\\n]{0,300}") {
        let file = SysctlFile::parse(&text);
        proptest::prop_assert_eq!(SysctlFile::parse(&file.text()), file);
    }

    #[test]
    fn no_word_makes_an_assignment_that_does_not_read_back(word in "[a-z0-9._=, -]{0,60}") {
        if let Ok(all) = assignments(&[&word]) {
            let again = Assignment::new(all[0].key(), &all[0].text()).unwrap();
            proptest::prop_assert_eq!(&again, &all[0]);
        }
    }
}

/// Shorter is better, and switches that have no order.
const MAY_FALL: [&str; 9] = [
    "net.ipv4.tcp_fin_timeout",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
    "device.eth0.rx_usecs",
    "device.eth0.tx_usecs",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_slow_start_after_idle",
    "process.nofile",
];

proptest! {
    #[test]
    fn no_advice_lowers_what_a_host_has(
        values in prop::collection::vec(prop_oneof![0..10_000_u64, 0..=1_u64 << 31], 3 * USUAL.len()),
        (rate_bps, rtt_us) in (1.0..1e12, 1.0..1e6), connections in 0..=1_u64 << 32,
        profile in proptest::sample::select(
            vec![None, Some(Profile::Wan), Some(Profile::Lan), Some(Profile::ManyConnections)]),
        memory_bytes in 0..=1_u64 << 42,
    ) {
        let mut view = HostView { memory_bytes, ..host() };
        let numbers = |text: &str| text.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
        for ((key, usual), drawn) in USUAL.iter().zip(values.chunks(3)) {
            // Figures rise, as the kernel has them.
            let mut drawn = drawn.to_vec();
            drawn.sort_unstable();
            let count = numbers(usual).map_or(0, |numbers| numbers.len());
            let text: Vec<String> = drawn.iter().take(count).map(u64::to_string).collect();
            if count > 0 && !MAY_FALL.contains(key) {
                put(&mut view, key, &text.join(" "));
            }
        }
        let path = Some(NeededPath { rate_bps, rtt_us, origin: NeedOrigin::Given });
        let need = Need { path, connections: Some(connections), profile };
        for report in advise(&need, &view, &[]) {
            let (Some(right), key) = (&report.right, report.key.as_str()) else { continue };
            let now = report.now.as_deref().expect("it was read");
            let (Ok(now), Ok(right)) = (numbers(now), numbers(right)) else { continue };
            if key == "net.ipv4.ip_local_port_range" {
                prop_assert!(right[0] <= now[0] && right[1] >= now[1].min(65_535), "{:?}", report);
            } else if !MAY_FALL.contains(&key) {
                prop_assert!(now.iter().zip(&right).all(|(now, right)| now <= right), "{:?}", report);
            }
        }
    }
}
