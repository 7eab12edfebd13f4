//! Draws panels one below the other over a common x axis.

use std::fmt::Write;

use super::chart::{Mark, Panel, Plot, Series, Unit};
use super::scale::Scale;
use super::{escaped, path, text};

/// Pixels.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const LINE: f64 = 18.0;
/// Distance from a panel's title to its top.
const HEAD: f64 = 11.0;
const FIRST: f64 = 180.0;
const FURTHER: f64 = 96.0;
const GAP: f64 = 14.0;
const FOOT: f64 = 40.0;
/// Approximate width of a letter of 12 px.
pub(super) const LETTER: f64 = 6.6;

impl Plot {
    /// Draws the plot and returns its height.
    pub(super) fn draw(&self, svg: &mut String, width: f64) -> f64 {
        let points = self.panels.iter().flat_map(|panel| &panel.series);
        let xs = points.flat_map(|series| series.points.iter().map(|point| point[0]));
        let mut x = Scale::new(xs.clone(), self.log, [LEFT, width - RIGHT]);
        let most = (width / 90.0) as usize;
        let (one, unit) = self.x_unit.scale(if self.log { x.low } else { x.high });
        let ticks = if self.x_unit == Unit::Moment {
            x = x.close(xs);
            x.dates(most)
        } else {
            x.ticks(most, one)
        };
        let mut top = 0.0;
        for (number, panel) in self.panels.iter().enumerate() {
            let height = if number == 0 { FIRST } else { FURTHER };
            top = panel.head(svg, top, width);
            for (value, _) in &ticks {
                let at = x.at(*value);
                let end = top + height;
                path(svg, "grid", format_args!("M{at:.1} {top:.1}V{end:.1}"));
            }
            panel.draw(svg, &x, [top, top + height]);
            top += height + GAP;
        }
        top -= GAP;
        for (value, words) in &ticks {
            text(svg, [x.at(*value), top + 16.0], "mid dim", words);
        }
        let middle = (LEFT + width - RIGHT) / 2.0;
        text(svg, [middle, top + 34.0], "mid", &named(self.x, unit));
        top + FOOT
    }
}

/// Title of an axis, such as `Goodput, Mbit/s`.
fn named(what: &str, unit: &str) -> String {
    if unit.is_empty() { what.to_owned() } else { format!("{what}, {unit}") }
}

impl Panel {
    fn unit(&self) -> (f64, &'static str) {
        let values = self.values().filter(|value| value.is_finite());
        self.unit.scale(values.fold(0.0, f64::max))
    }

    /// Draws the title of y and, for several series, the legend; returns the top of the panel.
    fn head(&self, svg: &mut String, top: f64, width: f64) -> f64 {
        let title = named(self.y, self.unit().1);
        let mut y = top + LINE - 4.0;
        text(svg, [2.0, y], "strong", &title);
        if self.series.len() < 2 {
            return y + HEAD;
        }
        let mut x = 20.0 + title.chars().count() as f64 * LETTER * 1.1;
        for series in &self.series {
            let room = 26.0 + series.name.chars().count() as f64 * LETTER;
            if x + room > width && x > 2.0 {
                (x, y) = (2.0, y + LINE);
            }
            series.key(svg, x, y - 4.0);
            text(svg, [x + 22.0, y], "", &series.name);
            x += room + 14.0;
        }
        y + HEAD
    }

