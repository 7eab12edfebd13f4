//! The one intermediate form: the rules of one adapter, for each family in the order in which they are asked.
//!
//! A rule is a product of sets, one for each [`Field`] that it asks for; the first rule of the packet's family whose sets
//! hold all the packet's values takes it. The interpreter, the explanation and the code generator read this form and
//! nothing before it.

mod form;
mod lower;

pub use form::{Action, Bindings, Field, Meter, Ranges, Rule, RuleSet, Slot};
pub use lower::RuleError;
