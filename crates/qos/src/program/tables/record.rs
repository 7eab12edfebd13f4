//! Effects of actions as records in the tables.

use crate::rules::Action;

use super::super::action::{Asked, Effect, NO_CLASS, NO_DSCP, NO_PRIORITY, Value, octets};
use super::super::assembler::Size;
use super::super::meter::{Metering, NUMBERS, numbers};
use super::content::Content;

/// Offsets in a record.
const SLOT: i16 = 0;
const CLASS: i16 = 4;
const DSCP: i16 = 8;
const VLAN_PRIORITY: i16 = 11;
const DROP: i16 = 12;
const DROP_RED: i16 = 13;
const METER: i16 = 16;

/// Appends a record for each action and returns their positions.
pub(super) fn append(content: &mut Content, actions: &[Action]) -> Vec<u32> {
    let record = |action: &Action| {
        let mut bytes = Vec::with_capacity(METER as usize + 8 * NUMBERS);
        bytes.extend(action.slot.0.to_ne_bytes());
        bytes.extend(action.class.unwrap_or(NO_CLASS).to_ne_bytes());
        bytes.extend(octets(action).map(|octet| octet.unwrap_or(NO_DSCP as u8)));
        bytes.push(action.vlan_priority.unwrap_or(NO_PRIORITY as u8));
        let drop_red = action.meter.is_some_and(|meter| meter.drop_red);
        bytes.extend([u8::from(action.drop), u8::from(drop_red), 0, 0]);
        let meter = action.meter.map_or([0; NUMBERS], |meter| numbers(&meter));
        bytes.extend(meter.iter().flat_map(|number| number.to_ne_bytes()));
        content.append(&bytes)
    };
    actions.iter().map(record).collect()
}

/// The combined effect of the actions.
pub(super) fn effect(actions: &[Action]) -> Effect {
    let asked = |has: &dyn Fn(&Action) -> bool, size, offset, none| {
        let value = Value::Recorded(size, offset);
        match actions.iter().filter(|action| has(action)).count() {
            0 => Asked::Never,
            count if count == actions.len() => Asked::Always(value),
            _ => Asked::Unless(value, none),
        }
    };
    let metered = actions.iter().filter(|action| action.meter.is_some());
    let meter = (metered.count() > 0).then(|| {
        Metering::with(std::array::from_fn(|number| {
            Value::Recorded(Size::Double, METER + 8 * number as i16)
        }))
    });
    Effect {
        slot: Value::Recorded(Size::Word, SLOT),
        dscp: std::array::from_fn(|colour| {
            let has = |action: &Action| octets(action)[colour].is_some();
            asked(&has, Size::Byte, DSCP + colour as i16, NO_DSCP)
        }),
        vlan_priority: asked(
            &|action| action.vlan_priority.is_some(),
            Size::Byte,
            VLAN_PRIORITY,
            NO_PRIORITY,
        ),
        class: asked(&|action| action.class.is_some(), Size::Word, CLASS, NO_CLASS),
        drop: asked(&|action| action.drop, Size::Byte, DROP, 0),
        drop_red: asked(
            &|action| action.meter.is_some_and(|meter| meter.drop_red),
            Size::Byte,
            DROP_RED,
            0,
        ),
        meter,
    }
}
