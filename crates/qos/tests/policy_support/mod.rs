//! Strategies for whole policy files, each of which the reader takes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::units::{BitRate, ByteCount, Dscp};
use linerate_qos::policy::{
    Adapter, AddressRange, CgroupPath, Conditions, Family, Filter, FlagTest, Fragments, Interface,
    Mac, MarkRange, Meter, MeterKind, Place, Policy, PolicyFile, Range, Share,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

/// A file that the reader takes; all places are the default.
pub(crate) fn policy_file() -> impl Strategy<Value = PolicyFile> {
    let policies = vec(policy(), 1..6);
    let filters = vec((conditions(), 1..=2_147_483_647_u32, any::<Index>()), 6..20);
    let adapters = vec((of(rate()), any::<bool>(), any::<Index>()), 1..4);
    (policies, filters, adapters, any::<bool>()).prop_map(|(policies, filters, adapters, track)| {
        let count = policies.len();
        let policies = policies.into_iter().enumerate();
        let filters = filters.into_iter().enumerate();
        PolicyFile {
            policies: policies.map(|(at, policy)| named(policy, at)).collect(),
            filters: filters
                .map(|(at, (conditions, priority, index))| Filter {
                    name: format!("filter-{at}"),
                    place: Place::default(),
                    priority,
                    // Each policy has a filter.
                    policy: if at < count { at } else { index.index(count) },
                    conditions,
                })
                .collect(),
            adapters: adapters
                .into_iter()
                .zip(["eth0", "*", "eth0.100", "we\"ird\\1"])
                .enumerate()
                .map(|(at, ((rate, ingress, index), name))| Adapter {
                    name: name.to_owned(),
                    place: Place::default(),
                    rate,
                    // Each policy is on the first one.
                    policies: match at {
                        0 => (0..count).rev().collect(),
                        _ => vec![index.index(count)],
                    },
                    ingress,
                })
                .collect(),
            fragments: if track { Fragments::Track } else { Fragments::Plain },
        }
    })
}

fn named(policy: Policy, at: usize) -> Policy {
    Policy { name: format!("policy_{at}"), ..policy }
}

/// Which packets a filter can be for: one of these never contradicts itself.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Anything,
    Other,
    V4,
    V6,
    Both,
}

/// Conditions that some packet can meet.
pub(crate) fn conditions() -> impl Strategy<Value = Conditions> {
    let kinds = [Kind::Anything, Kind::Other, Kind::V4, Kind::V6, Kind::Both];
    select(kinds.to_vec()).prop_flat_map(|kind| {
        let ip = match kind {
            Kind::Anything => Just(Conditions::default()).boxed(),
            Kind::Other => other().boxed(),
            _ => ip(kind).boxed(),
        };
        (ip, any_packet()).prop_map(|(ip, any)| Conditions {
            vlan: any.0,
            uid: any.1,
            cgroup: any.2,
            incoming: any.3,
            mark: any.4,
            source_mac: any.5,
            ..ip
        })
    })
}

type OfAnyPacket = (
    Vec<Range<u16>>,
    Vec<Range<u32>>,
    Vec<CgroupPath>,
    Vec<Interface>,
    Vec<MarkRange>,
    Vec<Range<Mac>>,
);

/// What any packet can be asked for.
fn any_packet() -> impl Strategy<Value = OfAnyPacket> {
    let cgroup = select(vec!["/user.slice", "/system.slice/ssh.service", "/a \"b\"/\\x2d/ü"]);
    let mac = range(0_u64, 1 << 40).prop_map(|Range { first, last }| {
        let mac = |number: u64| Mac::try_from(u128::from(number)).expect("48 bits");
        Range { first: mac(first), last: mac(last) }
    });
    let interface = select(vec!["eth1", "wlan0", "veth@if\"3"]);
    (
        rarely(range(1_u16, 4094)),
        rarely(range(0, u32::MAX - 1)),
        rarely(cgroup.prop_map(|path| CgroupPath(path.to_owned()))),
        rarely(interface.prop_map(|name| Interface(name.to_owned()))),
        rarely(mark()),
        rarely(mac),
    )
}

/// Of few masks, for a file has four at most.
fn mark() -> impl Strategy<Value = MarkRange> {
    let mask = select(vec![u32::MAX, 0xf0, 0xff00_0000]);
    (mask, any::<u32>(), any::<bool>()).prop_map(|(mask, mark, is_one)| {
        let (first, last) =
            if is_one { (mark & mask, mark & mask) } else { (mark & (mask / 2), mask) };
        let range = Range { first, last };
        MarkRange { mask, range }
    })
}

