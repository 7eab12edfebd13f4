//! The five reports' tables under `linerate analyze`: what they can say, and what their authors
//! made of them.

use linerate_core::analyze::{
    Analysis, ClaimResult, ClaimVerdict, Claims, Contrast, DoubtKind, Input, Options, Table, Unit,
    analyze, read,
};
use linerate_core::ceilings::Cause;
use linerate_core::link::Framing;
use linerate_core::stats::Figure;

const CHECKSUM: &str = include_str!("../../../experiments/tables/mpeix_tcp_checksum.csv");
const WINDOW: &str = include_str!("../../../experiments/tables/mpeix_receive_window.csv");
const IPQOS: &str = include_str!("../../../experiments/tables/hpux_ipqos.csv");
const AAI: &str = include_str!("../../../experiments/tables/aai_ttcp.csv");
const CLAIMS: &str = include_str!("../../../experiments/tables/CLAIMS.toml");

fn table(file: &str, text: &str) -> Table {
    let input = Input { file, label: file, bytes: text.as_bytes() };
    read(&[input]).expect("the table is well-formed")
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn analysis(file: &str, text: &str, metrics: &[&str], factor: &str, by: &[&str]) -> Analysis {
    let options = Options {
        metrics: names(metrics),
        factor: Some(factor.to_owned()),
        by: names(by),
        ..Options::default()
    };
    analyze(&table(file, text), &options).expect("the columns are there")
}

/// The comparison of the group whose settings are these.
fn contrast<'a>(analysis: &'a Analysis, metric: &str, values: &[&str], b: &str) -> &'a Contrast {
    let is_group = |settings: &[linerate_core::analyze::Setting]| {
        settings.iter().map(|s| s.value.as_str()).eq(values.iter().copied())
    };
    let group = analysis
        .groups
        .iter()
        .find(|group| group.metric == metric && is_group(&group.settings))
        .expect("the group is there");
    let found = group.comparisons.iter().find(|contrast| contrast.b == b);
    found.expect("the level is there")
}

fn claims(file: &str, text: &str, claims: &str) -> Vec<ClaimResult> {
    let options = Options {
        claims: Some(Claims::from_toml("CLAIMS.toml", claims).expect("the claims are well-formed")),
        ..Options::default()
    };
    analyze(&table(file, text), &options).expect("the claims fit").claims
}

fn claim<'a>(results: &'a [ClaimResult], says: &str, metric: &str) -> &'a ClaimResult {
    let mut found =
        results.iter().filter(|claim| claim.says.contains(says) && claim.metric == metric);
    let claim = found.next().expect("the claim is there");
    assert!(found.next().is_none(), "{says} is one claim");
    claim
}

fn doubts(analysis: &Analysis, kind: DoubtKind) -> Vec<&str> {
    let of_kind = analysis.doubts.iter().filter(|doubt| doubt.kind == kind);
    of_kind.map(|doubt| doubt.message.as_str()).collect()
}

const SLOW: &str = "ector 917LX -> lance 937SX";

#[test]
fn three_runs_against_three_cannot_reach_5_percent() {
    let analysis = analysis("t", CHECKSUM, &["kbyte_per_s"], "checksum", &["path"]);
    assert_eq!(analysis.groups.len(), 4);
    let slow = contrast(&analysis, "kbyte_per_s", &[SLOW], "on");
    assert_eq!((slow.n_a, slow.n_b), (3, 3));
    assert!((slow.smallest_p_value.unwrap() - 0.1).abs() < 1e-12);
    assert_eq!(slow.runs_to_reach_5_percent, Some(4));
    assert!(slow.shows[0].contains("no test of ranks can reach 5 %"), "{:?}", slow.shows);
    // The interval is the range of all ratios: its confidence is what three against three can have.
    assert!((slow.confidence_percent.unwrap() - 90.0).abs() < 1e-9);
    let [low, high] = slow.interval_percent.unwrap();
    assert!((low - 100.0 * (669.91 / 797.10 - 1.0)).abs() < 1e-9);
    assert!((high - 100.0 * (780.14 / 786.84 - 1.0)).abs() < 1e-9);
    assert!(slow.runs_needed.unwrap() > 3, "{:?}", slow.runs_needed);
}

