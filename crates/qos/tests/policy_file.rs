//! Policy files in TOML: what their keys mean, and what is said of wrong ones.

use std::net::IpAddr;

use linerate_core::units::{BitRate, ByteCount, Dscp};
use linerate_qos::policy::{
    AddressRange, Family, FlagTest, Fragments, MeterKind, Names, NoNames, PolicyFile, Range, Share,
};

/// A house with two hosts, two services and a user.
struct House;

impl Names for House {
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, String> {
        match host {
            "gateway.example" => {
                Ok(["2001:2::1", "198.18.0.1", "198.18.0.1"].map(address).to_vec())
            }
            "v6.example" => Ok(vec![address("2001:2::6")]),
            "crowd.example" => Ok((0..200_u32).map(|number| IpAddr::V4(number.into())).collect()),
            _ => Err("nobody has that name".to_owned()),
        }
    }

    fn ports(&mut self, service: &str, protocols: &[&str]) -> Result<Vec<u16>, String> {
        match service {
            "https" => Ok(vec![443]),
            "shell" if protocols == ["tcp"] => Ok(vec![514]),
            "shell" => Ok(vec![514, 514, 1514]),
            _ => Err("no such service".to_owned()),
        }
    }

    fn uid(&mut self, user: &str) -> Result<u32, String> {
        match user {
            "alice" => Ok(1001),
            _ => Err("no such user".to_owned()),
        }
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn read(text: &str) -> PolicyFile {
    PolicyFile::from_toml(text, &mut House).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A filter with these lines.
fn filter(lines: &str) -> String {
    format!("[filter.f]\npolicy = \"p\"\n{lines}\n[policy.p]\n[adapter.eth0]\npolicies = [\"p\"]\n")
}

/// A policy with these lines.
fn policy(lines: &str) -> String {
    format!("[filter.f]\npolicy = \"p\"\n[adapter.eth0]\npolicies = [\"p\"]\n[policy.p]\n{lines}\n")
}

fn range<T>(first: T, last: T) -> Range<T> {
    Range { first, last }
}

#[test]
fn conditions_are_read_in_every_way_to_write_them() {
    let file = read(&filter(
        r#"
        source = ["198.18.0.0/15", "198.18.0.1-198.18.0.9", "2001:2::/48"]
        destination = "gateway.example"
        source_port = ["1000-2000", "0x10"]
        destination_port = [80, "https", "shell"]
        protocol = ["tcp", 17, "132-136"]
        dscp = ["EF", 8, "AF11-AF13", "VOICE-ADMIT", "CS1-VOICE-ADMIT"]
        ecn = "ce"
        vlan = 100
        length = "0-200"
        uid = ["alice", "1000-1999", 0]
        cgroup = "/system.slice/ssh.service"
        incoming = ["eth1", "wlan0"]
        "#,
    ));
    let conditions = &file.filters[0].conditions;
    assert_eq!(conditions.source[0], AddressRange::prefix(address("198.19.1.1"), 15));
    assert_eq!(conditions.source[1].last, address("198.18.0.9"));
    let gateway = ["198.18.0.1", "2001:2::1"].map(|one| AddressRange::single(address(one)));
    assert_eq!(conditions.destination, gateway);
    assert_eq!(conditions.source_port, [range(1000, 2000), range(16, 16)]);
    let ports = [80, 443, 514, 1514].map(|port| range(port, port));
    assert_eq!(conditions.destination_port, ports);
    assert_eq!(conditions.protocol, [range(6, 6), range(17, 17), range(132, 136)]);
    let dscps = [range(46, 46), range(8, 8), range(10, 14), range(44, 44), range(8, 44)];
    assert_eq!(conditions.dscp, dscps);
    assert_eq!(conditions.ecn, [range(3, 3)]);
    assert_eq!(conditions.uid, [range(1001, 1001), range(1000, 1999), range(0, 0)]);
    assert_eq!(conditions.incoming.len(), 2);
    assert_eq!(file.filters[0].priority, 1000);
}

/// A policy around two others; the last lines are of the one around.
fn office(adapter: &str, lines: &str) -> String {
    format!(
        r#"
[filter.voice]
protocol = "udp"
policy = "voice"
[filter.web]
protocol = "tcp"
policy = "web"
[policy.voice]
parent = "office"
reserve = "10%"
[policy.web]
parent = "office"
[adapter.eth0]
policies = [{adapter}]
[policy.office]
{lines}
"#
    )
}

#[test]
fn policies_are_inside_others() {
    let all = r#""office", "voice", "web""#;
    let file = read(&office(all, "limit = \"30mbit\""));
    assert_eq!(file.policies[0].parent, Some(2));
    assert!(file.holds(2) && file.policies[1].has_class());
    let again = read(&file.to_toml());
    assert_eq!(again.policies[1].parent, Some(2));
    let refused = |text: &str| {
        let error = PolicyFile::from_toml(text, &mut NoNames).unwrap_err();
        error.to_string()
    };
    let missing =
        office(r#""voice", "web""#, "limit = \"30mbit\"\n[filter.x]\npolicy = \"office\"");
    let taken = office(all, "limit = \"30mbit\"\n[filter.x]\npolicy = \"office\"");
    let deep: String = (0..5)
        .map(|n| format!("[policy.p{n}]\nlimit = \"9mbit\"\nparent = \"p{}\"\n", n + 1))
        .collect();
    let deep =
        format!("reserve = \"1mbit\"\nparent = \"p0\"\n{deep}[policy.p5]\nlimit = \"9mbit\"");
    insta::assert_snapshot!(
        [
            refused(&office(all, "priority = 1")),
            refused(&office(all, "dscp = 8\nreserve = \"1mbit\"")),
            refused(&office(all, "reserve = \"1mbit\"\nparent = \"web\"")),
            refused(&office(all, &deep)),
            refused(&office(all, "")),
            refused(&missing),
            refused(&office(r#""voice", "web""#, "limit = \"30mbit\"")),
            refused(&taken),
            refused(&office(all, "limit = \"30mbit\"").replace("reserve = \"10%\"", "drop = true")),
        ]
        .join("\n"),
        @r#"
    line 16, column 12: `priority` of policy `office`, which has others inside: give it to those inside: they have the packets
    line 16, column 8: `dscp` of policy `office`, which has others inside: give it to those inside: they have the packets
    line 12, column 10: policy `web` is inside itself: leave `parent` out of one of them
    line 9, column 10: policy `voice` is inside more than 4 others: HTB has no more levels of classes
    line 15, column 9: policy `office` has others inside, and neither `reserve` nor `limit`: give it one, or leave it out
    line 18, column 10: policy `office` has others inside, and no packets of its own: name one of those inside, or one more for the rest
    line 14, column 12: policy `voice` is inside `office`, which is not there: name it, too
    line 18, column 10: policy `office` has others inside, and no packets of its own: name one of those inside, or one more for the rest
    line 10, column 8: `drop` with `parent`: what is dropped waits in no class
    "#
    );
}

#[test]
fn a_mark_has_a_mask() {
    let text = filter(r#"mark = ["0x10/0xf0", "!0x20/0xf0", 0x30]"#);
    assert!(PolicyFile::from_toml(&text, &mut NoNames).is_err());
    let file = read(&filter(r#"mark = ["0x10/0xf0", 48]"#));
    let mark = &file.filters[0].conditions.mark;
    assert_eq!((mark[0].mask, mark[0].range), (0xf0, range(0x10, 0x10)));
    assert_eq!((mark[1].mask, mark[1].range), (u32::MAX, range(48, 48)));
    let file = read(&filter(r#"mark = "!0x10/0xf0""#));
    let mark = &file.filters[0].conditions.mark;
    assert_eq!(mark[0].range, range(0, 0xf));
    assert_eq!((mark[1].mask, mark[1].range), (0xf0, range(0x11, 0xf0)));
    let again = read(&file.to_toml());
    assert_eq!(again.filters[0].conditions, file.filters[0].conditions);
}

#[test]
fn what_stands_behind_a_mark_of_exclamation_is_taken_away() {
    let text = filter(
        r#"
        family = ["ipv4", "other"]
        source = ["@office", "!198.18.0.9"]
        destination = "!@office"
        source_port = "!80"
        destination_port = ["1000-2000", "!1500-1600", "!1000"]
        protocol = ["tcp", "udp"]
        uid = "!alice"
        mark = ["0x10-0x1f", "!0x18"]
        source_mac = ["02:00:5e:00:00:00/24", "!02:00:5e:10:00:01"]
        "#,
    );
    let file =
        read(&format!("[set.office]\naddresses = [\"198.18.0.0/28\", \"2001:2::/48\"]\n{text}"));
    let conditions = &file.filters[0].conditions;
    assert_eq!(conditions.family, [Family::V4, Family::Other]);
    let between = |first, last| AddressRange { first: address(first), last: address(last) };
    let source = [
        between("198.18.0.0", "198.18.0.8"),
        between("198.18.0.10", "198.18.0.15"),
        AddressRange::prefix(address("2001:2::"), 48),
    ];
    assert_eq!(conditions.source, source);
    assert_eq!(conditions.destination[0].last, address("198.17.255.255"));
    assert_eq!(conditions.destination[1].first, address("198.18.0.16"));
    assert_eq!(conditions.destination[2].first, address("::"));
    assert_eq!(conditions.destination.len(), 4);
    assert_eq!(conditions.source_port, [range(0, 79), range(81, 65_535)]);
    assert_eq!(conditions.destination_port, [range(1001, 1499), range(1601, 2000)]);
    assert_eq!(conditions.uid, [range(0, 1000), range(1002, u32::MAX - 1)]);
    let marks: Vec<_> = conditions.mark.iter().map(|mark| mark.range).collect();
    assert_eq!(marks, [range(0x10, 0x17), range(0x19, 0x1f)]);
    let macs: Vec<_> = (conditions.source_mac.iter())
        .map(|range| format!("{}-{}", range.first, range.last))
        .collect();
    let left = ["02:00:5e:00:00:00-02:00:5e:10:00:00", "02:00:5e:10:00:02-02:00:5e:ff:ff:ff"];
    assert_eq!(macs, left);
    let written = file.to_toml();
    assert_eq!(read(&written).filters[0].conditions, *conditions, "{written}");
}

#[test]
fn words_mean_what_their_protocol_says() {
    let types = |lines: &str| {
        let file = read(&filter(lines));
        file.filters[0].conditions.icmp_type[0].first
    };
    assert_eq!(types("protocol = \"icmp\"\nicmp_type = \"echo-request\""), 8);
    assert_eq!(types("protocol = \"icmpv6\"\nicmp_type = \"echo-request\""), 128);
    assert_eq!(types("source = \"2001:2::1\"\nicmp_type = \"echo-request\""), 128);
    assert_eq!(types("family = \"ipv4\"\nicmp_type = [\"Echo-Request\"]"), 8);
    assert_eq!(types("icmp_type = 8"), 8);
    let shell = read(&filter("protocol = \"tcp\"\ndestination_port = \"shell\""));
    assert_eq!(shell.filters[0].conditions.destination_port, [range(514, 514)]);
    let flags = read(&filter("protocol = \"tcp\"\ntcp_flags = \"syn, !ACK\""));
    let test = FlagTest { mask: 0x12, value: 2 };
    assert_eq!(flags.filters[0].conditions.tcp_flags, [test]);
    let other = read(&filter("ethertype = [\"arp\", 0x88cc]"));
    assert_eq!(other.filters[0].conditions.ethertype, [range(0x806, 0x806), range(0x88cc, 0x88cc)]);
}

#[test]
fn policies_and_adapters_are_read() {
    let file = read(
        r#"
        fragments = "track"
        [filter.late]
        priority = 7
        policy = "bulk"
        [filter.early]
        policy = "bulk"
        [policy.bulk]
        dscp = "LE"
        vlan_priority = 1
        reserve = "10%"
        limit = "30mbit"
        priority = 7
        meter = { kind = "trtcm", committed = "1mbit", committed_burst = "64KiB", peak = "2mbit", peak_burst = 65536, colour = "aware", yellow = "AF12", red = 14, drop_red = true }
        [adapter."eth0.100"]
        rate = "100mbit"
        policies = ["bulk"]
        ingress = true
        "#,
    );
    assert_eq!(file.fragments, Fragments::Track);
    let names: Vec<_> = file.filters.iter().map(|filter| &filter.name).collect();
    assert_eq!(names, ["late", "early"], "in the order of the file");
    let bulk = &file.policies[0];
    assert_eq!(bulk.reserve, Some(Share::Percent(10.0)));
    assert_eq!(bulk.limit, Some(Share::Rate(BitRate(30_000_000))));
    let meter = bulk.meter.unwrap();
    let kind = MeterKind::TwoRate {
        committed: BitRate(1_000_000),
        committed_burst: ByteCount(65_536),
        peak: BitRate(2_000_000),
        peak_burst: ByteCount(65_536),
    };
    assert_eq!(meter.kind, kind);
    assert_eq!((meter.colours[2], meter.drop_red), (Dscp::new(14), true));
    assert_eq!(file.adapters[0].name, "eth0.100");
    assert_eq!(file.adapters[0].rate, Some(BitRate(100_000_000)));
    assert!(file.adapters[0].ingress);
}

/// A slip each, and what is said of it.
#[test]
fn what_is_wrong_is_said_with_its_place() {
    let mut report = String::new();
    for text in wrong() {
        let error = match PolicyFile::from_toml(&text, &mut House) {
            Err(error) => error,
            Ok(file) => panic!("{file:?} was read from\n{text}"),
        };
        let slip = text.lines().nth(error.line - 1).unwrap_or("");
        let shown: String = slip.trim().chars().take(100).collect();
        report.push_str(&format!("{shown}\n    {error}\n"));
    }
    insta::assert_snapshot!(report);
}

fn wrong() -> Vec<String> {
    let mut wrong: Vec<String> = FILES.iter().map(|text| (*text).to_owned()).collect();
    wrong.extend(FILTERS.iter().map(|lines| filter(lines)));
    wrong.extend(POLICIES.iter().map(|lines| policy(lines)));
    let entries: Vec<_> = (0..1025).map(|port| port.to_string()).collect();
    wrong.push(filter(&format!("port = [{}]", entries.join(","))));
    wrong
}

const FILES: &[&str] = &[
    "",
    "[filter.f]\npolicy = ",
    "[filter.f]\npolicy = \"p\"\n[filter.f]\npolicy = \"p\"",
    "[filters.f]\npolicy = \"p\"",
    "fragments = \"tracked\"\n[adapter.eth0]\npolicies = [\"p\"]",
    "[filter.\"a b\"]\npolicy = \"p\"\n[policy.p]\n[adapter.eth0]\npolicies = [\"p\"]",
    "[filter.f]\npolicy = \
     \"p\"\n[policy.a-name-with-more-than-thirty-two-letters]\n[adapter.eth0]\npolicies = [\"p\"]",
    "[filter.f]\npolicy = \"bluk\"\n[policy.bulk]\n[adapter.eth0]\npolicies = [\"bulk\"]",
    "[filter.f]\npolicy = \"p\"\n[adapter.eth0]\npolicies = [\"p\"]",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[policy.q]\n[adapter.eth0]\npolicies = [\"p\", \"q\"]",
    "[filter.f]\npolicy = \"p\"\n[filter.g]\npolicy = \
     \"q\"\n[policy.p]\n[policy.q]\n[adapter.eth0]\npolicies = [\"p\"]",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[adapter.eth0]\npolicies = [\"p\", \"p\"]",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[adapter.eth0]\npolicies = [\"voice\"]",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[adapter.eth0]\npolicies = []",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[adapter.eth0]\nrate = \"100mbit\"",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[adapter.eth0.100]\npolicies = [\"p\"]",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[adapter.an-interface-name]\npolicies = [\"p\"]",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[adapter.eth0]\nrate = \"100mbot\"\npolicies = \
     [\"p\"]",
    "[filter.f]\npolicy = \"p\"\n[policy.p]\n[adapter.eth0]\nspeed = \"100mbit\"\npolicies = \
     [\"p\"]",
    "[filter.f]\n[policy.p]\n[adapter.eth0]\npolicies = [\"p\"]",
];

const FILTERS: &[&str] = &[
    "sources = \"198.18.0.1\"",
    "dport = 80",
    "source = 198",
    "source = true",
    "source = []",
    "source = \"198.18.0.256\"",
    "source = \"198.18.0.0/33\"",
    "source = \"198.18.0.1/15\"",
    "source = \"2001:2::1/129\"",
    "source = \"198.18.0.9-198.18.0.1\"",
    "source = \"198.18.0.1-2001:2::1\"",
    "source = \"198.18.0.1-9\"",
    "source = [\"198.18.0.1\", \"fe80::1%eth0\"]",
    "source = \"nowhere.example\"",
    "source = \"crowd.example\"",
    "source = \"198.18.0.0/15\"\ndestination = \"2001:2::/48\"",
    "family = \"ipv4\"\nsource = \"2001:2::/48\"",
    "family = \"ip\"",
    "flow_label = 5\ndestination = \"198.18.0.1\"",
    "flow_label = 0x100000",
    "destination_port = 65536",
    "destination_port = -1",
    "destination_port = \"2000-1000\"",
    "destination_port = \"htttps\"",
    "protocol = \"tpc\"",
    "protocol = 256",
    "protocol = \"icmp\"\ndestination_port = 80",
    "protocol = [\"esp\", \"ah\"]\nport = 80",
    "protocol = \"tcp\"\nicmp_type = 8",
    "protocol = \"udp\"\ntcp_flags = \"syn\"",
    "port = 80\nicmp_type = 8",
    "icmp_type = \"echo-request\"",
    "protocol = \"icmp\"\nicmp_type = \"echo-reqest\"",
    "icmp_code = 256",
    "tcp_flags = \"syn,!sin\"",
    "tcp_flags = \"syn,!syn\"",
    "tcp_flags = \"\"",
    "dscp = \"AF51\"",
    "dscp = [8, 64]",
    "dscp = \"AF13-AF11\"",
    "ecn = 4",
    "ethertype = \"lpdd\"",
    "ethertype = 100",
    "ethertype = \"arp\"\nprotocol = \"tcp\"",
    "vlan = 4095",
    "length = \"0-70000\"",
    "uid = \"bob\"",
    "uid = 4294967295",
    "cgroup = \"system.slice\"",
    "cgroup = \"/a/../b\"",
    "incoming = \"eth/0\"",
    "source = \"::ffff:198.18.0.1\"",
    "source = \"@lan\"",
    "protocol = \"!0-255\"",
    "mark = \"eth0\"",
    "mark = \"0x11/0xf0\"",
    "mark = \"0x10/0\"",
    "mark = \"0x10-0x1ff/0xf0\"",
    "mark = [\"0x10/0xf0\", \"!5\"]",
    "mark = [\"1/1\", \"2/2\", \"4/4\", \"8/8\", \"16/16\"]",
    "fwmark = 5",
    "source_mac = \"02:00:5e:10:00\"",
    "source_mac = \"02-00-5e-10-00-01\"",
    "source_mac = \"02:00:5e:10:00:01/24\"",
    "destination_mac = \"02:00:5e:10:00:01-02:00:5e:10:00:00\"",
    "source_mac = \"!00:00:00:00:00:00/0\"",
    "priority = 0",
    "priority = \"high\"",
    "policy2 = \"p\"",
];

const POLICIES: &[&str] = &[
    "parent = \"p\"",
    "parent = \"office\"",
    "dscp = 64",
    "dscp = \"EF-AF41\"",
    "dcsp = \"EF\"",
    "vlan_priority = 8",
    "reserve = \"0\"",
    "reserve = 30",
    "reserve = \"101%\"",
    "reserve = \"ten mbit\"",
    "reserve = \"30mbit\"\nlimit = \"20mbit\"",
    "reserve = \"30%\"\nlimit = \"20%\"",
    "priority = 8",
    "drop = true\ndscp = \"EF\"",
    "drop = true\nlimit = \"1mbit\"",
    "drop = \"yes\"",
    "meter = \"srtcm\"",
    "meter = { committed = \"1mbit\" }",
    "meter = { kind = \"tbf\" }",
    "meter = { kind = \"srtcm\", committed = \"1mbit\", committed_burst = \"64KiB\", peak = \"2mbit\" }",
    "meter = { kind = \"srtcm\", committed = \"1mbit\", committed_burst = 0 }",
    "meter = { kind = \"srtcm\", committed = \"1mbit\", committed_burst = \"2GiB\" }",
    "meter = { kind = \"srtcm\", committed = \"1mbit\", committed_burst = \"64KiB\", colur = \"blind\" }",
    "meter = { kind = \"srtcm\", committed = \"1mbit\", committed_burst = \"64KiB\", colour = \"blue\" }",
    "meter = { kind = \"srtcm\", committed = \"1mbit\", committed_burst = \"64KiB\", red = 1, drop_red = true }",
    "meter = { kind = \"srtcm\", committed = \"1mbit\", committed_burst = \"64KiB\", colour = \"aware\" }",
    "meter = { kind = \"srtcm\", committed = \"1mbit\", committed_burst = \"64KiB\", colour = \"aware\", yellow = 12, red = \"AF12\" }",
    "meter = { kind = \"trtcm\", committed = \"2mbit\", committed_burst = \"64KiB\", peak = \"1mbit\", peak_burst = \"64KiB\" }",
    "meter = { kind = \"trtcm\", committed = \"2mbit\", committed_burst = \"64KiB\", peak = \"2mbit\" }",
];

#[test]
fn without_names_numbers_are_enough() {
    assert!(PolicyFile::from_toml(&filter("port = 80"), &mut NoNames).is_ok());
    assert!(PolicyFile::from_toml(&filter("port = \"https\""), &mut NoNames).is_err());
}
