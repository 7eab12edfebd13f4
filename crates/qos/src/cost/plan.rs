//! The runs of a cost measurement, and their order.

use std::fmt;
use std::time::Duration;

use linerate_core::experiment::{
    Cell as ExperimentCell, Experiment, ExperimentPath, Factor, Place, Work,
};
use linerate_core::link::PathSpec;
use linerate_core::plan::{
    Direction, ExchangeTest, Extent, Protocol, Repeats, SocketOptions, StreamTest, Test as Run,
    Traffic,
};
use linerate_core::units::{BitRate, ByteCount, Family, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::TREATMENTS;
use super::paper::{self, SOCKET_BYTES};
use super::policies;

/// A test of the paper: its own experiment, and the six that it left for the future.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// Bulk transfer over TCP in messages of many sizes.
    Sizes,
    /// Longer and more complex filters.
    Filters,
    /// UDP packets.
    Udp,
    /// Request and response, over TCP and UDP.
    Rr,
    /// Filters that do not match.
    Unmatched,
    /// Fragmented IP packets.
    Fragments,
    /// Large packets on the fast interface.
    Large,
}

/// All tests, in the paper's order.
pub const TESTS: [Test; 7] = [
    Test::Sizes,
    Test::Filters,
    Test::Udp,
    Test::Rr,
    Test::Unmatched,
    Test::Fragments,
    Test::Large,
];

/// The user's choice of tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The tests to run.
    pub tests: Vec<Test>,
    /// Rates of the emulated links.
    pub links: Vec<BitRate>,
    /// Address families to run over.
    pub families: Vec<Family>,
    /// Message sizes of [`Test::Sizes`], bytes; if empty, the paper's.
    pub sizes: Vec<u64>,
    /// Measured time of each run.
    pub time: Option<Span>,
    /// Blocks of three runs for each cell.
    pub pairs: Option<u32>,
    /// Whether to run few cells with short runs.
    pub quick: bool,
    /// Seed of every random choice.
    pub seed: u64,
}

/// All runs of a cost measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The cells, those of one link and family beside each other.
    pub cells: Vec<Cell>,
    /// Blocks of each cell.
    pub pairs: u32,
    /// Measured time of each run.
    pub time: Span,
    /// Seed of every random choice.
    pub seed: u64,
}

/// A plan that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanFault(String);

/// One transfer on one link, which is made without a policy, with a program that does nothing, and
/// with a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The test that it belongs to.
    pub test: Test,
    /// Rate of the link.
    pub link: BitRate,
    /// Largest IP packet of the link, bytes.
    pub mtu: u32,
    /// IPv4 or IPv6.
    pub family: Family,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Bytes of a message.
    pub message_bytes: u64,
}

impl Test {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sizes => "sizes",
            Self::Filters => "filters",
            Self::Udp => "udp",
            Self::Rr => "rr",
            Self::Unmatched => "unmatched",
            Self::Fragments => "fragments",
            Self::Large => "large",
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Plan {
    /// Makes the plan for a choice.
    ///
    /// # Errors
    /// Figures out of range, or tests that need another link or family.
    pub fn new(choice: &Choice) -> Result<Self, PlanFault> {
        let pairs = choice.pairs.unwrap_or(if choice.quick { 3 } else { 8 });
        let usual = Duration::from_millis(if choice.quick { 300 } else { 2000 });
        let time = choice.time.unwrap_or(Span(usual));
        let mut cells = Vec::new();
        for &link in &choice.links {
            for &family in &choice.families {
                for &test in &choice.tests {
                    cells.extend(cells_of(choice, test, link, family));
                }
            }
        }
        if cells.is_empty() {
            let nothing = "there is nothing to run: no test, link or family is left";
            return Err(fault(nothing));
        }
        let plan = Self {
            cells,
            pairs,
            time,
            seed: choice.seed,
        };
        for cell in &plan.cells {
            let checked = cell.run(time, choice.seed).check();
            checked.map_err(|error| fault(error.on_command_line()))?;
        }
        Ok(plan)
    }

    /// Returns the experiment of a cell: its transfer under each treatment, in as many blocks as
    /// the plan has. `policy` is the text of its policy.
    ///
    /// # Errors
    /// The policy cannot be a treatment.
    pub fn experiment(&self, cell: usize, policy: &str) -> Result<Experiment, PlanFault> {
        // Within a cell, only runs of the same block have the same seed.
        let seed = self.seed.wrapping_add(1000 * cell as u64);
        let cell = &self.cells[cell];
        let spec: PathSpec = cell.lab().parse().map_err(fault)?;
        let place = Place {
            path: ExperimentPath::from_spec(spec),
            family: Some(cell.family),
            client_cpu: None,
            server_cpu: None,
        };
        let cells = TREATMENTS.iter().enumerate().map(|(level, treatment)| {
            Ok(ExperimentCell {
                levels: vec![level],
                place: place.clone(),
                work: Work::Test(Box::new(cell.run(self.time, seed))),
                treatments: treatment.treatments(policy).map_err(fault)?,
                lacks: None,
            })
        });
        Ok(Experiment {
            title: cell.test.to_string(),
            report: None,
            about: None,
            seed,
            quick: false,
            repeats: Repeats::Times(self.pairs),
            forbid: Vec::new(),
            factors: vec![Factor {
                name: "treatment".to_owned(),
                levels: TREATMENTS.map(|one| one.name().to_owned()).to_vec(),
            }],
            cells: cells.collect::<Result<_, PlanFault>>()?,
            notes: Vec::new(),
            across: None,
            columns: Vec::new(),
            findings: Vec::new(),
            figures: Vec::new(),
        })
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.cells.len() * TREATMENTS.len() * self.pairs as usize
    }

    /// Minimum time of all runs, seconds.
    pub fn seconds(&self) -> f64 {
        self.runs() as f64 * (self.time.as_secs_f64() + warm_up(self.time).as_secs_f64())
    }
}

impl Cell {
    /// The transfer of the cell.
    pub fn run(&self, time: Span, seed: u64) -> Run {
        let is_udp = self.protocol == Protocol::Udp;
        let is_rr = self.test == Test::Rr;
        let traffic = if is_rr {
            Traffic::Rr(ExchangeTest::new(self.message_bytes, self.message_bytes))
        } else {
            Traffic::Stream(StreamTest {
                rate_bps: is_udp.then(|| self.datagram_rate()),
                ..StreamTest::new(self.message_bytes)
            })
        };
        Run {
            traffic,
            protocol: self.protocol,
            direction: Direction::Up,
            streams: 1,
            extent: Extent::Time(time),
            warm_up: warm_up(time),
            interval: time,
            options: SocketOptions {
                receive_window_bytes: (!is_udp).then_some(ByteCount(SOCKET_BYTES)),
                send_buffer_bytes: (!is_udp).then_some(ByteCount(SOCKET_BYTES)),
                nodelay: is_rr && !is_udp,
                ..SocketOptions::default()
            },
            seed,
        }
    }

