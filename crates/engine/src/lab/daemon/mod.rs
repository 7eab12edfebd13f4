//! Labs in the background: one command makes a lab, others use it, and another ends it.
//!
//! A process of its own holds the lab ([`hold_lab`], started by [`start_holder`]); the namespaces
//! are its descriptors and end with it, however it ends. A [`LabDirectory`] finds the labs of this
//! user, enters their hosts and ends them. Nothing but files in that directory is left by one that
//! was killed, and the next look removes those.
//!
//! | module | what is in it |
//! |---|---|
//! | `directory` | the files of labs, and which of them are up |
//! | `state` | the contents of those files, and the answer of a lab's process |
//! | `up`, `hold` | starting that process, and what it does |
//! | `ask` | asking that process, and ending it |
//! | `enter` | moving a process to a lab's host |

mod ask;
mod directory;
mod enter;
mod hold;
mod state;
mod up;

pub use directory::LabDirectory;
pub use hold::hold_lab;
pub use state::{HostState, LabState};
pub use up::start_holder;
