//! Addresses to names, and call chains to folded stacks. Each different address is looked up once.

use std::collections::HashMap;
use std::rc::Rc;

use linerate_core::profile::{FoldedStack, MAX_FRAMES, MAX_FUNCTION, TaskClass, USER_FRAME};
use linerate_sys::kallsyms::KernelSymbols;

use super::count::Counts;
use super::task::Owner;

/// Functions that enter soft interrupts: since Linux 6.10, and before.
const SOFTIRQ_ENTRIES: [&str; 3] = [
    "handle_softirqs",
    "__do_softirq",
    "__softirqentry_text_start",
];
/// Outermost functions of the idle task and of kernel threads.
const IDLE_ROOTS: [&str; 3] = ["do_idle", "cpu_startup_entry", "cpu_idle_poll"];
const THREAD_ROOTS: [&str; 3] = ["kthread", "ret_from_fork", "ret_from_fork_asm"];
/// Frames from the root among which those are looked for.
const ROOT_FRAMES: usize = 6;
/// Stands for a function of the kernel that has no name here.
const KERNEL_FRAME: &str = "[kernel]";

/// Names of one end's functions.
pub(super) struct Names<'a> {
    kernel: &'a KernelSymbols,
    known: HashMap<u64, Rc<str>>,
    user: Rc<str>,
}

impl<'a> Names<'a> {
    pub(super) fn new(kernel: &'a KernelSymbols) -> Self {
        Self {
            kernel,
            known: HashMap::new(),
            user: USER_FRAME.into(),
        }
    }

    fn kernel(&mut self, address: u64) -> Rc<str> {
        let symbols = self.kernel;
        let name = self
            .known
            .entry(address)
            .or_insert_with(|| plain(symbols.name(address).unwrap_or(KERNEL_FRAME)).into());
        Rc::clone(name)
    }

    /// The names of a chain, leaf first. All addresses but the leaf's are those of returns, which may already be the next
    /// function's.
    fn kernel_frames(&mut self, chain: &[u64], frames: &mut Vec<Rc<str>>) {
        for (depth, address) in chain.iter().enumerate() {
            let within = address.saturating_sub(u64::from(depth > 0));
            frames.push(self.kernel(within));
        }
    }
}

/// The name as it may stand in a document.
fn plain(name: &str) -> String {
    let letters = name.chars().take(MAX_FUNCTION);
    letters
        .map(|letter| {
            if letter.is_ascii_graphic() {
                letter
            } else {
                '?'
            }
        })
        .collect()
}

/// The counted chains by name. In no order: [`linerate_core::profile::EndProfile::bound`] sorts them.
pub(super) fn fold(counts: &Counts, names: &mut Names<'_>) -> Vec<FoldedStack> {
    let mut folded: HashMap<(TaskClass, u32, u32, Vec<Rc<str>>), u64> = HashMap::new();
    for (owner, kernel, user, count) in counts.chains() {
        let mut frames = Vec::with_capacity(kernel.len() + 1);
        names.kernel_frames(kernel, &mut frames);
        let task = class(owner, &frames, !user.is_empty());
        let softirq = softirq_frames(&frames);
        match task {
            TaskClass::Flow | TaskClass::Tool | TaskClass::Kernel => {
                if !user.is_empty() {
                    frames.push(Rc::clone(&names.user));
                }
            }
            TaskClass::Other | TaskClass::Idle if softirq == 0 => frames.clear(),
            TaskClass::Other | TaskClass::Idle => {}
        }
        frames.truncate(MAX_FRAMES);
        let within = |count: usize| count.min(frames.len()) as u32;
        let key = (task, within(softirq), within(kernel.len()), frames);
        *folded.entry(key).or_default() += count;
    }
    let stack =
        |((task, softirq_frames, kernel_frames, frames), count): ((_, _, _, Vec<Rc<str>>), _)| {
            FoldedStack {
                frames: frames.iter().map(|name| name.to_string()).collect(),
                softirq_frames,
                kernel_frames,
                task,
                count,
            }
        };
    folded.into_iter().map(stack).collect()
}

/// How many frames from the leaf ran in a soft interrupt: up to the outermost function that enters one.
fn softirq_frames(frames: &[Rc<str>]) -> usize {
    let is_entry = |name: &Rc<str>| SOFTIRQ_ENTRIES.contains(&without_suffix(name));
    frames.iter().rposition(is_entry).map_or(0, |at| at + 1)
}

fn class(owner: Owner, frames: &[Rc<str>], in_user_mode: bool) -> TaskClass {
    let has_root = |roots: &[&str]| {
        let from_root = frames.iter().rev().take(ROOT_FRAMES);
        from_root
            .map(|n| without_suffix(n))
            .any(|name| roots.contains(&name))
    };
    match owner {
        Owner::Flow => TaskClass::Flow,
        Owner::Tool => TaskClass::Tool,
        Owner::Neighbour => TaskClass::Other,
        Owner::Spinner => TaskClass::Idle,
        Owner::Foreign if in_user_mode => TaskClass::Other,
        Owner::Foreign if has_root(&IDLE_ROOTS) => TaskClass::Idle,
        Owner::Foreign if has_root(&THREAD_ROOTS) => TaskClass::Kernel,
        Owner::Foreign => TaskClass::Other,
    }
}

/// Without what the compiler adds to the parts and copies of a function: `.isra.0`, `.constprop.0`, `.part.0`, `.cold`.
fn without_suffix(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}
