//! Topologies from files: what is read, what is refused, and that all routes lead where they
//! should.

use crate::lab_support::{Walk, hops_between, walk};
use linerate_core::lab::{Role, Topology};
use proptest::prelude::*;

fn lab(text: &str) -> Topology {
    Topology::from_toml(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Nodes with their interfaces and routes, and links, one a line.
fn printed(topology: &Topology) -> String {
    let mut lines = Vec::new();
    for node in &topology.nodes {
        lines.push(format!("{:?} {} {:?}", node.role, node.name, node.sysctls));
        for interface in &node.interfaces {
            let addresses: Vec<_> = (interface.addresses.iter())
                .map(|prefix| format!("{}/{}", prefix.address, prefix.length))
                .collect();
            let (name, mtu) = (&interface.name, interface.mtu);
            lines.push(format!("  {name} mtu {mtu} {}", addresses.join(" ")));
        }
        for route in &node.routes {
            let mut line = format!("  {}/{} via {}", route.to.address, route.to.length, route.via);
            let settings = [
                route.source.map(|value| format!(" source {value}")),
                route.mtu.map(|value| format!(" mtu {value}")),
                route.advmss.map(|value| format!(" advmss {value}")),
                route.quickack.map(|value| format!(" quickack {value}")),
            ];
            line.extend(settings.into_iter().flatten());
            lines.push(line);
        }
    }
    for link in &topology.links {
        let kind = if link.is_plain() { "plain" } else { "emulated" };
        lines.push(format!("link {} {kind}", link.name));
    }
    lines.join("\n")
}

#[test]
fn a_file_with_all_keys_is_read() {
    let text = r#"
[host.alpha]
sysctl = { "net.ipv4.tcp_rmem" = "4096 16384 65536", net.ipv4.tcp_sack = 0 }
[router.r1]
[host.omega]
[[link]]
between = ["alpha:wan0", "r1"]
spec = "rate=100mbit,rtt=10ms"
name = "wan"
addresses = ["198.18.5.1/24", "198.18.5.2/24"]
mtu = 9000
[[link]]
between = ["r1", "omega"]
addresses = [["198.18.6.0/31", "2001:2::6:1/112"], ["2001:2::6:2/112", "198.18.6.1/31"]]
[[link]]
between = ["omega", "r1"]
spec = "mtu=1400"
[[route]]
host = "alpha"
to = "198.18.9.0/24"
via = "r1"
mtu = 1400
advmss = 536
quickack = true
source = "198.18.5.1"
[[route]]
host = "omega"
to = "alpha"
advmss = 1000
"#;
    insta::assert_snapshot!(printed(&lab(text)));
}

#[test]
fn explicit_addresses_leave_other_links_theirs() {
    let text = r#"
[host.a]
[host.b]
[[link]]
between = ["a", "b"]
[[link]]
between = ["a", "b"]
[[link]]
between = ["a", "b"]
addresses = ["198.18.1.7/24", "198.18.1.8/24"]
"#;
    let lab = lab(text);
    let networks: Vec<_> = (lab.nodes[0].interfaces.iter())
        .map(|interface| interface.addresses[0].network().address.to_string())
        .collect();
    assert_eq!(networks, ["198.18.0.0", "198.19.255.0", "198.18.1.0"]);
    let names: Vec<_> = lab.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["a-b", "a-b-2", "a-b-3"]);
}

#[test]
fn examples_are_read_and_lead_where_they_say() {
    let chain = lab(include_str!("../../../examples/labs/chain.toml"));
    assert_eq!((chain.nodes.len(), chain.links.len()), (62, 61));
    assert_eq!(walk(&chain, "alpha", "omega"), [Walk::Arrived(61); 2]);

    let star = lab(include_str!("../../../examples/labs/star.toml"));
    assert_eq!(walk(&star, "site1", "site4"), [Walk::Arrived(2); 2]);
    assert_eq!(star.links[0].up.rate_bps, Some(20_000_000));

    let mesh = lab(include_str!("../../../examples/labs/mesh.toml"));
    assert_eq!((mesh.nodes.len(), mesh.links.len()), (10, 45));
    assert_eq!(walk(&mesh, "site3", "site9"), [Walk::Arrived(1); 2]);

    let homes = lab(include_str!("../../../examples/labs/multihomed.toml"));
    assert_eq!(walk(&homes, "alpha", "server"), [Walk::Arrived(2); 2]);
    let alpha = homes.node("alpha").unwrap();
    assert!(alpha.routes.iter().any(|route| route.mtu == Some(1400) && route.to.length == 32));

    let site = lab(include_str!("../../../examples/labs/missing-route.toml"));
    assert_eq!(walk(&site, "alpha", "beta"), [Walk::Arrived(3)]);
    assert_eq!(walk(&site, "alpha", "gamma"), [Walk::Arrived(4)]);
    assert_eq!(walk(&site, "gamma", "alpha"), [Walk::NoRoute]);
    assert_eq!(walk(&site, "gamma", "beta"), [Walk::Arrived(3)]);
}

const TWO: &str = "[host.a]\n[host.b]\n[[link]]\nbetween = [\"a\", \"b\"]\n";

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let wrong = [
        "[host.a]\nsysctl = [",
        "[host.a]\n[host.a]",
        "[host.a]\n[router.a]",
        "[hots.a]",
        "host = 1",
        "[host]\na = 1",
        "[host.Alpha]",
        "[host.127]",
        "[host.localhost]",
        "[host.a]\nsysctls = {}",
        "[host.a]\nroutes = \"none\"",
        "[host.a]\nsysctl = { \"net.core.rmem_max\" = 1 }",
        "[host.a]\nsysctl = { \"kernel.panic\" = 1 }",
        "[host.a]\nsysctl = { \"net.ipv4..tcp_sack\" = 1 }",
        "[host.a]\nsysctl = { \"net/../kernel/panic\" = 1 }",
        "[host.a]\nsysctl = { net.ipv4.tcp_sack = true }",
        "[host.a]\nsysctl = { net.ipv4.tcp_sack = \"1\\n2\" }",
        "[link]\nbetween = [\"a\", \"b\"]",
        "[host.a]\n[[link]]",
        "[host.alpha]\n[[link]]\nbetween = [\"alpha\", \"alhpa\"]",
        "[host.a]\n[[link]]\nbetween = [\"a\", \"somewhere\"]",
        "[host.a]\n[[link]]\nbetween = [\"a\", \"a\"]",
        "[host.a]\n[[link]]\nbetween = [\"a\"]",
        "[host.a]\n[[link]]\nbetween = [\"a:ethernet-number-1\", \"a\"]",
        "[host.a]\n[host.b]\n[[link]]\nbetween = [\"a:x\", \"b\"]\n[[link]]\nbetween = [\"a:x\", \
         \"b\"]",
        &format!("{TWO}spce = \"\""),
        &format!("{TWO}spec = \"rate=10mbit,rtx=1ms\""),
        &format!("{TWO}spec = \"hops=2\""),
        &format!("{TWO}mtu = 1279"),
        &format!("{TWO}mtu = 0xffffffffffffffffffff"),
        &format!("{TWO}mtu = \"1500\""),
        &format!("{TWO}addresses = [\"198.18.5.1/24\"]"),
        &format!("{TWO}addresses = [\"198.18.5.1/24\", \"198.18.6.2/24\"]"),
        &format!("{TWO}addresses = [\"198.18.5.1/24\", \"198.18.5.1/24\"]"),
        &format!("{TWO}addresses = [\"198.18.5.1/24\", \"2001:2::1/64\"]"),
        &format!("{TWO}addresses = [\"198.18.5.1/24\", []]"),
        &format!("{TWO}addresses = [\"198.18.5.1\", \"198.18.5.2\"]"),
        &format!("{TWO}addresses = [\"10.0.0.1/24\", \"10.0.0.2/24\"]"),
        &format!("{TWO}addresses = [\"198.18.5.1/32\", \"198.18.5.2/32\"]"),
        &format!("{TWO}addresses = [\"198.18.5.0/24\", \"198.18.5.2/24\"]"),
        &format!("{TWO}addresses = [\"198.18.5.1/24\", \"198.18.5.255/24\"]"),
        &format!("{TWO}spec = \"mtu=576\"\naddresses = [\"2001:2::1/64\", \"2001:2::2/64\"]"),
        &format!(
            "{TWO}addresses = [\"198.18.5.1/24\", \"198.18.5.2/24\"]\n[[link]]\nbetween = [\"a\", \
             \"b\"]\n\
             addresses = [\"198.18.4.1/23\", \"198.18.4.2/23\"]"
        ),
        &format!(
            "{TWO}addresses = [\"198.18.5.1/15\", \"198.18.5.2/15\"]\n[[link]]\nbetween = [\"a\", \
             \"b\"]"
        ),
        &format!("{TWO}name = \"x\"\n[[link]]\nbetween = [\"a\", \"b\"]\nname = \"x\""),
        &format!("{TWO}name = \"x y\""),
        "[[mesh]]\nprefix = \"site\"\ncount = 33",
        "[[mesh]]\nprefix = \"site\"",
        "[[mesh]]\nprefix = \"site\"\ncount = 0",
        "[host.site2]\n[[mesh]]\nprefix = \"site\"\ncount = 3",
        "[host.a]\n[[mesh]]\nhosts = [\"a\"]\ncount = 3",
        "[[star]]\ncentre = \"hub\"\nprefix = \"site\"\ncount = 3",
        "[router.hub]\n[[star]]\ncentre = \"hub\"\nprefix = \"site\"\ncount = 256",
        "[host.a]\n[host.b]\n[[chain]]\nfrom = \"a\"\nto = \"b\"",
        "[host.a]\n[[chain]]\nfrom = \"a\"\nto = \"a\"\nrouters = 0",
        &format!("{TWO}[[route]]\nhost = \"a\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"b\"\ngateway = \"b\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"a\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"198.18.9.1/24\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"198.18.9\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"198.18.9.0/24\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"198.18.9.0/24\"\nvia = \"2001:2::2\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"198.18.9.0/24\"\nvia = \"198.18.0.3\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"b\"\nsource = \"198.18.0.2\""),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"b\"\nadvmss = 65496"),
        &format!("{TWO}[[route]]\nhost = \"a\"\nto = \"b\"\nquickack = 1"),
        &format!(
            "{TWO}[[route]]\nhost = \"a\"\nto = \"b\"\n[[route]]\nhost = \"a\"\nto = \"198.18.0.2\""
        ),
        &format!("{TWO}[host.c]\n[[route]]\nhost = \"a\"\nto = \"c\""),
        &format!("{TWO}[host.c]\n[[route]]\nhost = \"a\"\nto = \"b\"\nvia = \"c\""),
    ];
    let mut report = Vec::new();
    for text in wrong {
        let error = match Topology::from_toml(text) {
            Ok(_) => panic!("taken:\n{text}"),
            Err(error) => error.to_string(),
        };
        report.push(format!("{text}\n=> {error}\n"));
    }
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn a_file_longer_than_1_mib_is_refused_unread() {
    let text = "#".repeat((1 << 20) + 1);
    let error = Topology::from_toml(&text).unwrap_err().to_string();
    assert_eq!(error, "line 1, column 1: the file has 1048577 bytes; it may have at most 1 MiB");
}

