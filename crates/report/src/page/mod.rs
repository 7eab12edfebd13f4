//! A page as blocks: sentences, labelled facts, lists, commands, tables and blank lines.
//! `render` lays them out.

mod render;
mod table;

use linerate_core::units::printable;

use crate::number::{NBSP, joined};

use crate::style::{Form, Style};
use table::Grid;
pub(crate) use table::table;
pub use table::{Cell, Head, Table};

/// How a line stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emphasis {
    /// Not at all.
    None,
    /// Headlines, verdicts.
    Strong,
    /// Doubts.
    Warning,
    /// Commands to copy.
    Command,
}

/// A part of a page.
#[derive(Debug)]
pub(crate) enum PageBlock {
    /// A blank line before the next block, unless the page begins there.
    Blank,
    /// The title of the blocks up to the next blank line; left out if there are none.
    Section(String),
    /// Words that fill the lines; all lines but the first are indented by `hang` columns.
    Words { emphasis: Emphasis, label: String, hang: usize, words: String },
    /// A command to copy, with a line for each of its lines.
    Command(String),
    /// Aligned columns.
    Table(Grid),
}

/// A page that is being written.
#[derive(Debug)]
pub struct Page {
    pub(crate) blocks: Vec<PageBlock>,
    pub(crate) style: Style,
    /// Whether rows that can be spared are left out until the page fits on a screen.
    pub(crate) is_screen: bool,
}

impl Page {
    /// An empty page.
    pub fn new(style: Style) -> Self {
        Self { blocks: Vec::new(), style, is_screen: false }
    }

    /// Makes the page fit on a screen of 24 lines by leaving out rows that can be
    /// [spared](Table::spare_rows), where no details are asked for.
    pub(crate) fn fit_screen(&mut self) {
        self.is_screen = self.style.form == Form::Plain && !self.has_details();
    }

    /// The page laid out as its style says.
    pub fn finish(self) -> String {
        render::page(&self)
    }

    /// The page's first sentence, on one line.
    pub(crate) fn answer(&self) -> Option<String> {
        let first = self.blocks.iter().find_map(|block| match block {
            PageBlock::Words { label, words, .. } => Some(format!("{} {words}", label.trim())),
            PageBlock::Section(title) => Some(title.clone()),
            PageBlock::Blank | PageBlock::Command(_) | PageBlock::Table(_) => None,
        })?;
        Some(printable(first.trim()).replace(NBSP, " "))
    }

    /// Whether the evidence follows the answer.
    pub(crate) fn has_details(&self) -> bool {
        self.style.details
    }

