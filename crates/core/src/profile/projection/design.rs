//! The design: the runs from which the costs of the terms can be separated.

use std::sync::LazyLock;

use serde::Deserialize;

use super::NotProjected;
use crate::plan::{Protocol, SocketOptions, StreamTest, Test, Traffic};
use crate::record::Record;
use crate::toml_reader;
use crate::units::Dice;

/// A point of the design: the test, changed in a way that moves some terms and not others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Its transport.
    pub protocol: Protocol,
    /// Its name.
    pub name: &'static str,
    /// Bytes of each message in place of the test's own.
    pub message_bytes: Option<u64>,
    /// The state of the path that it is of, and what it changes besides; `S.` and `R.` stand for
    /// the sender's and the receiver's end.
    pub treatments: [&'static str; 2],
    /// The terms that it varies.
    pub tells: &'static str,
    /// Of one that has Ethernet's MTU on any path: the point that is the same on a path that has it
    /// anyway.
    pub same_on_ethernet: Option<&'static str>,
}

impl Point {
    /// The test at this point.
    pub fn test(&self, base: &Test) -> Test {
        let mut test = base.clone();
        if let (Traffic::Stream(stream), Some(bytes)) = (&mut test.traffic, self.message_bytes) {
            stream.message_bytes = bytes;
        }
        test
    }

    /// Its treatments as [`crate::treatment::Treatments`] reads them, the sender being the client
    /// or not.
    pub fn treatments(&self, sender_is_client: bool) -> String {
        written(&self.treatments, sender_is_client)
    }

    /// Whether a run was what the point is: a device may have the MTU that it was given, and the
    /// path another.
    ///
    /// # Errors
    /// The path carried packets of another size.
    pub fn check(&self, record: &Record) -> Result<(), NotProjected> {
        match record.tcp_sender() {
            Some(tcp) if self.same_on_ethernet.is_some() => {
                NotProjected::unless_mtu(tcp.pmtu_bytes, ETHERNET_MTU)
            }
            _ => Ok(()),
        }
    }
}

/// Ethernet's MTU, bytes: what changes of the size of packets start from, whatever the path has.
pub const ETHERNET_MTU: u32 = 1500;

/// The points for a transport, those of any path; the first is what most changes start from. There
/// are none for MPTCP.
pub fn points(protocol: Protocol) -> impl Iterator<Item = &'static Point> {
    POINTS.iter().filter(move |point| point.protocol == protocol)
}

static POINTS: LazyLock<Vec<Point>> =
    LazyLock::new(|| toml_reader::entries(include_str!("points.toml")));

/// Whether there is a model of a transport.
///
/// # Errors
/// There is none, and why.
pub fn check_transport(protocol: Protocol) -> Result<(), NotProjected> {
    if points(protocol).next().is_some() {
        return Ok(());
    }
    Err(NotProjected::new(
        "there is no model of MPTCP: what its own layer does to each segment is none of the terms, \
         and no setting of the design tells it apart; use --protocol tcp",
    ))
}

/// The points that tell something on a path of that MTU, bytes; all where it is not known.
pub fn points_on(protocol: Protocol, path_mtu_bytes: Option<u32>) -> Vec<Point> {
    let told_by_another =
        |point: &Point| point.same_on_ethernet.is_some() && path_mtu_bytes == Some(ETHERNET_MTU);
    let points = points(protocol).copied();
    points.filter(|point| !told_by_another(point)).collect()
}

/// The point of that name, or the one that is the same on a path of that MTU, bytes.
pub(super) fn point_on(
    protocol: Protocol,
    name: &str,
    path_mtu_bytes: Option<u32>,
) -> Option<&'static Point> {
    let named = |name: &str| points(protocol).find(|point| point.name == name);
    let point = named(name)?;
    match point.same_on_ethernet {
        Some(same) if path_mtu_bytes == Some(ETHERNET_MTU) => named(same),
        _ => Some(point),
    }
}

/// The test that the runs of a transport's design are made from. That of UDP is not what was asked
/// for but 1981's records: datagrams of 4096 bytes, each by itself, as fast as they go.
pub fn design_of(protocol: Protocol, asked: &Test) -> Test {
    let mut test = asked.clone();
    if protocol != Protocol::Udp {
        return test;
    }
    test.protocol = Protocol::Udp;
    test.options = SocketOptions::default();
    if let Traffic::Stream(stream) = &mut test.traffic {
        let (batch, train) = (stream.batch, stream.train);
        *stream = StreamTest { batch, train, ..StreamTest::new(RECORD_BYTES) };
    }
    test
}

/// The points in random order, another one in each round: what drifts while they run then does no
/// point more harm than another.
pub fn in_random_order(points: &[Point], seed: u64, round: u32) -> Vec<Point> {
    let mut points = points.to_vec();
    Dice::new(seed, u64::from(round)).shuffle(&mut points);
    points
}

