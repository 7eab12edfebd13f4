//! Lays out the blocks of a page: as text for a terminal, as HTML or as Markdown. Every text is
//! cleaned or escaped here, so that no caller can forget it.

use std::fmt::Write;

use linerate_core::remedy::shell_word;
use linerate_core::units::printable;

use super::number::{NBSP, joined, plural};
use super::page::{Block, Emphasis, Page};
use super::table::Grid;
use super::{Form, Style};
use crate::svg::escaped;

/// The page in its form. A page that is to fit on a screen loses its spare rows, those of the
/// highest rank first, and as a last resort its blank lines.
pub(super) fn page(page: &Page) -> String {
    if !page.is_screen {
        return laid_out(page, u8::MAX);
    }
    let ranks = page.blocks.iter().filter_map(|block| match block {
        Block::Table(grid) => Some(grid.highest_row_rank()),
        _ => None,
    });
    let mut pages = (0..=ranks.max().unwrap_or(0))
        .rev()
        .map(|rank| laid_out(page, rank));
    let fitting = pages.find(|text| text.lines().count() <= SCREEN);
    fitting.unwrap_or_else(|| laid_out(page, 0).replace("\n\n", "\n"))
}

/// Lines of a terminal.
const SCREEN: usize = 24;

/// The page without the rows above a rank.
fn laid_out(page: &Page, highest: u8) -> String {
    let (mut text, mut is_apart, mut title) = (String::new(), false, None);
    for block in &page.blocks {
        match block {
            Block::Blank => (is_apart, title) = (true, None),
            Block::Section(words) => (is_apart, title) = (true, Some(words)),
            block => {
                let written = written(page.style, block, highest);
                if written.is_empty() {
                    continue;
                }
                if std::mem::take(&mut is_apart)
                    && page.style.form == Form::Plain
                    && !text.is_empty()
                {
                    text.push('\n');
                }
                if let Some(title) = title.take() {
                    words(page.style, &mut text, Emphasis::Strong, "", 0, title);
                }
                text.push_str(&written);
            }
        }
    }
    text
}

fn written(style: Style, block: &Block, highest: u8) -> String {
    let mut text = String::new();
    match block {
        Block::Blank | Block::Section(_) => {}
        Block::Words {
            emphasis,
            label,
            hang,
            words: of,
        } => words(style, &mut text, *emphasis, label, *hang, of),
        Block::Command(of) => command(style, &mut text, of),
        Block::Table(grid) => table(style, &mut text, grid, highest),
    }
    text
}

/// Writes a paragraph. In Markdown and HTML, its label is `-` for an item of a list, `!` for a
/// doubt, or a word.
fn words(
    style: Style,
    page: &mut String,
    emphasis: Emphasis,
    label: &str,
    hang: usize,
    words: &str,
) {
    match style.form {
        Form::Plain => filled(style, page, emphasis, label, hang, words),
        form => paragraph(form, page, emphasis, label.trim(), words),
    }
}

/// Writes words that fill the lines of a terminal.
fn filled(
    style: Style,
    page: &mut String,
    emphasis: Emphasis,
    label: &str,
    hang: usize,
    words: &str,
) {
    let words = printable(words).replace(" %", "\u{a0}%");
    let room = style.columns().saturating_sub(hang);
    if words.chars().count() <= room {
        return line(style, page, emphasis, &format!("{label:<hang$}{words}"));
    }
    let mut label = label;
    for words in wrap(&words, room.max(MIN_ROOM)) {
        line(style, page, emphasis, &format!("{label:<hang$}{words}"));
        label = "";
    }
}

/// Writes one line of a terminal, however long.
fn line(style: Style, page: &mut String, emphasis: Emphasis, line: &str) {
    let line = printable(line).replace(NBSP, " ");
    let (on, off) = match (style.colour, emphasis) {
        (false, _) | (true, Emphasis::None) => ("", ""),
        (true, Emphasis::Strong) => ("\x1b[1m", "\x1b[0m"),
        (true, Emphasis::Warning) => ("\x1b[33m", "\x1b[0m"),
        (true, Emphasis::Command) => ("\x1b[36m", "\x1b[0m"),
    };
    let _ = writeln!(page, "{on}{}{off}", line.trim_end());
}