fn other() -> impl Strategy<Value = Conditions> {
    (any::<bool>(), vec(range(0x0600_u16, 0x07ff), 0..3)).prop_map(|(family, ethertype)| {
        Conditions {
            family: family.then_some(Family::Other).into_iter().collect(),
            ethertype,
            ..Conditions::default()
        }
    })
}

fn ip(kind: Kind) -> impl Strategy<Value = Conditions> {
    let addresses = move || {
        let one = match kind {
            Kind::V4 => v4().boxed(),
            Kind::V6 => v6().boxed(),
            _ => Just(()).prop_flat_map(|()| prop_oneof![v4(), v6()]).boxed(),
        };
        // Of both families, where the filter is for both.
        let both = matches!(kind, Kind::Both);
        rarely(one).prop_map(move |mut ranges| {
            if both && !ranges.is_empty() {
                ranges.push(AddressRange::prefix(Ipv4Addr::UNSPECIFIED.into(), 0));
                ranges.push(AddressRange::prefix(Ipv6Addr::UNSPECIFIED.into(), 0));
            }
            ranges
        })
    };
    let network = (
        addresses(),
        addresses(),
        addresses(),
        rarely(range(0_u8, 63)),
        rarely(range(0_u8, 3)),
        rarely(range(0, 65_575)),
        rarely(range(0, 0xf_ffff)),
        any::<bool>(),
    );
    (network, transport()).prop_map(move |(network, transport)| {
        let (source, destination, address, dscp, ecn, length, flow_label, says_family) = network;
        let family = match kind {
            Kind::V4 => Family::V4,
            _ => Family::V6,
        };
        Conditions {
            family: (says_family && !matches!(kind, Kind::Both))
                .then_some(family)
                .into_iter()
                .collect(),
            source,
            destination,
            address,
            dscp,
            ecn,
            length,
            flow_label: match kind {
                Kind::V4 => Vec::new(),
                _ => flow_label,
            },
            ..transport
        }
    })
}

fn transport() -> impl Strategy<Value = Conditions> {
    let with_ports = subsequence(vec![6_u8, 17, 33, 132, 136], 0..=2);
    let ports = || rarely(range(0, u16::MAX));
    let flags = rarely(flag_test());
    let ported = (with_ports, ports(), ports(), ports(), flags).prop_map(
        |(protocols, source_port, destination_port, port, tcp_flags)| Conditions {
            protocol: protocols
                .into_iter()
                .chain((!tcp_flags.is_empty()).then_some(6))
                .map(single)
                .collect(),
            source_port,
            destination_port,
            port,
            tcp_flags,
            ..Conditions::default()
        },
    );
    let icmp =
        (subsequence(vec![1_u8, 58], 0..=2), rarely(range(0, u8::MAX)), rarely(range(0, u8::MAX)));
    let icmp = icmp.prop_map(|(protocol, icmp_type, icmp_code)| Conditions {
        protocol: protocol.into_iter().map(single).collect(),
        icmp_type,
        icmp_code,
        ..Conditions::default()
    });
    let bare = rarely(range(0, u8::MAX))
        .prop_map(|protocol| Conditions { protocol, ..Conditions::default() });
    prop_oneof![3 => ported, 1 => icmp, 1 => bare]
}

fn flag_test() -> impl Strategy<Value = FlagTest> {
    (1..=u8::MAX, any::<u8>()).prop_map(|(mask, bits)| FlagTest { mask, value: bits & mask })
}

fn v4() -> BoxedStrategy<AddressRange> {
    let prefix = (any::<u32>(), 0..=32_u32)
        .prop_map(|(bits, length)| AddressRange::prefix(Ipv4Addr::from_bits(bits).into(), length));
    let range = range(0_u32, u32::MAX).prop_map(|range| AddressRange {
        first: IpAddr::V4(range.first.into()),
        last: IpAddr::V4(range.last.into()),
    });
    prop_oneof![prefix, range].boxed()
}

fn v6() -> BoxedStrategy<AddressRange> {
    let prefix = (any::<u128>(), 0..=128_u32)
        .prop_map(|(bits, length)| AddressRange::prefix(Ipv6Addr::from_bits(bits).into(), length));
    let range = range(0_u128, u128::MAX).prop_map(|range| AddressRange {
        first: IpAddr::V6(range.first.into()),
        last: IpAddr::V6(range.last.into()),
    });
    prop_oneof![prefix, range].boxed()
}

