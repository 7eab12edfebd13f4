//! The pages of QoS policies: what is in force, what it counted, and which filter takes a packet.

use linerate_core::units::Dscp;
use linerate_qos::document::{
    AdapterReport, FileReport, FilterReport, PolicyReport, QosDocument, QosState,
};
use linerate_qos::explain::ExplanationReport;
use linerate_qos::interpret::CounterReport;

use super::Style;
use super::number::{bytes, chosen_bytes, named, plural, rate, some_joined};
use crate::document::Document;
use crate::page::{Emphasis, Page, Table, table};

impl Document for QosDocument {
    /// The state of each interface, or the report on a file or a packet; else the notes on what was
    /// changed.
    fn page(&self, page: &mut Page) {
        self.adapters.iter().for_each(|adapter| status(page, adapter));
        self.file.iter().for_each(|report| file(page, report));
        self.explanation.iter().for_each(|report| explanation(page, report));
        if self.adapters.is_empty() {
            self.notes.iter().for_each(|note| page.plain(note));
        }
    }
}

/// Writes an interface's state, adapter and policies; with details, the filters.
fn status(page: &mut Page, adapter: &AdapterReport) {
    page.gap();
    head(page, adapter);
    if !page.has_details() {
        return page.table(&brief(adapter));
    }
    page.table(&policies(adapter));
    for policy in &adapter.policies {
        page.facts(&policy.name, further(policy));
    }
}

fn head(page: &mut Page, adapter: &AdapterReport) {
    let state = match adapter.state {
        QosState::Filtering => "enabled and filtering",
        QosState::PassingThrough => "enabled, passing through",
        QosState::Disabled => "disabled",
        QosState::Failed => "not as applied",
    };
    let emphasis = match adapter.state {
        QosState::Failed => Emphasis::Warning,
        _ => Emphasis::Strong,
    };
    page.line(emphasis, &format!("{}: {state}", adapter.name));
    adapter.fault.iter().for_each(|fault| page.doubt(fault));
    let kind = match adapter.kind.as_str() {
        "raw_ip" => "plain IP",
        _ => "Ethernet",
    };
    let bps = |bps: u64| rate(bps as f64);
    let ways = if adapter.ingress { "egress and ingress" } else { "egress" };
    let program = |hook| format!("eBPF program at {ways} (hook: {hook})");
    let frames = adapter.gso_max_size_bytes.map(u64::from);
    let known = [
        Some(kind.to_owned()),
        named("link", adapter.speed_bps, bps),
        named("shared", adapter.rate_bps, bps),
        adapter.attached.as_ref().map(program),
        named("offloaded frames up to", frames, chosen_bytes),
    ];
    let addresses = adapter.addresses.iter().cloned().map(Some);
    page.facts("adapter", addresses.chain(known));
}

/// A row for each policy.
fn brief(adapter: &AdapterReport) -> Table<&PolicyReport> {
    let counts = |policy: &PolicyReport| !policy.filters.is_empty();
    table! { adapter.policies.iter(), policy =>
        left "policy" => in_tree(adapter, policy);
        left "DSCP" => dscp(policy);
        right "reserve" => share(policy.reserve_bps);
        right "limit" => share(policy.limit_bps);
        right "priority" => policy.priority?.to_string();
        right "filters" => policy.filters.len() as u64;
        right "packets" => counts(policy).then_some(policy.egress.packets);
        right "dropped" => Some(policy.egress.dropped_packets).filter(|n| *n > 0);
    }
}

fn dscp(policy: &PolicyReport) -> Option<String> {
    Some(Dscp::new(policy.dscp?)?.to_string())
}

fn share(bps: Option<u64>) -> Option<String> {
    Some(rate(bps? as f64))
}

