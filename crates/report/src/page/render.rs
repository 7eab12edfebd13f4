//! Lays out the blocks of a page: as text for a terminal, as HTML or as Markdown. Every text is
//! cleaned or escaped here, so that no caller can forget it.

use std::iter::{once, repeat};

use linerate_core::remedy::shell_word;
use linerate_core::units::printable;

use super::table::Grid;
use super::{Emphasis, Page, PageBlock};
use crate::number::{NBSP, joined, plural};
use crate::style::{Form, Style};
use crate::svg::escaped;

/// The page in its form. A page that is to fit on a screen loses its spare rows, those of the
/// highest rank first, and as a last resort its blank lines.
pub(super) fn page(page: &Page) -> String {
    if !page.is_screen {
        return laid_out(page, u8::MAX);
    }
    let ranks = page.blocks.iter().map(|block| match block {
        PageBlock::Table(grid) => grid.highest_row_rank(),
        _ => 0,
    });
    let mut pages = (0..=ranks.max().unwrap_or(0)).rev().map(|rank| laid_out(page, rank));
    let fitting = pages.find(|text| text.lines().count() <= SCREEN);
    fitting.unwrap_or_else(|| laid_out(page, 0).replace("\n\n", "\n"))
}

/// Lines of a terminal.
const SCREEN: usize = 24;

/// The page without the rows above a rank.
fn laid_out(page: &Page, highest: u8) -> String {
    let mut text = String::new();
    let (mut is_apart, mut title) = (false, None);
    for block in &page.blocks {
        let mut written = Text { style: page.style, highest, text: String::new() };
        match block {
            PageBlock::Blank => (is_apart, title) = (true, None),
            PageBlock::Section(words) => (is_apart, title) = (true, Some(words)),
            PageBlock::Words { emphasis, label, hang, words } => {
                written.words(*emphasis, label, *hang, words);
            }
            PageBlock::Command(command) => written.command(command),
            PageBlock::Table(grid) => written.table(grid),
        }
        if written.text.is_empty() {
            continue;
        }
        if std::mem::take(&mut is_apart) && page.style.form == Form::Plain && !text.is_empty() {
            text.push('\n');
        }
        if let Some(title) = title.take() {
            let before = std::mem::take(&mut written.text);
            written.words(Emphasis::Strong, "", 0, title);
            written.text.push_str(&before);
        }
        text.push_str(&written.text);
    }
    text
}

/// The text of blocks.
struct Text {
    style: Style,
    /// Rows of a higher rank are left out.
    highest: u8,
    text: String,
}

