//! On the kernel: in network namespaces of the test's own.

mod qos;
mod whole;

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use linerate_core::plan::End;
use linerate_core::treatment::Treatments;
use linerate_sys::ethtool::Ethtool;
use linerate_sys::netlink::{LinkChange, Metric, Netlink, Prefix, Route};
use linerate_sys::netns::{Namespace, NamespaceError, Pair};
use linerate_sys::proc::privilege::{Capability, give_up};
use linerate_sys::proc::sysctl;
use linerate_sys::process::{Process, start_time};
use linerate_testkit::{Need, skip};

use super::applied::Applied;
use super::error::TreatError;
use super::journal::{undo_leftovers_in, wait_for_end};
use super::step::plan;
use crate::category::{Categorized, Category};
use crate::state_files::StateDirectory;

/// `None`, and says why, where namespaces cannot be made.
fn or_skip<T>(made: Result<T, NamespaceError>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) => {
            skip(Need::Lab, format_args!("no network namespaces here: {error}"));
            None
        }
    }
}

/// A directory for journals, taken away at the end; a journal that is still in it then fails the
/// test.
struct Journals(PathBuf);

impl Journals {
    fn new(name: &str) -> Self {
        let name = format!("linerate-treat-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn directory(&self) -> StateDirectory {
        StateDirectory::at(&self.0)
    }

    fn count(&self) -> usize {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".jsonl")).count()
    }
}

impl Drop for Journals {
    fn drop(&mut self) {
        let left = self.count();
        std::fs::remove_dir_all(&self.0).unwrap();
        if !std::thread::panicking() {
            assert_eq!(left, 0, "a journal is left");
        }
    }
}

fn apply(journals: &Journals, text: &str, peer: IpAddr) -> Result<Applied, TreatError> {
    let treatments: Treatments = text.parse().unwrap();
    let planned = plan(&treatments.host_changes(End::Client)).unwrap();
    Applied::apply_in(&journals.directory(), &planned, peer)
}

/// All that a treatment could change in this namespace.
fn state() -> Vec<String> {
    let mut netlink = Netlink::open().unwrap();
    let links = netlink.links().unwrap();
    let mut state: Vec<String> = netlink
        .routes()
        .unwrap()
        .iter()
        .map(|route| format!("{route} from {:?}", route.source))
        .collect();
    state.sort();
    for link in links {
        state.push(format!("{} mtu {}", link.name, link.mtu));
        let features = Ethtool::open(&link.name).unwrap().features().unwrap();
        state.extend(features.iter().map(|feature| format!("{feature:?}")));
    }
    for key in KEYS {
        state.push(format!("{key} {}", sysctl::read(key).unwrap()));
    }
    state
}

const KEYS: [&str; 4] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.ip_forward",
    "net.ipv4.conf.veth0.forwarding",
];

/// Runs in the namespace of the pair's first host, with the addresses of the second.
fn on_pair(name: &str, work: impl FnOnce(&Journals, [IpAddr; 2]) + Send) {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new(name);
    let peers = pair.b.addresses();
    pair.a.namespace.run(|| work(&journals, peers)).unwrap();
}

#[test]
fn each_treatment_is_read_back_and_undone() {
    on_pair("each", |journals, peers| {
        let before = state();
        for (text, read_back) in [
            ("tso=off", "veth0: tso off"),
            ("uso=off", "veth0: uso off"),
            ("gso=off", "veth0: gso off"),
            ("gro=on", "veth0: gro on"),
            ("checksum_offload=off", "veth0: tx-checksum off, rx-checksum off"),
            ("mtu=1400", "veth0: mtu 1400"),
            ("route_mtu=1400", "route to PEER: mtu 1400"),
            ("route_advmss=536", "route to PEER: advmss 536"),
            ("route_quickack=on", "route to PEER: quickack 1"),
            (
                "sysctl:net.ipv4.tcp_rmem=4096 65536 1000000",
                "net.ipv4.tcp_rmem = 4096 65536 1000000",
            ),
            ("sysctl:net.ipv4.tcp_sack=0", "net.ipv4.tcp_sack = 0"),
            ("sysctl:net.ipv4.conf.veth0.forwarding=1", "net.ipv4.conf.veth0.forwarding = 1"),
            ("sysctl:net.ipv4.ip_forward=1", "net.ipv4.ip_forward = 1"),
        ] {
            for peer in peers {
                let applied = apply(journals, text, peer)
                    .unwrap_or_else(|error| panic!("{text}: {}", crate::words::chain(&error)));
                let expected = read_back.replace("PEER", &peer.to_string());
                assert_eq!(applied.read_back(), [expected], "{text}");
                assert_ne!(state(), before, "{text} changes nothing");
                assert_eq!(journals.count(), 1);
                applied.undo().unwrap();
                assert_eq!(state(), before, "{text} leaves something");
                assert_eq!(journals.count(), 0);
            }
        }
    });
}

