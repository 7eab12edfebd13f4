//! Protects the control traffic of tests from damage that no checksum detects. A control message
//! that arrives changed would end the test without saying anything about the path.

use std::collections::HashSet;
use std::net::SocketAddr;

use linerate_core::link::frame;
use linerate_core::wire::{Hello, HelloKind};

/// The control connections that were seen on a link. The first bytes of data connections are
/// protected as well.
#[derive(Debug, Default)]
pub(super) struct Spared(HashSet<[SocketAddr; 2]>);

impl Spared {
    /// Notes a packet that comes in: it may begin a control connection.
    pub(super) fn note(&mut self, frame: &[u8]) {
        if let (Some(HelloKind::Control { .. }), Some(ends)) = (hello(frame), ends(frame)) {
            self.0.insert(ends);
        }
    }

    /// Whether a packet must not be damaged.
    pub(super) fn has(&self, frame: &[u8]) -> bool {
        ends(frame).is_some_and(|ends| self.0.contains(&ends)) || hello(frame).is_some()
    }
}

/// The key of a connection, which is the same in both directions.
fn ends(frame: &[u8]) -> Option<[SocketAddr; 2]> {
    let mut ends = frame::layout(frame)?.ends(frame)?;
    ends.sort();
    Some(ends)
}

fn hello(frame: &[u8]) -> Option<HelloKind> {
    let payload = frame::layout(frame)?.payload(frame)?;
    let hello = Hello::decode(payload.first_chunk()?).ok()?;
    Some(hello.kind)
}
