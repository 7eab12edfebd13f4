//! What the agents and the coordinator of a mesh say to each other, as JSON.
//!
//! Whatever comes in was written by somebody else: it is read with bounds, and what is no message is
//! an error and nothing more.

use linerate_core::plan::Test;
use linerate_core::units::{EndpointName, is_hidden};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Of all messages of this module.
pub const VERSION: u32 = 1;
/// Longest message, bytes: a server of NATS takes 1 MiB with its headers.
pub const MAX_MESSAGE: usize = 1000 << 10;
/// Longest document of a run, bytes: as text in a message it may become longer by a tenth or two.
pub const MAX_DOCUMENT: usize = 800 << 10;
/// Longest name, bytes.
const MAX_NAME: usize = 64;
/// Longest address or version, bytes.
const MAX_WORD: usize = 256;
/// Longest reason, bytes.
const MAX_WHY: usize = 1000;
/// Most workloads or runs in one message.
const MAX_ENTRIES: usize = 64;
/// Longest test that an agent believes, seconds.
const MAX_SECONDS: u32 = 3600;

/// An agent says that it is there: at its start, and every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Whose agent it is.
    pub site: String,
    /// Where the others reach its endpoint: `host`, `host:port` or `[v6]:port`; as the mesh's file says
    /// without it.
    pub address: Option<String>,
    /// The workloads that it can run, such as `stream`.
    pub workloads: Vec<String>,
    /// The program's version.
    pub program: String,
    /// Another one for each start of an agent.
    pub life: String,
    /// What it runs now.
    #[serde(default)]
    pub running: Vec<Running>,
}

/// A run that an agent is at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The task's.
    pub id: String,
    /// The site that it is run against.
    pub to: String,
}

/// A site is to run a test against another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// No other task has it, and nobody else can guess it.
    pub id: String,
    /// The test's name.
    pub test: String,
    /// The site that the test is seen from: what is `up` goes from here.
    pub from: String,
    /// The other one.
    pub to: String,
    /// `to` runs it, against `from`.
    #[serde(default)]
    pub turned: bool,
    /// Where the endpoint is that it is run against.
    pub address: String,
    /// What is run.
    pub work: Test,
    /// It must have ended so long after it was taken.
    pub lease_s: u32,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The task's.
    pub id: String,
    /// The test's name.
    pub test: String,
    /// As in the task.
    pub from: String,
    /// As in the task.
    pub to: String,
    /// As in the task.
    #[serde(default)]
    pub turned: bool,
    /// How far it is.
    pub outcome: Outcome,
}

/// How far a task is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It runs.
    Started,
    /// It has ended, and this is its document.
    Finished {
        /// JSON, such as `linerate.record/1`.
        document: String,
    },
    /// It could not be run to its end.
    Failed {
        /// In a sentence.
        why: String,
    },
    /// The site's owner does not allow it.
    Refused {
        /// In a sentence.
        why: String,
    },
}

/// Why a text is no message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Longer than any message.
    #[error("it has {0} bytes; a message has {MAX_MESSAGE} at most")]
    Long(usize),
    /// Of another version of linerate.
    #[error("it is of version {0}; this linerate reads version {VERSION}")]
    Version(u32),
    /// Not JSON, or not what is expected here.
    #[error("it is no message: {0}")]
    Malformed(String),
    /// A part of it is not what it may be.
    #[error("its {0}")]
    Part(&'static str),
}

/// One of the messages.
pub trait Message: Serialize + DeserializeOwned {
    /// Whether each part of it is within its bounds.
    ///
    /// # Errors
    /// The first part that is not.
    fn check(&self) -> Result<(), MessageError>;
}

impl Task {
    /// The site that runs it.
    pub fn runner(&self) -> &str {
        if self.turned { &self.to } else { &self.from }
    }

    /// The site that it is run against.
    pub fn other(&self) -> &str {
        if self.turned { &self.from } else { &self.to }
    }
}

