//! Error numbers that callers tell apart and [`std::io::ErrorKind`] does not.

pub use libc::{
    EAFNOSUPPORT, EINVAL, EMSGSIZE, ENOBUFS, ENODEV, ENOENT, ENOPROTOOPT, EPERM, EPROTO,
    EPROTONOSUPPORT, ESRCH,
};
