//! Samples counted by owner and addresses, as they are drained.

use std::collections::{BTreeMap, HashMap};

use linerate_sys::perf::{Chain, Record, Subject, records};

use super::task::{Tasks, ThreadOwner};

/// Limit for all call chains together, in words of eight bytes. A run has some thousands of
/// different chains of 40 words each.
const MAX_WORDS: usize = 4 << 20;

/// A call chain with its owner, in words: owner, frames of the kernel, and the frames.
type Key = Box<[u64]>;

/// Samples by layer and function.
#[derive(Debug, Default)]
pub(super) struct SampleCounts {
    stacks: HashMap<Key, u64>,
    words: usize,
    /// Samples whose chain there was no room for.
    pub(super) overflow: u64,
    pub(super) samples: u64,
    pub(super) lost: u64,
    pub(super) throttled: u64,
    /// Samples and losses of each CPU.
    pub(super) cpus: BTreeMap<u32, (u64, u64)>,
    chain: Chain,
    scratch: Vec<u64>,
}

const OWNERS: [ThreadOwner; 5] = [
    ThreadOwner::Flow,
    ThreadOwner::Tool,
    ThreadOwner::Neighbour,
    ThreadOwner::Spinner,
    ThreadOwner::Foreign,
];

impl SampleCounts {
    /// Counts the records that a ring gave.
    pub(super) fn take(&mut self, subject: Subject, bytes: &[u8], tasks: &mut Tasks) {
        for record in records(bytes) {
            match record {
                Record::Sample(sample) => {
                    sample.chain_into(&mut self.chain);
                    let owner = tasks.owner(sample.process, sample.thread);
                    self.cpus.entry(sample.cpu).or_default().0 += 1;
                    self.count(owner);
                }
                Record::Lost(records) => {
                    self.lost += records;
                    if let Subject::Cpu(cpu) = subject {
                        self.cpus.entry(cpu).or_default().1 += records;
                    }
                }
                Record::Throttle => self.throttled += 1,
                Record::Unthrottle | Record::Other(_) => {}
            }
        }
    }

    fn count(&mut self, owner: ThreadOwner) {
        self.samples += 1;
        self.scratch.clear();
        let number = OWNERS.iter().position(|known| *known == owner);
        self.scratch.push(number.unwrap_or_default() as u64);
        self.scratch.push(self.chain.kernel.len() as u64);
        self.scratch.extend_from_slice(&self.chain.kernel);
        // What others run in user mode is private: one frame without an address says that they did.
        let user: &[u64] = match owner {
            ThreadOwner::Flow => &self.chain.user,
            _ => &self.chain.user[..self.chain.user.len().min(1)],
        };
        match owner {
            ThreadOwner::Flow => self.scratch.extend_from_slice(user),
            _ => self.scratch.extend(user.iter().map(|_| 0)),
        }
        if let Some(count) = self.stacks.get_mut(self.scratch.as_slice()) {
            *count += 1;
        } else if self.words + self.scratch.len() > MAX_WORDS {
            self.overflow += 1;
        } else {
            self.words += self.scratch.len();
            self.stacks.insert(self.scratch.as_slice().into(), 1);
        }
    }

    /// Each different chain: owner, frames of the kernel, frames in user mode, samples.
    pub(super) fn chains(&self) -> impl Iterator<Item = (ThreadOwner, &[u64], &[u64], u64)> {
        self.stacks.iter().map(|(key, count)| {
            let (kernel, user) = key[2..].split_at(key[1] as usize);
            (OWNERS[key[0] as usize], kernel, user, *count)
        })
    }
}
