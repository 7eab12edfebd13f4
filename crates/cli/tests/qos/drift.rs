//! What is in force is compared with what was applied: whatever was changed behind linerate's back,
//! so that packets leave unmarked or wait elsewhere, `status` tells.

use linerate_qos::classes::MAJOR;
use linerate_sys::bpf::{Attach, LoadRequest, Program, ProgramKind, TcxLink};
use linerate_sys::netlink::{Netlink, VethEnd};
use linerate_sys::netns::Pair;
use serde_json::{Value, json};

use crate::lifecycle::POLICY;
use crate::support::{Bench, bench, json, run, udp};

/// The fault that `status` tells with exit status 1.
fn fault(bench: &Bench) -> String {
    let (code, status, stderr) = json(bench.a(), &["status"], None);
    let adapter = &status["adapters"][0];
    assert_eq!((code, &adapter["state"]), (1, &json!("failed")), "{status} {stderr}");
    let fault = adapter["fault"].as_str().unwrap().to_owned();
    assert!(fault.contains("apply it again"), "{fault}");
    fault
}

fn is_right(bench: &Bench) {
    let (code, status, stderr) = json(bench.a(), &["status"], None);
    assert_eq!(code, 0, "{status} {stderr}");
}

fn index(netlink: &mut Netlink) -> u32 {
    netlink.link(Pair::LINK).unwrap().index
}

#[test]
fn a_class_that_somebody_changed_is_told() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    is_right(&bench);
    let change = |netlink: &mut Netlink| {
        let index = index(netlink);
        let classes = netlink.htb_classes(index, MAJOR)?;
        let (mut class, _) = classes[1];
        class.rate /= 2;
        netlink.put_htb_class(index, &class, false)
    };
    bench.a().namespace.configure(change).unwrap();
    assert!(fault(&bench).contains("changed its class 4c51:"));
    bench.apply(POLICY);
    is_right(&bench);
    let replace = |netlink: &mut Netlink| {
        let index = index(netlink);
        let class = netlink.htb_classes(index, MAJOR)?[1].0.id;
        netlink.put_qdisc(index, Some(class), ("pfifo", 0, &9_u32.to_ne_bytes()))
    };
    bench.a().namespace.configure(replace).unwrap();
    assert!(fault(&bench).contains("changed the queue of its class 4c51:"));
    bench.apply(POLICY);
    is_right(&bench);
}

#[test]
fn a_program_that_ends_the_chain_before_ours_is_told_and_put_behind_by_force() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    let place = Attach::TcxEgress;
    // TCX_PASS: nobody behind it is asked.
    let ends = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let link_index = bench.a().namespace.configure(|netlink| Ok(index(netlink))).unwrap();
    let attach = || {
        let program = Program::load(&LoadRequest {
            instructions: &ends,
            name: "theirs",
            kind: ProgramKind::SchedCls { attach: Some(place) },
            license: "GPL",
        })
        .unwrap();
        TcxLink::attach(&program, link_index, place).unwrap()
    };
    let _theirs = bench.a().namespace.run(attach).unwrap();
    assert!(fault(&bench).contains("stands before its program"));
    let file = bench.file(POLICY);
    assert_eq!(run(bench.a(), &["apply"], Some(&file)).status.code(), Some(3));
    let forced = run(bench.a(), &["apply", "--force"], Some(&file));
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
    is_right(&bench);
    let socket = udp(bench.a(), bench.a().ipv4.into());
    socket.send_to(&[0; 9], (bench.b().ipv4, 7001)).unwrap();
    assert_eq!(bench.counted("voice").0, 1);
}

fn make_incoming(bench: &Bench) {
    let end = |name| VethEnd { name, namespace: None, mtu: None };
    let make = |netlink: &mut Netlink| netlink.create_veth(&end("lan0"), &end("lan1"));
    bench.a().namespace.configure(make).unwrap();
}

#[test]
fn an_interface_that_was_made_anew_is_told() {
    let Some(bench) = bench() else { return };
    make_incoming(&bench);
    let policy = POLICY.replace("destination_port = 7001", "incoming = \"lan0\"");
    bench.apply(&policy);
    is_right(&bench);
    let delete = |netlink: &mut Netlink| netlink.delete_link("lan0");
    bench.a().namespace.configure(delete).unwrap();
    // There are no packets of one that is gone.
    is_right(&bench);
    make_incoming(&bench);
    assert!(fault(&bench).contains("interface lan0 was made anew"));
    bench.apply(&policy);
    is_right(&bench);
}

fn disciplines(bench: &Bench) -> Vec<(String, (u16, u16), u32)> {
    let qdiscs = bench.a().namespace.configure(|netlink| netlink.qdiscs(Pair::LINK));
    let key = |one: linerate_sys::netlink::Qdisc| (one.kind, one.handle, one.parent);
    let mut all: Vec<_> = qdiscs.unwrap().into_iter().map(key).collect();
    all.sort();
    all
}

