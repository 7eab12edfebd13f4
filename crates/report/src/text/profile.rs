//! The page of a profile: the layers of both ends side by side, or their CPU time by thread where
//! layers cannot be sampled.

use std::collections::BTreeMap;

use linerate_core::profile::attribution::{Role, path_from_root};
use linerate_core::profile::{EndLayers, How, Layer, LayerCost, ProfileDocument, SampleClock};
use linerate_core::record::{CpuSeconds, Observed, Record};
use linerate_core::units::printable;

use super::number::{
    bytes, count, counted, digits, joined, named, percent, rate, seconds, some_joined, with_unit,
};
use super::parts::{caveats, emulated, traffic_and_peer};
use super::projection;
use crate::document::{Document, Rate};
use crate::page::{Page, Table, table};
use crate::svg::layer_name;

impl Document for ProfileDocument {
    /// The layers of both ends; with details, the functions of each end below them.
    fn page(&self, page: &mut Page) {
        let reached = self.record.throughput_bps().map_or("no figure".to_owned(), rate);
        page.heading(&format!("{reached}: {}", traffic_and_peer(&self.record)));
        if let Some(most) = most(self) {
            page.verdict(&most);
        }
        emulated(page, &self.record.environment);
        if page.has_details() {
            sampling(page, self);
        }
        page.gap();
        page.table(&layers(self));
        let is_sampled = |end: &EndLayers| end.profile.how.tells_layers() && end.samples > 0;
        if page.has_details() && ends(self).any(|(_, end)| is_sampled(end)) {
            page.words(FOOT);
        }
        account(page, self);
        if page.has_details() {
            for (label, end) in ends(self) {
                functions(page, label, end);
            }
        }
        let (projections, others) = (&self.projections, &self.not_projected);
        projection::write(page, &self.cost_models, projections, others);
        disk(page, self);
        caveats(page, &self.caveats);
    }

    fn observed(&self) -> Observed {
        Observed::runs([&*self.record])
    }

    fn records(&self) -> Option<Vec<&Record>> {
        Some(vec![&*self.record])
    }

    fn records_mut(&mut self) -> Vec<&mut Record> {
        vec![&mut *self.record]
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        self.record.throughputs()
    }
}

/// `most of the CPU time: sender TCP 47.8 %, receiver scheduling 53.9 %`
fn most(document: &ProfileDocument) -> Option<String> {
    let largest = ends(document).filter_map(|(label, end)| {
        let layers = end.layers.iter().filter(|cost| cost.layer != Layer::Idle);
        let most = layers.max_by(|a, b| a.share_percent.total_cmp(&b.share_percent))?;
        let share = percent(most.share_percent);
        Some(format!("{label} {} {share}", layer_name(most.layer)))
    });
    let largest = some_joined(largest, ", ");
    named("most of the CPU time:", largest, |words| words)
}

/// Writes how each end's time was counted, and its service demand.
fn sampling(page: &mut Page, document: &ProfileDocument) {
    for (label, end) in ends(document) {
        page.facts(label, [how(end), samples(end)].concat());
        page.facts("", demand(end));
        page.facts("", [format!("counted: {}", end.taken)]);
    }
    let both = document.shared_overhead_percent.map(percent);
    let took = both.map(|it| format!("the profilers took {it} of their host's busy CPU time"));
    page.facts("both ends", took);
}

/// Folded stacks for flame graph tools, one line each: the end, the functions from the outermost to
/// the innermost, and the samples: `sender;entry_SYSCALL_64;tcp_sendmsg 12`. Only the ends' own
/// work is included.
pub fn folded(document: &ProfileDocument) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (end, role) in [("sender", Role::Sender), ("receiver", Role::Receiver)] {
        for (stack, _) in document.stacks(role) {
            // The separator cannot occur in a name.
            let names = path_from_root(stack).map(|name| printable(name).replace(';', ","));
            let line = names.fold(end.to_owned(), |line, name| format!("{line};{name}"));
            *lines.entry(line).or_default() += stack.count;
        }
    }
    let line = |(stack, samples): (&String, &u64)| format!("{stack} {samples}\n");
    lines.iter().map(line).collect()
}

const FOOT: &str = "Shares are of the end's CPU time for the transfer, ± half their interval at 95 \
    %: the error of \
    sampling, not how much another run would differ. Packets are those that carry data, as on \
    the wire; bytes are \
    payload. In soft interrupts: of the layer's own time.";

const NO_KERNEL: &str =
    "Shares are of the end's samples, not of its CPU time: the kernel's functions are not shown.";

fn ends(document: &ProfileDocument) -> impl Iterator<Item = (&'static str, &EndLayers)> {
    let [sender, receiver] = [&document.sender, &document.receiver].map(Option::as_ref);
    let sender = sender.map(|end| ("sender", end));
    sender.into_iter().chain(receiver.map(|end| ("receiver", end)))
}

