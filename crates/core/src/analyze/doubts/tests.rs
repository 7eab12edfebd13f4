//! Each doubt is raised where the figures give cause, and nowhere else.

use super::super::groups::{Grouping, Split};
use super::*;
use crate::analyze::document::Doubt;
use crate::analyze::source::{Input, read};
use crate::analyze::table::Table;

fn table(text: &str) -> Table {
    let input = Input { file: "f", label: "f", bytes: text.as_bytes() };
    read(&[input]).unwrap()
}

fn by_treatment(table: &Table) -> Grouping<'_> {
    let split = Split { by: Vec::new(), factor: table.find("treatment") };
    Grouping::new(table, 0..table.len(), &split).unwrap()
}

fn shared(text: &str) -> Option<Doubt> {
    let table = table(text);
    let treatment = table.find("treatment").unwrap();
    shared_figures(&table, &[treatment])
}

#[test]
fn rows_of_different_settings_that_share_two_figures_are_named() {
    let rows = |last: &str| {
        format!(
            "treatment,mbit,demand,cpu\na,54.921,220.909,34.97\na,94.072,54.645,15.69\nb,{last}\nb,91.431,65.111,18.15\n"
        )
    };
    let found = shared(&rows("54.921,220.909,39.97"));
    assert!(found.unwrap().message.contains("line 2 and line 4 (mbit 54.921, demand 220.909)"));
    // One shared figure, or the same settings, or nothing that differs, is no cause for doubt.
    assert!(shared(&rows("54.921,220.908,39.97")).is_none());
    assert!(shared(&rows("54.921,220.909,34.97")).is_none());
    let repeated = rows("54.921,220.909,39.97").replace("\nb,54", "\na,54");
    assert!(shared(&repeated).is_none());
}

#[test]
fn one_figure_in_two_units_is_shared_once() {
    let text = "treatment,mbit,kbyte,cpu\na,54.921,6865.1,1.5\nb,54.921,6865.1,1.6\nb,91.431,11428.9,1.7\n";
    assert!(shared(text).is_none());
}

#[test]
fn percentages_over_their_end_are_told_from_those_over_their_beginning() {
    let right = "before,after,change_percent\n100,80,-20.0\n50,55,10.0\n10,13,30.0\n";
    let wrong = "before,after,change_percent\n100,80,-25.0\n50,55,9.1\n10,13,23.1\n";
    assert!(other_base(&table(right)).is_none());
    let found = other_base(&table(wrong));
    assert!(
        found.unwrap().message.contains(
            "`change_percent` is the change from `before` to `after`, divided by `after`"
        )
    );
}

#[test]
fn sizes_in_each_level_are_mixed_and_a_host_of_each_level_is_confounded() {
    let table =
        table("treatment,size,host,rate\noff,64,pit,1\noff,128,pit,2\non,64,sun,3\non,128,sun,4\n");
    let grouping = by_treatment(&table);
    let others = ["size", "host"].map(|name| table.find(name).unwrap());
    let doubt = mixed(&table, &grouping, &others).unwrap();
    assert!(doubt.message.contains("`size`") && !doubt.message.contains("`host`"));
    let doubt = confounded(&table, &grouping, &others).unwrap();
    assert!(doubt.message.contains("`host`") && !doubt.message.contains("`size`"));
}

#[test]
fn runs_that_stand_in_blocks_are_not_interleaved() {
    let blocks = table("treatment,rate\noff,1\noff,2\non,3\non,4\n");
    assert!(not_interleaved(&by_treatment(&blocks)).is_some());
    let turns = table("treatment,rate\noff,1\non,3\noff,2\non,4\n");
    assert!(not_interleaved(&by_treatment(&turns)).is_none());
    let singles = table("treatment,rate\noff,1\non,3\n");
    assert!(not_interleaved(&by_treatment(&singles)).is_none());
}
