//! The letter of 1981 (Joy and Fabry, TCP-IP Digest 1, 6): from 1.2 Mbit/s and the shares of five
//! layers it projects what six changes would bring, one after the other. Its table has seven rows,
//! the first of which was measured and follows by arithmetic. Which of the six others do the shares
//! alone give?
//!
//! The shares say how much of the time a layer takes, not what its work is counted in. A
//! [`Reading`] says that: how much of the Ethernet's is for each byte and not for each frame, how
//! much of IP's for each frame and not for each segment, how much of the system call's for each
//! byte copied and not for each record. Both ends are taken to be alike, as the shares are of one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by panicking"
)]

use std::fmt::Write;
use std::path::Path;
use std::sync::OnceLock;

use linerate_core::profile::projection::{PerTerm, Term};

/// A figure of the letter that comes out within this of the shares' is said to follow: its own are
/// rounded to two digits.
const TOLERANCE: f64 = 0.05;
/// Readings are tried in steps of this.
const STEPS: u32 = 20;

/// What the layers' work is counted in, as shares of it, 0–1.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    /// Of the Ethernet's: bytes; the rest are frames.
    ethernet_bytes: f64,
    /// Of IP's: frames; the rest are segments.
    ip_frames: f64,
    /// Of the system call's: bytes copied; the rest are records.
    call_copies: f64,
}

/// Each layer by what it is named for: a frame, a segment, a record, and the checksum by the byte.
const SIMPLEST: Reading = Reading { ethernet_bytes: 0.0, ip_frames: 0.0, call_copies: 0.0 };

/// How a figure comes by the shares.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Follows {
    /// The simplest reading gives it.
    FromShares,
    /// Another reading does; the shares do not say which is right.
    FromReading,
    /// No reading does.
    NeedsMore,
}

struct Row {
    change: String,
    letter_mbit: f64,
    simplest_mbit: f64,
    range_mbit: [f64; 2],
    nearest: Reading,
    follows: Follows,
}

fn table(name: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let mut reader = csv::Reader::from_path(path).unwrap();
    let rows = reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect());
    rows.collect()
}

/// A layer's share of the time, 0–1.
fn share(layer: &str) -> f64 {
    static ROWS: OnceLock<Vec<Vec<String>>> = OnceLock::new();
    let rows = ROWS.get_or_init(|| table("bsd_1981_layers.csv"));
    let row = rows.iter().find(|row| row[0] == layer).expect(layer);
    row[1].parse::<f64>().unwrap() / 100.0
}

/// The letter's figures, Mbit/s, with their names.
fn figures() -> &'static [(String, f64)] {
    static FIGURES: OnceLock<Vec<(String, f64)>> = OnceLock::new();
    FIGURES.get_or_init(|| {
        let rows = table("bsd_1981_projection.csv");
        rows.iter().map(|row| (row[0].clone(), row[3].parse().unwrap())).collect()
    })
}

impl Reading {
    fn all() -> impl Iterator<Item = Self> {
        let part = |n: u32| f64::from(n) / f64::from(STEPS);
        (0..=STEPS).flat_map(move |e| {
            (0..=STEPS).flat_map(move |i| {
                (0..=STEPS).map(move |c| Self {
                    ethernet_bytes: part(e),
                    ip_frames: part(i),
                    call_copies: part(c),
                })
            })
        })
    }

    /// What each term costs of the time of one 1024-byte record.
    fn costs(self) -> PerTerm {
        let [ethernet, ip, call] = ["ethernet", "ip", "system call"].map(share);
        PerTerm::new([
            (Term::Packet, ethernet * (1.0 - self.ethernet_bytes) + ip * self.ip_frames),
            (Term::Byte, ethernet * self.ethernet_bytes),
            (Term::Aggregate, share("tcp") + ip * (1.0 - self.ip_frames)),
            (Term::ChecksummedByte, share("checksum")),
            (Term::Call, call * (1.0 - self.call_copies)),
            (Term::CopiedByte, call * self.call_copies),
        ])
    }

    /// Mbit/s after each change, from the one measured figure on.
    fn series(self, measured_mbit: f64) -> Vec<f64> {
        let costs = self.costs();
        let mut ends = [PerTerm::new(Term::ALL.map(|term| (term, 1.0))); 2];
        let mut all = Vec::new();
        for change in CHANGES {
            change(&mut ends);
            let slower = ends.iter().map(|counts| counts.dot(&costs)).fold(0.0, f64::max);
            all.push(measured_mbit / slower);
        }
        all
    }
}

/// The letter's changes in its order: what they do to the counts of the sender and the receiver for
/// 1024 bytes.
const CHANGES: [fn(&mut [PerTerm; 2]); 6] = [
    // Segments and records of 4096 bytes, in four frames as before.
    |ends| {
        for counts in ends {
            counts.scale(Term::Aggregate, 0.25);
            counts.scale(Term::Call, 0.25);
        }
    },
    |[_, receiver]| receiver.set(Term::CopiedByte, 0.0),
    |ends| ends.iter_mut().for_each(|counts| counts.set(Term::ChecksummedByte, 0.0)),
    |ends| ends.iter_mut().for_each(|counts| counts.scale(Term::Packet, 0.25)),
    |[sender, _]| sender.set(Term::CopiedByte, 0.0),
    // Another machine: nothing that shares of this one's time tell.
    |_| {},
];

