//! The intermediate form: the rules of one adapter, by family, in the order they are tested.
//!
//! A rule is a set for each [`Field`] that it tests; the first rule of the packet's family whose
//! sets contain all the packet's values matches. The interpreter, the explanation and the code
//! generator read only this form.

mod buckets;
mod form;
mod lower;
mod ranges;

pub use crate::packet::Field;
pub use buckets::{Bucket, Buckets};
pub(crate) use buckets::{MAX_METERED_BYTES, UNITS_PER_BYTE};
pub use form::{Action, Bindings, Cgroup, Rule, RuleSet, Slot};
pub(crate) use lower::protocols_with;
pub use lower::{MAX_RULES, RuleError};
pub use ranges::Ranges;
