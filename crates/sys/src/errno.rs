//! Error numbers that callers tell apart and [`std::io::ErrorKind`] does not.

pub use libc::{
    EAFNOSUPPORT, EINVAL, EMSGSIZE, ENOBUFS, ENODEV, ENOPROTOOPT, EPERM, EPROTO, EPROTONOSUPPORT,
    ESRCH,
};