fn how(end: &EndLayers) -> Vec<String> {
    let profile = &end.profile;
    let how = match profile.how {
        How::Sampled { clock, .. } => {
            let clock = match clock {
                SampleClock::CpuClock => "a timer",
                SampleClock::Cycles => "cycles",
            };
            format!("{} samples/s by {clock}", count(profile.hz.into()))
        }
        How::Accounted => "CPU time by the kernel's account, no samples".to_owned(),
    };
    vec![how, seconds(profile.seconds)]
}

fn samples(end: &EndLayers) -> Vec<String> {
    let profile = &end.profile;
    if profile.how == How::Accounted {
        return Vec::new();
    }
    let [own, foreign] = [end.samples, end.foreign_samples].map(count);
    let took = match profile.overhead.percent {
        Some(took) => format!("the profiler used {}", percent(took)),
        None => "what the profiler used is not known".to_owned(),
    };
    let facts = [
        Some(format!("{own} samples of its own, {foreign} of others")),
        counted(profile.lost, "lost"),
        counted(profile.throttled, "throttled"),
        Some(took),
    ];
    facts.into_iter().flatten().collect()
}

/// The end's service demand, split by its layers.
fn demand(end: &EndLayers) -> Option<String> {
    let whole = with_unit(end.service_demand_us_per_kib?, "µs/KiB");
    let of_layers = end.layers.iter().filter(|cost| cost.layer != Layer::Idle);
    let (named, others): (Vec<_>, Vec<_>) = of_layers
        .filter_map(|cost| Some((cost, cost.service_demand_us_per_kib?)))
        .partition(|(cost, _)| cost.share_percent >= NAMED_PERCENT);
    let layer =
        |(cost, part): &(&LayerCost, f64)| format!("{} {}", layer_name(cost.layer), digits(*part));
    let named = named.iter().map(layer);
    let others: f64 = others.iter().map(|(_, part)| part).sum();
    let others = (others > 0.0).then(|| format!("others {}", digits(others)));
    let parts = joined(named.chain(others), " + ");
    Some(format!("service demand {whole}: {parts}"))
}

/// Smallest share of the end's time, percent, from which a layer is named in the split of the
/// service demand.
const NAMED_PERCENT: f64 = 1.0;

/// A row for each layer that occurs, the largest of both ends first; then the sum, and the idle
/// time.
fn layers(document: &ProfileDocument) -> Table<Row> {
    let ends = [document.sender.as_ref(), document.receiver.as_ref()];
    let mut shown = Layer::ALL.to_vec();
    shown.retain(|&layer| layer != Layer::Idle && weight(&ends, layer) > 0.0);
    shown.sort_by(|a, b| weight(&ends, *b).total_cmp(&weight(&ends, *a)));
    let idle = (weight(&ends, Layer::Idle) > 0.0).then_some(Row::Layer(Layer::Idle));
    let rows = shown.into_iter().map(Row::Layer).chain([Row::Sum]).chain(idle);
    let name = |row: &Row| match row {
        Row::Layer(layer) => layer_name(*layer),
        Row::Sum => "all of it",
    };
    let mut table = Table::of(rows).left(["", "layer"], name);
    for (end, label) in ends.into_iter().zip(["sender", "receiver"]) {
        let cost = |row: &Row| match row {
            Row::Layer(Layer::Idle) | Row::Sum => None,
            Row::Layer(layer) => of(end?, *layer),
        };
        table = table! { to table, row =>
            right [label, "%"] => share_of(end?, row);
            right @2 ["", "±"] => half_width(cost(row)?);
            right ["ns per", "packet"] => match row {
                Row::Sum => per(end?, end?.packets?),
                Row::Layer(_) => cost(row)?.ns_per_packet.map(digits),
            };
            right @1 ["", "byte"] => match row {
                Row::Sum => per(end?, end?.bytes),
                Row::Layer(_) => cost(row)?.ns_per_byte.map(digits),
            };
            right @3 ["in soft", "int. %"] => soft_interrupts(cost(row)?);
        };
    }
    table
}

/// A row of the table of layers.
enum Row {
    Layer(Layer),
    /// The sum of all layers but the idle time.
    Sum,
}

fn share_of(end: &EndLayers, row: &Row) -> Option<String> {
    Some(match row {
        Row::Sum => "100".to_owned(),
        Row::Layer(Layer::Idle) => digits(of(end, Layer::Idle)?.share_percent),
        Row::Layer(layer) => format!("{:.1}", of(end, *layer)?.share_percent),
    })
}

fn half_width(cost: &LayerCost) -> Option<String> {
    let [low, high] = cost.share_interval_percent;
    let half_width = (high - low) / 2.0;
    (half_width > 0.0).then(|| format!("{half_width:.1}"))
}

fn soft_interrupts(cost: &LayerCost) -> Option<String> {
    let is_known = cost.samples > 0 || cost.softirq_percent > 0.0;
    is_known.then(|| format!("{:.0}", cost.softirq_percent))
}

