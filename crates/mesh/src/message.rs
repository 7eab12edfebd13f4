//! The messages between the agents and the coordinator of a mesh, as JSON.
//!
//! A message comes from another host and is not trusted: [`decode`] checks every part of it against
//! its bounds.

pub use linerate_core::monitor::keys::is_name;
use linerate_core::plan::Test;
use linerate_core::units::{EndpointName, is_hidden};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name of the coordinator's consumer and of its key.
pub const COORDINATOR: &str = "coordinator";
/// Version of all messages of this module.
pub const VERSION: u32 = 1;
/// Longest message, bytes: a NATS server takes 1 MiB with headers.
pub const MAX_MESSAGE: usize = 1000 << 10;
/// Longest presence, bytes: the coordinator holds one of each site.
pub const MAX_PRESENCE: usize = 32 << 10;
/// Longest document of a run, bytes: quoted in a message it becomes longer by a tenth or two.
pub const MAX_DOCUMENT: usize = 800 << 10;
/// Longest id, bytes.
const MAX_ID: usize = 64;
/// Longest address or version, bytes.
const MAX_WORD: usize = 256;
/// Longest reason, bytes.
const MAX_WHY: usize = 1000;
/// Most workloads or runs in one message.
const MAX_ENTRIES: usize = 64;
/// Longest lease of a task, seconds.
const MAX_LEASE_S: u32 = 3600;

/// An agent is present. It says so at its start and every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// The agent's site.
    pub site: String,
    /// Where the other sites reach its endpoint: `host`, `host:port` or `[v6]:port`; default: the
    /// `host` in the mesh's file.
    pub address: Option<String>,
    /// The workloads that it can run, such as `stream`.
    pub workloads: Vec<String>,
    /// Version of linerate.
    pub program: String,
    /// An id that changes with each start of the agent.
    pub life: String,
    /// Its runs in progress.
    #[serde(default)]
    pub running: Vec<Running>,
}

/// A run in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Id of its task.
    pub id: String,
    /// The site that it is run against.
    pub to: String,
}

/// The coordinator asks a site to run a test against another site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique, and not to be guessed.
    pub id: String,
    /// Name of the test.
    pub test: String,
    /// The site that the payload of an `up` test comes from.
    pub from: String,
    /// The other site.
    pub to: String,
    /// `to` runs the client, against the endpoint of `from`.
    #[serde(default)]
    pub turned: bool,
    /// Address of the endpoint that it is run against.
    pub address: String,
    /// The test to run.
    pub work: Test,
    /// Longest time from taking the task to its end, seconds.
    pub lease_s: u32,
}

/// The outcome of a task, as the site that ran it reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Id of the task.
    pub id: String,
    /// Name of the test.
    pub test: String,
    /// As in the task.
    pub from: String,
    /// As in the task.
    pub to: String,
    /// As in the task.
    #[serde(default)]
    pub turned: bool,
    /// Its state.
    pub outcome: Outcome,
}

/// State of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It runs.
    Started,
    /// It ran to its end.
    Finished {
        /// Its document as JSON, such as `linerate.record/1`.
        document: String,
    },
    /// It did not run to its end.
    Failed {
        /// The reason, a sentence.
        why: String,
    },
    /// The site's owner does not allow it.
    Refused {
        /// The reason, a sentence.
        why: String,
    },
}

/// Why bytes cannot be read as a message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageError {
    /// It is longer than [`MAX_MESSAGE`].
    #[error("it has {0} bytes; a message has {MAX_MESSAGE} at most")]
    Long(usize),
    /// Its version is not [`VERSION`].
    #[error("it is of version {0}; this linerate reads version {VERSION}")]
    Version(u32),
    /// It is not JSON, or not of the expected type.
    #[error("it is no message: {0}")]
    Malformed(String),
    /// A part of it is out of bounds.
    #[error("its {0}")]
    Part(&'static str),
}

/// A message of this module.
pub trait Message: Serialize + DeserializeOwned {
    /// Checks each part against its bounds.
    ///
    /// # Errors
    /// The first part that is out of bounds.
    fn check(&self) -> Result<(), MessageError>;
}

