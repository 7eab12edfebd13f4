//! Writes a policy file as TOML.

use std::fmt::Write;

use linerate_core::units::{BitRate, ByteCount, Dscp};

use super::values::{self, Number};
use super::words::{FAMILIES, TCP_FLAGS};
use super::{
    Adapter, AddressRange, Conditions, DEFAULT_PRIORITY, Family, Filter, FlagTest, Fragments, Mac,
    Meter, MeterKind, Policy, PolicyFile, Range, Share,
};

impl PolicyFile {
    /// The file in the form read by [`PolicyFile::from_toml`], without the original places:
    /// filters, then policies, then adapters. Names appear resolved, as addresses, ports and user
    /// ids.
    pub fn to_toml(&self) -> String {
        let mut text = Text::default();
        if self.fragments == Fragments::Track {
            text.line("fragments", "\"track\"");
        }
        for filter in &self.filters {
            text.table("filter", &filter.name);
            self.write_filter(&mut text, filter);
        }
        for policy in &self.policies {
            text.table("policy", &policy.name);
            let parent = policy.parent.map(|at| quoted(&self.policies[at].name));
            text.optional("parent", parent);
            write_policy(&mut text, policy);
        }
        for adapter in &self.adapters {
            text.table("adapter", &adapter.name);
            self.write_adapter(&mut text, adapter);
        }
        text.0
    }

    fn write_filter(&self, text: &mut Text, filter: &Filter) {
        for (key, values) in written(&filter.conditions) {
            text.list(key, &values);
        }
        if filter.priority != DEFAULT_PRIORITY {
            text.line("priority", filter.priority);
        }
        text.line("policy", quoted(&self.policies[filter.policy].name));
    }

    fn write_adapter(&self, text: &mut Text, adapter: &Adapter) {
        text.optional("rate", adapter.rate.map(|rate| quoted(&rate.typed())));
        let policies = adapter.policies.iter();
        let names: Vec<_> = policies.map(|at| quoted(&self.policies[*at].name)).collect();
        text.line("policies", format_args!("[{}]", names.join(", ")));
        text.flag("ingress", adapter.ingress);
    }
}

/// The conditions by key, with their values as in a file.
pub(crate) fn written(asked: &Conditions) -> Vec<(&'static str, Vec<String>)> {
    let ports = |ranges: &[Range<u16>]| numbers(ranges, &values::PORT);
    let types = values::icmp_types(asked);
    let mut all = vec![
        ("family", each(&asked.family, family)),
        ("source", each(&asked.source, address)),
        ("destination", each(&asked.destination, address)),
        ("address", each(&asked.address, address)),
        ("protocol", numbers(&asked.protocol, &values::PROTOCOL)),
        ("source_port", ports(&asked.source_port)),
        ("destination_port", ports(&asked.destination_port)),
        ("port", ports(&asked.port)),
        ("ethertype", numbers(&asked.ethertype, &values::ETHERTYPE)),
        ("dscp", each(&asked.dscp, dscp_range)),
        ("ecn", numbers(&asked.ecn, &values::ECN)),
        ("icmp_type", numbers(&asked.icmp_type, types)),
        ("icmp_code", numbers(&asked.icmp_code, &values::ICMP_CODE)),
        ("tcp_flags", each(&asked.tcp_flags, flags)),
        ("flow_label", numbers(&asked.flow_label, &values::FLOW_LABEL)),
        ("vlan", numbers(&asked.vlan, &values::VLAN)),
        ("length", numbers(&asked.length, &values::LENGTH)),
        ("uid", numbers(&asked.uid, &values::UID)),
        ("cgroup", each(&asked.cgroup, |path| path.0.clone())),
        ("incoming", each(&asked.incoming, |name| name.0.clone())),
        ("mark", each(&asked.mark, ToString::to_string)),
        ("source_mac", each(&asked.source_mac, macs)),
        ("destination_mac", each(&asked.destination_mac, macs)),
    ];
    all.retain(|(_, values)| !values.is_empty());
    all
}

fn each<T>(values: &[T], written: impl Fn(&T) -> String) -> Vec<String> {
    values.iter().map(written).collect()
}

fn numbers<T: Copy + Into<u32>>(values: &[Range<T>], number: &Number) -> Vec<String> {
    each(values, |range| match (range.first.into(), range.last.into()) {
        (first, last) if first != last => format!("{first}-{last}"),
        (single, _) => match number.word(single) {
            Some(word) => word.to_owned(),
            None => single.to_string(),
        },
    })
}