#[test]
fn the_fast_machines_show_no_difference() {
    let analysis = analysis("t", CHECKSUM, &["kbyte_per_s"], "checksum", &["path"]);
    let equal = contrast(&analysis, "kbyte_per_s", &["kato 959-200 -> kitt 967SX"], "on");
    assert_eq!(equal.effect_percent, Some(0.0));
    assert_eq!(equal.interval_percent, Some([0.0, 0.0]));
    let fast = contrast(&analysis, "kbyte_per_s", &["kitt 967SX -> kato 959-200"], "on");
    assert!(fast.effect_percent.unwrap() > 0.0 && fast.effect_percent.unwrap() < 0.2);
}

#[test]
fn whole_seconds_are_said_where_the_clock_had_no_finer_ones() {
    let analysis = analysis("t", CHECKSUM, &["elapsed_s", "cpu_s"], "checksum", &["path"]);
    let said = doubts(&analysis, DoubtKind::WholeSeconds);
    assert!(said.iter().any(|words| words.contains("`cpu_s`") && words.contains("24 rows")));
    let at =
        |path: &str| said.iter().any(|words| words.contains("`elapsed_s`") && words.contains(path));
    assert!(at("lance 937SX -> ector 917LX"));
    assert!(!at(SLOW), "its times have tenths");
}

#[test]
fn the_runs_of_the_checksum_stood_in_blocks() {
    let analysis = analysis("t", CHECKSUM, &["kbyte_per_s"], "checksum", &["path"]);
    assert!(doubts(&analysis, DoubtKind::NotInterleaved)[0].contains("4 of 4"));
    assert!(doubts(&analysis, DoubtKind::SharedFigures).is_empty());
}

#[test]
fn seven_point_four_percent_is_over_the_wrong_base_and_the_sign_at_967sx_is_wrong() {
    let results = claims("experiments/tables/mpeix_tcp_checksum.csv", CHECKSUM, CLAIMS);
    let slow = claim(&results, "917LX to 937SX", "kbyte_per_s");
    assert_eq!(slow.verdict, ClaimVerdict::OtherBase);
    for words in ["-7.4 % is over 737.63", "it is -6.9 % over 792.53", "prints 737.62"] {
        assert!(slow.explanation.contains(words), "{}", slow.explanation);
    }
    let fast = claim(&results, "967SX to 959-200", "kbyte_per_s");
    assert_eq!(fast.verdict, ClaimVerdict::WrongSign);
    assert!(fast.explanation.contains("+0.1 %"), "{}", fast.explanation);
    let verdict = |says, metric| claim(&results, says, metric).verdict;
    assert_eq!(verdict("917LX to 937SX", "elapsed_s"), ClaimVerdict::Agrees);
    assert_eq!(verdict("937SX to 917LX", "kbyte_per_s"), ClaimVerdict::Agrees);
    // −6.9 % is −7 % to the digits of that sentence.
    assert_eq!(verdict("range of 7-8 percent", "kbyte_per_s"), ClaimVerdict::Agrees);
}

#[test]
fn swapping_the_two_sides_of_a_claim_changes_its_verdict() {
    let swapped = CLAIMS.replace("a = \"off\"\nb = \"on\"", "a = \"on\"\nb = \"off\"");
    let [right, wrong] =
        [CLAIMS, &swapped].map(|text| claims("mpeix_tcp_checksum.csv", CHECKSUM, text));
    let mut agreed = 0;
    for (right, wrong) in right.iter().zip(&wrong) {
        // No difference is none, whichever side comes first.
        if right.verdict == ClaimVerdict::Agrees && right.rows[0].figure != 0.0 {
            agreed += 1;
            assert_ne!(wrong.verdict, ClaimVerdict::Agrees, "{}", right.says);
        }
    }
    assert!(agreed >= 6, "{agreed} agree");
}

#[test]
fn the_ratio_of_the_receive_window_goes_from_0_80_at_600_bytes_to_1_95_at_9100() {
    let analysis = analysis("t", WINDOW, &["kbyte_per_s"], "treatment", &["buffer_bytes"]);
    let at = |size: &str| contrast(&analysis, "kbyte_per_s", &[size], "with_fix");
    assert_eq!(format!("{:.2}", at("600").ratio.unwrap()), "0.80");
    assert_eq!(format!("{:.2}", at("9100").ratio.unwrap()), "1.95");
    for contrast in analysis.groups.iter().flat_map(|group| &group.comparisons) {
        assert!(contrast.shows[0].starts_with("one run each"));
        assert_eq!(contrast.interval_percent, None);
    }
    let overall = &analysis.overall[0];
    assert_eq!((overall.groups, overall.smaller), (19, 1));
    assert_eq!(overall.largest.settings[0].value, "9100");
}

