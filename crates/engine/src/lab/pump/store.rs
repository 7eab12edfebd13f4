//! The bytes of the packets on their way: a slab with a limit, whose buffers are used again.

use linerate_core::link::frame::Offload;

/// The most bytes on their way in one direction: 40 Gbit/s for 100 ms.
const MAX_BYTES: usize = 512 << 20;
/// Buffers kept for use again.
const SPARE: usize = 4096;

/// A frame on its way.
#[derive(Debug)]
pub(super) struct StoredFrame {
    /// The offloads that are still to be done.
    pub(super) offload: Offload,
    /// The whole Ethernet frame.
    pub(super) bytes: Vec<u8>,
}

/// Frames by the handle that the link knows them by.
#[derive(Debug, Default)]
pub(super) struct Store {
    frames: Vec<Option<StoredFrame>>,
    free: Vec<usize>,
    spare: Vec<Vec<u8>>,
    held_bytes: usize,
}

impl Store {
    /// An empty buffer.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Keeps a frame; the frame itself comes back if there is no room.
    pub(super) fn put(&mut self, frame: StoredFrame) -> Result<u64, StoredFrame> {
        if self.held_bytes + frame.bytes.len() > MAX_BYTES {
            return Err(frame);
        }
        self.held_bytes += frame.bytes.len();
        let index = match self.free.pop() {
            Some(index) => {
                self.frames[index] = Some(frame);
                index
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() - 1
            }
        };
        Ok(index as u64)
    }

    /// Takes the frame out; its handle is free then.
    pub(super) fn take(&mut self, id: u64) -> Option<StoredFrame> {
        let index = usize::try_from(id).ok()?;
        let frame = self.frames.get_mut(index)?.take()?;
        self.held_bytes -= frame.bytes.len();
        self.free.push(index);
        Some(frame)
    }

    /// A copy of the frame of that handle.
    pub(super) fn copy(&mut self, id: u64) -> Option<StoredFrame> {
        let mut bytes = self.buffer();
        let frame = self.frames.get(usize::try_from(id).ok()?)?.as_ref()?;
        bytes.extend_from_slice(&frame.bytes);
        Some(StoredFrame { offload: frame.offload, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> StoredFrame {
        StoredFrame { offload: Offload::default(), bytes: vec![7; length] }
    }

    #[test]
    fn a_handle_is_good_until_its_frame_is_taken() {
        let mut store = Store::default();
        let id = store.put(frame(10)).unwrap();
        assert_eq!(store.copy(id).unwrap().bytes, [7; 10]);
        assert_eq!(store.take(id).unwrap().bytes, [7; 10]);
        assert!(store.take(id).is_none() && store.copy(id).is_none());
        assert!(store.take(u64::MAX).is_none());
    }

    #[test]
    fn no_more_is_held_than_allowed() {
        let mut store = Store::default();
        let big = MAX_BYTES / 2;
        let first = store.put(frame(big)).unwrap();
        store.put(frame(big)).unwrap();
        assert_eq!(store.put(frame(1)).unwrap_err().bytes.len(), 1);
        store.take(first).unwrap();
        store.put(frame(big)).unwrap();
    }
}
