//! What changes would bring, beside a profile: the design, the model, the projections and their
//! proof.

use std::time::Duration;

use linerate_core::plan::{Extent, Protocol, Test};
use linerate_core::profile::ProfileDocument;
use linerate_core::profile::projection::{
    Designed, Known, Provable, Unprojected, design_of, fit, points, project_all, what_ifs_of,
};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::units::Span;

use super::prove::{DesignOptions, prove, run_design, warm_up};
use crate::client::Client;
use crate::compare::CompareObserver;
use crate::error::MeasureError;

/// Options of the projections.
#[derive(Debug, Clone)]
pub struct WhatIfOptions {
    /// The test that was profiled; there is a model of its transport.
    pub test: Test,
    /// Also do what can be done here, by paired comparisons.
    pub prove: bool,
}

/// Puts into the document of a profiled transfer what changes would bring; where they are proved,
/// 1981's records in datagrams too. What was found before an error stays.
///
/// # Errors
/// Interrupted, or a run failed for another reason than its treatment; nothing is left changed.
pub fn what_ifs(
    client: &mut Client,
    options: &WhatIfOptions,
    document: &mut ProfileDocument,
    observer: &mut dyn CompareObserver,
) -> Result<(), MeasureError> {
    let known = Known::new(document);
    let nothing = Known::nothing(known.seed);
    let mut of = |protocol, known| projected(client, options, protocol, known, document, observer);
    match (options.test.protocol, options.prove) {
        // Of 1981's records no profile was taken.
        (Protocol::Udp, _) => of(Protocol::Udp, &nothing),
        (tcp, true) => of(tcp, &known).and_then(|()| of(Protocol::Udp, &nothing)),
        (tcp, false) => {
            of(tcp, &known)?;
            let others = Unprojected::all_of(Protocol::Udp, OF_DATAGRAMS);
            document.not_projected.extend(others);
            Ok(())
        }
    }
}

const OF_DATAGRAMS: &str = "it is of datagrams: -u projects it, and --prove does beside TCP's";

/// How long that takes at most, as a rule.
pub fn time_of_what_ifs(options: &WhatIfOptions) -> Duration {
    let own = options.test.protocol;
    let udp = (options.prove && own != Protocol::Udp).then_some(Protocol::Udp);
    let protocols = [Some(own), udp].into_iter().flatten();
    let runs: u32 = protocols.map(|one| runs_of(one, options.prove)).sum();
    let time = short(&options.test);
    (time.0 + warm_up(time).0 + BETWEEN_RUNS) * runs
}

fn projected(
    client: &mut Client,
    options: &WhatIfOptions,
    protocol: Protocol,
    known: &Known,
    document: &mut ProfileDocument,
    observer: &mut dyn CompareObserver,
) -> Result<(), MeasureError> {
    let design = DesignOptions {
        test: design_of(protocol, &options.test),
        path_mtu_bytes: document.record.tcp_sender().map(|tcp| tcp.pmtu_bytes),
        runs: ROUNDS,
        pairs: PAIRS,
        time: short(&options.test),
        seed: known.seed,
    };
    let designed = run_design(client, &design, observer)?;
    document.caveats.extend(designed.caveats());
    let at = document.projections.len();
    enter(document, protocol, &designed, known);
    if options.prove {
        prove(client, &design, &mut document.projections[at..], observer)
    } else {
        Ok(())
    }
}

/// The model and what it gives, or why there is none.
fn enter(document: &mut ProfileDocument, protocol: Protocol, designed: &Designed, known: &Known) {
    let others = match fit(&designed.runs, known.seed) {
        Ok(model) => {
            let (projections, others) = project_all(&model, designed, known);
            document.cost_models.push(model);
            document.projections.extend(projections);
            others
        }
        Err(error) => {
            document.caveats.push(Caveat::new(
                CaveatKind::Partial,
                format!("nothing is projected: {error}"),
                error.remedy(),
            ));
            Unprojected::all_of(protocol, &format!("there is no model: {error}"))
        }
    };
    document.not_projected.extend(others);
}

fn runs_of(protocol: Protocol, proved: bool) -> u32 {
    let is_provable = |proof| matches!(proof, Provable::By(_));
    let provable = what_ifs_of(protocol).filter(|what_if| is_provable(what_if.proof));
    let proofs = provable.count() as u32 * (2 * PAIRS + BEFORE_PAIRS);
    let design = points(protocol).count() as u32 * ROUNDS;
    if proved { design + proofs } else { design }
}

/// Measured time of each short run: no longer than what was asked for.
fn short(test: &Test) -> Span {
    match test.extent {
        Extent::Time(time) => time.min(SHORT_RUN),
        _ => SHORT_RUN,
    }
}

/// Measured time of each short run, as a rule.
const SHORT_RUN: Span = Span(Duration::from_secs(1));
/// How often each is made. Two tell chance from the model's faults.
const ROUNDS: u32 = 2;
/// Pairs of runs that prove a projection: the fewest that can show anything of three figures.
const PAIRS: u32 = 8;
/// Runs before the pairs: one that shows the change, a look at the idle hosts, and one of each
/// side.
const BEFORE_PAIRS: u32 = 4;
/// What it takes to set a run up, to treat the hosts and to fetch the report, as a rule.
const BETWEEN_RUNS: Duration = Duration::from_millis(600);
