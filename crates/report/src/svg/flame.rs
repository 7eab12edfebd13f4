//! A flame graph (Gregg, *The Flame Graph*, CACM 59(6), 2016): width is CPU time, height the depth
//! of the call chain.
//!
//! Both ends stand side by side on one root. A frame has the colour of the layer that most of the
//! time above it belongs to. Names are in alphabetical order, since a flame graph has no time axis.
//! A click zooms to a frame or highlights a layer, `/` searches names (`flame.js`).

use std::collections::BTreeMap;
use std::fmt::Write;

use linerate_core::profile::attribution::{Role, path_from_root};
use linerate_core::profile::{Layer, ProfileDocument};

use super::escaped;

/// Draws the stacks of both ends' own work. Samples are integers, so that the picture is the same
/// on every machine. Viewers without scripts show it without zoom and search.
pub fn flame_graph(document: &ProfileDocument) -> String {
    let buttons = "<text id=\"reset\" class=\"button\" x=\"1000\" y=\"20\">[whole picture]</text>\
         <text id=\"search\" class=\"button\" x=\"1120\" y=\"20\">[search]</text>\n";
    let script = format!("<script><![CDATA[\n{SCRIPT}]]></script>\n");
    drawn(document, buttons, &script)
}

/// Draws the flame graph for a page without scripts.
pub(crate) fn flame_picture(document: &ProfileDocument) -> String {
    drawn(document, "", "").replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}

fn drawn(document: &ProfileDocument, buttons: &str, script: &str) -> String {
    let root = tree(document);
    let levels = root.levels();
    let ground = TOP + levels * FRAME;
    let height = ground + LEGEND;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <style>{STYLE}</style>\n{}\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"20\" font-size=\"14\">{}</text>\n\
         {buttons}<text id=\"status\" x=\"{MARGIN}\" y=\"{}\"></text>\n",
        hatches(),
        escaped(&title(document)),
        height - 6,
    );
    let mut canvas = Canvas { svg: &mut svg, all: root.samples, ground };
    canvas.frame(&root, "both ends", 0, 0);
    legend(&mut svg, &root, height);
    svg + script + "</svg>\n"
}

const STYLE: &str = "g.frame,g.layer,.button{cursor:pointer} g.below{opacity:.5} \
    .searched g.frame{opacity:.3} .searched g.marked{opacity:1} g.marked rect{stroke:#000}";
const SCRIPT: &str = include_str!("flame.js");

/// Pixels.
const WIDTH: usize = 1200;
const MARGIN: usize = 10;
const TOP: usize = 32;
const FRAME: usize = 16;
const LEGEND: usize = 60;
/// Frames narrower than this are left out, tenths of a pixel.
const NARROWEST: u64 = 2;
/// Width of a letter, tenths of a pixel.
const LETTER: u64 = 67;

fn title(document: &ProfileDocument) -> String {
    let record = &document.record;
    let rate = record.throughput_bps().unwrap_or(0.0) / 1e6;
    format!("CPU time of a transfer to {} ({}): {rate:.0} Mbit/s", record.host, record.peer)
}

#[derive(Default)]
struct FlameNode {
    children: BTreeMap<String, FlameNode>,
    samples: u64,
    layers: BTreeMap<Layer, u64>,
}

impl FlameNode {
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

    /// The layer with most samples; of two with as many, the first in their order.
    fn layer(&self) -> Layer {
        let layers = self.layers.iter().rev();
        let most = layers.max_by_key(|&(_, &samples)| samples);
        most.map_or(Layer::Unattributed, |(&layer, _)| layer)
    }
}

fn tree(document: &ProfileDocument) -> FlameNode {
    let mut root = FlameNode::default();
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
    /// Samples of the root, which has the full width.
    all: u64,
    /// Bottom edge of the root, pixels from the top.
    ground: usize,
}

impl Canvas<'_> {
    /// Draws a frame, `before` samples from the left, and the frames above it.
    fn frame(&mut self, node: &FlameNode, name: &str, before: u64, depth: usize) {
        let [left, right] = [before, before + node.samples].map(|at| self.tenths(at));
        let width = right - left;
        if width < NARROWEST {
            return;
        }
        let y = self.ground - (depth + 1) * FRAME;
        let percent = node.samples as f64 / self.all as f64 * 100.0;
        let layer = layer_name(node.layer());
        let name = escaped(name);
        let _ = writeln!(
            self.svg,
            "<g class=\"frame\" data-name=\"{name}\" data-layer=\"{layer}\" data-begin=\"{before}\" data-samples=\"{samples}\" \
             data-depth=\"{depth}\"><title>{name}: {samples} samples, {percent:.2} %, mostly {layer}</title>\
             <rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text></g>",
            Tenths(left),
            Tenths(width),
            FRAME - 1,
            fill(node.layer()),
            Tenths(left + 20),
            y + FRAME - 4,
            label(&name, width).unwrap_or_default(),
            samples = node.samples,
        );
        let mut before = before;
        for (name, child) in &node.children {
            self.frame(child, name, before, depth + 1);
            before += child.samples;
        }
    }

    /// Horizontal position of a number of samples, tenths of a pixel.
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

/// As much of an escaped name as fits. A name with escaped markup is not cut, but left out where it
/// does not fit.
fn label(name: &str, width: u64) -> Option<String> {
    let room = (width.saturating_sub(30) / LETTER) as usize;
    let letters = name.chars().count();
    if letters <= room {
        return Some(name.to_owned());
    }
    (room >= 4 && !name.contains('&'))
        .then(|| name.chars().take(room - 2).chain("..".chars()).collect())
}

