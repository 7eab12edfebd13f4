//! Many reloads under traffic: every packet meets one of the policies, no count is lost, nothing is
//! left behind.

use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_engine::qos::{self, QosError, QosOptions};
use linerate_sys::netns::Pair;

use crate::support::{Bench, bench, udp};

/// Each number whose policy is the last here is a multiple of four: it has no other policies.
const RELOADS: usize = 200;
const MIN_RELOADS: usize = 100;
const ENOUGH: Duration = Duration::from_secs(10);

/// A policy that takes all datagrams to a port, with other filters and classes that change from one
/// to the next.
fn policy(number: usize) -> String {
    let code = ["EF", "AF11", "CS3"][number % 3];
    let reserve = 5 + number % 7;
    let mut text = format!(
        "[filter.all]\nprotocol = \"udp\"\ndestination_port = 7001\npolicy = \"all\"\n\
         [policy.all]\ndscp = \"{code}\"\nreserve = \"{reserve}mbit\"\n"
    );
    let mut policies = vec!["all".to_owned()];
    for other in 0..number % 4 {
        let name = format!("p{}", (number / 3 + other) % 9);
        text += &format!(
            "[filter.{name}]\nprotocol = \"tcp\"\ndestination_port = {}\npolicy = \"{name}\"\n\
             [policy.{name}]\nlimit = \"{}mbit\"\n",
            8000 + other,
            10 + other
        );
        policies.push(name);
    }
    let policies: Vec<_> = policies.iter().map(|name| format!("\"{name}\"")).collect();
    text + &format!("[adapter.veth0]\nrate = \"10gbit\"\npolicies = [{}]\n", policies.join(", "))
}

/// Classes of host a's link.
fn classes(bench: &Bench) -> usize {
    let classes = bench.a().namespace.configure(|netlink| {
        let index = netlink.link(Pair::LINK)?.index;
        netlink.htb_classes(index, 0x4c51)
    });
    classes.unwrap().len()
}

/// Names of the interface's pins.
fn pins(bench: &Bench) -> Vec<String> {
    let entries = fs::read_dir(bench.pins()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The same law a thousand times over is for who has the time: `LINERATE_RELOADS=1000`.
#[test]
fn reloads_lose_no_packet_and_no_count() {
    let Some(bench) = bench() else { return };
    let asked = std::env::var("LINERATE_RELOADS").ok();
    let asked = asked.map(|number| number.parse().expect("LINERATE_RELOADS is a number"));
    bench.apply(&policy(0));
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let socket = udp(bench.a(), bench.a().ipv4.into());
            while !stop.load(Ordering::Relaxed) {
                socket.send_to(&[1; 200], (bench.b().ipv4, 7001)).unwrap();
                if sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(32) {
                    thread::yield_now();
                }
            }
        });
        let begun = Instant::now();
        let reloads = bench.a().namespace.run(|| {
            let all = asked.unwrap_or(RELOADS);
            for number in 1..=all {
                qos::apply(&policy(number), &QosOptions::default())?;
                // However busy the machine is, packets go between any two of them.
                let before = sent.load(Ordering::Relaxed);
                while sent.load(Ordering::Relaxed) < before + 10 && !sender.is_finished() {
                    thread::yield_now();
                }
                // A machine that does much else need not do all of them.
                let is_enough = asked.is_none() && number >= MIN_RELOADS;
                if is_enough && number.is_multiple_of(4) && begun.elapsed() > ENOUGH {
                    return Ok(number);
                }
            }
            Ok::<_, QosError>(all)
        });
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        let reloads = reloads.unwrap().unwrap();
        writeln!(std::io::stderr(), "{reloads} reloads, {sent:?} packets").unwrap();
    });
    let sent = sent.into_inner();
    assert_eq!(bench.counted("all"), (sent, sent * 242));
    // The last has no other policies: the root's class, its own and the default.
    assert_eq!(classes(&bench), 3);
    let pins = pins(&bench);
    let of = |part: &str| pins.iter().filter(|pin| pin.contains(part)).count();
    assert_eq!((of("link"), of("program"), of("counters")), (1, 1, 1), "{pins:?}");
    assert!(pins.len() <= 5, "{pins:?}");
}

#[test]
fn a_larger_map_of_counters_takes_the_counts_over() {
    let Some(bench) = bench() else { return };
    let many = |number: usize| {
        let filters = (0..number).map(|filter| {
            let port = 9000 + filter;
            format!(
                "[filter.f{filter}]\nprotocol = \"udp\"\ndestination_port = {port}\npolicy = \
                \"one\"\n"
            )
        });
        let filters: String = filters.collect();
        format!("{filters}[policy.one]\ndscp = \"EF\"\n[adapter.veth0]\npolicies = [\"one\"]\n")
    };
    let send = |packets: usize| {
        let socket = udp(bench.a(), bench.a().ipv4.into());
        for _ in 0..packets {
            socket.send_to(&[1; 50], (bench.b().ipv4, 9000)).unwrap();
        }
    };
    bench.apply(&many(1));
    send(5);
    bench.apply(&many(200));
    assert_eq!(bench.counted("f0"), (5, 5 * 92));
    send(3);
    bench.apply(&many(1000));
    send(1);
    bench.apply(&many(2));
    assert_eq!(bench.counted("f0"), (9, 9 * 92));
}

#[test]
fn a_new_filter_does_not_inherit_the_counts_of_one_that_is_gone() {
    let Some(bench) = bench() else { return };
    let named = |name: &str| {
        format!(
            "[filter.{name}]\nprotocol = \"udp\"\ndestination_port = 9000\npolicy = \"one\"\n\
             [policy.one]\ndscp = \"EF\"\n[adapter.veth0]\npolicies = [\"one\"]\n"
        )
    };
    let socket = udp(bench.a(), bench.a().ipv4.into());
    let send = || assert_eq!(socket.send_to(&[1; 50], (bench.b().ipv4, 9000)).unwrap(), 50);
    for name in ["a", "b", "c", "d"] {
        bench.apply(&named(name));
        assert_eq!(bench.counted(name).0, 0, "{name}");
        send();
        assert_eq!(bench.counted(name).0, 1, "{name}");
    }
}

#[test]
fn counts_of_packets_that_come_in_stay_with_their_filter() {
    let Some(bench) = bench() else { return };
    let apply = |name: &str, ingress: bool| {
        bench.apply(&format!(
            "[filter.{name}]\nprotocol = \"udp\"\ndestination_port = 9000\npolicy = \"one\"\n\
             [policy.one]\n[adapter.veth0]\npolicies = [\"one\"]\ningress = {ingress}\n"
        ))
    };
    let counted = |document: &linerate_qos::document::QosDocument| {
        let filter = &document.adapters[0].policies[0].filters[0];
        filter.ingress.map(|counters| counters.packets)
    };
    apply("a", true);
    let socket = udp(bench.b(), bench.b().ipv4.into());
    for _ in 0..3 {
        socket.send_to(&[1; 50], (bench.a().ipv4, 9000)).unwrap();
    }
    crate::support::eventually("they have come in", || counted(&bench.status()) == Some(3));
    apply("b", false);
    // Gets the place in which the first counted.
    assert_eq!(counted(&apply("c", false)).unwrap_or(0), 0);
    assert_eq!(counted(&apply("c", true)), Some(0));
}
