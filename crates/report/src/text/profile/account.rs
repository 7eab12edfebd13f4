//! CPU time by thread and soft interrupt, for hosts where layers of the kernel cannot be sampled.

use linerate_core::profile::{EndLayers, ProfileDocument};
use linerate_core::record::CpuSeconds;

use super::super::number::digits;
use super::super::page::Page;
use super::super::table::{Table, table};

/// Threads with a row of their own.
const MAX_LINES: usize = 16;

/// Writes nothing if the layers of both ends come from samples.
pub(super) fn write(page: &mut Page, document: &ProfileDocument) {
    let ends = [document.sender.as_ref(), document.receiver.as_ref()];
    let ends = ends.map(|end| end.filter(|end| !end.profile.how.tells_layers()));
    if ends.iter().all(Option::is_none) {
        return;
    }
    page.gap();
    page.table(&table(&ends));
    page.words(FOOT);
}

const FOOT: &str = "CPU time by the kernel's account, seconds. It has no layers in the kernel and \
    no intervals: user mode counts as the \
    application, the rest as unattributed. Soft interrupts are those of the whole host, whoever \
    they were for. Between two hosts they \
    are added to the end's; on one host what ran in a thread is in its system time.";

/// Name, and the user and system time of both ends, seconds.
type Row = (String, [[Option<String>; 2]; 2]);

fn table(ends: &[Option<&EndLayers>; 2]) -> Table<Row> {
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
    rows.push(row("all of them".to_owned(), ends, |end| {
        Some(end.profile.threads)
    }));
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
) -> Row {
    let cells = ends.map(|end| {
        let spent = end.and_then(&of);
        let parts = spent.map(|spent| [spent.user, spent.system].map(|s| Some(digits(s))));
        parts.unwrap_or_default()
    });
    (name, cells)
}
