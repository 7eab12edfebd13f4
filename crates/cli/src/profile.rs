//! `profile`: where the CPU time of a transfer goes, at both ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use linerate_core::compare::Standing;
use linerate_core::plan::{Plan, Protocol, Repeats, Test};
use linerate_core::profile::projection::{Known, LayerShares, fit, project_all};
use linerate_core::profile::{EndLayers, Layer, ProfileDocument, ProfileRequest};
use linerate_core::record::{Caveat, CaveatKind, Interval};
use linerate_core::units::{Sizes, Span};
use linerate_engine::{
    Client, CompareObserver, DesignOptions, MeasureError, Observer, ProveOptions, Stop,
    disk_beside, profile, prove, run_design, time_of_projections, udp_records,
};
use linerate_report::{svg, text};

use crate::args::{
    By, ExtentOptions, ProfileArgs, ProfileExtent, ProfileTraffic, RunOptions, StreamArgs,
    StreamOptions, TableOptions,
};
use crate::commands::{conclude, place};
use crate::document::Document;
use crate::failure::Failure;
use crate::files::OutputFile;
use crate::output::Output;
use crate::progress::Progress;
use crate::render::Format;
use crate::{plan, run, watch};

/// Profiles, prints and writes what was asked for.
///
/// # Errors
/// The command line is wrong, nothing was measured, or the run ended before its time.
pub(crate) fn execute(args: ProfileArgs) -> Result<(), Failure> {
    let asked = Asked::resolve(args).map_err(Failure::usage)?;
    let format = asked.format;
    let mut progress = Progress::new(format, asked.run.document.quiet);
    if asked.what_if {
        // In this host's own namespace: that is where a command before this one can have left something.
        let notes = watch::before_treating();
        notes.iter().for_each(|note| progress.warn(note));
    }
    let run = &asked.run;
    let (site, target) = place(run.host.clone(), &run.path, asked.test.seed, &mut progress)?;
    target.check_sizes(&plan_of(&asked.test))?;
    let output = Output::open(&run.document, format)?;
    let files = Files::open(&asked)?;
    let stop = run::signals()?;
    let mut client = Client::connect(target.to_engine(), stop.clone()).map_err(run::failure)?;
    let mut shown = Shown(progress);
    asked
        .how_long()
        .iter()
        .for_each(|words| shown.0.line(words));
    let (mut document, mut error) =
        profile(&mut client, &asked.test, asked.request, &mut shown).map_err(run::failure)?;
    if let Some(directory) = asked.disk.as_deref().filter(|_| error.is_none()) {
        shown.phase("writing and reading a file");
        beside_the_disk(&mut document, directory, &stop)?;
    }
    if asked.what_if && error.is_none() {
        error = what_ifs(&mut client, &asked, &mut document, &mut shown).err();
    }
    // The endpoint is told, and undoes what it still holds, before the lab goes.
    drop(client);
    drop(shown);
    files.write(&document)?;
    let mut document = Document::Profile(Box::new(document));
    site.iter().for_each(|site| site.describe(&mut document));
    conclude(&document, error.map(run::failure), output, None)
}

/// Measured time of each short run, and how often each is made. Two tell chance from the model's faults.
const SHORT_RUN: Span = Span(Duration::from_secs(1));
const ROUNDS: u32 = 2;
/// Pairs of runs that prove a projection: the fewest that can show anything of three figures.
const PAIRS: u32 = 8;

/// What changes would bring, into the document; with `--prove` beside what they do, and 1981's records in datagrams too. What
/// was had before an error stays.
fn what_ifs(
    client: &mut Client,
    asked: &Asked,
    document: &mut ProfileDocument,
    shown: &mut Shown,
) -> Result<(), MeasureError> {
    let ceilings = document.record.ceilings.clone();
    let known = Known {
        layers: shares(document),
        ceilings: &ceilings,
        cause: (document.record.verdict.as_ref()).map(|verdict| verdict.cause),
        seed: asked.test.seed,
    };
    projected(client, asked, &asked.test, &known, document, shown)?;
    if asked.prove && asked.test.protocol != Protocol::Udp {
        // Of this transport no profile was taken.
        let known = Known {
            seed: asked.test.seed,
            ..Known::default()
        };
        let records = udp_records(&asked.test);
        projected(client, asked, &records, &known, document, shown)?;
    }
    Ok(())
}

fn projected(
    client: &mut Client,
    asked: &Asked,
    test: &Test,
    known: &Known<'_>,
    document: &mut ProfileDocument,
    shown: &mut Shown,
) -> Result<(), MeasureError> {
    let options = DesignOptions {
        test: test.clone(),
        runs: ROUNDS,
        time: SHORT_RUN,
        seed: known.seed,
    };
    let designed = run_design(client, &options, shown)?;
    let left_out_points = designed.left_out.iter();
    document
        .caveats
        .extend(left_out_points.map(|why| left_out(why)));
    let model = match fit(&designed.runs, known.seed) {
        Ok(model) => model,
        Err(error) => {
            document.caveats.push(left_out(&error.to_string()));
            return Ok(());
        }
    };
    let mut projections = project_all(&model, &designed.runs, known);
    let options = ProveOptions {
        test: test.clone(),
        time: SHORT_RUN,
        pairs: PAIRS,
        seed: known.seed,
    };
    let proved = match asked.prove {
        true => prove(client, &options, &mut projections, shown),
        false => Ok(()),
    };
    document.cost_models.push(model);
    document.projections.extend(projections);
    proved
}

fn left_out(why: &str) -> Caveat {
    Caveat::new(
        CaveatKind::Partial,
        format!("left out of the projections: {why}"),
        "start the endpoint as root with --allow-treatments and --key-file, and give --key-file here",
    )
}

