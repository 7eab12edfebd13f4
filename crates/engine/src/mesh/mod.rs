//! A mesh: sites that measure between each other, as a coordinator says.
//!
//! Which test is next, what an owner allows and what the results amount to are `linerate-mesh`'s. Here
//! is what moves: the agent of a site with its endpoint, and the bus inside of one process.
//!
//! | module | what is in it |
//! |---|---|
//! | `agent` | a site: its endpoint, its tasks, what came of them |
//! | `bus` | the bus inside of one process |
//! | `run` | a task as a run of this host's |
//! | `unsent` | reports that the bus does not have yet, on the disk |
//! | `used` | what was carried in the last 24 hours, on the disk |

mod agent;
mod bus;
mod run;
mod unsent;
mod used;

pub use crate::own_endpoint::random_key as new_key;
pub use agent::{Agent, AgentError, AgentOptions};
pub use bus::LocalBus;
