//! Treatments: the named, reversible changes that a comparison holds against each other.
//!
//! There is one [`table`] of them. An [`Entry`] says what a treatment changes (a [`Scope`]), which
//! values it takes, what it needs, how it is applied, read back and undone, and what else it
//! changes (docs/treatments.md prints it). A treatment of a socket becomes an option of the plan
//! ([`Treatments::apply_to`]); those of a device, a route or a host become [`HostChange`]s, which
//! the engine applies, journals and undoes, here or at the endpoint.
//!
//! They are written `NAME=VALUE`, several with commas between them, `none` for nothing:
//! `mss=536,server.checksum_offload=off,sysctl:net.ipv4.tcp_sack=0`. A treatment of a socket is at
//! both ends. Every other one is at the client; before its name may stand whose it is, `client.`
//! for this host, `server.` for the endpoint's. A source is the client's alone.
//!
//! [`pair`] checks the two sides of a comparison and gives a treatment that changes more than its
//! name says its control: without checksum offload Linux switches segmentation offload off as well,
//! so it is off on both sides.
//!
//! | module | what is in it |
//! |---|---|
//! | `table`, `sysctl` | the treatments, and the kernel settings among them |
//! | `value` | kinds of values with their ranges |
//! | `list` | [`Treatments`]: reading and writing them |
//! | `change` | [`HostChange`]: what is changed on a host |
//! | `policy` | the value of `qos`: a policy with the text of its file |
//! | `place` | at which end of the payload a treatment acts |
//! | `effect` | treatments of sockets, put into a plan; whether a treatment shows in the record of a run |
//! | `pair` | what does not go together; two sides and their control |
//! | `error` | what can be wrong with them |

mod change;
mod effect;
mod error;
mod list;
mod pair;
mod place;

mod sysctl;
mod table;

#[cfg(test)]
mod tests;

pub use crate::value::{MAX_POLICY_BYTES, MAX_REMOTE_POLICY_BYTES, QosPolicy, Value, ValueKind};
pub use change::{DeviceSetting, HostChange, RouteSetting};
pub use error::TreatmentError;
pub use list::{MAX_TREATMENTS, Treatment, Treatments};
pub use pair::{Pair, pair};
pub use sysctl::{Sysctl, sysctl_of, sysctls};
pub use table::{Entry, Scope, acts_words, refused, table};
