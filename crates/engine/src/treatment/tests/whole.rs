//! All of a host's network state, before a treatment and after it was undone: with stacked devices
//! and with settings that are not the defaults.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use linerate_core::treatment::{ValueKind, sysctls};
use linerate_sys::ethtool::{Ethtool, Offload};
use linerate_sys::netlink::{LinkStatistics, Netlink};
use linerate_sys::netns::Pair;
use linerate_sys::proc::sysctl;
use linerate_testkit::{Need, eventually, skip};

use super::{Journals, TreatError, apply, on_pair};

/// What a treatment could change, by name.
type State = BTreeMap<String, String>;

fn whole_state() -> State {
    let mut state = State::new();
    add_settings(Path::new("/proc/sys/net"), &mut state);
    let mut netlink = Netlink::open().unwrap();
    for mut link in netlink.links().unwrap() {
        link.statistics = LinkStatistics::default();
        let name = link.name.clone();
        let features = Ethtool::open(&name).unwrap().features().unwrap();
        for feature in features {
            let key = format!("{name} {}", feature.name);
            state.insert(key, format!("{feature:?}"));
        }
        let qdiscs = netlink.qdiscs(&name).unwrap();
        state.insert(format!("{name} qdiscs"), format!("{qdiscs:?}"));
        state.insert(name, format!("{link:?}"));
    }
    for address in netlink.addresses().unwrap() {
        state.insert(format!("{address:?}"), String::new());
    }
    for route in netlink.routes().unwrap() {
        state.insert(format!("{route:?}"), String::new());
    }
    state
}

fn add_settings(directory: &Path, state: &mut State) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_settings(&path, state);
        } else if !path.metadata().unwrap().permissions().readonly() {
            // One that nobody can write here is of the whole host, which other tests change; some
            // can only be written.
            let text = fs::read_to_string(&path).unwrap_or_default();
            state.insert(path.display().to_string(), text);
        }
    }
}

fn assert_same(after: &State, before: &State, treatment: &str) {
    let keys = before.keys().chain(after.keys());
    let mut other: Vec<_> = keys
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| format!("{key}\n  was {:?}\n  is {:?}", before.get(key), after.get(key)))
        .collect();
    other.dedup();
    assert!(other.is_empty(), "{treatment} leaves changed:\n{}", other.join("\n"));
}

