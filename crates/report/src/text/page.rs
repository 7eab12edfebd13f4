//! A page of text. It contains no control characters but its own.

use linerate_core::remedy::shell_word;
use linerate_core::units::printable;

use super::markup;
use super::number::{NBSP, joined, plural};
use super::table::Table;
use super::{Form, Style};

/// How a line stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emphasis {
    /// Not at all.
    None,
    /// Headlines, verdicts.
    Strong,
    /// Doubts.
    Warning,
    /// Commands to copy.
    Command,
}

/// A page that is being written. Every text is cleaned here, so that no caller can forget it.
#[derive(Debug)]
pub struct Page {
    text: String,
    style: Style,
}

impl Page {
    /// An empty page.
    pub fn new(style: Style) -> Self {
        Self {
            text: String::new(),
            style,
        }
    }

    /// Writes one line, however long.
    pub(super) fn line(&mut self, emphasis: Emphasis, line: &str) {
        if self.style.form != Form::Plain {
            return markup::words(self.style.form, &mut self.text, emphasis, "", line.trim());
        }
        let line = printable(line).replace(NBSP, " ");
        let (on, off) = match (self.style.colour, emphasis) {
            (false, _) | (true, Emphasis::None) => ("", ""),
            (true, Emphasis::Strong) => ("\x1b[1m", "\x1b[0m"),
            (true, Emphasis::Warning) => ("\x1b[33m", "\x1b[0m"),
            (true, Emphasis::Command) => ("\x1b[36m", "\x1b[0m"),
        };
        self.text.push_str(on);
        self.text.push_str(line.trim_end());
        self.text.push_str(off);
        self.text.push('\n');
    }

    /// Writes an empty line, unless the page begins here or has one already.
    pub fn gap(&mut self) {
        let is_plain = self.style.form == Form::Plain;
        if is_plain && !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Writes words that fill the lines; all lines but the first are indented by `hang` columns.
    pub(super) fn paragraph(&mut self, emphasis: Emphasis, first: &str, hang: usize, words: &str) {
        if self.style.form != Form::Plain {
            let (form, label) = (self.style.form, first.trim());
            return markup::words(form, &mut self.text, emphasis, label, words);
        }
        let room = self.style.columns().saturating_sub(hang).max(MIN_ROOM);
        let words = printable(words).replace(" %", "\u{a0}%");
        let mut first = first;
        for line in wrap(&words, room) {
            self.line(emphasis, &format!("{first:<hang$}{line}"));
            first = "";
        }
    }

    /// Whether the evidence follows the answer.
    pub(super) fn has_details(&self) -> bool {
        self.style.details
    }

    /// How the evidence can be shown.
    pub(super) fn place_of_evidence(&self) -> &'static str {
        if self.has_pictures() {
            return "below";
        }
        self.style.evidence.unwrap_or("--details")
    }

    /// Whether charts stand beside the text.
    pub(super) fn has_pictures(&self) -> bool {
        self.style.form == Form::Html
    }

    /// Columns to fill.
    pub(super) fn columns(&self) -> usize {
        self.style.columns()
    }

    /// Writes a line that stands out.
    pub fn title(&mut self, line: &str) {
        self.fitted(Emphasis::Strong, line);
    }

    /// Writes a line of figures.
    pub fn plain(&mut self, line: &str) {
        self.fitted(Emphasis::None, line);
    }

    /// Writes a line as it is if it fits, else wraps it under its own indent; nothing if it is
    /// empty.
    fn fitted(&mut self, emphasis: Emphasis, line: &str) {
        if line.is_empty() {
            return;
        }
        if line.chars().count() <= self.style.columns() {
            return self.line(emphasis, line);
        }
        let words = line.trim_start();
        let indent = line.chars().count() - words.chars().count();
        self.paragraph(emphasis, "", indent, words);
    }

    /// Writes a sentence that stands out.
    pub fn heading(&mut self, words: &str) {
        self.paragraph(Emphasis::Strong, "", 0, words);
    }

    /// Writes sentences.
    pub fn words(&mut self, words: &str) {
        self.paragraph(Emphasis::None, "", 0, words);
    }

    /// Writes an item of a list.
    pub(super) fn point(&mut self, words: &str) {
        self.paragraph(Emphasis::None, "  -", 4, words);
    }

    /// Writes a doubt.
    pub(super) fn doubt(&mut self, words: &str) {
        self.paragraph(Emphasis::Warning, "  !", 4, words);
    }

    /// Writes a label in the left margin, and words beside it.
    pub(super) fn entry(&mut self, label: &str, words: &str) {
        self.paragraph(Emphasis::None, &format!("  {label}"), MARGIN, words);
    }

    /// Writes a label in the left margin, and facts beside it; nothing without facts.
    pub(super) fn facts<F: Into<Option<String>>>(
        &mut self,
        label: &str,
        facts: impl IntoIterator<Item = F>,
    ) {
        let facts = joined(facts, ", ");
        if !facts.is_empty() {
            self.entry(label, &facts);
        }
    }

    /// Writes sentences below a heading.
    pub(super) fn indented(&mut self, words: &str) {
        self.paragraph(Emphasis::None, "", 2, words);
    }

    /// Writes a sentence below a heading that stands out.
    pub(super) fn verdict(&mut self, words: &str) {
        self.paragraph(Emphasis::Strong, "", 2, words);
    }