impl Report {
    /// What came of `task`. A document or a reason that is too long is a failure, which is said.
    pub fn new(task: &Task, outcome: Outcome) -> Self {
        let outcome = match outcome {
            Outcome::Finished { document } if document.len() > MAX_DOCUMENT => Outcome::Failed {
                why: format!(
                    "its document has {} bytes, which is too long",
                    document.len()
                ),
            },
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

    /// Told apart from the other reports of its task: sent again it is the same one.
    pub fn key(&self) -> String {
        let kind = match self.outcome {
            Outcome::Started => "started",
            _ => "ended",
        };
        format!("{}.{kind}", self.id)
    }
}

/// The beginning of a reason, which may quote what somebody else has said.
fn short(why: &str) -> String {
    let visible = |c: char| if is_hidden(c) { '?' } else { c };
    why.chars().take(MAX_WHY / 4).map(visible).collect()
}

#[derive(Serialize)]
struct Sent<'a, T> {
    v: u32,
    #[serde(flatten)]
    message: &'a T,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// A message as bytes.
pub fn encode(message: &impl Message) -> Vec<u8> {
    let sent = Sent {
        v: VERSION,
        message,
    };
    serde_json::to_vec(&sent).expect("texts and numbers are JSON")
}

/// The message that those bytes are.
///
/// # Errors
/// They are none, or a part of it is out of bounds.
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
        let is_run = |run: &Running| is_id(&run.id) && is_name(&run.to);
        part("site is no name", is_name(&self.site) && is_id(&self.life))?;
        self.address.as_deref().map_or(Ok(()), address)?;
        part("workloads or runs are too many", few)?;
        part(
            "workloads are none",
            self.workloads.iter().all(|it| is_name(it)),
        )?;
        part("program is no version", is_word(&self.program))?;
        part("runs have no names", self.running.iter().all(is_run))
    }
}

impl Message for Task {
    fn check(&self) -> Result<(), MessageError> {
        names([&self.id, &self.test, &self.from, &self.to])?;
        part("sites are one and the same", self.from != self.to)?;
        address(&self.address)?;
        part("test is none that can be run", self.work.check().is_ok())?;
        part(
            "lease is longer than any test",
            (1..=MAX_SECONDS).contains(&self.lease_s),
        )
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

/// Whether a text can be the name of a site or a test, as a mesh's file has it.
pub fn is_name(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_word)
}

/// Whether a text can be what a task is told by; it is a file's name, too.
pub fn is_id(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_word(text: &str) -> bool {
    text.len() <= MAX_WORD
}

fn part(what: &'static str, holds: bool) -> Result<(), MessageError> {
    if holds {
        Ok(())
    } else {
        Err(MessageError::Part(what))
    }
}

fn names([id, test, from, to]: [&str; 4]) -> Result<(), MessageError> {
    part("id is none", is_id(id))?;
    part("test is no name", is_name(test))?;
    part("site is no name", is_name(from) && is_name(to))
}

fn address(text: &str) -> Result<(), MessageError> {
    let is_one = is_word(text) && text.parse::<EndpointName>().is_ok();
    part("address is no host:port", is_one)
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
    fn a_message_comes_back_as_it_was_sent_and_says_its_version() {
        let task = task();
        assert_eq!(decode::<Task>(&encode(&task)), Ok(task.clone()));
        let document = "{\"schema\":\"linerate.record/1\"}".to_owned();
        let report = Report::new(&task, Outcome::Finished { document });
        assert_eq!(decode::<Report>(&encode(&report)), Ok(report.clone()));
        assert_eq!(report.key(), "5f0c.ended");
        let newer = String::from_utf8(encode(&task)).unwrap();
        let newer = newer.replace("\"v\":1", "\"v\":2");
        assert_eq!(
            decode::<Task>(newer.as_bytes()),
            Err(MessageError::Version(2))
        );
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_its_part() {
        type Change = fn(&mut Task);
        let changes: [(Change, &str); 7] = [
            (|task| task.from = "a b".to_owned(), "site"),
            (|task| task.to = "../x".to_owned(), "site"),
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
    fn a_document_that_no_message_can_carry_is_a_failure_that_is_said() {
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
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Task>(&bytes);
            let _ = decode::<Report>(&bytes);
            let _ = decode::<Presence>(&bytes);
        }
    }
}