impl Task {
    /// The site that runs it.
    pub fn runner(&self) -> &str {
        if self.turned { &self.to } else { &self.from }
    }

    /// The site whose endpoint it is run against.
    pub fn other(&self) -> &str {
        if self.turned { &self.from } else { &self.to }
    }
}

impl Report {
    /// A report on `task`. A document that is too long for a message becomes a failure; a reason
    /// that is too long is cut.
    pub fn new(task: &Task, outcome: Outcome) -> Self {
        let outcome = match outcome {
            Outcome::Finished { document } if document.len() > MAX_DOCUMENT => {
                let length = document.len();
                let why = format!("its document has {length} bytes, which is too long");
                Outcome::Failed { why }
            }
            Outcome::Failed { why } => Outcome::Failed { why: short(&why) },
            Outcome::Refused { why } => Outcome::Refused { why: short(&why) },
            other => other,
        };
        Self {
            id: task.id.clone(),
            test: task.test.clone(),
            from: task.from.clone(),
            to: task.to.clone(),
            turned: task.turned,
            outcome,
        }
    }

    /// The site that ran it.
    pub fn runner(&self) -> &str {
        if self.turned { &self.to } else { &self.from }
    }

    /// The key under which the bus keeps it once, however often it is sent.
    pub fn key(&self) -> String {
        let kind = match self.outcome {
            Outcome::Started => "started",
            _ => "ended",
        };
        format!("{}.{kind}", self.id)
    }
}

/// The beginning of a reason, without control characters: it may quote another host.
fn short(why: &str) -> String {
    let visible = |c: char| if is_hidden(c) { '?' } else { c };
    why.chars().take(MAX_WHY / 4).map(visible).collect()
}

#[derive(Serialize)]
struct SentMessage<'a, T> {
    v: u32,
    #[serde(flatten)]
    message: &'a T,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// The bytes of a message.
pub fn encode(message: &impl Message) -> Vec<u8> {
    let v = VERSION;
    serde_json::to_vec(&SentMessage { v, message }).expect("texts and numbers are JSON")
}

/// Reads a message and checks it.
///
/// # Errors
/// The bytes are not such a message, or a part of it is out of bounds.
pub fn decode<T: Message>(bytes: &[u8]) -> Result<T, MessageError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(MessageError::Long(bytes.len()));
    }
    let malformed = |error: serde_json::Error| MessageError::Malformed(short(&error.to_string()));
    let Version { v } = serde_json::from_slice(bytes).map_err(malformed)?;
    if v != VERSION {
        return Err(MessageError::Version(v));
    }
    let message: T = serde_json::from_slice(bytes).map_err(malformed)?;
    message.check()?;
    Ok(message)
}

impl Message for Presence {
    fn check(&self) -> Result<(), MessageError> {
        let few = self.workloads.len() <= MAX_ENTRIES && self.running.len() <= MAX_ENTRIES;
        let is_run = |run: &Running| is_id(&run.id) && is_site(&run.to);
        part("site is no name", is_site(&self.site) && is_id(&self.life))?;
        self.address.as_deref().map_or(Ok(()), address)?;
        part("workloads or runs are too many", few)?;
        part("workloads are none", self.workloads.iter().all(|it| is_name(it)))?;
        part("program is no version", self.program.len() <= MAX_WORD)?;
        part("runs have no names", self.running.iter().all(is_run))
    }
}

impl Message for Task {
    fn check(&self) -> Result<(), MessageError> {
        names([&self.id, &self.test, &self.from, &self.to])?;
        part("sites are one and the same", self.from != self.to)?;
        address(&self.address)?;
        part("test is none that can be run", self.work.check().is_ok())?;
        part("lease is longer than any test", (1..=MAX_LEASE_S).contains(&self.lease_s))
    }
}