    /// Writes items of a list below a verdict.
    pub(super) fn evidence<'a>(&mut self, items: impl IntoIterator<Item = &'a String>) {
        for item in items {
            self.paragraph(Emphasis::None, "    -", 6, item);
        }
    }

    /// Writes sentences below a point.
    pub(super) fn reason(&mut self, words: &str) {
        self.paragraph(Emphasis::None, "", 4, words);
    }

    /// Writes the number of rows that are left out, if there are any.
    pub(super) fn left_out(&mut self, number: usize, what: &str) {
        if number > 0 {
            self.point(&format!("{number} {what} more, with --json"));
        }
    }

    /// Writes a command on lines of its own, never wrapped. A comment that does not fit stands
    /// below, as a comment that can be pasted too.
    pub(super) fn command(&mut self, command: &str) {
        if self.style.form != Form::Plain {
            return markup::command(self.style.form, &mut self.text, command);
        }
        // A command for the endpoint's host says so in its comment; it is not run in the lab.
        let prefix = self.style.prefix.filter(|_| !command.contains("  # on "));
        for line in command.lines() {
            let line = prefix.map_or_else(|| line.to_owned(), |prefix| within(prefix, line));
            let room = self.style.columns().saturating_sub(4);
            let is_long = line.chars().count() > room;
            match line.split_once("  # ").filter(|_| is_long) {
                Some((words, comment)) => {
                    self.line(Emphasis::Command, &format!("    {words}"));
                    for line in wrap(comment, room.saturating_sub(2)) {
                        self.line(Emphasis::None, &format!("    # {line}"));
                    }
                }
                None => self.line(Emphasis::Command, &format!("    {line}")),
            }
        }
    }

    /// Writes a table, and how many columns do not fit.
    pub fn table<R>(&mut self, table: &Table<R>) {
        if self.style.form != Form::Plain {
            return markup::table(self.style.form, &mut self.text, &table.grid());
        }
        let layout = table.layout(self.style.columns());
        let (heads, rows) = (layout.heads(), layout.rows());
        heads
            .iter()
            .for_each(|line| self.line(Emphasis::Strong, line));
        rows.iter().for_each(|line| self.line(Emphasis::None, line));
        if layout.left_out > 0 {
            let columns = plural(layout.left_out as u64, "column");
            self.plain(&format!(
                "  {columns} more in a wider terminal, or with --json"
            ));
        }
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
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

/// Width of the labels of [`Page::entry`].
pub(super) const MARGIN: usize = 13;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(width: usize) -> Page {
        Page::new(Style {
            width,
            colour: false,
            ..Style::default()
        })
    }

    #[test]
    fn nothing_from_a_peer_reaches_the_terminal_as_a_control() {
        let mut page = plain(80);
        page.line(
            Emphasis::Strong,
            "a\x1b]0;title\x07b\u{9b}31mc\r\nd\u{202e}e",
        );
        page.command("rm\x1b[8m -rf\nls");
        assert_eq!(
            page.finish(),
            "a\\u{1b}]0;title\\u{7}b\\u{9b}31mc\\u{d}\\u{a}d\\u{202e}e\n    rm\\u{1b}[8m -rf\n    \
             ls\n"
        );
    }

    #[test]
    fn colour_only_surrounds_lines() {
        let mut page = Page::new(Style {
            width: 80,
            colour: true,
            ..Style::default()
        });
        page.line(Emphasis::Warning, "doubt");
        page.line(Emphasis::None, "plain");
        assert_eq!(page.finish(), "\x1b[33mdoubt\x1b[0m\nplain\n");
    }

    #[test]
    fn paragraphs_hang_and_keep_numbers_with_their_units() {
        let mut page = plain(40);
        let words = format!("smallest 29.0{NBSP}ms, mean 29.4{NBSP}ms, largest 312{NBSP}ms");
        page.facts("rtt", [words]);
        assert_eq!(
            page.finish(),
            "  rtt        smallest 29.0 ms, mean\n             29.4 ms, largest 312 ms\n"
        );
    }

    #[test]
    fn commands_are_never_broken() {
        let long = "sysctl -w ".to_owned() + &"x".repeat(200);
        let mut page = plain(40);
        page.command(&long);
        assert_eq!(page.finish(), format!("    {long}\n"));
    }

    #[test]
    fn a_comment_without_room_stands_below_its_command() {
        let mut page = plain(40);
        page.command("linerate stream pit --pacing 9mbit  # no faster, but without the queue");
        page.command("linerate stream pit  # short");
        assert_eq!(
            page.finish(),
            "    linerate stream pit --pacing 9mbit\n    # no faster, but without the queue\n    \
             linerate stream pit  # short\n"
        );
    }

    #[test]
    fn a_command_for_a_host_of_a_lab_is_run_there() {
        let mut page = Page::new(Style {
            prefix: Some("linerate lab exec a -- "),
            ..Style::default()
        });
        page.command("linerate stream b -P 4  # if faster");
        page.command("modprobe tcp_bbr && linerate stream b -C bbr");
        page.command("linerate host set k=1  # on the endpoint's host");
        assert_eq!(
            page.finish(),
            "    linerate lab exec a -- linerate stream b -P 4  # if faster\n    linerate lab exec \
             a \
             -- sh -c 'modprobe tcp_bbr && linerate stream b -C bbr'\n    linerate host set k=1  # \
             on the endpoint's host\n"
        );
    }

    #[test]
    fn blank_lines_are_single() {
        let mut page = plain(40);
        page.gap();
        page.line(Emphasis::None, "a");
        page.gap();
        page.gap();
        page.line(Emphasis::None, "b");
        assert_eq!(page.finish(), "a\n\nb\n");
    }
}
