//! Attributes a call chain to a layer, and to the end whose work it is.
//!
//! The chain is read from its leaf to its root. The first function of which the table knows a layer
//! decides; what everything uses (locks, allocators, RCU, timers, memory management) says nothing
//! and leaves it to its caller. So a spinlock under a queueing discipline is queueing, and one
//! under the socket is the socket's. Functions that the table does not know leave it to their
//! caller too, but not to a mere entry: what is found between the entry of a system call, an
//! interrupt or a kernel thread and an unknown function is [`Layer::Unattributed`]. Otherwise
//! everything that a process does in the kernel would count as sockets.
//!
//! Bytes that are moved (`memcpy`, `rep_movs_alternative`) are a copy where the caller handles
//! payload (`tcp_sendmsg`), and else their caller's: a header that GSO moves is GSO's.
//! `csum_and_copy_*` copies and sums in one pass; it is not known which of both an instruction was
//! for, so each gets half of its samples.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::{FoldedStack, Layer, TaskClass};
pub use crate::plan::Role;

/// The attribution of a stack's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribution {
    /// The layer.
    pub layer: Layer,
    /// A second one whose work was done in the same pass: each has half of the samples, `layer` the
    /// odd one.
    pub also: Option<Layer>,
}

impl Attribution {
    fn new(layer: Layer) -> Self {
        Self { layer, also: None }
    }

    /// Divides `count` samples among the layers.
    pub fn share(self, count: u64) -> impl Iterator<Item = (Layer, u64)> {
        let second = self.also.map(|layer| (layer, count / 2));
        let first = count - second.map_or(0, |(_, part)| part);
        std::iter::once((self.layer, first)).chain(second)
    }
}

/// The layer of a stack.
pub fn attribute(stack: &FoldedStack) -> Attribution {
    let kernel = kernel_part(stack);
    let has_user = kernel.len() < stack.frames.len();
    let walk = walk(kernel);
    match walk.decided {
        Some(attribution) => attribution,
        None if has_user && !walk.unknown => Attribution::new(Layer::Application),
        None if stack.task == TaskClass::Idle && !walk.unknown => Attribution::new(Layer::Idle),
        None => Attribution::new(Layer::Unattributed),
    }
}

/// The kernel's frames of a stack, leaf first. A peer may say anything of their number.
fn kernel_part(stack: &FoldedStack) -> &[String] {
    let many = (stack.kernel_frames as usize).min(stack.frames.len());
    &stack.frames[..many]
}

struct StackWalk {
    decided: Option<Attribution>,
    /// Whether a function was passed that the table does not know.
    unknown: bool,
}

fn walk(frames: &[String]) -> StackWalk {
    let mut unknown = false;
    let mut moves = false;
    for frame in frames {
        let name = plain_name(frame);
        let decided = match meaning(name) {
            None => {
                unknown = true;
                continue;
            }
            Some(Meaning::Callers) => continue,
            Some(Meaning::Moves) => {
                moves = true;
                continue;
            }
            Some(Meaning::Entry(_)) if unknown => Attribution::new(Layer::Unattributed),
            Some(Meaning::Of(_)) if moves && handles_payload(name) => Attribution::new(Layer::Copy),
            Some(Meaning::Entry(layer) | Meaning::Of(layer)) => Attribution::new(layer),
            Some(Meaning::Both(layer, also)) => Attribution { layer, also: Some(also) },
        };
        return StackWalk { decided: Some(decided), unknown };
    }
    StackWalk { decided: None, unknown }
}

// Names of functions, reduced to the form that the table has.

/// The function's own name: without offset, module, and what a compiler or the kernel's build put
/// before or behind it.
///
/// Compilers split and clone functions (`.isra.0`, `.constprop.0`, `.part.0`, `.cold`,
/// `.llvm.123`), the kernel pads and aliases them (`__pfx_`, `__cfi_`, `__pi_`), kallsyms adds the
/// module (` [veth]`): it is the same function still. User functions may have dots and blanks in
/// their names; they are not asked of the table.
pub fn plain_name(symbol: &str) -> &str {
    let word = symbol.split_whitespace().next().unwrap_or_default();
    let whole = word.split("+0x").next().unwrap_or(word);
    let symbol = PREFIXES.iter().find_map(|prefix| whole.strip_prefix(prefix)).unwrap_or(whole);
    // A dot is no letter of C's names; one at the start is the name of a local label.
    match symbol.char_indices().skip(1).find(|&(_, c)| c == '.') {
        Some((dot, _)) => &symbol[..dot],
        None => symbol,
    }
}

