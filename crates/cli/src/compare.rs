//! `compare`: compares two treatments, or two emulated paths.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use linerate_core::compare::{Comparison, Design, Metric, Sequential, Standing};
use linerate_core::link::PathSpec;
use linerate_core::plan::{Direction, Draft, End, Plan, Protocol, Test, Workload};
use linerate_core::record::Interval;
use linerate_core::treatment::{MAX_POLICY_BYTES, Pair, pair};
use linerate_core::units::{Family, Span, quoted};
use linerate_engine::{
    Client, CompareObserver, CompareOptions, LabPath, MeasureError, Observer, Sides, compare,
    compare_sides,
};
use linerate_report::{Document, text};

use crate::args::{CompareArgs, FailOn, Load};
use crate::baseline::{self, Baseline};
use crate::failure::Failure;
use crate::history::Against;
use crate::output::{self, Output, conclude};
use crate::progress::Progress;
use crate::site::{Site, place};
use crate::target::{FLOOD, check_congestion, check_pace, check_sizes, floods};
use crate::{files, gate, plan, run, site, usage};

/// Measured time of each run, if none is given: long enough for slow start, short enough for thirty
/// pairs.
const DEFAULT_TIME: Span = Span(Duration::from_secs(3));
/// The same of responsiveness, which ends when the path is stable.
const BUSY_TIME: Span = Span(Duration::from_secs(6));

/// Compares, and prints the result.
///
/// # Errors
/// The command line is wrong, a treatment cannot be applied, or the runs failed; nothing is left
/// changed.
pub(crate) fn execute(args: CompareArgs) -> Result<(), Failure> {
    if args.treatments {
        return output::print(&text::treatments(output::style()));
    }
    let fail_on = args.design.fail_on;
    let mut options = resolve(&args).map_err(Failure::usage)?;
    check_congestions(&options)?;
    let keep = &args.document.keep;
    let against = Against::new(keep, args.host.as_ref(), &args.path, "compare");
    let baseline = baseline::of_comparison(&args.beside, &options, against)?;
    let format = output::json_or_text(args.document.json);
    let output = Output::open(&args.document, format)?;
    let mut progress = Progress::new(format, args.document.quiet);
    let known = options.caveats.iter();
    known.for_each(|caveat| progress.warn(&format!("{}: {}", caveat.says(), caveat.remedy)));
    if treats_hosts(&options) {
        options.notes.extend(site::before_treating(&mut progress));
    }
    if let (Some(a), Some(b)) = (&args.path.lab, &args.lab_b) {
        let (document, error) = of_paths([a, b], args.path.family(), &options, progress)?;
        return finish(document, error, output, baseline.as_ref(), fail_on);
    }
    let (site, target) = place(args.host, &args.path, options.design.seed, &mut progress)?;
    let plan = Plan::from(options.test.clone());
    check_sizes(&target, &plan)?;
    if let Some(load) = &options.with {
        check_sizes(&target, &Plan::from(load.clone()))?;
    }
    check_pace(&target, &plan, args.test.has("rate"))?;
    let mut client = Client::connect(target, run::signals()?)?;
    let mut shown = CompareProgress(progress);
    let (mut document, error) = compare(&mut client, &options, &mut shown)?;
    // The endpoint learns of the end, and undoes its changes, before the lab is gone.
    drop(client);
    drop(shown);
    site.iter().for_each(|site| site.describe(&mut document));
    finish(document, error, output, baseline.as_ref(), fail_on)
}

/// Prints the document, which also says what ended the comparison early.
fn finish(
    mut document: Comparison,
    error: Option<MeasureError>,
    output: Output,
    baseline: Option<&Baseline>,
    fail_on: Option<FailOn>,
) -> Result<(), Failure> {
    let now = document.observed();
    let is_whole = error.is_none() && document.why_partial().is_none();
    let held = baseline.map_or(Ok(()), |was| was.beside(&now, is_whole, &mut document.baseline));
    if let Some(fail_on) = fail_on.filter(|_| !is_whole) {
        gate::no_result(gate::option(fail_on));
    }
    let error = error.map(|error| Failure::failed(anyhow!(error)));
    conclude(&document, error, output, None)?;
    if let Some(fail_on) = fail_on {
        gate::hold_comparison(&document, fail_on).map_err(Failure::failed)?;
    }
    held
}