#[test]
fn route_source_moves_new_connections_to_another_address() {
    on_pair("source", |journals, [v4, _]| {
        let mut netlink = Netlink::open().unwrap();
        let second: IpAddr = "198.18.0.77".parse().unwrap();
        netlink.add_address(Pair::LINK, Prefix::new(second, 24)).unwrap();
        let before = state();
        let source = || {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((v4, 9)).unwrap();
            socket.local_addr().unwrap().ip()
        };
        let first = source();
        let applied = apply(journals, "route_source=198.18.0.77", v4).unwrap();
        assert_eq!(applied.read_back(), ["route to 198.18.0.2: src 198.18.0.77"]);
        assert_eq!(source(), second);
        drop(applied);
        assert_eq!((source(), state()), (first, before));
        let error = apply(journals, "route_source=198.18.0.99", v4).unwrap_err();
        assert!(matches!(error, TreatError::Unfit { .. }), "{error}");
    });
}

#[test]
fn several_treatments_are_undone_in_reverse_order() {
    on_pair("several", |journals, [v4, _]| {
        let before = state();
        let text = "tso=off,gso=off,checksum_offload=off,mtu=1400,route_mtu=1300,route_advmss=500,\
                    sysctl:net.ipv4.tcp_sack=0";
        let applied = apply(journals, text, v4).unwrap();
        assert_eq!(applied.read_back().len(), 6, "{:?}", applied.read_back());
        assert!(
            applied.read_back().contains(&"route to 198.18.0.2: mtu 1300, advmss 500".to_owned())
        );
        drop(applied);
        assert_eq!(state(), before);
    });
}

#[test]
fn a_host_route_that_was_there_is_changed_and_put_back() {
    on_pair("edited", |journals, peers| {
        let mut netlink = Netlink::open().unwrap();
        for peer in peers {
            let mut route = Route::new(Prefix::host(peer));
            route.link = Some(netlink.link(Pair::LINK).unwrap().index);
            route.metrics.set(Metric::Mtu, Some(1450));
            route.metrics.set(Metric::InitialCongestionWindow, Some(4));
            netlink.add_route(&route).unwrap();
        }
        let before = state();
        for peer in peers {
            let applied = apply(journals, "route_mtu=1300,route_quickack=on", peer).unwrap();
            let in_force = netlink.route_to(peer).unwrap();
            assert_eq!(in_force.metrics.value(Metric::Mtu), Some(1300));
            assert_eq!(in_force.metrics.value(Metric::InitialCongestionWindow), Some(4));
            drop(applied);
            assert_eq!(state(), before);
        }
    });
}

#[test]
fn settings_that_already_have_the_value_are_left_alone() {
    on_pair("idle", |journals, [v4, _]| {
        let before = state();
        let applied =
            apply(journals, "mtu=1500,tso=on,route_quickack=off,sysctl:net.ipv4.tcp_sack=1", v4)
                .unwrap();
        assert_eq!(journals.count(), 0);
        assert_eq!(applied.read_back().len(), 4);
        assert_eq!(state(), before);
    });
}

