use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use super::*;
use crate::netns::{Namespace, Pair, eventually, pair_or_skip};

fn netlink_of(namespace: &Namespace) -> Netlink {
    namespace.netlink().unwrap()
}

#[test]
fn tables_of_the_host_can_be_read_without_privilege() {
    let mut netlink = Netlink::open().unwrap();
    let links = netlink.links().unwrap();
    assert!(links.iter().any(|link| link.loopback), "{links:?}");
    for link in &links {
        assert_eq!(netlink.link_by_index(link.index).unwrap().name, link.name);
        netlink.qdiscs(&link.name).unwrap();
    }
    for address in netlink.addresses().unwrap() {
        assert!(links.iter().any(|link| link.index == address.link), "{address:?}");
        // Its own addresses are reached by the loopback link.
        let route = netlink.route_to(address.prefix.address);
        assert!(address.tentative || route.is_ok(), "{route:?}");
    }
    netlink.routes().unwrap();
}

#[test]
fn link_describes_the_veth_and_its_traffic() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    let link = netlink.link(Pair::LINK).unwrap();
    assert_eq!(link.kind.as_deref(), Some("veth"));
    assert_eq!((link.up, link.loopback), (true, false));
    assert_eq!((link.operstate, link.mtu), (OperState::Up, 1500));
    let peer = netlink_of(&pair.b.namespace).link(Pair::LINK).unwrap();
    assert_eq!((link.lower, peer.lower), (Some(peer.index), Some(link.index)));
    assert_eq!(netlink.link_by_index(link.index).unwrap().name, Pair::LINK);
    assert!(netlink.links().unwrap().iter().any(|link| link.loopback && link.name == "lo"));

    let before = link.statistics;
    transfer(&pair, pair.b.ipv4.into(), 100_000);
    let after = netlink.link(Pair::LINK).unwrap().statistics;
    assert!(after.tx_bytes - before.tx_bytes >= 100_000, "{before:?} {after:?}");
    assert!(after.rx_packets > before.rx_packets);
}

/// Sends `length` bytes from `a` to `to` at `b`.
fn transfer(pair: &Pair, to: IpAddr, length: usize) {
    let listener = pair.b.namespace.run(|| TcpListener::bind((to, 0))).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    let stream = pair.a.namespace.run(|| TcpStream::connect(target)).unwrap();
    let writer = std::thread::spawn(move || stream.unwrap().write_all(&vec![7; length]).unwrap());
    let mut received = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert_eq!(received.len(), length);
}

#[test]
fn changes_of_a_link_read_back() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    let mac = [2, 0, 0, 0, 0, 0x11];
    for change in [
        LinkChange::Mtu(1400),
        LinkChange::Mac(mac),
        LinkChange::TxQueueLength(77),
        LinkChange::GsoMaxSize(30_000),
        LinkChange::GsoMaxSegs(8),
        LinkChange::Down,
        LinkChange::Name("renamed"),
    ] {
        netlink.change_link(Pair::LINK, &change).unwrap();
    }
    let link = netlink.link("renamed").unwrap();
    assert_eq!((link.mtu, link.mac, link.tx_queue_length), (1400, Some(mac), 77));
    assert_eq!((link.gso_max_size, link.gso_max_segs, link.up), (Some(30_000), Some(8), false));
    netlink.change_link("renamed", &LinkChange::Up).unwrap();
    assert!(netlink.link("renamed").unwrap().up);
}

#[test]
fn link_moves_to_another_namespace_and_is_deleted_there() {
    let Some(pair) = pair_or_skip() else { return };
    let (mut a, mut b) = (netlink_of(&pair.a.namespace), netlink_of(&pair.b.namespace));
    let end = |name| VethEnd { name, namespace: None, mtu: Some(1300) };
    a.create_veth(&end("left"), &end("right")).unwrap();
    a.change_link("right", &LinkChange::Namespace(pair.b.namespace.as_fd())).unwrap();
    assert_eq!(a.link("right").unwrap_err().errno(), Some(libc::ENODEV));
    assert_eq!(b.link("right").unwrap().mtu, 1300);
    b.delete_link("right").unwrap();
    assert_eq!(a.link("left").unwrap_err().errno(), Some(libc::ENODEV));
}

#[test]
fn refusals_name_the_operation_and_the_object() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    let missing = netlink.change_link("nosuch", &LinkChange::Up).unwrap_err();
    assert_eq!(missing.to_string(), "cannot read link nosuch");
    let small = netlink.change_link(Pair::LINK, &LinkChange::Mtu(10)).unwrap_err();
    assert_eq!(small.errno(), Some(libc::EINVAL));
    assert_eq!(small.to_string(), "cannot set MTU 10 of link veth0 (mtu less than device minimum)");
    let end = VethEnd { name: Pair::LINK, namespace: None, mtu: None };
    let taken = netlink.create_veth(&end, &VethEnd { name: "other", ..end.clone() }).unwrap_err();
    assert_eq!(taken.errno(), Some(libc::EEXIST));
    // The handle is still in step after errors.
    assert_eq!(netlink.link(Pair::LINK).unwrap().mtu, 1500);
}

