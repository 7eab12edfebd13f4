//! Who may test by iperf3's protocol: a list of users, and a private key, whose public key their
//! clients have.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_core::foreign::iperf3::{Credentials, NotAllowed, Users, from_base64};
use linerate_core::units::FileError;
use thiserror::Error;

use super::key::PrivateKey;
use crate::endpoint::clients::Guesses;

/// The users who may test, and the key that decrypts their tokens.
pub struct Iperf3Access {
    users: Users,
    key: PrivateKey,
    allows_pkcs1: bool,
    /// Refused tokens.
    guesses: Guesses,
}

impl fmt::Debug for Iperf3Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key, which must not be printed.
        write!(f, "Iperf3Access({:?})", self.users)
    }
}

/// Why the files give no access.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The list of users is wrong.
    #[error(transparent)]
    Users(#[from] FileError),
    /// The key is wrong.
    #[error("{0}")]
    Key(&'static str),
    /// This program cannot decrypt tokens.
    #[error(
        "this linerate was built without the users of iperf3; \
         build it with: cargo build --release --features iperf3-auth"
    )]
    NotBuilt,
}

impl Iperf3Access {
    /// Reads the text of both files: the users, and an RSA key of 2048 to 8192 bits in PEM, not
    /// encrypted. Tokens of iperf3 before 3.17, which are padded by PKCS #1 v1.5, are accepted only
    /// if `allows_pkcs1`: whoever can tell a right padding from a wrong one can decrypt the tokens
    /// of others.
    ///
    /// # Errors
    /// A file is wrong, or this program was built without the feature `iperf3-auth`.
    pub fn new(users: &str, key: &str, allows_pkcs1: bool) -> Result<Self, AccessError> {
        let users = Users::parse(users)?;
        let key = PrivateKey::from_pem(key)?;
        Ok(Self { users, key, allows_pkcs1, guesses: Guesses::default() })
    }

    /// Whether a client with this token may test. After some wrong tokens from an address none is
    /// checked for a minute. All errors of a token have the same answer, so that nobody can use the
    /// endpoint to find out about the tokens of others.
    ///
    /// # Errors
    /// Why the client may not test.
    pub(super) fn admit(&self, token: Option<&str>, peer: IpAddr) -> Result<(), NotAllowed> {
        if self.guesses.are_used_up(peer) {
            return Err(NotAllowed::Guesses);
        }
        let checked = self.check(token);
        checked.inspect_err(|_| self.guesses.note_wrong(peer))
    }

    fn check(&self, token: Option<&str>) -> Result<(), NotAllowed> {
        let cipher = token.and_then(from_base64).ok_or(NotAllowed::Token)?;
        let credentials = self.read(&cipher).ok_or(NotAllowed::Token)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.users.admit(&credentials, now, |bytes| self.key.sha256(bytes))
    }

    /// Clients since 3.17 pad by OAEP. A text that parses as credentials is taken for a token.
    fn read(&self, cipher: &[u8]) -> Option<Credentials> {
        let read = |plain: Option<Vec<u8>>| Credentials::parse(&plain?);
        let pkcs1 = || read((self.key.decrypt_pkcs1(cipher)).filter(|_| self.allows_pkcs1));
        read(self.key.decrypt_oaep(cipher)).or_else(pkcs1)
    }
}
