//! The page of a capacity test: how many connections were held, their cost, and their limits.

mod limits;

use linerate_core::capacity::{
    CapacityDocument, CapacityHalf, Failure, FailureCause, LoadPace, MemoryReading, PoolResult,
};
use linerate_core::record::{Observed, Status};
use linerate_core::stats::LatencySummary;
use linerate_core::units::Family;

use super::Style;
use super::ceilings::caveats;
use super::number::{bytes, chosen_bytes, count, digits, percent, seconds, with_unit};
use super::page::Page;
use super::record::{destination, emulated, latencies};
use super::table::Table;
use crate::charts;
use crate::document::{Document, Ending, Surroundings};
use crate::svg::Chart;

impl Document for CapacityDocument {
    /// What was held, and what stopped it or would stop it; then the costs and the limits.
    fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        page.heading(&headline(self));
        emulated(&mut page, &self.environment);
        limits::verdict(&mut page, self);
        limits::search(&mut page, self);
        pools(&mut page, self);
        for (name, pool) in named_pools(self) {
            trouble(&mut page, name, pool);
        }
        page.gap();
        page.facts("held by", &held_by(self));
        page.facts("load", &load(self));
        page.facts("churn", &churn(self));
        if style.details {
            page.facts("run", &run(self));
            times(&mut page, self);
            page.gap();
            page.facts("active", &beside(self));
            page.facts("CPU", &cpu(self));
            page.facts("sockets", &sockets(self));
            page.facts("slab", &slab(self));
            limits::table(&mut page, self);
        }
        caveats(&mut page, &self.caveats);
        page.finish()
    }

    fn observed(&self) -> Observed {
        let pool = |pool: &Option<PoolResult>| Some(pool.as_ref()?.alive as f64);
        let figures = [
            ("tcp.alive", pool(&self.tcp)),
            ("udp.alive", pool(&self.udp)),
        ];
        Observed::figures_of(&self.started_at, figures)
    }

    fn charts(&self) -> Vec<Chart> {
        charts::capacity(self)
    }

    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        vec![(&mut self.environment, &mut self.caveats)]
    }

    fn endings(&self) -> Vec<Ending<'_>> {
        vec![(self.status, &self.caveats)]
    }

    fn annotate(&mut self) {
        linerate_core::capacity::annotate(self);
    }
}

/// `12,000 of 20,000 TCP connections and all 10,000 UDP sockets alive after 5.00 s, none lost: to
/// pit (…)`
fn headline(document: &CapacityDocument) -> String {
    let pools: Vec<String> = named_pools(document)
        .map(|(name, pool)| {
            if pool.alive >= pool.asked {
                format!("all {} {name}", count(pool.asked))
            } else {
                format!("{} of {} {name}", count(pool.alive), count(pool.asked))
            }
        })
        .collect();
    let peer = destination(&document.host, &document.peer, None);
    let when = match document.status {
        Status::Complete => format!("after {}", seconds(document.test.hold.as_secs_f64())),
        Status::Partial => "when it was ended".to_owned(),
    };
    let lost: u64 = named_pools(document)
        .map(|(_, pool)| pool.lost)
        .fold(0, u64::saturating_add);
    let lost = match lost {
        0 => "none lost".to_owned(),
        lost => format!("{} LOST", count(lost)),
    };
    format!("{} alive {when}, {lost}: to {peer}", pools.join(" and "))
}

fn run(document: &CapacityDocument) -> Vec<String> {
    let family = match document.family {
        Family::Ipv4 => "IPv4",
        Family::Ipv6 => "IPv6",
    };
    let mut facts = vec![format!("over {family}")];
    if let Some(rate) = document.test.rate_per_s {
        facts.push(format!("asked {}/s", count(rate)));
    }
    let heartbeat = seconds(document.test.heartbeat.as_secs_f64());
    facts.push(format!("a heartbeat on each every {heartbeat}"));
    facts.push(match document.status {
        Status::Complete => "complete".to_owned(),
        Status::Partial => "ended before its time".to_owned(),
    });
    facts.push(format!("{} in all", seconds(document.seconds)));
    facts.extend(
        document
            .close_seconds
            .map(|s| format!("closing {}", seconds(s))),
    );
    let here = match document.client.workers {
        1 => "1 process here".to_owned(),
        several => format!("{} processes here", count(u64::from(several))),
    };
    facts.push(match &document.server {
        Some(server) => format!("{here}, {} there", count(u64::from(server.workers))),
        None => here,
    });
    facts.push(format!("begun {}", document.started_at));
    facts
}

