//! `load`: a mix of tests on one path.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use linerate_core::load::{DEFAULT_MIX, LOAD_SCHEMA, LoadDocument, Mix, MixChoice, names};
use linerate_core::units::{EndpointName, quoted, shortened};
use linerate_engine::Target;
use linerate_report::document::schema;

use crate::args::{LoadArgs, PathOptions};
use crate::failure::Failure;
use crate::output::{self, Output, conclude};
use crate::progress::Progress;
use crate::site::{Site, place};
use crate::target::look_up;
use crate::{files, run, site};

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
    let seed = args.random.seed;
    let (hosts, mix) = words(&args).map_err(Failure::usage)?;
    let choice = MixChoice { time: args.time, flows: args.flows, seed };
    let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mix = mix_of(mix, &choice, &names).map_err(Failure::usage)?;
    let format = output::format(args.document.json, &args.csv, false);
    let output = Output::open(&args.document, format)?;
    let mut progress = Progress::new(format, args.document.quiet);
    if mix.members.iter().any(|member| member.ecn.is_some()) {
        site::before_treating(&mut progress);
    }
    let (site, targets) = places(hosts, &args.path, seed, &mut progress)?;
    let (mut document, error) = run::load(&targets, &mix, seed, progress)?;
    site.iter().for_each(|site| site.describe(&mut document));
    conclude(&document, error, output, None)
}

/// The endpoints, none where there is a lab, and the mix.
fn words(args: &LoadArgs) -> anyhow::Result<(Vec<EndpointName>, &str)> {
    let (host, mix) = (args.host.as_deref(), args.mix.as_deref());
    if args.path.lab.is_none() {
        let hosts = host
            .into_iter()
            .flat_map(|hosts| hosts.split(','))
            .map(str::parse)
            .collect::<Result<Vec<EndpointName>, _>>()
            .with_context(|| format!("HOST {}", quoted(host.unwrap_or_default())))?;
        let is_twice = |at: usize| hosts[..at].contains(&hosts[at]);
        if let Some(twice) = (0..hosts.len()).find(|at| is_twice(*at)) {
            bail!("HOST {} is given twice", hosts[twice]);
        }
        return Ok((hosts, mix.unwrap_or(DEFAULT_MIX)));
    }
    ensure!(mix.is_none(), "HOST cannot be used with --lab: give the mix alone");
    Ok((Vec::new(), host.unwrap_or(DEFAULT_MIX)))
}

/// Where to: all endpoints, or the one of a lab.
fn places(
    hosts: Vec<EndpointName>,
    path: &PathOptions,
    seed: u64,
    progress: &mut Progress,
) -> Result<(Option<Site>, Vec<Target>), Failure> {
    if path.lab.is_some() {
        let (site, target) = place(None, path, seed, progress)?;
        return Ok((site, vec![target]));
    }
    let targets = hosts.into_iter().map(|host| look_up(host, path, progress));
    Ok((None, targets.collect::<Result<_, _>>()?))
}

fn mix_of(name: &str, choice: &MixChoice, hosts: &[String]) -> anyhow::Result<Mix> {
    let path = Path::new(name);
    let mix = match path.extension().and_then(OsStr::to_str) {
        Some("toml") => {
            let text = files::read_text("", path, MAX_FILE)?;
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            Mix::from_toml(&shortened(&stem), &text, choice).with_context(|| name.to_owned())?
        }
        Some("json") => return again(path, choice, hosts).with_context(|| name.to_owned()),
        _ => Mix::named(name, choice).map_err(|why| match path.exists() {
            true => anyhow!("{name}: the file of a mix ends in .toml, a document in .json"),
            false => anyhow!(why),
        })?,
    };
    mix.over(hosts).map_err(|why| anyhow!(why))
}

/// The mix of a document that a load has left, for as many endpoints as it had.
fn again(path: &Path, choice: &MixChoice, hosts: &[String]) -> anyhow::Result<Mix> {
    let bytes = files::read_bytes("", path, files::MAX_DOCUMENT)?;
    ensure!(schema(&bytes)? == LOAD_SCHEMA, "it is not a document of a load");
    let document: LoadDocument = serde_json::from_slice(&bytes)?;
    ensure!(
        choice.time.is_none() && choice.flows.is_none(),
        "--time and --flows are as the document has them"
    );
    let mix = Mix::from_document(&document, choice.seed).context("its members have no time")?;
    let had = 1 + mix.members.iter().map(|member| member.endpoint).max().unwrap_or(0);
    let given = hosts.len().max(1);
    ensure!(given == had, "its load had {had} endpoints: give as many");
    Ok(mix)
}

fn list() -> String {
    let line = |name: &str| {
        let mix = Mix::named(name, &MixChoice::default()).ok()?;
        Some(format!("{name:<10} {}\n", mix.title))
    };
    names().filter_map(line).collect()
}
