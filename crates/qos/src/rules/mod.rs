//! The one intermediate form: the rules of one adapter, for each family in the order in which they
//! are asked.
//!
//! A rule is a product of sets, one for each [`Field`] that it asks for; the first rule of the
//! packet's family whose sets hold all the packet's values takes it. The interpreter, the
//! explanation and the code generator read this form and nothing before it.

mod buckets;
mod form;
mod lower;
mod ranges;

pub use crate::packet::{Field, NO_UID};
pub use buckets::{Bucket, Buckets, MAX_BURST_BYTES, MAX_METERED_BYTES, UNITS_PER_BYTE};
pub use form::{Action, Bindings, Cgroup, Rule, RuleSet, Slot};
pub(crate) use lower::protocols_with;
pub use lower::{MAX_RULES, RuleError};
pub use ranges::Ranges;
