//! Aligned columns.

use std::borrow::Cow;

use linerate_core::units::printable;

use super::number::{UNKNOWN, count};
use super::page::wrap;

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    /// Left, for words. The last column is wrapped.
    Left,
    /// Right, for figures.
    Right,
}

/// The content of a table cell; `None` is shown as a dash.
pub trait Cell {
    /// The text; `None` for a dash.
    fn text(self) -> Option<String>;
}

impl<C: Cell> Cell for Option<C> {
    fn text(self) -> Option<String> {
        self?.text()
    }
}

impl Cell for u64 {
    fn text(self) -> Option<String> {
        Some(count(self))
    }
}

impl Cell for String {
    fn text(self) -> Option<String> {
        Some(self)
    }
}

impl Cell for &str {
    fn text(self) -> Option<String> {
        Some(self.to_owned())
    }
}

/// Rows, and columns that are as wide as their cells. Columns without any value are left out and,
/// on a narrow terminal, those that may be spared.
#[derive(Debug)]
pub struct Table<R> {
    rows: Vec<R>,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    /// The head of the column; it may have several lines.
    head: Cow<'static, str>,
    align: Align,
    /// Rank for being left out: the highest goes first, 0 stays.
    spare: u8,
    cells: Vec<String>,
}

impl<R> Table<R> {
    /// A table without columns.
    pub fn of(rows: impl IntoIterator<Item = R>) -> Self {
        Self {
            rows: rows.into_iter().collect(),
            columns: Vec::new(),
        }
    }

    /// Adds a column of words. The head may have several lines.
    pub fn left<C: Cell>(self, head: impl Into<Cow<'static, str>>, cell: impl Fn(&R) -> C) -> Self {
        self.column(head.into(), Align::Left, cell)
    }

    /// Adds a column of figures.
    pub fn right<C: Cell>(
        self,
        head: impl Into<Cow<'static, str>>,
        cell: impl Fn(&R) -> C,
    ) -> Self {
        self.column(head.into(), Align::Right, cell)
    }

    fn column<C: Cell>(
        mut self,
        head: Cow<'static, str>,
        align: Align,
        cell: impl Fn(&R) -> C,
    ) -> Self {
        let cells = self.rows.iter().map(|row| {
            let text = cell(row).text();
            printable(text.as_deref().unwrap_or(UNKNOWN))
        });
        self.columns.push(Column {
            head,
            align,
            spare: 0,
            cells: cells.collect(),
        });
        self
    }

    /// Marks the last `columns` columns as dispensable. On a narrow terminal, those of the highest
    /// rank are left out first, all of a rank together.
    pub(super) fn spare(mut self, rank: u8, columns: usize) -> Self {
        let from = self.columns.len() - columns;
        for column in &mut self.columns[from..] {
            column.spare = rank;
        }
        self
    }

    /// The table for formats that break lines themselves.
    pub(super) fn grid(&self) -> Grid<'_> {
        let known = |column: &&Column| column.cells.iter().any(|cell| cell != UNKNOWN);
        let mut above = String::new();
        let columns = self.columns.iter().filter(known).map(|column| {
            // A head that begins with a newline shares the first line of the head before it: after
            // `µs p50`, `\np90` stands for `µs p90`.
            let head = match column.head.strip_prefix('\n') {
                Some(rest) => format!("{above} {}", rest.trim()),
                None => column.head.replace("-\n", "").replace('\n', " "),
            };
            if let (Some((first, _)), false) =
                (column.head.split_once('\n'), column.head.starts_with('\n'))
            {
                first.clone_into(&mut above);
            }
            (
                head.trim().to_owned(),
                column.align == Align::Right,
                column.cells.as_slice(),
            )
        });
        Grid {
            columns: columns.collect(),
        }
    }

    /// The table laid out for a terminal of `width` columns.
    pub(super) fn layout(&self, width: usize) -> Layout<'_> {
        let known = |column: &&Column| column.cells.iter().any(|cell| cell != UNKNOWN);
        let mut shown: Vec<&Column> = self.columns.iter().filter(known).collect();
        let all = shown.len();
        while least_width(&shown, 1) > width {
            let Some(rank) = shown.iter().map(|column| column.spare).max() else {
                break;
            };
            if rank == 0 {
                break;
            }
            shown.retain(|column| column.spare < rank);
        }
        Layout {
            widths: shown.iter().map(|column| column.width()).collect(),
            gap: if least_width(&shown, 2) > width { 1 } else { 2 },
            left_out: all - shown.len(),
            rows: self.rows.len(),
            shown,
            width,
        }
    }
}

/// Width of the columns with `gap` blanks between them and the last one wrapped.
fn least_width(columns: &[&Column], gap: usize) -> usize {
    let widths = columns.iter().map(|column| column.width());
    let natural = INDENT + widths.sum::<usize>() + gap * columns.len().saturating_sub(1);
    match columns.last() {
        Some(last) if last.align == Align::Left => natural - last.width().saturating_sub(MIN_LAST),
        _ => natural,
    }
}

