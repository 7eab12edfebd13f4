//! The content of a chart: figures and labels, before anything is drawn.

use crate::number::{BYTES, MICROS, RATES, Scale, bytes, count, digits, micros, percent, rate};

/// A chart, drawn by [`Chart::svg`].
#[derive(Debug, Clone)]
pub struct Chart {
    /// Name for a file of its own: lower-case letters, digits and dashes.
    pub name: String,
    /// The title.
    pub title: String,
    /// Description with the most important figures, for readers who cannot see the picture.
    pub says: String,
    pub(crate) body: Body,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// Figures over a common axis.
    Plot(Plot),
    /// A row for each figure.
    Bars(Bars),
    /// A picture that was drawn elsewhere, wide.
    Picture(String),
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    /// Bits per second.
    Rate,
    /// µs.
    Micros,
    Seconds,
    /// A point in time, seconds since 1970; for axes only.
    Moment,
    Bytes,
    Percent,
    /// A number without a unit.
    Count,
}

/// Panels one below the other, with a common x axis.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    /// Name of the x axis.
    pub(crate) x: &'static str,
    pub(crate) x_unit: Unit,
    /// Whether the x axis is logarithmic.
    pub(crate) log: bool,
    pub(crate) panels: Vec<Panel>,
}

#[derive(Debug, Clone)]
pub(crate) struct Panel {
    /// Name of the y axis.
    pub(crate) y: &'static str,
    pub(crate) unit: Unit,
    pub(crate) series: Vec<Series>,
    /// Horizontal lines with their labels.
    pub(crate) levels: Vec<(f64, String)>,
    /// A shaded range, such as an interval.
    pub(crate) band: Option<[f64; 2]>,
    /// Whether small differences matter, so that the axis need not begin at 0.
    pub(crate) close: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) mark: Mark,
    pub(crate) colour: usize,
    pub(crate) points: Vec<[f64; 2]>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Line,
    /// A line that can be told apart without its colour.
    Dashed,
    Dots,
    /// Hollow dots, for values that do not count.
    Rings,
    /// Small dots, of which there may be thousands.
    Points,
    /// Vertical lines from the axis to each value.
    Stems,
}

/// Rows with a bar each, on one scale.
#[derive(Debug, Clone)]
pub(crate) struct Bars {
    pub(crate) unit: Unit,
    pub(crate) rows: Vec<Bar>,
    /// Vertical lines through all rows, with their labels.
    pub(crate) levels: Vec<(f64, String)>,
    /// End of the scale, beyond which bars are cut off; `None`: the longest bar.
    pub(crate) end: Option<f64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Bar {
    pub(crate) label: String,
    /// Where the bar begins.
    pub(crate) from: f64,
    pub(crate) value: f64,
    pub(crate) interval: Option<[f64; 2]>,
    /// A figure from elsewhere to compare with.
    pub(crate) beside: Option<f64>,
    pub(crate) colour: Fill,
    /// Text behind the bar, in place of its value.
    pub(crate) note: Option<String>,
    /// Tooltip.
    pub(crate) tip: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fill {
    /// An ordinary bar.
    #[default]
    Plain,
    /// The bar that matters.
    Accent,
    /// An outline, for a value that proves nothing.
    Hollow,
}

impl Chart {
    pub(crate) fn new(
        name: &str,
        title: impl Into<String>,
        says: String,
        body: impl Into<Body>,
    ) -> Self {
        Self { name: name.to_owned(), title: title.into(), says, body: body.into() }
    }
}

impl From<Plot> for Body {
    fn from(plot: Plot) -> Self {
        Self::Plot(plot)
    }
}

impl From<Bars> for Body {
    fn from(bars: Bars) -> Self {
        Self::Bars(bars)
    }
}

impl Plot {
    /// A plot whose x axis is linear.
    pub(crate) fn new(x: &'static str, x_unit: Unit, panels: Vec<Panel>) -> Self {
        Self { x, x_unit, log: false, panels }
    }
}

impl Bars {
    /// Bars without levels.
    pub(crate) fn new(unit: Unit, rows: Vec<Bar>) -> Self {
        Self { unit, rows, levels: Vec::new(), end: None }
    }
}

impl Panel {
    pub(crate) fn new(y: &'static str, unit: Unit, series: Vec<Series>) -> Self {
        Self { y, unit, series, levels: Vec::new(), band: None, close: false }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let levels = self.levels.iter().map(|(level, _)| *level);
        let band = self.band.into_iter().flatten();
        points.map(|point| point[1]).chain(levels).chain(band)
    }
}

impl Series {
    /// A series without those points that are not finite.
    pub(crate) fn new(
        name: impl Into<String>,
        mark: Mark,
        colour: usize,
        points: impl IntoIterator<Item = [f64; 2]>,
    ) -> Self {
        let points = points.into_iter();
        Self {
            name: name.into(),
            mark,
            colour,
            points: points.filter(|point| point.iter().all(|part| part.is_finite())).collect(),
        }
    }
}

impl Unit {
    /// The unit in which values up to `most` are written: its size and its name.
    pub(super) fn scale(self, most: f64) -> (f64, &'static str) {
        let units: &[Scale] = match self {
            Self::Rate => &RATES,
            Self::Micros => &MICROS,
            Self::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")],
            Self::Bytes => &BYTES,
            Self::Percent => &[(1.0, "%")],
            Self::Count | Self::Moment => &[(1.0, "")],
        };
        let fits = units.iter().find(|(one, _)| most >= *one);
        *fits.unwrap_or(&units[units.len() - 1])
    }

    /// A value with its unit.
    pub(crate) fn write(self, value: f64) -> String {
        match self {
            Self::Rate => rate(value),
            Self::Micros => micros(value),
            Self::Seconds => micros(value * 1e6),
            Self::Bytes => bytes(value.max(0.0) as u64),
            Self::Percent => percent(value),
            Self::Count if value == value.trunc() && value.abs() < 1e15 => {
                let sign = if value < 0.0 { "-" } else { "" };
                format!("{sign}{}", count(value.abs() as u64))
            }
            Self::Count | Self::Moment => digits(value),
        }
    }
}
