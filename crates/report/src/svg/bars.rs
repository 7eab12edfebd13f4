//! Draws charts with a bar in each row.

use std::fmt::Write;

use super::chart::{Bar, Bars, Fill};
use super::plot::LETTER;
use super::scale::Scale;
use super::{escaped, path, text};

/// Pixels.
const BAR: f64 = 16.0;
const ROW: f64 = 28.0;
const LINE: f64 = 17.0;
const FOOT: f64 = 38.0;
const RIGHT: f64 = 16.0;
/// In pictures narrower than this, a row's label stands above its bar.
const NARROW: f64 = 500.0;
/// Factor for the width of bold letters.
const BOLD: f64 = 1.15;
const WIDEST_LABEL: f64 = 240.0;
/// Space for the value behind the longest bar.
const VALUE: f64 = 92.0;

/// Layout of the rows.
struct BarRows {
    x: Scale,
    /// Height of the labels above the bars.
    above: f64,
    top: f64,
    /// Right edge of the picture.
    right: f64,
}

impl Bars {
    /// Draws the chart and returns its height.
    pub(super) fn draw(&self, svg: &mut String, width: f64) -> f64 {
        let is_narrow = width < NARROW;
        let longest = self.rows.iter().map(|row| row.label.chars().count()).max();
        let label = (longest.unwrap_or(0) as f64 * LETTER * BOLD + 14.0).min(WIDEST_LABEL);
        let left = if is_narrow { 4.0 } else { label };
        let levels = self.levels.iter().map(|(level, _)| *level);
        let values = self.rows.iter().flat_map(Bar::values).chain(levels);
        let scale = Scale::new(values, false, [left, width - RIGHT - VALUE]);
        let mut scale = match self.end {
            Some(end) => Scale { high: end, pixels: [left, width - RIGHT], ..scale },
            None => scale,
        };
        let (one, unit) = self.unit.scale(scale.high);
        if self.end.is_none() {
            scale = scale.rounded(5, one);
        }
        let above = if is_narrow { LINE } else { 0.0 };
        let top = 4.0 + LINE * self.levels.len() as f64;
        let ground = top + self.rows.len() as f64 * (ROW + above);
        let rows = BarRows { x: scale, above, top, right: width };
        rows.axis(svg, ground, ((width - left) / 90.0) as usize, one);
        for (number, row) in self.rows.iter().enumerate() {
            rows.row(svg, number, row, self);
        }
        for (number, (level, words)) in self.levels.iter().enumerate() {
            rows.level(svg, number, *level, words, ground, width);
        }
        let at = (left + width - RIGHT) / 2.0;
        text(svg, [at, ground + 33.0], "mid", unit);
        ground + FOOT
    }
}

impl Bar {
    fn values(&self) -> impl Iterator<Item = f64> {
        let interval = self.interval.into_iter().flatten();
        let values = [self.from, self.value].into_iter();
        values.chain(interval).chain(self.beside)
    }
}

impl BarRows {
    fn axis(&self, svg: &mut String, ground: f64, most: usize, one: f64) {
        for (value, words) in self.x.ticks(most.max(2), one) {
            let (at, top) = (self.x.at(value), self.top);
            let class = if value == 0.0 { "axis" } else { "grid" };
            path(svg, class, format_args!("M{at:.1} {top:.1}V{ground:.1}"));
            text(svg, [at, ground + 16.0], "mid dim", &words);
        }
    }

    /// Draws the label of a row: above its bar, or before it.
    fn label(&self, svg: &mut String, label: &str, strong: &str, top: f64) {
        let (at, class) = match self.above > 0.0 {
            true => ([4.0, top - 4.0], "halo"),
            false => ([self.x.pixels[0] - 8.0, top + BAR / 2.0 + 4.0], "end"),
        };
        text(svg, at, &format!("{class}{strong}"), label);
    }

    fn row(&self, svg: &mut String, number: usize, row: &Bar, bars: &Bars) {
        let top = self.top + number as f64 * (ROW + self.above) + self.above + (ROW - BAR) / 2.0;
        let middle = top + BAR / 2.0;
        let is_accent = row.colour == Fill::Accent;
        let strong = if is_accent { " strong" } else { "" };
        self.label(svg, &row.label, strong, top);
        let is_torn = row.value > self.x.high;
        let (from, to) = (self.x.at(row.from.min(row.value)), self.x.at(row.value));
        let class = match row.colour {
            Fill::Plain => "plain",
            Fill::Accent => "accent",
            Fill::Hollow => "hollow",
        };
        let shape = outline(from, to.max(from + 1.0), top, is_torn);
        let tip = escaped(&row.tip);
        let _ = write!(svg, "<path class=\"{class}\" d=\"{shape}\"><title>{tip}</title></path>");
        let mut end = to;
        if let Some(interval) = row.interval {
            let [low, high] = interval.map(|value| self.x.at(value));
            end = end.max(high);
            let above = middle - 4.0;
            let whisker = format_args!(
                "M{low:.1} {above:.1}v8M{high:.1} {above:.1}v8M{low:.1} {middle:.1}H{high:.1}"
            );
            path(svg, "whisker", whisker);
        }
        if let Some(beside) = row.beside {
            let at = self.x.at(beside);
            end = end.max(at + 5.0);
            path(svg, "beside", format_args!("M{at:.1} {:.1}l6 6l-6 6l-6 -6z", middle - 6.0));
        }
        let note = row.note.clone();
        let value = note.unwrap_or_else(|| bars.unit.write(row.value));
        let room = 7.0 + value.chars().count() as f64 * LETTER;
        let (x, class) = if is_torn {
            (to - 14.0, "end on")
        } else if end + room > self.x.pixels[1].max(self.right) {
            (to - 6.0, "end on")
        } else {
            (end + 7.0, "halo")
        };
        text(svg, [x, middle + 4.0], &format!("{class}{strong}"), &value);
    }

    /// Draws a line through all rows; its label stands above it, on the side with more room.
    fn level(
        &self,
        svg: &mut String,
        number: usize,
        level: f64,
        words: &str,
        ground: f64,
        width: f64,
    ) {
        let (at, y) = (self.x.at(level), LINE * (number as f64 + 1.0) - 3.0);
        let room = words.chars().count() as f64 * LETTER * BOLD;
        let (class, x) =
            if at > width / 2.0 { ("end", (at - 5.0).max(room)) } else { ("", at + 5.0) };
        let dash = if number == 0 { "measured" } else { "level" };
        path(svg, dash, format_args!("M{at:.1} {:.1}V{ground:.1}", y - 10.0));
        text(svg, [x, y], &format!("strong {class}"), words);
    }
}

/// Outline of a bar; a bar that is cut off has a jagged end.
fn outline(from: f64, to: f64, top: f64, is_torn: bool) -> String {
    let end = if is_torn {
        let tooth = BAR / 4.0;
        format!("l-4 {tooth}l4 {tooth}l-4 {tooth}l4 {tooth}")
    } else {
        format!("v{BAR}")
    };
    format!("M{from:.1} {top:.1}H{to:.1}{end}H{from:.1}z")
}