#[test]
fn removing_restores_what_force_replaced() {
    let Some(bench) = bench() else { return };
    let file = bench.file(POLICY);
    let simple = |netlink: &mut Netlink| {
        let index = index(netlink);
        netlink.put_qdisc(index, None, ("bfifo", 0x11, &77_000_u32.to_ne_bytes()))
    };
    let nested = |netlink: &mut Netlink| {
        let index = index(netlink);
        netlink.replace_root_by_htb(index, 7, 0x10)?;
        let class = linerate_sys::netlink::HtbClass {
            id: 0x7_0010,
            parent: None,
            rate: 1_000_000,
            ceil: 2_000_000,
            burst: 4_000,
            ceil_burst: 8_000,
            quantum: 4_000,
            priority: 2,
        };
        netlink.put_htb_class(index, &class, true)?;
        netlink.put_qdisc(index, Some(class.id), ("bfifo", 0x12, &66_000_u32.to_ne_bytes()))
    };
    let classes = |bench: &Bench| {
        let read = |netlink: &mut Netlink| {
            let index = index(netlink);
            netlink.htb_classes(index, 7)
        };
        let classes = bench.a().namespace.configure(read).unwrap();
        classes.into_iter().map(|(class, _)| class).collect::<Vec<_>>()
    };
    for (number, end) in ["remove", "disable", "passthrough"].into_iter().enumerate() {
        match number {
            0 => bench.a().namespace.configure(simple).unwrap(),
            1 => bench.a().namespace.configure(nested).unwrap(),
            _ => {}
        }
        let before = (disciplines(&bench), classes(&bench));
        let forced = run(bench.a(), &["apply", "--force"], Some(&file));
        assert_eq!(forced.status.code(), Some(0), "{forced:?}");
        assert_ne!(disciplines(&bench), before.0);
        let (code, ended, stderr) = json(bench.a(), &[end], None);
        assert_eq!(code, 0, "{stderr}");
        assert!(ended["notes"].to_string().contains("is there again"), "{ended}");
        assert_eq!((disciplines(&bench), classes(&bench)), before, "{end}");
    }
}

#[test]
fn each_class_has_a_queue_that_is_short() {
    let Some(bench) = bench() else { return };
    let applied = serde_json::to_value(bench.apply(POLICY)).unwrap();
    let adapter = &applied["adapters"][0];
    let queue = &adapter["default_class"]["queue"];
    assert!(["fq_codel", "bfifo"].contains(&queue.as_str().unwrap()), "{applied}");
    assert_eq!(&adapter["policies"][0]["class"]["queue"], queue);
    let is_said = applied["notes"].to_string().contains("no fq_codel");
    assert_eq!(is_said, queue == "bfifo", "{applied}");
    let qdiscs = bench.a().namespace.configure(|netlink| netlink.qdiscs(Pair::LINK));
    for leaf in qdiscs.unwrap().iter().filter(|one| one.kind == "bfifo") {
        let limit = u32::from_ne_bytes(leaf.options[..4].try_into().unwrap());
        // A tenth of a second of the link at most.
        assert!((10_000..=1_250_000).contains(&limit), "{limit}");
    }
}

#[test]
fn an_adapter_that_a_new_file_leaves_out_is_said() {
    let Some(bench) = bench() else { return };
    let both = format!("{POLICY}\n[adapter.lo]\nrate = \"1gbit\"\npolicies = [\"voice\"]\n");
    bench.apply(&both);
    let notes = |document: &Value| document["notes"].to_string();
    let applied = serde_json::to_value(bench.apply(POLICY)).unwrap();
    assert!(notes(&applied).contains("lo is not in this file"), "{applied}");
    let applied = serde_json::to_value(bench.apply(&both)).unwrap();
    assert!(!notes(&applied).contains("is not in this file"), "{applied}");
}

#[test]
fn a_class_that_gets_much_more_is_made_anew() {
    let Some(bench) = bench() else { return };
    let class = |reserve: &str| {
        let text = POLICY.replace("10mbit", reserve);
        let applied = serde_json::to_value(bench.apply(&text)).unwrap();
        is_right(&bench);
        let class = &applied["adapters"][0]["policies"][0]["class"];
        (class["id"].as_str().unwrap().to_owned(), class["packets"].as_u64().unwrap())
    };
    let (small, _) = class("8kbit");
    // Most of it waits, or is a debt of the class.
    let socket = udp(bench.a(), bench.a().ipv4.into());
    for _ in 0..5 {
        socket.send_to(&[0; 1400], (bench.b().ipv4, 7001)).unwrap();
    }
    let (large, sent) = class("70%");
    assert_ne!(small, large);
    assert_eq!(sent, 0);
    assert_eq!(class("60%").0, large);
    assert_eq!(class("65%").0, large);
    let classes = |netlink: &mut Netlink| {
        let index = index(netlink);
        netlink.htb_classes(index, MAJOR)
    };
    assert_eq!(bench.a().namespace.configure(classes).unwrap().len(), 4);
}
