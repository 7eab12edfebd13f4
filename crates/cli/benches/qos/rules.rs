//! Rules and headers, drawn from a seed.

use linerate_core::units::{Dscp, SplitMix64};
use linerate_qos::rules::{Action, Field, Ranges, Rule, RuleSet, Slot};

const POLICIES: usize = 8;

/// What one rule asks: fields with their first and last number.
pub(crate) type Asked = Vec<(Field, (u32, u32))>;

/// These conditions, each a filter of one of eight policies that mark and classify.
pub(crate) fn of(conditions: Vec<Asked>) -> RuleSet {
    let count = conditions.len();
    let rule = |(number, asked): (usize, Asked)| Rule {
        filter: number,
        action: number % POLICIES.min(count),
        conditions: asked
            .into_iter()
            .filter_map(|(field, (first, last))| {
                Ranges::new([(first.into(), last.into())]).map(|set| (field, set))
            })
            .collect(),
    };
    let action = |number: usize| Action {
        policy: format!("p{number}"),
        slot: Slot((count + number) as u32),
        dscp: Dscp::new(8 + number as u8),
        vlan_priority: None,
        class: Some(0x1_0010 + number as u32),
        meter: None,
        drop: false,
    };
    RuleSet {
        filters: (0..count).map(|number| (format!("f{number}"), Slot(number as u32))).collect(),
        actions: (0..POLICIES.min(count)).map(action).collect(),
        v4: conditions.into_iter().enumerate().map(rule).collect(),
        ..RuleSet::pass_through()
    }
}

/// Prefixes of all lengths, ports and ranges of ports, protocols; some of each rule left open.
pub(crate) fn mixed(dice: &mut SplitMix64, count: usize) -> Vec<Asked> {
    let prefix = |dice: &mut SplitMix64| {
        let host = dice.below(17) as u32;
        let address = 0xc612_0000 | dice.below(1 << 17) as u32;
        let mask = (1u32 << host) - 1;
        (address & !mask, address | mask)
    };
    let port = |dice: &mut SplitMix64| {
        let first = dice.below(65_000) as u32;
        (first, first + [0, 0, 10, 500][dice.below(4) as usize])
    };
    (0..count)
        .map(|_| {
            let mut asked = Vec::new();
            if dice.below(4) > 0 {
                asked.push((Field::Source, prefix(dice)));
            }
            asked.push((Field::Destination, prefix(dice)));
            if dice.below(4) > 0 {
                let number = [6, 17][dice.below(2) as usize];
                asked.push((Field::Protocol, (number, number)));
            }
            if dice.below(3) == 0 {
                asked.push((Field::SourcePort, port(dice)));
            }
            if dice.below(4) > 0 {
                asked.push((Field::DestinationPort, port(dice)));
            }
            asked
        })
        .collect()
}

/// One exact rule: what the white paper's experiment has.
pub(crate) fn one() -> Vec<Asked> {
    vec![vec![
        (Field::Source, (0xc612_0001, 0xc612_0001)),
        (Field::Destination, (0xc612_0002, 0xc612_0002)),
        (Field::Protocol, (17, 17)),
        (Field::DestinationPort, (5201, 5201)),
    ]]
}

/// Forty bytes of IPv4 and UDP or TCP; three of four are of a rule.
pub(crate) fn header(dice: &mut SplitMix64, rules: &[Vec<(Field, (u32, u32))>]) -> [u8; 40] {
    let rule = &rules[dice.below(rules.len() as u64) as usize];
    let is_hit = dice.below(4) > 0;
    let mut value = |field: Field, any: u32| {
        let asked = rule.iter().find(|(of, _)| *of == field).filter(|_| is_hit);
        match asked {
            Some((_, (first, last))) => first + dice.below(u64::from(last - first) + 1) as u32,
            None => dice.below(any.into()) as u32,
        }
    };
    let source = value(Field::Source, u32::MAX).to_be_bytes();
    let destination = value(Field::Destination, u32::MAX).to_be_bytes();
    let protocol = [6, 17][(value(Field::Protocol, 2) % 2) as usize];
    let ports =
        [value(Field::SourcePort, 65_536) as u16, value(Field::DestinationPort, 65_536) as u16];
    let mut bytes = [0; 40];
    bytes[..12].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    bytes[12..16].copy_from_slice(&source);
    bytes[16..20].copy_from_slice(&destination);
    bytes[20..22].copy_from_slice(&ports[0].to_be_bytes());
    bytes[22..24].copy_from_slice(&ports[1].to_be_bytes());
    bytes[32] = 5 << 4;
    bytes
}
