//! Files of HP-UX IPQoS: what their attributes mean, and what is said of wrong ones.

use std::net::IpAddr;

use linerate_core::units::BitRate;
use linerate_qos::policy::{AddressRange, Family, Names, NoNames, PolicyFile, Range, Share};

/// A host of both families, one of IPv4, and services.
struct House;

impl Names for House {
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, String> {
        match host {
            "gateway" => Ok(vec![address("198.18.0.1"), address("2001:2::1")]),
            "v4" => Ok(vec![address("198.18.0.4")]),
            _ => Err("nobody has that name".to_owned()),
        }
    }

    fn ports(&mut self, service: &str, protocols: &[&str]) -> Result<Vec<u16>, String> {
        match (service, protocols) {
            ("http", ["tcp"]) => Ok(vec![80]),
            ("domain", ["tcp" | "udp"]) => Ok(vec![53]),
            ("syslog", ["udp"]) => Ok(vec![514]),
            ("odd", ["tcp"]) => Ok(vec![1]),
            ("odd", ["udp"]) => Ok(vec![2]),
            _ => Err("no such service".to_owned()),
        }
    }

    fn uid(&mut self, _: &str) -> Result<u32, String> {
        panic!("IPQoS knows no users")
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn read(text: &str) -> PolicyFile {
    PolicyFile::from_hpux(text, &mut House).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A filter with these lines.
fn filter(lines: &str) -> String {
    format!("filter f\n{lines}\npolicy p\nuses f\nres 1m\nadapter lan0\nuses p\n")
}

/// A policy with these lines.
fn policy(lines: &str) -> String {
    format!("filter f\nprotocol tcp\npolicy p\nuses f\n{lines}\nadapter lan0\nuses p\n")
}

fn range<T>(first: T, last: T) -> Range<T> {
    Range { first, last }
}

#[test]
fn both_ways_are_one_filter_with_both() {
    let file = read(&filter("address 198.18.0.9\nport 20"));
    let conditions = &file.filters[0].conditions;
    assert_eq!(conditions.address, [AddressRange::single(address("198.18.0.9"))]);
    assert_eq!(conditions.port, [range(20, 20)]);
    assert_eq!(file.filters.len(), 1);
}

#[test]
fn one_end_of_a_range_stands_for_both() {
    let file = read(&filter("srcportlo 20\ndstportlow 0x10\ndstporthigh 020"));
    let conditions = &file.filters[0].conditions;
    assert_eq!(conditions.source_port, [range(20, 20)]);
    assert_eq!(conditions.destination_port, [range(16, 16)]);
}

#[test]
fn services_bring_their_protocols() {
    let protocols = |lines: &str| {
        let file = read(&filter(lines));
        let conditions = &file.filters[0].conditions;
        assert_eq!(conditions.destination_port, [range(53, 53)]);
        conditions.protocol.iter().map(|range| range.first).collect::<Vec<_>>()
    };
    assert_eq!(protocols("dstport domain"), [6, 17]);
    assert_eq!(protocols("dstport domain/udp"), [17]);
    assert_eq!(protocols("dstport domain\nxport tcp"), [6]);
    assert_eq!(protocols("srcport http\ndstport domain"), [6]);
}

#[test]
fn hosts_keep_the_addresses_of_the_filters_family() {
    let destinations = |lines: &str| {
        let file = read(&filter(lines));
        file.filters[0].conditions.destination.clone()
    };
    let [v4, v6] = ["198.18.0.1", "2001:2::1"].map(|one| AddressRange::single(address(one)));
    assert_eq!(destinations("dstaddr gateway"), [v4, v6]);
    assert_eq!(destinations("dstaddr gateway\nnet 0x86dd"), [v6]);
    assert_eq!(destinations("dstaddr gateway\nsrcaddr 198.18.0.2"), [v4]);
    assert_eq!(destinations("dstaddr gateway\nsrcaddrlo 2001:2::2\nsrcaddrhi 2001:2::3"), [v6]);
    let file = read(&filter("net 2048"));
    assert_eq!(file.filters[0].conditions.family, [Family::V4]);
}

#[test]
fn a_filter_of_two_adapters_is_there_twice() {
    let file = read(
        "filter f\nport 80\nfilter g\nport 81\npolicy p\nuses f\nres 1m\npolicy q\nuses f, g\nres \
         2m\n\
         adapter lan0\nuses p\nadapter lan1\nuses q\n",
    );
    let filters: Vec<_> = file.filters.iter().map(|one| (one.name.as_str(), one.policy)).collect();
    assert_eq!(filters, [("f", 0), ("f-2", 1), ("g", 1)]);
}

#[test]
fn what_has_no_reservation_was_dropped_unless_it_is_only_marked() {
    let read_policy = |lines: &str| read(&policy(lines)).policies[0].clone();
    assert!(read_policy("res 0").drop);
    assert!(read_policy("res 0%").drop);
    assert!(read_policy("").drop);
    let marked = read_policy("dscp 20\nvpr 3");
    assert!(!marked.drop);
    assert_eq!((marked.vlan_priority, marked.has_class()), (Some(3), false));
    let shared = read_policy("res 5000\nmax 64K");
    assert_eq!(shared.reserve, Some(Share::Rate(BitRate(5000))));
    assert_eq!(shared.limit, Some(Share::Rate(BitRate(64_000))));
}

/// A slip each, and what is said of it.
#[test]
fn what_is_wrong_is_said_with_its_place() {
    let mut report = String::new();
    let filters = FILTERS.iter().map(|lines| filter(lines));
    let policies = POLICIES.iter().map(|lines| policy(lines));
    let files = FILES.iter().map(|text| (*text).to_owned());
    for text in files.chain(filters).chain(policies) {
        let error = match PolicyFile::from_hpux(&text, &mut House) {
            Err(error) => error,
            Ok(file) => panic!("{file:?} was read from\n{text}"),
        };
        let slip = text.lines().nth(error.line - 1).unwrap_or("");
        report.push_str(&format!("{}\n    {error}\n", slip.trim()));
    }
    insta::assert_snapshot!(report);
}

const FILES: &[&str] = &[
    "",
    "# nothing\n",
    "port 80\n",
    "filter\nport 80\n",
    "filter f g\nport 80\n",
    "filter 1f\nport 80\n",
    "filter a-b\nport 80\n",
    "Filter f\nport 80\n",
    "filter f\nport 80\nfilter f\nport 81\n",
    "filter f\nport 80\nadapter lan0\nuses p\npolicy p\nuses f\nres 1m\n",
    "filter f\nport 80\npolicy p\nuses g\nres 1m\nadapter lan0\nuses p\n",
    "filter f { port 80 }\nfilter g { port 81 }\npolicy p { uses f\nres 1m }\nadapter lan0 \
     { uses p }\n",
    "filter f { port 80 }\npolicy p { uses f\nres 1m }\npolicy q { uses f\nres 1m }\nadapter lan0 \
     { uses p q }\n",
    "filter f { port 80 }\npolicy p { uses f\nres 1m }\npolicy q { uses f\nres 1m }\nadapter lan0 \
     { uses p }\n",
    "filter f { port 80 }\npolicy p { uses f\nres 1m }\npolicy q\nadapter lan0 { uses p }\n",
    "filter f { port 80 }\npolicy p { uses f, f\nres 1m }\n",
    "filter f { port 80 }\npolicy p { uses f\nres 1m }\nadapter lan0\n",
    "filter f { port 80 }\npolicy p { uses f\nres 1m\n)\nadapter lan0 { uses p }\n",
];

const FILTERS: &[&str] = &[
    "",
    "priority 5",
    "port",
    "port 80 81",
    "port 80\nport 81",
    "prot tcp",
    "srcport 80\nsrcportlo 80",
    "srcportlo http",
    "srcportlo 90\nsrcporthi 80",
    "dstport 80/6",
    "dstport http/6",
    "dstport htpt",
    "dstport odd",
    "srcport http\ndstport syslog",
    "dstport http\nprotocol udp",
    "dstport 65536",
    "srcaddr 198.18.0.0/15",
    "srcaddrlo gateway",
    "srcaddrlo 198.18.0.9\nsrcaddrhi 198.18.0.1",
    "srcaddr 198.18.0.1\ndstaddr 2001:2::1",
    "dstaddr v4\nnet 0x86dd",
    "net 0x86dd\ndstaddr 198.18.0.1",
    "net 0x806\nprotocol tcp",
    "net 5",
    "protocol icmp\ndstport 80",
    "protocol 0400",
    "dscp 64",
    "dscplo 9\ndscphi 8",
    "dstphysaddr 00:00:00:12:34",
    "port 80\npriority 0",
];

const POLICIES: &[&str] = &[
    "max 30%",
    "res 30%\nmax 20%",
    "res 0\ndscp 20",
    "res 101%",
    "res 30 %",
    "res 30g",
    "res 1km",
    "res 1m\nmax 0",
    "res 1m\ndscp 64",
    "res 1m\nvpr 8",
    "rse 1m",
];

#[test]
fn numbers_need_no_names() {
    assert!(PolicyFile::from_hpux(&filter("port 80"), &mut NoNames).is_ok());
    assert!(PolicyFile::from_hpux(&filter("port http"), &mut NoNames).is_err());
}

#[test]
fn several_attributes_can_stand_on_one_line() {
    let file = read(
        "filter f1 { protocol udp dstport 5004 }\npolicy p { uses f1 dscp 20 }\nadapter lan0 uses \
         p\n"
        .replace("lan0 uses", "lan0\nuses")
        .as_str(),
    );
    assert_eq!(file.filters[0].conditions.destination_port, [range(5004, 5004)]);
    assert_eq!(file.policies[0].dscp.map(|dscp| dscp.octet() >> 2), Some(20));
    assert!(!file.policies[0].drop);
}

#[test]
fn an_unknown_service_is_said_with_all_protocols_that_were_asked() {
    struct Nobody;
    impl Names for Nobody {
        fn addresses(&mut self, _: &str) -> Result<Vec<IpAddr>, String> {
            Err("nobody".to_owned())
        }

        fn ports(&mut self, _: &str, protocols: &[&str]) -> Result<Vec<u16>, String> {
            Err(format!("none with {}", protocols.join(", ")))
        }

        fn uid(&mut self, _: &str) -> Result<u32, String> {
            Err("nobody".to_owned())
        }
    }
    let error = PolicyFile::from_hpux(&filter("dstport games"), &mut Nobody).unwrap_err();
    assert!(error.to_string().contains("none with tcp, udp"), "{error}");
}
