//! Mixed loads: several tests at the same time on one clock, and their figures together.
//!
//! A [`Mix`] is data: members, each a [`Test`](crate::plan::Test) with a name and a start. Those
//! that linerate has are files as a user writes them. A [`LoadDocument`] has every member's record,
//! the totals, the latency of each class idle and loaded, and what a call would be worth.
//!
//! | module | what is in it |
//! |---|---|
//! | `mix` | a mix, what an endpoint must allow for it; its file, those that are built in |
//! | `document` | the document: the JSON contract; what a call is worth: the E-model |
//! | `figures` | the document's arithmetic |

mod document;
mod figures;
mod mix;

pub use document::{
    CallQuality, ClassLatency, Codec, LOAD_SCHEMA, LoadDocument, LoadMember, LoadOneWay, LoadTotal,
    WayDelay,
};

pub use mix::{DEFAULT_MIX, MAX_MEMBERS, Member, Mix, MixChoice, built_in, names};

pub(crate) use figures::LOAD_FIGURES;

#[cfg(test)]
mod tests;
