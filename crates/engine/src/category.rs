//! The exit status that an error deserves.

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
