//! Error numbers that callers tell apart and [`std::io::ErrorKind`] does not.

pub use libc::{
    EACCES, EAFNOSUPPORT, EINVAL, EMFILE, EMSGSIZE, ENFILE, ENOBUFS, ENODEV, ENOENT, ENOMEM,
    ENOPROTOOPT, ENOSPC, EPERM, EPROTO, EPROTONOSUPPORT, ESRCH,
};
