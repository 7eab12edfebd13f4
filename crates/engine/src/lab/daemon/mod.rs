//! Labs in the background: made by one command, used by others, ended by a last one.
//!
//! A process of its own holds the lab ([`hold_lab`], started by [`start_holder`]); the namespaces
//! are its descriptors and end with it, however it ends. A [`LabDirectory`] finds the labs of this
//! user, enters their hosts and ends them. Nothing but files in that directory is left by one that
//! was killed, and the next look removes those.
//!
//! | module | what is in it |
//! |---|---|
//! | `directory` | the files of labs, and which of them are up |
//! | `state` | what they say, and what a lab's process answers |
//! | `up`, `hold` | starting that process, and being it |
//! | `ask` | asking and ending it |
//! | `enter` | becoming a process of a lab's host |
//! | `error` | what can go wrong |

mod ask;
mod directory;
mod enter;
mod error;
mod hold;
mod state;
mod up;

pub use directory::LabDirectory;
pub use error::DaemonError;
pub use hold::hold_lab;
pub use state::{HostState, LabState};
pub use up::start_holder;
