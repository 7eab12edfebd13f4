//! What a page is written for.

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal. Below 40 it is taken as 40; commands to copy are never broken.
    pub width: usize,
    /// Emphasise by ANSI escape sequences.
    pub colour: bool,
    /// The evidence after the answer: all there is.
    pub details: bool,
    /// How it is written.
    pub form: Form,
    /// What is typed to read the evidence, where `--details` would measure once more. It lasts as
    /// long as the program.
    pub evidence: Option<&'static str>,
    /// What stands before a command of the page: it is for a host of a lab.
    pub prefix: Option<&'static str>,
}

/// What reads a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// A terminal.
    #[default]
    Plain,
    /// A browser: the part of a document of HTML.
    Html,
    /// A ticket or a summary of CI: Markdown as GitHub and GitLab have it.
    Markdown,
}

impl Style {
    /// Columns to fill; narrower text would be broken at each word.
    pub(crate) fn columns(self) -> usize {
        match self.form {
            Form::Plain => self.width.max(40),
            // Whoever reads it breaks the lines.
            Form::Html | Form::Markdown => MANY,
        }
    }
}

/// Columns of what has none.
const MANY: usize = 1000;

impl Default for Style {
    /// The answer in 80 columns without colour: for pipes and files.
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            details: false,
            form: Form::Plain,
            evidence: None,
            prefix: None,
        }
    }
}