/// The functions of a stack by their own names, from the root to the leaf, as pictures and other
/// tools have them.
pub fn path_from_root(stack: &FoldedStack) -> impl Iterator<Item = &str> {
    let kernel = stack.kernel_frames as usize;
    let frames = stack.frames.iter().enumerate().rev();
    frames.map(move |(at, name)| if at < kernel { plain_name(name) } else { name.as_str() })
}

const PREFIXES: [&str; 3] = ["__pfx_", "__cfi_", "__pi_"];

// The table of functions and their layers. It reads `functions.txt`, which explains its format.

/// The meaning of a function in a call chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// It and whatever it calls belongs to this layer, unless what it calls says something else.
    Of(Layer),
    /// It does the work of two layers in one pass.
    Both(Layer, Layer),
    /// The entry to a part of the kernel: it says where its own time belongs and that of helpers
    /// that it calls, but nothing of functions that the table does not know.
    Entry(Layer),
    /// A general helper: it belongs to its caller.
    Callers,
    /// It moves bytes: a copy where its caller handles payload, otherwise its caller's.
    Moves,
}

/// What the table says of a function, by its plain name; `None` if no pattern fits.
fn meaning(name: &str) -> Option<Meaning> {
    TABLE.meanings.find(name)
}

/// Whether what this function moves is payload.
fn handles_payload(name: &str) -> bool {
    TABLE.payload.find(name).is_some()
}

/// The end of the data that alone calls this function.
fn data_end(name: &str) -> Option<Role> {
    TABLE.ends.find(name)
}

#[derive(Default)]
struct FunctionTable {
    meanings: Index<Meaning>,
    payload: Index<()>,
    ends: Index<Role>,
}

static TABLE: LazyLock<FunctionTable> = LazyLock::new(|| {
    let mut table = FunctionTable::default();
    for line in patterns(include_str!("functions.txt")) {
        match line.expect("a test reads every line") {
            (pattern, Heading::Meaning(meaning)) => table.meanings.insert(pattern, meaning),
            (pattern, Heading::Payload) => table.payload.insert(pattern, ()),
            (pattern, Heading::End(side)) => table.ends.insert(pattern, side),
        }
    }
    table
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heading {
    Meaning(Meaning),
    Payload,
    End(Role),
}

/// The patterns, each with its heading. An error is a line that cannot be read.
fn patterns(text: &str) -> impl Iterator<Item = Result<(&str, Heading), String>> {
    let mut heading = Err("a pattern without a heading".to_owned());
    let is_pattern = |line: &&str| !line.is_empty() && !line.starts_with('#');
    text.lines().filter(is_pattern).filter_map(move |line| {
        let words = line.strip_prefix('[');
        match words.and_then(|words| words.strip_suffix(']')) {
            Some(words) => {
                heading = read_heading(words).ok_or_else(|| format!("the heading [{words}]"));
                None
            }
            None => Some(heading.clone().map(|heading| (line, heading))),
        }
    })
}

fn read_heading(words: &str) -> Option<Heading> {
    let layer = |word: &str| {
        let word = IntoDeserializer::<Error>::into_deserializer(word);
        Layer::deserialize(word).ok()
    };
    let words: Vec<&str> = words.split(' ').collect();
    Some(Heading::Meaning(match words[..] {
        ["of", one] => Meaning::Of(layer(one)?),
        ["both", one, other] => Meaning::Both(layer(one)?, layer(other)?),
        ["entry", one] => Meaning::Entry(layer(one)?),
        ["callers"] => Meaning::Callers,
        ["moves"] => Meaning::Moves,
        ["payload"] => return Some(Heading::Payload),
        ["sender"] => return Some(Heading::End(Role::Sender)),
        ["receiver"] => return Some(Heading::End(Role::Receiver)),
        _ => return None,
    }))
}

/// Patterns, sorted by prefix.
struct Index<T> {
    whole: HashMap<&'static str, T>,
    beginnings: HashMap<&'static str, T>,
    longest: usize,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { whole: HashMap::new(), beginnings: HashMap::new(), longest: 0 }
    }
}

impl<T: Copy> Index<T> {
    /// Takes a name, or the beginning of names with a `*` behind it.
    fn insert(&mut self, pattern: &'static str, value: T) {
        match pattern.strip_suffix('*') {
            Some(beginning) => {
                self.longest = self.longest.max(beginning.len());
                self.beginnings.insert(beginning, value);
            }
            None => {
                self.whole.insert(pattern, value);
            }
        }
    }

    /// The longest pattern that fits; a whole name before a beginning.
    fn find(&self, name: &str) -> Option<T> {
        if let Some(&found) = self.whole.get(name) {
            return Some(found);
        }
        let max = name.len().min(self.longest);
        let mut parts = (1..=max).rev().filter_map(|length| name.get(..length));
        parts.find_map(|part| self.beginnings.get(part).copied())
    }
}

// The end whose work a stack is.

/// The place of the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On another host: all network work of this one is this end's.
    Elsewhere,
    /// On this host, over loopback, veth or an emulated path.
    Here,
}

