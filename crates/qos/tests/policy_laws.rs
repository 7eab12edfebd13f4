//! Laws of policy files: what is written is read as it was, and no text makes a reader panic.

use crate::corpus::targets::placeless;
use crate::policy_support::policy_file;
use linerate_qos::policy::{NoNames, Place, PolicyFile};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_written_is_read_as_it_was(file in policy_file()) {
        let text = file.to_toml();
        let read = PolicyFile::from_toml(&text, &mut NoNames);
        let read = read.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&text, &read.to_toml());
        prop_assert_eq!(placeless(read), file, "{}", text);
    }

    #[test]
    fn families_of_what_is_read_are_never_empty(file in policy_file()) {
        for filter in &file.filters {
            prop_assert!(!filter.conditions.families().is_empty());
        }
    }
}

#[test]
fn a_file_of_as_many_filters_as_there_may_be_fits() {
    let mut text = String::from("[policy.all]\ndscp = 1\n[adapter.eth0]\npolicies = [\"all\"]\n");
    for number in 0..8192 {
        let (high, low) = (number / 256, number % 256);
        text.push_str(&format!(
            "[filter.a-rather-long-name-number-{number}]\nsource = [\"198.18.{high}.0/24\", \
             \"2001:2:0:{number:x}::/64\"]\n\
             destination = \"198.19.{high}.{low}-198.19.255.255\"\naddress = \
             \"0.0.0.0/0\"\nprotocol = \"tcp\"\n\
             destination_port = [80, 443, \"8000-8999\"]\ndscp = \"AF41\"\npriority = {}\npolicy = \
             \"all\"\n\n",
            number + 1
        ));
    }
    let file = PolicyFile::from_toml(&text, &mut NoNames).unwrap();
    assert_eq!(file.filters.len(), 8192);
    assert_eq!(file.filters[8191].priority, 8192);
    assert_eq!(file.filters[1].place, Place { line: 15, column: 9 });
    let more = text + "[filter.one-more]\npolicy = \"all\"\n";
    let error = PolicyFile::from_toml(&more, &mut NoNames).unwrap_err();
    assert_eq!(error.problem, "8193 filters: there may be at most 8192");
}

/// A reader that tried each hyphen of each value would take hours.
#[test]
fn long_values_are_refused_at_once() {
    let long = "1".repeat(1 << 20) + &"-".repeat(1 << 20);
    for key in ["port", "dscp", "protocol", "source", "uid", "tcp_flags", "cgroup"] {
        let text = format!(
            "[filter.f]\n{key} = \"{long}\"\npolicy = \"p\"\n[policy.p]\n[adapter.a]\npolicies = \
             [\"p\"]\n"
        );
        let error = PolicyFile::from_toml(&text, &mut NoNames).unwrap_err();
        assert_eq!(error.line, 2, "{error}");
        assert!(error.to_string().len() < 400, "{error}");
    }
}
