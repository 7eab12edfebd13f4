#![forbid(unsafe_code)]
//! Quantities with their unit in the type, written and read as people write them.
//!
//! | type | text | bare number means |
//! |---|---|---|
//! | [`BitRate`] | `100mbit`, `1.5Gbit/s`, `10kbps`, `100M` | bits per second |
//! | [`ByteCount`] | `64KiB`, `64K` (1024, as iperf3), `1GB` (10⁹), `1460` | bytes |
//! | [`Span`] | `29ms`, `1.5s`, `100us`, `2min` | seconds |
//! | [`Percent`] | `5%`, `0.1%`, `5` | percent |
//! | [`Dscp`] | `EF`, `AF41`, `CS1`, `LE`, `46`, `0x2e` | code point 0–63 |
//! | [`Sizes`] | `1460`, `32,64,128`, `100..9100/500` | bytes |
//! | [`EndpointName`] | `host`, `host:5201`, `[2001:2::1]:5201`, `2001:2::1` | — |
//!
//! Below them what every other module needs: [`Nanos`] of state machines, an IP header's [`Family`]
//! and [`Ecn`], a [`suggestion`] of what a name is meant to be, a [`Caveat`] of figures with the
//! [`End`] that has it, what is [`printable`] of a stranger's text, [`Dice`] and [`SplitMix64`] for
//! numbers from a seed, the [`civil_date`] of a day.
//!
//! ```
//! use linerate_units::{BitRate, ByteCount, Dscp, Span};
//!
//! let rate: BitRate = "100mbit".parse()?;
//! let rtt: Span = "29ms".parse()?;
//! let held = ByteCount((rate.0 as f64 * rtt.as_secs_f64() / 8.0) as u64);
//! assert_eq!(held, ByteCount(362_500));
//! assert_eq!("EF".parse::<Dscp>()?.to_string(), "EF");
//! assert!("12 parsecs".parse::<Span>().is_err());
//! # Ok::<(), linerate_units::TextError>(())
//! ```

mod caveat;
pub mod checksum;
mod date;
mod dscp;
mod end;
mod endpoint;
mod error;
mod ip;
mod quantity;
mod random;
mod text;
mod words;

pub use caveat::{Caveat, CaveatKind, CaveatRemedy};
pub use date::{
    civil_date, deserialize_rfc3339, format_rfc3339, format_rfc3339_seconds, parse_rfc3339,
    rfc3339_fraction_ns,
};
pub use dscp::Dscp;
pub use end::End;
pub use endpoint::{DEFAULT_PORT, EndpointName};
pub use error::{FileError, TextError};
pub use ip::{Ecn, Family, one_host};
pub use quantity::{BitRate, ByteCount, Nanos, Percent, Sizes, Span};
pub use random::{Dice, SplitMix64};
pub use text::{
    digits, is_hidden, listed, parts, printable, quoted, separated, shortened, suggestion,
};