fn rows() -> Vec<Row> {
    let figures = figures();
    let measured = figures[0].1;
    let simplest = SIMPLEST.series(measured);
    let readings: Vec<(Reading, Vec<f64>)> =
        Reading::all().map(|reading| (reading, reading.series(measured))).collect();
    let row = |(number, (change, letter)): (usize, &(String, f64))| {
        let off = |mbit: f64| (mbit / letter - 1.0).abs();
        let nearest = readings.iter().min_by(|a, b| off(a.1[number]).total_cmp(&off(b.1[number])));
        let (nearest, series) = nearest.unwrap();
        let figures = || readings.iter().map(|(_, series)| series[number]);
        Row {
            change: change.clone(),
            letter_mbit: *letter,
            simplest_mbit: simplest[number],
            range_mbit: [figures().fold(f64::INFINITY, f64::min), figures().fold(0.0, f64::max)],
            nearest: *nearest,
            follows: match (off(simplest[number]) <= TOLERANCE, off(series[number]) <= TOLERANCE) {
                (true, _) => Follows::FromShares,
                (_, true) => Follows::FromReading,
                _ => Follows::NeedsMore,
            },
        }
    };
    figures[1..].iter().enumerate().map(row).collect()
}

#[test]
fn one_figure_of_seven_was_measured_and_six_are_projected() {
    let rows = table("bsd_1981_projection.csv");
    let projected = rows.iter().filter(|row| row[4] == "projected").count();
    assert_eq!((rows.len(), projected), (7, CHANGES.len()));
}

#[test]
fn the_measured_figure_is_four_mebibytes_in_28_seconds() {
    let row = &table("bsd_1981_projection.csv")[0];
    let seconds: f64 = row[2].parse().unwrap();
    let mbit = 4.0 * 1024.0 * 1024.0 * 8.0 / seconds / 1e6;
    assert!((mbit / figures()[0].1 - 1.0).abs() < 0.005, "{mbit}");
}

#[test]
fn the_shares_are_the_whole_of_the_time() {
    let all: f64 =
        ["ethernet", "ip", "tcp", "checksum", "system call"].into_iter().map(share).sum();
    assert!((all - 1.0).abs() < 1e-9, "{all}");
    let spent = Reading { ethernet_bytes: 0.3, ip_frames: 0.2, call_copies: 0.7 };
    let ones = PerTerm::new(Term::ALL.map(|term| (term, 1.0)));
    assert!((ones.dot(&spent.costs()) - 1.0).abs() < 1e-9);
}

#[test]
fn which_projections_follow_from_the_shares() {
    let mut text = String::new();
    for row in rows() {
        let [low, high] = row.range_mbit;
        let nearest = match row.follows {
            Follows::FromReading => format!(
                "; Ethernet {:.0} % by the byte, IP {:.0} % by the frame, system call {:.0} % copy",
                100.0 * row.nearest.ethernet_bytes,
                100.0 * row.nearest.ip_frames,
                100.0 * row.nearest.call_copies
            ),
            _ => String::new(),
        };
        writeln!(
            text,
            "{:5.2} letter {:5.2} simplest {low:5.2} to {high:5.2} any reading: {:?}, {}{nearest}",
            row.letter_mbit, row.simplest_mbit, row.follows, row.change
        )
        .unwrap();
    }
    let one = Reading::all().map(|reading| (reading, worst(reading)));
    let (reading, off) = one.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    writeln!(
        text,
        "one reading for all but the last: at best {:.0} % off somewhere, {reading:?}",
        100.0 * off
    )
    .unwrap();
    insta::assert_snapshot!(text);
}

/// The largest error of a reading over the projections for the same machine.
fn worst(reading: Reading) -> f64 {
    let figures = figures();
    let series = reading.series(figures[0].1);
    let same_machine = series.iter().zip(&figures[1..]).take(CHANGES.len() - 1);
    same_machine.map(|(mbit, (_, letter))| (mbit / letter - 1.0).abs()).fold(0.0, f64::max)
}

/// What the letter assumes besides its shares, and how large it must be for its figures to come
/// out.
#[test]
fn further_assumptions_and_their_size() {
    let figures = figures();
    let mbit = |number: usize| figures[number].1;
    let time = |number: usize| mbit(0) / mbit(number);
    let mut text = String::new();
    let sender_least = mbit(0) / rows()[1].range_mbit[1];
    writeln!(
        text,
        "copy at the receiver: {:.1} % of the time of a 1024-byte record; the sender must then \
         take {:.1} % at most, its shares \
         leave it {:.1} % at least: the shares cannot be the sender's alone",
        100.0 * (time(1) - time(2)),
        100.0 * time(2),
        100.0 * sender_least
    )
    .unwrap();
    // The letter: the 11/780 had about 30 % idle time as the receiver, and is 1.4 times as fast as
    // the 11/750.
    let scale = 1.4;
    writeln!(
        text,
        "an 11/750 as the receiver: {:.0} % of the sender's time by the 780's idle time, not more \
         work than the sender's",
        100.0 * (1.0 - 0.3) * scale
    )
    .unwrap();
    writeln!(
        text,
        "checksum in the interface: {:.1} % saved, of a share of {:.0} %",
        100.0 * (time(2) - time(3)),
        100.0 * share("checksum")
    )
    .unwrap();
    writeln!(
        text,
        "one interrupt, not four: {:.1} % saved, of {:.0} % for Ethernet and IP",
        100.0 * (time(3) - time(4)),
        100.0 * (share("ethernet") + share("ip"))
    )
    .unwrap();
    writeln!(text, "copy at the sender: {:.1} %", 100.0 * (time(4) - time(5))).unwrap();
    writeln!(
        text,
        "11/780s: {:.2} times as fast; with it {:.1} Mbit/s from the {:.1} before",
        mbit(6) / mbit(5),
        mbit(5) * scale,
        mbit(5)
    )
    .unwrap();
    insta::assert_snapshot!(text);
}
