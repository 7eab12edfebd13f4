//! The benchmarks: what is measured of the pump, and what of the kernel stands beside it.

use crate::kernel::{self, Shaper};
use crate::{bytes, lab};

/// Figures of one run, by their names, which say the unit.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// What this host lacks, and so is not measured.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

/// One benchmark.
#[derive(Debug)]
pub(crate) struct Case {
    name: String,
    work: Work,
    /// What the kernel does instead, over a veth pair.
    pub(crate) peer: Option<Shaper>,
}

/// What is measured.
#[derive(Debug)]
pub(crate) enum Work {
    /// Frames cut and their checksums made, in this process.
    Cutting,
    /// Packets through the link's state machine, in this process.
    Deciding,
    /// A saturating TCP stream over a path with that spec.
    Carrying { spec: &'static str },
    /// The same, against the rate that the spec or the shaper is told.
    Holding { rate_mbps: u32 },
    /// Round trips of a byte over that round trip, beside UDP datagrams of that rate.
    Delaying { rtt_ms: u32, load_mbps: u32 },
}

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    let case = |name: &str, work, peer| Case { name: name.to_owned(), work, peer };
    let mut cases = vec![
        case("cut", Work::Cutting, None),
        case("link", Work::Deciding, None),
        case("carry-whole", Work::Carrying { spec: "rtt=1ms" }, Some(Shaper::None)),
        case("carry-cut", Work::Carrying { spec: "rate=100gbit,rtt=1ms" }, Some(Shaper::None)),
    ];
    for rate_mbps in [10, 100, 1000] {
        for shaper in [Shaper::Tbf { rate_mbps }, Shaper::Htb { rate_mbps }] {
            let name = format!("rate-{rate_mbps}mbit");
            cases.push(case(&name, Work::Holding { rate_mbps }, Some(shaper)));
        }
    }
    for rtt_ms in [10, 29] {
        for load_mbps in [0, 10, 100] {
            let work = Work::Delaying { rtt_ms, load_mbps };
            let name = match load_mbps {
                0 => format!("delay-{rtt_ms}ms-idle"),
                load => format!("delay-{rtt_ms}ms-{load}mbit"),
            };
            cases.push(case(&name, work, Some(Shaper::Netem { rtt_ms })));
        }
    }
    cases
}

impl Case {
    /// What the filter is matched against, such as `rate-10mbit/tbf`.
    pub(crate) fn title(&self) -> String {
        match &self.peer {
            Some(shaper) => format!("{}/{}", self.name, shaper.name()),
            None => self.name.clone(),
        }
    }

    /// The pump's side.
    ///
    /// # Errors
    /// A program cannot be started, fails, hangs or reports what is not understood.
    pub(crate) fn run(&self) -> anyhow::Result<Figures> {
        match &self.work {
            Work::Cutting => bytes::cut(),
            Work::Deciding => bytes::decide(),
            Work::Carrying { spec } => lab::stream(spec, None),
            Work::Holding { rate_mbps } => {
                lab::stream(&format!("rate={rate_mbps}mbit"), Some(*rate_mbps))
            }
            Work::Delaying { rtt_ms, load_mbps } => lab::delay(*rtt_ms, *load_mbps),
        }
    }

    /// The kernel's side; `None` where there is none.
    ///
    /// # Errors
    /// As [`Case::run`].
    pub(crate) fn run_peer(&self) -> anyhow::Result<Option<Figures>> {
        let Some(shaper) = self.peer else {
            return Ok(None);
        };
        let figures = match self.work {
            Work::Cutting | Work::Deciding => return Ok(None),
            Work::Carrying { .. } => kernel::stream(shaper, None),
            Work::Holding { rate_mbps } => kernel::stream(shaper, Some(rate_mbps)),
            Work::Delaying { rtt_ms, load_mbps } => kernel::delay(shaper, rtt_ms, load_mbps),
        };
        figures.map(Some)
    }

    /// What the pump's side lacks here.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) fn missing_lab(&self) -> anyhow::Result<Option<Missing>> {
        match self.work {
            Work::Cutting | Work::Deciding => Ok(None),
            _ => lab::missing(),
        }
    }

    /// What the kernel's side lacks here.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) fn missing_peer(&self) -> anyhow::Result<Option<Missing>> {
        self.peer.map_or(Ok(None), kernel::missing)
    }
}
