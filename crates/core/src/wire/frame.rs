//! Frames: type, length, body.

use super::WireError;

/// Bytes before the body: type, and a 24-bit big-endian length.
const FRAME_HEADER: usize = 4;

/// The content of a frame's body, with its byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A message in clear.
    Clear = 1,
    /// A message of the Noise handshake.
    Handshake,
    /// A message, encrypted.
    Sealed,
}

/// A whole frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The content of the body.
    pub kind: FrameKind,
    /// The body.
    pub body: Vec<u8>,
}

impl Frame {
    /// The bytes to send; `None` if the length of the body does not fit 24 bits.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let length = u32::try_from(self.body.len()).ok()?;
        let length = Some(length).filter(|length| *length < 1 << 24)?;
        let mut bytes = Vec::with_capacity(FRAME_HEADER + self.body.len());
        bytes.extend_from_slice(&((self.kind as u32) << 24 | length).to_be_bytes());
        bytes.extend_from_slice(&self.body);
        Some(bytes)
    }
}

/// Assembles frames from pieces of any size. It holds at most one frame and what came with it.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were handed out. They go with the next push: moving the rest down
    /// after each frame would let a peer of many small frames cost time with the square of their
    /// number.
    taken: usize,
    limit: usize,
}

impl FrameReader {
    /// A reader that accepts bodies of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, limit }
    }

    /// Changes the limit for the next frames.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes bytes from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// After one the stream is useless: the next frame cannot be found.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let waiting = &self.buffer[self.taken..];
        let Some(&first) = waiting.first() else {
            return Ok(None);
        };
        // Before the length is complete, so that another protocol is known by its first byte.
        let kind = match first {
            1 => FrameKind::Clear,
            2 => FrameKind::Handshake,
            3 => FrameKind::Sealed,
            other => return Err(WireError::FrameKind(other)),
        };
        let Some(header) = waiting.first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let length = (u32::from_be_bytes(*header) & 0x00ff_ffff) as usize;
        if length > self.limit {
            return Err(WireError::FrameTooLong { length, limit: self.limit });
        }
        let end = FRAME_HEADER + length;
        let Some(body) = waiting.get(FRAME_HEADER..end) else {
            return Ok(None);
        };
        let body = body.to_vec();
        self.taken += end;
        Ok(Some(Frame { kind, body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6),
            cut in 1usize..50,
        ) {
            let frames: Vec<Frame> = bodies
                .into_iter()
                .map(|body| Frame { kind: FrameKind::Clear, body })
                .collect();
            let wire: Vec<u8> = frames.iter().flat_map(|f| f.encode().unwrap()).collect();
            let mut reader = FrameReader::new(200);
            let mut seen = Vec::new();
            for piece in wire.chunks(cut) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(seen, frames);
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_by_its_header_alone() {
        let mut reader = FrameReader::new(100);
        reader.push(&[1, 0, 0, 101]);
        assert_eq!(reader.next_frame(), Err(WireError::FrameTooLong { length: 101, limit: 100 }));
    }

    #[test]
    fn another_protocol_is_known_by_its_first_byte() {
        let mut reader = FrameReader::new(100);
        reader.push(b"H");
        assert_eq!(reader.next_frame(), Err(WireError::FrameKind(b'H')));
    }
}
