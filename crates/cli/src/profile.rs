//! `profile`: where the CPU time of a transfer goes, at both ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use linerate_core::compare::Standing;
use linerate_core::plan::{Direction, Plan, Test, Workload};
use linerate_core::profile::projection::check_transport;
use linerate_core::profile::{ProfileDocument, ProfileRequest};
use linerate_core::record::{Caveat, CaveatKind, Interval};
use linerate_engine::{
    Client, CompareObserver, Observer, Stop, WhatIfOptions, disk_beside, profile, time_of_what_ifs,
    what_ifs,
};
use linerate_report::{svg, text};

use crate::args::{By, ProfileArgs, ProfileOptions};
use crate::failure::Failure;
use crate::files::OutputFile;
use crate::output::{Format, Output, conclude};
use crate::progress::Progress;
use crate::site::place;
use crate::target::{check_congestion, check_pace, check_sizes};
use crate::{plan, run, site, typed};

/// Profiles, prints and writes what was asked for.
///
/// # Errors
/// The command line is wrong, nothing was measured, or the run ended before its time.
pub(crate) fn execute(args: ProfileArgs) -> Result<(), Failure> {
    let asked = ProfilePlan::resolve(&args).map_err(Failure::usage)?;
    if let Some(directory) = &args.profile.disk {
        // A file there, taken away at once: better told now than after the run.
        let probe = directory.join(format!(".linerate-{}", std::process::id()));
        fs::File::create_new(&probe)
            .and_then(|_| fs::remove_file(&probe))
            .with_context(|| format!("--disk {}", directory.display()))
            .map_err(Failure::usage)?;
    }
    let option = |name: &str| format!("{} {name}", typed::option("congestion"));
    check_congestion(&asked.test, option)?;
    let format = match (args.document.json, args.profile.by) {
        (true, _) => Format::Json,
        (false, Some(By::Function)) => Format::Details,
        (false, _) => Format::Text,
    };
    let output = Output::open(&args.document, format)?;
    let files = Files::open(&args.profile)?;
    let mut progress = Progress::new(format, args.document.quiet);
    if asked.what_ifs.is_some() {
        site::before_treating(&mut progress);
    }
    let (site, target) = place(args.host, &args.path, asked.test.seed, &mut progress)?;
    let plan = Plan::from(asked.test.clone());
    check_sizes(&target, &plan)?;
    check_pace(&target, &plan, args.test.has("rate"))?;
    let stop = run::signals()?;
    let mut client = Client::connect(target, stop.clone())?;
    let mut shown = ProfileProgress(progress);
    if let Some(time) = asked.time() {
        shown.0.takes([time; 2]);
    }
    let (mut document, error) = profile(&mut client, &asked.test, asked.request, &mut shown)?;
    let mut error = error.map(Failure::from);
    if let Some(directory) = args.profile.disk.as_deref().filter(|_| error.is_none()) {
        shown.phase("writing and reading a file");
        error = beside_the_disk(&mut document, directory, &stop).err();
    }
    if let Some(options) = asked.what_ifs.as_ref().filter(|_| error.is_none()) {
        let done = what_ifs(&mut client, options, &mut document, &mut shown);
        error = done.err().map(Failure::from);
    }
    // The endpoint learns of the end, and undoes its changes, before the lab is gone.
    drop(client);
    drop(shown);
    files.write(&document)?;
    site.iter().for_each(|site| site.describe(&mut document));
    conclude(&document, error, output, None)
}

/// A disk that cannot be written to does not spoil the profile.
fn beside_the_disk(
    document: &mut ProfileDocument,
    directory: &Path,
    stop: &Stop,
) -> Result<(), Failure> {
    match disk_beside(&document.record, directory, stop) {
        Ok(beside) => {
            if beside.bytes < document.record.bytes() {
                document.caveats.push(Caveat::new(
                    CaveatKind::Partial,
                    format!(
                        "the file beside the transfer had {} bytes, the transfer {}",
                        beside.bytes,
                        document.record.bytes()
                    ),
                    "give -n SIZE for a transfer of the size that a file may have",
                ));
            }
            document.disk = Some(beside);
            Ok(())
        }
        Err(error) => Err(Failure::failed(anyhow!(error).context("--disk"))),
    }
}

/// Options of a profile, filled in and checked.
struct ProfilePlan {
    test: Test,
    request: ProfileRequest,
    what_ifs: Option<WhatIfOptions>,
}

impl ProfilePlan {
    fn resolve(args: &ProfileArgs) -> anyhow::Result<Self> {
        let mut request = ProfileRequest::default();
        request.hz = args.profile.hz.unwrap_or(request.hz);
        request.check().map_err(|message| anyhow!("--hz: {message}"))?;
        let test = test(args)?;
        Ok(Self { what_ifs: what_if_options(&args.profile, &test)?, test, request })
    }

    /// How long all of it takes, where a time ends the transfer.
    fn time(&self) -> Option<Duration> {
        let run = Duration::from_secs_f64(self.test.seconds()?);
        let what_ifs = self.what_ifs.as_ref().map(time_of_what_ifs);
        Some(run + REPORTS + what_ifs.unwrap_or_default())
    }
}

/// What both ends take to set the profile up and to tell it.
const REPORTS: Duration = Duration::from_millis(1500);

/// Options of the projections, if there is a model to project by.
fn what_if_options(options: &ProfileOptions, test: &Test) -> anyhow::Result<Option<WhatIfOptions>> {
    let option = match (options.what_if, options.prove) {
        (false, false) => return Ok(None),
        (_, true) => "--prove",
        (true, false) => "--what-if",
    };
    check_transport(test.protocol).context(option)?;
    Ok(Some(WhatIfOptions { test: test.clone(), prove: options.prove }))
}

fn test(args: &ProfileArgs) -> anyhow::Result<Test> {
    let test = plan::resolve(args.test.draft(Workload::Stream)?, args.profile.random.seed)?;
    ensure!(
        test.direction != Direction::Both,
        "--direction both: a profile is of one transfer, up or down"
    );
    Ok(test)
}

/// Files besides the document, opened before the run.
struct Files {
    flame: Option<OutputFile>,
    folded: Option<OutputFile>,
}

impl Files {
    fn open(options: &ProfileOptions) -> Result<Self, Failure> {
        let open = |option, path: &Option<PathBuf>| {
            let file = path.as_deref().map(|path| OutputFile::open(option, path));
            file.transpose()
        };
        Ok(Self {
            flame: open("--flame", &options.flame)?,
            folded: open("--folded", &options.folded)?,
        })
    }

    fn write(self, document: &ProfileDocument) -> Result<(), Failure> {
        if let Some(file) = self.flame {
            file.write(&svg::flame_graph(document))?;
        }
        match self.folded {
            Some(file) => file.write(&text::folded(document)),
            None => Ok(()),
        }
    }
}

/// Shows the run. What a comparison within it takes is not what all of it does.
struct ProfileProgress(Progress);

impl Observer for ProfileProgress {
    fn phase(&mut self, text: &str) {
        Observer::phase(&mut self.0, text);
    }

    fn interval(&mut self, interval: &Interval) -> bool {
        self.0.interval(interval)
    }
}

impl CompareObserver for ProfileProgress {
    fn pair(&mut self, standing: &Standing<'_>) {
        self.0.line(&text::pair_line(standing));
    }
}
