//! Random policy files.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::units::{BitRate, ByteCount, Dscp};
use linerate_qos::policy::{
    Adapter, AddressRange, CgroupPath, Conditions, Family, Filter, FlagTest, Fragments, Interface,
    Mac, MarkRange, Meter, MeterKind, Place, Policy, PolicyFile, Range,
};

use super::Dice;

/// What the files may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    /// How many filters there are.
    pub(crate) filters: usize,
    /// Conditions on what is not in the bytes: owner, control group.
    pub(crate) owners: bool,
    /// Tags beside the bytes, in packets.
    pub(crate) tags_beside: bool,
    /// Policies with meters.
    pub(crate) meters: bool,
    /// `fragments = "track"` in every second file.
    pub(crate) track: bool,
}

/// A file of some policies on one adapter, `eth0`, with at least one filter each.
pub(crate) fn file(dice: &mut Dice, wishes: &Wishes) -> PolicyFile {
    let policies = 1 + dice.below(6.min(wishes.filters as u64)) as usize;
    let filters = (0..wishes.filters).map(|number| Filter {
        name: format!("f{number}"),
        place: Place { line: 100 + 10 * number, column: 1 },
        priority: 1 + dice.below(5) as u32 * 10,
        policy: if number < policies { number } else { dice.below(policies as u64) as usize },
        conditions: conditions(dice, wishes),
    });
    PolicyFile {
        filters: filters.collect(),
        policies: (0..policies).map(|number| policy(dice, wishes, number)).collect(),
        adapters: vec![adapter((0..policies).collect())],
        fragments: if wishes.track && dice.one_in(2) { Fragments::Track } else { Fragments::Plain },
    }
}

/// An adapter `eth0` with these policies.
pub(crate) fn adapter(policies: Vec<usize>) -> Adapter {
    Adapter {
        name: "eth0".to_owned(),
        place: Place::default(),
        rate: Some(BitRate(1_000_000_000)),
        policies,
        ingress: false,
    }
}

fn policy(dice: &mut Dice, wishes: &Wishes, number: usize) -> Policy {
    let drop = dice.one_in(8);
    Policy {
        parent: None,
        name: format!("p{number}"),
        place: Place::default(),
        dscp: (!drop && !dice.one_in(4)).then(|| dscp(dice)),
        vlan_priority: (!drop && dice.one_in(3)).then(|| dice.below(8) as u8),
        reserve: None,
        limit: None,
        priority: None,
        meter: (!drop && wishes.meters && dice.one_in(3)).then(|| meter(dice)),
        drop,
    }
}

fn meter(dice: &mut Dice) -> Meter {
    let rate = BitRate(1 + dice.below(20_000_000));
    let burst = ByteCount(dice.below(20_000));
    let second = ByteCount(dice.below(20_000));
    Meter {
        kind: if dice.one_in(2) {
            MeterKind::SingleRate { committed: rate, committed_burst: burst, excess_burst: second }
        } else {
            MeterKind::TwoRate {
                committed: rate,
                committed_burst: burst,
                peak: BitRate(rate.0 + dice.below(20_000_000)),
                peak_burst: second,
            }
        },
        colour_aware: dice.one_in(2),
        colours: [(); 3].map(|()| dice.one_in(2).then(|| dscp(dice))),
        drop_red: dice.one_in(3),
    }
}

/// Few code points, so that packets often have them.
pub(super) fn dscp(dice: &mut Dice) -> Dscp {
    Dscp::new(dice.pick(&[0, 1, 8, 10, 12, 14, 34, 46, 63])).expect("below 64")
}

/// A few conditions, now and then some that exclude each other.
fn conditions(dice: &mut Dice, wishes: &Wishes) -> Conditions {
    let mut asked = Conditions::default();
    let is_v6 = dice.one_in(2);
    if dice.one_in(6) {
        asked.family = vec![match (dice.one_in(8), is_v6) {
            (true, _) => Family::Other,
            (false, true) => Family::V6,
            (false, false) => Family::V4,
        }];
    }
    match dice.below(4) {
        0 => five_tuple(dice, &mut asked, is_v6),
        // One that takes everything hides all behind it.
        1 if dice.one_in(20) => {}
        _ => {
            for _ in 0..1 + dice.below(3) {
                condition(dice, &mut asked, is_v6, wishes);
            }
        }
    }
    asked
}

/// What most filters of this world ask for.
fn five_tuple(dice: &mut Dice, asked: &mut Conditions, is_v6: bool) {
    let number = dice.pick(&[6, 17]);
    asked.protocol = vec![range(number, number)];
    asked.source = vec![address(dice, is_v6)];
    asked.destination = vec![address(dice, is_v6)];
    asked.source_port = vec![port(dice)];
    asked.destination_port = vec![port(dice)];
}

