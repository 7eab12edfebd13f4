//! A record and two profiles make a document.

use super::document::{PROFILE_SCHEMA, ProfileDocument};
use super::sample::EndProfile;
use crate::record::Record;

impl ProfileDocument {
    /// The document of a run of one direction, with what each end's profiler took.
    pub fn of(record: Record, client: Option<EndProfile>, server: Option<EndProfile>) -> Self {
        let _ = (client, server);
        Self {
            schema: PROFILE_SCHEMA.to_owned(),
            sender: None,
            receiver: None,
            projections: Vec::new(),
            disk: None,
            caveats: Vec::new(),
            record: Box::new(record),
        }
    }
}
