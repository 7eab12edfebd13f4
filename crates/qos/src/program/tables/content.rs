//! The bytes of all tables.

use crate::rules::RuleError;

/// Most bytes; the verifier's bound on offsets is twice that.
const MAX_BYTES: usize = 256 << 20;

/// A growing buffer; each part starts at a multiple of eight.
#[derive(Debug, Default)]
pub(super) struct Content(Vec<u8>);

impl Content {
    /// Appends bytes and returns their position.
    pub(super) fn append(&mut self, bytes: &[u8]) -> u32 {
        let at = self.reserve(0);
        self.0.extend_from_slice(bytes);
        at
    }

    /// Appends that many zeros and returns their position.
    pub(super) fn reserve(&mut self, bytes: usize) -> u32 {
        let at = self.0.len().next_multiple_of(8);
        self.0.resize(at + bytes, 0);
        // A buffer that is too large is refused at the end.
        at as u32
    }

    pub(super) fn put_u32(&mut self, at: u32, value: u32) {
        let at = at as usize;
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// # Errors
    /// [`RuleError::TooLarge`].
    pub(super) fn check(&self) -> Result<(), RuleError> {
        if self.0.len() > MAX_BYTES { Err(RuleError::TooLarge { most: MAX_BYTES }) } else { Ok(()) }
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, RuleError> {
        self.reserve(0);
        self.check()?;
        Ok(self.0)
    }
}
