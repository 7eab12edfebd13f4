//! A flame graph (Gregg, *The Flame Graph*, CACM 59(6), 2016): width is CPU time, height the depth
//! of the call chain.
//!
//! Both ends stand beside each other on one root. Colours are not random but the layers': a frame
//! has that of most of the time above it. Names are in alphabetical order, as time has none here.

use std::collections::BTreeMap;
use std::fmt::Write;

use linerate_core::profile::attribution::{Role, path_from_root};
use linerate_core::profile::{Layer, ProfileDocument};

use super::escaped;
use crate::text::layer_name;

/// Draws the stacks that are the ends' own. Whole numbers of samples, so it is the same on every
/// machine.
pub fn flame_graph(document: &ProfileDocument) -> String {
    let root = tree(document);
    let levels = root.levels();
    let height = TOP + levels * FRAME + LEGEND;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"20\" font-size=\"14\">{}</text>\n",
        escaped(&title(document))
    );
    Canvas {
        svg: &mut svg,
        all: root.samples,
        ground: TOP + levels * FRAME,
    }
    .frame(&root, "both ends", 0, 0);
    legend(&mut svg, &root, height);
    svg.push_str("</svg>\n");
    svg
}

/// Pixels.
const WIDTH: usize = 1200;
const MARGIN: usize = 10;
const TOP: usize = 32;
const FRAME: usize = 16;
const LEGEND: usize = 44;
/// Tenths of a pixel: what is narrower is left out.
const NARROWEST: u64 = 2;
/// Tenths of a pixel that a letter takes.
const LETTER: u64 = 67;

fn title(document: &ProfileDocument) -> String {
    let record = &document.record;
    let rate = record.throughput_bps().unwrap_or(0.0) / 1e6;
    format!(
        "CPU time of a transfer to {} ({}): {rate:.0} Mbit/s",
        record.host, record.peer
    )
}

#[derive(Default)]
struct Node {
    children: BTreeMap<String, Node>,
    samples: u64,
    layers: BTreeMap<Layer, u64>,
}

impl Node {
    fn add<'a>(&mut self, mut path: impl Iterator<Item = &'a str>, shares: &[(Layer, u64)]) {
        for &(layer, samples) in shares {
            self.samples += samples;
            *self.layers.entry(layer).or_default() += samples;
        }
        if let Some(next) = path.next() {
            let child = self.children.entry(next.to_owned()).or_default();
            child.add(path, shares);
        }
    }

    fn levels(&self) -> usize {
        1 + self.children.values().map(Self::levels).max().unwrap_or(0)
    }

    /// That of most of its time; of two with as much, the first in their order.
    fn layer(&self) -> Layer {
        let most = self
            .layers
            .iter()
            .rev()
            .max_by_key(|&(_, &samples)| samples);
        most.map_or(Layer::Unattributed, |(&layer, _)| layer)
    }
}

fn tree(document: &ProfileDocument) -> Node {
    let mut root = Node::default();
    for (end, role) in [("sender", Role::Sender), ("receiver", Role::Receiver)] {
        for (stack, attribution) in document.stacks(role) {
            let shares: Vec<_> = attribution.share(stack.count).collect();
            root.add(std::iter::once(end).chain(path_from_root(stack)), &shares);
        }
    }
    root
}

struct Canvas<'a> {
    svg: &'a mut String,
    /// Samples of the root, which takes the whole width.
    all: u64,
    /// Where the root stands, pixels from above.
    ground: usize,
}

impl Canvas<'_> {
    /// A frame and what stands on it, `before` samples from the left.
    fn frame(&mut self, node: &Node, name: &str, before: u64, depth: usize) {
        let [left, right] = [before, before + node.samples].map(|at| self.tenths(at));
        let width = right - left;
        if width < NARROWEST {
            return;
        }
        let y = self.ground - (depth + 1) * FRAME;
        let percent = node.samples as f64 / self.all as f64 * 100.0;
        let layer = layer_name(node.layer());
        let name = escaped(name);
        let _ = write!(
            self.svg,
            "<g><title>{name}: {} samples, {percent:.2} %, mostly {layer}</title><rect x=\"{}\" y=\"{y}\" width=\"{}\" \
             height=\"{}\" fill=\"{}\"/>",
            node.samples,
            Tenths(left),
            Tenths(width),
            FRAME - 1,
            colour(node.layer()),
        );
        if let Some(label) = label(&name, width) {
            let _ = write!(
                self.svg,
                "<text x=\"{}\" y=\"{}\">{label}</text>",
                Tenths(left + 20),
                y + FRAME - 4
            );
        }
        self.svg.push_str("</g>\n");
        let mut before = before;
        for (name, child) in &node.children {
            self.frame(child, name, before, depth + 1);
            before += child.samples;
        }
    }

    /// Where the picture is so many samples from the left, tenths of a pixel.
    fn tenths(&self, samples: u64) -> u64 {
        let room = ((WIDTH - 2 * MARGIN) * 10) as u64;
        let from_left = u128::from(samples) * u128::from(room) / u128::from(self.all.max(1));
        from_left as u64 + (MARGIN * 10) as u64
    }
}

/// A length in tenths of a pixel, as SVG reads it.
struct Tenths(u64);

impl std::fmt::Display for Tenths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

/// As much of an escaped name as there is room for. A name with markup is not cut, but left out
/// where it does not fit.
fn label(name: &str, width: u64) -> Option<String> {
    let room = (width.saturating_sub(30) / LETTER) as usize;
    let letters = name.chars().count();
    if letters <= room {
        return Some(name.to_owned());
    }
    (room >= 4 && !name.contains('&'))
        .then(|| name.chars().take(room - 2).chain("..".chars()).collect())
}

/// The layers that there are, each with its colour.
fn legend(svg: &mut String, root: &Node, height: usize) {
    let present = Layer::ALL
        .iter()
        .filter(|layer| root.layers.contains_key(layer));
    for (at, &layer) in present.enumerate() {
        let x = MARGIN + at % PER_LINE * (WIDTH - 2 * MARGIN) / PER_LINE;
        let y = height - LEGEND + 14 + at / PER_LINE * 18;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"{y}\">{}</text>",
            y - 9,
            colour(layer),
            x + 14,
            layer_name(layer)
        );
    }
}

const PER_LINE: usize = 7;

/// Light enough for black letters.
fn colour(layer: Layer) -> &'static str {
    match layer {
        Layer::Application => "#a6d854",
        Layer::Socket => "#8da0cb",
        Layer::Copy => "#fc8d62",
        Layer::PacketMemory => "#ffd92f",
        Layer::Tcp => "#66c2a5",
        Layer::Udp => "#7fd0c0",
        Layer::Ip => "#9ecae1",
        Layer::Checksum => "#e78ac3",
        Layer::Offload => "#d4b9da",
        Layer::Queueing => "#f4a582",
        Layer::Driver => "#e5c494",
        Layer::Scheduling => "#c7c7c7",
        Layer::Idle => "#f0f0f0",
        Layer::Unattributed => "#ffffff",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_room_or_are_cut() {
        assert_eq!(label("tcp_ack", 600).as_deref(), Some("tcp_ack"));
        assert_eq!(
            label("tcp_sendmsg_locked", 600).as_deref(),
            Some("tcp_se..")
        );
        assert_eq!(label("tcp_ack", 100), None);
        assert_eq!(label("&lt;Vec as long&gt;::name", 600), None);
    }

    #[test]
    fn lengths_are_tenths_of_a_pixel() {
        assert_eq!(Tenths(1205).to_string(), "120.5");
        assert_eq!(Tenths(3).to_string(), "0.3");
    }
}
