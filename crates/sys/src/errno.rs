//! Error numbers that callers tell apart and [`std::io::ErrorKind`] does not.

pub use libc::{EAFNOSUPPORT, EINVAL, ENODEV, ENOPROTOOPT, EPERM, EPROTONOSUPPORT, ESRCH};
