//! Options of `qos cost`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use linerate_core::compare::MAX_PAIRS;
use linerate_core::units::{BitRate, Percent, Sizes, Span};
use linerate_qos::cost::{LINKS, TESTS, Test};

use super::parsers;
use super::shared::{DocumentOptions, FamilyOptions};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QosCostArgs {
    /// Policy to measure (default: each test's own, a filter that marks every packet)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Adapter of the policy's file to take, if it has several
    #[arg(long, value_name = "IF", requires = "policy")]
    pub(crate) adapter: Option<String>,
    /// sizes, filters, udp, rr, unmatched, fragments, large, or all (default sizes,udp,rr)
    #[arg(
        long, value_name = "TESTS", value_delimiter = ',', value_parser = test(),
        hide_possible_values = true
    )]
    pub(crate) tests: Vec<Tests>,
    /// Rates of the emulated links
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        default_value = "100mbit,1gbit",
        value_parser = parsers::rate(*LINKS.start(), *LINKS.end())
    )]
    pub(crate) link: Vec<BitRate>,
    /// Messages of the test `sizes` (default 32,64,128,256,512,1024,2920)
    #[arg(long, short = 'l', value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,
    #[command(flatten)]
    pub(crate) family: FamilyOptions,
    /// Measured time of each run, 10ms to 24h (default 2s)
    #[arg(long, short, value_parser = parsers::time(10, parsers::DAY))]
    pub(crate) time: Option<Span>,
    /// Blocks of three runs for each transfer, 1 to 30 (default 8)
    #[arg(long, value_name = "N", value_parser = parsers::number::<u32>(1, MAX_PAIRS.into()))]
    pub(crate) pairs: Option<u32>,
    /// Differences below P% are none: what EQUIVALENT means
    #[arg(long, value_name = "P%", default_value = "5%", value_parser = parsers::margin())]
    pub(crate) margin: Percent,
    /// Fewer transfers and short runs, in less than two minutes; intervals, and no verdicts
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of every random choice, 0 to 2^64-1 (default: a new one)
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// One of the tests, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tests {
    /// One.
    One(Test),
    /// All of them.
    All,
}

impl QosCostArgs {
    /// Which families.
    pub(crate) fn families(&self) -> Vec<linerate_core::units::Family> {
        use linerate_core::units::Family::{Ipv4, Ipv6};
        match self.family.chosen() {
            Some(one) => vec![one],
            None => vec![Ipv4, Ipv6],
        }
    }

    /// Which tests, each once, in the order of the white paper.
    pub(crate) fn tests(&self) -> Vec<Test> {
        let usual = [Test::Sizes, Test::Udp, Test::Rr];
        let is_asked = |test: &Test| {
            if self.tests.is_empty() {
                usual.contains(test)
            } else {
                self.tests.contains(&Tests::One(*test)) || self.tests.contains(&Tests::All)
            }
        };
        TESTS.into_iter().filter(is_asked).collect()
    }
}

fn test() -> impl TypedValueParser<Value = Tests> {
    let names = TESTS.map(Test::name).into_iter().chain(["all"]);
    PossibleValuesParser::new(names).map(|word| {
        let named = TESTS.into_iter().find(|test| test.name() == word);
        named.map_or(Tests::All, Tests::One)
    })
}

const EXAMPLES: &str = "\
Tests: sizes is the white paper's of 2005; the others are the six that it left for the future.
Examples:
  linerate qos cost --quick
  linerate qos cost --policy voice.toml --link 1gbit -4
  linerate qos cost --tests filters,unmatched --pairs 20";
