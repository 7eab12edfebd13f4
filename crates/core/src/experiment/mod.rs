//! Stub.

mod special;

pub use special::{FileTransfer, SPECIAL_FIGURES, Special};
