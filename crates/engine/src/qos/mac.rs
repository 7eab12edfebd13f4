//! Warns of filters whose Ethernet addresses no packet of an interface can have.

use linerate_qos::document::WarningReport;
use linerate_qos::packet::LinkType;
use linerate_qos::policy::{Adapter, Mac, PolicyFile, Range};

use super::port::Port;

/// What is said of filters that take no packet on this interface for the addresses that they ask
/// for.
pub(super) fn unmet(
    file: &PolicyFile,
    adapter: &Adapter,
    port: &Port,
    with_ingress: bool,
) -> Vec<WarningReport> {
    let name = port.name();
    let own = port.link.mac.map(Mac::from);
    let is_alone = !adapter.ingress && !with_ingress && port.link.controller.is_none();
    let why = |source: &[Range<Mac>], destination: &[Range<Mac>]| {
        let asked = !source.is_empty() || !destination.is_empty();
        let holds = |ranges: &[Range<Mac>], mac: Option<Mac>| {
            ranges.is_empty() || mac.is_none_or(|mac| ranges.iter().any(|one| one.contains(mac)))
        };
        let zero = Some(Mac::default());
        if asked && !matches!(port.link_type(), Ok(LinkType::Ethernet)) {
            Some(format!("packets of {name} have no Ethernet header"))
        } else if port.link.loopback && !(holds(source, zero) && holds(destination, zero)) {
            Some(format!("both addresses are 00:00:00:00:00:00 on {name}"))
        } else if is_alone && !port.link.loopback && !holds(source, own) {
            let own = own.unwrap_or_default();
            Some(format!(
                "what leaves by {name} has its address {own} as the source, unless a program makes \
                 its own frames; `ingress = true` is for packets that come in"
            ))
        } else {
            None
        }
    };
    let filters = (file.filters.iter()).filter(|one| adapter.policies.contains(&one.policy));
    filters
        .filter_map(|filter| {
            let asked = &filter.conditions;
            let why = why(&asked.source_mac, &asked.destination_mac)?;
            Some(WarningReport {
                line: filter.place.line,
                column: filter.place.column,
                text: format!("filter `{}` takes no packet: {why}", filter.name),
                refused: false,
            })
        })
        .collect()
}
