//! `load`: a mix of tests on one path.

use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use linerate_core::load::{DEFAULT_MIX, Mix, MixChoice, names};
use linerate_core::units::{EndpointName, shortened};

use crate::args::LoadArgs;
use crate::failure::Failure;
use crate::files;
use crate::output::{self, Format, Output, conclude};
use crate::plan;
use crate::progress::Progress;
use crate::run;
use crate::site::place;

/// Longest file of a mix, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Runs a mix and prints what came of it, or lists the mixes that there are.
///
/// # Errors
/// The mix is wrong, the endpoint does not allow it, this host lacks something, or it was not run
/// to its end.
pub(crate) fn execute(args: LoadArgs) -> Result<(), Failure> {
    if args.list {
        return output::print(&list());
    }
    let seed = args.seed.unwrap_or_else(plan::fresh_seed);
    let (host, mix) = words(&args).map_err(Failure::usage)?;
    let choice = MixChoice {
        time: args.time,
        flows: args.flows,
        seed,
    };
    let mix = mix_of(mix, &choice).map_err(Failure::usage)?;
    let format = match (args.document.json, args.csv) {
        (true, _) => Format::Json,
        (_, Some(rows)) => Format::Csv(rows),
        _ => Format::Text,
    };
    let mut progress = Progress::new(format, args.document.quiet);
    let (site, target) = place(host, &args.path, seed, &mut progress)?;
    let output = Output::open(&args.document, format)?;
    let (mut document, error) = run::load(&target, &mix, seed, progress)?;
    site.iter().for_each(|site| site.describe(&mut document));
    conclude(&document, error, output, None)
}

/// The endpoint and the mix.
fn words(args: &LoadArgs) -> anyhow::Result<(Option<EndpointName>, &str)> {
    let (host, mix) = (args.host.as_deref(), args.mix.as_deref());
    if args.path.lab.is_none() {
        let host = host.map(str::parse).transpose()?;
        return Ok((host, mix.unwrap_or(DEFAULT_MIX)));
    }
    ensure!(
        mix.is_none(),
        "HOST cannot be used with --lab: give the mix alone"
    );
    Ok((None, host.unwrap_or(DEFAULT_MIX)))
}

fn mix_of(name: &str, choice: &MixChoice) -> anyhow::Result<Mix> {
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "toml") {
        return Mix::named(name, choice).map_err(|why| anyhow!(why));
    }
    let text = String::from_utf8(files::read_at_most(path, MAX_FILE)?);
    let text = text
        .map_err(|error| anyhow!(error))
        .with_context(|| name.to_owned())?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Mix::from_toml(&shortened(&stem), &text, choice).with_context(|| name.to_owned())
}

fn list() -> String {
    let line = |name: &str| {
        let mix = Mix::named(name, &MixChoice::default()).ok()?;
        Some(format!("{name:<10} {}\n", mix.title))
    };
    names().filter_map(line).collect()
}
