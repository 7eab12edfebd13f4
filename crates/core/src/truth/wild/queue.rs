//! Queues of the kernel's, where they are and how `tc` makes them.

use std::fmt;

use crate::plan::Direction;
use crate::units::{BitRate, ByteCount};

/// Where a shaper is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The sender sees its queue.
    SendersDevice,
    /// Nobody at the ends does.
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

/// A queue of the kernel's with a rate.
pub(super) struct Queue {
    pub(super) kind: QueueKind,
    pub(super) rate_bps: u64,
    /// What may pass at once, bytes.
    pub(super) burst: u64,
    /// What may wait, bytes.
    pub(super) limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueKind {
    Tbf,
    /// One class, and what waits below it.
    Htb(Leaf),
    Netem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    /// The kernel's default: as many frames as the device's queue holds.
    Kernels,
    /// So many bytes.
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
