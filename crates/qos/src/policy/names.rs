//! Resolution of the names of hosts, services and users.

use std::net::IpAddr;

/// Resolves the names of a file. An error is the reason, as the end of a sentence.
pub trait Names {
    /// The addresses of a host.
    ///
    /// # Errors
    /// It has none, or nobody could be asked.
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, String>;

    /// The ports of a service with one of these protocols, named as in `/etc/services`: `tcp`,
    /// `udp`, ….
    ///
    /// # Errors
    /// There is no such service, or nobody could be asked.
    fn ports(&mut self, service: &str, protocols: &[&str]) -> Result<Vec<u16>, String>;

    /// The number of a user.
    ///
    /// # Errors
    /// There is no such user, or nobody could be asked.
    fn uid(&mut self, user: &str) -> Result<u32, String>;
}

/// Resolves nothing: for files with numbers only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn addresses(&mut self, _: &str) -> Result<Vec<IpAddr>, String> {
        Err(not_asked())
    }

    fn ports(&mut self, _: &str, _: &[&str]) -> Result<Vec<u16>, String> {
        Err(not_asked())
    }

    fn uid(&mut self, _: &str) -> Result<u32, String> {
        Err(not_asked())
    }
}

fn not_asked() -> String {
    "names are not looked up here".to_owned()
}