/// The end whose work a stack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This end's work for the transfer.
    This,
    /// The other end's, on the same host.
    Other,
    /// Nobody's of the two: other processes, the tool's own threads, soft interrupts for disks and
    /// timers.
    Foreign,
    /// A soft interrupt for the network of which the chain does not say which end's it is.
    Untold,
    /// The CPU had nothing to do.
    Idle,
}

/// Whose work a stack is that was taken on the host of an end with this role; `None` of an end that
/// sends and receives: in two directions at once, or requests and responses.
///
/// A thread's own system calls are its end's. Work in a soft interrupt is done in whatever thread
/// the CPU happens to run: if the ends are on two hosts, all that belongs to the network is the
/// host's end's. Over loopback or veth both ends share a host, and the packet that one end sends is
/// received in a soft interrupt *of the sender's thread*: counted by thread, the sender would pay
/// for the receiver. So it is split by call chain:
///
/// 1. Within the soft interrupt the function nearest to the leaf decides that only one end has:
///    `tcp_ack`, `tcp_write_xmit` are the data sender's, `tcp_data_queue`, `__tcp_send_ack`,
///    `udp_queue_rcv_skb` the data receiver's.
/// 2. What both have (`ip_rcv`, `tcp_v4_rcv`, the device's receive path, freeing a buffer there)
///    is told by what the thread sent when the soft interrupt began: data arrive at the receiver,
///    an acknowledgement at the sender.
/// 3. Where that is not seen either (the soft interrupt came from a hardware interrupt or an
///    unlocked socket, or the thread is `ksoftirqd`) it is the receiver's, as most packets carry
///    data. This counts the acknowledgements' way through IP too high for the receiver and too low
///    for the sender; a soft interrupt that works off packets of both kinds is told by the one that
///    began it.
///
/// Entering and leaving soft interrupts (`handle_softirqs` itself) stays with the thread: the chain
/// does not say what for.
///
/// Where both ends send and receive (both directions, request and response), the functions do not
/// tell the ends apart: what a thread of this end sends arrives at the other end, and the other way
/// round; soft interrupts that begin in no thread of either cannot be told.
pub fn owner(stack: &FoldedStack, role: impl Into<Option<Role>>, peer: Place) -> Owner {
    let role = role.into();
    let kernel = kernel_part(stack);
    let softirq = (stack.softirq_frames as usize).min(kernel.len());
    if softirq > 0 {
        return of_softirq(stack, &kernel[..softirq], &kernel[softirq..], role, peer);
    }
    match stack.task {
        TaskClass::Flow => Owner::This,
        TaskClass::Idle => Owner::Idle,
        // A driver's own thread (threaded NAPI) and TCP's work items are soft interrupts in all but
        // name.
        TaskClass::Kernel if is_of_network(kernel) => told(kernel, &[], role, peer, stack.task),
        TaskClass::Kernel | TaskClass::Tool | TaskClass::Other => Owner::Foreign,
    }
}