/// False, and says why, where `ip` or the kernel cannot.
fn ip(arguments: &str) -> bool {
    let made = Command::new("ip").args(arguments.split(' ')).output();
    let why = match made {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    skip(Need::Iproute2, format_args!("ip {arguments}: {why}"));
    false
}

/// Two devices stacked on that of the pair, and values that nobody has who did not set them.
fn preset() -> bool {
    for (key, value) in [
        // Addresses that come by themselves come when they like.
        ("net.ipv6.conf.default.addr_gen_mode", "1"),
        ("net.ipv4.conf.all.accept_redirects", "0"),
        ("net.ipv4.tcp_rmem", "4096 100000 2000000"),
    ] {
        sysctl::write(key, value).unwrap();
    }
    let made = [
        "link add link veth0 name v7 type macvlan",
        "link add link v7 name v8 mtu 1450 type macvlan",
        "link set v7 up",
        "link set v8 up",
        "address add 2001:2:0:7::1/64 dev v7 nodad",
        "address add 198.18.7.1/24 dev v7",
        "route add 2001:2:0:8::/64 dev veth0 mtu 1450",
        "route add 2001:2:0:9::/64 dev veth0 mtu 1300",
        "route add 2001:2:0:a::/64 via 2001:2:0:7::2 mtu 1420",
    ]
    .into_iter()
    .all(ip);
    if made {
        sysctl::write("net.ipv6.conf.veth0.mtu", "1380").unwrap();
        sysctl::write("net.ipv6.conf.v7.mtu", "1370").unwrap();
        for link in ["veth0", "v7"] {
            // Not of every device, and no matter where it cannot be.
            let _ = Ethtool::open(link).unwrap().set_offload(Offload::LargeReceive, true);
        }
        eventually("its IPv6 addresses can be used", || {
            let addresses = Netlink::open().unwrap().addresses().unwrap();
            !addresses.iter().any(|address| address.tentative)
        });
    }
    made
}

/// Values of a kernel setting other than the one that it has.
fn other_values(key: &str, kind: ValueKind) -> Vec<String> {
    let Ok(now) = sysctl::read(key) else {
        return Vec::new();
    };
    let numbers: Vec<u64> = now.split(' ').filter_map(|word| word.parse().ok()).collect();
    let near = |by: i64| {
        let moved = numbers.iter().map(|number| number.saturating_add_signed(by).to_string());
        moved.collect::<Vec<_>>().join(" ")
    };
    let mut values = match kind {
        ValueKind::Number { least, most, .. } => {
            vec![near(1), near(-1), least.to_string(), most.to_string()]
        }
        ValueKind::Numbers { .. } => vec![near(1), near(-1)],
        _ => ["reno", "cubic", "bbr"].map(str::to_owned).to_vec(),
    };
    values.retain(|value| *value != now && kind.read(value).is_ok());
    values
}

/// The treatments of every kernel setting, of which the first value that takes counts.
fn of_settings() -> Vec<Vec<String>> {
    let settings = sysctls().iter().map(|entry| {
        let key = entry.key.replace('*', Pair::LINK);
        let values = other_values(&key, entry.value).into_iter();
        values.map(|value| format!("sysctl:{key}={value}")).collect()
    });
    settings.collect()
}

const OTHERS: [&str; 17] = [
    "tso=off",
    "uso=off",
    "gso=off",
    "gro=on",
    "gro=off",
    "checksum_offload=off",
    "mtu=1400",
    "mtu=1300",
    "mtu=9000",
    "mtu=1450",
    "rx_usecs=7",
    "adaptive_rx=on",
    "route_mtu=1400",
    "route_advmss=536",
    "route_quickack=on",
    "mtu=1400,route_mtu=1300,tso=off,sysctl:net.ipv4.ip_forward=1",
    "mtu=1400,sysctl:net.ipv4.conf.veth0.forwarding=1",
];

/// Whether it could be applied.
fn goes_and_comes(journals: &Journals, text: &str, peer: IpAddr, before: &State) -> bool {
    let applied = match apply(journals, text, peer) {
        Ok(applied) => applied,
        Err(TreatError::Unfit { .. } | TreatError::NotTaken { .. } | TreatError::Kernel { .. }) => {
            assert_same(&whole_state(), before, &format!("{text}, which does not apply,"));
            return false;
        }
        Err(error) => panic!("{text}: {}", crate::words::chain(&error)),
    };
    applied.undo().unwrap();
    assert_same(&whole_state(), before, text);
    true
}

#[test]
fn after_every_treatment_the_whole_host_is_as_it_was() {
    on_pair("whole", |journals, peers| {
        if !preset() {
            return;
        }
        let before = whole_state();
        let applies = |text: &&str| {
            let applied = peers.map(|peer| goes_and_comes(journals, text, peer, &before));
            applied == [true, true]
        };
        let refused: Vec<_> = OTHERS.iter().filter(|text| !applies(text)).collect();
        // No driver of a virtual device holds interrupts back.
        assert_eq!(refused, [&"rx_usecs=7", &"adaptive_rx=on"]);
        let settings = of_settings();
        let takes = |values: &&Vec<String>| {
            let mut values = values.iter();
            values.any(|text| goes_and_comes(journals, text, peers[0], &before))
        };
        let taken = settings.iter().filter(takes).count();
        assert!(taken > 50, "{taken} of {} settings", settings.len());
    });
}

#[test]
fn a_device_of_a_stack_is_treated_by_one_at_a_time() {
    on_pair("stack", |journals, [v4, _]| {
        if !preset() {
            return;
        }
        let first = apply(journals, "mtu=1400", v4).unwrap();
        let above: IpAddr = "198.18.7.2".parse().unwrap();
        let error = apply(journals, "mtu=1300", above).unwrap_err();
        assert!(matches!(error, TreatError::Busy { .. }), "{error}");
        first.undo().unwrap();
    });
}

#[test]
fn an_mtu_that_would_take_ipv6_from_a_stacked_device_is_refused() {
    on_pair("lost", |journals, [v4, _]| {
        if !preset()
            || !ip("address flush dev veth0 scope global")
            || !ip("address add 198.18.0.1/24 dev veth0")
        {
            return;
        }
        let before = whole_state();
        let error = apply(journals, "mtu=1000", v4).unwrap_err();
        assert!(error.to_string().contains("IPv6"), "{error}");
        assert_same(&whole_state(), &before, "a refusal");
    });
}

/// Puts a kernel setting of the whole host back.
struct PutBack(&'static str, String);

impl Drop for PutBack {
    fn drop(&mut self) {
        sysctl::write(self.0, &self.1).unwrap();
    }
}

#[test]
fn an_algorithm_made_the_default_is_afterwards_allowed_to_nobody_else() {
    const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
    // Another network namespace only shows it.
    if let Err(error) = sysctl::check_writable(ALLOWED) {
        return skip(Need::Procfs, error);
    }
    let default = sysctl::read("net.ipv4.tcp_congestion_control").unwrap();
    let available = sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap();
    let Some(other) = available.split(' ').find(|name| *name != default) else {
        return skip(Need::Procfs, "the kernel has one algorithm");
    };
    let _put_back = PutBack(ALLOWED, sysctl::read(ALLOWED).unwrap());
    sysctl::write(ALLOWED, &default).unwrap();
    let journals = Journals::new("allowed");
    let text = format!("sysctl:net.ipv4.tcp_congestion_control={other}");
    let applied = apply(&journals, &text, [127, 0, 0, 1].into()).unwrap();
    assert!(sysctl::read(ALLOWED).unwrap().contains(other));
    applied.undo().unwrap();
    assert_eq!(sysctl::read(ALLOWED).unwrap(), default);
}