    fn draw(&self, svg: &mut String, x: &Scale, [top, ground]: [f64; 2]) {
        let (one, _) = self.unit();
        let most = ((ground - top) / 32.0) as usize;
        let mut y = Scale::new(self.values(), false, [ground, top]);
        if self.close {
            y = y.close(self.values());
        }
        let y = y.rounded(most, one);
        let [left, right] = x.pixels;
        for (value, words) in y.ticks(most, one) {
            let at = y.at(value);
            let class = if value == 0.0 { "axis" } else { "grid" };
            path(svg, class, format_args!("M{left:.1} {at:.1}H{right:.1}"));
            text(svg, [left - 6.0, at + 4.0], "end dim", &words);
        }
        if let Some([low, high]) = self.band {
            let (from, to) = (y.at(high), y.at(low));
            let _ = write!(
                svg,
                "<rect class=\"band\" x=\"{left:.1}\" y=\"{from:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                right - left,
                (to - from).max(1.0)
            );
        }
        for series in &self.series {
            series.draw(svg, x, &y);
        }
        for (level, words) in &self.levels {
            let at = y.at(*level);
            let above = if at - top < 16.0 { at + 14.0 } else { at - 5.0 };
            path(svg, "level", format_args!("M{left:.1} {at:.1}H{right:.1}"));
            text(svg, [right - 2.0, above], "end halo", words);
        }
    }
}

impl Series {
    fn class(&self) -> String {
        let is_dashed = self.mark == Mark::Dashed;
        let dash = if is_dashed { " dash" } else { "" };
        format!("s{}{dash}", self.colour % COLOURS)
    }

    /// Draws the series' mark in the legend.
    fn key(&self, svg: &mut String, x: f64, y: f64) {
        match self.mark {
            Mark::Line | Mark::Dashed | Mark::Stems => {
                path(svg, &self.class(), format_args!("M{x:.1} {y:.1}h17"));
            }
            Mark::Dots | Mark::Rings | Mark::Points => svg.push_str(&self.dot(x + 9.0, y)),
        }
    }

    fn dot(&self, x: f64, y: f64) -> String {
        let colour = self.colour % COLOURS;
        let class = match self.mark {
            Mark::Rings => format!("ring s{colour}"),
            _ => format!("f{colour}"),
        };
        format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>")
    }

    fn draw(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let places = self.points.iter().map(|point| (x.at(point[0]), y.at(point[1])));
        match self.mark {
            Mark::Dots | Mark::Rings => places.for_each(|(x, y)| svg.push_str(&self.dot(x, y))),
            Mark::Line | Mark::Dashed => {
                let ends = std::iter::once('M').chain(std::iter::repeat('L')).zip(places);
                let line: String = ends.map(|(to, (x, y))| format!("{to}{x:.1} {y:.1}")).collect();
                path(svg, &self.class(), format_args!("{line}"));
            }
            // One path for all points, however many: lines of zero length with round ends.
            Mark::Points => {
                let are_many = self.points.len() > MANY;
                let many = if are_many { " many" } else { "" };
                let dots: String = places.map(|(x, y)| format!("M{x:.1} {y:.1}h0")).collect();
                path(svg, &format!("{} points{many}", self.class()), format_args!("{dots}"));
            }
            Mark::Stems => {
                let ground = y.at(0.0);
                let above = places.filter(|(_, y)| *y < ground);
                let stems: String =
                    above.map(|(x, y)| format!("M{x:.1} {ground:.1}V{y:.1}")).collect();
                path(svg, &format!("{} stem", self.class()), format_args!("{stems}"));
            }
        }
    }
}

/// A line of values without axes. `says` describes it for readers who cannot see it.
pub(crate) fn spark(values: &[f64], says: &str) -> String {
    const PIXELS: [f64; 2] = [120.0, 28.0];
    let [width, height] = PIXELS;
    let points = (0..).zip(values).map(|(at, value)| [f64::from(at), *value]);
    let series = Series::new("", Mark::Line, 0, points);
    let of =
        |axis: usize, pixels| Scale::new(series.points.iter().map(|at| at[axis]), false, pixels);
    let (x, y) = (of(0, [2.0, width - 2.0]), of(1, [height - 2.0, 2.0]));
    let mut drawing = String::new();
    series.draw(&mut drawing, &x, &y);
    let says = escaped(says);
    format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"{says}\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">{drawing}</svg>"
    )
}

/// With more points than these, dots are smaller.
const MANY: usize = 2000;
/// Number of colours that a series can have; see [`super::STYLE`].
const COLOURS: usize = 6;
