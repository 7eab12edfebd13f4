//! A mesh: sites that measure the paths between each other, when a coordinator asks them to.
//!
//! The crate `linerate-mesh` decides which test comes next, what an owner allows and what the
//! results mean. This module does the work: the coordinator, the agent of a site with its endpoint,
//! and a bus inside one process.
//!
//! | module | what is in it |
//! |---|---|
//! | `agent` | the agent of a site: its endpoint, its tasks and their results |
//! | `bus` | a bus inside one process |
//! | `coordinator` | tasks offered to the agents, their reports taken and saved |
//! | `kept` | reports that are kept on disk, such as those that the bus has not taken yet |
//! | `owner` | the limits of the site's owner, for both ends of a test |
//! | `run` | running the test of a task |
//! | `used` | the payload carried in the last 24 hours, on disk |

mod agent;
mod bus;
mod coordinator;
mod error;
mod kept;
mod owner;
mod run;
mod used;

pub use crate::own_endpoint::random_key as new_key;
pub use agent::{Agent, AgentOptions};
pub use bus::LocalBus;
pub use coordinator::{Coordinator, MeshResult, RUN};
pub use error::MeshError;