#[test]
fn all_changes_are_applied_or_none() {
    on_pair("nothing", |journals, peers| {
        let before = state();
        for (text, reason) in [
            ("tso=off,route_mtu=1501", "takes packets of 1500 bytes at most"),
            ("mtu=1400,route_mtu=1450", "exclude"),
            (
                "sysctl:net.ipv4.tcp_sack=0,sysctl:net.ipv4.tcp_congestion_control=nosuch",
                "cannot set",
            ),
            (
                "sysctl:net.ipv4.tcp_sack=0,sysctl:net.ipv4.conf.nosuch.forwarding=1",
                "no such setting",
            ),
            ("sysctl:net.ipv4.tcp_sack=0,mtu=1000", "IPv6"),
            (
                "sysctl:net.ipv4.tcp_sack=0,rx_usecs=200",
                "rx_usecs of veth0: the driver does not have it",
            ),
            (
                "sysctl:net.ipv4.tcp_sack=0,adaptive_rx=off",
                "adaptive_rx of veth0: the driver does not have it",
            ),
        ] {
            let Ok(treatments) = text.parse::<Treatments>() else {
                assert_eq!(reason, "exclude", "{text}");
                continue;
            };
            let planned = plan(&treatments.host_changes(End::Client)).unwrap();
            let error = Applied::apply_in(&journals.directory(), &planned, peers[0]).unwrap_err();
            let words = crate::words::chain(&error);
            assert!(words.contains(reason), "{text}: {words}");
            assert_eq!(error.category(), Category::Missing);
            assert_eq!((state(), journals.count()), (before.clone(), 0), "{text}");
        }
        let error = apply(journals, "route_mtu=1000", peers[1]).unwrap_err();
        assert!(error.to_string().contains("1280"), "{error}");
    });
}

#[test]
fn loopback_has_offloads_and_neither_mtu_nor_routes() {
    let Some(namespace) = or_skip(Namespace::create("loopback")) else {
        return;
    };
    let journals = Journals::new("loopback");
    namespace
        .run(|| {
            let peer: IpAddr = [127, 0, 0, 1].into();
            let applied = apply(&journals, "tso=off", peer).unwrap();
            assert_eq!(applied.read_back(), ["lo: tso off"]);
            drop(applied);
            for text in ["mtu=1400", "route_mtu=1400"] {
                let error = apply(&journals, text, peer).unwrap_err();
                assert!(error.to_string().contains("this host itself"), "{error}");
            }
            let error = apply(&journals, "gro=off", peer).unwrap_err();
            assert!(error.to_string().contains("does nothing on lo"), "{error}");
            let error = apply(&journals, "checksum_offload=off", peer).unwrap_err();
            assert!(matches!(error, TreatError::NotTaken { .. }), "{error}");
        })
        .unwrap();
}

#[test]
fn settings_changed_by_others_since_are_left_alone() {
    on_pair("others", |journals, [v4, _]| {
        let before = state();
        let applied =
            apply(journals, "mtu=1400,tso=off,route_advmss=500,sysctl:net.ipv4.tcp_sack=0", v4)
                .unwrap();
        let mut netlink = Netlink::open().unwrap();
        netlink.change_link(Pair::LINK, &LinkChange::Mtu(1300)).unwrap();
        sysctl::write("net.ipv4.tcp_rmem", "1000 2000 3000").unwrap();
        let peer_route = |route: &Route| route.destination == Prefix::host(v4);
        let mut route = netlink.routes().unwrap().into_iter().find(peer_route).unwrap();
        route.metrics.set(Metric::AdvertisedMss, Some(600));
        netlink.replace_route(&route).unwrap();
        applied.undo().unwrap();
        assert_eq!(netlink.link(Pair::LINK).unwrap().mtu, 1300);
        let kept = netlink.routes().unwrap().into_iter().find(peer_route).unwrap();
        assert_eq!(kept.metrics.value(Metric::AdvertisedMss), Some(600));
        assert_eq!(sysctl::read("net.ipv4.tcp_rmem").unwrap(), "1000 2000 3000");
        // What nobody touched is as it was.
        assert_eq!(sysctl::read("net.ipv4.tcp_sack").unwrap(), "1");
        let tso = |state: &[String]| {
            state.iter().find(|line| line.contains("\"tx-tcp-segmentation\"")).cloned()
        };
        assert_eq!(tso(&state()), tso(&before));
    });
}

#[test]
fn a_setting_is_changed_by_one_process_at_a_time() {
    on_pair("busy", |journals, [v4, _]| {
        let first = apply(journals, "tso=off,sysctl:net.ipv4.tcp_sack=0", v4).unwrap();
        let error = apply(journals, "gso=off,sysctl:net.ipv4.tcp_sack=1", v4).unwrap_err();
        assert!(
            matches!(error, TreatError::Busy { pid, .. } if pid == std::process::id()),
            "{error}"
        );
        assert_eq!(error.category(), Category::Failed);
        let other = apply(journals, "gso=off", v4).unwrap();
        drop(first);
        drop(apply(journals, "sysctl:net.ipv4.tcp_sack=0", v4).unwrap());
        drop(other);
    });
}