/// Draws the layers that occur, each with its colour.
fn legend(svg: &mut String, root: &FlameNode, height: usize) {
    let layers = Layer::ALL.iter();
    let present = layers.filter(|layer| root.layers.contains_key(layer));
    for (at, &layer) in present.enumerate() {
        let x = MARGIN + at % PER_LINE * (WIDTH - 2 * MARGIN) / PER_LINE;
        let y = height - LEGEND + 14 + at / PER_LINE * 18;
        let name = layer_name(layer);
        let _ = writeln!(
            svg,
            "<g class=\"layer\" data-layer=\"{name}\"><rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{y}\">{name}</text></g>",
            y - 9,
            fill(layer),
            x + 14,
        );
    }
}

const PER_LINE: usize = 7;

/// Fill of a layer: plain or hatched.
fn fill(layer: Layer) -> String {
    match colour(layer) {
        (colour, false) => colour.to_owned(),
        (colour, true) => format!("url(#h{})", &colour[1..]),
    }
}

/// Patterns of the hatched layers.
fn hatches() -> String {
    let mut patterns = "<defs>".to_owned();
    let colours = Layer::ALL.map(colour).into_iter();
    for (colour, _) in colours.filter(|(_, hatched)| *hatched) {
        let _ = write!(
            patterns,
            "<pattern id=\"h{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" height=\"6\" \
             fill=\"{colour}\"/><path d=\"M0 6L6 0\" stroke=\"#fff\" stroke-width=\"2\"/></pattern>",
            &colour[1..]
        );
    }
    patterns + "</defs>\n"
}

/// A layer's colour, and whether it is hatched. The colours are those of Okabe and Ito ("Color
/// Universal Design", 2008) and two more, light enough for black letters. People with any kind of
/// colour blindness can tell them apart; layers of one colour differ by the hatching.
fn colour(layer: Layer) -> (&'static str, bool) {
    match layer {
        Layer::Application => ("#cc79a7", false),
        Layer::Socket => ("#e69f00", false),
        Layer::Copy => ("#d55e00", false),
        Layer::Checksum => ("#d55e00", true),
        Layer::PacketMemory => ("#f0e442", false),
        Layer::Offload => ("#f0e442", true),
        Layer::Tcp => ("#009e73", false),
        Layer::Udp => ("#009e73", true),
        Layer::Ip => ("#56b4e9", false),
        Layer::Queueing => ("#56b4e9", true),
        Layer::Driver => ("#5b86e5", false),
        Layer::Scheduling => ("#d9d9d9", false),
        Layer::Idle => ("#d9d9d9", true),
        Layer::Unattributed => ("#cc79a7", true),
    }
}

/// A layer's name in tables and pictures.
pub(crate) fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Application => "application",
        Layer::Socket => "system call, socket",
        Layer::Copy => "copy",
        Layer::PacketMemory => "packet memory",
        Layer::Tcp => "TCP",
        Layer::Udp => "UDP",
        Layer::Ip => "IP",
        Layer::Checksum => "checksum",
        Layer::Offload => "GSO, GRO",
        Layer::Queueing => "queueing",
        Layer::Driver => "driver",
        Layer::Scheduling => "scheduling",
        Layer::Unattributed => "unattributed",
        Layer::Idle => "idle, of the host",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_room_or_are_cut() {
        assert_eq!(label("tcp_ack", 600).as_deref(), Some("tcp_ack"));
        assert_eq!(label("tcp_sendmsg_locked", 600).as_deref(), Some("tcp_se.."));
        assert_eq!(label("tcp_ack", 100), None);
        assert_eq!(label("&lt;Vec as long&gt;::name", 600), None);
    }

    /// Light of the three primaries, linear (IEC 61966-2-1).
    fn light(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let part = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// CIE 1976 L*a*b*.
    fn lab(light: [f64; 3]) -> [f64; 3] {
        let root = |part: f64| {
            if part > 0.008_856 { part.cbrt() } else { 7.787 * part + 16.0 / 116.0 }
        };
        let x = root(dot([0.4124, 0.3576, 0.1805], light) / 0.9505);
        let y = root(dot([0.2126, 0.7152, 0.0722], light));
        let z = root(dot([0.0193, 0.1192, 0.9505], light) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn layers_are_told_apart_whichever_cone_an_eye_lacks() {
        // Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009: severity 1.
        let eyes = [
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ];
        for eye in eyes {
            let seen = |layer| lab(eye.map(|row| dot(row, light(colour(layer).0))));
            for (at, &one) in Layer::ALL.iter().enumerate() {
                for &other in &Layer::ALL[at + 1..] {
                    if colour(one).1 != colour(other).1 {
                        continue;
                    }
                    let apart = seen(one)
                        .into_iter()
                        .zip(seen(other))
                        .map(|(a, b)| (a - b).powi(2))
                        .sum::<f64>()
                        .sqrt();
                    // A difference of 2.3 is just noticed.
                    assert!(apart > 15.0, "{one:?} and {other:?}: {apart}");
                }
            }
        }
    }

    #[test]
    fn lengths_are_tenths_of_a_pixel() {
        assert_eq!(Tenths(1205).to_string(), "120.5");
        assert_eq!(Tenths(3).to_string(), "0.3");
    }
}