fn of_softirq(
    stack: &FoldedStack,
    inside: &[String],
    outside: &[String],
    role: Option<Role>,
    peer: Place,
) -> Owner {
    if is_of_network(inside) {
        return told(inside, outside, role, peer, stack.task);
    }
    match (stack.task, attribute(stack).layer) {
        // Entering and leaving the soft interrupt, for whatever it was.
        (TaskClass::Flow, Layer::Scheduling) => Owner::This,
        (TaskClass::Idle, _) => Owner::Idle,
        _ => Owner::Foreign,
    }
}

/// Whether the chain has a function of the network stack.
fn is_of_network(frames: &[String]) -> bool {
    let mut meanings = frames.iter().filter_map(|frame| meaning(plain_name(frame)));
    meanings.any(|found| match found {
        Meaning::Of(layer) | Meaning::Entry(layer) | Meaning::Both(layer, _) => matches!(
            layer,
            Layer::Tcp
                | Layer::Udp
                | Layer::Ip
                | Layer::Offload
                | Layer::Queueing
                | Layer::PacketMemory
                | Layer::Checksum
        ),
        Meaning::Callers | Meaning::Moves => false,
    }) || frames.iter().any(|frame| NETWORK_DOORS.contains(&plain_name(frame)))
}

/// Functions where network work begins. Not `handle_irq_event`, which disks have too.
const NETWORK_DOORS: [&str; 4] =
    ["net_rx_action", "net_tx_action", "__napi_poll", "process_backlog"];

fn told(
    inside: &[String],
    outside: &[String],
    role: Option<Role>,
    peer: Place,
    task: TaskClass,
) -> Owner {
    if peer == Place::Elsewhere {
        return Owner::This;
    }
    let data_end = side(inside).or_else(|| began(outside).map(Role::other));
    match (role, task) {
        (Some(role), _) if role == data_end.unwrap_or(Role::Receiver) => Owner::This,
        (Some(_), _) => Owner::Other,
        // The host's other network work is the other end's: what it sends arrives here.
        (None, TaskClass::Flow) => Owner::Other,
        (None, TaskClass::Other) => Owner::This,
        (None, TaskClass::Tool | TaskClass::Kernel | TaskClass::Idle) => Owner::Untold,
    }
}

/// The side whose function is nearest to the leaf.
fn side(frames: &[String]) -> Option<Role> {
    frames.iter().find_map(|frame| data_end(plain_name(frame)))
}

/// Which side's sending began the soft interrupt, if it was a sending and no hardware interrupt or
/// unlocked socket.
fn began(outside: &[String]) -> Option<Role> {
    let names = || outside.iter().map(|frame| plain_name(frame));
    if names().any(|name| INTERRUPTS.iter().any(|begin| name.starts_with(begin))) {
        return None;
    }
    let sent = names().position(|name| SENDING.contains(&name))?;
    side(&outside[sent..])
}

const SENDING: [&str; 3] = ["__dev_queue_xmit", "__dev_direct_xmit", "ip_finish_output2"];

