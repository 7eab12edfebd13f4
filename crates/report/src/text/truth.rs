//! How often verdicts were right, and what remedies brought.

use linerate_core::truth::Score;

use super::Style;
use crate::document::Document;

impl Document for Score {
    fn text(&self, _: Style) -> String {
        Score::text(self)
    }
}