impl Column {
    fn width(&self) -> usize {
        let heads = self.head.split('\n');
        let cells = self.cells.iter().map(String::as_str);
        let widths = heads.chain(cells).map(|cell| cell.chars().count());
        widths.max().unwrap_or(0)
    }

    fn head_lines(&self) -> usize {
        self.head.split('\n').count()
    }

    /// One of `lines` head lines; shorter heads have blank lines above.
    fn head(&self, line: usize, lines: usize) -> &str {
        let part = (line + self.head_lines()).checked_sub(lines);
        part.and_then(|part| self.head.split('\n').nth(part))
            .unwrap_or_default()
    }
}

/// Columns: the head, whether it is right-aligned, and the cells.
pub(super) struct Grid<'a> {
    pub(super) columns: Vec<(String, bool, &'a [String])>,
}

/// A table laid out for a terminal.
pub(super) struct Layout<'a> {
    shown: Vec<&'a Column>,
    /// Widths of the shown columns; computed once, since each takes a look at all rows.
    widths: Vec<usize>,
    rows: usize,
    gap: usize,
    width: usize,
    /// Number of columns that did not fit.
    pub(super) left_out: usize,
}

impl Layout<'_> {
    /// Lines of the heads; none where no column has one.
    pub(super) fn heads(&self) -> Vec<String> {
        let lines = self.shown.iter().map(|column| column.head_lines());
        let is_named = self.shown.iter().any(|column| !column.head.is_empty());
        let lines = lines.max().filter(|_| is_named).unwrap_or(0);
        (0..lines)
            .flat_map(|line| self.row(|column| column.head(line, lines)))
            .collect()
    }

    /// Lines of the rows, indented by two; two spaces between columns, one where it is narrow.
    pub(super) fn rows(&self) -> Vec<String> {
        let rows = if self.shown.is_empty() { 0 } else { self.rows };
        (0..rows)
            .flat_map(|row| self.row(|column| &column.cells[row]))
            .collect()
    }

    fn row<'b>(&'b self, cell: impl Fn(&'b Column) -> &'b str) -> Vec<String> {
        let mut line = " ".repeat(INDENT);
        for (position, column) in self.shown.iter().enumerate() {
            if position > 0 {
                line.push_str(&" ".repeat(self.gap));
            }
            let (cell, width) = (cell(column), self.widths[position]);
            match column.align {
                Align::Left if position + 1 == self.shown.len() => return self.hang(line, cell),
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

/// Minimum width of the last column, even if it overruns the terminal.
const MIN_LAST: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table<(&'static str, u32, Option<String>)> {
        let formula = "window ÷ round-trip time of the path".to_owned();
        Table::of([("window", 9, None), ("path", 1000, Some(formula))])
            .left("cause", |row| row.0)
            .right("limit", |row| row.1.to_string())
            .right("not\nknown", |_| None::<String>)
            .left("formula", |row| row.2.clone())
    }

    fn lines<R>(table: &Table<R>, width: usize) -> Vec<String> {
        let layout = table.layout(width);
        [layout.heads(), layout.rows()].concat()
    }

    #[test]
    fn figures_are_right_aligned_and_empty_columns_left_out() {
        assert_eq!(
            lines(&sample(), 80),
            [
                "  cause   limit  formula",
                "  window      9  -",
                "  path     1000  window ÷ round-trip time of the path",
            ]
        );
    }

    #[test]
    fn the_last_column_wraps_under_itself() {
        let lines = lines(&sample(), 44);
        assert_eq!(lines[2], "  path     1000  window ÷ round-trip time of");
        assert_eq!(lines[3], "                 the path");
    }

    #[test]
    fn cells_cannot_break_out_of_their_line() {
        let table = Table::of(["a\n\x1b[2Jb"]).left("name", |name| *name);
        assert_eq!(lines(&table, 80)[1], "  a\\u{a}\\u{1b}[2Jb");
    }

    #[test]
    fn the_least_needed_columns_are_dropped_first() {
        let wide = |rank: u8| move |_: &()| format!("{rank}").repeat(10);
        let table = Table::of([()])
            .right("a", wide(0))
            .right("b", wide(1))
            .spare(1, 1)
            .right("c", wide(2))
            .right("d", wide(2))
            .spare(2, 2);
        for (width, expected) in [(80, "abcd"), (45, "abcd"), (44, "ab"), (22, "a"), (5, "a")] {
            let layout = table.layout(width);
            let heads = layout.heads().concat().replace(' ', "");
            assert_eq!(heads, expected, "{width}");
            assert_eq!(layout.left_out, 4 - expected.len());
        }
    }
}