#[test]
fn a_clock_of_one_second_can_make_the_ratio_at_600_bytes_and_not_at_9100() {
    let analysis = analysis("t", WINDOW, &["kbyte_per_s"], "treatment", &["buffer_bytes"]);
    let clock = |size: &str| {
        contrast(&analysis, "kbyte_per_s", &[size], "with_fix")
            .ratio_by_clock
            .expect("a clock of whole seconds")
    };
    // 4 s and 5 s: 3/6 to 5/4. 39 s and 20 s: 38/21 to 40/19.
    let [low, high] = clock("600");
    assert!((low - 0.5).abs() < 1e-12 && (high - 1.25).abs() < 1e-12);
    let [low, high] = clock("9100");
    assert!((low - 38.0 / 21.0).abs() < 1e-12 && (high - 40.0 / 19.0).abs() < 1e-12);
    assert!(doubts(&analysis, DoubtKind::WholeSeconds)[0].contains("`elapsed_s`"));
}

#[test]
fn sizes_that_are_mixed_within_the_levels_are_said() {
    let mixed = analysis("t", WINDOW, &["kbyte_per_s"], "treatment", &[]);
    assert!(doubts(&mixed, DoubtKind::MixedSettings)[0].contains("--by buffer_bytes"));
    let sorted = analysis("t", WINDOW, &["kbyte_per_s"], "treatment", &["buffer_bytes"]);
    assert!(doubts(&sorted, DoubtKind::MixedSettings).is_empty());
}

#[test]
fn ipqos_is_not_within_its_own_summary() {
    let results = claims("hpux_ipqos.csv", IPQOS, CLAIMS);
    for (metric, words) in [
        ("service_demand_us_per_kib", "+173.5 at interface 100BaseT, message_bytes 32"),
        ("mbit_per_s", "-17.0 % at interface 1000BaseT, message_bytes 1024"),
    ] {
        let result = results.iter().find(|claim| claim.metric == metric).expect("a claim of it");
        assert_eq!(result.verdict, ClaimVerdict::Disagrees);
        assert_eq!(result.rows.len(), 14);
        assert!(result.explanation.contains(words), "{}", result.explanation);
    }
    let points = results
        .iter()
        .find(|claim| claim.metric == "cpu_utilisation_percent" && claim.unit == Unit::Difference)
        .expect("a claim of points");
    let falls = points.rows.iter().min_by(|a, b| a.figure.total_cmp(&b.figure)).expect("rows");
    assert_eq!(format!("{:.1}", falls.figure), "-1.6");
    assert_eq!(falls.settings[1].value, "128");
}

#[test]
fn two_rows_of_ipqos_at_64_bytes_share_two_figures() {
    let analysis =
        analysis("t", IPQOS, &["mbit_per_s"], "treatment", &["interface", "message_bytes"]);
    let shared = doubts(&analysis, DoubtKind::SharedFigures);
    assert_eq!(shared.len(), 1);
    assert!(
        shared[0].contains("mbit_per_s 54.92")
            && shared[0].contains("service_demand_us_per_kib 220.909")
    );
    assert!(shared[0].contains("line 17 and line 38"), "{}", shared[0]);
    assert!(doubts(&analysis, DoubtKind::WholeSeconds).is_empty());
}

#[test]
fn each_level_is_compared_with_the_first_or_the_one_asked_for() {
    let all = analysis("t", IPQOS, &["mbit_per_s"], "treatment", &["interface", "message_bytes"]);
    assert!(all.groups.iter().all(|group| group.comparisons.len() == 2));
    let options = Options {
        metrics: names(&["mbit_per_s"]),
        factor: Some("treatment".to_owned()),
        by: names(&["interface", "message_bytes"]),
        a: Some("pass_through".to_owned()),
        b: Some("simple_filter".to_owned()),
        ..Options::default()
    };
    let two = analyze(&table("t", IPQOS), &options).unwrap();
    let group = &two.groups[0];
    assert_eq!(group.comparisons.len(), 1);
    assert_eq!(
        (group.comparisons[0].a.as_str(), group.comparisons[0].b.as_str()),
        ("pass_through", "simple_filter")
    );
}

