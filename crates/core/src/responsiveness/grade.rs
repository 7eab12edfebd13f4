//! The grade of a path, as one letter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::names;

/// How much a round trip grows under load, as a school grade.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Grade {
    /// Less than 5 ms.
    #[serde(rename = "A+")]
    APlus,
    /// Less than 30 ms.
    A,
    /// Less than 60 ms.
    B,
    /// Less than 200 ms.
    C,
    /// Less than 400 ms.
    D,
    /// 400 ms and more.
    F,
}

/// What each grade is less than, milliseconds that load adds to a round trip; the last has no
/// bound. They are those that people know from the tests of bufferbloat on the Web.
const GRADES: [(Grade, Option<f64>); 6] = [
    (Grade::APlus, Some(5.0)),
    (Grade::A, Some(30.0)),
    (Grade::B, Some(60.0)),
    (Grade::C, Some(200.0)),
    (Grade::D, Some(400.0)),
    (Grade::F, None),
];

impl Grade {
    /// The grade of what load adds to a round trip, µs.
    pub fn new(added_us: f64) -> Self {
        let fits = |bound: Option<f64>| bound.is_none_or(|ms| added_us < ms * 1e3);
        let found = GRADES.iter().find(|(_, bound)| fits(*bound));
        found.map_or(Self::F, |(grade, _)| *grade)
    }
}

names! {
    /// The letter.
    Grade::letter: APlus "A+", A "A", B "B", C "C", D "D", F "F";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grade_is_what_load_adds_and_its_bound_is_the_next_ones() {
        for (added_ms, letter) in [
            (-3.0, "A+"),
            (4.999, "A+"),
            (5.0, "A"),
            (29.9, "A"),
            (30.0, "B"),
            (60.0, "C"),
            (200.0, "D"),
            (400.0, "F"),
            (9e9, "F"),
        ] {
            assert_eq!(Grade::new(added_ms * 1e3).letter(), letter, "{added_ms} ms");
        }
    }
}
