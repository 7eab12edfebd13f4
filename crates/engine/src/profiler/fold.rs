//! From samples to folded stacks: counted by owner and addresses, with the name of each address and
//! the thread of each sample. Each different address is looked up once.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use linerate_core::profile::attribution::plain_name;
use linerate_core::profile::{FoldedStack, MAX_FRAMES, MAX_FUNCTION, TaskClass, USER_FRAME};
use linerate_sys::perf::{Chain, Record, Subject, records};
use linerate_sys::symbols;
use linerate_sys::symbols::KernelSymbols;

/// Functions that enter soft interrupts: since Linux 6.10, and before.
const SOFTIRQ_ENTRIES: [&str; 3] = ["handle_softirqs", "__do_softirq", "__softirqentry_text_start"];
/// Outermost functions of the idle task and of kernel threads.
const IDLE_ROOTS: [&str; 3] = ["do_idle", "cpu_startup_entry", "cpu_idle_poll"];
const THREAD_ROOTS: [&str; 3] = ["kthread", "ret_from_fork", "ret_from_fork_asm"];
/// Frames from the root among which those are looked for.
const ROOT_FRAMES: usize = 6;
/// Different addresses of own code that are looked up at most.
const MAX_OWN: usize = 50_000;
/// Stands for a function of the kernel that has no name here.
const KERNEL_FRAME: &str = "[kernel]";

/// Names of one end's functions, by number: chains are compared many times, names are not.
pub(super) struct Names<'a> {
    kernel: &'a KernelSymbols,
    known: HashMap<u64, Name>,
    /// Functions of this process, by the addresses that were met.
    own: HashMap<u64, Name>,
    texts: Vec<String>,
    /// What each says of a chain that it is in.
    marks: Vec<FunctionMark>,
    numbers: HashMap<String, Name>,
}

/// What a function says of the chain that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FunctionMark {
    /// Frames nearer to the leaf ran in a soft interrupt.
    Softirq,
    /// The root of the idle task.
    IdleRoot,
    /// The root of a kernel thread.
    ThreadRoot,
    Nothing,
}

impl FunctionMark {
    fn new(name: &str) -> Self {
        let name = plain_name(name);
        let marks = [
            (&SOFTIRQ_ENTRIES, Self::Softirq),
            (&IDLE_ROOTS, Self::IdleRoot),
            (&THREAD_ROOTS, Self::ThreadRoot),
        ];
        let found = marks.iter().find(|(names, _)| names.contains(&name));
        found.map_or(Self::Nothing, |(_, mark)| *mark)
    }
}

/// The number of a name.
type Name = u32;
/// [`USER_FRAME`]'s.
const USER: Name = 0;

impl<'a> Names<'a> {
    pub(super) fn new(kernel: &'a KernelSymbols) -> Self {
        let mut names = Self {
            kernel,
            known: HashMap::new(),
            own: HashMap::new(),
            texts: Vec::new(),
            marks: Vec::new(),
            numbers: HashMap::new(),
        };
        assert_eq!(names.number(USER_FRAME), USER, "it is the first");
        names
    }

    fn number(&mut self, name: &str) -> Name {
        let plain = plain(name);
        if let Some(number) = self.numbers.get(&plain) {
            return *number;
        }
        let number = self.texts.len() as Name;
        self.marks.push(FunctionMark::new(&plain));
        self.texts.push(plain.clone());
        self.numbers.insert(plain, number);
        number
    }

    fn text(&self, name: Name) -> &str {
        &self.texts[name as usize]
    }

