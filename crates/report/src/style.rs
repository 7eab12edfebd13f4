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
}

impl Style {
    /// Columns to fill; narrower text would be broken at each word.
    pub(crate) fn columns(self) -> usize {
        self.width.max(40)
    }
}

impl Default for Style {
    /// The answer in 80 columns without colour: for pipes and files.
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            details: false,
        }
    }
}
