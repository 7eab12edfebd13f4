//! Pages as HTML or as Markdown. Every text is escaped here, so that no caller can forget it.

use std::fmt::Write;

use linerate_core::units::printable;

use super::Form;
use super::number::joined;
use super::page::Emphasis;
use super::table::Grid;
use crate::svg::escaped;

/// Writes a paragraph. `label` is `-` for an item of a list, `!` for a doubt, or a word.
pub(super) fn words(form: Form, page: &mut String, emphasis: Emphasis, label: &str, words: &str) {
    if emphasis == Emphasis::Command {
        return command(form, page, words);
    }
    let is_strong = emphasis == Emphasis::Strong;
    let _ = match form {
        Form::Markdown => {
            let words = plain(words);
            match label {
                "-" => writeln!(page, "- {words}\n"),
                "!" => writeln!(page, "> {words}\n"),
                "" if is_strong => writeln!(page, "**{words}**\n"),
                "" => writeln!(page, "{words}\n"),
                _ => writeln!(page, "**{}** {words}\n", plain(label)),
            }
        }
        Form::Html | Form::Plain => {
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
        }
    };
}

/// Writes a shell command to be copied.
pub(super) fn command(form: Form, page: &mut String, command: &str) {
    let lines: Vec<String> = command.lines().map(printable).collect();
    let command = lines.join("\n");
    let _ = if form == Form::Markdown {
        // Longer than any run of backquotes in the command.
        let fence = "`".repeat(3 + command.matches('`').count());
        writeln!(page, "{fence}sh\n{command}\n{fence}\n")
    } else {
        let lines = joined(lines.iter().map(|line| escaped(line)), "\n");
        writeln!(page, "<pre class=\"command\"><code>{lines}</code></pre>")
    };
}

/// Writes a table.
pub(super) fn table(form: Form, page: &mut String, grid: &Grid<'_>) {
    let rows = grid.columns.first().map_or(0, |(_, _, cells)| cells.len());
    if rows == 0 {
        return;
    }
    let row = |of: &dyn Fn(usize) -> String| (0..grid.columns.len()).map(of).collect::<String>();
    let is_right = |at: usize| grid.columns[at].1;
    let is_named = grid.columns.iter().any(|(head, _, _)| !head.is_empty());
    if form == Form::Markdown {
        let heads = row(&|at| format!(" {} |", plain(&grid.columns[at].0)));
        let rule = row(&|at| if is_right(at) { " ---: |" } else { " --- |" }.to_owned());
        let _ = writeln!(page, "|{heads}\n|{rule}");
        for number in 0..rows {
            let cells = row(&|at| format!(" {} |", plain(&grid.columns[at].2[number])));
            let _ = writeln!(page, "|{cells}");
        }
        page.push('\n');
        return;
    }
    let class = |at: usize| match is_right(at) {
        true => " class=\"right\"",
        false => "",
    };
    page.push_str("<div class=\"wide\"><table>");
    if is_named {
        let heads = row(&|at| format!("<th{}>{}</th>", class(at), escaped(&grid.columns[at].0)));
        let _ = write!(page, "<thead><tr>{heads}</tr></thead>");
    }
    page.push_str("<tbody>\n");
    for number in 0..rows {
        let cell = |at: usize| escaped(&grid.columns[at].2[number]);
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
