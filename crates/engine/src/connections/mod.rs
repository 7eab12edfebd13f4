//! TCP connections of this host, whoever's: watched from outside.
//!
//! [`Watch`] looks at the sockets of one network namespace again and again;
//! [`Watch::document`] says what moved, and what holds each back.
//!
//! | module | what is in it |
//! |---|---|
//! | `select` | which connections, in which network namespace |
//! | `watch` | the sockets at each look, and what closed between two |
//! | `evidence` | from one socket's readings to what linerate's own flows leave |
//! | `explain` | a few, with what their programs' threads did |
//! | `document` | from looks to a document |
//! | `listen` | listening sockets and their limits |
//! | `error` | why they cannot be watched |

mod document;
mod error;
mod evidence;
mod explain;
mod listen;
mod select;
mod watch;

pub use error::ConnectionsError;
pub use explain::explain_connections;
pub use listen::listeners;
pub use select::{Place, Selection};
pub use watch::Watch;