#[test]
fn the_columns_of_aai_explain_the_rows_that_their_ceilings_fit() {
    let options = Options { framing: Some(Framing::Aal5), ..Options::default() };
    let analysis = analyze(&table("t", AAI), &options).unwrap();
    let row = |line: usize| {
        let name = format!("line {line}");
        analysis.ceilings.iter().find(|row| row.row == name).expect("a row with ceilings")
    };
    // 51,200 bytes over 29 ms are 14.1 Mbit/s, as the report says; the pacing lets 10 through.
    let window = row(2).ceilings.iter().find(|ceiling| ceiling.cause == Cause::ReceiveWindow);
    assert!((window.expect("a window").limit_bps / 1e6 - 14.12).abs() < 0.01);
    assert_eq!(row(2).explained_by, Cause::Unexplained, "1.5 is far from both");
    // 2.2 of the 2.05 Mbit/s that 0.76 % of loss leaves segments of 512 bytes.
    let lossy = analysis.ceilings.iter().find(|row| row.explained_by == Cause::Congestion);
    assert!((lossy.expect("a row with loss").ceilings[0].limit_bps / 1e6 - 2.05).abs() < 0.01);
    // With small segments the pacing of 25 Mbit/s of cells carries less than was measured.
    let above = doubts(&analysis, DoubtKind::AboveCeiling);
    assert!(above[0].contains("by pacing"), "{above:?}");
    assert!(!above[0].contains("by congestion"), "a model is no bound: {above:?}");
    // Two sites with the same window and round-trip time were not copied.
    assert!(doubts(&analysis, DoubtKind::SharedFigures).is_empty());
}

#[test]
fn columns_and_levels_that_there_are_not_are_refused_with_those_that_there_are() {
    let refusal = |options: Options| analyze(&table("t", CHECKSUM), &options).unwrap_err();
    let metric = |name: &str| Options { metrics: names(&[name]), ..Options::default() };
    assert!(refusal(metric("kbytes_per_s")).to_string().contains("did you mean `kbyte_per_s`?"));
    let not_a_number = refusal(metric("path")).to_string();
    assert!(not_a_number.contains(": line 2: `"), "{not_a_number}");
    assert!(not_a_number.ends_with("is not a number"), "{not_a_number}");
    let level = |a: &str, b: Option<&str>, factor: &str| {
        refusal(Options {
            factor: (!factor.is_empty()).then(|| factor.to_owned()),
            a: Some(a.to_owned()),
            b: b.map(str::to_owned),
            ..metric("kbyte_per_s")
        })
        .to_string()
    };
    assert!(level("of", None, "checksum").contains("did you mean `off`?"));
    assert!(level("off", Some("off"), "checksum").contains("both `off`"));
    assert!(level("off", None, "").contains("--factor"));
    assert!(level("1408", None, "message_bytes").contains("is `1408` in every row"));
}

#[test]
fn the_order_of_files_and_rows_does_not_change_a_figure() {
    let forward = analysis("t", CHECKSUM, &["kbyte_per_s"], "checksum", &["path"]);
    let (header, rows) = CHECKSUM.split_once('\n').unwrap();
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.reverse();
    let text = format!("{header}\n{}\n", rows.join("\n"));
    let backward = analysis("t", &text, &["kbyte_per_s"], "checksum", &["path"]);
    let one = contrast(&forward, "kbyte_per_s", &[SLOW], "on");
    let other = contrast(&backward, "kbyte_per_s", &[SLOW], "off");
    assert!((one.ratio.unwrap() * other.ratio.unwrap() - 1.0).abs() < 1e-12);
    let mirrored =
        (1.0 + one.effect_percent.unwrap() / 100.0) * (1.0 + other.effect_percent.unwrap() / 100.0);
    assert!((mirrored - 1.0).abs() < 1e-9);
}

/// Twenty runs of two levels: `b`'s are what `figure` makes of the number of the run.
fn twenty_runs(figure: impl Fn(u32) -> f64) -> Analysis {
    let mut text = "side,mbit_per_s\n".to_owned();
    for run in 0..20 {
        let noise = f64::from(run * 7 % 11) / 100.0;
        text.push_str(&format!("a,{}\nb,{}\n", 50.0 + noise, figure(run) + noise));
    }
    analysis("runs.csv", &text, &["mbit_per_s"], "side", &[])
}