/// Two emulated paths, each with its endpoint.
fn of_paths(
    specs: [&PathSpec; 2],
    family: Option<Family>,
    options: &CompareOptions,
    mut progress: Progress,
) -> Result<(Comparison, Option<MeasureError>), Failure> {
    progress.phase("making both labs");
    let paths = Site::build_two(specs, family, options.design.seed)?;
    let signals = run::signals()?;
    let connect = |path: &LabPath| {
        path.enter().map_err(|error| Failure::failed(anyhow!(error)))?;
        Client::connect(path.target(), signals.clone()).map_err(Failure::from)
    };
    let (mut a, mut b) = (connect(&paths[0])?, connect(&paths[1])?);
    let mut sides = Sides { a: &mut a, b: Some((&mut b, [&paths[0], &paths[1]])) };
    let mut shown = CompareProgress(progress);
    let (mut document, error) = compare_sides(&mut sides, options, &mut shown)?;
    drop((a, b, shown));
    document.lab_b = Some(specs[1].to_string());
    paths[0].describe([(&mut document.environment, &mut document.caveats)]);
    document.caveats.extend(paths[1].caveats());
    Ok((document, error))
}

/// Whether a treatment changes a host, and not only sockets.
fn treats_hosts(options: &CompareOptions) -> bool {
    let changes = |end| [&options.a, &options.b].map(|treatments| treatments.host_changes(end));
    let changes = [changes(End::Client), changes(End::Server)];
    !changes.into_iter().flatten().all(|changes| changes.is_empty())
}

/// Shows pairs as they come.
struct CompareProgress(Progress);

impl Observer for CompareProgress {
    fn phase(&mut self, text: &str) {
        self.0.live(text);
    }

    fn takes(&mut self, left: [Duration; 2]) {
        self.0.takes(left);
    }

    fn interval(&mut self, _: &Interval) -> bool {
        true
    }
}

impl CompareObserver for CompareProgress {
    fn begins(&mut self, [fewest, most]: [u32; 2]) {
        self.0.line(&format!(
            "{fewest} to {most} pairs; behind each, how many an answer is expected to take"
        ));
    }

    fn pair(&mut self, standing: &Standing<'_>) {
        self.0.line(&text::pair_line(standing));
    }
}

/// What to compare, with all defaults, checked.
fn resolve(args: &CompareArgs) -> anyhow::Result<CompareOptions> {
    ensure!(args.lab_b.is_none() || args.path.lab.is_some(), "--lab-b needs --lab, the path of A");
    let seed = args.design.random.seed;
    let [mut a, mut b] = [&args.a, &args.b].map(|side| side.clone().unwrap_or_default());
    a.load(&policy)?;
    b.load(&policy)?;
    let pair = pair(&a, &b)?;
    ensure!(
        args.lab_b.is_some() || pair.a.is_empty() || pair.a != pair.b,
        "--b {}: it does the same as --a; `--a none --b none` shows how much runs differ by chance",
        quoted(&pair.b.to_string())
    );
    let test = test(args, seed)?;
    for (option, treatments) in [("--a", &pair.a), ("--b", &pair.b)] {
        let treated = treatments.apply_to(&mut test.clone());
        treated
            .map_err(|error| anyhow!("{option} {}: {error}", quoted(&treatments.to_string())))?;
    }
    let metrics = metrics(args.design.metric.clone(), &test)?;
    let with = |words: &String| {
        let load = with(words, &pair, seed, args.path.lab.is_some());
        load.with_context(|| format!("--with {}", quoted(words)))
    };
    let with = args.design.with.as_ref().map(with).transpose()?;
    let mut design = Design {
        margin_percent: args.design.margin.map(|margin| margin.0),
        metrics: metrics.len(),
        max_pairs: args.design.pairs,
        seed,
    };
    // So few pairs may be unable to decide so many metrics.
    Sequential::new(&design)?;
    let mut metrics_if_there = Vec::new();
    if args.design.metric.is_empty() {
        metrics_if_there = beside_the_rate(&pair, &mut design)?;
    }
    if metrics.iter().any(Metric::is_responsiveness) {
        check_responsiveness(&test, with.is_some())?;
    }
    let caveats = pair.misplaced(&test);
    let mut notes = pair.notes;
    if args.lab_b.is_some() {
        // The notes say that equal treatments differ by chance alone, but these paths differ.
        notes.clear();
    }
    Ok(CompareOptions {
        a: pair.a,
        b: pair.b,
        with,
        design,
        test,
        metrics,
        metrics_if_there,
        forbidden: args.design.forbid.clone(),
        notes,
        caveats,
    })
}

