//! Resolution of the names of hosts, services and users.

use std::net::IpAddr;

use thiserror::Error;

/// Resolves the names of a file.
pub trait Names {
    /// The addresses of a host.
    ///
    /// # Errors
    /// It has none, or nobody could be asked.
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, NameError>;

    /// The ports of a service with one of these protocols, named as in `/etc/services`: `tcp`,
    /// `udp`, ….
    ///
    /// # Errors
    /// There is no such service, or nobody could be asked.
    fn ports(&mut self, service: &str, protocols: &[&str]) -> Result<Vec<u16>, NameError>;

    /// The number of a user.
    ///
    /// # Errors
    /// There is no such user, or nobody could be asked.
    fn uid(&mut self, user: &str) -> Result<u32, NameError>;
}

/// The reason why a name was not resolved, as the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NameError(pub String);

/// Resolves nothing: for files with numbers only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn addresses(&mut self, _: &str) -> Result<Vec<IpAddr>, NameError> {
        Err(not_asked())
    }

    fn ports(&mut self, _: &str, _: &[&str]) -> Result<Vec<u16>, NameError> {
        Err(not_asked())
    }

    fn uid(&mut self, _: &str) -> Result<u32, NameError> {
        Err(not_asked())
    }
}

fn not_asked() -> NameError {
    NameError("names are not looked up here".to_owned())
}