#[test]
fn another_thread_undoes_a_treatment_in_its_namespace() {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new("thread");
    let peer = pair.b.ipv4.into();
    let applied = pair
        .a
        .namespace
        .run(|| apply(&journals, "sysctl:net.ipv4.tcp_sack=0", peer).unwrap())
        .unwrap();
    let sack = || pair.a.namespace.run(|| sysctl::read("net.ipv4.tcp_sack").unwrap()).unwrap();
    assert_eq!(sack(), "0");
    applied.undo().unwrap();
    assert_eq!(sack(), "1");
}

#[test]
fn forwarding_of_all_is_refused_where_devices_differ() {
    on_pair("forward", |journals, [v4, _]| {
        sysctl::write("net.ipv4.conf.veth0.forwarding", "1").unwrap();
        let before = state();
        let error = apply(journals, "sysctl:net.ipv4.ip_forward=1", v4).unwrap_err();
        assert!(error.to_string().contains("net.ipv4.conf.veth0.forwarding"), "{error}");
        assert_eq!(state(), before);
    });
}

/// Applies what the environment says, says so, and waits to be killed.
#[test]
#[ignore = "the tests that kill it run it"]
fn child_that_holds_treatments() {
    let text = std::env::var(HOLD).expect("the tests that kill it say what it is to hold");
    let directory = StateDirectory::at(std::env::var(HOLD_IN).unwrap());
    let mut treatments: Treatments = text.parse().unwrap();
    treatments.load(&qos::read).unwrap();
    let planned = plan(&treatments.host_changes(End::Client)).unwrap();
    let peer: IpAddr = [198, 18, 0, 2].into();
    let applied = Applied::apply_in(&directory, &planned, peer).unwrap();
    println!("\nREADY");
    std::thread::sleep(Duration::from_secs(120));
    drop(applied);
}

const HOLD: &str = "LINERATE_TEST_HOLD";
const HOLD_IN: &str = "LINERATE_TEST_HOLD_IN";

/// Starts a process in the namespace that applies `text`, and kills it when it has.
fn apply_and_kill(
    namespace: &Namespace,
    journals: &Journals,
    text: &str,
    watch: impl FnOnce(u32, u64),
) {
    let test = "treatment::tests::child_that_holds_treatments";
    let mut command: Command = namespace.command(std::env::current_exe().unwrap());
    let mut child = command
        .args(["--exact", test, "--nocapture", "--ignored"])
        .env(HOLD, text)
        .env(HOLD_IN, &journals.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "READY"), "the child did not apply {text}");
    let pid = child.id();
    watch(pid, start_time(pid).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn treatments_of_a_killed_process_are_undone_by_the_next() {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new("killed");
    let a = &pair.a.namespace;
    let before = a.run(state).unwrap();
    let text = "tso=off,mtu=1400,route_advmss=500,sysctl:net.ipv4.tcp_sack=0";
    apply_and_kill(a, &journals, text, |_, _| {
        // As long as it lives nobody takes it away.
        assert!(a.run(|| undo_leftovers_in(&journals.directory())).unwrap().is_empty());
    });
    let treated = a.run(state).unwrap();
    assert_ne!(treated, before);
    // From another namespace too.
    let lines = undo_leftovers_in(&journals.directory());
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("put back")), "{lines:?}");
    assert_eq!(a.run(state).unwrap(), before);
    assert!(undo_leftovers_in(&journals.directory()).is_empty());
}

#[test]
fn the_next_apply_first_undoes_the_treatments_of_a_killed_process() {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new("next");
    let a = &pair.a.namespace;
    let before = a.run(state).unwrap();
    apply_and_kill(a, &journals, "sysctl:net.ipv4.tcp_sack=0", |_, _| {});
    a.run(|| drop(apply(&journals, "sysctl:net.ipv4.tcp_sack=0", pair.b.ipv4.into()).unwrap()))
        .unwrap();
    assert_eq!(a.run(state).unwrap(), before);
}