impl Message for Report {
    fn check(&self) -> Result<(), MessageError> {
        names([&self.id, &self.test, &self.from, &self.to])?;
        match &self.outcome {
            Outcome::Started => Ok(()),
            Outcome::Finished { document } => {
                part("document is too long", document.len() <= MAX_DOCUMENT)
            }
            Outcome::Failed { why } | Outcome::Refused { why } => {
                part("reason is too long", why.len() <= MAX_WHY)
            }
        }
    }
}

/// Whether a text can name a site: a name that is not [`COORDINATOR`]'s. It has a letter or a
/// digit: directories are called after it, and `..` is another one.
pub fn is_site(text: &str) -> bool {
    is_name(text) && text != COORDINATOR && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// Whether a text can be the id of a task: 1 to 64 letters and digits, since files are named by it.
pub fn is_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn part(what: &'static str, holds: bool) -> Result<(), MessageError> {
    if holds { Ok(()) } else { Err(MessageError::Part(what)) }
}

fn names([id, test, from, to]: [&str; 4]) -> Result<(), MessageError> {
    part("id is none", is_id(id))?;
    part("test is no name", is_name(test))?;
    part("site is no name", is_site(from) && is_site(to))
}

fn address(text: &str) -> Result<(), MessageError> {
    let is_address = text.len() <= MAX_WORD && text.parse::<EndpointName>().is_ok();
    part("address is no host:port", is_address)
}

#[cfg(test)]
mod tests {
    use linerate_core::plan::{Draft, Workload};
    use proptest::prelude::*;

    use super::*;

    fn task() -> Task {
        Task {
            id: "5f0c".to_owned(),
            test: "bulk".to_owned(),
            from: "ams".to_owned(),
            to: "fra".to_owned(),
            turned: false,
            address: "192.0.2.1:5201".to_owned(),
            work: Draft::new(Workload::Stream).resolve(7).unwrap(),
            lease_s: 30,
        }
    }

    #[test]
    fn messages_round_trip_and_other_versions_are_refused() {
        let task = task();
        assert_eq!(decode::<Task>(&encode(&task)), Ok(task.clone()));
        let document = "{\"schema\":\"linerate.record/1\"}".to_owned();
        let report = Report::new(&task, Outcome::Finished { document });
        assert_eq!(decode::<Report>(&encode(&report)), Ok(report.clone()));
        assert_eq!(report.key(), "5f0c.ended");
        let newer = String::from_utf8(encode(&task)).unwrap();
        let newer = newer.replace("\"v\":1", "\"v\":2");
        assert_eq!(decode::<Task>(newer.as_bytes()), Err(MessageError::Version(2)));
    }

    #[test]
    fn a_part_out_of_bounds_is_named_in_the_error() {
        type Change = fn(&mut Task);
        let changes: [(Change, &str); 10] = [
            (|task| task.from = "a b".to_owned(), "site"),
            (|task| task.to = "../x".to_owned(), "site"),
            (|task| task.to = "..".to_owned(), "site"),
            (|task| task.from = ".".to_owned(), "site"),
            (|task| task.from = "coordinator".to_owned(), "site"),
            (|task| task.id = String::new(), "id"),
            (|task| task.work.streams = 100_000, "test"),
            (|task| task.to = task.from.clone(), "one and the same"),
            (|task| task.lease_s = 100_000, "lease"),
            (|task| task.address = "a b".to_owned(), "address"),
        ];
        for (change, word) in changes {
            let mut task = task();
            change(&mut task);
            let error = decode::<Task>(&encode(&task)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let long = vec![b' '; MAX_MESSAGE + 1];
        assert!(matches!(decode::<Task>(&long), Err(MessageError::Long(_))));
    }

    #[test]
    fn a_document_too_long_for_a_message_becomes_a_failure() {
        let document = "x".repeat(MAX_DOCUMENT + 1);
        let report = Report::new(&task(), Outcome::Finished { document });
        let Outcome::Failed { why } = &report.outcome else {
            panic!("{:?}", report.outcome);
        };
        assert!(why.contains("too long"), "{why}");
        assert_eq!(report.check(), Ok(()));
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Task>(&bytes);
            let _ = decode::<Report>(&bytes);
            let _ = decode::<Presence>(&bytes);
        }
    }
}