/// The CPU figures that are compared beside the rate, where a run has them. Nothing if so few pairs
/// were asked for that they can decide the rate alone.
fn beside_the_rate(pair: &Pair, design: &mut Design) -> anyhow::Result<Vec<Metric>> {
    let paths = pair.cpu_figures().into_iter();
    let metrics: Vec<Metric> = paths.map(str::parse).collect::<Result<_, _>>()?;
    design.metrics += metrics.len();
    let are_decided = Sequential::new(design).is_ok();
    Ok(if are_decided { metrics } else { Vec::new() })
}

/// Whether round trips per minute can be measured by the test.
fn check_responsiveness(test: &Test, has_load: bool) -> anyhow::Result<()> {
    let is_stream = test.workload() == Workload::Stream && test.protocol != Protocol::Udp;
    ensure!(
        is_stream && test.direction != Direction::Both && test.seconds().is_some(),
        "--metric rpm: it needs a TCP stream in one direction that ends by its time"
    );
    ensure!(!has_load, "--metric rpm: it has a load of its own: leave --with out");
    Ok(())
}

/// The load of `--with`: a workload with its options, as on a command line.
fn with(words: &str, pair: &Pair, seed: u64, is_lab: bool) -> anyhow::Result<Test> {
    ensure!(
        pair.a.host_changes(End::Server).is_empty() && pair.b.host_changes(End::Server).is_empty(),
        "cannot be used with server. treatments: an endpoint changes its host for one session alone"
    );
    let load = usage::load(words)?;
    let mut is_paced = false;
    let (workload, drafts) = match &load {
        Load::Stream(options) => {
            is_paced = options.has("rate");
            (Workload::Stream, options.drafts(Workload::Stream)?)
        }
        Load::Rr(options) => (Workload::Rr, options.drafts(Workload::Rr)?),
        Load::Crr(options) => (Workload::Crr, options.drafts(Workload::Crr)?),
    };
    let [draft] = drafts.try_into().map_err(|_| anyhow!("give one size"))?;
    let test = plan::resolve(draft, seed)?;
    ensure!(is_lab || is_paced || !floods(&test), "-u: {FLOOD}");
    let default = plan::resolve(Draft::new(workload), seed)?;
    ensure!(
        test.extent == default.extent,
        "the load lasts as long as each run: leave its time, bytes or count out"
    );
    Ok(test)
}

/// The text of a policy's file.
fn policy(name: &str) -> Result<String, String> {
    let text = files::read_text("", Path::new(name), MAX_POLICY_BYTES as u64);
    text.map_err(|error| error.root_cause().to_string())
}

/// Refuses congestion controls of either side that this host does not have.
fn check_congestions(options: &CompareOptions) -> Result<(), Failure> {
    for (side, treatments) in [("--a", &options.a), ("--b", &options.b)] {
        let mut test = options.test.clone();
        let applied = treatments.apply_to(&mut test);
        applied.map_err(|error| Failure::usage(anyhow!(error)))?;
        check_congestion(&test, |_| format!("{side} {}", quoted(&treatments.to_string())))?;
    }
    Ok(())
}

/// The test that both treatments are applied to. The options of another workload are refused.
fn test(args: &CompareArgs, seed: u64) -> anyhow::Result<Test> {
    let workload = args.workload.unwrap_or(Workload::Stream);
    let mut draft = args.test.draft(workload)?;
    let ends = ["time", "count", "bytes", "total"];
    if !ends.iter().any(|end| args.test.has(end)) {
        let is_responsiveness = args.design.metric.iter().any(Metric::is_responsiveness);
        draft = draft.time(if is_responsiveness { BUSY_TIME } else { DEFAULT_TIME });
    }
    plan::resolve(draft, seed)
}