fn named_pools(document: &CapacityDocument) -> impl Iterator<Item = (&'static str, &PoolResult)> {
    let tcp = document.tcp.as_ref().map(|pool| ("TCP connections", pool));
    let udp = document.udp.as_ref().map(|pool| ("UDP sockets", pool));
    tcp.into_iter().chain(udp)
}

fn pools(page: &mut Page, document: &CapacityDocument) {
    let each = |memory: Option<f64>| memory.map(|memory| bytes(memory.max(0.0).round() as u64));
    let table = Table::of(named_pools(document))
        .left("", |(name, _)| *name)
        .right("asked", |(_, pool)| count(pool.asked))
        .right("opened", |(_, pool)| count(pool.opened))
        .right("alive", |(_, pool)| count(pool.alive))
        .right("lost", |(_, pool)| count(pool.lost))
        .right("opened\nin", |(_, pool)| pool.connect_seconds.map(seconds))
        .spare(3, 1)
        .right("each\nsecond", |(_, pool)| pool.connect_per_s.map(digits))
        .right("SYN\nretrans.", |(_, pool)| count(pool.syn_retransmissions))
        .spare(2, 1)
        .right("kernel\neach", |(_, pool)| each(pool.kernel_bytes_each))
        .right("here\neach", |(_, pool)| each(pool.user_bytes_each))
        .right("there\neach", |(_, pool)| each(pool.server_user_bytes_each))
        .spare(1, 2);
    page.gap();
    page.table(&table);
    let has_kernel = named_pools(document).any(|(_, pool)| pool.kernel_bytes_each.is_some());
    if has_kernel && document.environment.shared_kernel {
        page.plain("  kernel memory is that of both ends: they run on one kernel");
    }
}

/// Writes the causes of connections that were not opened or were lost.
fn trouble(page: &mut Page, name: &str, pool: &PoolResult) {
    let lists = [("not opened", &pool.failures), ("lost", &pool.losses)];
    for (what, list) in lists {
        let causes: Vec<String> = list.iter().map(failure).collect();
        if !causes.is_empty() {
            let words = format!("{name} {what}: {}", causes.join("; "));
            page.doubt(&words);
        }
    }
}

fn failure(failure: &Failure) -> String {
    let Failure { cause, count: n } = failure;
    format!("{} {}", count(*n), FailureCause::words(*cause))
}

/// Writes every latency that was measured.
fn times(page: &mut Page, document: &CapacityDocument) {
    let mut rows: Vec<(String, &LatencySummary)> = Vec::new();
    for (name, pool) in [("TCP", &document.tcp), ("UDP", &document.udp)] {
        let Some(pool) = pool else { continue };
        if let Some(connect) = &pool.connect_latency_us {
            let tries = [
                ("connect", &connect.first_try),
                ("connect, SYN retrans.", &connect.retransmitted),
            ];
            for (what, latency) in tries {
                rows.extend(latency.as_ref().map(|l| (format!("{name} {what}"), l)));
            }
        }
        let heartbeat = pool.heartbeat_latency_us.as_ref();
        rows.extend(heartbeat.map(|l| (format!("{name} heartbeat"), l)));
    }
    for at in &document.latency {
        let beside = format!("RTT with {} idle", count(at.population));
        rows.push((beside, &at.latency_us));
    }
    let load = document
        .load
        .as_ref()
        .and_then(|load| load.latency_us.as_ref());
    rows.extend(load.map(|l| ("load".to_owned(), l)));
    latencies(
        page,
        rows.iter()
            .map(|(name, latency)| (name.as_str(), Some(*latency))),
    );
}

