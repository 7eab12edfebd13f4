//! What is wrong with a file of figures, with what was asked of it, or with a file of claims.

use std::fmt;

use thiserror::Error;

use crate::units::suggestion;

/// A place in a text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Character of that line, where it is known.
    pub column: Option<usize>,
}

impl Place {
    /// Where a whole file is meant.
    pub(super) const FIRST_LINE: Self = Self {
        line: 1,
        column: None,
    };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        match self.column {
            Some(column) => write!(f, ", column {column}"),
            None => Ok(()),
        }
    }
}

/// A text that cannot be read as figures, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}: {}{problem}", .place.map(|place| format!("{place}: ")).unwrap_or_default())]
pub struct ReadError {
    /// Which file.
    pub file: String,
    /// Where in it; absent where the whole file is meant.
    pub place: Option<Place>,
    /// What is wrong.
    pub problem: ReadProblem,
}

/// What is wrong with a text that should hold figures.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadProblem {
    /// There is nothing in it.
    #[error("there are no figures in it")]
    Empty,
    /// It is too long; all files together count.
    #[error("with it there are more than {} MiB to read", super::MAX_BYTES >> 20)]
    TooLong,
    /// It has more rows, columns or cells than are read.
    #[error("more than {most} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// It is no text.
    #[error("it is no UTF-8 text")]
    NotText,
    /// The first line of a table has figures in place of names.
    #[error("`{cell}` is a figure: the first line of a table names its columns")]
    NoHeader {
        /// The first figure.
        cell: String,
    },
    /// A column has no name.
    #[error("column {number} of the header has no name")]
    Unnamed {
        /// Counted from 1.
        number: usize,
    },
    /// Two columns have the same name.
    #[error("there are two columns `{name}`")]
    Repeated {
        /// The name.
        name: String,
    },
    /// A row is longer or shorter than the header.
    #[error(
        "{found} cells, where the header names {named}: is a text with commas in it not quoted?"
    )]
    Ragged {
        /// Cells of the row.
        found: u64,
        /// Cells of the header.
        named: u64,
    },
    /// A document is not whole, or has other types than it says.
    #[error("{message}")]
    Json {
        /// What the parser says.
        message: String,
    },
    /// A document of another kind.
    #[error(
        "its schema is `{schema}`; figures are read from {}",
        super::source::SCHEMAS.join(", ")
    )]
    Schema {
        /// Its schema.
        schema: String,
    },
    /// The tool that wrote it says that it failed.
    #[error("the run failed: {message}")]
    FailedRun {
        /// What the tool says.
        message: String,
    },
    /// Output of netperf without names.
    #[error(
        "netperf's output of this kind has no names for its figures: run it with `-- -k` or `-- -o`"
    )]
    Netperf,
    /// A line of `KEY=VALUE` output that is none.
    #[error("`{line}` is no KEY=VALUE")]
    NotKeyed {
        /// The line.
        line: String,
    },
}

