//! Claims that hold, claims that do not hold, and files that are refused.

use super::super::document::ClaimVerdict;
use super::*;
use crate::analyze::source::{Input, read};

const ROWS: &str = "path,checksum,rate\n917,off,800\n917,off,784\n917,on,730\n917,on,745\n967,off,998\n967,on,1000\n";

fn table() -> Table {
    let input = Input { file: "dir/t.csv", label: "t", bytes: ROWS.as_bytes() };
    read(&[input]).unwrap()
}

fn checked(lines: &str) -> ClaimResult {
    let text = format!(
        "[[claim]]\nsays = \"x\"\nmetric = \"rate\"\nfactor = \"checksum\"\na = \"off\"\nb = \
         \"on\"\n{lines}"
    );
    let claims = Claims::from_toml("c.toml", &text).unwrap();
    claims.check(&table()).unwrap().remove(0)
}

fn verdict(lines: &str) -> ClaimVerdict {
    checked(lines).verdict
}

#[test]
fn a_percentage_is_judged_by_its_own_rounding_base_and_sign() {
    // Means 792 and 737.5: -6.88 % over the first, -7.39 % over the second.
    let at = |value: &str| {
        verdict(&format!("where = {{ path = 917 }}\nunit = \"percent\"\nvalue = {value}"))
    };
    assert_eq!(at("-6.9"), ClaimVerdict::Agrees);
    assert_eq!(at("-6.88"), ClaimVerdict::Agrees);
    assert_eq!(at("-7"), ClaimVerdict::Agrees);
    assert_eq!(at("-7.4"), ClaimVerdict::OtherBase);
    assert_eq!(at("6.9"), ClaimVerdict::WrongSign);
    assert_eq!(at("-6.90"), ClaimVerdict::Disagrees);
    assert_eq!(at("-20"), ClaimVerdict::Disagrees);
}

#[test]
fn the_words_name_both_bases_and_what_was_misprinted() {
    let result = checked(
        "where = { path = \"917\" }\nunit = \"percent\"\nvalue = -7.4\nprinted = [792.0, 737.4]",
    );
    assert_eq!(
        result.explanation,
        "-7.4 % is over 737.50 (`on`, the mean of its rows); it is -6.9 % over 792.00 (`off`); the \
         report prints 737.4 where its \
         rows give 737.5"
    );
}

#[test]
fn a_range_holds_only_if_every_group_is_in_it() {
    let lines = "by = [\"path\"]\nunit = \"difference\"\nbetween = [-60, 5]";
    assert_eq!(verdict(lines), ClaimVerdict::Agrees);
    let result = checked("by = [\"path\"]\nunit = \"difference\"\nbetween = [-60, 1]");
    assert_eq!(result.verdict, ClaimVerdict::Disagrees);
    assert_eq!(result.explanation, "-54.5 to +2.0 in 2 groups; 1 outside: +2.0 at path 967");
    assert_eq!(result.claimed, "-60 to 1");
}

#[test]
fn ratios_and_medians_are_figures_too() {
    let lines = "where = { path = 967 }\nof = \"median\"\nunit = \"ratio\"\nvalue = 1.00";
    assert_eq!(verdict(lines), ClaimVerdict::Agrees);
    let swapped = "where = { path = 917 }\nunit = \"ratio\"\nvalue = 1.07";
    assert_eq!(verdict(swapped), ClaimVerdict::OtherBase);
}

#[test]
fn swapped_sides_do_not_agree() {
    let text = "[[claim]]\nsays = \"x\"\nmetric = \"rate\"\nfactor = \"checksum\"\na = \"on\"\nb = \
        \"off\"\n\
        where = { path = 917 }\nunit = \"percent\"\nvalue = -6.9\n";
    let claims = Claims::from_toml("c.toml", text).unwrap();
    let result = claims.check(&table()).unwrap().remove(0);
    assert_ne!(result.verdict, ClaimVerdict::Agrees);
}

#[test]
fn a_file_that_is_none_is_refused_with_its_place() {
    let refusal = |text: &str| Claims::from_toml("c.toml", text).unwrap_err().to_string();
    let whole = "[[claim]]\nsays = \"x\"\nmetric = \"rate\"\nfactor = \"checksum\"\na = 1\nb = \
        2\nunit = \"percent\"\n";
    assert!(refusal(whole).contains("c.toml: line 1, column 1: a claim has either"));
    assert!(
        refusal(&format!("{whole}valu = 1")).contains("line 8, column 1: unknown field `valu`")
    );
    assert!(refusal(&format!("{whole}value = \"1\"")).contains("line 8, column 9"));
    assert!(refusal(&format!("{whole}value = nan")).contains("`nan` is not a finite number"));
    assert!(refusal(&format!("{whole}between = [2, 1]")).contains("from the smaller"));
    assert!(refusal("[[claim]\n").contains("line 1, column"));
}

#[test]
fn a_claim_that_does_not_fit_the_table_is_refused() {
    let refusal = |text: &str| {
        let whole = format!(
            "[[claim]]\nsays = \"x\"\na = \"off\"\nb = \"on\"\nunit = \"ratio\"\nvalue = 1\n{text}"
        );
        let claims = Claims::from_toml("c.toml", &whole).unwrap();
        claims.check(&table()).unwrap_err().to_string()
    };
    assert!(refusal("metric = \"rates\"\nfactor = \"checksum\"").contains("did you mean `rate`?"));
    assert!(refusal("metric = \"rate\"\nfactor = \"path\"").contains("has no level `off`"));
    let other = "metric = \"rate\"\nfactor = \"checksum\"\ntable = \"u.csv\"";
    assert!(refusal(other).contains("no claim is about t.csv; those of this file are about u.csv"));
    let nowhere = "metric = \"rate\"\nfactor = \"checksum\"\nwhere = { path = 1 }";
    assert!(refusal(nowhere).contains("no row matches its `where`"));
}