    /// How the evidence can be shown.
    pub(crate) fn place_of_evidence(&self) -> &'static str {
        if self.has_pictures() {
            return "below";
        }
        self.style.evidence.unwrap_or("--details")
    }

    /// Whether charts stand beside the text.
    pub(crate) fn has_pictures(&self) -> bool {
        self.style.form == Form::Html
    }

    /// Columns to fill.
    pub(crate) fn columns(&self) -> usize {
        self.style.columns()
    }

    /// Writes an empty line, unless the page begins here or has one already.
    pub fn gap(&mut self) {
        self.blocks.push(PageBlock::Blank);
    }

    /// Writes an empty line and the title of what follows up to the next one; nothing if nothing
    /// follows.
    pub(crate) fn section(&mut self, title: impl Into<String>) {
        self.blocks.push(PageBlock::Section(title.into()));
    }

    /// Writes words that fill the lines; all lines but the first are indented by `hang` columns.
    pub(crate) fn paragraph(&mut self, emphasis: Emphasis, label: &str, hang: usize, words: &str) {
        if !label.is_empty() || !words.is_empty() {
            self.blocks.push(PageBlock::Words {
                emphasis,
                label: label.to_owned(),
                hang,
                words: words.to_owned(),
            });
        }
    }

    /// Writes a line; one that does not fit is wrapped under its own indent.
    pub(crate) fn line(&mut self, emphasis: Emphasis, line: &str) {
        let words = line.trim_start();
        self.paragraph(emphasis, "", line.len() - words.len(), words);
    }

    /// Writes a line that stands out.
    pub fn title(&mut self, line: &str) {
        self.line(Emphasis::Strong, line);
    }

    /// Writes a line of figures.
    pub fn plain(&mut self, line: &str) {
        self.line(Emphasis::None, line);
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
    pub(crate) fn point(&mut self, words: &str) {
        self.paragraph(Emphasis::None, "  -", 4, words);
    }

    /// Writes a doubt.
    pub(crate) fn doubt(&mut self, words: &str) {
        self.paragraph(Emphasis::Warning, "  !", 4, words);
    }

    /// Writes a label in the left margin, and words beside it.
    pub(crate) fn entry(&mut self, label: &str, words: &str) {
        self.marked(Emphasis::None, label, words);
    }

    /// Writes a label in the left margin, and words beside it that stand out.
    pub(crate) fn marked(&mut self, emphasis: Emphasis, label: &str, words: &str) {
        self.paragraph(emphasis, &format!("  {label}"), MARGIN, words);
    }

    /// Writes a label in the left margin, and facts beside it; nothing without facts.
    pub(crate) fn facts<F: Into<Option<String>>>(
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
    pub(crate) fn indented(&mut self, words: &str) {
        self.paragraph(Emphasis::None, "", 2, words);
    }

    /// Writes a sentence below a heading that stands out.
    pub(crate) fn verdict(&mut self, words: &str) {
        self.paragraph(Emphasis::Strong, "", 2, words);
    }

    /// Writes items of a list below a verdict.
    pub(crate) fn evidence<'a>(&mut self, items: impl IntoIterator<Item = &'a String>) {
        for item in items {
            self.paragraph(Emphasis::None, "    -", 6, item);
        }
    }

    /// Writes sentences below a point.
    pub(crate) fn reason(&mut self, words: &str) {
        self.paragraph(Emphasis::None, "", 4, words);
    }

    /// Writes the number of rows that are left out, if there are any.
    pub(crate) fn left_out(&mut self, number: usize, what: &str) {
        if number > 0 {
            self.point(&format!("{number} {what} more, with --json"));
        }
    }

    /// Writes a command on lines of its own, never wrapped. A comment that does not fit stands
    /// below, as a comment that can be pasted too.
    pub(crate) fn command(&mut self, command: &str) {
        self.blocks.push(PageBlock::Command(command.to_owned()));
    }

    /// Writes a table, and how many columns do not fit; nothing without a row.
    pub fn table<R>(&mut self, table: &Table<R>) {
        self.blocks.push(PageBlock::Table(table.grid.clone()));
    }
}

/// Width of the labels of [`Page::entry`].
pub(crate) const MARGIN: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(width: usize) -> Page {
        Page::new(Style { width, colour: false, ..Style::default() })
    }

    #[test]
    fn nothing_from_a_peer_reaches_the_terminal_as_a_control() {
        let mut page = plain(80);
        page.line(Emphasis::Strong, "a\x1b]0;title\x07b\u{9b}31mc\r\nd\u{202e}e");
        page.command("rm\x1b[8m -rf\nls");
        assert_eq!(
            page.finish(),
            "a\\u{1b}]0;title\\u{7}b\\u{9b}31mc\\u{d}\\u{a}d\\u{202e}e\n    rm\\u{1b}[8m -rf\n    \
             ls\n"
        );
    }

    #[test]
    fn colour_only_surrounds_lines() {
        let mut page = Page::new(Style { width: 80, colour: true, ..Style::default() });
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
        let mut page =
            Page::new(Style { prefix: Some("linerate lab exec a -- "), ..Style::default() });
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

    #[test]
    fn the_answer_is_the_first_sentence_on_one_line_and_clean() {
        let mut page = plain(40);
        page.gap();
        let words = format!("12{NBSP}ms to a\x1b[2Jb; ") + &"long ".repeat(20);
        page.heading(&words);
        page.words("more");
        let answer = page.answer().unwrap();
        assert_eq!(answer, format!("12 ms to a\\u{{1b}}[2Jb; {}", ["long"; 20].join(" ")));
        assert_eq!(plain(40).answer(), None);
    }

    #[test]
    fn a_section_without_content_is_left_out() {
        let mut page = plain(40);
        page.words("a");
        page.section("empty");
        page.section("full");
        page.words("b");
        page.gap();
        assert_eq!(page.finish(), "a\n\nfull\nb\n");
    }

    #[test]
    fn rows_that_can_be_spared_go_first_where_a_page_is_to_fit_on_a_screen() {
        let mut page = plain(40);
        page.fit_screen();
        (0..20).for_each(|_| page.words("line"));
        let table = Table::of(0..10_u8).left("", |row| row.to_string());
        page.table(&table.spare_rows(|row| row / 3));
        let text = page.finish();
        assert_eq!(text.lines().count(), 23, "{text}");
        assert!(text.contains("  2\n") && !text.contains("  3\n"), "{text}");
    }
}
