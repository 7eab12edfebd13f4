//! The page of a load mix.

use linerate_core::load::{
    CallQuality, ClassLatency, LoadDocument, LoadMember, LoadOneWay, LoadTotal,
};
use linerate_core::plan::{Direction, Workload};
use linerate_core::record::{Observed, Record, Status};

use super::evidence::in_short;
use super::number::{
    counted, digits, joined, micros, named, percent, plural, rate, seconds, some_joined,
};
use super::parts::{self, caveats, clock, destination, emulated, protocol_name, verdict, video};
use crate::document::{Document, Rate, Surroundings};
use crate::page::{Page, Table, table};

impl Document for LoadDocument {
    /// Totals of each direction, latency of each class, the quality of calls, and the bottleneck of
    /// the busiest stream; then every member.
    fn page(&self, page: &mut Page) {
        page.heading(&headline(self));
        emulated(page, &self.environment);
        for (name, total) in [("down", &self.down), ("up", &self.up)] {
            page.facts(name, total.iter().flat_map(total_facts));
        }
        page.facts("latency", latency(self));
        page.facts("one way", self.one_way.iter().flat_map(one_way));
        for call in &self.calls {
            page.facts(&format!("call {}", call.direction.word()), call_facts(call));
        }
        page.facts("QoO", [parts::qoo(self.latency.iter().map(|class| &class.outcomes))]);
        for member in self.members.iter().filter(|member| is_exchange(member)) {
            page.entry("requests", &exchange(member));
        }
        page.gap();
        page.table(&classes(&self.latency));
        bottleneck(page, self);
        if page.has_details() {
            members(page, self);
        }
        let of_members = self.members.iter().flat_map(|it| &it.record.caveats);
        caveats(page, self.caveats.iter().chain(of_members));
    }

    fn observed(&self) -> Observed {
        let total = |total: &Option<LoadTotal>| total.map(|total| total.throughput_bps);
        let figures = [
            ("down.throughput_bps", total(&self.down)),
            ("up.throughput_bps", total(&self.up)),
            ("idle_latency_us", self.idle_latency_us),
            ("loaded_latency_us", self.loaded_latency_us),
        ];
        Observed::figures_of(&self.started_at, figures)
    }

    fn records(&self) -> Option<Vec<&Record>> {
        Some(self.members.iter().map(|member| &member.record).collect())
    }

    fn run_names(&self) -> Vec<&str> {
        let members = self.members.iter();
        members.map(|member| member.name.as_str()).collect()
    }

    fn records_mut(&mut self) -> Vec<&mut Record> {
        let members = self.members.iter_mut();
        members.map(|member| &mut member.record).collect()
    }

    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        let records = self.members.iter_mut().map(|member| &mut member.record);
        let runs = records.map(|record| (&mut record.environment, &mut record.caveats));
        let own = (&mut self.environment, &mut self.caveats);
        runs.chain([own]).collect()
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        let rate = |total: &Option<LoadTotal>| total.map(|total| total.throughput_bps);
        Some(vec![("up", rate(&self.up)), ("down", rate(&self.down))])
    }
}

/// `rrul of pit (198.18.0.2:5201), 10.0 s beside 3.00 s idle: TCP both ways in four classes`
fn headline(document: &LoadDocument) -> String {
    let stopped = match document.status {
        Status::Complete => "",
        Status::Partial => ", STOPPED EARLY",
    };
    let (mix, title) = (&document.mix, &document.title);
    let to = destination(&document.host, &document.peer, None);
    let time = seconds(document.seconds);
    format!("{mix} on the path to {to}, {time}{stopped}: {title}")
}

fn total_facts(total: &LoadTotal) -> [Option<String>; 3] {
    [
        Some(rate(total.throughput_bps)),
        Some(plural(total.flows, "flow")),
        named("fairness", total.fairness, |index| format!("{index:.2}")),
    ]
}

/// `20.1 ms idle, 268 ms under load: 248 ms added (the mean of 4 classes)`
fn latency(document: &LoadDocument) -> Option<String> {
    let (idle, loaded) = (document.idle_latency_us, document.loaded_latency_us);
    let added = |us: f64| match idle {
        Some(idle) if us > idle => format!(": {} added", micros(us - idle)),
        Some(_) => ", no more than idle".to_owned(),
        None => String::new(),
    };
    let facts = [
        idle.map(|us| format!("{} idle", micros(us))),
        loaded.map(|us| format!("{} under load{}", micros(us), added(us))),
    ];
    let facts = some_joined(facts, ", ")?;
    let classes = document.latency.len() as u64;
    let mean = (classes > 1).then(|| format!("(mean of {})", plural(classes, "probe")));
    Some(joined([Some(facts), mean], " "))
}

