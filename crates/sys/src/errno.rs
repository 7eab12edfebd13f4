//! Error numbers that callers tell apart and [`std::io::ErrorKind`] does not.

pub use libc::{EAFNOSUPPORT, ENOPROTOOPT, EPROTONOSUPPORT};