#[test]
fn a_watch_undoes_it_as_soon_as_the_process_is_killed() {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new("watch");
    let a = &pair.a.namespace;
    let before = a.run(state).unwrap();
    let mut watch = None;
    apply_and_kill(a, &journals, "gso=off", |pid, started| {
        let directory = journals.directory();
        assert!(Process::open(pid, started).is_ok());
        watch = Some(std::thread::spawn(move || {
            wait_for_end(pid, started);
            undo_leftovers_in(&directory)
        }));
    });
    let lines = watch.unwrap().join().unwrap();
    assert!(lines[0].contains("gso of veth0: put back"), "{lines:?}");
    assert_eq!(a.run(state).unwrap(), before);
}

#[test]
fn leftovers_that_somebody_has_changed_or_that_are_gone_are_forgotten() {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new("forgotten");
    let a = &pair.a.namespace;
    apply_and_kill(a, &journals, "sysctl:net.ipv4.tcp_fin_timeout=11", |_, _| {});
    a.run(|| sysctl::write("net.ipv4.tcp_fin_timeout", "12").unwrap()).unwrap();
    let lines = undo_leftovers_in(&journals.directory());
    assert!(lines[0].contains("left alone"), "{lines:?}");
    let now = a.run(|| sysctl::read("net.ipv4.tcp_fin_timeout").unwrap()).unwrap();
    assert_eq!(now, "12");
    apply_and_kill(a, &journals, "sysctl:net.ipv4.tcp_fin_timeout=13", |_, _| {});
    drop(pair);
    // The kernel takes a namespace apart when it likes.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while journals.count() > 0 && std::time::Instant::now() < deadline {
        assert!(undo_leftovers_in(&journals.directory()).len() <= 1);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_journal_with_torn_and_strange_lines_is_undone_as_far_as_it_goes() {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new("torn");
    let a = &pair.a.namespace;
    let before = a.run(state).unwrap();
    apply_and_kill(a, &journals, "tso=off,sysctl:net.ipv4.tcp_sack=0", |_, _| {});
    let path = std::fs::read_dir(&journals.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    lines.insert(1, "{\"object\":\"moon\",\"phase\":\"full\"}");
    lines.insert(2, "\u{fffd}\0 not JSON at all");
    let torn = format!("{}\n{}", lines.join("\n"), &lines[3][..lines[3].len() / 2]);
    std::fs::write(&path, torn).unwrap();
    let done = undo_leftovers_in(&journals.directory());
    assert_eq!(done.len(), 2, "{done:?}");
    assert_eq!(a.run(state).unwrap(), before);
    // One without a header is of a process that had set nothing yet.
    std::fs::write(&path, "{\"pid\":1,\"sta").unwrap();
    assert!(undo_leftovers_in(&journals.directory()).is_empty());
}

#[test]
fn a_journal_of_an_earlier_boot_is_forgotten() {
    let journals = Journals::new("boot");
    let path = journals.0.join("treatments-1-0.jsonl");
    let value = sysctl::read("net.ipv4.tcp_sack").unwrap();
    let text = format!(
        "{{\"pid\":1,\"started\":1,\"boot_id\":\"00000000-0000-0000-0000-000000000000\",\"inode\":1,\"cookie\":1}}\n\
         {{\"object\":\"sysctl\",\"key\":\"net.ipv4.tcp_sack\",\"was\":\"7\",\"set\":\"{value}\"}}\n"
    );
    std::fs::write(&path, text).unwrap();
    assert!(undo_leftovers_in(&journals.directory()).is_empty());
    assert_eq!(sysctl::read("net.ipv4.tcp_sack").unwrap(), value);
    assert_eq!(journals.count(), 0);
}

#[test]
fn without_privilege_nothing_is_set_and_it_is_said_what_it_needs() {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new("privilege");
    let refused = pair.a.namespace.run(|| {
        // Only this thread loses it.
        give_up(Capability::NetAdmin).unwrap();
        let peer = pair.b.ipv4.into();
        ["tso=off", "mtu=1400", "route_mtu=1400"]
            .map(|text| apply(&journals, text, peer).unwrap_err())
    });
    for error in refused.unwrap() {
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        assert_eq!(error.category(), Category::Missing);
    }
}