fn condition(dice: &mut Dice, asked: &mut Conditions, is_v6: bool, wishes: &Wishes) {
    let count = 1 + dice.below(3);
    let addresses = |dice: &mut Dice| (0..count).map(|_| address(dice, is_v6)).collect();
    let ports = |dice: &mut Dice| (0..count).map(|_| port(dice)).collect();
    match dice.below(if wishes.owners { 23 } else { 21 }) {
        0 => asked.source = addresses(dice),
        1 => asked.destination = addresses(dice),
        2 => asked.address = addresses(dice),
        3 => asked.source_port = ports(dice),
        4 => asked.destination_port = ports(dice),
        5 => asked.port = ports(dice),
        6 | 7 => asked.protocol = (0..count).map(|_| protocol(dice)).collect(),
        8 => asked.ethertype = vec![ethertype(dice)],
        9 => asked.dscp = (0..count).map(|_| narrow(dice, 63)).collect(),
        10 => asked.ecn = vec![narrow(dice, 3)],
        11 => asked.icmp_type = vec![range(0, 8), range(128, 129)],
        12 => asked.icmp_code = vec![narrow(dice, 3)],
        13 => asked.tcp_flags = (0..count).map(|_| flags(dice)).collect(),
        14 if is_v6 => asked.flow_label = vec![range(dice.below(9) as u32, 0x7_ffff)],
        14 | 15 => asked.length = vec![length(dice)],
        16 => asked.vlan = (0..count).map(|_| vlan(dice)).collect(),
        17 => asked.incoming = vec![Interface(dice.pick(&["eth1", "eth2"]).to_owned())],
        18 => asked.mark = (0..count).map(|_| mark(dice)).collect(),
        19 => asked.source_mac = (0..count).map(|_| mac(dice)).collect(),
        20 => asked.destination_mac = (0..count).map(|_| mac(dice)).collect(),
        21 => {
            asked.uid = vec![range(dice.below(3) as u32 * 1000, 1000)]
                .into_iter()
                .map(|uid: Range<u32>| range(uid.first.min(uid.last), uid.last.max(uid.first)))
                .collect()
        }
        _ => {
            let paths = ["/web", "/web/www", "/user/shell/one", "/bulk"];
            asked.cgroup = (0..count).map(|_| CgroupPath(dice.pick(&paths).to_owned())).collect();
        }
    }
}

fn mark(dice: &mut Dice) -> MarkRange {
    let mask = dice.pick(&[u32::MAX, 0xf0, 0x8000_0001]);
    let range = match dice.below(2) {
        0 => range(0, 0x10),
        _ => range(0x10 & mask, 0x10 & mask),
    };
    MarkRange { mask, range }
}

/// Of few, the highest among them.
pub(super) fn mac(dice: &mut Dice) -> Range<Mac> {
    let mac = |octet| Mac::from([octet, 0, 0x5e, 0, 0, octet]);
    let first = mac(dice.pick(&[0, 2, 4]));
    match dice.below(3) {
        0 => range(first, first),
        1 => range(first, mac(4)),
        _ => range(first, Mac::LAST),
    }
}

/// Prefixes and ranges around few addresses, so that filters overlap.
pub(super) fn address(dice: &mut Dice, is_v6: bool) -> AddressRange {
    let (bits, base) =
        if is_v6 { (128, 0x2001_0002_0000_0000_u128 << 64) } else { (32, 0xc612_0000_u128) };
    let near = base + dice.within(0, 0x1ff);
    let number = match dice.below(8) {
        0 => dice.within(0, u128::MAX >> (128 - bits)),
        1 => base + (dice.within(0, 0xff) << (bits / 2)),
        _ => near,
    };
    let (first, last) = match dice.below(4) {
        0 => (number, number.saturating_add(dice.within(0, 300))),
        1 => (number, number),
        _ => {
            let host = dice.pick(&[0, 1, 3, 4, 7, 8, 16, bits - 1, bits]);
            let mask = u128::MAX.checked_shr(128 - host).unwrap_or(0);
            (number & !mask, number | mask)
        }
    };
    let last = last.min(u128::MAX >> (128 - bits));
    AddressRange { first: ip(first, is_v6), last: ip(last, is_v6) }
}

pub(super) fn ip(number: u128, is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::from(number).into() } else { Ipv4Addr::from(number as u32).into() }
}

fn port(dice: &mut Dice) -> Range<u16> {
    let first = dice.pick(&[0, 22, 53, 80, 443, 1000, 5201, 40_000, 65_535]);
    let more = dice.pick(&[0, 0, 0, 1, 100, 24_535, 65_535]);
    range(first, first.saturating_add(more))
}

fn protocol(dice: &mut Dice) -> Range<u8> {
    let first = dice.pick(&[1, 6, 6, 17, 17, 50, 51, 58, 59, 132, 136, 33, 89, 0]);
    range(first, first + dice.pick(&[0, 0, 0, 0, 11]))
}

fn ethertype(dice: &mut Dice) -> Range<u16> {
    let first = dice.pick(&[0x0806, 0x88cc, 0x0800, 0x86dd, 0x0600, 0x8100]);
    range(first, first + dice.pick(&[0, 0, 0x2000]))
}

fn vlan(dice: &mut Dice) -> Range<u16> {
    let first = 1 + dice.below(12) as u16;
    range(first, first + dice.pick(&[0, 0, 3, 4000]))
}

fn length(dice: &mut Dice) -> Range<u32> {
    let first = dice.pick(&[0, 40, 64, 200, 1000, 1500]);
    range(first, first + dice.pick(&[0, 30, 500, 70_000]))
}

fn narrow(dice: &mut Dice, most: u8) -> Range<u8> {
    let first = dice.below(u64::from(most) + 1) as u8;
    let more = dice.pick(&[0, 0, 1, 20, 63]);
    range(first, first.saturating_add(more).min(most))
}

fn flags(dice: &mut Dice) -> FlagTest {
    let mask = dice.pick(&[0x02, 0x12, 0x10, 0x05, 0xc0, 0xff]);
    FlagTest { mask, value: mask & dice.next() as u8 }
}

fn range<T>(first: T, last: T) -> Range<T> {
    Range { first, last }
}
