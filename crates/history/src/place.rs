//! Where a history is.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where a history is. Shown without the password.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// In this file of SQLite.
    File(PathBuf),
    /// On the PostgreSQL server of this URL: `postgres://user@host/database`.
    Server(String),
}

impl From<OsString> for Place {
    /// A URL of PostgreSQL is a server; all else is a file.
    fn from(text: OsString) -> Self {
        let is_url = |text: &&str| SCHEMES.iter().any(|scheme| text.starts_with(scheme));
        match text.to_str().filter(is_url) {
            Some(url) => Self::Server(url.to_owned()),
            None => Self::File(text.into()),
        }
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        path.as_os_str().to_owned().into()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The password stands behind the user's name, or is a parameter.
fn without_password(url: &str) -> String {
    let (main, parameters) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = main.split_once("://").unwrap_or(("", main));
    let main = match rest.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{host}")
        }
        None => main.to_owned(),
    };
    let mut parameters: Vec<&str> = parameters.split('&').collect();
    parameters.retain(|it| !it.is_empty() && !it.starts_with("password="));
    if parameters.is_empty() {
        return main;
    }
    format!("{main}?{}", parameters.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_server_and_its_password_is_not_shown() {
        for (given, shown) in [
            ("postgres://me:a:b@db/x", "postgres://me@db/x"),
            (
                "postgres://me:p@w@db:5/x?connect_timeout=3",
                "postgres://me@db:5/x?connect_timeout=3",
            ),
            ("postgresql:///x?host=/run&password=p&user=u", "postgresql:///x?host=/run&user=u"),
        ] {
            let place = Place::from(OsString::from(given));
            assert_eq!(place, Place::Server(given.to_owned()));
            assert_eq!(place.to_string(), shown);
            assert_eq!(format!("{place:?}"), shown);
        }
        let file = Place::from(Path::new("h.db"));
        assert_eq!(file, Place::File("h.db".into()));
    }
}
