//! Analyses of tables, as snapshots.

use insta::assert_snapshot;
use linerate_core::analyze::{Analysis, Claims, Input, Options, analyze, read};
use linerate_report::Document;

use crate::samples::whole;

const CHECKSUM: &str = include_str!("../../../../experiments/tables/mpeix_tcp_checksum.csv");
const WINDOW: &str = include_str!("../../../../experiments/tables/mpeix_receive_window.csv");
const IPQOS: &str = include_str!("../../../../experiments/tables/hpux_ipqos.csv");
const AAI: &str = include_str!("../../../../experiments/tables/aai_ttcp.csv");
const CLAIMS: &str = include_str!("../../../../experiments/tables/CLAIMS.toml");

fn analyzed(file: &str, table: &str, options: &Options) -> Analysis {
    let input = Input { file, label: file, bytes: table.as_bytes() };
    let table = read(&[input]).expect("the table is well-formed");
    analyze(&table, options).expect("the columns are there")
}

fn shown(file: &str, table: &str, options: &Options) -> String {
    analyzed(file, table, options).text(whole())
}

pub(crate) fn document() -> Analysis {
    let options = options("kbyte_per_s", "checksum", &["path"]);
    analyzed("mpeix_tcp_checksum.csv", CHECKSUM, &options)
}

fn options(metric: &str, factor: &str, by: &[&str]) -> Options {
    Options {
        metrics: vec![metric.to_owned()],
        factor: Some(factor.to_owned()),
        by: by.iter().map(|name| (*name).to_owned()).collect(),
        claims: Some(Claims::from_toml("CLAIMS.toml", CLAIMS).expect("the claims are well-formed")),
        ..Options::default()
    }
}

#[test]
fn three_runs_each_with_what_the_report_made_of_them() {
    assert_snapshot!(document().text(whole()));
}

#[test]
fn one_run_each_on_a_clock_of_whole_seconds() {
    let options = options("kbyte_per_s", "treatment", &["buffer_bytes"]);
    assert_snapshot!(shown("mpeix_receive_window.csv", WINDOW, &options));
}

#[test]
fn a_summary_against_its_own_rows() {
    let options =
        options("service_demand_us_per_kib", "treatment", &["interface", "message_bytes"]);
    assert_snapshot!(shown("hpux_ipqos.csv", IPQOS, &options));
}

#[test]
fn the_ceilings_of_columns() {
    let options = Options { by: vec!["series".to_owned()], ..Options::default() };
    assert_snapshot!(shown("aai_ttcp.csv", AAI, &options));
}
