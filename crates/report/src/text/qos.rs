//! Policies of this host: what is in force, what it counted, and which filter takes a packet.

use linerate_core::units::Dscp;
use linerate_qos::document::{
    AdapterReport, ClassReport, CounterReport, ExplanationReport, FileReport, FilterReport,
    PolicyReport, QosDocument, QosState,
};

use super::Style;
use super::number::{bytes, chosen_bytes, count, rate};
use super::page::{Emphasis, Page};
use super::table::{Align, Table};
use crate::document::Document;

impl Document for QosDocument {
    /// What is in force on each interface, or what is said of a file or a packet; without any of
    /// these, what was changed.
    fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        status(&mut page, self);
        if let Some(report) = &self.file {
            file(&mut page, report);
        }
        if let Some(report) = &self.explanation {
            explanation(&mut page, report);
        }
        if self.adapters.is_empty() {
            let notes = self.notes.iter();
            notes.for_each(|note| page.line(Emphasis::None, note));
        }
        page.finish()
    }
}

/// Whether each interface filters, its adapter, policies and filters.
fn status(page: &mut Page, document: &QosDocument) {
    for adapter in &document.adapters {
        page.gap();
        head(page, adapter);
        let mut table = Table::new(&[
            ("policy", Align::Left),
            ("DSCP", Align::Left),
            ("reserve", Align::Right),
            ("limit", Align::Right),
            ("filter", Align::Left),
            ("protocol", Align::Left),
            ("priority", Align::Right),
            ("takes", Align::Left),
        ]);
        for policy in &adapter.policies {
            for (position, filter) in policy.filters.iter().enumerate() {
                table.row(status_row(policy, filter, position == 0));
            }
        }
        page.table(&table);
        for policy in &adapter.policies {
            page.facts(&policy.name, &further(policy));
        }
    }
}

fn head(page: &mut Page, adapter: &AdapterReport) {
    let state = match adapter.state {
        QosState::Filtering => "enabled and filtering",
        QosState::PassingThrough => "enabled, passing through",
        QosState::Disabled => "disabled",
        QosState::Failed => "not as it should be",
    };
    let emphasis = match adapter.state {
        QosState::Failed => Emphasis::Warning,
        _ => Emphasis::Strong,
    };
    page.line(emphasis, &format!("{}: {state}", adapter.name));
    if let Some(fault) = &adapter.fault {
        page.paragraph(Emphasis::Warning, "  !", 4, fault);
    }
    let mut facts = adapter.addresses.clone();
    facts.push(match adapter.kind.as_str() {
        "raw_ip" => "plain IP".to_owned(),
        _ => "Ethernet".to_owned(),
    });
    facts.extend(
        adapter
            .speed_bps
            .map(|bps| format!("link {}", rate(bps as f64))),
    );
    facts.extend(
        adapter
            .rate_bps
            .map(|bps| format!("shared {}", rate(bps as f64))),
    );
    facts.extend(adapter.attached.as_ref().map(|place| {
        if adapter.ingress {
            format!("{place}, egress and ingress")
        } else {
            format!("{place} egress")
        }
    }));
    let cap = adapter.gso_max_size_bytes;
    facts.extend(cap.map(|cap| format!("offloaded frames up to {}", chosen_bytes(cap.into()))));
    page.facts("adapter", &facts);
}

fn status_row(policy: &PolicyReport, filter: &FilterReport, is_first: bool) -> Vec<Option<String>> {
    let of_policy = |value: Option<String>| if is_first { value } else { Some(String::new()) };
    let protocols = if filter.protocols.is_empty() {
        "any".to_owned()
    } else {
        filter.protocols.join(", ")
    };
    vec![
        of_policy(Some(policy.name.clone())),
        of_policy(policy.dscp.and_then(Dscp::new).map(|dscp| dscp.to_string())),
        of_policy(policy.reserve_bps.map(|bps| rate(bps as f64))),
        of_policy(policy.limit_bps.map(|bps| rate(bps as f64))),
        Some(filter.name.clone()),
        Some(protocols),
        Some(filter.priority.to_string()),
        Some(if filter.conditions.is_empty() {
            "everything of it".to_owned()
        } else {
            filter.conditions.join("; ")
        }),
    ]
}

