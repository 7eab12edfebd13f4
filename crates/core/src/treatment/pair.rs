//! The two sides of a comparison, and the control that a treatment needs to change only what its
//! name says.

use super::change::DeviceSetting;
use super::change::TreatmentError;
use super::list::{Treatment, Treatments};
use super::table::{Setting, entry_of};
use crate::plan::End;
use crate::value::Value;

/// The two sides of a comparison, with their controls.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Side A.
    pub a: Treatments,
    /// Side B.
    pub b: Treatments,
    /// What was added to the sides and why, in whole sentences for the record.
    pub notes: Vec<String>,
}

/// Checks both sides and adds their controls. Where only one side switches checksum offload off,
/// both sides get segmentation offload switched off, because Linux switches it off with checksum
/// offload. Two equal sides are no error: that compares a thing with itself.
///
/// # Errors
/// The control contradicts a treatment that was given, such as `tso=on` beside `checksum_offload`.
pub fn pair(a: &Treatments, b: &Treatments) -> Result<Pair, TreatmentError> {
    let mut made = Pair { a: a.clone(), b: b.clone(), notes: Vec::new() };
    if a == b {
        let note = "Both sides are treated alike: what differs is chance.";
        made.notes.push(note.to_owned());
    }
    for end in [End::Client, End::Server] {
        made.control_checksums(end)?;
    }
    check_exclusions(&made.a)?;
    check_exclusions(&made.b)?;
    Ok(made)
}

impl Pair {
    fn control_checksums(&mut self, end: End) -> Result<(), TreatmentError> {
        let checksums = entry_of(Setting::Device(DeviceSetting::ChecksumOffload));
        if self.a.value_of(end, checksums) == self.b.value_of(end, checksums) {
            return Ok(());
        }
        let mut added = Vec::new();
        for setting in CONTROLS {
            let entry = entry_of(Setting::Device(setting));
            for side in [&mut self.a, &mut self.b] {
                match side.value_of(end, entry) {
                    Some(Value::Switch(false)) => continue,
                    Some(_) => {
                        let why = "comparing checksums needs segmentation off on both sides: \
                            Linux switches it off together with them";
                        let on = format!("{}=on", entry.name);
                        return Err(TreatmentError::excluded(checksums.name, on, why));
                    }
                    None => side.push(Treatment::of_device(entry, end, false))?,
                }
                added.push(entry.name);
            }
        }
        added.dedup();
        if !added.is_empty() {
            self.notes.push(format!(
                "On the {end}'s device {} off on both sides: Linux switches segmentation offload \
                 off together with checksum offload, and its cost would be taken for that of the \
                 checksum.",
                match added.as_slice() {
                    [one] => format!("{one} is"),
                    several => format!("{} are", several.join(", ")),
                }
            ));
        }
        Ok(())
    }
}

/// The settings that Linux switches with checksum offload, and the stack's own segmentation, which
/// would replace segmentation by the device.
const CONTROLS: [DeviceSetting; 3] = [DeviceSetting::Tso, DeviceSetting::Uso, DeviceSetting::Gso];

/// Pairs of treatments that exclude each other at one end, and the reason. The names are without
/// the end.
type Exclusion = (&'static str, &'static str, fn(&Value, &Value) -> bool, &'static str);

/// # Errors
/// Two treatments of one side exclude each other.
pub(super) fn check_exclusions(treatments: &Treatments) -> Result<(), TreatmentError> {
    for end in [End::Client, End::Server] {
        let here: Vec<&Treatment> = treatments.iter().filter(|one| one.is_at(end)).collect();
        for (first, second, excludes, why) in EXCLUSIONS {
            let named = |name: &str| here.iter().find(|one| plain_name(one) == name);
            if let (Some(one), Some(other)) = (named(first), named(second))
                && excludes(one.value(), other.value())
            {
                return Err(TreatmentError::excluded(one, other, why));
            }
        }
    }
    Ok(())
}

fn plain_name(treatment: &Treatment) -> &str {
    treatment.key().unwrap_or(treatment.entry().name)
}

fn always(_: &Value, _: &Value) -> bool {
    true
}

fn off_and_on(one: &Value, other: &Value) -> bool {
    (one, other) == (&Value::Switch(false), &Value::Switch(true))
}

fn on_and_any(one: &Value, _: &Value) -> bool {
    *one == Value::Switch(true)
}

fn differ(one: &Value, other: &Value) -> bool {
    one != other
}

fn less_than(one: &Value, other: &Value) -> bool {
    matches!((one, other), (Value::Number(one), Value::Number(other)) if one < other)
}

const NEEDS_CHECKSUMS: &str = "segmentation by the device needs its checksums";
const SOCKET_WINS: &str = "the option of the socket wins, and the setting would do nothing";

const EXCLUSIONS: &[Exclusion] = &[
    ("checksum_offload", "tso", off_and_on, NEEDS_CHECKSUMS),
    ("checksum_offload", "uso", off_and_on, NEEDS_CHECKSUMS),
    ("quickack", "route_quickack", differ, "the route wins, and the option would do nothing"),
    ("source", "route_source", always, "a bound socket does not ask the route for its address"),
    (
        "mtu",
        "route_mtu",
        less_than,
        "the route would send packets that are too large for the device",
    ),
    ("adaptive_rx", "rx_usecs", on_and_any, "a driver that adapts it sets rx_usecs by itself"),
    ("receive_window", "net.ipv4.tcp_rmem", always, SOCKET_WINS),
    ("send_buffer", "net.ipv4.tcp_wmem", always, SOCKET_WINS),
    ("congestion", "net.ipv4.tcp_congestion_control", always, SOCKET_WINS),
    ("busy_poll", "net.core.busy_read", always, SOCKET_WINS),
];