/// A row for each filter; the cells of its policy are in the first of them.
fn policies(adapter: &AdapterReport) -> Table<(Option<&PolicyReport>, &FilterReport)> {
    let rows = adapter.policies.iter().flat_map(|policy| {
        let filters = policy.filters.iter().enumerate();
        filters.map(move |(position, filter)| ((position == 0).then_some(policy), filter))
    });
    let of = |policy: Option<&PolicyReport>, cell: fn(&PolicyReport) -> Option<String>| {
        policy.map_or(Some(String::new()), cell)
    };
    table! { rows, (policy, filter) =>
        left "policy" => policy.map_or("", |policy| policy.name.as_str());
        left "DSCP" => of(*policy, dscp);
        right "reserve" => of(*policy, |policy| share(policy.reserve_bps));
        right "limit" => of(*policy, |policy| share(policy.limit_bps));
        left "filter" => filter.name.clone();
        left "protocol" => some_joined(filter.protocols.clone(), ", ").unwrap_or("any".to_owned());
        right @1 "priority" => filter.priority.to_string();
        left "takes" =>
            some_joined(filter.conditions.clone(), "; ").unwrap_or("all packets".to_owned());
    }
}

/// The policy's name, behind two blanks for each policy around it.
fn in_tree(adapter: &AdapterReport, policy: &PolicyReport) -> String {
    let named = |name: &String| adapter.policies.iter().find(|other| other.name == *name);
    let parent = |policy: &&PolicyReport| named(policy.parent.as_ref()?);
    let around = std::iter::successors(parent(&policy), parent).take(adapter.policies.len());
    format!("{}{}", "  ".repeat(around.count()), policy.name)
}

/// Properties that few policies have.
fn further(policy: &PolicyReport) -> [Option<String>; 5] {
    [
        named("priority", policy.priority, |priority| priority.to_string()),
        named("VLAN priority", policy.vlan_priority, |priority| priority.to_string()),
        named("class", policy.class.as_ref(), |class| class.id.clone()),
        policy.meter.clone(),
        policy.drop.then(|| "drops its packets".to_owned()),
    ]
}

/// A page of the counters of policies, filters and classes, interface by interface.
pub fn qos_stats(document: &QosDocument, style: Style) -> String {
    let mut page = Page::new(style);
    for adapter in &document.adapters {
        page.gap();
        page.title(&adapter.name);
        adapter.fault.iter().for_each(|fault| page.doubt(fault));
        page.table(&counters(adapter));
        classes(&mut page, adapter);
    }
    page.finish()
}

/// The policies with filters of their own; others only contain policies.
fn with_packets(adapter: &AdapterReport) -> impl Iterator<Item = &PolicyReport> {
    let policies = adapter.policies.iter();
    policies.filter(|policy| !policy.filters.is_empty())
}

/// A row of counters: the policy, the filter, and whether the policy has a meter.
type Counted<'a> = (String, String, bool, &'a CounterReport);

/// A row for each policy and each of its filters, for egress and for ingress.
fn counters(adapter: &AdapterReport) -> Table<Counted<'_>> {
    let mut rows: Vec<Counted> = Vec::new();
    for policy in with_packets(adapter) {
        for (side, counters) in sides(&policy.egress, &policy.ingress) {
            let name = format!("{}{side}", policy.name);
            rows.push((name, String::new(), policy.meter.is_some(), counters));
        }
        for filter in &policy.filters {
            for (side, counters) in sides(&filter.egress, &filter.ingress) {
                let name = format!("{}{side}", filter.name);
                rows.push((String::new(), name, false, counters));
            }
        }
    }
    let of_drops = |all: &CounterReport, number: u64| (all.dropped_packets > 0).then_some(number);
    table! { rows, (policy, filter, meter, all) =>
        left "policy" => policy.clone();
        left "filter" => filter.clone();
        right "packets" => all.packets;
        right "bytes" => all.bytes;
        right ["dropped", "packets"] => of_drops(all, all.dropped_packets);
        right @2 ["dropped", "bytes"] => of_drops(all, all.dropped_bytes);
        right "green" => meter.then_some(all.green);
        right "yellow" => meter.then_some(all.yellow);
        right "red" => meter.then_some(all.red);
    }
}

fn sides<'a>(
    egress: &'a CounterReport,
    ingress: &'a Option<CounterReport>,
) -> impl Iterator<Item = (&'static str, &'a CounterReport)> {
    let ingress = ingress.iter().map(|counters| (" in", counters));
    std::iter::once(("", egress)).chain(ingress)
}

