//! The table of what-ifs. A new one is an entry in `what_ifs.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::NotProjected;
use super::design::{Point, point_on, written};
use super::observation::of_ip;
use super::state::Term;
use crate::plan::Protocol;
use crate::record::Record;
use crate::toml_reader;

/// A change whose effect is projected.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatIf {
    /// Its name.
    pub name: &'static str,
    /// What would be changed, in words.
    pub says: &'static str,
    /// The transport it applies to.
    pub protocol: Protocol,
    /// Point of the design that it starts from; on a path of Ethernet's MTU the one that is the
    /// same there.
    pub from: &'static str,
    /// The change.
    pub change: Change,
    /// Way to apply the change on a real host.
    pub proof: Provable,
}

/// The effect of a change on the counts or on their costs.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Packets as at another point of the design.
    To(&'static str),
    /// Packets of this size, bytes from the IP header on.
    Mtu(u32),
    /// Datagrams are not fragmented, whatever their size.
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
    /// Soft interrupts per byte as at another point of the design.
    InterruptsAs(&'static str),
    /// Multiplies the count by this factor.
    Times(Term, f64),
    /// CPUs faster by this factor at both ends.
    Cpu(f64),
    /// A link faster by this factor.
    Link(f64),
}

/// How a change can be applied on a real host.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provable {
    /// By these treatments, besides those of the point that it starts from. `S.` and `R.` stand for
    /// the sender's and the receiver's end.
    By(&'static str),
    /// linerate cannot apply it, for this reason.
    Not(&'static str),
}

/// All what-ifs, in the order in which they are printed.
pub fn what_ifs() -> &'static [WhatIf] {
    static ENTRIES: LazyLock<Vec<WhatIf>> =
        LazyLock::new(|| toml_reader::entries(include_str!("what_ifs.toml")));
    &ENTRIES
}

/// The what-ifs of a transport.
pub fn what_ifs_of(protocol: Protocol) -> impl Iterator<Item = &'static WhatIf> {
    let is_of = move |what_if: &&WhatIf| what_if.protocol == protocol;
    what_ifs().iter().filter(is_of)
}

impl WhatIf {
    /// The point that it starts from on a path of that MTU, bytes; on one whose MTU is not known,
    /// one that has its MTU anyway.
    pub(super) fn start(&self, path_mtu_bytes: Option<u32>) -> &'static Point {
        point_on(self.protocol, self.from, path_mtu_bytes)
            .expect("it starts from a point that there is, which a test holds")
    }

    /// The two sides of the comparison that proves it on a path of that MTU, bytes, as
    /// [`crate::treatment::Treatments`] reads them; `None` where it cannot be had.
    pub fn sides(
        &self,
        sender_is_client: bool,
        path_mtu_bytes: Option<u32>,
    ) -> Option<[String; 2]> {
        let Provable::By(by) = self.proof else {
            return None;
        };
        let [state, own] = self.start(path_mtu_bytes).treatments;
        Some([
            written(&[state, own], sender_is_client),
            written(&[state, own, by], sender_is_client),
        ])
    }

    /// Whether a run with the change had it: what devices have, the path between them may not.
    ///
    /// # Errors
    /// Nothing arrived, the packets are of another size, or fragments still.
    pub fn check(&self, record: &Record) -> Result<(), NotProjected> {
        let nothing_arrived = record.bytes() == 0;
        let why = match (self.change, record.tcp_sender()) {
            // The path dropped larger packets without a word.
            (Change::Mtu(_) | Change::Unfragmented, _) if nothing_arrived => {
                "nothing arrived: the path may not carry such packets"
            }
            _ if nothing_arrived => "nothing arrived in a run with it",
            (Change::Mtu(mtu), Some(tcp)) => {
                return NotProjected::unless_mtu(tcp.pmtu_bytes, mtu);
            }
            (Change::Unfragmented, _) if is_fragmented(record) => {
                "the datagrams were fragmented still: the path carries no packets of that size"
            }
            _ => return Ok(()),
        };
        Err(NotProjected::new(why))
    }
}

/// Each datagram that is fragmented makes two fragments or more.
fn is_fragmented(record: &Record) -> bool {
    let fragments = |sender| of_ip(sender, "FragCreates");
    let sender = record.leg().and_then(|leg| leg.sender.as_ref());
    let sent = record.udp().map_or(0, |udp| udp.sent);
    sender.map_or(0.0, fragments) > sent as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a record says of the packets that the path carried, and of ten datagrams.
    fn record(bytes: u64, pmtu: u32, fragments: u64) -> Record {
        let json = format!(
            r#"{{"schema":"linerate.record/1","status":"complete","started_at":"2026-01-01T00:00:00Z","host":"pit",
            "peer":"198.18.0.2:5201","workload":"stream","protocol":"tcp","family":"ipv4","direction":"up",
            "plan":{{"workload":"stream","message_bytes":4096,"send":"copy","receive":"read","protocol":"tcp","direction":"up",
                "streams":1,"extent":{{"time":1.0}},"warm_up":0.0,"interval":1.0,"options":{{}},"seed":1}},
            "seconds":1.0,"legs":[{{"direction":"up","bytes":{bytes},"tcp":{{"mss_bytes":1448,"pmtu_bytes":{pmtu}}},"udp":{{"sent":10}},
            "sender":{{"counters":{{"IpFragCreates":{fragments}}}}}}}],"environment":{{"client":{{}}}},"seed":1}}"#
        );
        serde_json::from_str(&json).expect("as the types have it")
    }

    fn named(name: &str) -> &'static WhatIf {
        let mut all = what_ifs().iter();
        all.find(|what_if| what_if.name == name).expect("it is in the table")
    }

    #[test]
    fn a_change_that_the_path_does_not_carry_is_none() {
        let larger = named("segments_9000");
        assert_eq!(larger.check(&record(1, 9000, 0)), Ok(()));
        let why = |what_if: &WhatIf, record| what_if.check(&record).unwrap_err().to_string();
        assert_eq!(
            why(larger, record(1, 1500, 0)),
            "the path carries packets of 1500 bytes, not 9000"
        );
        assert_eq!(
            why(larger, record(0, 9000, 0)),
            "nothing arrived: the path may not carry such packets"
        );

        let whole = named("records_whole");
        // Fragments of somebody else's.
        assert_eq!(whole.check(&record(1, 9000, 4)), Ok(()));
        assert!(why(whole, record(1, 9000, 30)).starts_with("the datagrams were fragmented still"));

        let copies = named("without_copies");
        assert_eq!(copies.check(&record(1, 1500, 0)), Ok(()));
        assert_eq!(why(copies, record(0, 1500, 0)), "nothing arrived in a run with it");
    }

    #[test]
    fn a_point_of_ethernets_mtu_has_it_on_the_path_too() {
        let start = named("segments_9000").start(Some(9000));
        assert_eq!(start.check(&record(1, 1500, 0)), Ok(()));
        assert!(start.check(&record(1, 1400, 0)).is_err());
        let base = named("without_copies").start(Some(9000));
        assert_eq!(base.check(&record(1, 9000, 0)), Ok(()));
    }
}
