//! The table of what-ifs. The next one is an entry here.

use super::design::{treatments_of, written};
use super::term::Term;
use crate::plan::Protocol;

/// One change whose worth is projected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WhatIf {
    /// Its name.
    pub name: &'static str,
    /// What would be changed, in words.
    pub says: &'static str,
    /// Transport that it is of.
    pub protocol: Protocol,
    /// Point of the design that it starts from; see [`points`](super::points).
    pub from: &'static str,
    /// What it does.
    pub change: Change,
    /// How it can be had on a real host.
    pub proof: Provable,
}

/// What a change does to the counts, or to what they cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Packets are as in another point of the design.
    To(&'static str),
    /// Packets of this size, bytes from the IP header on.
    Mtu(u32),
    /// Datagrams go whole, however large they are.
    Unfragmented,
    /// The bytes are not copied.
    WithoutCopy {
        /// At the sender.
        sender: bool,
        /// At the receiver.
        receiver: bool,
    },
    /// The CPU computes the checksums that the device computed.
    Checksums,
    /// The device computes the checksums, whoever did.
    ChecksumsByDevice,
    /// As many acknowledgements for each packet received as in another point of the design.
    AcknowledgeAs(&'static str),
    /// So many times as many, or as few.
    Times(Term, f64),
    /// CPUs so many times as fast at both ends.
    Cpu(f64),
    /// A link so many times as fast.
    Link(f64),
}

/// How a change can be had on a real host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Provable {
    /// By these treatments, besides those of the point that it starts from. `S.` and `R.` stand for the sender's and the
    /// receiver's end.
    By(&'static str),
    /// Not by linerate, and why.
    Not(&'static str),
}

/// All of them, in the order in which they are printed.
pub const WHAT_IFS: &[WhatIf] = &[
    tcp(
        "segments_4096",
        "packets of 4096 bytes where the CPU cuts them",
        "cut",
        Change::Mtu(4096),
        Provable::By("S.mtu=4096,R.mtu=4096"),
    ),
    tcp(
        "segments_9000",
        "packets of 9000 bytes where the CPU cuts them",
        "cut",
        Change::Mtu(9000),
        Provable::By("S.mtu=9000,R.mtu=9000"),
    ),
    tcp(
        "segments_9000_offloaded",
        "packets of 9000 bytes where the device cuts them",
        "base",
        Change::Mtu(9000),
        Provable::By("S.mtu=9000,R.mtu=9000"),
    ),
    tcp(
        "segments_9000_joined",
        "packets of 9000 bytes where the CPU cuts and joins them",
        "joined",
        Change::Mtu(9000),
        Provable::By("S.mtu=9000,R.mtu=9000"),
    ),
    tcp(
        "without_segmentation_offload",
        "the CPU cuts the segments and nothing joins them",
        "base",
        Change::To("cut"),
        Provable::By(CUT),
    ),
    tcp(
        "with_receive_offload",
        "segments that the CPU cut are joined before TCP (GRO)",
        "cut",
        Change::To("joined"),
        Provable::By("R.gro=on"),
    ),
    tcp(
        "without_copy_at_sender",
        "no copy at the sender",
        "base",
        Change::WithoutCopy {
            sender: true,
            receiver: false,
        },
        Provable::By("zerocopy=on"),
    ),
    tcp(
        "without_copy_at_receiver",
        "no copy at the receiver",
        "base",
        Change::WithoutCopy {
            sender: false,
            receiver: true,
        },
        Provable::By("discard=on"),
    ),
    tcp(
        "without_copies",
        "no copy at either end",
        "base",
        Change::WithoutCopy {
            sender: true,
            receiver: true,
        },
        Provable::By("zerocopy=on,discard=on"),
    ),
    tcp(
        "checksums_in_software",
        "the CPU computes the checksums",
        "cut",
        Change::Checksums,
        Provable::By("S.checksum_offload=off"),
    ),
    tcp(
        "checksums_by_device",
        "the device computes the checksums, where the CPU does now",
        "base",
        Change::ChecksumsByDevice,
        Provable::Not("it is checksums_in_software the other way round"),
    ),
    tcp(
        "acknowledgement_of_each",
        "each segment that the CPU cut is acknowledged at once",
        "cut",
        Change::AcknowledgeAs("acknowledged_1000"),
        Provable::By("R.route_quickack=on,R.sysctl:net.ipv4.tcp_backlog_ack_defer=0"),
    ),
    tcp(
        "half_the_acknowledgements",
        "half as many acknowledgements",
        "cut",
        Change::Times(Term::Acknowledgement, 0.5),
        Provable::Not("Linux has no setting for it"),
    ),
    tcp(
        "half_the_interrupts",
        "half as many soft interrupts",
        "base",
        Change::Times(Term::Interrupt, 0.5),
        Provable::Not("linerate sets no coalescing of devices"),
    ),
    tcp(
        "cpu_twice_as_fast",
        "CPUs twice as fast at both ends",
        "base",
        Change::Cpu(2.0),
        Provable::Not("it takes other hosts"),
    ),
    tcp(
        "link_ten_times_as_fast",
        "a link ten times as fast",
        "base",
        Change::Link(10.0),
        Provable::Not("it takes another link"),
    ),
    WhatIf {
        name: "records_whole",
        says: "datagrams of 4096 bytes in one packet each, instead of IP's fragments",
        protocol: Protocol::Udp,
        from: "base",
        change: Change::Unfragmented,
        proof: Provable::By("S.mtu=9000,R.mtu=9000"),
    },
];

/// Segments are cut by the sender's CPU and joined by nobody.
pub(super) const CUT: &str = "S.tso=off,S.gso=off,R.gro=off";

const fn tcp(
    name: &'static str,
    says: &'static str,
    from: &'static str,
    change: Change,
    proof: Provable,
) -> WhatIf {
    WhatIf {
        name,
        says,
        protocol: Protocol::Tcp,
        from,
        change,
        proof,
    }
}

impl WhatIf {
    /// The two sides of the comparison that proves it, as [`crate::treatment::Treatments`] reads them; `None` where it cannot
    /// be had.
    pub fn sides(&self, sender_is_client: bool) -> Option<[String; 2]> {
        let Provable::By(by) = self.proof else {
            return None;
        };
        let [state, own] = treatments_of(self.protocol, self.from);
        Some([
            written(&[state, own], sender_is_client),
            written(&[state, own, by], sender_is_client),
        ])
    }
}
