//! The page of a mesh: measurements between all sites.

use linerate_core::record::{Cause, Observed};
use linerate_core::stats::median;
use linerate_mesh::{MatrixCell, MatrixDocument, Suspect, SuspectKind, SuspectMetric};

use super::Style;
use super::number::{
    UNKNOWN, begun, digits, joined, micros, named, percent, plural, rate, some_joined,
};
use super::parts::concluded;
use crate::document::{Document, Rate};
use crate::page::{Page, Table, table};

impl Document for MatrixDocument {
    /// The sites that explain the slow pairs, and the bottlenecks; a few sites as a matrix, many as
    /// tables of the slowest pairs and sites.
    fn page(&self, page: &mut Page) {
        page.heading(&headline(self));
        for suspect in &self.suspects {
            page.point(&accused(suspect));
            if let Some(it) = &suspect.proof {
                let (from, to) = (self.name(it.from), self.name(it.to));
                let (limit, at) = (concluded(&it.proof), begun(&it.started_at));
                page.plain(&format!("    {from} to {to}: {limit} ({at}, run {})", it.run));
            }
        }
        let held = self.causes.iter();
        let causes = held.map(|it| format!("{}: {}", it.cause.words(), plural(it.pairs, "pair")));
        page.facts("held by", causes);
        let slow = self.slow_site().filter(|_| self.suspects.is_empty());
        if let Some((site, slow)) = slow {
            page.point(&format!(
                "site {site}: at one end of all {} slower than half of the fastest, and of no \
                 other; of so few sites it may be chance",
                plural(slow, "pair")
            ));
        }
        if self.missing_pairs > 0 {
            let by =
                self.missing_site.as_ref().map(|site| format!("all of them from or to {site}"));
            let missing = format!("{} not measured", plural(self.missing_pairs, "pair"));
            page.doubt(&joined([Some(missing), by], ", "));
        }
        page.gap();
        let details = page.has_details();
        let most = |few: usize| if details { usize::MAX } else { few };
        if self.sites.len() <= FEW_SITES {
            page.plain(&format!("{}, rows send, columns receive", CellUnit::of(self).name));
            page.table(&grid(self));
        } else {
            page.table(&pairs(self, most(WORST_PAIRS)));
        }
        if self.sites.len() > FEW_SITES || page.has_details() {
            page.gap();
            page.table(&sites(self, most(WORST_SITES)));
        }
    }

    fn observed(&self) -> Observed {
        Observed::figures_of(&self.until, [("throughput_bps", middle(self))])
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        Some(vec![("throughput", middle(self))])
    }

    fn annotate(&mut self) {
        self.explain();
    }
}

/// The pairs that the matrix has, the worst first, in a line each.
pub fn matrix_pairs(document: &MatrixDocument, style: Style) -> String {
    let mut page = Page::new(style);
    let measured = plural(document.cells.len() as u64, "pair");
    page.heading(&format!(
        "{}: {measured} at {}, the worst first",
        document.test,
        begun(&document.until)
    ));
    page.gap();
    page.table(&pairs(document, usize::MAX));
    page.finish()
}

/// Results from one site to another, with the numbers of their runs.
pub fn pair_runs(runs: &[(i64, MatrixCell)], style: Style) -> String {
    let mut page = Page::new(style);
    page.table(&table! { runs, (run, it) =>
        right "run" => run.to_string();
        left "begun" => begun(&it.started_at);
        right "bit/s" => it.throughput_bps.map(rate);
        right "loss" => it.loss_percent.map(percent);
        right "RTT" => it.rtt_us.map(micros);
        left "bottleneck" => it.cause.map(|cause| cause.words().to_owned());
    });
    page.finish()
}

fn middle(document: &MatrixDocument) -> Option<f64> {
    middle_of(document, |cell| cell.throughput_bps)
}

fn middle_rtt(document: &MatrixDocument) -> Option<f64> {
    middle_of(document, |cell| cell.rtt_us)
}

fn middle_of(
    document: &MatrixDocument,
    figure: impl FnMut(&MatrixCell) -> Option<f64>,
) -> Option<f64> {
    let figures: Vec<f64> = document.cells.iter().filter_map(figure).collect();
    (!figures.is_empty()).then(|| median(&figures))
}

/// `bulk between 10 sites: 90 pairs, median 94.1 Mbit/s, the slowest oslo to rome, 9.41 Mbit/s`
fn headline(document: &MatrixDocument) -> String {
    let sites = plural(document.sites.len() as u64, "site");
    let measured = plural(document.cells.len() as u64, "pair");
    let what = format!("{} between {sites}: {measured}", document.test);
    let slowest = document.slowest().first().map(|cell| {
        let least = rate(cell.throughput_bps.unwrap_or(0.0));
        let (from, to) = (document.name(cell.from), document.name(cell.to));
        format!("the slowest {from} to {to}, {least}")
    });
    let longest = document.worst().first().filter(|_| slowest.is_none()).and_then(|cell| {
        let (from, to) = (document.name(cell.from), document.name(cell.to));
        Some(format!("the longest {from} to {to}, {}", micros(cell.rtt_us?)))
    });
    let rtt = named("median RTT", middle_rtt(document).filter(|_| slowest.is_none()), micros);
    let median = named("median", middle(document), rate);
    joined([Some(what), median, slowest, rtt, longest], ", ")
}

