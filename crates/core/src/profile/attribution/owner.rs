//! The end whose work a stack is.
//!
//! A thread's own system calls are its end's. Work in a soft interrupt is done in whatever thread
//! the CPU happens to run: if the ends are on two hosts, all that belongs to the network is the
//! host's end's. Over loopback or veth both ends share a host, and the packet that one end sends is
//! received in a soft interrupt *of the sender's thread*: counted by thread, the sender would pay
//! for the receiver. So it is split by call chain:
//!
//! 1. Within the soft interrupt the function nearest to the leaf decides that only one end has:
//!    `tcp_ack`,
//!    `tcp_write_xmit` are the data sender's, `tcp_data_queue`, `__tcp_send_ack`,
//!    `udp_queue_rcv_skb` the data receiver's.
//! 2. What both have (`ip_rcv`, `tcp_v4_rcv`, the device's receive path, freeing a buffer there) is
//!    told by what the thread sent when the soft interrupt began: data arrive at the receiver, an
//!    acknowledgement at the sender.
//! 3. Where that is not seen either (the soft interrupt came from a hardware interrupt or an
//!    unlocked socket, or the thread is `ksoftirqd`) it is the receiver's, as most packets carry
//!    data. This counts the acknowledgements' way through IP too high for the receiver and too low
//!    for the sender; a soft interrupt that works off packets of both kinds is told by the one that
//!    began it.
//!
//! Entering and leaving soft interrupts (`handle_softirqs` itself) stays with the thread: the chain
//! does not say what for.
//!
//! Where both ends send and receive (both directions, request and response), the functions do not
//! tell the ends apart: what a thread of this end sends arrives at the other end, and the other way
//! round; soft interrupts that begin in no thread of either cannot be told.

use super::super::{FoldedStack, Layer, TaskClass};
use super::{Meaning, data_end, meaning};
use super::{attribute, kernel_part, plain_name};
use crate::plan::Role;

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
    use super::*;

    /// Frames from leaf to root; those up to `handle_softirqs` ran in a soft interrupt.
    fn stack(task: TaskClass, frames: &str) -> FoldedStack {
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
        let stack = stack(task, &format!("{inside} {DEVICE} {outside}"));
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
                let ask = |task| owner(&stack(task, &enters), role, Place::Here);
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
                assert_eq!(owner(&stack(task, &network), role, Place::Elsewhere), Owner::This);
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
                let found = owner(&stack(task, frames), Role::Receiver, place);
                assert_eq!(found, expected, "{frames}");
            }
        }
    }

    #[test]
    fn with_data_both_ways_what_a_thread_sends_arrives_at_the_other_end() {
        let ask = |task| {
            let stack = stack(task, &format!("tcp_data_queue {DEVICE} {DATA_SENT}"));
            owner(&stack, None, Place::Here)
        };
        assert_eq!(ask(TaskClass::Flow), Owner::Other);
        assert_eq!(ask(TaskClass::Other), Owner::This);
        assert_eq!(ask(TaskClass::Kernel), Owner::Untold);
    }
}
