//! Frames and messages over a byte stream, in clear or sealed.

use std::collections::VecDeque;

use serde::Serialize;

use crate::wire::{Frame, FrameKind, FrameReader, Seal};

use super::SessionError;

/// Converts bytes to messages and back. It knows neither which end is the client nor what messages
/// mean.
#[derive(Debug)]
pub(super) struct Channel {
    reader: FrameReader,
    seal: Option<Seal>,
    out: VecDeque<Vec<u8>>,
}

/// What has come in.
pub(super) enum Incoming<M> {
    Message(M),
    /// A message of the Noise handshake, which was taken.
    Handshake,
}

impl Channel {
    pub(super) fn new(limit: usize, seal: Option<Seal>) -> Self {
        Self { reader: FrameReader::new(limit), seal, out: VecDeque::new() }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.reader.set_limit(limit);
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Drops the seal, to send to a peer without the key.
    pub(super) fn unseal(&mut self) {
        self.seal = None;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.reader.push(bytes);
    }

    pub(super) fn send_raw(&mut self, bytes: Vec<u8>) {
        self.out.push_back(bytes);
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    pub(super) fn send_handshake(&mut self) -> Result<(), SessionError> {
        let Some(seal) = &mut self.seal else {
            return Ok(());
        };
        let body = seal.write_handshake()?;
        self.send_frame(FrameKind::Handshake, body)
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), SessionError> {
        let body = serde_json::to_vec(message)
            .map_err(|error| SessionError::Message(error.to_string()))?;
        match &mut self.seal {
            Some(seal) => {
                let sealed = seal.seal(&body)?;
                self.send_frame(FrameKind::Sealed, sealed)
            }
            None => self.send_frame(FrameKind::Clear, body),
        }
    }

    fn send_frame(&mut self, kind: FrameKind, body: Vec<u8>) -> Result<(), SessionError> {
        let bytes = Frame { kind, body }
            .encode()
            .ok_or_else(|| SessionError::Message("longer than a frame can be".to_owned()))?;
        self.out.push_back(bytes);
        Ok(())
    }

    /// The next whole message. On a sealed channel a clear message is accepted only before the end
    /// of the handshake: it can only be the peer's refusal.
    pub(super) fn next<M>(
        &mut self,
        parse: fn(&[u8]) -> serde_json::Result<M>,
    ) -> Result<Option<Incoming<M>>, SessionError> {
        let Some(frame) = self.reader.next_frame()? else {
            return Ok(None);
        };
        let ready = self.seal.as_ref().is_some_and(Seal::is_ready);
        let body = match (frame.kind, &mut self.seal) {
            (FrameKind::Handshake, Some(seal)) if !ready => {
                seal.read_handshake(&frame.body)?;
                return Ok(Some(Incoming::Handshake));
            }
            (FrameKind::Sealed, Some(seal)) if ready => seal.open(&frame.body)?,
            (FrameKind::Clear, None) => frame.body,
            (FrameKind::Clear, Some(_)) if !ready => frame.body,
            (FrameKind::Handshake | FrameKind::Sealed, None) => {
                return Err(SessionError::Key("the peer encrypts and this end does not"));
            }
            _ => return Err(SessionError::OutOfTurn("a frame of the wrong kind")),
        };
        parse(&body)
            .map(|message| Some(Incoming::Message(message)))
            // The error quotes the peer, and ends in a log.
            .map_err(|error| {
                SessionError::Message(error.to_string().chars().take(QUOTED).collect())
            })
    }
}

/// Longest text about a message that cannot be read, characters.
const QUOTED: usize = 300;
