//! Sites against sites: a heat map.

use std::fmt::Write;

use linerate_mesh::MatrixDocument;

use crate::number::{plural, rate};
use crate::svg::{Body, Chart, escaped};

/// Heat map of the rate from each site to each other: darker is faster. Empty for more sites than a
/// picture can show.
pub(crate) fn matrix(document: &MatrixDocument) -> Vec<Chart> {
    let sites = document.sites.len();
    let rates = document.cells.iter().filter_map(|cell| cell.throughput_bps);
    let most = rates.fold(0.0, f64::max);
    if sites > MOST_SITES || most <= 0.0 {
        return Vec::new();
    }
    let slowest = document.slowest();
    let worst = slowest.first().map_or_else(String::new, |cell| {
        let (from, to) = (document.name(cell.from), document.name(cell.to));
        let least = rate(cell.throughput_bps.unwrap_or(0.0));
        format!("; the slowest is {from} to {to}, {least}")
    });
    let pairs = plural(slowest.len() as u64, "pair");
    let most_of_all = rate(most);
    let says = format!("Rows send, columns receive: {pairs} up to {most_of_all}{worst}.");
    let title = format!("{} between the sites", document.test);
    let picture = Body::Picture(drawn(document, most));
    vec![Chart::new("matrix", title, says, picture)]
}

fn drawn(document: &MatrixDocument, most: f64) -> String {
    let sites = document.sites.len() as f64;
    let letters = document.sites.iter().map(|site| site.name.chars().count());
    let label = 7.0 * letters.max().unwrap_or(0).min(MOST_LETTERS) as f64 + 12.0;
    let side = label + sites * CELL;
    let mut svg = format!(
        "<svg class=\"chart\" width=\"{side:.0}\" height=\"{side:.0}\" viewBox=\"0 0 {side:.0} {side:.0}\">\
         <desc></desc>"
    );
    for (place, site) in document.sites.iter().enumerate() {
        let name: String = site.name.chars().take(MOST_LETTERS).collect();
        let (name, at) = (escaped(&name), label + (place as f64 + 0.5) * CELL + 4.0);
        let x = label - 6.0;
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{at:.1}\" class=\"end\">{name}</text>\
             <text transform=\"translate({at:.1} {x:.1}) rotate(-90)\">{name}</text>"
        );
    }
    for cell in &document.cells {
        let Some(bps) = cell.throughput_bps else {
            continue;
        };
        let at = |place: u32| label + f64::from(place) * CELL + 1.0;
        let (x, y, size) = (at(cell.to), at(cell.from), CELL - 2.0);
        let opacity = 0.12 + 0.88 * (bps / most).clamp(0.0, 1.0);
        let (from, to) = (document.name(cell.from), document.name(cell.to));
        let tip = escaped(&format!("{from} to {to}: {}", rate(bps)));
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{size}\" height=\"{size}\" class=\"f0\" \
             opacity=\"{opacity:.2}\"><title>{tip}</title></rect>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Width and height of a cell, pixels.
const CELL: f64 = 18.0;
/// With more sites there is no picture.
const MOST_SITES: usize = 60;
/// A site's name is cut to this many characters.
const MOST_LETTERS: usize = 16;
