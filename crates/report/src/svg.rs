//! Charts as SVG. They load nothing, and the same document always gives the same picture.

mod bars;
mod chart;
mod flame;
mod plot;
mod scale;

use std::fmt::{self, Write};

use linerate_core::units::printable;

pub use chart::Chart;
pub(crate) use chart::{Bar, Bars, Body, Fill, Mark, Panel, Plot, Series, Unit};
pub use flame::flame_graph;
pub(crate) use flame::{flame_picture, layer_name};
pub(crate) use plot::spark;

impl Chart {
    /// The chart as SVG of `width` pixels, for a page that has the charts' style sheet.
    pub fn inline(&self, width: u32) -> String {
        let mut drawing = String::new();
        let width = f64::from(width);
        let height = match &self.body {
            Body::Plot(plot) => plot.draw(&mut drawing, width),
            Body::Bars(bars) => bars.draw(&mut drawing, width),
            Body::Picture(picture) => {
                let named = format!("<svg role=\"img\" aria-label=\"{}\"", escaped(&self.says));
                return picture.replacen("<svg", &named, 1);
            }
        };
        let (title, says) = (escaped(&self.title), escaped(&self.says));
        format!(
            "<svg class=\"chart\" role=\"img\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\"><title>{title}</title><desc>{says}</desc>{drawing}</svg>\n"
        )
    }

    /// The chart as a file of its own. Its colours are written out: few programs but browsers know
    /// variables.
    pub fn svg(&self, width: u32) -> String {
        let named = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
        let ground = "<rect width=\"100%\" height=\"100%\" class=\"ground\"/>";
        let colours = LIGHT.split(';').filter_map(|pair| pair.split_once(':'));
        let style = colours.fold(STYLE.to_owned(), |style, (name, colour)| {
            style.replace(&format!("var({name})"), colour)
        });
        let styled = format!("<style>{style}</style>{ground}");
        let inline = self.inline(width).replacen("<svg", named, 1);
        inline.replacen("</desc>", &format!("</desc>{styled}"), 1)
    }
}

/// Colours on a light background: those of Okabe and Ito ("Color Universal Design", 2008), which
/// people with any kind of colour blindness can tell apart.
pub(crate) const LIGHT: &str = "--ground:#fff;--ink:#1b1f24;--dim:#59636e;--line:#e4e8ec;\
    --c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#b58900;--c5:#56b4e9;--bar:#a9bccd;";
/// Colours on a dark background.
pub(crate) const DARK: &str = "--ground:#15191e;--ink:#e6e9ed;--dim:#9aa5b1;--line:#2b323a;\
    --c0:#56b4e9;--c1:#f0803c;--c2:#2fc79a;--c3:#e09cc3;--c4:#f0e442;--c5:#0f8fd0;--bar:#47596b;";
/// Style sheet of the charts.
pub(crate) const STYLE: &str = "\
    .chart{font:12px system-ui,sans-serif;fill:none}\
    .chart text{fill:var(--ink)}.chart .dim{fill:var(--dim)}.chart .strong{font-weight:600}\
    .chart .mid{text-anchor:middle}.chart .end{text-anchor:end}\
    .chart .halo{paint-order:stroke;stroke:var(--ground);stroke-width:4px;stroke-linejoin:round}\
    .ground{fill:var(--ground)}.grid{stroke:var(--line)}.axis{stroke:var(--dim)}\
    .s0,.s1,.s2,.s3,.s4,.s5{stroke-width:1.8;stroke-linejoin:round}.dash{stroke-dasharray:6 4}\
    .stem{stroke-width:3}.points{stroke-width:5;stroke-linecap:round}.many{stroke-width:2.5;opacity:.5}.ring{fill:var(--ground)}\
    .s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}\
    .s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.f0{fill:var(--c0)}.f1{fill:var(--c1)}\
    .f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}\
    .band{fill:var(--c0);opacity:.16}.level{stroke:var(--dim);stroke-dasharray:5 4}\
    .measured{stroke:var(--ink);stroke-width:2}.plain{fill:var(--bar)}.accent{fill:var(--c1)}\
    .hollow{stroke:var(--bar);stroke-width:1.5;stroke-dasharray:4 3}\
    .whisker{stroke:var(--ink);stroke-width:1.2}.beside{fill:var(--c0);stroke:var(--ground)}";

/// Draws words at a place.
fn text(svg: &mut String, [x, y]: [f64; 2], class: &str, words: &str) {
    let words = escaped(words);
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>");
}

/// Draws a path.
fn path(svg: &mut String, class: &str, along: fmt::Arguments<'_>) {
    let _ = write!(svg, "<path class=\"{class}\" d=\"{along}\"/>");
}

/// Text for XML: markup is escaped, and hidden characters are written out.
pub(crate) fn escaped(text: &str) -> String {
    let text = printable(text);
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML 1.0, section 2.2: neither control characters nor these two may stand in a
            // document at all.
            '\u{fffe}' | '\u{ffff}' => escaped.extend(letter.escape_unicode()),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_breaks_out_of_its_element() {
        assert_eq!(
            escaped("<Vec<T> as \"x\">::f & 'y'\u{1b}\n\u{ffff}"),
            "&lt;Vec&lt;T&gt; as &quot;x&quot;&gt;::f &amp; &#39;y&#39;\\u{1b}\\u{a}\\u{ffff}"
        );
    }
}