/// Mostly nothing, so that filters match something.
fn rarely<T: std::fmt::Debug + Clone + 'static>(
    one: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Vec<T>> {
    prop_oneof![3 => Just(Vec::new()), 1 => vec(one, 1..4)].boxed()
}

fn single<T: Copy>(number: T) -> Range<T> {
    Range { first: number, last: number }
}

/// Single numbers and ranges.
fn range<T>(least: T, most: T) -> BoxedStrategy<Range<T>>
where
    T: Copy + Ord + std::fmt::Debug + 'static,
    std::ops::RangeInclusive<T>: Strategy<Value = T> + Clone,
{
    let one = (least..=most).prop_map(single);
    let two = (least..=most, least..=most)
        .prop_map(|(one, other)| Range { first: one.min(other), last: one.max(other) });
    prop_oneof![one, two].boxed()
}

/// A policy without a name.
fn policy() -> impl Strategy<Value = Policy> {
    let dropping = Just(Policy { drop: true, ..unnamed() });
    let others = (of(dscp()), of(0..=7_u8), shares(), of(0..=7_u8), of(meter()));
    let others = others.prop_map(|(dscp, vlan_priority, (reserve, limit), priority, meter)| {
        Policy { dscp, vlan_priority, reserve, limit, priority, meter, ..unnamed() }
    });
    prop_oneof![1 => dropping, 6 => others]
}

fn unnamed() -> Policy {
    Policy {
        parent: None,
        name: String::new(),
        place: Place::default(),
        dscp: None,
        vlan_priority: None,
        reserve: None,
        limit: None,
        priority: None,
        meter: None,
        drop: false,
    }
}

fn dscp() -> impl Strategy<Value = Dscp> {
    (0..64_u8).prop_map(|number| Dscp::new(number).expect("below 64"))
}

fn rate() -> impl Strategy<Value = BitRate> {
    let round = (1..=400_u64, select(vec![1_000, 1_000_000, 1_000_000_000]));
    let round = round.prop_map(|(number, unit)| BitRate(number * unit));
    prop_oneof![round, (1_000..=10_000_000_000_000_u64).prop_map(BitRate)]
}

fn shares() -> impl Strategy<Value = (Option<Share>, Option<Share>)> {
    let share =
        || prop_oneof![rate().prop_map(Share::Rate), (0.001..=100.0_f64).prop_map(Share::Percent),];
    (of(share()), of(share())).prop_map(|(one, other)| match (one, other) {
        (Some(Share::Rate(reserve)), Some(Share::Rate(limit))) if limit < reserve => (other, one),
        (Some(Share::Percent(reserve)), Some(Share::Percent(limit))) if limit < reserve => {
            (other, one)
        }
        both => both,
    })
}

fn meter() -> impl Strategy<Value = Meter> {
    let burst = || prop_oneof![1..=1_u64 << 30, (1..=64_u64).prop_map(|kib| kib << 10)];
    let kind = (any::<bool>(), rate(), rate(), burst(), burst());
    let kind = kind.prop_map(|(is_single, one, other, committed_burst, second_burst)| {
        if is_single {
            MeterKind::SingleRate {
                committed: one,
                committed_burst: ByteCount(committed_burst),
                excess_burst: ByteCount(second_burst - 1),
            }
        } else {
            MeterKind::TwoRate {
                committed: one.min(other),
                committed_burst: ByteCount(committed_burst),
                peak: one.max(other),
                peak_burst: ByteCount(second_burst),
            }
        }
    });
    let colours = subsequence((0..64_u8).collect::<Vec<_>>(), 3).prop_shuffle();
    (kind, any::<bool>(), colours, of(any::<bool>()), any::<bool>()).prop_map(
        |(kind, colour_aware, colours, others, drop_red)| {
            let colours: Vec<_> = colours.into_iter().map(Dscp::new).collect();
            Meter {
                kind,
                colour_aware,
                colours: [
                    colours[0].filter(|_| others.is_some()),
                    colours[1].filter(|_| colour_aware || others == Some(true)),
                    colours[2].filter(|_| colour_aware || (!drop_red && others == Some(true))),
                ],
                drop_red,
            }
        },
    )
}