prop_compose! {
    /// A file with a few hosts and routers, and links at random.
    fn files()(
        roles in prop::collection::vec(any::<bool>(), 2..14),
        ends in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()),
            1..30),
    ) -> String {
        let name = |number: usize| format!("n{number}");
        let mut text = String::new();
        for (number, is_router) in roles.iter().enumerate() {
            let kind = if *is_router { "router" } else { "host" };
            text += &format!("[{kind}.{}]\n", name(number));
        }
        for (a, b) in ends {
            let (a, b) = (a.index(roles.len()), b.index(roles.len()));
            if a != b {
                text += &format!("[[link]]\nbetween = [\"{}\", \"{}\"]\n", name(a), name(b));
            }
        }
        text
    }
}

proptest! {
    #[test]
    fn every_name_is_reached_on_a_shortest_way_or_not_at_all(text in files()) {
        let lab = lab(&text);
        for from in &lab.nodes {
            for to in lab.nodes.iter()
                .filter(|to| to.name != from.name && !to.interfaces.is_empty()) {
                let expected = match hops_between(&lab, &from.name, &to.name) {
                    Some(hops) => Walk::Arrived(hops),
                    None => Walk::NoRoute,
                };
                for walk in walk(&lab, &from.name, &to.name) {
                    match (to.role, walk, expected) {
                        // A router is known by its networks: the way may lead to their other end
                        // first.
                        (Role::Router, Walk::Arrived(found), Walk::Arrived(least)) => {
                            prop_assert!(found <= least + 1, "{} to \
                                {}\n{}", from.name, to.name, text);
                        }
                        _ => prop_assert_eq!(walk, expected, "{} to \
                            {}\n{}", &from.name, &to.name, &text),
                    }
                }
            }
        }
    }

    #[test]
    fn no_address_is_given_twice(text in files()) {
        let lab = lab(&text);
        let mut addresses: Vec<_> = (lab.nodes.iter())
            .flat_map(|node| &node.interfaces)
            .flat_map(|interface| &interface.addresses)
            .map(|prefix| prefix.address)
            .collect();
        let all = addresses.len();
        addresses.sort();
        addresses.dedup();
        prop_assert_eq!(addresses.len(), all);
        prop_assert_eq!(all, 4 * lab.links.len());
    }

    #[test]
    fn no_text_makes_the_reader_panic(
        text in "(\\[\\[?(host|link|chain|star|mesh|route)(\\.[a-z]+)?\\]?\\]\n|[a-z]+ = (\"[^\"\n]*\"|[0-9]+|\\[\"a\"\\])\n){0,12}|\\PC{0,200}",
    ) {
        let _ = Topology::from_toml(&text);
    }
}
