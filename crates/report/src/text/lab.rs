//! The page of running labs.

use linerate_core::lab::{Inhabitant, LabShown, LabsDocument, LinkStatus};
use linerate_core::record::LabDirection;

use super::number::{joined, micros, some_joined};
use crate::document::Document;
use crate::page::{Emphasis, Page};

impl Document for LabsDocument {
    /// Hosts, routers and links of each lab, the links' counters, and the processes in it.
    fn page(&self, page: &mut Page) {
        if self.labs.is_empty() {
            page.words("no lab is up");
        }
        self.labs.iter().for_each(|lab| shown(page, lab));
    }
}

fn shown(page: &mut Page, lab: &LabShown) {
    page.title(&format!("lab {}, process {}", lab.name, lab.pid));
    let width = widest(lab.hosts.iter().map(|host| &host.name));
    for host in &lab.hosts {
        let kind = if host.is_router { "router" } else { "host  " };
        let addresses = joined(host.addresses.iter().map(ToString::to_string), "  ");
        page.plain(&format!("  {kind} {:width$}  {addresses}", host.name));
    }
    let links = lab.links.as_deref().unwrap_or_default();
    let width = widest(links.iter().map(|link| &link.name));
    links.iter().for_each(|one| link(page, one, width));
    for process in &lab.running {
        page.plain(&format!("  running {}", inhabitant(process)));
    }
}

fn widest<'a>(names: impl Iterator<Item = &'a String>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0)
}

fn link(page: &mut Page, link: &LinkStatus, width: usize) {
    let spec = if link.spec.is_empty() { "plain" } else { &link.spec };
    let (name, mtu) = (&link.name, link.mtu_bytes);
    let first = format!("  link   {name:width$}  ");
    let words = format!("{spec}, interfaces of {mtu} bytes");
    page.paragraph(Emphasis::None, &first, first.chars().count(), &words);
    for (name, direction) in [("up", &link.up), ("down", &link.down)] {
        if let Some(direction) = direction {
            page.plain(&format!("         {name:4} {}", counters(direction)));
        }
    }
}

fn counters(direction: &LabDirection) -> String {
    let drops = direction.drops();
    let causes = drops.map(|(cause, count)| format!("{cause} {count}"));
    let dropped = some_joined(causes, ", ").unwrap_or_else(|| "none".to_owned());
    let lateness = match (direction.lateness_p50_us, direction.lateness_p99_us) {
        (Some(p50), Some(p99)) => format!("; late by {}, p99 {}", micros(p50), micros(p99)),
        _ => String::new(),
    };
    let delivered = direction.delivered;
    format!("delivered {delivered}; dropped {dropped}{lateness}")
}

/// A process in a lab: its command, process id and host.
pub fn inhabitant(process: &Inhabitant) -> String {
    let (command, pid, host) = (&process.command, process.pid, &process.host);
    format!("{command} (process {pid}) in {host}")
}
