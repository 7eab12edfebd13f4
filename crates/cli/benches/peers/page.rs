//! The page of all comparisons, made from what they gave.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::cases::{self, Case};
use crate::log::{About, Written};
use crate::pair::{Finding, Pair};
use crate::programs::Peer;
use crate::table;

/// Writes the page of `sessions`.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(page: &Path, sessions: &[Written]) -> anyhow::Result<()> {
    let mut text = HEAD.to_owned();
    for session in sessions {
        text += &section(session);
    }
    fs::write(page, text).with_context(|| format!("cannot write {page:?}"))
}

const HEAD: &str = "\
# linerate beside other programs

One command makes this page:

```
cargo bench -p linerate --bench peers -- --decide --page docs/performance.md
```

[benchmarks.md](benchmarks.md) explains the titles and how they are measured. Figures are medians. A
ratio is linerate's figure over the peer's: the median over pairs of runs in random order, with its
95 % interval. A goal is `met` or `MISSED` where the whole interval is on one side of it, else
`open`. CPU time is that of both processes from start to end.

The limit is what a bare program reached just before, over loopback on the same machine, with only
the calls that cannot be left out: no clock, no counter, no options. Reached is linerate's share of
the limit.
";

fn section(session: &Written) -> String {
    let About { cpu, cpus, kernel, load, started_at, limits, peers, .. } = &session.about;
    let mut text = format!(
        "\n## {started_at}\n\n{cpus} CPUs ({cpu}), Linux {kernel}, load average {load:.1} \
         before.\n\n"
    );
    for (name, version) in peers {
        let _ = writeln!(text, "- {name}: {version}");
    }
    for peer in Peer::ALL.iter().filter(|peer| !peers.contains_key(peer.name())) {
        let _ = writeln!(text, "- {}: not there, not compared", peer.name());
    }
    let _ = write!(
        text,
        "\n| what a bare program reaches | |\n|---|---|\n{}\n\
         | benchmark | pairs | figure | linerate | peer | ratio | goal | limit | reached |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        limits.rows(),
    );
    let cases = cases::all();
    for (title, pairs) in &session.benchmarks {
        let (name, _) = title.split_once('@').unwrap_or((title, ""));
        let case = cases.iter().find(|case| case.title("") == format!("{name}@"));
        for (case, finding) in case.into_iter().flat_map(|case| findings(case, pairs)) {
            let cells = row(session, case, &finding);
            let _ = writeln!(text, "| `{title}` | {} | {cells} |", pairs.len());
        }
    }
    text
}

fn findings<'a>(case: &'a Case, pairs: &[Pair]) -> impl Iterator<Item = (&'a Case, Finding)> {
    let findings = case.findings(pairs).into_iter();
    findings.map(move |finding| (case, finding))
}

fn row(session: &Written, case: &Case, finding: &Finding) -> String {
    let limit = session.about.limits.of(case.workload, finding.metric);
    let (limit, reached) = match (limit, finding.linerate) {
        (Some(limit), Some(ours)) => {
            (format!("{limit:.1}"), format!("{:.0} %", ours.median / limit * 100.0))
        }
        _ => Default::default(),
    };
    format!(
        "{} | {} | {} | {} | {} | {limit} | {reached}",
        finding.metric.name(),
        table::figure(finding.linerate),
        table::figure(finding.peer),
        table::ratio(finding.ratio),
        table::verdict(finding),
    )
}