/// The median latency beside the most idle connections, compared with that beside the fewest.
fn beside(document: &CapacityDocument) -> Vec<String> {
    let (Some(first), Some(last)) = (document.latency.first(), document.latency.last()) else {
        return Vec::new();
    };
    if first.population == last.population || first.latency_us.p50 <= 0.0 {
        return Vec::new();
    }
    let change = 100.0 * (last.latency_us.p50 / first.latency_us.p50 - 1.0);
    let more = if change < 0.0 { "less" } else { "more" };
    vec![format!(
        "the median round trip of one is {} {more} beside {} idle ones than beside {}",
        percent(change.abs()),
        count(last.population),
        count(first.population)
    )]
}

/// The number of processes, if a single one could not hold as many connections.
fn held_by(document: &CapacityDocument) -> Vec<String> {
    let half = &document.client;
    let Some(each) = half.limits.descriptors_each.filter(|_| half.workers > 1) else {
        return Vec::new();
    };
    vec![format!(
        "{} processes here: one has at most {} descriptors (ulimit -Hn)",
        count(half.workers.into()),
        count(each)
    )]
}

fn load(document: &CapacityDocument) -> Vec<String> {
    let Some(load) = &document.load else {
        return Vec::new();
    };
    let mut facts = vec![
        with_unit(load.transactions_per_s, "trans/s"),
        format!("over {} connections at random", count(load.connections)),
        format!("{} transactions", count(load.transactions)),
    ];
    if let Some(asked) = &document.test.load {
        let [request, response] = [asked.request_bytes, asked.response_bytes];
        facts.push(format!("requests of {}", chosen_bytes(request.0)));
        facts.push(format!("responses of {}", chosen_bytes(response.0)));
        if let LoadPace::PerSecond(rate) = asked.pace {
            facts.push(format!("asked {} trans/s", count(rate)));
            facts.push(format!("{} waited for their connection", count(load.late)));
        }
    }
    facts
}

fn churn(document: &CapacityDocument) -> Vec<String> {
    let Some(churn) = &document.churn else {
        return Vec::new();
    };
    vec![
        format!(
            "{}/s of {}/s asked",
            digits(churn.per_s),
            count(churn.asked_per_s)
        ),
        format!("{} closed", count(churn.closed)),
        format!("{} opened in their place", count(churn.opened)),
    ]
}

fn ends(document: &CapacityDocument) -> impl Iterator<Item = (&'static str, &CapacityHalf)> {
    let server = document.server.as_ref();
    let here = [("here", &document.client)];
    here.into_iter()
        .chain(server.map(|server| ("there", server)))
}

fn cpu(document: &CapacityDocument) -> Vec<String> {
    let figures = |(end, half): (&str, &CapacityHalf)| {
        let cpu = half.cpu_seconds;
        let [user, system] = [cpu.user, cpu.system].map(seconds);
        format!("{end} {user} user and {system} system")
    };
    ends(document).map(figures).collect()
}

/// Memory before, at the height and after, so that leaks are visible.
fn course(
    document: &CapacityDocument,
    figure: impl Fn(&MemoryReading) -> Option<u64>,
    words: impl Fn(u64) -> String,
) -> Vec<String> {
    let of_end = |(end, half): (&str, &CapacityHalf)| {
        let course = &half.memory;
        let [before, height, after] = [&course.before, &course.height, &course.after].map(&figure);
        let after = after.map(|after| format!(", {} after", words(after)));
        let [before, height] = [before?, height?].map(&words);
        let after = after.unwrap_or_default();
        Some(format!(
            "{end} {before} before, {height} at the height{after}"
        ))
    };
    let shown = if document.environment.shared_kernel {
        1
    } else {
        2
    };
    ends(document).take(shown).filter_map(of_end).collect()
}

fn sockets(document: &CapacityDocument) -> Vec<String> {
    course(document, |reading| reading.tcp_allocated, count)
}

fn slab(document: &CapacityDocument) -> Vec<String> {
    course(document, |reading| reading.slab_bytes, bytes)
}
