//! Who may test by iperf3's protocol: a list of users, and the private key of which their clients
//! have the public one.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rsa::{
    OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, Pkcs1PrivateDecryptingKey, PrivateDecryptingKey,
};
use linerate_core::foreign::iperf3::{Credentials, NotAllowed, Users, UsersError, from_base64};
use thiserror::Error;

/// Those who may test, and the key that reads their tokens.
pub struct Iperf3Access {
    users: Users,
    oaep: OaepPrivateDecryptingKey,
    pkcs1: Pkcs1PrivateDecryptingKey,
}

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
}

impl Iperf3Access {
    /// From the text of both files: the users, and an RSA key of 2048 to 8192 bits in PEM, not
    /// encrypted.
    ///
    /// # Errors
    /// One is not what it should be.
    pub fn new(users: &str, key: &str) -> Result<Self, AccessError> {
        let users = Users::parse(users)?;
        let fail = |_| AccessError::Key("it is no RSA key of 2048 to 8192 bits");
        let key = PrivateDecryptingKey::from_pkcs8(&pkcs8(key)?)
            .map_err(|_| AccessError::Key("it is no RSA key of 2048 to 8192 bits"))?;
        Ok(Self {
            users,
            oaep: OaepPrivateDecryptingKey::new(key.clone()).map_err(fail)?,
            pkcs1: Pkcs1PrivateDecryptingKey::new(key).map_err(fail)?,
        })
    }

    /// Whether a client with this token may test. Whatever is wrong with a token, the answer is the
    /// same, so that nobody can ask the key about others.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn admit(&self, token: Option<&str>) -> Result<(), NotAllowed> {
        let cipher = token.and_then(from_base64).ok_or(NotAllowed::Token)?;
        let credentials = self.read(&cipher).ok_or(NotAllowed::Token)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or(Duration::ZERO);
        self.users.admit(&credentials, now, sha256)
    }

    /// Clients since 3.17 pad by OAEP, older ones by PKCS #1 v1.5: what reads as a token is one.
    fn read(&self, cipher: &[u8]) -> Option<Credentials> {
        let mut plain = vec![0; self.oaep.min_output_size()];
        let oaep = self
            .oaep
            .decrypt(&OAEP_SHA1_MGF1SHA1, cipher, &mut plain, None);
        if let Some(credentials) = oaep.ok().and_then(|text| Credentials::parse(text)) {
            return Some(credentials);
        }
        let mut plain = vec![0; self.pkcs1.min_output_size()];
        let pkcs1 = self.pkcs1.decrypt(cipher, &mut plain);
        pkcs1.ok().and_then(|text| Credentials::parse(text))
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut result = [0; 32];
    result.copy_from_slice(digest(&SHA256, bytes).as_ref());
    result
}

/// The key in PEM as PKCS #8 (RFC 5958); an older file has the RSA key alone (PKCS #1, RFC 8017,
/// A.1.2).
fn pkcs8(pem: &str) -> Result<Vec<u8>, AccessError> {
    let inside = |label: &str| {
        let (_, rest) = pem.split_once(&format!("-----BEGIN {label}-----"))?;
        let (body, _) = rest.split_once("-----END")?;
        from_base64(body)
    };
    if let Some(key) = inside("PRIVATE KEY") {
        return Ok(key);
    }
    if pem.contains("ENCRYPTED") {
        return Err(AccessError::Key(
            "it is encrypted: openssl rsa -in FILE -out PLAIN makes one that is not",
        ));
    }
    match inside("RSA PRIVATE KEY") {
        Some(key) => Ok(wrapped(&key)),
        None => Err(AccessError::Key("it is no private key in PEM")),
    }
}

/// Version 0, rsaEncryption, and the key as an octet string.
fn wrapped(key: &[u8]) -> Vec<u8> {
    const SEQUENCE: u8 = 0x30;
    const OCTETS: u8 = 0x04;
    const HEAD: [u8; 18] = [
        0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01,
        0x01, 0x05, 0x00,
    ];
    let mut body = HEAD.to_vec();
    body.extend(tagged(OCTETS, key));
    tagged(SEQUENCE, &body)
}

/// A DER value with its tag and length (X.690, 8.1.3); all here are longer than 127 bytes and
/// shorter than 65,536.
fn tagged(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = (value.len() as u16).to_be_bytes();
    let mut bytes = match value.len() {
        0..128 => vec![tag, length[1]],
        128..256 => vec![tag, 0x81, length[1]],
        _ => vec![tag, 0x82, length[0], length[1]],
    };
    bytes.extend_from_slice(value);
    bytes
}