fn classes(page: &mut Page, adapter: &AdapterReport) {
    let Some(default) = &adapter.default_class else {
        return;
    };
    page.gap();
    let class = |policy| Some((in_tree(adapter, policy), policy.class.as_ref()?));
    let of_policies = adapter.policies.iter().filter_map(class);
    page.table(
        &table! { of_policies.chain([("(other packets)".to_owned(), default)]), (name, class) =>
            left "class" => name.clone();
            left @4 "id" => class.id.clone();
            right "rate" => rate(class.rate_bps as f64);
            right "ceiling" => rate(class.ceil_bps as f64);
            right @3 "priority" => class.priority.to_string();
            right "packets" => class.packets;
            right "bytes" => class.bytes;
            right "drops" => class.drops;
            right @2 "borrowed" => class.borrows;
            right @1 "waits" => bytes(class.backlog_bytes);
        },
    );
}

/// A page of what policies and filters counted between two documents, per second.
pub fn qos_rates(before: &QosDocument, now: &QosDocument, seconds: f64, style: Style) -> String {
    let mut page = Page::new(style);
    let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(1e-3);
    let mut rows = Vec::new();
    for adapter in &now.adapters {
        let was = before.adapters.iter().find(|was| was.name == adapter.name);
        for policy in with_packets(adapter) {
            let mut policies = was.iter().flat_map(|adapter| &adapter.policies);
            let was = policies.find(|was| was.name == policy.name);
            let before = was.map(|policy| policy.egress).unwrap_or_default();
            rows.push(([&adapter.name, &policy.name, ""], policy.egress, before));
            for filter in &policy.filters {
                let mut filters = was.iter().flat_map(|policy| &policy.filters);
                let was = filters.find(|was| was.name == filter.name);
                let before = was.map(|filter| filter.egress).unwrap_or_default();
                rows.push((["", "", &filter.name], filter.egress, before));
            }
        }
    }
    let whole = |now: u64, before: u64| per_second(now, before).round() as u64;
    page.table(&table! { rows, (names, now, was) =>
        left "adapter" => names[0];
        left "policy" => names[1];
        left "filter" => names[2];
        right "packets/s" => whole(now.packets, was.packets);
        right "rate" => rate(8.0 * per_second(now.bytes, was.bytes));
        right "dropped/s" => whole(now.dropped_packets, was.dropped_packets);
    });
    page.finish() + "\n"
}

/// Writes what a valid policy file contains, and its warnings.
fn file(page: &mut Page, file: &FileReport) {
    let name = file.name.as_deref().unwrap_or("the policy file");
    let filters = plural(file.filters as u64, "filter");
    let policies = if file.policies == 1 { "policy" } else { "policies" };
    let policies = format!("{} {policies}", file.policies);
    page.title(&format!("{name}: {filters} and {policies}"));
    for adapter in &file.adapters {
        let facts = [
            format!("{} for IPv4", plural(adapter.v4_rules as u64, "rule")),
            format!("{} for IPv6", adapter.v6_rules),
            format!("{} for other packets", adapter.other_rules),
        ];
        page.facts(&adapter.name, facts);
    }
    for warning in &file.warnings {
        let (line, column, text) = (warning.line, warning.column, &warning.text);
        page.doubt(&format!("{name}:{line}:{column}: {text}"));
    }
}

/// Writes which filter takes a packet, and why those before it do not.
fn explanation(page: &mut Page, explanation: &ExplanationReport) {
    let packet = &explanation.packet;
    let adapter = match explanation.adapter.as_str() {
        "*" => "any interface",
        name => name,
    };
    page.plain(&format!("{packet} on {adapter}"));
    page.title(&match (&explanation.taken, &explanation.policy) {
        (Some(taken), Some(policy)) => {
            format!("filter {} (line {}) takes it: policy {policy}", taken.filter, taken.line)
        }
        _ => "no filter takes it: it leaves as it came, in the default class".to_owned(),
    });
    let effects = explanation.effects.iter();
    effects.for_each(|effect| page.point(effect));
    if !explanation.refused.is_empty() {
        page.gap();
        page.plain("why the earlier filters did not take it:");
    }
    page.table(&table! { &explanation.refused, refusal =>
        right "priority" => refusal.asked.priority.to_string();
        left "filter" => refusal.asked.filter.clone();
        right "line" => refusal.asked.line.to_string();
        left "why not" => refusal.why.clone();
    });
}
