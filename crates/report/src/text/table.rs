//! Aligned columns.

use std::borrow::Cow;

use super::number::UNKNOWN;
use super::page::{clean, wrap};

/// Which side of its column a cell stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    /// Words. In the last column they are wrapped.
    Left,
    /// Figures.
    Right,
}

/// A table whose columns are as wide as their cells; columns without any figure are left out.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Column {
    head: Cow<'static, str>,
    align: Align,
}

impl Table {
    /// Heads may have several lines.
    pub(super) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self::with_heads(columns.iter().map(|&(head, align)| (head.into(), align)))
    }

    /// As [`Table::new`], with heads that a document gives.
    pub(super) fn with_heads(
        columns: impl IntoIterator<Item = (Cow<'static, str>, Align)>,
    ) -> Self {
        let columns = columns.into_iter();
        Self {
            columns: columns
                .map(|(head, align)| Column { head, align })
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; an absent cell is a dash.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Option<String>>) {
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| clean(cell.as_deref().unwrap_or(UNKNOWN)))
            .collect();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Lines that the heads take.
    pub(super) fn head_lines(&self) -> usize {
        self.shown()
            .iter()
            .map(|&column| self.columns[column].head.split('\n').count())
            .max()
            .unwrap_or(0)
    }

    /// The columns with a figure in any row.
    fn shown(&self) -> Vec<usize> {
        let known = |column: usize| self.rows.iter().any(|row| row[column] != UNKNOWN);
        (0..self.columns.len()).filter(|&c| known(c)).collect()
    }

    /// Heads and rows, indented by two; two spaces between columns, one where `width` asks for it.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let shown = self.shown();
        let widths: Vec<usize> = shown.iter().map(|&column| self.width_of(column)).collect();
        let gap = if self.least_width(&shown, &widths) > width {
            1
        } else {
            2
        };
        let layout = Layout {
            table: self,
            shown: &shown,
            widths: &widths,
            gap,
            width,
        };
        let heads = (0..self.head_lines()).flat_map(|line| layout.row(&self.head(line)));
        let rows = self.rows.iter().flat_map(|row| layout.row(row));
        heads.chain(rows).collect()
    }

    /// What the table takes with two spaces between columns and its last column wrapped.
    fn least_width(&self, shown: &[usize], widths: &[usize]) -> usize {
        let natural = INDENT + widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        match (shown.last(), widths.last()) {
            (Some(&last), Some(&width)) if self.columns[last].align == Align::Left => {
                natural - width.saturating_sub(MIN_LAST)
            }
            _ => natural,
        }
    }

    fn width_of(&self, column: usize) -> usize {
        let heads = self.columns[column].head.split('\n');
        let cells = self.rows.iter().map(|row| row[column].as_str());
        heads
            .chain(cells)
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    }

    /// One line of the heads, which stand on the ground: the shorter ones have blanks above them.
    fn head(&self, line: usize) -> Vec<String> {
        let lines = self.head_lines();
        self.columns
            .iter()
            .map(|column| {
                let parts = column.head.split('\n').count();
                let part = (line + parts)
                    .checked_sub(lines)
                    .and_then(|part| column.head.split('\n').nth(part));
                part.unwrap_or_default().to_owned()
            })
            .collect()
    }
}

/// What all lines of a table have in common.
struct Layout<'a> {
    table: &'a Table,
    shown: &'a [usize],
    widths: &'a [usize],
    gap: usize,
    width: usize,
}

impl Layout<'_> {
    fn row(&self, cells: &[String]) -> Vec<String> {
        let mut line = " ".repeat(INDENT);
        let last = self.shown.len().saturating_sub(1);
        for (position, (&column, &width)) in self.shown.iter().zip(self.widths).enumerate() {
            if position > 0 {
                line.push_str(&" ".repeat(self.gap));
            }
            let cell = &cells[column];
            match self.table.columns[column].align {
                Align::Left if position == last => return self.hang(line, cell),
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        vec![line]
    }

    /// Wraps the last cell under itself.
    fn hang(&self, line: String, cell: &str) -> Vec<String> {
        let before = line.chars().count();
        let room = self.width.saturating_sub(before).max(MIN_LAST);
        let mut lines = wrap(cell, room).into_iter();
        let first = line + &lines.next().unwrap_or_default();
        std::iter::once(first)
            .chain(lines.map(|rest| format!("{:before$}{rest}", "")))
            .collect()
    }
}

/// Blanks before the first column.
const INDENT: usize = 2;

/// The last column gets at least this, even if it overruns the terminal.
const MIN_LAST: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&[
            ("cause", Align::Left),
            ("limit", Align::Right),
            ("not\nknown", Align::Right),
            ("formula", Align::Left),
        ]);
        table.row([Some("window".into()), Some("9".into()), None, None]);
        let formula = "window ÷ round-trip time of the path";
        table.row([
            Some("path".into()),
            Some("1000".into()),
            None,
            Some(formula.into()),
        ]);
        table
    }

    #[test]
    fn figures_are_right_aligned_and_empty_columns_left_out() {
        assert_eq!(
            sample().lines(80),
            [
                "  cause   limit  formula",
                "  window      9  -",
                "  path     1000  window ÷ round-trip time of the path",
            ]
        );
    }

    #[test]
    fn the_last_column_wraps_under_itself() {
        let lines = sample().lines(44);
        assert_eq!(lines[2], "  path     1000  window ÷ round-trip time of");
        assert_eq!(lines[3], "                 the path");
    }

    #[test]
    fn cells_cannot_break_out_of_their_line() {
        let mut table = Table::new(&[("name", Align::Left)]);
        table.row([Some("a\n\x1b[2Jb".into())]);
        assert_eq!(table.lines(80)[1], "  a\\u{a}\\u{1b}[2Jb");
    }
}
