//! Stub.

pub(crate) mod special;
