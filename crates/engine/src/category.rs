//! The exit status that an error deserves.

use std::error::Error;

/// Which exit status an error deserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// The run failed: refused, unreachable, timed out, peer lost.
    Failed,
    /// The command line names something that does not exist.
    Usage,
    /// This host lacks something.
    Missing,
}

/// An error that ends a command.
pub trait Categorized: Error + Send + Sync + 'static {
    /// Which exit status it deserves.
    fn category(&self) -> Category;
}