#[test]
fn addresses_are_usable_at_once() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    let link = netlink.link(Pair::LINK).unwrap().index;
    let (v4, v6) = (Prefix::new([198, 18, 7, 1], 28), Prefix::new(lab_v6(7, 1), 72));
    netlink.add_address(Pair::LINK, v4).unwrap();
    netlink.add_address(Pair::LINK, v6).unwrap();
    let addresses = netlink.addresses().unwrap();
    for prefix in [v4, v6] {
        let address = addresses.iter().find(|address| address.prefix == prefix).unwrap();
        assert_eq!((address.link, address.tentative), (link, false));
    }
    assert_eq!(netlink.add_address(Pair::LINK, v4).unwrap_err().errno(), Some(libc::EEXIST));
}

/// An address of 2001:2::/48 in subnet `net`.
fn lab_v6(net: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, net, 0, 0, 0, host)
}

/// In each family a network behind `b`.
fn networks_behind_b(pair: &Pair) -> [(Prefix, IpAddr, IpAddr); 2] {
    let v4 = Prefix::new([198, 18, 9, 0], 24);
    let v6 = Prefix::new(lab_v6(9, 0), 64);
    let [gateway4, gateway6] = pair.b.addresses();
    [(v4, gateway4, Ipv4Addr::new(198, 18, 9, 5).into()), (v6, gateway6, lab_v6(9, 5).into())]
}

#[test]
fn route_metrics_read_back_and_decide_the_route() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    let link = netlink.link(Pair::LINK).unwrap().index;
    for (destination, gateway, host) in networks_behind_b(&pair) {
        let mut route = Route::new(destination);
        route.gateway = Some(gateway);
        let values = [
            (Metric::Mtu, 1400),
            (Metric::AdvertisedMss, 536),
            (Metric::Window, 30_000),
            (Metric::InitialCongestionWindow, 4),
            (Metric::QuickAck, 1),
        ];
        for (metric, value) in values {
            route.metrics.set(metric, Some(value));
        }
        netlink.add_route(&route).unwrap();
        let listed = netlink.routes().unwrap().into_iter().find(|r| r.destination == destination);
        let chosen = netlink.route_to(host).unwrap();
        for found in [listed.unwrap(), chosen] {
            assert_eq!((found.gateway, found.link), (Some(gateway), Some(link)));
            for (metric, value) in values {
                assert_eq!(found.metrics.value(metric), Some(value), "{metric:?} of {found}");
            }
            assert!(!found.is_learnt());
        }
        assert_eq!(netlink.add_route(&route).unwrap_err().errno(), Some(libc::EEXIST));
    }
}

#[test]
fn changed_route_is_put_back_as_it_was() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    let original = netlink.routes().unwrap();
    assert!(original.iter().any(|route| route.destination.address.is_ipv6()), "{original:?}");
    for before in &original {
        let mut changed = before.clone();
        changed.metrics.set(Metric::AdvertisedMss, Some(536));
        netlink.replace_route(&changed).unwrap();
        assert!(netlink.routes().unwrap().contains(&changed), "{changed}");
        netlink.replace_route(before).unwrap();
        let after = netlink.routes().unwrap();
        assert!(after.contains(before) && !after.contains(&changed), "{after:?}");
    }
}