#[test]
fn modes_and_a_drift_are_told_in_place_of_a_median_and_said_where_they_are_compared() {
    let modes = twenty_runs(|run| if run % 2 == 0 { 40.0 } else { 90.0 });
    let drift = twenty_runs(|run| 40.0 + f64::from(run));
    for analysis in [&modes, &drift] {
        let [a, b] = &analysis.groups[0].levels[..] else {
            panic!("two levels: {:?}", analysis.groups[0].levels);
        };
        assert!(a.median.is_some() && a.not_one_figure.is_none());
        assert!(b.median.is_none() && b.runs == 20);
        let said = &analysis.groups[0].comparisons[0].shows[0];
        assert!(said.starts_with("the figures under b are not one"), "{said}");
    }
    let of_b = |analysis: &Analysis| analysis.groups[0].levels[1].not_one_figure.clone();
    assert!(matches!(of_b(&modes), Some(Figure::Modes { modes }) if modes.len() == 2));
    assert!(matches!(of_b(&drift), Some(Figure::Drift { from, to, .. }) if from < to));
}

#[test]
fn figures_that_differ_in_their_last_decimal_alone_are_rounded_and_one() {
    let rounded = |step: f64| {
        let mut text = "elapsed_s\n".to_owned();
        for run in [0, 1, 2, 0, 1, 2, 0, 1, 2, 1] {
            text.push_str(&format!("{:.2}\n", 10.0 + step * f64::from(run)));
        }
        let options = Options { metrics: names(&["elapsed_s"]), ..Options::default() };
        let analysis = analyze(&table("t.csv", &text), &options).unwrap();
        analysis.groups[0].levels[0].median.is_some()
    };
    assert!(rounded(0.01));
    assert!(!rounded(0.13));
}

/// Two files of linerate's, each with two runs.
fn of_linerates(document: impl Fn(&str, u32) -> String) -> Analysis {
    let texts = [document("cubic", 1), document("reno", 2)];
    let input =
        |(file, text): (&'static str, _)| Input { file, label: file, bytes: str::as_bytes(text) };
    let inputs =
        ["a.json", "b.json"].into_iter().zip(&texts).map(|(file, text)| input((file, text)));
    let table = read(&inputs.collect::<Vec<_>>()).expect("they are documents");
    analyze(&table, &Options::default()).expect("they have throughputs")
}

#[test]
fn of_linerates_own_runs_what_was_chosen_is_doubted_and_neither_seed_nor_result() {
    let analysis = of_linerates(|congestion, seed| {
        let row = |rate: u32| {
            format!(
                r#"{{"throughput_bps": {rate}e6, "seed": {seed}, "peer": "{seed}", "verdict": {{"cause": "pacing"}},
                    "plan": {{"seed": {seed}, "options": {{"congestion": "{congestion}"}}}},
                    "tcp": {{"mss_bytes": {seed}}}, "environment": {{"lab": {{"links": [{seed}]}}}}}}"#
            )
        };
        format!(r#"{{"schema": "linerate.sweep/1", "rows": [{}, {}]}}"#, row(90), row(91))
    });
    let confounded = analysis.doubts.iter().find(|doubt| doubt.kind == DoubtKind::Confounded);
    let message = &confounded.expect("the congestion control changed").message;
    assert!(message.starts_with("`plan.options.congestion` changes"), "{message}");
    assert_eq!(analysis.ceilings[3].row, "b.json row 2");
    assert!(analysis.ceilings.iter().all(|row| row.explained_by == Cause::Pacing));
}

#[test]
fn a_comparisons_own_verdict_is_told_and_its_a_is_compared_with() {
    let pair =
        r#"{"pair": 1, "first": "b", "a": {"throughput_bps": 1e6}, "b": {"throughput_bps": 2e6}}"#;
    let text = format!(
        r#"{{"schema": "linerate.comparison/1", "verdict": "DIFFERENT", "a": "mss=536", "b": "mss=1448", "runs": [{pair}, {pair}]}}"#
    );
    let analysis =
        analyze(&table("c.json", &text), &Options::default()).expect("it has throughputs");
    let contrast = &analysis.groups[0].comparisons[0];
    assert_eq!((contrast.a.as_str(), contrast.b.as_str()), ("a", "b"));
    assert!(analysis.notes[0].contains("DIFFERENT"), "{:?}", analysis.notes);
    assert!(analysis.doubts.iter().all(|doubt| doubt.kind != DoubtKind::Confounded));
}
