//! Differentiated-services code points by name.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TextError;

/// A DSCP, 0–63 (RFC 2474): the upper six bits of the IPv4 TOS octet or the IPv6 traffic class.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Dscp(u8);

/// RFC 2474 (CS), 2597 (AF), 3246 (EF), 5865 (VOICE-ADMIT), 8622 (LE).
const NAMES: [(&str, u8); 25] = [
    ("CS0", 0),
    ("BE", 0),
    ("DF", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VOICE-ADMIT", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

impl Dscp {
    /// `None` above 63.
    pub fn new(code_point: u8) -> Option<Self> {
        (code_point < 64).then_some(Self(code_point))
    }

    /// The TOS or traffic-class octet that carries this code point, with the ECN bits zero.
    pub fn octet(self) -> u8 {
        self.0 << 2
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u8::deserialize(deserializer)?)
            .ok_or_else(|| serde::de::Error::custom("a DSCP is 0 to 63"))
    }
}

impl FromStr for Dscp {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let upper = text.trim().to_ascii_uppercase();
        if let Some((_, value)) = NAMES.iter().find(|(name, _)| *name == upper) {
            return Ok(Self(*value));
        }
        let number = match upper.strip_prefix("0X") {
            Some(hex) => u8::from_str_radix(hex, 16).ok(),
            None => upper.parse().ok(),
        };
        number.and_then(Self::new).ok_or_else(|| {
            TextError::new(text, "it must be 0 to 63, or a name such as EF, AF41, CS1, LE")
        })
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_mean_the_same() {
        assert_eq!("ef".parse::<Dscp>(), "46".parse::<Dscp>());
        assert_eq!("0x2e".parse::<Dscp>().unwrap().octet(), 0xb8);
        assert_eq!("AF41".parse::<Dscp>().unwrap().to_string(), "AF41");
        assert!("64".parse::<Dscp>().is_err());
        assert!("AF51".parse::<Dscp>().is_err());
    }
}