    /// Looks up this process's own functions in what was counted, all at once.
    pub(super) fn with_own(mut self, counts: &SampleCounts) -> Self {
        let flows = counts.chains().filter(|chain| chain.0 == ThreadOwner::Flow);
        let mut addresses: Vec<u64> = flows.flat_map(|chain| calls(chain.2)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        // Without frame pointers what is taken for an address may be anything.
        addresses.truncate(MAX_OWN);
        let names = symbols::own_names(&addresses);
        for (address, name) in addresses.into_iter().zip(names) {
            if let Some(name) = name {
                let number = self.number(&name);
                self.own.insert(address, number);
            }
        }
        self
    }

    /// The names of a chain in user mode, leaf first; what has none is one frame.
    fn user_frames(&self, chain: &[u64], frames: &mut Vec<Name>) {
        for address in calls(chain) {
            let name = self.own.get(&address).copied().unwrap_or(USER);
            if name != USER || frames.last() != Some(&USER) {
                frames.push(name);
            }
        }
    }

    fn kernel(&mut self, address: u64) -> Name {
        if let Some(name) = self.known.get(&address) {
            return *name;
        }
        let symbols = self.kernel;
        let name = self.number(symbols.name(address).unwrap_or(KERNEL_FRAME));
        self.known.insert(address, name);
        name
    }

    /// The names of a chain, leaf first.
    fn kernel_frames(&mut self, chain: &[u64], frames: &mut Vec<Name>) {
        frames.extend(calls(chain).map(|address| self.kernel(address)));
    }

    fn mark(&self, name: Name) -> FunctionMark {
        self.marks[name as usize]
    }

    /// How many frames from the leaf ran in a soft interrupt: up to the outermost function that
    /// enters one.
    fn softirq_frames(&self, frames: &[Name]) -> usize {
        let is_entry = |name: &Name| self.mark(*name) == FunctionMark::Softirq;
        frames.iter().rposition(is_entry).map_or(0, |at| at + 1)
    }

    fn class(&self, owner: ThreadOwner, frames: &[Name], in_user_mode: bool) -> TaskClass {
        let has_root = |root: FunctionMark| {
            let mut outermost = frames.iter().rev().take(ROOT_FRAMES);
            outermost.any(|name| self.mark(*name) == root)
        };
        match owner {
            ThreadOwner::Flow => TaskClass::Flow,
            ThreadOwner::Tool => TaskClass::Tool,
            ThreadOwner::Neighbour => TaskClass::Other,
            ThreadOwner::Spinner => TaskClass::Idle,
            ThreadOwner::Foreign if in_user_mode => TaskClass::Other,
            ThreadOwner::Foreign if has_root(FunctionMark::IdleRoot) => TaskClass::Idle,
            ThreadOwner::Foreign if has_root(FunctionMark::ThreadRoot) => TaskClass::Kernel,
            ThreadOwner::Foreign => TaskClass::Other,
        }
    }
}

/// Addresses within the functions of a chain, leaf first. All but the leaf's are those of returns,
/// which may already be the next function's.
fn calls(chain: &[u64]) -> impl Iterator<Item = u64> {
    let back = |(depth, address): (usize, &u64)| address.saturating_sub(u64::from(depth > 0));
    chain.iter().enumerate().map(back)
}

/// The name as it may stand in a document, and in a line of folded stacks, which parts names by
/// semicolons.
fn plain(name: &str) -> String {
    let plain = |letter| match letter {
        ' ' => '_',
        ';' => ',',
        _ if char::is_ascii_graphic(&letter) => letter,
        _ => '?',
    };
    name.chars().take(MAX_FUNCTION).map(plain).collect()
}

/// The counted chains by name. In no order: [`linerate_core::profile::EndProfile::bound`] sorts
/// them.
pub(super) fn fold(counts: &SampleCounts, names: &mut Names<'_>) -> Vec<FoldedStack> {
    let mut folded: HashMap<(TaskClass, u32, u32, Vec<Name>), u64> = HashMap::new();
    for (owner, kernel, user, count) in counts.chains() {
        let mut frames = Vec::with_capacity(kernel.len() + user.len());
        names.kernel_frames(kernel, &mut frames);
        let task = names.class(owner, &frames, !user.is_empty());
        let softirq = names.softirq_frames(&frames);
        match task {
            TaskClass::Flow => names.user_frames(user, &mut frames),
            TaskClass::Tool if !user.is_empty() => frames.push(USER),
            TaskClass::Tool | TaskClass::Kernel => {}
            TaskClass::Other | TaskClass::Idle if softirq == 0 => frames.clear(),
            TaskClass::Other | TaskClass::Idle => {}
        }
        frames.truncate(MAX_FRAMES);
        let within = |count: usize| count.min(frames.len()) as u32;
        let key = (task, within(softirq), within(kernel.len()), frames);
        *folded.entry(key).or_default() += count;
    }
    let text = |name: &Name| names.text(*name).to_owned();
    let mut stacks = Vec::with_capacity(folded.len());
    for ((task, softirq_frames, kernel_frames, frames), count) in folded {
        stacks.push(FoldedStack {
            frames: frames.iter().map(text).collect(),
            softirq_frames,
            kernel_frames,
            task,
            count,
        });
    }
    stacks
}

// Samples counted by owner and addresses, as they are drained.

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

// Threads: whose sample it is.

/// Owner of a thread, found by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ThreadOwner {
    /// It carries this end's data.
    Flow,
    /// Another of this end's process.
    Tool,
    /// Of this process, and none of this end's work: the other end's flows, the lab's emulator.
    Neighbour,
    /// Keeps a CPU awake where there is nothing to do.
    Spinner,
    /// Not of this process: another one's, the kernel's, or the idle task. Its call chain tells.
    Foreign,
}

