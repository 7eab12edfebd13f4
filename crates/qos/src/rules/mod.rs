//! The intermediate form: the rules of one adapter, by family, in the order they are tested.
//!
//! A rule is a set for each [`Field`] that it tests; the first rule of the packet's family whose
//! sets contain all the packet's values matches. The interpreter, the explanation and the code
//! generator read only this form.

mod form;
mod lower;

pub use crate::packet::Field;
pub use form::Ranges;
pub use form::{Action, Bindings, Cgroup, Rule, RuleSet, Slot};
pub use form::{Bucket, Buckets};
pub(crate) use form::{MAX_METERED_BYTES, UNITS_PER_BYTE};
pub(crate) use lower::protocols_with;
pub use lower::{MAX_RULES, RuleError};
