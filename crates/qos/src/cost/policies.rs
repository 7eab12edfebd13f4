//! The policy files of the tests.

use std::fmt::Write;

use linerate_core::plan::Protocol;
use linerate_core::units::Family;

use super::paper::DSCP;
use crate::policy::PolicyFile;

/// Number of filters of the long policy that match nothing, before the one that matches.
pub const LONG: usize = 1000;
/// Number of filters of the policy that matches nothing: the maximum of a linear chain.
pub const UNMATCHED: usize = 16;

/// The paper's policy: every packet of the protocol gets DSCP 20.
pub fn simple(protocol: Protocol) -> String {
    let mut text = matching(protocol);
    text.push_str(&policy());
    text
}

/// A long policy with complex filters: a thousand with prefixes, port ranges, protocol and code
/// points, none of which matches the tests' packets, and then the simple one.
pub fn long(protocol: Protocol, family: Family) -> String {
    let mut text = String::new();
    for number in 0..LONG {
        let [source, destination] = match family {
            // Networks that no lab has.
            Family::Ipv4 => [
                format!("198.19.{}.0/24", 128 + number % 64),
                format!("198.19.{}.0/26", 192 + number / 64),
            ],
            Family::Ipv6 => [
                format!("2001:2:0:f0{:02x}::/64", number % 64),
                format!("2001:2:0:f1{:02x}::/60", number / 64 * 16),
            ],
        };
        // Ports below those of all data connections.
        let first = 1 + number % 900;
        let _ = write!(
            text,
            "[filter.c{number}]\npolicy = \"p1\"\npriority = {}\nprotocol = \"{}\"\nsource = \
             \"{source}\"\n\
             destination = \"{destination}\"\ndestination_port = \"{first}-{}\"\ndscp = \
             \"{}-{}\"\n\n",
            number + 1,
            name_of(protocol),
            first + number % 97,
            number % 8,
            8 + number % 32,
        );
    }
    let _ = write!(text, "{}", matching(protocol));
    text.push_str(&policy());
    text
}

/// Filters for services that nobody uses here: every packet is compared with all of them.
pub fn unmatched(protocol: Protocol) -> String {
    let mut text = String::new();
    for number in 0..UNMATCHED {
        let _ = write!(
            text,
            "[filter.u{number}]\npolicy = \"p1\"\nprotocol = \"{}\"\ndestination_port = {}\n\n",
            name_of(protocol),
            1 + number * 7
        );
    }
    text.push_str(&policy());
    text
}

fn matching(protocol: Protocol) -> String {
    format!(
        "[filter.f1]\npolicy = \"p1\"\npriority = 2000\nprotocol = \"{}\"\n\n",
        name_of(protocol)
    )
}

fn policy() -> String {
    format!("[policy.p1]\ndscp = {DSCP}\n\n[adapter.\"*\"]\npolicies = [\"p1\"]\n")
}

fn name_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "udp",
        Protocol::Tcp | Protocol::Mptcp => "tcp",
    }
}

/// Returns the policies of one adapter of a file, as a file for any device.
pub fn on_any_adapter(file: &PolicyFile, adapter: usize) -> PolicyFile {
    let mut made = file.clone();
    let mut adapter = made.adapters.swap_remove(adapter);
    adapter.name = "*".to_owned();
    let kept = adapter.policies.clone();
    let place = |policy: usize| kept.iter().position(|index| *index == policy);
    made.filters.retain(|filter| place(filter.policy).is_some());
    for filter in &mut made.filters {
        filter.policy = place(filter.policy).unwrap_or_default();
    }
    made.policies = kept
        .iter()
        .map(|index| file.policies[*index].clone())
        .collect();
    adapter.policies = (0..kept.len()).collect();
    made.adapters = vec![adapter];
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NoNames;
    use crate::rules::{Bindings, RuleSet};

    fn read(text: &str) -> PolicyFile {
        PolicyFile::from_toml(text, &mut NoNames).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn the_policies_of_the_tests_are_files_with_as_many_filters_as_they_say() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            assert_eq!(read(&simple(protocol)).filters.len(), 1);
            assert_eq!(read(&unmatched(protocol)).filters.len(), UNMATCHED);
            for family in [Family::Ipv4, Family::Ipv6] {
                let file = read(&long(protocol, family));
                assert_eq!(file.filters.len(), LONG + 1);
                let rules = RuleSet::new(&file, &file.adapters[0], &Bindings::stand_in(&file));
                let rules = rules.expect("they are few enough");
                let own = match family {
                    Family::Ipv4 => rules.v4.len(),
                    Family::Ipv6 => rules.v6.len(),
                };
                assert_eq!(own, LONG + 1, "{family:?}");
            }
        }
    }

    #[test]
    fn of_a_file_with_several_adapters_one_is_taken_with_what_is_its_own() {
        let file = read(
            r#"
[filter.web]
protocol = "tcp"
policy = "bulk"
[filter.sip]
protocol = "udp"
policy = "voice"
[policy.bulk]
dscp = 10
[policy.voice]
dscp = 46
[adapter.eth0]
policies = ["bulk"]
[adapter.eth1]
policies = ["voice"]
"#,
        );
        let made = on_any_adapter(&file, 1);
        let names: Vec<&str> = made
            .policies
            .iter()
            .map(|policy| policy.name.as_str())
            .collect();
        assert_eq!(
            (made.adapters[0].name.as_str(), names),
            ("*", vec!["voice"])
        );
        assert_eq!((made.filters.len(), made.filters[0].policy), (1, 0));
        assert_eq!(read(&made.to_toml()).filters[0].name, "sip");
    }
}