/// What few policies have.
fn further(policy: &PolicyReport) -> Vec<String> {
    let priority = policy
        .priority
        .map(|priority| format!("priority {priority}"));
    let vlan = policy
        .vlan_priority
        .map(|priority| format!("VLAN priority {priority}"));
    let class = policy
        .class
        .as_ref()
        .map(|class| format!("class {}", class.id));
    let drop = policy.drop.then(|| "drops its packets".to_owned());
    let words = [priority, vlan, class, policy.meter.clone(), drop];
    words.into_iter().flatten().collect()
}

/// What each policy and filter counted, interface by interface, and what the classes did.
pub fn qos_stats(document: &QosDocument, style: Style) -> String {
    let mut page = Page::new(style);
    for adapter in &document.adapters {
        page.gap();
        page.line(Emphasis::Strong, &adapter.name);
        if let Some(fault) = &adapter.fault {
            page.paragraph(Emphasis::Warning, "  !", 4, fault);
        }
        let mut table = Table::new(&[
            ("policy", Align::Left),
            ("filter", Align::Left),
            ("packets", Align::Right),
            ("bytes", Align::Right),
            ("dropped\npackets", Align::Right),
            ("dropped\nbytes", Align::Right),
            ("green", Align::Right),
            ("yellow", Align::Right),
            ("red", Align::Right),
        ]);
        for policy in &adapter.policies {
            let both = [("", Some(&policy.egress)), (" in", policy.ingress.as_ref())];
            for (side, counters) in both {
                if let Some(counters) = counters {
                    let name = format!("{}{side}", policy.name);
                    table.row(stats_row(
                        name,
                        String::new(),
                        counters,
                        policy.meter.is_some(),
                    ));
                }
            }
            for filter in &policy.filters {
                let both = [("", Some(&filter.egress)), (" in", filter.ingress.as_ref())];
                for (side, counters) in both {
                    if let Some(counters) = counters {
                        let name = format!("{}{side}", filter.name);
                        table.row(stats_row(String::new(), name, counters, false));
                    }
                }
            }
        }
        page.table(&table);
        classes(&mut page, adapter);
    }
    page.finish()
}

fn stats_row(
    policy: String,
    filter: String,
    counters: &CounterReport,
    has_meter: bool,
) -> Vec<Option<String>> {
    let colour = |packets| has_meter.then(|| count(packets));
    let drop = |number| (counters.dropped_packets > 0).then(|| count(number));
    vec![
        Some(policy),
        Some(filter),
        Some(count(counters.packets)),
        Some(count(counters.bytes)),
        drop(counters.dropped_packets),
        drop(counters.dropped_bytes),
        colour(counters.green),
        colour(counters.yellow),
        colour(counters.red),
    ]
}

fn classes(page: &mut Page, adapter: &AdapterReport) {
    let Some(default) = &adapter.default_class else {
        return;
    };
    page.gap();
    let mut table = Table::new(&[
        ("class", Align::Left),
        ("id", Align::Left),
        ("rate", Align::Right),
        ("ceiling", Align::Right),
        ("priority", Align::Right),
        ("packets", Align::Right),
        ("bytes", Align::Right),
        ("drops", Align::Right),
        ("borrowed", Align::Right),
        ("waits", Align::Right),
    ]);
    let of_policies = adapter.policies.iter();
    let of_policies =
        of_policies.filter_map(|policy| Some((policy.name.as_str(), policy.class.as_ref()?)));
    for (name, class) in of_policies.chain([("(other packets)", default)]) {
        table.row(class_row(name, class));
    }
    page.table(&table);
}

fn class_row(name: &str, class: &ClassReport) -> Vec<Option<String>> {
    vec![
        Some(name.to_owned()),
        Some(class.id.clone()),
        Some(rate(class.rate_bps as f64)),
        Some(rate(class.ceil_bps as f64)),
        Some(class.priority.to_string()),
        Some(count(class.packets)),
        Some(count(class.bytes)),
        Some(count(class.drops)),
        Some(count(class.borrows)),
        Some(bytes(class.backlog_bytes)),
    ]
}

