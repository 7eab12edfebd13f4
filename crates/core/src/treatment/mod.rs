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
//! | `table` | the treatments; those of sockets in a plan, and their effect in a record |
//! | `list` | [`Treatments`]: reading and writing them; the two sides with their controls |
//! | `change` | [`HostChange`] and the kernel settings; the end that is acted on; the errors |

mod change;
mod list;

mod table;

#[cfg(test)]
mod tests;

pub use crate::value::{MAX_POLICY_BYTES, MAX_REMOTE_POLICY_BYTES, QosPolicy, Value, ValueKind};
pub use change::{
    DeviceSetting, HostChange, RouteSetting, Sysctl, TreatmentError, sysctl_of, sysctls,
};
pub use list::{Pair, Treatment, Treatments, pair};
pub use table::{Entry, Scope, acts_words, refused, table};