#[test]
fn advertised_mss_of_the_receiver_limits_the_sender() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.b.namespace);
    for (from, to) in pair.a.addresses().into_iter().zip(pair.b.addresses()) {
        let mut route = netlink.route_to(from).unwrap();
        route.metrics.set(Metric::AdvertisedMss, Some(536));
        netlink.add_route(&route).unwrap();
        let listener = pair.b.namespace.run(|| TcpListener::bind((to, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let stream = pair.a.namespace.run(|| TcpStream::connect(target)).unwrap().unwrap();
        let mss = socket2::SockRef::from(&stream).tcp_mss().unwrap();
        // Timestamps take 12 bytes of it, where the host has them on.
        assert!(mss == 536 || mss == 524, "{mss} to {to}");
        netlink.delete_route(&route).unwrap();
        assert!(!netlink.routes().unwrap().iter().any(|r| r.destination == Prefix::host(from)));
    }
}

#[test]
fn multipath_route_reads_back_its_hops() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    let link = netlink.link(Pair::LINK).unwrap().index;
    let gateways: [[IpAddr; 2]; 2] = [
        [Ipv4Addr::new(198, 18, 0, 2).into(), Ipv4Addr::new(198, 18, 0, 3).into()],
        [lab_v6(0, 2).into(), lab_v6(0, 3).into()],
    ];
    for ((destination, ..), hops) in networks_behind_b(&pair).into_iter().zip(gateways) {
        let mut route = Route::new(destination);
        let hop = |(gateway, weight)| NextHop { gateway: Some(gateway), link, weight };
        route.next_hops = hops.into_iter().zip([1, 3]).map(hop).collect();
        netlink.add_route(&route).unwrap();
        let found = netlink.routes().unwrap().into_iter().find(|r| r.destination == destination);
        assert_eq!(found.unwrap().next_hops, route.next_hops);
    }
}

#[test]
fn learnt_path_mtu_shows_in_the_route() {
    let Some(pair) = pair_or_skip() else { return };
    let mut narrow = netlink_of(&pair.b.namespace);
    let end = |name| VethEnd { name, namespace: None, mtu: Some(1300) };
    narrow.create_veth(&end("out"), &end("far")).unwrap();
    narrow.change_link("far", &LinkChange::Up).unwrap();
    narrow.change_link("out", &LinkChange::Up).unwrap();
    narrow.add_address("out", Prefix::new([198, 18, 9, 1], 24)).unwrap();
    let forward = "/proc/sys/net/ipv4/ip_forward";
    pair.b.namespace.run(|| std::fs::write(forward, "1")).unwrap().unwrap();

    let mut netlink = netlink_of(&pair.a.namespace);
    let [(destination, gateway, host), _] = networks_behind_b(&pair);
    let mut route = Route::new(destination);
    route.gateway = Some(gateway);
    netlink.add_route(&route).unwrap();
    let socket = pair.a.namespace.run(|| UdpSocket::bind(("198.18.0.1", 0))).unwrap().unwrap();
    socket.connect((host, 9)).unwrap();
    socket.set_read_timeout(Some(linerate_testkit::PATIENCE)).unwrap();
    socket.send(&[0; 1400]).unwrap();
    // The router's "fragmentation needed" arrives as an error of the socket.
    let told = linerate_testkit::uninterrupted(|| socket.recv(&mut [0; 8])).unwrap_err();
    assert_eq!(told.raw_os_error(), Some(libc::EMSGSIZE), "{told}");
    let learnt = netlink.route_to(host).unwrap();
    assert_eq!((learnt.is_learnt(), learnt.metrics.value(Metric::Mtu)), (true, Some(1300)));
}

#[test]
fn unreachable_destination_has_no_route() {
    let Some(pair) = pair_or_skip() else { return };
    let error =
        netlink_of(&pair.a.namespace).route_to(Ipv4Addr::new(192, 0, 2, 1).into()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENETUNREACH));
    assert_eq!(error.to_string(), "cannot find the route to 192.0.2.1");
}

#[test]
fn permanent_neighbour_is_used() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    let peer_mac = netlink_of(&pair.b.namespace).link(Pair::LINK).unwrap().mac.unwrap();
    for address in pair.b.addresses() {
        netlink.add_permanent_neighbour(Pair::LINK, address, peer_mac).unwrap();
        transfer(&pair, address, 1000);
    }
}

#[test]
fn root_qdisc_of_a_veth_is_the_link_s_own() {
    let Some(pair) = pair_or_skip() else { return };
    let mut netlink = netlink_of(&pair.a.namespace);
    // A veth has no queue until its transmit queue length makes the kernel give it one.
    let named = netlink.link(Pair::LINK).unwrap().qdisc.unwrap();
    let listed = netlink.qdiscs(Pair::LINK).unwrap();
    let root = listed.iter().find(|qdisc| qdisc.root).map(|qdisc| qdisc.kind.clone());
    assert_eq!(root.unwrap_or_else(|| "noqueue".into()), named, "{listed:?}");
    assert_eq!(netlink.qdiscs("nosuch").unwrap_err().errno(), Some(libc::ENODEV));
}

#[test]
fn tcp_metrics_are_learnt_and_flushed() {
    let Some(pair) = pair_or_skip() else { return };
    let mut metrics = pair.a.namespace.run(TcpMetrics::open).unwrap().unwrap();
    metrics.flush().unwrap();
    assert!(metrics.hosts().unwrap().is_empty());
    for address in pair.b.addresses() {
        transfer(&pair, address, 2_000_000);
        // They are kept when the closing of the connection is complete.
        let mut learnt = || metrics.hosts().unwrap().contains(&address);
        assert!(eventually(&mut learnt), "nothing learnt of {address}");
    }
    let [forgotten, kept] = pair.b.addresses();
    // Twice: what is not remembered is forgotten already.
    for _ in 0..2 {
        metrics.forget(forgotten).unwrap();
    }
    assert_eq!(metrics.hosts().unwrap(), [kept]);
    metrics.flush().unwrap();
    assert!(metrics.hosts().unwrap().is_empty());
}
