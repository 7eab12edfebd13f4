//! The page of all comparisons, made from what they wrote.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cases::{self, Case};
use crate::log::{About, Written};
use crate::pair::Finding;
use crate::table;

/// Writes the page of the sessions in `from`.
///
/// # Errors
/// A file cannot be read, or was not written by `--json`; the page cannot be written.
pub(crate) fn write(page: &Path, from: &[PathBuf]) -> anyhow::Result<()> {
    let sessions: Vec<Written> = from
        .iter()
        .map(|path| Written::read(path))
        .collect::<Result<_, _>>()?;
    let mut text = HEAD.to_owned();
    for session in &sessions {
        text += &section(session);
    }
    fs::write(page, text).with_context(|| format!("cannot write {page:?}"))
}

const HEAD: &str = "\
# linerate beside other programs

This page is made by a command from what the benchmarks wrote, and not by hand:

```
cargo bench -p linerate --bench peers -- --decide --json FILE
cargo bench -p linerate --bench peers -- --page docs/performance.md --from FILE
```

How it is measured, and what each title is: [benchmarks.md](benchmarks.md). A ratio is linerate's figure
over the peer's, the median over pairs of runs in drawn order with its interval of 95 %. A goal is
`met` or `MISSED` where the whole interval is on one side of it, else `open`. The limit is what
costs of the kernel and the CPUs, measured just before, leave to any program; where none is
given it is not known.
";

fn section(session: &Written) -> String {
    let About {
        cpu,
        cpus,
        kernel,
        load,
        started_at,
        limits,
        peers,
        ..
    } = &session.about;
    let versions: Vec<&str> = peers.values().map(String::as_str).collect();
    let mut text = format!(
        "\n## {started_at}\n\n{cpus} CPUs ({cpu}), Linux {kernel}, load average {load:.1} before.\nPeers: {}.\n\n\
         Without a network: a core copies {:.1} GiB/s; a system call takes {:.0} ns; two threads wake each\n\
         other in {:.1} µs, there and back.\n\n\
         | benchmark | pairs | figure | linerate | peer | ratio | goal | limit | share of it |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        versions.join("; "),
        limits.copy_bytes_per_s / f64::from(1 << 30),
        limits.call_ns,
        limits.wake_ups_ns / 1e3,
    );
    let cases = cases::all();
    for (title, pairs) in &session.benchmarks {
        let (name, _) = title.split_once('@').unwrap_or((title, ""));
        let case = cases
            .iter()
            .find(|case| case.title("") == format!("{name}@"));
        for (case, finding) in case.into_iter().flat_map(|case| {
            case.findings(pairs)
                .into_iter()
                .map(move |finding| (case, finding))
        }) {
            let cells = row(session, case, &finding);
            let _ = writeln!(text, "| `{title}` | {} | {cells} |", pairs.len());
        }
    }
    text
}

fn row(session: &Written, case: &Case, finding: &Finding) -> String {
    let limit = session.about.limits.of(case.workload, finding.metric);
    let (limit, share) = match (limit, finding.linerate) {
        (Some((limit, why)), Some(ours)) => (
            format!("{limit:.1}: {why}"),
            format!("{:.0} %", ours.median / limit * 100.0),
        ),
        _ => Default::default(),
    };
    format!(
        "{} | {} | {} | {} | {} | {limit} | {share}",
        finding.metric.name(),
        table::figure(finding.linerate),
        table::figure(finding.peer),
        table::ratio(finding.ratio),
        table::verdict(finding),
    )
}