/// What each policy and filter counted between two documents, for a second.
pub fn qos_rates(before: &QosDocument, now: &QosDocument, seconds: f64, style: Style) -> String {
    let mut page = Page::new(style);
    let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(1e-3);
    let mut table = Table::new(&[
        ("adapter", Align::Left),
        ("policy", Align::Left),
        ("filter", Align::Left),
        ("packets/s", Align::Right),
        ("rate", Align::Right),
        ("dropped/s", Align::Right),
    ]);
    for adapter in &now.adapters {
        let earlier = before
            .adapters
            .iter()
            .find(|earlier| earlier.name == adapter.name);
        for policy in &adapter.policies {
            let earlier = earlier.and_then(|adapter| {
                adapter
                    .policies
                    .iter()
                    .find(|earlier| earlier.name == policy.name)
            });
            let mut row = |filter: &str, now: &CounterReport, before: Option<&CounterReport>| {
                let before = before.copied().unwrap_or_default();
                let name = |name: &str| (filter.is_empty()).then(|| name.to_owned());
                table.row([
                    Some(name(&adapter.name).unwrap_or_default()),
                    Some(name(&policy.name).unwrap_or_default()),
                    Some(filter.to_owned()),
                    Some(count(per_second(now.packets, before.packets).round() as u64)),
                    Some(rate(8.0 * per_second(now.bytes, before.bytes))),
                    Some(count(
                        per_second(now.dropped_packets, before.dropped_packets).round() as u64,
                    )),
                ]);
            };
            row("", &policy.egress, earlier.map(|policy| &policy.egress));
            for filter in &policy.filters {
                let earlier = earlier.and_then(|policy| {
                    policy
                        .filters
                        .iter()
                        .find(|earlier| earlier.name == filter.name)
                });
                row(
                    &filter.name,
                    &filter.egress,
                    earlier.map(|filter| &filter.egress),
                );
            }
        }
    }
    page.table(&table);
    page.gap();
    page.finish()
}

/// A policy file that is right, and what is doubtful in it.
fn file(page: &mut Page, file: &FileReport) {
    let name = file.name.as_deref().unwrap_or("the policy file");
    let words = format!(
        "{name}: {} and {}",
        number(file.filters, "filter"),
        many(file.policies)
    );
    page.line(Emphasis::Strong, &words);
    for adapter in &file.adapters {
        let facts = [
            format!("{} for IPv4", number(adapter.v4_rules, "rule")),
            format!("{} for IPv6", adapter.v6_rules),
            format!("{} for other packets", adapter.other_rules),
        ];
        page.facts(&adapter.name, &facts);
    }
    for warning in &file.warnings {
        let words = format!("line {}: {}", warning.line, warning.text);
        page.paragraph(Emphasis::Warning, "  !", 4, &words);
    }
}

fn number(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", count(number as u64)),
    }
}

fn many(policies: usize) -> String {
    match policies {
        1 => "1 policy".to_owned(),
        _ => format!("{policies} policies"),
    }
}

/// Which filter takes a packet, and why not those asked before it.
fn explanation(page: &mut Page, explanation: &ExplanationReport) {
    page.line(
        Emphasis::None,
        &format!("{} on {}", explanation.packet, explanation.adapter),
    );
    match (&explanation.taken, &explanation.policy) {
        (Some(taken), Some(policy)) => {
            let words = format!(
                "filter {} (line {}) takes it: policy {policy}",
                taken.filter, taken.line
            );
            page.line(Emphasis::Strong, &words);
        }
        _ => page.line(
            Emphasis::Strong,
            "no filter takes it: it leaves as it came, in the default class",
        ),
    }
    for effect in &explanation.effects {
        page.paragraph(Emphasis::None, "  -", 4, effect);
    }
    if !explanation.refused.is_empty() {
        page.gap();
        page.line(Emphasis::None, "asked before, and why not:");
    }
    let mut table = Table::new(&[
        ("priority", Align::Right),
        ("filter", Align::Left),
        ("line", Align::Right),
        ("why not", Align::Left),
    ]);
    for refusal in &explanation.refused {
        table.row([
            Some(refusal.asked.priority.to_string()),
            Some(refusal.asked.filter.clone()),
            Some(refusal.asked.line.to_string()),
            Some(refusal.why.clone()),
        ]);
    }
    page.table(&table);
}
