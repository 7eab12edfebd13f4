//! What a host is needed for: a path to fill, connections to hold, or the needs of a profile.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::units::{BitRate, Span, listed, words};

/// What a host is needed for.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Need {
    /// The path to fill.
    pub path: Option<NeededPath>,
    /// TCP connections at once.
    pub connections: Option<u64>,
    /// The host's use.
    pub profile: Option<Profile>,
}

/// A path to fill.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NeededPath {
    /// Rate wanted for one connection, bits per second.
    pub rate_bps: f64,
    /// Round-trip time, microseconds.
    pub rtt_us: f64,
    /// The origin of both figures.
    pub origin: NeedOrigin,
}

/// The origin of a path's rate and round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NeedOrigin {
    /// The user gave them.
    Given,
    /// They were measured to a host that the user named.
    Measured,
    /// They are the profile's defaults.
    Profile,
}

/// The use of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Bulk transfers over long paths.
    Wan,
    /// Low latency and high rates over short ones.
    Lan,
    /// Servers and clients with very many connections.
    ManyConnections,
}

impl NeededPath {
    /// The bytes that fill the path: rate × round-trip time.
    pub fn product_bytes(&self) -> f64 {
        self.rate_bps * self.rtt_us / 8e6
    }
}

impl fmt::Display for NeededPath {
    /// `10 Gbit/s over 80 ms`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = BitRate(self.rate_bps as u64);
        write!(f, "{rate} over {} ms", self.rtt_us.round() / 1e3)
    }
}

impl Need {
    /// A path with that rate and round-trip time.
    pub fn of_path(rate: BitRate, rtt: Span) -> Self {
        let path = NeededPath {
            rate_bps: rate.as_f64(),
            rtt_us: rtt.as_secs_f64() * 1e6,
            origin: NeedOrigin::Given,
        };
        Self { path: Some(path), ..Self::default() }
    }

    /// What a profile needs where the user gives nothing else. `speed` is the device's, bits per
    /// second.
    pub fn with_profile(mut self, profile: Profile, speed: Option<u64>) -> Self {
        let path = |rate: f64, rtt_us: f64| NeededPath {
            rate_bps: speed.map_or(rate, |bps| bps as f64),
            rtt_us,
            origin: NeedOrigin::Profile,
        };
        self.profile = Some(profile);
        match profile {
            Profile::Wan => self.path = self.path.or(Some(path(1e9, 100_000.0))),
            Profile::Lan => self.path = self.path.or(Some(path(10e9, 500.0))),
            Profile::ManyConnections => self.connections = self.connections.or(Some(100_000)),
        }
        self
    }
}

words! {
    Profile name { "wan" Wan, "lan" Lan, "many-connections" ManyConnections }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::from_word(text);
        known.ok_or_else(|| format!("it must be {}", listed(Self::WORDS, "or")))
    }
}
