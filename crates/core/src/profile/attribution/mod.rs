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
//!
//! | module | what is in it |
//! |---|---|
//! | `name` | a symbol's plain name |
//! | `table` | which function belongs to which layer: `functions.txt`, and how a name finds its pattern |
//! | `owner` | which end's work a stack is |

mod name;
mod owner;
mod table;

pub use crate::plan::Role;
pub use name::{path_from_root, plain_name};
pub use owner::{Owner, Place, owner};

use super::{FoldedStack, Layer, TaskClass};
use table::{Meaning, handles_payload, meaning};

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
}
