//! The two sides of a comparison, and the control that a treatment needs to change only what its
//! name says.

use super::change::DeviceSetting;
use super::error::TreatmentError;
use super::exclusions;
use super::list::{Treatment, Treatments};
use super::table::{Setting, entry_of};
use crate::plan::End;
use crate::value::Value;

/// The two sides of a comparison, with their controls.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The one side.
    pub a: Treatments,
    /// The other.
    pub b: Treatments,
    /// What was added to them and why, for the record; whole sentences.
    pub notes: Vec<String>,
}

/// Holds one side against the other. A treatment that changes more than its name says is given its
/// control on both: where checksum offload differs, segmentation offload, which goes with it, is
/// off. Two sides that are the same are a comparison of a thing with itself, and no error.
///
/// # Errors
/// The control contradicts a treatment that was given, such as `tso=on` beside `checksum_offload`.
pub fn pair(a: &Treatments, b: &Treatments) -> Result<Pair, TreatmentError> {
    let mut made = Pair {
        a: a.clone(),
        b: b.clone(),
        notes: Vec::new(),
    };
    if a == b {
        let note = "Both sides are treated alike: what differs is chance.";
        made.notes.push(note.to_owned());
    }
    for end in [End::Client, End::Server] {
        made.control_checksums(end)?;
    }
    exclusions::check(&made.a)?;
    exclusions::check(&made.b)?;
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
                        return Err(TreatmentError::Excluded {
                            one: checksums.name.to_owned(),
                            other: format!("{}=on", entry.name),
                            why: "comparing checksums needs segmentation off on both sides: Linux \
                                switches it off \
                                  together with them",
                        });
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
                 off together with \
                 checksum offload, and its cost would be taken for that of the checksum.",
                match added.as_slice() {
                    [one] => format!("{one} is"),
                    several => format!("{} are", several.join(", ")),
                }
            ));
        }
        Ok(())
    }
}

/// What goes with checksum offload, and the stack's own segmentation that would take its place.
const CONTROLS: [DeviceSetting; 3] = [DeviceSetting::Tso, DeviceSetting::Uso, DeviceSetting::Gso];
