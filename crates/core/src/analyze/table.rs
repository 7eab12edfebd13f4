//! A table of figures: rows and named columns, whatever the format of the file.
//!
//! The cells stand one after the other in one text: a table of 10⁶ rows costs little more than its
//! file. Rows need not have all columns: files of different kinds make one table.

use std::collections::HashMap;

use super::{AnalyzeError, hint};

/// Rows of all files together.
pub const MAX_ROWS: usize = 1_000_000;
/// Columns of all files together.
pub(super) const MAX_COLUMNS: usize = 10_000;
/// The column that every table has: the label of the file that a row is from.
pub const FILE_COLUMN: &str = "file";
/// What linerate's own documents concluded of a run.
pub(super) const VERDICT_COLUMN: &str = "verdict";

/// How the figures of a file were written.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A header and rows, separated by commas, semicolons or tabs.
    Csv,
    /// linerate's own documents.
    Linerate,
    /// What `iperf3 -J` prints.
    Iperf3,
    /// What netperf prints: `-k`, `-o`, or the table of a bulk transfer.
    Netperf,
    /// Other JSON objects, each a row.
    Json,
}

/// A file of figures.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Source {
    /// Its name.
    pub file: String,
    /// What its rows have in the column `file`, unless they have one of their own.
    pub label: String,
    /// Format of the file.
    pub format: Format,
    /// Its rows.
    pub rows: usize,
}

/// Figures of one or several files.
#[derive(Debug, Clone, Default)]
pub struct Table {
    sources: Vec<Source>,
    columns: Vec<String>,
    cells: Vec<CellSpan>,
    rows: Vec<RowStart>,
    text: String,
}

#[derive(Debug, Clone, Copy)]
struct CellSpan {
    column: u32,
    begin: u32,
    end: u32,
}

#[derive(Debug, Clone, Copy)]
struct RowStart {
    first_cell: u32,
    source: u32,
    line: u32,
    /// Which row of its document it is, from 1; 0 where it is alone in it.
    number: u32,
}

/// A column that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Column {
    Cells(u32),
    Label,
}

impl Table {
    /// The files, in the order in which they were read.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Names of the columns, in the order in which they came first; [`FILE_COLUMN`] is not among
    /// them.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn find(&self, name: &str) -> Option<Column> {
        let position = self.columns.iter().position(|column| column == name);
        match position {
            Some(index) => Some(Column::Cells(index as u32)),
            None => (name == FILE_COLUMN).then_some(Column::Label),
        }
    }

    /// The column of that name.
    ///
    /// # Errors
    /// There is none; the message proposes names that there are.
    pub(super) fn column(&self, name: &str) -> Result<Column, AnalyzeError> {
        self.find(name).ok_or_else(|| {
            let hint = self.column_hint(name);
            AnalyzeError::new(format!("there is no column `{name}`; {hint}"))
        })
    }

    pub(super) fn column_hint(&self, name: &str) -> String {
        hint(name, self.columns.iter().map(String::as_str))
    }

    pub(super) fn name(&self, column: Column) -> &str {
        match column {
            Column::Cells(index) => &self.columns[index as usize],
            Column::Label => FILE_COLUMN,
        }
    }

    pub(super) fn all_columns(&self) -> impl Iterator<Item = Column> + use<> {
        (0..self.columns.len() as u32).map(Column::Cells)
    }

    /// What stands in a cell; `None` where there is nothing, or a word for that.
    pub(super) fn text(&self, row: usize, column: Column) -> Option<&str> {
        let Column::Cells(wanted) = column else {
            return Some(&self.source(row).label);
        };
        let cells = self.cells_of(row);
        let found = cells.binary_search_by_key(&wanted, |cell| cell.column).ok();
        let text = self.text_of(&cells[found?]);
        (!ABSENT.contains(&text)).then_some(text)
    }

    /// The figure in a cell; `None` where there is none.
    ///
    /// # Errors
    /// The cell holds something else; the message says where.
    pub(super) fn number(&self, row: usize, column: Column) -> Result<Option<f64>, AnalyzeError> {
        let Some(text) = self.text(row, column) else {
            return Ok(None);
        };
        let found = number(text).map(Some);
        found.ok_or_else(|| {
            AnalyzeError::new(format!(
                "{}: line {}: `{}` in the column `{}` is not a number",
                self.source(row).file,
                self.line(row),
                text.chars().take(64).collect::<String>(),
                self.name(column)
            ))
        })
    }

    /// Line of the file at which a row begins, from 1; of JSON the line at which its document does.
    pub(super) fn line(&self, row: usize) -> u32 {
        self.rows[row].line
    }

    pub(super) fn source(&self, row: usize) -> &Source {
        &self.sources[self.rows[row].source as usize]
    }

    /// `line 3`, or `row 2` of a document that begins its file; with the file where there are
    /// several.
    pub(super) fn place(&self, row: usize) -> String {
        let place = match (self.line(row), self.rows[row].number) {
            (line, 0) => format!("line {line}"),
            (1, number) => format!("row {number}"),
            (line, number) => format!("line {line} row {number}"),
        };
        match self.sources.len() {
            1 => place,
            _ => format!("{} {place}", self.source(row).file),
        }
    }

    fn cells_of(&self, row: usize) -> &[CellSpan] {
        let next = self.rows.get(row + 1);
        let end = next.map_or(self.cells.len(), |next| next.first_cell as usize);
        &self.cells[self.rows[row].first_cell as usize..end]
    }

    fn text_of(&self, cell: &CellSpan) -> &str {
        &self.text[cell.begin as usize..cell.end as usize]
    }
}

