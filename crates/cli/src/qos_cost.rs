//! `qos cost`: what a policy costs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use linerate_engine::{CostOptions, CostProgress, prepare_for_lab, qos_cost};
use linerate_qos::cost::{Choice, Plan, policies};
use linerate_qos::policy::PolicyFile;

use crate::args::QosCostArgs;
use crate::failure::Failure;
use crate::files;
use crate::output::{self, Format, Output};
use crate::progress::Progress;
use crate::run;
use crate::{plan, watch};

/// Measures, prints what came of it.
///
/// # Errors
/// The command line or the policy is wrong, this host has no lab or no eBPF, a run failed, or it
/// was interrupted; what there is by then is printed.
pub(crate) fn execute(args: &QosCostArgs) -> Result<(), Failure> {
    let options = resolve(args)?;
    let mut progress = Progress::new(Format::Text, args.document.quiet);
    watch::before_treating(&mut progress);
    let output = Output::open(&args.document, output::json_or_text(args.document.json))?;
    // Before any thread: the process may have to enter a user namespace.
    prepare_for_lab()?;
    let stop = run::signals()?;
    let runs = options.plan.runs();
    let planned = Duration::from_secs_f64(options.plan.seconds());
    progress.takes([planned + BESIDE * runs as u32; 2]);
    progress.phase("the programs by themselves");
    let began = Instant::now();
    let outcome = qos_cost(&options, &stop, &mut |run| {
        if run.done >= FEW {
            let each = began.elapsed() / run.done as u32;
            progress.takes([each * (run.all - run.done) as u32; 2]);
        }
        progress.phase(&words(run));
    });
    drop(progress);
    let (document, error) = outcome?;
    output.write(&document)?;
    error.map_or(Ok(()), |error| Err(error.into()))
}

fn resolve(args: &QosCostArgs) -> Result<CostOptions, Failure> {
    let margin_percent = args.margin.0;
    let choice = Choice {
        tests: args.tests(),
        links: args.link.clone(),
        families: args.families(),
        sizes: args
            .size
            .iter()
            .flat_map(|sizes| sizes.as_slice().to_vec())
            .collect(),
        time: args.time,
        pairs: args.pairs,
        quick: args.quick,
        seed: args.seed.unwrap_or_else(plan::fresh_seed),
    };
    let policy = match &args.policy {
        Some(path) => {
            let text = policy(path, args.adapter.as_deref())?;
            Some((path.display().to_string(), text))
        }
        None => None,
    };
    Ok(CostOptions {
        plan: Plan::new(&choice).map_err(Failure::usage)?,
        policy,
        margin_percent,
    })
}

/// The text of a policy with one adapter, which stands for any interface.
fn policy(path: &Path, adapter: Option<&str>) -> Result<String, Failure> {
    let file = files::policy("--policy", path)?;
    one_adapter(&file, path, adapter).map_err(Failure::usage)
}

fn one_adapter(file: &PolicyFile, path: &Path, adapter: Option<&str>) -> anyhow::Result<String> {
    let place = || files::named("--policy", path);
    let names: Vec<&str> = file.adapters.iter().map(|one| one.name.as_str()).collect();
    let chosen = match (adapter, names.as_slice()) {
        (Some(name), _) => names.iter().position(|known| *known == name),
        (None, [_]) => Some(0),
        (None, []) => None,
        (None, _) => bail!(
            "{}: it has the adapters {}; name one by --adapter",
            place(),
            names.join(", ")
        ),
    };
    let Some(chosen) = chosen else {
        bail!(
            "{}: it has no such adapter, but {}",
            place(),
            names.join(", ")
        );
    };
    ensure!(
        !file.adapters[chosen].ingress,
        "{}: what comes in has no cost here; leave `ingress` out",
        place()
    );
    Ok(policies::on_any_adapter(file, chosen).to_toml())
}

/// What a run takes besides its own time: to change what is in force, to connect.
const BESIDE: Duration = Duration::from_millis(200);
/// Runs of which the others' time is known.
const FEW: usize = 5;

/// A run as it begins.
fn words(progress: CostProgress<'_>) -> String {
    let cell = progress.cell;
    format!(
        "{} of {}: {}, {}, {} {} B, block {}, {}",
        progress.done + 1,
        progress.all,
        cell.link,
        cell.family,
        cell.test,
        cell.message_bytes,
        progress.block,
        progress.treatment.name()
    )
}
