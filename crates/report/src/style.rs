//! How a page is to be written.

/// The properties of the medium that a page is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Width of the terminal in columns, at least 40. Commands to copy are never wrapped.
    pub width: usize,
    /// Emphasise by ANSI escape sequences.
    pub colour: bool,
    /// Show all evidence after the answer.
    pub details: bool,
    /// The page's format.
    pub form: Form,
    /// The command that shows the evidence, where `--details` would measure once more.
    pub evidence: Option<&'static str>,
    /// Prefix of each command on the page, for commands that are to run on a host of a lab.
    pub prefix: Option<&'static str>,
}

/// The format of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// Text for a terminal.
    #[default]
    Plain,
    /// A fragment of HTML for a browser.
    Html,
    /// Markdown for tickets and summaries of CI, as GitHub and GitLab render it.
    Markdown,
}

impl Style {
    /// Columns to fill, at least 40: in fewer, text would break after every word.
    pub(crate) fn columns(self) -> usize {
        match self.form {
            Form::Plain => self.width.max(40),
            // Programs that show these formats break the lines themselves.
            Form::Html | Form::Markdown => MANY,
        }
    }
}

/// Width for formats that have no columns.
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