/// `what s3 sends: 0.51 times the throughput of the others, 9 pairs (p below 0.0001)`
fn accused(suspect: &Suspect) -> String {
    let name = &suspect.name;
    let what = match suspect.kind {
        SuspectKind::Site => format!("site {name}"),
        SuspectKind::SiteOut => format!("what {name} sends"),
        SuspectKind::SiteIn => format!("what {name} receives"),
        SuspectKind::Group => format!("group {name}"),
    };
    let figure = match (suspect.metric, suspect.ratio) {
        (SuspectMetric::Throughput, Some(ratio)) => {
            format!("{} times the throughput of the others", digits(ratio))
        }
        (SuspectMetric::Throughput, None) => "throughput where the others have none".to_owned(),
        (SuspectMetric::Loss, _) => {
            let [lost, others] = [suspect.median, suspect.others_median].map(digits);
            format!("{lost} % lost, {others} % of the others")
        }
    };
    let pairs = plural(suspect.pairs, "pair");
    let p_value = match suspect.p_value {
        p_value if p_value < 0.000_1 => "below 0.0001".to_owned(),
        p_value => digits(p_value),
    };
    format!("{what}: {figure}, {pairs} (p {p_value})")
}

/// The figure and the unit of all cells: throughputs, or round trips where there are none.
#[derive(Clone, Copy)]
struct CellUnit {
    figure: fn(&MatrixCell) -> Option<f64>,
    size: f64,
    name: &'static str,
}

impl CellUnit {
    fn of(document: &MatrixDocument) -> Self {
        let (size, name) = match (middle(document), middle_rtt(document)) {
            (Some(bps), _) if bps >= 1e9 => (1e9, "Gbit/s"),
            (Some(bps), _) if bps < 1e6 => (1e3, "kbit/s"),
            (None, Some(us)) if us < 1e3 => (1.0, "RTT in µs"),
            (None, Some(_)) => (1e3, "RTT in ms"),
            _ => (1e6, "Mbit/s"),
        };
        let is_rate = middle(document).is_some();
        let figure: fn(&MatrixCell) -> Option<f64> =
            if is_rate { |cell| cell.throughput_bps } else { |cell| cell.rtt_us };
        Self { figure, size, name }
    }
}

fn grid(document: &MatrixDocument) -> Table<usize> {
    let unit = CellUnit::of(document);
    let name = |site: usize| document.sites[site].name.chars().take(LETTERS);
    let figure_of = move |from: usize, to: usize| {
        let is = |cell: &&MatrixCell| cell.from as usize == from && cell.to as usize == to;
        document.cells.iter().find(is).and_then(|cell| Some((unit.figure)(cell)? / unit.size))
    };
    let sites = 0..document.sites.len();
    let numbered = |from: &usize| format!("{} {}", from + 1, String::from_iter(name(*from)));
    sites.clone().fold(Table::of(sites).left("", numbered), |table, to| {
        table.right((to + 1).to_string().as_str(), move |from| match figure_of(*from, to) {
            Some(figure) => digits(figure),
            None if *from == to => String::new(),
            None => UNKNOWN.to_owned(),
        })
    })
}

fn pairs(document: &MatrixDocument, most: usize) -> Table<&MatrixCell> {
    let worst = document.worst().into_iter().take(most);
    let which = match document.slowest().is_empty() {
        true => "worst pairs",
        false => "slowest pairs",
    };
    table! { worst, cell =>
        left [which, "from"] => document.name(cell.from);
        left "to" => document.name(cell.to);
        right "bit/s" => cell.throughput_bps.map(rate);
        right "loss" => cell.loss_percent.map(percent);
        right "RTT" => cell.rtt_us.map(micros);
        left "bottleneck" => cell.cause.map(Cause::words);
    }
}

fn sites(document: &MatrixDocument, most: usize) -> Table<usize> {
    let mut order: Vec<usize> = (0..document.sites.len()).collect();
    let worse = |at: &usize| {
        let site = &document.sites[*at];
        let both = [site.median_out_bps, site.median_in_bps];
        both.into_iter().flatten().fold(f64::INFINITY, f64::min)
    };
    order.sort_by(|a, b| worse(a).total_cmp(&worse(b)));
    order.truncate(most);
    let of = |at: &usize| &document.sites[*at];
    table! { order, at =>
        left "slowest sites" => of(at).name.clone();
        right "sends" => of(at).median_out_bps.map(rate);
        right "receives" => of(at).median_in_bps.map(rate);
        right "RTT" => of(at).median_rtt_us.map(micros);
        left "groups" => some_joined(of(at).groups.clone(), ", ");
    }
}

/// Most sites that fit as a matrix into 80 columns.
const FEW_SITES: usize = 12;

/// Letters of a site's name beside a matrix.
const LETTERS: usize = 10;

/// Slowest pairs that are shown without details.
const WORST_PAIRS: usize = 8;

/// Slowest sites that are shown without details.
const WORST_SITES: usize = 6;
