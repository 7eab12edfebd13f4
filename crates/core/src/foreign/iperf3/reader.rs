//! Splits the bytes of the control connection into messages.

/// Most bytes that may wait for their turn.
const MAX_WAITING: usize = 64 << 10;

/// Takes bytes, and gives states and JSON when asked. Its errors say in words what is wrong.
#[derive(Debug, Default)]
pub(super) struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// Takes bytes. The next message may have up to `wanted` bytes.
    pub(super) fn push(&mut self, bytes: &[u8], wanted: usize) -> Result<(), String> {
        if self.buffer.len() + bytes.len() > wanted + MAX_WAITING {
            return Err("more bytes than there was anything to say".to_owned());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        if self.buffer.is_empty() {
            return None;
        }
        Some(self.buffer.remove(0))
    }

    /// Two 32-bit numbers, as they follow an error.
    pub(super) fn numbers(&mut self) -> Option<(i32, i32)> {
        let bytes: [u8; 8] = *self.buffer.first_chunk()?;
        self.buffer.drain(..8);
        let number = |at: usize| i32::from_be_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        Some((number(0), number(4)))
    }

    /// JSON of at most `limit` bytes; `None` until it is whole.
    pub(super) fn json(&mut self, limit: usize) -> Result<Option<Vec<u8>>, String> {
        let Some(head) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length > limit {
            return Err(format!("JSON of {length} bytes, where at most {limit} are taken"));
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        let rest = self.buffer.split_off(4 + length);
        let whole = std::mem::replace(&mut self.buffer, rest);
        Ok(Some(whole[4..].to_vec()))
    }
}

/// JSON, preceded by its length.
pub(super) fn framed(json: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + json.len());
    bytes.extend_from_slice(&(json.len() as u32).to_be_bytes());
    bytes.extend_from_slice(json);
    bytes
}