/// Treatments with the ends' own names in place of `S.` and `R.`. What comes later takes the place
/// of what came before.
pub(super) fn written(parts: &[&str], sender_is_client: bool) -> String {
    let (sender, receiver) =
        if sender_is_client { ("client.", "server.") } else { ("server.", "client.") };
    let mut all: Vec<&str> = Vec::new();
    let given = parts.iter().flat_map(|part| part.split(','));
    for one in given.filter(|one| !one.is_empty() && *one != "none") {
        let key = |text: &str| text.split('=').next().map(str::to_owned);
        all.retain(|other| key(other) != key(one));
        all.push(one);
    }
    if all.is_empty() {
        return "none".to_owned();
    }
    all.join(",").replace("S.", sender).replace("R.", receiver)
}

/// 1981's records, bytes.
const RECORD_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::super::what_if::{Change, Provable, what_ifs};
    use super::*;
    use crate::treatment::{Treatments, pair};

    #[test]
    fn every_point_and_proof_can_be_had() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for point in points(protocol) {
                for sender_is_client in [true, false] {
                    let text = point.treatments(sender_is_client);
                    let read = text.parse::<Treatments>();
                    assert!(read.is_ok(), "{}: {text}: {read:?}", point.name);
                }
            }
        }
        for what_if in what_ifs() {
            for mtu in [None, Some(ETHERNET_MTU), Some(9000)] {
                let Some([a, b]) = what_if.sides(true, mtu) else {
                    assert!(matches!(what_if.proof, Provable::Not(_)));
                    continue;
                };
                let read = |text: &str| text.parse::<Treatments>().unwrap();
                let pair = pair(&read(&a), &read(&b));
                assert!(pair.is_ok(), "{}: {a} {b}", what_if.name);
                assert_ne!(a, b, "{}", what_if.name);
            }
        }
    }

    #[test]
    fn packets_larger_than_ethernets_are_compared_with_ethernets() {
        for what_if in what_ifs() {
            let larger = matches!(what_if.change, Change::Mtu(_) | Change::Unfragmented);
            let Some([a, b]) = what_if.sides(true, Some(9000)) else {
                continue;
            };
            for end in ["client.mtu=", "server.mtu="] {
                let is_ethernets = a.contains(&format!("{end}{ETHERNET_MTU}"));
                assert_eq!(is_ethernets, larger, "{}: {a}", what_if.name);
                assert_eq!(b.contains(end), larger, "{}: {b}", what_if.name);
            }
        }
    }

    #[test]
    fn a_path_that_has_ethernets_mtu_needs_no_points_of_it() {
        let names = |mtu| {
            let points = points_on(Protocol::Tcp, mtu).into_iter();
            points.map(|point| point.name).collect::<Vec<_>>()
        };
        let pinned = |names: Vec<&str>| names.iter().filter(|n| n.starts_with("ethernet")).count();
        assert_eq!(pinned(names(Some(ETHERNET_MTU))), 0);
        assert_eq!(pinned(names(Some(9000))), 3);
        assert_eq!(pinned(names(None)), 3);
        for point in points(Protocol::Tcp).filter(|point| point.same_on_ethernet.is_some()) {
            let same = point_on(Protocol::Tcp, point.name, Some(ETHERNET_MTU)).unwrap();
            let without_mtu = |text: String| {
                let parts = text.split(',').filter(|one| !one.contains(".mtu=") && *one != "none");
                parts.map(str::to_owned).collect::<Vec<_>>()
            };
            let (own, same) = (point.treatments(true), same.treatments(true));
            assert_eq!(without_mtu(own), without_mtu(same), "{}", point.name);
        }
    }

    #[test]
    fn there_is_no_model_of_mptcp() {
        assert!(check_transport(Protocol::Mptcp).is_err());
        assert_eq!(check_transport(Protocol::Tcp), Ok(()));
        assert_eq!(check_transport(Protocol::Udp), Ok(()));
    }

    #[test]
    fn what_ifs_start_from_points_of_the_design() {
        for what_if in what_ifs() {
            let known = |name| points(what_if.protocol).any(|point| point.name == name);
            assert!(known(what_if.from), "{}", what_if.name);
            if let Change::To(point) | Change::AcknowledgeAs(point) | Change::InterruptsAs(point) =
                what_if.change
            {
                assert!(known(point), "{}", what_if.name);
            }
        }
    }

    #[test]
    fn a_later_value_replaces_an_earlier_one() {
        assert_eq!(
            written(&["S.tso=off,S.gso=off,R.gro=off", "R.gro=on"], false),
            "server.tso=off,server.gso=off,client.gro=on"
        );
        assert_eq!(written(&["", "none"], true), "none");
    }
}