/// `247 ms added down, 1.2 ms up: the queue is on the way down`
fn one_way(ways: &LoadOneWay) -> Option<String> {
    let (up, down) = (ways.up.added_us?, ways.down.added_us?);
    if up.max(down) <= 0.0 {
        // Round trips are those of all probes, and have the hosts' delays too.
        return Some("nothing added either way, by the UDP probes".to_owned());
    }
    let mut added = [(up, "up"), (down, "down")];
    added.sort_by(|one, other| other.0.total_cmp(&one.0));
    let [(more, first), (less, second)] = added.map(|(us, way)| (micros(us.max(0.0)), way));
    let place = match ways.queue {
        Some(Direction::Up) => ": the queue is on the way up",
        Some(Direction::Down) => ": the queue is on the way down",
        Some(Direction::Both) => ": there is a queue each way",
        None => "",
    };
    Some(format!("{more} added {first}, {less} {second}{place}"))
}

fn call_facts(call: &CallQuality) -> [Option<String>; 6] {
    let in_bursts = call.burst_ratio.filter(|ratio| *ratio >= BURSTS);
    [
        Some(format!("MOS {:.2} (R {:.0})", call.mos, call.r)),
        Some(format!("{} lost", percent(call.loss_percent))),
        call.late_percent.filter(|late| *late > 0.0).map(|late| format!("{} late", percent(late))),
        in_bursts.map(|ratio| format!("in bursts {} times as long as random ones", digits(ratio))),
        Some(format!("jitter {}", micros(call.jitter_us))),
        Some(format!("delay {}", micros(call.delay_us))),
    ]
}

/// A burst ratio that is told: it costs half a point of R with G.711 at 5 % of loss.
const BURSTS: f64 = 1.2;

fn is_exchange(member: &LoadMember) -> bool {
    !member.probe && member.record.workload != Workload::Stream
}

/// `objects: 112/s, p50 53.1 ms, p99 204 ms`
fn exchange(member: &LoadMember) -> String {
    let record = &member.record;
    let latency = record.latency_us.as_ref();
    let mut facts = match (&record.video, &record.page_us) {
        (Some(played), _) => video(played).map(Some).to_vec(),
        (None, Some(page)) => vec![
            Some(plural(page.count, "page")),
            named("median", Some(page.p50), micros),
            named("max", Some(page.max), micros),
        ],
        (None, None) => vec![
            record.transactions_per_s.map(|n| digits(n) + "/s"),
            named("p50", latency.map(|all| all.p50), micros),
            named("max", latency.map(|all| all.max), micros),
        ],
    };
    facts.push(counted(record.failed, "failed"));
    facts.push(counted(record.requests_not_sent, "not sent"));
    format!("{}: {}", member.name, joined(facts, ", "))
}

fn classes(latency: &[ClassLatency]) -> Table<&ClassLatency> {
    table! { latency, class =>
        left "probe" => class.member.clone();
        left "over" => protocol_name(class.protocol);
        left "DSCP" => class.dscp.to_string();
        right ["idle", "mean"] => micros(class.idle_us?.mean);
        right ["loaded", "mean"] => micros(class.loaded_us?.mean);
        right ["", "p50"] => micros(class.loaded_us?.p50);
        right ["", "p99"] => micros(class.loaded_us.filter(|loaded| loaded.count >= 100)?.p99);
        right ["", "max"] => micros(class.loaded_us?.max);
        right ["", "lost"] => class.failed;
    }
}

/// Writes the verdict of the stream with the highest rate.
fn bottleneck(page: &mut Page, document: &LoadDocument) {
    let Some((member, leg)) = document.busiest() else {
        return;
    };
    page.gap();
    let (name, direction) = (&member.name, leg.direction.word());
    let reached = leg.throughput_bps.map(rate).unwrap_or_default();
    page.indented(&format!("Busiest: {name} {direction}, {reached}"));
    verdict(page, Some(leg.direction), leg);
}

/// Writes every member: its start, its rate, and its kernels' evidence.
fn members(page: &mut Page, document: &LoadDocument) {
    page.gap();
    let begin = named("flows begin within", document.start_skew_us, micros);
    let arrive = named("arrive within", document.arrival_skew_us, micros);
    let skew = begin.map(|begin| joined([Some(begin), arrive], " and "));
    let idle = format!("probes alone for {} before", seconds(document.idle_seconds));
    page.facts("run", skew.into_iter().chain([idle]));
    let ways = document.one_way.as_ref();
    page.facts("clock", ways.map(|ways| clock(&ways.clock)));
    for member in &document.members {
        let record = &member.record;
        let started = member.started_s.map(seconds).unwrap_or_default();
        let is_stream = record.workload == Workload::Stream;
        for leg in record.legs.iter().filter(|_| is_stream) {
            let mut facts = vec![
                format!("{} at {started}", leg.direction.word()),
                leg.throughput_bps.map(rate).unwrap_or_default(),
            ];
            facts.extend(in_short(leg));
            let cause = leg.verdict.as_ref().map(|verdict| verdict.cause.words());
            facts.extend(cause.map(|cause| format!("bottleneck {cause}")));
            page.point(&format!("{}: {}", member.name, facts.join(", ")));
        }
        if !is_stream {
            page.point(&format!("{}, at {started}", exchange(member)));
        }
    }
}
