//! Aligned columns.

use linerate_core::units::printable;

use super::render::wrap;
use crate::number::{UNKNOWN, count};

/// Declares a table of `rows`, or more columns of one with `to TABLE` in their place: for each
/// column its alignment, its head and its cell, an expression of the row's pattern in which `?`
/// stands for a figure that is not known. On a narrow terminal the columns with the highest `@N`
/// are left out first, all of one `N` together; a column without it stays.
macro_rules! table {
    (to $table:expr, $row:pat => $($align:ident $(@$rank:literal)? $head:expr => $cell:expr;)*) => {
        $table$(.$align(
            $head,
            #[allow(unused_variables, clippy::needless_question_mark)]
            |row| -> Option<String> {
                let $row = row;
                $crate::page::Cell::text($cell)
            },
        )$(.spare($rank, 1))?)*
    };
    ($rows:expr, $($columns:tt)*) => {
        table! { to $crate::page::Table::of($rows), $($columns)* }
    };
}
pub(crate) use table;

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

/// The lines of a column's head. An empty first line stands for that of the head before it: after
/// `["µs", "p50"]`, `["", "p90"]` is `µs p90`.
#[derive(Debug, Clone)]
pub struct Head(Vec<String>);

impl From<&str> for Head {
    fn from(line: &str) -> Self {
        Self(vec![line.to_owned()])
    }
}

impl<const N: usize> From<[&str; N]> for Head {
    fn from(lines: [&str; N]) -> Self {
        Self(lines.map(str::to_owned).to_vec())
    }
}

impl FromIterator<String> for Head {
    fn from_iter<L: IntoIterator<Item = String>>(lines: L) -> Self {
        Self(lines.into_iter().collect())
    }
}

/// Rows, and columns that are as wide as their cells. Columns without any value are left out and,
/// on a narrow terminal, those that can be [spared](Table::spare).
#[derive(Debug)]
pub struct Table<R> {
    rows: Vec<R>,
    pub(crate) grid: Grid,
}

/// A table's texts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grid {
    columns: Vec<TableColumn>,
    /// The rank of each row for being left out: the highest goes first, 0 stays.
    spare_rows: Vec<u8>,
}

#[derive(Debug, Clone)]
struct TableColumn {
    head: Vec<String>,
    align: Align,
    /// Rank for being left out: the highest goes first, 0 stays.
    spare: u8,
    cells: Vec<String>,
}

impl<R> Table<R> {
    /// A table without columns.
    pub fn of(rows: impl IntoIterator<Item = R>) -> Self {
        let rows: Vec<R> = rows.into_iter().collect();
        let spare_rows = vec![0; rows.len()];
        let grid = Grid { columns: Vec::new(), spare_rows };
        Self { rows, grid }
    }

    /// Adds a column of words.
    pub fn left<C: Cell>(self, head: impl Into<Head>, cell: impl Fn(&R) -> C) -> Self {
        self.column(head.into(), Align::Left, cell)
    }

    /// Adds a column of figures.
    pub fn right<C: Cell>(self, head: impl Into<Head>, cell: impl Fn(&R) -> C) -> Self {
        self.column(head.into(), Align::Right, cell)
    }

    fn column<C: Cell>(mut self, head: Head, align: Align, cell: impl Fn(&R) -> C) -> Self {
        let cells = self.rows.iter().map(|row| {
            let text = cell(row).text();
            printable(text.as_deref().unwrap_or(UNKNOWN))
        });
        self.grid.columns.push(TableColumn {
            head: head.0,
            align,
            spare: 0,
            cells: cells.collect(),
        });
        self
    }

    /// Marks the last `columns` columns as dispensable. On a narrow terminal, those of the highest
    /// rank are left out first, all of a rank together.
    pub fn spare(mut self, rank: u8, columns: usize) -> Self {
        let last = self.grid.columns.iter_mut().rev().take(columns);
        last.for_each(|column| column.spare = rank);
        self
    }

    /// Ranks the rows: on a page that is to fit on a screen, those of the highest rank are left out
    /// first, those of rank 0 never.
    pub(crate) fn spare_rows(mut self, rank: impl Fn(&R) -> u8) -> Self {
        self.grid.spare_rows = self.rows.iter().map(rank).collect();
        self
    }
}

impl Grid {
    /// The columns that have a value.
    fn known(&self) -> impl Iterator<Item = &TableColumn> {
        let known = |column: &&TableColumn| column.cells.iter().any(|cell| cell != UNKNOWN);
        self.columns.iter().filter(known)
    }

    /// The highest rank of a row.
    pub(crate) fn highest_row_rank(&self) -> u8 {
        self.spare_rows.iter().copied().max().unwrap_or(0)
    }

