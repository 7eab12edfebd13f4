//! Models, projections and proofs of a test: the whole of `profile --what-if` and `--prove`.

use linerate_core::ceilings::annotate;
use linerate_core::plan::{Protocol, Test};
use linerate_core::profile::projection::{
    CostModel, Known, LayerShares, Projection, fit, project_all,
};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::units::Span;

use super::prove::{DesignOptions, Designed, ProveOptions, prove, run_design, udp_records};
use crate::client::Client;
use crate::compare::CompareObserver;
use crate::error::MeasureError;
use crate::words::chain;

/// What is projected, and how.
#[derive(Debug, Clone)]
pub struct WhatIfOptions {
    /// The test: a bulk transfer in one direction.
    pub test: Test,
    /// Measured time of each run.
    pub time: Span,
    /// Runs of each point of the design.
    pub runs: u32,
    /// Pairs of each proof, 8 to 30; `None` proves nothing.
    pub pairs: Option<u32>,
    /// What a profile of the test says of the sender's and the receiver's layers.
    pub layers: Option<[LayerShares; 2]>,
    /// Seed of order, runs, intervals and comparisons.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct WhatIfs {
    /// A model for each transport.
    pub models: Vec<CostModel>,
    /// What each change would bring; proved where it could be and was to be.
    pub projections: Vec<Projection>,
    /// What was left out, and why.
    pub caveats: Vec<Caveat>,
}

/// Runs the design of the test's transport, and, beside TCP, that of 1981's records over UDP; fits, projects and proves. What
/// ends it early is beside what there is by then.
pub fn what_ifs(
    client: &mut Client,
    options: &WhatIfOptions,
    observer: &mut dyn CompareObserver,
) -> (WhatIfs, Option<MeasureError>) {
    let mut found = WhatIfs::default();
    let mut tests = vec![options.test.clone()];
    if options.test.protocol == Protocol::Tcp {
        tests.push(udp_records(&options.test));
    }
    for test in tests {
        if let Err(error) = found.add(client, options, test, observer) {
            return (found, Some(error));
        }
    }
    (found, None)
}

impl WhatIfs {
    fn add(
        &mut self,
        client: &mut Client,
        options: &WhatIfOptions,
        test: Test,
        observer: &mut dyn CompareObserver,
    ) -> Result<(), MeasureError> {
        let design = DesignOptions {
            test: test.clone(),
            runs: options.runs,
            time: options.time,
            seed: options.seed,
        };
        let designed = run_design(client, &design, observer)?;
        self.caveats
            .extend(designed.left_out.iter().map(|what| left_out(what)));
        let model = match fit(&designed.runs, options.seed) {
            Ok(model) => model,
            Err(error) => {
                self.caveats.push(left_out(&chain(&error)));
                return Ok(());
            }
        };
        let mut projections = projected(&model, &designed, options);
        self.models.push(model);
        let outcome = match options.pairs {
            Some(pairs) => {
                let prove_options = ProveOptions {
                    test,
                    time: options.time,
                    pairs,
                    seed: options.seed,
                };
                prove(client, &prove_options, &mut projections, observer)
            }
            None => Ok(()),
        };
        self.projections.extend(projections);
        outcome
    }
}

fn projected(model: &CostModel, designed: &Designed, options: &WhatIfOptions) -> Vec<Projection> {
    let base = designed.base.clone().map(|mut record| {
        annotate(&mut record);
        record
    });
    let known = Known {
        // Of the test as it is; another transport's layers are others.
        layers: options
            .layers
            .filter(|_| model.protocol == options.test.protocol),
        ceilings: base.as_ref().map_or(&[], |record| &record.ceilings),
        cause: base
            .as_ref()
            .and_then(|record| Some(record.verdict.as_ref()?.cause)),
        seed: options.seed,
    };
    project_all(model, &designed.runs, &known)
}

fn left_out(what: &str) -> Caveat {
    Caveat::new(
        CaveatKind::Partial,
        format!("the design of the projections went without {what}"),
        "",
    )
}