fn family(family: &Family) -> String {
    let known = FAMILIES.iter().find(|(_, known)| known == family);
    known.map_or(String::new(), |(name, _)| (*name).to_owned())
}

fn write_policy(text: &mut Text, policy: &Policy) {
    text.optional("dscp", policy.dscp.map(dscp));
    text.optional("vlan_priority", policy.vlan_priority);
    text.optional("reserve", policy.reserve.map(share));
    text.optional("limit", policy.limit.map(share));
    text.optional("priority", policy.priority);
    text.optional("meter", policy.meter.as_ref().map(meter));
    text.flag("drop", policy.drop);
}

/// A meter as an inline table.
fn meter(meter: &Meter) -> String {
    let rate = |rate: BitRate| quoted(&rate.typed());
    let mut keys = match meter.kind {
        MeterKind::SingleRate { committed, committed_burst, excess_burst } => vec![
            ("kind", quoted("srtcm")),
            ("committed", rate(committed)),
            ("committed_burst", burst(committed_burst)),
            ("excess_burst", burst(excess_burst)),
        ],
        MeterKind::TwoRate { committed, committed_burst, peak, peak_burst } => vec![
            ("kind", quoted("trtcm")),
            ("committed", rate(committed)),
            ("committed_burst", burst(committed_burst)),
            ("peak", rate(peak)),
            ("peak_burst", burst(peak_burst)),
        ],
    };
    if meter.colour_aware {
        keys.push(("colour", quoted("aware")));
    }
    let colours = meter.code_points();
    keys.extend(colours.map(|(key, colour)| (key, dscp(colour))));
    if meter.drop_red {
        keys.push(("drop_red", "true".to_owned()));
    }
    let keys = keys.iter().map(|(key, value)| format!("{key} = {value}"));
    format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
}

/// The text so far.
#[derive(Default)]
struct Text(String);

impl Text {
    fn table(&mut self, kind: &str, name: &str) {
        let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let blank = if self.0.is_empty() { "" } else { "\n" };
        // Writing to a String does not fail.
        let _ = if name.bytes().all(is_bare) {
            writeln!(self.0, "{blank}[{kind}.{name}]")
        } else {
            writeln!(self.0, "{blank}[{kind}.{}]", quoted(name))
        };
    }

    fn line(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn optional(&mut self, key: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.line(key, value);
        }
    }

    fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.line(key, value);
        }
    }

    /// Writes one value directly, several as a list.
    fn list(&mut self, key: &str, values: &[String]) {
        match values {
            [one] => self.line(key, value(one)),
            several => {
                let several: Vec<_> = several.iter().map(|one| value(one)).collect();
                self.line(key, format_args!("[{}]", several.join(", ")));
            }
        }
    }
}

/// Writes a number directly, anything else in quotes.
fn value(text: &str) -> String {
    let number = text.parse::<u32>().map(|number| number.to_string());
    match number {
        Ok(number) if number == text => number,
        _ => quoted(text),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn address(range: &AddressRange) -> String {
    let AddressRange { first, last } = range;
    match range.prefix_length() {
        Some(_) if first == last => first.to_string(),
        Some(length) => format!("{first}/{length}"),
        None => format!("{first}-{last}"),
    }
}

fn macs(Range { first, last }: &Range<Mac>) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    }
}

fn dscp_range(range: &Range<u8>) -> String {
    match (Dscp::new(range.first), range.first == range.last) {
        (Some(single), true) => single.to_string(),
        _ => format!("{}-{}", range.first, range.last),
    }
}

fn dscp(dscp: Dscp) -> String {
    value(&dscp.to_string())
}

fn flags(test: &FlagTest) -> String {
    let asked = TCP_FLAGS.entries().filter_map(|(name, bit)| {
        let is = |flags: u8| u32::from(flags) & bit != 0;
        is(test.mask).then(|| format!("{}{name}", if is(test.value) { "" } else { "!" }))
    });
    asked.collect::<Vec<_>>().join(",")
}

fn share(share: Share) -> String {
    quoted(&match share {
        Share::Rate(rate) => rate.typed(),
        Share::Percent(percent) => format!("{percent}%"),
    })
}

fn burst(bytes: ByteCount) -> String {
    value(&bytes.typed())
}