/// CPU time for each of `number` items, nanoseconds.
fn per(end: &EndLayers, number: u64) -> Option<String> {
    (number > 0).then(|| digits(end.cpu_seconds * 1e9 / number as f64))
}

fn of(end: &EndLayers, layer: Layer) -> Option<&LayerCost> {
    end.layers.iter().find(|cost| cost.layer == layer)
}

/// A layer's share, summed over both ends, percent.
fn weight(ends: &[Option<&EndLayers>], layer: Layer) -> f64 {
    let costs = ends.iter().flatten().filter_map(|end| of(end, layer));
    costs.map(|cost| cost.share_percent).sum()
}

fn functions(page: &mut Page, label: &str, end: &EndLayers) {
    page.section(format!("Functions of the {label}, without what they call"));
    if !end.profile.how.tells_layers() && !end.functions.is_empty() {
        page.words(NO_KERNEL);
    }
    page.table(&table! { &end.functions, cost =>
        right "%" => format!("{:.1}", cost.share_percent);
        right "samples" => cost.samples;
        left "mostly" => layer_name(cost.layer);
        left "function" => cost.function.clone();
    });
}

fn disk(page: &mut Page, document: &ProfileDocument) {
    let facts = document.disk.iter().flat_map(|disk| {
        let [write, read] = [disk.write_bps, disk.read_bps].map(rate);
        let storage = percent(disk.from_storage_percent);
        [
            format!("a file of {} in {}", bytes(disk.bytes), disk.directory),
            format!("written at {write}"),
            format!("read at {read}, {storage} of it from storage"),
            format!("the path has {} times the slower of the two", digits(disk.path_over_disk)),
        ]
    });
    page.gap();
    page.facts("disk", facts);
}

/// Threads with a row of their own.
const MAX_LINES: usize = 16;

/// Writes CPU time by thread and soft interrupt of ends whose kernel layers were not sampled.
fn account(page: &mut Page, document: &ProfileDocument) {
    let without_layers = |end: &&EndLayers| !end.profile.how.tells_layers();
    let ends =
        [&document.sender, &document.receiver].map(|end| end.as_ref().filter(without_layers));
    if ends.iter().all(Option::is_none) {
        return;
    }
    page.gap();
    page.table(&threads(&ends));
    page.words(ACCOUNT_FOOT);
}

const ACCOUNT_FOOT: &str = "CPU time by the kernel's account, seconds. It has no layers in the kernel and \
    no intervals: user mode counts as the \
    application, the rest as unattributed. Soft interrupts are those of the whole host, whoever \
    they were for. Between two hosts they \
    are added to the end's; on one host what ran in a thread is in its system time.";

/// Name, and the user and system time of both ends, seconds.
type ThreadRow = (String, [[Option<String>; 2]; 2]);

fn threads(ends: &[Option<&EndLayers>; 2]) -> Table<ThreadRow> {
    let threads = |end: &Option<&EndLayers>| end.map_or(0, |end| end.profile.each_thread.len());
    let all = ends.iter().map(threads).max().unwrap_or(0);
    let mut rows = Vec::new();
    for number in 0..all.min(MAX_LINES) {
        let of = |end: &EndLayers| end.profile.each_thread.get(number).copied();
        rows.push(row(format!("flow {}", number + 1), ends, of));
    }
    if all > MAX_LINES {
        let name = format!("{} more flows", all - MAX_LINES);
        rows.push(row(name, ends, |end| {
            let rest = end.profile.each_thread.iter().skip(MAX_LINES);
            Some(rest.fold(CpuSeconds::default(), |sum, one| CpuSeconds {
                user: sum.user + one.user,
                system: sum.system + one.system,
            }))
        }));
    }
    rows.push(row("all of them".to_owned(), ends, |end| Some(end.profile.threads)));
    let softirq_s = |end: &EndLayers| end.profile.softirq_seconds.map(digits);
    let softirq = ends.map(|end| [None, end.and_then(softirq_s)]);
    rows.push(("soft interrupts, of the host".to_owned(), softirq));
    table! { rows, (name, [sender, receiver]) =>
        left ["", "thread"] => name.clone();
        right ["sender", "user"] => sender[0].clone();
        right ["", "system"] => sender[1].clone();
        right ["receiver", "user"] => receiver[0].clone();
        right ["", "system"] => receiver[1].clone();
    }
}

fn row(
    name: String,
    ends: &[Option<&EndLayers>; 2],
    of: impl Fn(&EndLayers) -> Option<CpuSeconds>,
) -> ThreadRow {
    let cells = ends.map(|end| {
        let spent = end.and_then(&of);
        let parts = spent.map(|spent| [spent.user, spent.system].map(|s| Some(digits(s))));
        parts.unwrap_or_default()
    });
    (name, cells)
}
