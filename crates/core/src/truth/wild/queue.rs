//! The kernel's queues, their places, and the commands of `tc` that make them.

use std::fmt;

use crate::plan::Direction;
use crate::units::{BitRate, ByteCount};

/// The place of a shaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At the sender's device: the sender sees its queue.
    SendersDevice,
    /// On a router: neither end sees its queue.
    Router,
}

impl Place {
    pub(super) fn at(self, direction: Direction) -> (&'static str, &'static str) {
        let is_up = direction != Direction::Down;
        match (self, is_up) {
            (Self::SendersDevice, true) => (CLIENT, "eth0"),
            (Self::SendersDevice, false) => (SERVER, "eth0"),
            (Self::Router, true) => (ROUTER, "eth1"),
            (Self::Router, false) => (ROUTER, "eth0"),
        }
    }
}

/// A queue of the kernel with a rate.
pub(super) struct Queue {
    pub(super) kind: QueueKind,
    pub(super) rate_bps: u64,
    /// Bytes that may pass at once.
    pub(super) burst: u64,
    /// Bytes that may wait.
    pub(super) limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueKind {
    Tbf,
    /// One class, and the queue below it.
    Htb(Leaf),
    Netem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    /// The kernel's default: as many frames as the device's queue holds.
    Kernels,
    /// A queue of so many bytes.
    Bytes,
    FqCodel,
    Fq,
}

impl Queue {
    /// Commands of `tc`.
    pub(super) fn setup(&self) -> Vec<String> {
        let Self {
            rate_bps: rate,
            burst,
            limit,
            ..
        } = self;
        match self.kind {
            QueueKind::Tbf => vec![format!(
                "qdisc replace dev DEV root tbf rate {rate}bit burst {burst} limit {limit}"
            )],
            QueueKind::Netem => vec![format!(
                "qdisc replace dev DEV root netem rate {rate}bit limit 1000"
            )],
            QueueKind::Htb(leaf) => {
                let below = match leaf {
                    Leaf::Kernels => None,
                    Leaf::Bytes => Some(format!("bfifo limit {limit}")),
                    Leaf::FqCodel => Some("fq_codel".to_owned()),
                    Leaf::Fq => Some("fq".to_owned()),
                };
                let root = "qdisc replace dev DEV root handle 1: htb default 1".to_owned();
                let class = format!(
                    "class replace dev DEV parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit \
                     burst {burst} cburst {burst} quantum 60000"
                );
                let below = below.map(|queue| format!("qdisc add dev DEV parent 1:1 {queue}"));
                [root, class].into_iter().chain(below).collect()
            }
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, limit) = (BitRate(self.rate_bps), ByteCount(self.limit));
        match self.kind {
            QueueKind::Tbf => write!(f, "TBF of {rate} with a queue of {limit}"),
            QueueKind::Htb(Leaf::Bytes) => write!(f, "HTB of {rate} with a queue of {limit}"),
            QueueKind::Htb(Leaf::Kernels) => write!(f, "HTB of {rate}"),
            QueueKind::Htb(Leaf::FqCodel) => write!(f, "HTB of {rate} with fq_codel"),
            QueueKind::Htb(Leaf::Fq) => write!(f, "HTB of {rate} with fq"),
            QueueKind::Netem => write!(f, "netem of {rate}"),
        }
    }
}

const CLIENT: &str = "client";
const SERVER: &str = "server";
pub(super) const ROUTER: &str = "r1";