    /// The link in the syntax of `--lab`: the rate of Ethernet, with preamble and gap.
    pub fn lab(&self) -> String {
        format!("rate={},overhead=24,mtu={}", self.link.typed(), self.mtu)
    }

    /// The built-in policy of the cell's test.
    pub fn policy(&self) -> String {
        match self.test {
            Test::Filters => policies::long(self.protocol, self.family),
            Test::Unmatched => policies::unmatched(self.protocol),
            _ => policies::simple(self.protocol),
        }
    }

    /// Whether the user's policy replaces the built-in one.
    pub fn takes_users_policy(&self) -> bool {
        !matches!(self.test, Test::Filters | Test::Unmatched)
    }

    /// Payload rate of datagrams: most of the link, but no more packets than an emulated link
    /// carries with ease.
    fn datagram_rate(&self) -> BitRate {
        let bytes = self.message_bytes as f64;
        let packets = (bytes / 1472.0).ceil();
        let frames = bytes + packets * FRAME_OVERHEAD_BYTES;
        let of_link = LINK_SHARE * self.link.as_f64() * bytes / frames;
        let of_packets = MAX_PACKETS_PER_S / packets * bytes * 8.0;
        BitRate(of_link.min(of_packets) as u64)
    }
}

/// The cells of a test on a link.
fn cells_of(choice: &Choice, test: Test, link: BitRate, family: Family) -> Vec<Cell> {
    let is_fastest = choice.links.iter().all(|other| other.0 <= link.0);
    let few = choice.quick && choice.sizes.is_empty();
    let tcp = Protocol::Tcp;
    let udp = Protocol::Udp;
    let kinds: Vec<(Protocol, u64)> = match test {
        Test::Sizes if !choice.sizes.is_empty() => of_sizes(tcp, &choice.sizes),
        // One size with the second family, so that both are covered.
        Test::Sizes if few && family == Family::Ipv6 => of_sizes(tcp, &[1024]),
        Test::Sizes if few => of_sizes(tcp, &[64, 1024, 2920]),
        Test::Sizes => of_sizes(tcp, &paper::SIZES),
        _ if few && family == Family::Ipv6 && choice.families.len() > 1 => Vec::new(),
        Test::Filters | Test::Unmatched => of_sizes(tcp, &[1024]),
        Test::Udp if few => of_sizes(udp, &[512]),
        Test::Udp => of_sizes(udp, &[64, 512, 1448]),
        Test::Rr if few => of_sizes(tcp, &[64]),
        Test::Rr => vec![(tcp, 1), (tcp, 1024), (udp, 64), (udp, 1024)],
        // Three packets for each datagram.
        Test::Fragments => of_sizes(udp, &[4000]),
        Test::Large if is_fastest => of_sizes(tcp, &[65_536]),
        Test::Large => Vec::new(),
    };
    let mtu = if test == Test::Large { 9000 } else { 1500 };
    let cell = |(protocol, message_bytes)| Cell {
        test,
        link,
        mtu,
        family,
        protocol,
        message_bytes,
    };
    kinds.into_iter().map(cell).collect()
}

fn of_sizes(protocol: Protocol, sizes: &[u64]) -> Vec<(Protocol, u64)> {
    sizes.iter().map(|&size| (protocol, size)).collect()
}

fn warm_up(time: Span) -> Span {
    Span((time.0 / 10).min(Duration::from_secs(1)))
}

fn fault(error: impl fmt::Display) -> PlanFault {
    PlanFault(error.to_string())
}

/// Rates that can be emulated.
pub const LINKS: std::ops::RangeInclusive<u64> = 1_000_000..=10_000_000_000;
/// Bytes of a frame beside the payload: IP and UDP headers, Ethernet's header and checksum,
/// preamble and gap.
const FRAME_OVERHEAD_BYTES: f64 = 66.0;
/// Share of the link that datagrams use: a queue would add its losses.
const LINK_SHARE: f64 = 0.8;
/// Packet rate that the emulator of a small machine carries.
const MAX_PACKETS_PER_S: f64 = 20_000.0;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn choice() -> Choice {
        Choice {
            tests: TESTS.to_vec(),
            links: vec![BitRate(100_000_000), BitRate(1_000_000_000)],
            families: vec![Family::Ipv4, Family::Ipv6],
            sizes: Vec::new(),
            time: None,
            pairs: None,
            quick: false,
            seed: 7,
        }
    }

