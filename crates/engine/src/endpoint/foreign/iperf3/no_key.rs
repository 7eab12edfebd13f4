//! Stands for `key.rs` if the feature `iperf3-auth` is off: there is no key.

use super::AccessError;

/// A key, of which there is none.
pub(super) enum PrivateKey {}

impl PrivateKey {
    pub(super) fn from_pem(_: &str) -> Result<Self, AccessError> {
        Err(AccessError::NotBuilt)
    }

    pub(super) fn decrypt_oaep(&self, _: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }

    pub(super) fn decrypt_pkcs1(&self, _: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }

    pub(super) fn sha256(&self, _: &[u8]) -> [u8; 32] {
        match *self {}
    }
}
