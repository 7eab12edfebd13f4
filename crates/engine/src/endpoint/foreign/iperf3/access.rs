//! Who may test by iperf3's protocol: a list of users, and the private key of which their clients
//! have the public one.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_core::foreign::iperf3::{Credentials, NotAllowed, Users, UsersError, from_base64};
use thiserror::Error;

use super::key::PrivateKey;
use crate::endpoint::minute::Minutes;

/// Those who may test, and the key that reads their tokens.
pub struct Iperf3Access {
    users: Users,
    key: PrivateKey,
    allows_pkcs1: bool,
    /// Refused tokens by address.
    wrong: Mutex<Minutes>,
}

/// Wrong tokens that an address may send within a minute.
const GUESSES: u64 = 5;

impl fmt::Debug for Iperf3Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is nobody's to read.
        write!(f, "Iperf3Access({:?})", self.users)
    }
}

/// Files that give no access.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The list of users.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The key.
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
    /// From the text of both files: the users, and an RSA key of 2048 to 8192 bits in PEM, not
    /// encrypted. Tokens of clients before 3.17, padded by PKCS #1 v1.5, are read only if that is
    /// allowed: whoever can tell a right padding from a wrong one can decrypt others' tokens.
    ///
    /// # Errors
    /// One is not what it should be, or this program was built without the feature `iperf3-auth`.
    pub fn new(users: &str, key: &str, allows_pkcs1: bool) -> Result<Self, AccessError> {
        let users = Users::parse(users)?;
        let key = PrivateKey::from_pem(key)?;
        Ok(Self {
            users,
            key,
            allows_pkcs1,
            wrong: Mutex::default(),
        })
    }

    /// Whether a client with this token may test. After some wrong ones of its address none is
    /// looked at for a minute. Whatever is wrong with a token, the answer is the same, so that
    /// nobody can ask the key about others.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn admit(&self, token: Option<&str>, peer: IpAddr) -> Result<(), NotAllowed> {
        // Counts alone: a panic elsewhere cannot leave one half done.
        let wrong = || self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong().take_over(Instant::now());
        if wrong().count(peer) >= GUESSES {
            return Err(NotAllowed::Guesses);
        }
        self.look_at(token).inspect_err(|_| {
            wrong().note(peer, Instant::now());
        })
    }

    fn look_at(&self, token: Option<&str>) -> Result<(), NotAllowed> {
        let cipher = token.and_then(from_base64).ok_or(NotAllowed::Token)?;
        let credentials = self.read(&cipher).ok_or(NotAllowed::Token)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or(Duration::ZERO);
        self.users
            .admit(&credentials, now, |bytes| self.key.sha256(bytes))
    }

    /// Clients since 3.17 pad by OAEP: what reads as a token is one.
    fn read(&self, cipher: &[u8]) -> Option<Credentials> {
        let read = |plain: Option<Vec<u8>>| Credentials::parse(&plain?);
        let pkcs1 = || read((self.key.decrypt_pkcs1(cipher)).filter(|_| self.allows_pkcs1));
        read(self.key.decrypt_oaep(cipher)).or_else(pkcs1)
    }
}