impl Text {
    fn push(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// Writes a paragraph; on a terminal, words that fill the lines.
    fn words(&mut self, emphasis: Emphasis, label: &str, hang: usize, words: &str) {
        match self.style.form {
            Form::Plain => {}
            Form::Html => return self.html(emphasis, label.trim(), words),
            Form::Markdown => return self.markdown(emphasis, label.trim(), words),
        }
        let words = printable(words).replace(" %", "\u{a0}%");
        let room = self.style.columns().saturating_sub(hang);
        let lines = match words.chars().count() <= room {
            true => vec![words],
            false => wrap(&words, room.max(MIN_ROOM)),
        };
        for (label, words) in once(label).chain(repeat("")).zip(lines) {
            self.line(emphasis, &format!("{label:<hang$}{words}"));
        }
    }

    /// Writes one line of a terminal, however long.
    fn line(&mut self, emphasis: Emphasis, line: &str) {
        let line = printable(line).replace(NBSP, " ");
        let code = match emphasis {
            Emphasis::Strong if self.style.colour => "\x1b[1m",
            Emphasis::Warning if self.style.colour => "\x1b[33m",
            Emphasis::Command if self.style.colour => "\x1b[36m",
            _ => return self.push(line.trim_end()),
        };
        self.push(format!("{code}{}\x1b[0m", line.trim_end()));
    }

    /// Writes a paragraph whose label is `-` for an item of a list, `!` for a doubt, or a word.
    fn markdown(&mut self, emphasis: Emphasis, label: &str, words: &str) {
        let words = plain(words);
        self.push(match label {
            "-" => format!("- {words}\n"),
            "!" => format!("> {words}\n"),
            "" if emphasis == Emphasis::Strong => format!("**{words}**\n"),
            "" => format!("{words}\n"),
            _ => format!("**{}** {words}\n", plain(label)),
        });
    }

    fn html(&mut self, emphasis: Emphasis, label: &str, words: &str) {
        let (words, label) = (escaped(words), escaped(label));
        let class = match (label.as_str(), emphasis) {
            ("-", _) => "point",
            ("!", _) | (_, Emphasis::Warning) => "doubt",
            ("", Emphasis::Strong) => "strong",
            ("", _) => "",
            (_, Emphasis::Strong) => "fact strong",
            _ => "fact",
        };
        self.push(match label.as_str() {
            "" | "-" | "!" => format!("<p class=\"{class}\">{words}</p>"),
            _ => format!("<p class=\"{class}\"><b>{label}</b> <span>{words}</span></p>"),
        });
    }

    /// Writes a shell command to be copied.
    fn command(&mut self, command: &str) {
        let lines: Vec<String> = command.lines().map(printable).collect();
        match self.style.form {
            Form::Plain => {
                // A command for the endpoint's host says so in its comment; it is not run in the
                // lab.
                let prefix = self.style.prefix.filter(|_| !command.contains("  # on "));
                lines.iter().for_each(|line| self.typed(prefix, line));
            }
            Form::Markdown => {
                // Longer than any run of backquotes in the command.
                let fence = "`".repeat(3 + command.matches('`').count());
                self.push(format!("{fence}sh\n{}\n{fence}\n", lines.join("\n")));
            }
            Form::Html => {
                let lines = joined(lines.iter().map(|line| escaped(line)), "\n");
                self.push(format!("<pre class=\"command\"><code>{lines}</code></pre>"));
            }
        }
    }

    /// Writes a command on a line that is never wrapped; a comment that does not fit stands below.
    fn typed(&mut self, prefix: Option<&str>, command: &str) {
        let command = prefix.map_or_else(|| command.to_owned(), |prefix| within(prefix, command));
        let room = self.style.columns().saturating_sub(4);
        let is_long = command.chars().count() > room;
        let parts = command.split_once("  # ").filter(|_| is_long);
        let (words, comment) = parts.unwrap_or((&command, ""));
        self.line(Emphasis::Command, &format!("    {words}"));
        for comment in wrap(comment, room.saturating_sub(2)).iter().filter(|it| !it.is_empty()) {
            self.line(Emphasis::None, &format!("    # {comment}"));
        }
    }

    fn table(&mut self, grid: &Grid) {
        if self.style.form != Form::Plain {
            return self.marked_up(&grid.columns());
        }
        let layout = grid.layout(self.style.columns(), self.highest);
        layout.heads.iter().for_each(|head| self.line(Emphasis::Strong, head));
        layout.rows.iter().for_each(|row| self.line(Emphasis::None, row));
        if layout.left_out > 0 {
            let columns = plural(layout.left_out as u64, "column");
            let hint = format!("{columns} more in a wider terminal, or with --json");
            self.words(Emphasis::None, "", 2, &hint);
        }
    }

    fn marked_up(&mut self, columns: &[(String, bool, &[String])]) {
        let rows = columns.first().map_or(0, |(_, _, cells)| cells.len());
        if rows == 0 {
            return;
        }
        let row = |of: &dyn Fn(usize) -> String| (0..columns.len()).map(of).collect::<String>();
        if self.style.form == Form::Markdown {
            let rule = |at: usize| if columns[at].1 { " ---: |" } else { " --- |" };
            self.push(format!("|{}", row(&|at| format!(" {} |", plain(&columns[at].0)))));
            self.push(format!("|{}", row(&|at| rule(at).to_owned())));
            for number in 0..rows {
                let cells = row(&|at| format!(" {} |", plain(&columns[at].2[number])));
                self.push(format!("|{cells}"));
            }
            return self.push("");
        }
        let class = |at: usize| {
            if columns[at].1 { " class=\"right\"" } else { "" }
        };
        self.text.push_str("<div class=\"wide\"><table>");
        if columns.iter().any(|(head, _, _)| !head.is_empty()) {
            let heads = row(&|at| format!("<th{}>{}</th>", class(at), escaped(&columns[at].0)));
            self.text.push_str(&format!("<thead><tr>{heads}</tr></thead>"));
        }
        self.push("<tbody>");
        for number in 0..rows {
            let cell = |at: usize| escaped(&columns[at].2[number]);
            let cells = row(&|at| format!("<td{}>{}</td>", class(at), cell(at)));
            self.push(format!("<tr>{cells}</tr>"));
        }
        self.push("</tbody></table></div>");
    }
}

/// The command, to be run by another command; the shell's syntax goes through `sh -c`.
fn within(prefix: &str, line: &str) -> String {
    let (words, comment) = line.split_at(line.find("  # ").unwrap_or(line.len()));
    if ["&&", "$("].iter().any(|sign| words.contains(sign)) {
        return format!("{prefix}sh -c {}{comment}", shell_word(words));
    }
    format!("{prefix}{words}{comment}")
}

/// Escapes text so that Markdown shows it as it is.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (place, letter) in printable(text).chars().enumerate() {
        match letter {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '#' | '>' | '-' | '+' | '=' if place > 0 => plain.push(letter),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '>' | '-' | '+' | '=' => {
                plain.extend(['\\', letter]);
            }
            _ => plain.push(letter),
        }
    }
    plain
}

/// Text narrower than this is not filled, but overruns the page.
const MIN_ROOM: usize = 20;

/// Breaks at spaces, never within a word; at least one line.
pub(super) fn wrap(words: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
