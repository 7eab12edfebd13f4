//! Authorisation: the list of users, and the token that a client encrypts with the server's public
//! key.
//!
//! Decrypting the token is left to the caller. The list has the format of the reference server: a
//! line `user,digest` for each user, where the digest is the SHA-256 of `{user}password` in
//! hexadecimal digits.

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::BASE64_NOPAD;
use thiserror::Error;

use crate::units::FileError;
use crate::wire::{bytes_of_hex, is_same_secret};

/// Largest difference of a token's time, as at the reference server.
const SKEW: Duration = Duration::from_secs(10);
/// Longest name or password that a token can hold, bytes: more does not fit a key's block.
const MAX_FIELD: usize = 512;

/// The users who may test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, [u8; 32]>);

/// The content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password in clear.
    pub password: String,
    /// When the token was made, since 1970.
    pub made_at: Duration,
}

/// Why a client may not test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotAllowed {
    /// The token cannot be read.
    #[error("no token, or one that this key cannot read")]
    Token,
    /// The token is too old, or from the future.
    #[error("the token's time is more than {} s off", SKEW.as_secs())]
    Time,
    /// The client's address has sent too many wrong tokens.
    #[error("too many wrong tokens of this address: none is looked at for a minute")]
    Guesses,
    /// There is no such user, or the password is wrong.
    #[error("no such user, or a wrong password")]
    User,
}

impl Users {
    /// Reads the list; empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// The first line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let mut users = BTreeMap::new();
        for (line, entry) in (1..).zip(text.lines()) {
            let entry = entry.trim();
            if entry.is_empty() || entry.starts_with('#') {
                continue;
            }
            let fail = |what: &str| FileError::of_line(line, what);
            let (user, digits) =
                (entry.split_once(',')).ok_or_else(|| fail("it must be user,digest"))?;
            let digest = bytes_of_hex(digits.trim());
            let why = "the digest must be 64 hexadecimal digits";
            users.insert(user.trim().to_owned(), digest.ok_or_else(|| fail(why))?);
        }
        if users.is_empty() {
            return Err(FileError::of_line(1, "there is no user in it"));
        }
        Ok(Self(users))
    }

    /// Whether the client with this token may test at `now` (since 1970). `sha256` computes a
    /// digest.
    ///
    /// # Errors
    /// Why it may not.
    pub fn admit(
        &self,
        credentials: &Credentials,
        now: Duration,
        sha256: impl Fn(&[u8]) -> [u8; 32],
    ) -> Result<(), NotAllowed> {
        if credentials.made_at.abs_diff(now) > SKEW {
            return Err(NotAllowed::Time);
        }
        let Credentials { user, password, .. } = credentials;
        let digest = sha256(format!("{{{user}}}{password}").as_bytes());
        match self.0.get(user) {
            Some(known) if is_same_secret(known, &digest) => Ok(()),
            _ => Err(NotAllowed::User),
        }
    }
}

impl Credentials {
    /// Reads the text of a token; `None` if it is none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut lines = text.lines();
        let mut field = |name: &str| -> Option<String> {
            let value = lines.next()?.strip_prefix(name)?;
            (value.len() <= MAX_FIELD).then(|| value.to_owned())
        };
        Some(Self {
            user: field("user: ")?,
            password: field("pwd:  ")?,
            made_at: Duration::from_secs(field("ts:   ")?.trim().parse().ok()?),
        })
    }
}

/// The bytes of base64 (RFC 4648, section 4); blanks are skipped. `None` for what is none.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    BASE64_NOPAD.decode(text.trim_end_matches('=').as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No digest, but one that tells texts apart.
    fn sum(bytes: &[u8]) -> [u8; 32] {
        let mut digest = [0; 32];
        for (at, byte) in bytes.iter().enumerate() {
            digest[at % 32] ^= byte.rotate_left(at as u32 / 32);
        }
        digest
    }

    fn anna(password: &str, made_at: u64) -> Credentials {
        Credentials {
            user: "anna".into(),
            password: password.into(),
            made_at: Duration::from_secs(made_at),
        }
    }

    #[test]
    fn the_right_password_in_time_is_let_in_and_nothing_else() {
        let digest = sum(b"{anna}rain");
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let users = Users::parse(&format!("# who\n\nanna,{digits}\n")).unwrap();
        let now = Duration::from_secs(1000);
        assert_eq!(users.admit(&anna("rain", 1009), now, sum), Ok(()));
        assert_eq!(users.admit(&anna("rain", 1011), now, sum), Err(NotAllowed::Time));
        assert_eq!(users.admit(&anna("snow", 1000), now, sum), Err(NotAllowed::User));
        let mut nobody = anna("rain", 1000);
        nobody.user = "otto".into();
        assert_eq!(users.admit(&nobody, now, sum), Err(NotAllowed::User));
    }

    #[test]
    fn a_token_reads_as_it_was_written() {
        let credentials = anna("a b:c", 12);
        let text = "user: anna\npwd:  a b:c\nts:   12";
        assert_eq!(Credentials::parse(text.as_bytes()), Some(credentials));
        for other in ["", "user: a\npwd: b\nts:   1", "user: a\npwd:  b\nts:   x"] {
            assert_eq!(Credentials::parse(other.as_bytes()), None);
        }
    }

    #[test]
    fn base64_is_read_with_and_without_its_end() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9v\nYmFy\n", b"foobar"),
            ("+/+/", &[0xfb, 0xff, 0xbf]),
        ] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(from_base64("Zm9-"), None);
        assert_eq!(from_base64("Zg==Zg"), None);
    }

    #[test]
    fn a_list_that_is_none_is_refused_with_its_line() {
        for (text, line) in [("", 1), ("#\nanna", 2), ("anna,12", 1)] {
            assert_eq!(Users::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
