//! What can be wrong with what a user asks of a host, before anything is changed.

use thiserror::Error;

/// A setting that there is not, or a value that it does not take. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostError {
    /// It is not `KEY=VALUE`.
    #[error("{text}: it must be KEY=VALUE, such as net.ipv4.tcp_sack=1")]
    Malformed {
        /// What was given.
        text: String,
    },
    /// The table has no such setting.
    #[error("there is no setting `{key}`; {hint}")]
    Unknown {
        /// The key.
        key: String,
        /// A key that looks like it, or where the list is.
        hint: String,
    },
    /// The value is of another kind, or out of range.
    #[error("{key}={value}: it must be {wanted}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Kind and range.
        wanted: String,
    },
    /// It is not for this program to change.
    #[error("`{key}` cannot be set here: {why}")]
    NotSettable {
        /// The key.
        key: String,
        /// Why, and what changes it.
        why: &'static str,
    },
    /// It is given twice.
    #[error("`{key}` is given twice")]
    Repeated {
        /// The key.
        key: String,
    },
    /// There are more than anybody sets at once.
    #[error(
        "{count} settings are given; at most {} may be",
        super::MAX_ASSIGNMENTS
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A file of sysctl.d can only hold kernel settings.
    #[error(
        "`{key}` cannot be kept over a reboot by a file of sysctl.d, which holds kernel settings \
         alone: use a udev rule, \
         a systemd.link file or the service that brings the device up"
    )]
    NotPersistent {
        /// The key.
        key: String,
    },
}
