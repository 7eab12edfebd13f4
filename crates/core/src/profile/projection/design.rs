//! The runs that tell the terms apart.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::fit::below;
use super::what_if::CUT;
use crate::plan::{Protocol, Test, Traffic};

/// A point of the design: the test, changed in a way that moves some terms and not others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its name.
    pub name: &'static str,
    /// Bytes of each message in place of the test's own.
    pub message_bytes: Option<u64>,
    /// The state of the path that it is of, and what it changes besides; `S.` and `R.` stand for the sender's and the
    /// receiver's end.
    pub treatments: [&'static str; 2],
    /// Which terms it moves.
    pub tells: &'static str,
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

    /// Its treatments as [`crate::treatment::Treatments`] reads them, the sender being the client or not.
    pub fn treatments(&self, sender_is_client: bool) -> String {
        written(&self.treatments, sender_is_client)
    }
}

/// The points for a transport; the first is the test as it is.
pub fn points(protocol: Protocol) -> &'static [Point] {
    match protocol {
        Protocol::Udp => UDP,
        Protocol::Tcp | Protocol::Mptcp => TCP,
    }
}

/// The points in random order, another one in each round: what drifts while they run then does no point more harm than
/// another.
pub fn in_random_order(points: &[Point], seed: u64, round: u32) -> Vec<Point> {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    dice.set_stream(u64::from(round));
    let mut points = points.to_vec();
    for last in (1..points.len()).rev() {
        points.swap(last, below(&mut dice, last + 1));
    }
    points
}

/// The treatments of a point by its name.
pub(super) fn treatments_of(protocol: Protocol, name: &str) -> [&'static str; 2] {
    let found = points(protocol).iter().find(|point| point.name == name);
    found.map_or(["", ""], |point| point.treatments)
}

/// Treatments with the ends' own names in place of `S.` and `R.`. What comes later takes the place of what came before.
pub(super) fn written(parts: &[&str], sender_is_client: bool) -> String {
    let (sender, receiver) = match sender_is_client {
        true => ("client.", "server."),
        false => ("server.", "client."),
    };
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

const fn point(name: &'static str, treatments: [&'static str; 2], tells: &'static str) -> Point {
    Point {
        name,
        message_bytes: None,
        treatments,
        tells,
    }
}

const fn sized(point: Point, bytes: u64) -> Point {
    Point {
        message_bytes: Some(bytes),
        ..point
    }
}

/// Sizes differ from the usual 128 KiB where a what-if of the same treatment is to be more than the point again.
const TCP: &[Point] = &[
    point("base", ["", ""], "the test as it is"),
    sized(point("writes_4k", ["", ""], "calls from bytes"), 4 << 10),
    sized(
        point("pushed_16k", ["", "nodelay=on"], "large packets from bytes"),
        16 << 10,
    ),
    sized(
        point(
            "pushed_4k",
            ["", "nodelay=on"],
            "calls and large packets from bytes",
        ),
        4 << 10,
    ),
    point("cut", [CUT, ""], "packets from large packets"),
    point("cut_1000", [CUT, "mss=1000"], "packets from bytes"),
    point("cut_536", [CUT, "mss=536"], "packets from bytes"),
    point(
        "joined",
        [CUT, "R.gro=on"],
        "large packets received from packets",
    ),
    point(
        "joined_536",
        [CUT, "R.gro=on,mss=536"],
        "large packets received from packets",
    ),
    point(
        "acknowledged_1000",
        [CUT, ACKNOWLEDGED_1000],
        "acknowledgements from packets",
    ),
    sized(
        point(
            "spliced_64k",
            ["", "zerocopy=on"],
            "bytes copied at the sender",
        ),
        64 << 10,
    ),
    sized(
        point(
            "dropped_64k",
            ["", "discard=on"],
            "bytes copied at the receiver",
        ),
        64 << 10,
    ),
    point(
        "checksummed_1000",
        [CUT, "S.checksum_offload=off,mss=1000"],
        "bytes checksummed",
    ),
];

/// The socket's option lasts for one acknowledgement, and what waits while the receiver reads is acknowledged once
/// (net/ipv4/tcp_input.c, `__tcp_ack_snd_check`).
const ACKNOWLEDGED_1000: &str =
    "mss=1000,R.route_quickack=on,R.sysctl:net.ipv4.tcp_backlog_ack_defer=0";

const UDP: &[Point] = &[
    point("base", ["", ""], "the test as it is"),
    sized(
        point("datagrams_100", ["", ""], "bytes from datagrams"),
        100,
    ),
    sized(
        point("datagrams_700", ["", ""], "bytes from datagrams"),
        700,
    ),
    sized(
        point("datagrams_1400", ["", ""], "bytes from datagrams"),
        1400,
    ),
    sized(
        point("datagrams_1600", ["", ""], "bytes from fragments"),
        1600,
    ),
    sized(
        point("datagrams_2800", ["", ""], "fragments from datagrams"),
        2800,
    ),
    sized(
        point("datagrams_5600", ["", ""], "fragments from datagrams"),
        5600,
    ),
    sized(
        point("datagrams_8400", ["", ""], "fragments from datagrams"),
        8400,
    ),
];

#[cfg(test)]
mod tests {
    use super::super::what_if::{Change, Provable, WHAT_IFS};
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
        for what_if in WHAT_IFS {
            let Some([a, b]) = what_if.sides(true) else {
                assert!(matches!(what_if.proof, Provable::Not(_)));
                continue;
            };
            let read = |text: &str| text.parse::<Treatments>().unwrap();
            assert!(
                pair(&read(&a), &read(&b)).is_ok(),
                "{}: {a} {b}",
                what_if.name
            );
            assert_ne!(a, b, "{}", what_if.name);
        }
    }

    #[test]
    fn what_ifs_start_from_points_that_there_are() {
        for what_if in WHAT_IFS {
            let known = |name| {
                points(what_if.protocol)
                    .iter()
                    .any(|point| point.name == name)
            };
            assert!(known(what_if.from), "{}", what_if.name);
            if let Change::To(point) | Change::AcknowledgeAs(point) = what_if.change {
                assert!(known(point), "{}", what_if.name);
            }
        }
    }

    #[test]
    fn what_comes_later_takes_the_place_of_what_came_before() {
        assert_eq!(
            written(&[CUT, "R.gro=on"], false),
            "server.tso=off,server.gso=off,client.gro=on"
        );
        assert_eq!(written(&["", "none"], true), "none");
    }
}
