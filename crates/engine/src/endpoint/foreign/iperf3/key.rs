//! The private RSA key that decrypts the tokens of iperf3's users.
//!
//! Only this module needs a C library (docs/adr/0010-iperf3-auth-feature.md).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rsa::{
    OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, Pkcs1PrivateDecryptingKey, PrivateDecryptingKey,
};
use linerate_core::foreign::iperf3::from_base64;

use super::AccessError;

const NOT_RSA: AccessError = AccessError::Key("it is not an RSA key of 2048 to 8192 bits");

/// The key, for both paddings.
pub(super) struct PrivateKey {
    oaep: OaepPrivateDecryptingKey,
    pkcs1: Pkcs1PrivateDecryptingKey,
}

impl PrivateKey {
    pub(super) fn from_pem(pem: &str) -> Result<Self, AccessError> {
        let key = PrivateDecryptingKey::from_pkcs8(&pkcs8(pem)?).map_err(|_| NOT_RSA)?;
        Ok(Self {
            oaep: OaepPrivateDecryptingKey::new(key.clone()).map_err(|_| NOT_RSA)?,
            pkcs1: Pkcs1PrivateDecryptingKey::new(key).map_err(|_| NOT_RSA)?,
        })
    }

    pub(super) fn decrypt_oaep(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut plain = vec![0; self.oaep.min_output_size()];
        let text = self.oaep.decrypt(&OAEP_SHA1_MGF1SHA1, cipher, &mut plain, None);
        Some(text.ok()?.to_vec())
    }

    pub(super) fn decrypt_pkcs1(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut plain = vec![0; self.pkcs1.min_output_size()];
        Some(self.pkcs1.decrypt(cipher, &mut plain).ok()?.to_vec())
    }

    pub(super) fn sha256(&self, bytes: &[u8]) -> [u8; 32] {
        let mut result = [0; 32];
        result.copy_from_slice(digest(&SHA256, bytes).as_ref());
        result
    }
}

/// A key in PEM, converted to PKCS #8 (RFC 5958). Older files have the RSA key alone (PKCS #1, RFC
/// 8017, A.1.2).
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
        None => Err(AccessError::Key("it is not a private key in PEM")),
    }
}

/// A PKCS #1 key as PKCS #8: version 0, rsaEncryption, and the key as an octet string.
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

/// A DER value of less than 65,536 bytes, with its tag and length (X.690, 8.1.3).
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