/// A finite number as tables have it.
pub(super) fn number(text: &str) -> Option<f64> {
    // Rust also reads `inf`, `nan` and `infinity`.
    let is_figure = text.bytes().any(|byte| byte.is_ascii_digit());
    let value: f64 = text.parse().ok().filter(|_| is_figure)?;
    value.is_finite().then_some(value)
}

/// What stands in tables where there is nothing.
const ABSENT: [&str; 7] = ["", "-", "NA", "N/A", "n/a", "null", "NaN"];

/// A table that is being read.
#[derive(Debug, Default)]
pub(super) struct Builder {
    table: Table,
    index: HashMap<String, u32>,
}

impl Builder {
    /// From here on rows are of this file.
    pub(super) fn begin(&mut self, file: &str, label: &str, format: Format) {
        self.table.sources.push(Source {
            file: file.to_owned(),
            label: label.to_owned(),
            format,
            rows: 0,
        });
    }

    /// The number of a column, which is made if it is new.
    pub(super) fn column(&mut self, name: &str) -> Result<u32, String> {
        if let Some(&column) = self.index.get(name) {
            return Ok(column);
        }
        let column = self.table.columns.len();
        within(column, MAX_COLUMNS, "columns")?;
        self.table.columns.push(name.to_owned());
        self.index.insert(name.to_owned(), column as u32);
        Ok(column as u32)
    }

    /// Adds a row with what stands in its columns; `number` is which of its document it is, 0 where
    /// it is the only one. Of a column that comes twice the first counts.
    pub(super) fn row(
        &mut self,
        line: usize,
        number: usize,
        cells: &mut Vec<(u32, &str)>,
    ) -> Result<(), String> {
        within(self.table.rows.len(), MAX_ROWS, "rows")?;
        cells.sort_by_key(|(column, _)| *column);
        cells.dedup_by_key(|(column, _)| *column);
        let room = u32::MAX as usize;
        let texts: usize = cells.iter().map(|(_, text)| text.len()).sum();
        within(self.table.text.len() + texts, room, "bytes of cells")?;
        within(self.table.cells.len() + cells.len(), MAX_CELLS, "cells")?;
        self.table.rows.push(RowStart {
            first_cell: self.table.cells.len() as u32,
            source: (self.table.sources.len() - 1) as u32,
            line: u32::try_from(line).unwrap_or(u32::MAX),
            number: u32::try_from(number).unwrap_or(u32::MAX),
        });
        for &(column, text) in cells.iter() {
            let begin = self.table.text.len() as u32;
            self.table.text.push_str(text);
            let end = self.table.text.len() as u32;
            self.table.cells.push(CellSpan { column, begin, end });
        }
        if let Some(source) = self.table.sources.last_mut() {
            source.rows += 1;
        }
        Ok(())
    }

    /// Rows of the file that is being read.
    pub(super) fn rows_of_file(&self) -> usize {
        self.table.sources.last().map_or(0, |source| source.rows)
    }

    pub(super) fn finish(self) -> Table {
        self.table
    }
}

fn within(count: usize, max: usize, what: &str) -> Result<(), String> {
    let fits = count < max;
    fits.then_some(()).ok_or_else(|| format!("more than {max} {what}"))
}

/// Each costs 12 bytes; the largest file has no more.
const MAX_CELLS: usize = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut builder = Builder::default();
        builder.begin("f.csv", "before", Format::Csv);
        let rate = builder.column("rate").unwrap();
        let size = builder.column("size").unwrap();
        builder.row(2, 0, &mut vec![(size, "64"), (rate, "9.5")]).unwrap();
        builder.row(3, 0, &mut vec![(rate, "NA")]).unwrap();
        builder.row(4, 0, &mut vec![(rate, "fast")]).unwrap();
        builder.finish()
    }

    #[test]
    fn rows_have_the_cells_that_they_were_given() {
        let table = sample();
        let [rate, size] = ["rate", "size"].map(|name| table.column(name).unwrap());
        assert_eq!(table.number(0, rate).unwrap(), Some(9.5));
        assert_eq!(table.text(0, size), Some("64"));
        assert_eq!(table.number(1, rate).unwrap(), None);
        assert_eq!(table.text(1, size), None);
        assert_eq!(table.text(1, table.column(FILE_COLUMN).unwrap()), Some("before"));
    }

    #[test]
    fn a_text_that_is_not_a_number_is_refused_with_its_place() {
        let table = sample();
        let error = table.number(2, table.column("rate").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "f.csv: line 4: `fast` in the column `rate` is not a number");
        for text in ["inf", "nan", "1e999", "12 %", "1,234", ""] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn more_columns_than_are_read_are_refused() {
        let mut builder = Builder::default();
        builder.begin("f.csv", "f", Format::Csv);
        for number in 0..MAX_COLUMNS {
            builder.column(&number.to_string()).unwrap();
        }
        let error = builder.column("one too many").unwrap_err();
        assert_eq!(error, "more than 10000 columns");
        assert!(builder.column("7").is_ok());
    }
}