/// Why figures cannot be analysed as asked.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AnalyzeError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file of claims cannot be read.
    #[error(transparent)]
    Claims(#[from] ClaimsError),
    /// There is no such column.
    #[error("there is no column `{column}`; {hint}")]
    UnknownColumn {
        /// The column asked for.
        column: String,
        /// A name that looks like it, or the names that there are.
        hint: String,
    },
    /// There is no such quantity to map a column to.
    #[error("`{name}` is no quantity that a column can be; {hint}")]
    UnknownQuantity {
        /// What was asked for.
        name: String,
        /// A name that looks like it, or the names that there are.
        hint: String,
    },
    /// A cell of a column of figures holds something else.
    #[error("{file}: line {line}: `{text}` in the column `{column}` is not a number")]
    NotANumber {
        /// Which file.
        file: String,
        /// Line, counted from 1; of JSON the one in which the document begins.
        line: u32,
        /// Which column.
        column: String,
        /// What is there.
        text: String,
    },
    /// It is not known which column is the metric.
    #[error(
        "no column has a name that is known to be a throughput: choose one with --metric; {hint}"
    )]
    NoMetric {
        /// The names that there are.
        hint: String,
    },
    /// No row has both a metric and a level.
    #[error("no row has a figure in \
        `{metric}`{}", .factor.as_deref().map(|f| format!(" and a level in \
            `{f}`")).unwrap_or_default())]
    NoRows {
        /// The metric.
        metric: String,
        /// The factor.
        factor: Option<String>,
    },
    /// The factor has no such level.
    #[error("the column `{factor}` has no level `{level}`; {hint}")]
    UnknownLevel {
        /// The factor.
        factor: String,
        /// The level asked for.
        level: String,
        /// A level that looks like it, or the levels that there are.
        hint: String,
    },
    /// There is nothing to compare.
    #[error("the column `{factor}` is `{level}` in every row: a comparison needs two levels")]
    OneLevel {
        /// The factor.
        factor: String,
        /// Its only level.
        level: String,
    },
    /// A level was asked for and no factor.
    #[error("--{option} names a level, and no --factor the column that has it")]
    NoFactor {
        /// `a` or `b`.
        option: &'static str,
    },
    /// Both sides are the same level.
    #[error("--a and --b are both `{level}`: a comparison needs two levels")]
    SameLevel {
        /// That level.
        level: String,
    },
    /// One column has two parts to play.
    #[error("the column `{column}` is both {one} and {other}")]
    TwoParts {
        /// The column.
        column: String,
        /// Its first part.
        one: &'static str,
        /// Its second part.
        other: &'static str,
    },
    /// There are more groups or levels than anybody would read.
    #[error("the columns make more than {most} {what}: {hint}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
        /// What to do.
        hint: &'static str,
    },
}

/// A text that is no file of claims, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}: {place}: {problem}")]
pub struct ClaimsError {
    /// Which file.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What is wrong.
    pub problem: ClaimsProblem,
}

/// What is wrong with a file of claims.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClaimsProblem {
    /// It is no TOML, or has other keys or types.
    #[error("{message}")]
    Toml {
        /// What the parser says.
        message: String,
    },
    /// It is too long to be one.
    #[error("the file has {bytes} bytes; claims have at most 1 MiB")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A claim states no figure, or two.
    #[error("a claim has either `value` or `between`")]
    OneFigure,
    /// The ends of a range are in the wrong order.
    #[error("`between` goes from the smaller figure to the larger")]
    Order,
    /// A figure is infinite or not a number.
    #[error("`{text}` is no finite number")]
    NotFinite {
        /// The figure.
        text: String,
    },
    /// A claim does not fit the table that it is about.
    #[error("{message}")]
    Table {
        /// Why.
        message: String,
    },
    /// None of the claims is about the files that were given.
    #[error("no claim is about {files}; those of this file are about {tables}")]
    NoneApplies {
        /// The files given.
        files: String,
        /// The tables that the claims name.
        tables: String,
    },
}

/// The name that looks like `name`, or the names that there are.
pub(super) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const MAX_LISTED: usize = 40;
    let known: Vec<&str> = known.into_iter().collect();
    if known.is_empty() {
        return "there are none".to_owned();
    }
    suggestion(name, &known).unwrap_or_else(|| {
        let rest = match known.len().saturating_sub(MAX_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let listed = known[..known.len().min(MAX_LISTED)].join(", ");
        format!("there are {listed}{rest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_alike_is_proposed_and_else_all_are_listed() {
        let known = ["mbit_per_s", "elapsed_s"];
        assert_eq!(hint("mbits_per_s", known), "did you mean `mbit_per_s`?");
        assert_eq!(hint("Elapsed_s", known), "did you mean `elapsed_s`?");
        assert_eq!(hint("cpu", known), "there are mbit_per_s, elapsed_s");
        assert_eq!(hint("cpu", []), "there are none");
    }

    #[test]
    fn a_place_is_named_as_far_as_it_is_known() {
        let at = |place| ReadError {
            file: "f.csv".to_owned(),
            place,
            problem: ReadProblem::Empty,
        };
        let line = Place {
            line: 3,
            column: None,
        };
        let exact = Place {
            line: 3,
            column: Some(7),
        };
        assert_eq!(at(None).to_string(), "f.csv: there are no figures in it");
        assert!(at(Some(line)).to_string().contains("f.csv: line 3: there"));
        assert!(
            at(Some(exact))
                .to_string()
                .contains("line 3, column 7: there")
        );
    }
}