    #[test]
    fn the_papers_own_experiment_is_two_links_and_seven_sizes() {
        let plan = Plan::new(&Choice {
            tests: vec![Test::Sizes],
            families: vec![Family::Ipv4],
            ..choice()
        })
        .unwrap();
        let sizes: Vec<u64> = plan.cells.iter().map(|cell| cell.message_bytes).collect();
        assert_eq!(sizes, [paper::SIZES, paper::SIZES].concat());
        let run = plan.cells[0].run(plan.time, 1);
        assert_eq!(run.options.receive_window_bytes, Some(ByteCount(32_768)));
        assert_eq!(run.options.send_buffer_bytes, Some(ByteCount(32_768)));
        assert_eq!(plan.cells[0].lab(), "rate=100mbit,overhead=24,mtu=1500");
    }

    #[test]
    fn large_packets_are_for_the_fastest_link_alone() {
        let plan = Plan::new(&choice()).unwrap();
        let large: Vec<_> = plan
            .cells
            .iter()
            .filter(|cell| cell.test == Test::Large)
            .collect();
        assert!(
            large
                .iter()
                .all(|cell| cell.link.0 == 1_000_000_000 && cell.mtu == 9000)
        );
        assert_eq!(large.len(), 2);
    }

    #[test]
    fn the_quick_form_of_the_default_is_run_in_less_than_a_minute() {
        let plan = Plan::new(&Choice {
            tests: vec![Test::Sizes, Test::Udp, Test::Rr],
            quick: true,
            ..choice()
        })
        .unwrap();
        assert!(
            plan.seconds() < 60.0,
            "{} s, {} cells",
            plan.seconds(),
            plan.cells.len()
        );
        let families: Vec<_> = plan.cells.iter().map(|cell| cell.family).collect();
        assert!(families.contains(&Family::Ipv6));
    }

    #[test]
    fn each_block_has_each_treatment_once_and_every_order_comes_up_as_often() {
        let plan = Plan::new(&choice()).unwrap();
        let experiment = plan.experiment(0, &plan.cells[0].policy()).unwrap();
        let mut orders: BTreeMap<Vec<usize>, u32> = BTreeMap::new();
        for block in 1..=6000 {
            *orders.entry(experiment.order(block)).or_default() += 1;
        }
        assert_eq!(orders.len(), 6);
        // 1000 each, five standard deviations of 29.
        assert!(
            orders.values().all(|count| count.abs_diff(1000) < 145),
            "{orders:?}"
        );
    }

    #[test]
    fn datagrams_leave_room_on_the_link() {
        for cell in Plan::new(&choice()).unwrap().cells {
            if cell.protocol == Protocol::Udp && cell.test != Test::Rr {
                let rate = cell.datagram_rate();
                assert!(
                    rate.as_f64() <= 0.8 * cell.link.as_f64(),
                    "{cell:?}: {rate}"
                );
                assert!(rate.0 > 1_000_000, "{cell:?}: {rate}");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (choice, words) in [
            (
                Choice {
                    tests: vec![],
                    ..choice()
                },
                "there is nothing to run",
            ),
            (
                Choice {
                    sizes: vec![1 << 40],
                    ..choice()
                },
                "it must be",
            ),
        ] {
            let message = Plan::new(&choice).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