fn paragraph(form: Form, page: &mut String, emphasis: Emphasis, label: &str, words: &str) {
    let is_strong = emphasis == Emphasis::Strong;
    let _ = if form == Form::Markdown {
        let words = plain(words);
        match label {
            "-" => writeln!(page, "- {words}\n"),
            "!" => writeln!(page, "> {words}\n"),
            "" if is_strong => writeln!(page, "**{words}**\n"),
            "" => writeln!(page, "{words}\n"),
            _ => writeln!(page, "**{}** {words}\n", plain(label)),
        }
    } else {
        let (words, label) = (escaped(words), escaped(label));
        let class = match (label.as_str(), emphasis) {
            ("-", _) => "point",
            ("!", _) | (_, Emphasis::Warning) => "doubt",
            ("", Emphasis::Strong) => "strong",
            ("", _) => "",
            (_, Emphasis::Strong) => "fact strong",
            _ => "fact",
        };
        match label.as_str() {
            "" | "-" | "!" => writeln!(page, "<p class=\"{class}\">{words}</p>"),
            _ => writeln!(
                page,
                "<p class=\"{class}\"><b>{label}</b> <span>{words}</span></p>"
            ),
        }
    };
}

/// Writes a shell command to be copied.
fn command(style: Style, page: &mut String, command: &str) {
    let lines: Vec<String> = command.lines().map(printable).collect();
    let _ = match style.form {
        Form::Plain => return commands(style, page, &lines),
        Form::Markdown => {
            // Longer than any run of backquotes in the command.
            let fence = "`".repeat(3 + command.matches('`').count());
            writeln!(page, "{fence}sh\n{}\n{fence}\n", lines.join("\n"))
        }
        Form::Html => {
            let lines = joined(lines.iter().map(|line| escaped(line)), "\n");
            writeln!(page, "<pre class=\"command\"><code>{lines}</code></pre>")
        }
    };
}

/// Writes commands that are never wrapped; a comment that does not fit stands below.
fn commands(style: Style, page: &mut String, lines: &[String]) {
    // A command for the endpoint's host says so in its comment; it is not run in the lab.
    let is_elsewhere = lines.iter().any(|line| line.contains("  # on "));
    let prefix = style.prefix.filter(|_| !is_elsewhere);
    for command in lines {
        let command = prefix.map_or_else(|| command.clone(), |prefix| within(prefix, command));
        let room = style.columns().saturating_sub(4);
        let is_long = command.chars().count() > room;
        let (words, comment) = match command.split_once("  # ").filter(|_| is_long) {
            Some((words, comment)) => (words, wrap(comment, room.saturating_sub(2))),
            None => (command.as_str(), Vec::new()),
        };
        line(style, page, Emphasis::Command, &format!("    {words}"));
        for comment in comment {
            line(style, page, Emphasis::None, &format!("    # {comment}"));
        }
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

fn table(style: Style, page: &mut String, grid: &Grid, highest: u8) {
    match style.form {
        Form::Plain => {
            let layout = grid.layout(style.columns(), highest);
            layout
                .heads
                .iter()
                .for_each(|head| line(style, page, Emphasis::Strong, head));
            layout
                .rows
                .iter()
                .for_each(|row| line(style, page, Emphasis::None, row));
            if layout.left_out > 0 {
                let columns = plural(layout.left_out as u64, "column");
                let hint = format!("{columns} more in a wider terminal, or with --json");
                filled(style, page, Emphasis::None, "", 2, &hint);
            }
        }
        form => marked_up(form, page, &grid.columns()),
    }
}

fn marked_up(form: Form, page: &mut String, columns: &[(String, bool, &[String])]) {
    let rows = columns.first().map_or(0, |(_, _, cells)| cells.len());
    if rows == 0 {
        return;
    }
    let row = |of: &dyn Fn(usize) -> String| (0..columns.len()).map(of).collect::<String>();
    if form == Form::Markdown {
        let heads = row(&|at| format!(" {} |", plain(&columns[at].0)));
        let rule = row(&|at| if columns[at].1 { " ---: |" } else { " --- |" }.to_owned());
        let _ = writeln!(page, "|{heads}\n|{rule}");
        for number in 0..rows {
            let cells = row(&|at| format!(" {} |", plain(&columns[at].2[number])));
            let _ = writeln!(page, "|{cells}");
        }
        page.push('\n');
        return;
    }
    let class = |at: usize| {
        if columns[at].1 {
            " class=\"right\""
        } else {
            ""
        }
    };
    page.push_str("<div class=\"wide\"><table>");
    if columns.iter().any(|(head, _, _)| !head.is_empty()) {
        let heads = row(&|at| format!("<th{}>{}</th>", class(at), escaped(&columns[at].0)));
        let _ = write!(page, "<thead><tr>{heads}</tr></thead>");
    }
    page.push_str("<tbody>\n");
    for number in 0..rows {
        let cell = |at: usize| escaped(&columns[at].2[number]);
        let cells = row(&|at| format!("<td{}>{}</td>", class(at), cell(at)));
        let _ = writeln!(page, "<tr>{cells}</tr>");
    }
    page.push_str("</tbody></table></div>\n");
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