/// The layers that a design may not tell from others.
fn shares(document: &ProfileDocument) -> Option<[LayerShares; 2]> {
    let of = |end: &EndLayers| {
        let share = |layer| {
            let costs = end.layers.iter().filter(|cost| cost.layer == layer);
            costs.map(|cost| cost.share_percent).sum::<f64>() / 100.0
        };
        LayerShares {
            copy: share(Layer::Copy),
            checksum: share(Layer::Checksum),
        }
    };
    Some([
        of(document.sender.as_ref()?),
        of(document.receiver.as_ref()?),
    ])
}

/// A disk that cannot be written to does not spoil the profile.
fn beside_the_disk(
    document: &mut ProfileDocument,
    directory: &Path,
    stop: &Stop,
) -> Result<(), Failure> {
    match disk_beside(&document.record, directory, stop) {
        Ok(beside) => {
            if beside.bytes < document.record.bytes {
                document.caveats.push(Caveat::new(
                    CaveatKind::Partial,
                    format!(
                        "the file beside the transfer had {} bytes, the transfer {}",
                        beside.bytes, document.record.bytes
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

/// What is to be done, everything filled in and checked; and where.
struct Asked {
    test: Test,
    request: ProfileRequest,
    run: RunOptions,
    format: Format,
    flame: Option<PathBuf>,
    folded: Option<PathBuf>,
    disk: Option<PathBuf>,
    what_if: bool,
    prove: bool,
}

impl Asked {
    fn resolve(args: ProfileArgs) -> anyhow::Result<Self> {
        let mut request = ProfileRequest::default();
        request.hz = args.profile.hz.unwrap_or(request.hz);
        request
            .check()
            .map_err(|message| anyhow!("--hz: {message}"))?;
        let seed = args.profile.seed.unwrap_or_else(plan::fresh_seed);
        let stream = StreamArgs {
            traffic: stream_options(&args.traffic, &args.extent),
            run: RunOptions {
                host: args.host,
                extent: extent(&args.extent, seed),
                transport: args.transport,
                sockets: args.sockets,
                via: None,
                path: args.path,
                document: args.document,
                table: TableOptions {
                    csv: false,
                    json_stream: false,
                },
            },
        };
        let plan = plan::stream(&stream, seed)?;
        let test = plan.tests.into_iter().next().context("no size to run")?;
        Ok(Self {
            test,
            request,
            format: match (stream.run.document.json, args.profile.by) {
                (true, _) => Format::Json,
                (false, Some(By::Function)) => Format::Functions,
                (false, _) => Format::Text,
            },
            run: stream.run,
            flame: args.profile.flame,
            folded: args.profile.folded,
            disk: args.profile.disk,
            what_if: args.profile.what_if || args.profile.prove,
            prove: args.profile.prove,
        })
    }

    /// How long the projections take, in words.
    fn how_long(&self) -> Option<String> {
        let pairs = if self.prove { PAIRS } else { 0 };
        let time = |protocol| time_of_projections(protocol, ROUNDS, pairs, SHORT_RUN);
        let own = time(self.test.protocol);
        match (self.what_if, self.prove) {
            (false, _) => None,
            (true, false) => Some(format!(
                "after it come short runs for the projections, about {} s",
                own.as_secs().next_multiple_of(10)
            )),
            (true, true) => {
                let records = match self.test.protocol {
                    Protocol::Udp => Duration::ZERO,
                    Protocol::Tcp | Protocol::Mptcp => time(Protocol::Udp),
                };
                Some(format!(
                    "after it come short runs for the projections and comparisons that prove them, about {} minutes",
                    (own + records).as_secs().div_ceil(60)
                ))
            }
        }
    }
}

fn stream_options(traffic: &ProfileTraffic, extent: &ProfileExtent) -> StreamOptions {
    StreamOptions {
        size: traffic.size.map(|size| Sizes::one(size.0)),
        bytes: extent.bytes,
        direction: traffic.direction,
        reverse: traffic.reverse,
        bidir: false,
        rate: traffic.rate,
        offload: traffic.offload,
        no_offload: traffic.no_offload,
        zerocopy: traffic.zerocopy,
        discard: traffic.discard,
        verify: traffic.verify,
        whole: false,
        write_rate: traffic.write_rate,
        read_rate: traffic.read_rate,
        fail_below: None,
    }
}

fn extent(options: &ProfileExtent, seed: u64) -> ExtentOptions {
    ExtentOptions {
        time: options.time,
        count: None,
        warm_up: options.warm_up,
        interval: None,
        repeat: None,
        precision: None,
        seed: Some(seed),
    }
}

fn plan_of(test: &Test) -> Plan {
    Plan {
        tests: vec![test.clone()],
        repeats: Repeats::Times(1),
    }
}

/// Files besides the document, opened before the run.
struct Files {
    flame: Option<OutputFile>,
    folded: Option<OutputFile>,
}

impl Files {
    fn open(asked: &Asked) -> Result<Self, Failure> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::open).transpose();
        Ok(Self {
            flame: open(&asked.flame)?,
            folded: open(&asked.folded)?,
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

/// Shows the run.
struct Shown(Progress);

impl Observer for Shown {
    fn phase(&mut self, text: &str) {
        self.0.phase(text);
    }

    fn interval(&mut self, interval: &Interval) -> bool {
        // Stderr that cannot be written is no reason to stop.
        self.0.interval(interval).is_ok()
    }
}

impl CompareObserver for Shown {
    fn pair(&mut self, standing: &Standing<'_>) {
        self.0.line(&text::pair_line(standing));
    }
}