/// The figures asked for, or the one that the test is run for.
fn metrics(asked: Vec<Metric>, test: &Test) -> anyhow::Result<Vec<Metric>> {
    if asked.is_empty() {
        return Ok(vec![Metric::headline(test)]);
    }
    for (index, metric) in asked.iter().enumerate() {
        ensure!(!asked[..index].contains(metric), "--metric {metric} is given twice");
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use linerate_core::plan::{Extent, Traffic};

    use super::*;
    use crate::args::{Cli, Command};

    /// What these options compare, or why they are refused.
    fn resolved(options: &str) -> Result<CompareOptions, String> {
        typed(format!("linerate compare pit {options}").split_whitespace())
    }

    fn typed<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<CompareOptions, String> {
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Compare(args) = cli.command else {
            panic!("compare was asked for");
        };
        resolve(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_stream_of_three_seconds_is_compared_by_its_rate() {
        let options = resolved("--a none --b mss=536").unwrap();
        assert!(matches!(options.test.traffic, Traffic::Stream(_)));
        assert_eq!(options.test.extent, Extent::Time(DEFAULT_TIME));
        assert_eq!(options.metrics[0].as_str(), "throughput_bps");
        assert_eq!(options.design.max_pairs, 30);
        assert_eq!(options.test.seed, options.design.seed);
        assert!(options.a.is_empty() && options.b.to_string() == "mss=536");
    }

    /// As `core::ceilings` writes it, for a host of an emulated path.
    #[test]
    fn what_a_remedy_says_can_be_typed() {
        let command = "linerate compare --lab 'rate=100mbit,rtt=40ms' -R -6 -P 2 --size 8192 \
            --bytes 1048576 \
                       --write-rate 8mbit --send-buffer 500000 --mss 1000 --pacing 1500kbit -C \
                       reno --nodelay --dscp 8 \
                       --a 'client.sysctl:net.ipv4.tcp_rmem=4096 65536 131072' \
                       --b 'client.sysctl:net.ipv4.tcp_rmem=4096 65536 8388608'";
        // What stands between single quotes is one word.
        let words = command.split('\'').enumerate().flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().collect::<Vec<_>>(),
            _ => vec![part],
        });
        let options = typed(words).unwrap();
        assert_eq!(options.test.streams, 2);
        let [a, b] = [&options.a, &options.b].map(|side| side.host_changes(End::Client));
        assert_eq!((a.len(), b.len()), (1, 1));
        assert_ne!(a, b);
    }

    #[test]
    fn each_workload_has_its_own_headline() {
        for (options, metric) in [
            ("--workload rr", "transactions_per_s"),
            ("--workload rr --rate 100", "latency_us.p50"),
            ("--workload crr", "connections_per_s"),
            ("--workload stream -u --rate 10mbit", "throughput_bps"),
        ] {
            let options = resolved(&format!("--a none --b none {options}")).unwrap();
            assert_eq!(options.metrics[0].as_str(), metric);
        }
    }

    #[test]
    fn several_metrics_keep_their_order() {
        let line = "--a none --b none --metric latency_us.p99,transactions_per_s --workload rr";
        let options = resolved(line).unwrap();
        assert_eq!(options.design.metrics, 2);
        assert_eq!(options.metrics[0].as_str(), "latency_us.p99");
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        for (line, words) in [
            ("--a none", "--b, required"),
            ("--a none --b mas=536", "--b, `mss`"),
            ("--a mss=7 --b none", "--a, 88"),
            ("--a none --b mss=536 --mss 1000", "--b, mss"),
            ("--a none --b none,mss=536", "--b, stands alone"),
            ("--a none --b =536", "--b, before the `=`"),
            ("--a mss=1448 --b mss=1448", "--b, the same as --a"),
            ("--a pacing=8mbit --b pacing=8000kbit", "--b, the same as --a"),
            ("--a none --b source=192.0.2.1,server.route_mtu=1400", "--b, control connection"),
            ("--a none --b none --metric speed", "speed, throughput_bps"),
            ("--a none --b none --metric bytes,bytes", "bytes, twice"),
            ("--a none --b none --pairs 5", "--pairs, 6 to 30"),
            ("--a none --b none --pairs 31", "--pairs, 6 to 30"),
            ("--a none --b none --margin 0", "--margin, above 0%"),
            ("--a none --b none --forbid rain", "rain, retransmissions"),
            ("--a none --b none --request 9", "--request, rr and crr"),
            ("--a none --b none --workload rr --size 9", "--size, stream"),
            ("--a none --b none --workload rr -R", "-R, stream"),
            ("--a none --b none --workload rr --rate 10mbit", "--rate, 1000"),
            ("--a none --b none --rate 10mbit", "--rate, --pacing"),
            ("--a none --b none -u --rate 10", "rate, 80"),
        ] {
            let message = resolved(line).expect_err(line);
            for word in words.split(", ") {
                assert!(message.contains(word), "{line}: {message}");
            }
        }
    }
}
