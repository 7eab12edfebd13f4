//! What is shown of the tests between all sites.

use insta::assert_snapshot;
use linerate_core::record::{Cause, Proof, ProofLevel};
use linerate_mesh::{MatrixCell, MatrixDocument, Mesh, SuspectProof};
use linerate_report::Document;
use linerate_report::document::Charted;
use linerate_report::text::{Form, Style};

/// Site s3 sends slowly; the pair of the last and the first has no result.
pub(crate) fn document(sites: usize) -> MatrixDocument {
    let site = |at: usize| {
        format!("[[site]]\nname = \"s{at}\"\nhost = \"h\"\ngroups = [\"g{}\"]\n", at / 4)
    };
    let file: String = (0..sites).map(site).collect();
    let test = "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\" }\n";
    let mesh = Mesh::from_toml(&format!("{file}{test}"), 7).expect("a mesh of its own making");
    let all = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
    let known = all.filter(|(from, to)| from != to && (*from, *to) != (sites - 1, 0));
    let results = known.map(|(from, to)| {
        let rate = 90e6 + 1e6 * ((7 * from + 3 * to) % 10) as f64;
        let is_slow = from == 3;
        MatrixCell {
            from: from as u32,
            to: to as u32,
            started_at: "2026-11-24T00:00:00Z".to_owned(),
            throughput_bps: Some(if is_slow { rate / 10.0 } else { rate }),
            loss_percent: Some(if is_slow { 1.5 } else { 0.01 }),
            rtt_us: Some(10_000.0 + 100.0 * from as f64),
            cause: Some(if is_slow { Cause::Congestion } else { Cause::PathRate }),
            confidence: Some(0.9),
        }
    });
    MatrixDocument::new(&mesh, 0, "2026-11-24T01:00:00Z", results)
}

#[test]
fn a_few_sites_are_a_matrix() {
    let page = document(10).text(Style::default());
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert_snapshot!(page);
}

#[test]
fn where_there_is_no_throughput_the_matrix_is_of_round_trips() {
    let mut document = document(4);
    document.cells.iter_mut().for_each(|cell| cell.throughput_bps = None);
    let page = document.text(Style::default());
    for words in ["RTT in ms", "median RTT 10.1 ms", "the longest s3 to", "10.2"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn a_proof_stands_below_its_suspect() {
    let mut document = document(10);
    let proof = Proof {
        level: ProofLevel::Likely,
        causes: vec![Cause::Congestion],
        ruled_out: Vec::new(),
        doubt: None,
    };
    let started_at = "2026-11-24T00:10:00Z".to_owned();
    document.suspects[0].proof = Some(SuspectProof { run: 412, started_at, from: 3, to: 5, proof });
    let page = document.text(Style::default());
    let below = "(p below 0.0001)\n    s3 to s5: congestion, likely (2026-11-24 00:10, run 412)\n";
    assert!(page.contains(below), "{page}");
}

#[test]
fn of_many_sites_the_worst_are_shown() {
    let page = document(30).text(Style::default());
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert_snapshot!(page);
}

#[test]
fn it_is_markdown_and_a_picture_too() {
    let document = document(10);
    let form = Form::Markdown;
    let page = document.text(Style { form, ..Style::default() });
    assert!(page.contains("| 4 s3 |") && page.contains("what s3 sends"), "{page}");
    let charts = document.charts();
    let picture = charts[0].inline(700);
    assert!(picture.starts_with("<svg role=\"img\" aria-label=\"Rows send"), "{picture}");
    assert_eq!(picture.matches("<rect").count(), 89);
    assert!(self::document(61).charts().is_empty());
}
