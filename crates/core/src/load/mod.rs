//! Mixed loads: several tests beside each other on one clock, and what comes of them together.
//!
//! A [`Mix`] is data: members, each a [`Test`](crate::plan::Test) with a name and a start. Those that
//! linerate has are files as a user writes them. A [`LoadDocument`] has every member's record, the
//! totals, the latency of each class idle and loaded, and what a call would be worth.
//!
//! | module | what is in it |
//! |---|---|
//! | `mix` | a mix, its file, what an endpoint must allow for it |
//! | `built_in` | the mixes that linerate has |
//! | `document` | the document and its arithmetic |
//! | `voice` | what a call is worth: the E-model |

mod built_in;
mod document;
mod mix;
mod voice;

pub use built_in::{DEFAULT_MIX, built_in, names};
pub use document::{
    CallQuality, ClassLatency, LOAD_FIGURES, LOAD_SCHEMA, LoadDocument, LoadMember, LoadOneWay,
    LoadTotal, WayDelay, spread_us,
};
pub use mix::{MAX_MEMBERS, Member, Mix, MixChoice, MixError, MixProblem};
pub use voice::{Codec, mos, rating};

#[cfg(test)]
mod tests;