    /// The columns for formats that break lines themselves: the head on one line, whether the
    /// column is right-aligned, and the cells.
    pub(crate) fn columns(&self) -> Vec<(String, bool, &[String])> {
        let mut above = "";
        let columns = self.known().map(|column| {
            let head = match column.head.as_slice() {
                [first, rest @ ..] if first.is_empty() => {
                    format!("{above} {}", rest.join(" ").trim())
                }
                lines => {
                    above = lines.first().map_or("", String::as_str);
                    lines.join(" ").replace("- ", "")
                }
            };
            let is_right = column.align == Align::Right;
            (head.trim().to_owned(), is_right, column.cells.as_slice())
        });
        columns.collect()
    }

    /// The table laid out for a terminal of `width` columns, without the rows above a rank.
    pub(crate) fn layout(&self, width: usize, highest: u8) -> TableLayout {
        let rows: Vec<usize> =
            (0..self.spare_rows.len()).filter(|row| self.spare_rows[*row] <= highest).collect();
        let sized = |column| (column, TableColumn::width(column, &rows));
        let mut shown: Vec<(&TableColumn, usize)> = self.known().map(sized).collect();
        let all = shown.len();
        while least_width(&shown, 1) > width {
            match shown.iter().map(|(column, _)| column.spare).max() {
                None | Some(0) => break,
                Some(rank) => shown.retain(|(column, _)| column.spare < rank),
            }
        }
        let gap = if least_width(&shown, 2) > width { 1 } else { 2 };
        let line = |cell: &dyn Fn(&TableColumn) -> &str| row(&shown, gap, width, cell);
        let is_named =
            |(column, _): &(&TableColumn, usize)| column.head.iter().any(|it| !it.is_empty());
        let most_heads = shown.iter().map(|(column, _)| column.head.len()).max();
        let heads = most_heads.filter(|_| shown.iter().any(is_named)).unwrap_or(0);
        let rows = if shown.is_empty() { &[][..] } else { &rows };
        TableLayout {
            heads: (0..if rows.is_empty() { 0 } else { heads })
                .flat_map(|at| line(&|column| column.head_line(at, heads)))
                .collect(),
            rows: rows.iter().flat_map(|at| line(&|column| &column.cells[*at])).collect(),
            left_out: all - shown.len(),
        }
    }
}

/// A table's lines.
pub(crate) struct TableLayout {
    /// Lines of the heads; none where no column has one.
    pub(crate) heads: Vec<String>,
    /// Lines of the rows, indented by two; two spaces between columns, one where it is narrow.
    pub(crate) rows: Vec<String>,
    /// Number of columns that did not fit.
    pub(crate) left_out: usize,
}

/// Width of the columns with `gap` blanks between them and the last one wrapped.
fn least_width(columns: &[(&TableColumn, usize)], gap: usize) -> usize {
    let widths = columns.iter().map(|(_, width)| width);
    let natural = INDENT + widths.sum::<usize>() + gap * columns.len().saturating_sub(1);
    match columns.last() {
        Some((last, width)) if last.align == Align::Left => {
            natural - width.saturating_sub(MIN_LAST)
        }
        _ => natural,
    }
}

impl TableColumn {
    fn width(&self, rows: &[usize]) -> usize {
        let cells = rows.iter().map(|row| &self.cells[*row]);
        let widths = self.head.iter().chain(cells).map(|cell| cell.chars().count());
        widths.max().unwrap_or(0)
    }

    /// One of `lines` head lines; shorter heads have blank lines above.
    fn head_line(&self, line: usize, lines: usize) -> &str {
        let part = (line + self.head.len()).checked_sub(lines);
        part.map_or("", |part| &self.head[part])
    }
}

/// The lines of a row: the last cell is wrapped under itself.
fn row(
    columns: &[(&TableColumn, usize)],
    gap: usize,
    width: usize,
    cell: &dyn Fn(&TableColumn) -> &str,
) -> Vec<String> {
    let mut line = " ".repeat(INDENT);
    for (position, &(column, room)) in columns.iter().enumerate() {
        if position > 0 {
            line.push_str(&" ".repeat(gap));
        }
        match column.align {
            Align::Left if position + 1 == columns.len() => {
                let before = line.chars().count();
                let room = width.saturating_sub(before).max(MIN_LAST);
                let rest = std::iter::once(line).chain(std::iter::repeat(" ".repeat(before)));
                let lines = rest.zip(wrap(cell(column), room));
                return lines.map(|(before, words)| before + &words).collect();
            }
            Align::Left => line.push_str(&format!("{:<room$}", cell(column))),
            Align::Right => line.push_str(&format!("{:>room$}", cell(column))),
        }
    }
    vec![line]
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
            .right(["not", "known"], |_| None::<String>)
            .left("formula", |row| row.2.clone())
    }

    fn lines<R>(table: &Table<R>, width: usize) -> Vec<String> {
        let layout = table.grid.layout(width, 0);
        [layout.heads, layout.rows].concat()
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
            let layout = table.grid.layout(width, 0);
            let heads = layout.heads.concat().replace(' ', "");
            assert_eq!(heads, expected, "{width}");
            assert_eq!(layout.left_out, 4 - expected.len());
        }
    }
}