const INTERRUPTS: [&str; 8] = [
    "asm_common_interrupt",
    "asm_sysvec_",
    "common_interrupt",
    "irq_exit",
    "__irq_exit",
    "sysvec_",
    "run_ksoftirqd",
    "el1_interrupt",
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::TaskClass;
    use super::*;

    /// A stack of a flow's thread: kernel frames from leaf to root, and user code below them.
    fn stack(frames: &str) -> FoldedStack {
        let kernel: Vec<String> = frames.split_whitespace().map(str::to_owned).collect();
        let softirq = kernel.iter().position(|name| name == "handle_softirqs");
        FoldedStack {
            softirq_frames: softirq.map_or(0, |at| at as u32 + 1),
            kernel_frames: kernel.len() as u32,
            frames: kernel.into_iter().chain(["[user]".to_owned()]).collect(),
            task: TaskClass::Flow,
            count: 1,
        }
    }

    fn layer(frames: &str) -> Layer {
        attribute(&stack(frames)).layer
    }

    const CALL: &str = "__x64_sys_sendto x64_sys_call do_syscall_64 entry_SYSCALL_64_after_hwframe";

    #[test]
    fn helpers_belong_to_their_callers() {
        for (frames, expected) in [
            ("_raw_spin_lock htb_enqueue __dev_queue_xmit ip_output", Layer::Queueing),
            ("_raw_spin_lock_bh lock_sock_nested tcp_sendmsg", Layer::Socket),
            ("kmem_cache_alloc_node_noprof __alloc_skb tcp_stream_alloc_skb", Layer::PacketMemory),
            ("__mod_timer sk_reset_timer tcp_rearm_rto tcp_ack", Layer::Tcp),
            ("memset __alloc_skb", Layer::PacketMemory),
            (
                "native_queued_spin_lock_slowpath.part.0 _raw_spin_lock sch_direct_xmit",
                Layer::Queueing,
            ),
            ("clear_page_erms get_page_from_freelist skb_page_frag_refill", Layer::PacketMemory),
            (
                "handle_mm_fault do_user_addr_fault exc_page_fault asm_exc_page_fault",
                Layer::Application,
            ),
            (
                "handle_mm_fault exc_page_fault asm_exc_page_fault rep_movs_alternative \
                 _copy_to_iter",
                Layer::Copy,
            ),
        ] {
            assert_eq!(layer(frames), expected, "{frames}");
        }
    }

    #[test]
    fn moved_bytes_are_a_copy_where_payload_is_handled() {
        for (frames, expected) in [
            ("rep_movs_alternative _copy_from_iter tcp_sendmsg_locked", Layer::Copy),
            // Unwinding by frame pointers loses the caller of a leaf that has no frame of its own.
            ("rep_movs_alternative tcp_sendmsg_locked tcp_sendmsg", Layer::Copy),
            ("__pi_memcpy __ip_append_data.isra.0 ip_make_skb", Layer::Copy),
            ("memcpy skb_segment tcp_gso_segment", Layer::Offload),
            ("memcpy __copy_skb_header __skb_clone", Layer::PacketMemory),
            ("_copy_from_user copy_msghdr_from_user ___sys_sendmsg", Layer::Socket),
        ] {
            assert_eq!(layer(frames), expected, "{frames}");
        }
    }

    #[test]
    fn drivers_are_known_whatever_their_queue_is_called() {
        for frames in [
            "mlx5e_poll_rx_cq [mlx5_core] mlx5e_napi_poll __napi_poll net_rx_action \
             handle_softirqs",
            "ice_clean_rx_irq ice_napi_poll __napi_poll net_rx_action",
            "ixgbe_xmit_frame_ring ixgbe_xmit_frame dev_hard_start_xmit",
            "iowrite16 vp_notify virtqueue_notify start_xmit dev_hard_start_xmit",
            "ena_io_poll __napi_poll net_rx_action",
            "gve_rx_poll gve_napi_poll __napi_poll",
            "tun_net_xmit dev_hard_start_xmit __dev_queue_xmit",
            "veth_xmit dev_hard_start_xmit",
            "unheard_of_clean_rx __napi_poll net_rx_action handle_softirqs",
        ] {
            assert_eq!(layer(frames), Layer::Driver, "{frames}");
        }
    }

    #[test]
    fn programs_and_packet_filters_are_queueing() {
        for frames in [
            "bpf_prog_6deef7357e7b4530_mark tcx_run __dev_queue_xmit ip_finish_output2",
            "nft_cmp_eval nft_do_chain nft_do_chain_ipv4 nf_hook_slow ip_local_out",
            "u32_classify __tcf_classify tcf_classify htb_enqueue",
            "tbf_dequeue __qdisc_run __dev_queue_xmit",
        ] {
            assert_eq!(layer(frames), Layer::Queueing, "{frames}");
        }
    }

    #[test]
    fn one_pass_for_two_layers_is_shared_out() {
        let both = attribute(&stack(
            "csum_partial_copy_generic csum_and_copy_from_iter_full ip_generic_getfrag",
        ));
        let parts: Vec<_> = both.share(7).collect();
        assert_eq!(parts, [(Layer::Copy, 4), (Layer::Checksum, 3)]);
        assert_eq!(layer("csum_partial skb_checksum_help"), Layer::Checksum);
        let alone = Attribution::new(Layer::Tcp).share(7);
        assert_eq!(alone.collect::<Vec<_>>(), [(Layer::Tcp, 7)]);
    }

    #[test]
    fn a_system_call_does_not_own_unknown_functions() {
        let unknown = format!("ext4_finish_bio frobnicate {CALL}");
        assert_eq!(layer(&unknown), Layer::Unattributed);
        assert_eq!(layer("new_function_of_linux_9 tcp_ack"), Layer::Tcp);
        assert_eq!(layer(CALL), Layer::Socket);
        assert_eq!(layer("_raw_spin_lock fdget __x64_sys_sendto"), Layer::Socket);
    }

    #[test]
    fn user_code_is_the_application_and_the_idle_loop_idle() {
        assert_eq!(layer(""), Layer::Application);
        let mut idle = stack("pv_native_safe_halt default_idle do_idle cpu_startup_entry");
        idle.task = TaskClass::Idle;
        assert_eq!(attribute(&idle).layer, Layer::Idle);
        let nothing = FoldedStack { frames: Vec::new(), kernel_frames: 0, ..idle };
        assert_eq!(attribute(&nothing).layer, Layer::Idle);
    }

    proptest! {
        #[test]
        fn any_stack_has_a_layer(
            frames in proptest::collection::vec("\\PC{0,12}|tcp_[a-z]{1,6}|memcpy|handle_softirqs",
                0..12),
            kernel_frames in 0_u32..80,
            softirq_frames in 0_u32..80,
            count in 0_u64..1000,
        ) {
            let stack =
                FoldedStack { frames, softirq_frames, kernel_frames, task: TaskClass::Flow, count };
            let total: u64 = attribute(&stack).share(count).map(|(_, part)| part).sum();
            prop_assert_eq!(total, count);
        }
    }

    #[test]
    fn a_path_begins_at_the_root_and_leaves_user_names_as_they_are() {
        let stack = FoldedStack {
            frames: ["tcp_ack.part.0", "tcp_rcv [tcp]", "Vec<T>::new.cold", "main"]
                .map(str::to_owned)
                .to_vec(),
            softirq_frames: 0,
            kernel_frames: 2,
            task: TaskClass::Flow,
            count: 1,
        };
        let path: Vec<&str> = path_from_root(&stack).collect();
        assert_eq!(path, ["main", "Vec<T>::new.cold", "tcp_rcv", "tcp_ack"]);
    }

    #[test]
    fn what_the_build_added_is_taken_off() {
        for (symbol, name) in [
            ("tcp_ack", "tcp_ack"),
            ("tcp_ack+0x1f/0x80", "tcp_ack"),
            ("__tcp_send_ack.part.0", "__tcp_send_ack"),
            ("nf_confirm.isra.0.cold", "nf_confirm"),
            ("htb_dequeue.cold [sch_htb]", "htb_dequeue"),
            ("foo.constprop.0\t[mod]", "foo"),
            ("bar.llvm.12345", "bar"),
            ("__pfx_tcp_sendmsg", "tcp_sendmsg"),
            ("__pi_memcpy", "memcpy"),
            ("bpf_prog_0f1e2d3c4b5a6978_mark[bpf]", "bpf_prog_0f1e2d3c4b5a6978_mark[bpf]"),
            ("[user]", "[user]"),
            (".L1", ".L1"),
            ("", ""),
        ] {
            assert_eq!(plain_name(symbol), name, "{symbol}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_name_within_it(text in "\\PC{0,40}") {
            prop_assert!(text.contains(plain_name(&text)));
            prop_assert_eq!(plain_name(plain_name(&text)).len() <= text.len(), true);
        }
    }

    fn all() -> Vec<(&'static str, Heading)> {
        let lines: Result<_, String> = patterns(include_str!("functions.txt")).collect();
        lines.unwrap()
    }

    #[test]
    fn every_line_of_the_table_can_be_read() {
        let headings: HashSet<_> =
            all().iter().map(|(_, heading)| format!("{heading:?}")).collect();
        assert_eq!(headings.len(), 23);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_an_error() {
        for text in ["tcp_ack\n", "[of tcpp]\ntcp_ack\n", "[both tcp]\nx\n", "[]\nx\n"] {
            assert!(patterns(text).any(|line| line.is_err()), "{text}");
        }
        let read: Vec<_> = patterns("# why\n\n[of tcp]\ntcp_*\n").collect();
        let meaning = Heading::Meaning(Meaning::Of(Layer::Tcp));
        assert_eq!(read, [Ok(("tcp_*", meaning))]);
    }

    #[test]
    fn no_pattern_stands_twice() {
        let mut seen = HashSet::new();
        for (pattern, heading) in all() {
            let table = std::mem::discriminant(&heading);
            assert!(seen.insert((pattern, table)), "{pattern} stands twice");
        }
    }

    #[test]
    fn patterns_are_names_with_a_star_at_most_at_their_end() {
        for (pattern, _) in all() {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            let sound = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            assert!(name.len() >= 2 && name.chars().all(sound), "{pattern}");
        }
    }

    #[test]
    fn every_pattern_is_found_by_its_own_name() {
        for (pattern, heading) in all() {
            if let Heading::Meaning(says) = heading
                && !pattern.ends_with('*')
            {
                assert_eq!(meaning(pattern), Some(says), "{pattern}");
            }
        }
    }

    #[test]
    fn the_longest_pattern_decides() {
        for (name, says) in [
            ("tcp_sendmsg_locked", Meaning::Of(Layer::Tcp)),
            ("tcp_gro_receive", Meaning::Of(Layer::Offload)),
            ("tcp_v4_send_check", Meaning::Of(Layer::Checksum)),
            ("skb_release_data", Meaning::Of(Layer::PacketMemory)),
            ("skb_copy_bits", Meaning::Of(Layer::Copy)),
            ("skb_segment", Meaning::Of(Layer::Offload)),
            ("__raw_spin_lock", Meaning::Callers),
            ("schedule_idle", Meaning::Entry(Layer::Idle)),
            ("ip_fast_csum", Meaning::Of(Layer::Checksum)),
        ] {
            assert_eq!(meaning(name), Some(says), "{name}");
        }
        assert_eq!(meaning("ext4_finish_bio"), None);
        assert_eq!(meaning(""), None);
        assert_eq!(meaning("größe"), None);
    }

    /// Frames from leaf to root; those up to `handle_softirqs` ran in a soft interrupt.
    fn kernel_stack(task: TaskClass, frames: &str) -> FoldedStack {
        let frames: Vec<String> = frames.split_whitespace().map(str::to_owned).collect();
        let entered = frames.iter().position(|name| name == "handle_softirqs");
        FoldedStack {
            softirq_frames: entered.map_or(0, |at| at as u32 + 1),
            kernel_frames: frames.len() as u32,
            frames,
            task,
            count: 1,
        }
    }

    const DATA_SENT: &str = "do_softirq __local_bh_enable_ip __dev_queue_xmit ip_output \
        __tcp_transmit_skb tcp_write_xmit tcp_sendmsg_locked";
    const ACKNOWLEDGING: &str = "do_softirq __local_bh_enable_ip __dev_queue_xmit ip_output \
        __tcp_transmit_skb __tcp_send_ack.part.0 tcp_cleanup_rbuf tcp_recvmsg";
    const INTERRUPTED: &str = "__irq_exit_rcu sysvec_apic_timer_interrupt \
        asm_sysvec_apic_timer_interrupt tcp_sendmsg_locked";
    const DEVICE: &str = "process_backlog __napi_poll net_rx_action handle_softirqs";

    fn owners(inside: &str, outside: &str, task: TaskClass) -> [Owner; 2] {
        let stack = kernel_stack(task, &format!("{inside} {DEVICE} {outside}"));
        [Role::Sender, Role::Receiver].map(|role| owner(&stack, role, Place::Here))
    }

    const RECEIVERS_WORK: [Owner; 2] = [Owner::Other, Owner::This];
    const SENDERS_WORK: [Owner; 2] = [Owner::This, Owner::Other];

    #[test]
    fn data_received_in_the_senders_thread_are_the_receivers_work() {
        for inside in [
            "tcp_queue_rcv tcp_data_queue tcp_rcv_established tcp_v4_rcv",
            "_raw_spin_unlock_irqrestore sock_def_readable tcp_data_queue tcp_rcv_established",
            "loopback_xmit __tcp_transmit_skb __tcp_send_ack.part.0 tcp_rcv_established",
            "ip_rcv __netif_receive_skb",
            "__udp_enqueue_schedule_skb udp_queue_rcv_one_skb __udp4_lib_rcv ip_local_deliver",
            "",
        ] {
            assert_eq!(owners(inside, DATA_SENT, TaskClass::Flow), RECEIVERS_WORK, "{inside}");
        }
    }

    #[test]
    fn acknowledgements_are_processed_for_the_sender() {
        for inside in [
            "tcp_clean_rtx_queue.constprop.0 tcp_ack tcp_rcv_established tcp_v4_rcv",
            "__alloc_skb tcp_write_xmit __tcp_push_pending_frames tcp_rcv_established",
            "tcp_tsq_handler tcp_tsq_workfn",
        ] {
            assert_eq!(owners(inside, DATA_SENT, TaskClass::Flow), SENDERS_WORK, "{inside}");
        }
        // What both have, after the receiver's thread sent an acknowledgement.
        for inside in ["ip_rcv __netif_receive_skb", "tcp_v4_rcv ip_local_deliver", ""] {
            assert_eq!(owners(inside, ACKNOWLEDGING, TaskClass::Flow), SENDERS_WORK, "{inside}");
        }
    }

    #[test]
    fn work_of_unclear_owner_is_the_receivers() {
        for task in [TaskClass::Flow, TaskClass::Idle, TaskClass::Kernel] {
            assert_eq!(owners("ip_rcv", INTERRUPTED, task), RECEIVERS_WORK);
            assert_eq!(owners("tcp_ack", INTERRUPTED, task), SENDERS_WORK);
        }
    }

    #[test]
    fn entering_the_soft_interrupt_stays_with_the_thread() {
        for outside in [DATA_SENT, ACKNOWLEDGING, INTERRUPTED] {
            let enters = format!("handle_softirqs {outside}");
            for role in [Role::Sender, Role::Receiver] {
                let ask = |task| owner(&kernel_stack(task, &enters), role, Place::Here);
                assert_eq!(ask(TaskClass::Flow), Owner::This);
                assert_eq!(ask(TaskClass::Other), Owner::Foreign);
                assert_eq!(ask(TaskClass::Idle), Owner::Idle);
            }
        }
    }

    #[test]
    fn unlocking_a_socket_sends_nothing() {
        let unlocking = "do_softirq __local_bh_enable_ip release_sock tcp_recvmsg";
        assert_eq!(owners("ip_rcv", unlocking, TaskClass::Flow), RECEIVERS_WORK);
    }

    #[test]
    fn on_two_hosts_the_network_is_the_ends_own() {
        let network = format!("ip_rcv {DEVICE} {INTERRUPTED}");
        for task in [TaskClass::Flow, TaskClass::Idle, TaskClass::Kernel, TaskClass::Other] {
            for role in [Some(Role::Sender), Some(Role::Receiver), None] {
                assert_eq!(
                    owner(&kernel_stack(task, &network), role, Place::Elsewhere),
                    Owner::This
                );
            }
        }
    }

    #[test]
    fn disks_timers_and_other_processes_are_foreign() {
        for (task, frames, expected) in [
            (TaskClass::Flow, "blk_update_request handle_softirqs", Owner::Foreign),
            (TaskClass::Other, "rcu_do_batch rcu_core handle_softirqs", Owner::Foreign),
            (TaskClass::Other, "", Owner::Foreign),
            (TaskClass::Tool, "ksys_read do_syscall_64", Owner::Foreign),
            (TaskClass::Kernel, "ext4_finish_bio kthread", Owner::Foreign),
            (TaskClass::Kernel, "napi_gro_receive napi_threaded_poll kthread", Owner::This),
            (TaskClass::Idle, "handle_softirqs irq_exit_rcu", Owner::Idle),
            (TaskClass::Idle, "do_idle", Owner::Idle),
        ] {
            for place in [Place::Here, Place::Elsewhere] {
                let found = owner(&kernel_stack(task, frames), Role::Receiver, place);
                assert_eq!(found, expected, "{frames}");
            }
        }
    }

    #[test]
    fn with_data_both_ways_what_a_thread_sends_arrives_at_the_other_end() {
        let ask = |task| {
            let stack = kernel_stack(task, &format!("tcp_data_queue {DEVICE} {DATA_SENT}"));
            owner(&stack, None, Place::Here)
        };
        assert_eq!(ask(TaskClass::Flow), Owner::Other);
        assert_eq!(ask(TaskClass::Other), Owner::This);
        assert_eq!(ask(TaskClass::Kernel), Owner::Untold);
    }
}