/// Remembers what threads are.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    process: u32,
    flows: Vec<u32>,
    known: HashMap<u32, ThreadOwner>,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self { process: std::process::id(), ..Self::default() }
    }

    /// The threads that carry this end's data, as far as they have begun.
    pub(super) fn set_flows(&mut self, flows: Vec<u32>) {
        if self.flows != flows {
            self.flows = flows;
            self.known.clear();
        }
    }

    pub(super) fn owner(&mut self, process: u32, thread: u32) -> ThreadOwner {
        if process != self.process {
            return ThreadOwner::Foreign;
        }
        if self.flows.contains(&thread) {
            return ThreadOwner::Flow;
        }
        *self.known.entry(thread).or_insert_with(|| {
            let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
            by_name(name.unwrap_or_default().trim_end())
        })
    }
}

/// By the names that threads of linerate have.
fn by_name(name: &str) -> ThreadOwner {
    match name {
        "pump" | "neighbour" => ThreadOwner::Neighbour,
        _ if name.starts_with("flow-") => ThreadOwner::Neighbour,
        _ if name.starts_with(linerate_sys::idle::THREAD_NAME) => ThreadOwner::Spinner,
        _ => ThreadOwner::Tool,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use linerate_sys::perf::Subject;
    use linerate_testkit::{Need, skip};

    use super::*;

    /// Functions one page apart, from 0xffffffff81000000.
    const FUNCTIONS: [&str; 12] = [
        "entry_SYSCALL_64",
        "tcp_sendmsg",
        "__local_bh_enable_ip",
        "handle_softirqs",
        "net_rx_action",
        "tcp_v4_rcv",
        "do_idle",
        "ret_from_fork_asm",
        "kthread",
        "run_ksoftirqd",
        "asm_sysvec_apic_timer_interrupt",
        "tcp_data_queue.isra.0",
    ];
    const BASE: u64 = 0xffff_ffff_8100_0000;
    const KERNEL: u64 = -128_i64 as u64;
    const USER_MARK: u64 = -512_i64 as u64;

    fn symbols() -> KernelSymbols {
        let line = |(n, name): (usize, &&str)| format!("{:x} T {name}\n", BASE + n as u64 * 0x1000);
        let text: String = FUNCTIONS.iter().enumerate().map(line).collect();
        KernelSymbols::parse(&text).unwrap()
    }

    /// Somewhere in a function; what comes back from a call at its end has the next function's
    /// address.
    fn at(name: &str) -> u64 {
        let number = FUNCTIONS.iter().position(|known| *known == name).unwrap();
        BASE + number as u64 * 0x1000 + 0x1000
    }

    /// A PERF_RECORD_SAMPLE of a thread, its kernel frames from leaf to root.
    fn sample(process: u32, thread: u32, frames: &[&str], in_user: bool) -> Vec<u8> {
        let mut words = vec![];
        if !frames.is_empty() {
            words.push(KERNEL);
            words.extend(frames.iter().map(|name| at(name)));
            // A leaf is where it is.
            words[1] -= 1;
        }
        if in_user {
            words.extend([USER_MARK, 0x55aa, 0x55bb]);
        }
        record(process, thread, &words)
    }

    fn record(process: u32, thread: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(9_u32.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(((8 + 24 + words.len() * 8) as u16).to_ne_bytes());
        for word in [process, thread, 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend((words.len() as u64).to_ne_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    const FLOW: u32 = 4_000_001;

    fn folded(samples: &[Vec<u8>]) -> Vec<FoldedStack> {
        let mut tasks = Tasks::new();
        tasks.set_flows(vec![FLOW]);
        let mut counts = SampleCounts::default();
        counts.take(Subject::Cpu(0), &samples.concat(), &mut tasks);
        fold(&counts, &mut Names::new(&symbols()))
    }

    fn one(sample: Vec<u8>) -> FoldedStack {
        let mut folded = folded(&[sample]);
        assert_eq!(folded.len(), 1);
        folded.remove(0)
    }

    const RECEIVING: [&str; 6] = [
        "tcp_v4_rcv",
        "net_rx_action",
        "handle_softirqs",
        "__local_bh_enable_ip",
        "tcp_sendmsg",
        "entry_SYSCALL_64",
    ];

    #[test]
    fn a_softirq_in_a_flows_system_call_keeps_both_parts() {
        let own = std::process::id();
        let stack = one(sample(own, FLOW, &RECEIVING, true));
        assert_eq!(stack.task, TaskClass::Flow);
        assert_eq!(stack.frames[..6], RECEIVING);
        assert_eq!(stack.frames[6..], [USER_FRAME]);
        assert_eq!((stack.softirq_frames, stack.kernel_frames), (3, 6));
    }

    #[test]
    fn of_other_processes_only_soft_interrupts_are_kept() {
        let softirq = one(sample(1, 1, &RECEIVING, true));
        assert_eq!(softirq.task, TaskClass::Other);
        assert_eq!(softirq.frames, RECEIVING);
        for frames in [&["tcp_sendmsg", "entry_SYSCALL_64"][..], &[]] {
            let stack = one(sample(1, 1, frames, true));
            assert_eq!((stack.task, stack.frames.len()), (TaskClass::Other, 0));
        }
    }

    #[test]
    fn the_idle_task_and_kernel_threads_are_told_by_their_roots() {
        let idle = one(sample(0, 0, &["do_idle"], false));
        assert_eq!((idle.task, idle.frames.len()), (TaskClass::Idle, 0));
        let interrupted =
            ["net_rx_action", "handle_softirqs", "asm_sysvec_apic_timer_interrupt", "do_idle"];
        let softirq = one(sample(0, 0, &interrupted, false));
        assert_eq!((softirq.task, softirq.softirq_frames), (TaskClass::Idle, 2));
        // In another namespace of processes a kernel thread has the idle task's number.
        let thread =
            ["net_rx_action", "handle_softirqs", "run_ksoftirqd", "kthread", "ret_from_fork_asm"];
        assert_eq!(one(sample(0, 0, &thread, false)).task, TaskClass::Kernel);
    }

    #[test]
    fn what_is_alike_is_one_stack_and_what_has_no_name_is_the_kernels() {
        let own = std::process::id();
        let sending = ["tcp_sendmsg", "entry_SYSCALL_64"];
        let stacks = folded(&[
            sample(own, FLOW, &sending, true),
            sample(own, FLOW, &sending, true),
            record(own, FLOW, &[KERNEL, 0xffff_8000_0000_0000]),
        ]);
        let counts: Vec<u64> = stacks.iter().map(|stack| stack.count).collect();
        assert_eq!(counts.iter().sum::<u64>(), 3);
        let unknown = stacks.iter().find(|stack| stack.count == 1).unwrap();
        assert_eq!(unknown.frames, [KERNEL_FRAME]);
        let long = format!("{BASE:x} T {}\n", "n".repeat(300));
        let symbols = KernelSymbols::parse(&long).unwrap();
        let mut names = Names::new(&symbols);
        let name = names.kernel(BASE);
        assert_eq!(names.text(name).len(), MAX_FUNCTION);
    }

    #[test]
    fn parts_and_modules_of_functions_are_told_by_their_own_names() {
        for (name, mark) in [
            ("handle_softirqs.constprop.0", FunctionMark::Softirq),
            ("__do_softirq", FunctionMark::Softirq),
            ("do_idle", FunctionMark::IdleRoot),
            ("ret_from_fork_asm", FunctionMark::ThreadRoot),
            ("kthreadd", FunctionMark::Nothing),
        ] {
            assert_eq!(FunctionMark::new(name), mark, "{name}");
        }
    }

    /// The goal of the issue. `cargo test --release -p linerate-engine --lib -- --ignored
    /// --nocapture a_million`
    #[test]
    #[ignore = "a time, which a busy machine does not keep"]
    fn a_million_samples_are_counted_and_named_within_two_seconds() {
        const GOAL: Duration = Duration::from_secs(2);
        let Ok(symbols) = KernelSymbols::read() else {
            skip(Need::Symbols, "the kernel's functions have no addresses here");
            return;
        };
        let base = (BASE..BASE + (1 << 30))
            .step_by(1 << 20)
            .find(|address| symbols.name(*address).is_some())
            .expect("a kernel has functions");
        let mut tasks = Tasks::new();
        tasks.set_flows(vec![FLOW]);
        let mut counts = SampleCounts::default();
        let rings = rings(base);
        let started = (Instant::now(), linerate_sys::thread::cpu_time());
        let took = || (started.0.elapsed(), linerate_sys::thread::cpu_time() - started.1);
        rings.iter().for_each(|ring| counts.take(Subject::Cpu(0), ring, &mut tasks));
        let counted = took();
        let symbols = KernelSymbols::read().expect("it was read before");
        let mut names = Names::new(&symbols).with_own(&counts);
        let stacks = fold(&counts, &mut names);
        let all = took();
        let of_user: usize = names.own.len();
        println!(
            "{} samples counted in {:?}; kernel's table read, {of_user} addresses of this program \
             and {} stacks named by {:?}, \
             {:?} of it CPU time",
            counts.samples,
            counted.0,
            stacks.len(),
            all.0,
            all.1
        );
        assert_eq!((counts.samples, counts.overflow), (1_000_000, 0));
        assert!(of_user > 1000, "{of_user} of this program's have names");
        // Its own time: what others took of this CPU is not symbolising.
        assert!(all.1 < GOAL, "{:?}", all.1);
    }

    /// A million samples of 20,000 different chains: 30 frames over 8 MiB of the kernel, and 10
    /// over 1 MiB of this program.
    fn rings(base: u64) -> Vec<Vec<u8>> {
        let own = own_code();
        let chain = |n: u64| -> Vec<u64> {
            let kernel = |depth: u64| base + (n % 20_000 * 31 + depth * 104_729) * 257 % (8 << 20);
            let user = |depth: u64| {
                let at = (n % 20_000 * 37 + depth * 7919) * 193 % (own.end - own.start);
                own.start + at
            };
            let user = [USER_MARK].into_iter().chain((0..10).map(user));
            let kernel = [KERNEL].into_iter().chain((0..30).map(kernel));
            kernel.chain(user).collect()
        };
        let process = std::process::id();
        let ring = |ring: u64| {
            let numbers = ring * 10_000..(ring + 1) * 10_000;
            let records = numbers.map(|n| record(process, FLOW, &chain(n)));
            records.collect::<Vec<_>>().concat()
        };
        (0..100).map(ring).collect()
    }

    /// A MiB of this program's code.
    fn own_code() -> std::ops::Range<u64> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("it is always there");
        let here = fold as fn(&SampleCounts, &mut Names<'_>) -> Vec<FoldedStack> as usize as u64;
        let ranges = maps.lines().filter_map(|line| {
            let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
            let [begin, end] = [begin, end].map(|hex| u64::from_str_radix(hex, 16));
            Some(begin.ok()?..end.ok()?)
        });
        let code = ranges.into_iter().find(|range| range.contains(&here));
        let code = code.expect("a function is in code");
        code.start..code.end.min(code.start + (1 << 20))
    }

    #[test]
    fn threads_of_this_process_are_told_apart() {
        let own = linerate_sys::thread::thread_id();
        let mut tasks = Tasks::new();
        let process = std::process::id();
        assert_eq!(tasks.owner(process, own), ThreadOwner::Tool);
        assert_eq!(tasks.owner(process + 1, own), ThreadOwner::Foreign);
        tasks.set_flows(vec![own]);
        assert_eq!(tasks.owner(process, own), ThreadOwner::Flow);
        std::thread::Builder::new()
            .name("pump".to_owned())
            .spawn(move || {
                let own = linerate_sys::thread::thread_id();
                assert_eq!(Tasks::new().owner(process, own), ThreadOwner::Neighbour);
            })
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(by_name("flow-3"), ThreadOwner::Neighbour);
        assert_eq!(by_name("sampler"), ThreadOwner::Tool);
    }
}
