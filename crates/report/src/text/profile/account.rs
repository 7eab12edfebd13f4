//! CPU time by thread and soft interrupt: what there is where no layer of the kernel could be told.

use linerate_core::profile::{EndLayers, ProfileDocument};
use linerate_core::record::CpuSeconds;

use super::super::number::digits;
use super::super::page::{Emphasis, Page};
use super::super::table::{Align, Table};

/// Threads that have a line.
const MAX_LINES: usize = 16;

/// Writes nothing if the layers of both ends are those of samples.
pub(super) fn write(page: &mut Page, document: &ProfileDocument) {
    let ends = [document.sender.as_ref(), document.receiver.as_ref()];
    let ends = ends.map(|end| end.filter(|end| !end.profile.how.tells_layers()));
    if ends.iter().all(Option::is_none) {
        return;
    }
    page.gap();
    page.table(&table(&ends));
    page.paragraph(Emphasis::None, "", 0, FOOT);
}

const FOOT: &str = "CPU time by the kernel's account, seconds. It has no layers in the kernel and no intervals: user mode counts as the \
    application, the rest as unattributed. Soft interrupts are those of the whole host, whoever they were for. Between two hosts they \
    are added to the end's; on one host what ran in a thread is in its system time.";

fn table(ends: &[Option<&EndLayers>; 2]) -> Table {
    let mut table = Table::new(&[
        ("\nthread", Align::Left),
        ("sender\nuser", Align::Right),
        ("\nsystem", Align::Right),
        ("receiver\nuser", Align::Right),
        ("\nsystem", Align::Right),
    ]);
    let threads = |end: &Option<&EndLayers>| end.map_or(0, |end| end.profile.each_thread.len());
    let all = ends.iter().map(threads).max().unwrap_or(0);
    for number in 0..all.min(MAX_LINES) {
        let of = |end: &EndLayers| end.profile.each_thread.get(number).copied();
        row(&mut table, format!("flow {}", number + 1), ends, of);
    }
    if all > MAX_LINES {
        let name = format!("{} more flows", all - MAX_LINES);
        row(&mut table, name, ends, |end| {
            let rest = end.profile.each_thread.iter().skip(MAX_LINES);
            Some(rest.fold(CpuSeconds::default(), |sum, one| CpuSeconds {
                user: sum.user + one.user,
                system: sum.system + one.system,
            }))
        });
    }
    row(&mut table, "all of them".to_owned(), ends, |end| {
        Some(end.profile.threads)
    });
    let softirq = ends.iter().flat_map(|end| {
        let seconds = end.and_then(|end| end.profile.softirq_seconds);
        [None, seconds.map(digits)]
    });
    let name = "soft interrupts, of the host".to_owned();
    table.row(std::iter::once(Some(name)).chain(softirq));
    table
}

fn row(
    table: &mut Table,
    name: String,
    ends: &[Option<&EndLayers>; 2],
    of: impl Fn(&EndLayers) -> Option<CpuSeconds>,
) {
    let cells = ends.iter().flat_map(|end| {
        let spent = end.and_then(&of);
        [
            spent.map(|spent| digits(spent.user)),
            spent.map(|spent| digits(spent.system)),
        ]
    });
    table.row(std::iter::once(Some(name)).chain(cells));
}
