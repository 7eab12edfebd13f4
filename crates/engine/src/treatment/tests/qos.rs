//! The treatment `qos`: policies of a device that is there, with the kernel's own word that they
//! are in force.

use std::net::IpAddr;

use linerate_core::plan::End;
use linerate_core::treatment::Treatments;
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, skip};

use super::super::journal::undo_leftovers_in;
use super::{Applied, Journals, TreatError, apply_and_kill, on_pair, or_skip, plan};
use crate::category::Categorized;
use crate::qos::{self, Mode, QosError, QosOptions, Standing};

/// The files that the tests name.
pub(super) fn read(name: &str) -> Result<String, String> {
    let handling = match name {
        "mark.toml" => "dscp = 20",
        "other.toml" => "dscp = 46",
        "shape.toml" => "limit = \"20mbit\"",
        _ => return Err("there is none".to_owned()),
    };
    Ok(format!(
        "[filter.all]\nprotocol = \"tcp\"\npolicy = \
         \"p\"\n\n[policy.p]\n{handling}\n\n[adapter.\"*\"]\nrate = \
         \"100mbit\"\npolicies = [\"p\"]\n"
    ))
}

fn apply(journals: &Journals, text: &str, peer: IpAddr) -> Result<Applied, TreatError> {
    let mut treatments: Treatments = text.parse().unwrap();
    treatments.load(&read).unwrap();
    let planned = plan(&treatments.host_changes(End::Client)).unwrap();
    Applied::apply_in(&journals.directory(), &planned, peer)
}

/// False, and says why, where this process may have no policies.
fn may_have_policies() -> bool {
    match qos::standing(Pair::LINK) {
        Ok(_) => true,
        Err(error @ (QosError::NotPermitted { .. } | QosError::Unsupported { .. })) => {
            skip(Need::Bpf, format_args!("no policies here: {error}"));
            false
        }
        Err(error) => panic!("{}", crate::words::chain(&error)),
    }
}

fn standing() -> Option<Standing> {
    qos::standing(Pair::LINK).unwrap()
}

fn mode() -> Option<Mode> {
    standing().map(|standing| standing.mode)
}

fn options() -> QosOptions {
    QosOptions { adapter: Some(Pair::LINK.to_owned()), ..QosOptions::default() }
}

#[test]
fn a_policy_is_read_back_and_undone() {
    on_pair("qos", |journals, peers| {
        if !may_have_policies() {
            return;
        }
        for (text, mode_then, words) in [
            ("qos=mark.toml", Mode::Enabled, "veth0: qos=mark.toml, no classes, "),
            ("qos=shape.toml", Mode::Enabled, "veth0: qos=shape.toml, 1 class, "),
            ("qos=passthrough", Mode::PassingThrough, "veth0: a program without rules, "),
        ] {
            for peer in peers {
                let applied = apply(journals, text, peer)
                    .unwrap_or_else(|error| panic!("{text}: {}", crate::words::chain(&error)));
                assert!(applied.read_back()[0].starts_with(words), "{:?}", applied.read_back());
                assert_eq!(mode(), Some(mode_then), "{text}");
                assert_eq!(journals.count(), 1);
                applied.undo().unwrap();
                assert_eq!(mode(), None, "{text} leaves something");
            }
        }
        let applied = apply(journals, "qos=off", peers[0]).unwrap();
        assert_eq!(applied.read_back(), ["veth0: no policy"]);
        assert_eq!(journals.count(), 0, "there is nothing to undo");
        applied.undo().unwrap();
    });
}

#[test]
fn undoing_restores_the_previous_policy() {
    on_pair("qos-before", |journals, [peer, _]| {
        if !may_have_policies() {
            return;
        }
        qos::apply(&read("shape.toml").unwrap(), &options()).unwrap();
        let before = standing();
        for text in ["qos=off", "qos=passthrough", "qos=mark.toml"] {
            let applied = apply(journals, text, peer).unwrap();
            assert_ne!(standing(), before, "{text}");
            applied.undo().unwrap();
            assert_eq!(standing(), before, "{text}");
        }
        // Whoever changes it meanwhile has the last word.
        let applied = apply(journals, "qos=passthrough", peer).unwrap();
        qos::apply(&read("other.toml").unwrap(), &options()).unwrap();
        applied.undo().unwrap();
        assert_eq!(standing().map(|standing| standing.text), read("other.toml").ok());
        qos::remove(Some(Pair::LINK)).unwrap();
    });
}

#[test]
fn a_policy_of_a_killed_process_is_taken_away_by_the_next() {
    let Some(pair) = or_skip(Pair::create()) else {
        return;
    };
    let journals = Journals::new("qos-killed");
    let a = &pair.a.namespace;
    if !a.run(may_have_policies).unwrap() {
        return;
    }
    apply_and_kill(a, &journals, "qos=mark.toml", |_, _| {});
    assert_eq!(a.run(mode).unwrap(), Some(Mode::Enabled));
    let lines = undo_leftovers_in(&journals.directory());
    assert!(lines.len() == 1 && lines[0].starts_with("qos of veth0: put back"), "{lines:?}");
    assert_eq!(a.run(mode).unwrap(), None);
}

#[test]
fn a_policy_that_is_wrong_changes_nothing() {
    on_pair("qos-wrong", |journals, [peer, _]| {
        if !may_have_policies() {
            return;
        }
        let mut treatments: Treatments = "qos=wrong.toml".parse().unwrap();
        let text = "[filter.all]\nprotokol = \"tcp\"\n";
        treatments.load(&|_| Ok(text.to_owned())).unwrap();
        let planned = plan(&treatments.host_changes(End::Client)).unwrap();
        let error = Applied::apply_in(&journals.directory(), &planned, peer).unwrap_err();
        assert_eq!(error.category(), crate::category::Category::Usage);
        assert!(error.to_string().contains("line 2"), "{error}");
        assert_eq!(mode(), None);
    });
}
