//! What a link and its routers do to the bytes of Ethernet frames.
//!
//! Pure functions on bytes from any kernel: nothing here panics, whatever the bytes.
//!
//! | module | what is in it |
//! |---|---|
//! | `layout` | where the headers are |
//! | `checksum` | the Internet checksum: computed, completed, updated, taken for verified |
//! | `segment` | frames of segmentation offload cut to their segments |
//! | `damage` | ECN marks and flipped bits |
//! | `router` | answers to packets that are too big, and fragments |

mod checksum;
mod damage;
mod layout;
mod router;
mod segment;

pub use checksum::{complete_checksum, mark_verified};
pub use damage::{corrupt, mark_ce};
pub use layout::{Gso, Layout, Offload, layout};
pub use router::{RouterAddresses, fragments, too_big};
pub use segment::{Cutter, segment_count};

/// Length of an Ethernet header, bytes.
const ETHERNET: usize = 14;
/// Protocol numbers (IANA).
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// The two bytes at `at` in network order; `None` past the end.
fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

/// Writes two bytes at `at`; does nothing past the end.
fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(pair) = bytes.get_mut(at..at.saturating_add(2)) {
        pair.copy_from_slice(&value.to_be_bytes());
    }
}
