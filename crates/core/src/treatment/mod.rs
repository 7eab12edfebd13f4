//! Treatments: the named, reversible changes that a comparison compares.
//!
//! There is one [`table`] of them. An [`Entry`] says what a treatment changes (a [`Scope`]), which
//! values it takes, what it needs, how it is applied, read back and undone, and what else it
//! changes (docs/treatments.md prints it). A treatment of a socket becomes an option of the plan
//! ([`Treatments::apply_to`]); those of a device, a route or a host become [`HostChange`]s, which
//! the engine applies, journals and undoes, here or at the endpoint.
//!
//! They are written `NAME=VALUE`, several with commas between them, `none` for nothing:
//! `mss=536,server.checksum_offload=off,sysctl:net.ipv4.tcp_sack=0`. A treatment of a socket is at
//! both ends. Every other one is at the client, unless a prefix names the end: `client.` is this
//! host, `server.` the endpoint's. A source address can be set at the client only.
//!
//! [`pair`] checks the two sides of a comparison and gives a treatment that changes more than its
//! name says its control: without checksum offload Linux switches segmentation offload off as well,
//! so it is off on both sides.
//!
//! | module | what is in it |
//! |---|---|
//! | `table` | the treatments, and the kernel settings among them; `table` | puts treatments of sockets into a plan; checks in a record that they had effect |
//! | `value` | kinds of values with their ranges |
//! | `list` | [`Treatments`]: reading and writing them; `list` | contradictions between treatments; the two sides with their controls |
//! | `change` | [`HostChange`]: what is changed on a host; `change` | at which end of the payload a treatment acts; `change` | the errors |
//! | `policy` | the value of `qos`: a policy with the text of its file |

mod change;
mod list;

mod table;

#[cfg(test)]
mod tests;

pub use crate::value::{MAX_POLICY_BYTES, MAX_REMOTE_POLICY_BYTES, QosPolicy, Value, ValueKind};
pub use change::TreatmentError;
pub use change::{DeviceSetting, HostChange, RouteSetting};
pub use change::{Sysctl, sysctl_of, sysctls};
pub use list::{Pair, pair};
pub use list::{Treatment, Treatments};
pub use table::{Entry, Scope, acts_words, refused, table};
