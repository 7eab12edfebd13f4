//! The data behind the quoted packet: ICMP extensions (RFC 4884), of which MPLS labels (RFC 4950)
//! are parsed.

use super::probe::MplsLabel;
use linerate_units::checksum::{fold, sum};

/// Class and type of the MPLS label stack (RFC 4950, section 3).
const MPLS: [u8; 2] = [1, 1];
const VERSION: u8 = 2;
/// Maximum number of labels, more than routers push; further ones are ignored.
const MAX_LABELS: usize = 16;
/// Offset of extensions in messages of routers that predate the length field (RFC 4884, section
/// 5.5).
const OLD_QUOTE: usize = 128;

/// Splits the body of an ICMP error, from its 9th byte, into the quoted packet and the labels.
/// `length` is the message's length field, bytes; 0 if it has none.
pub(super) fn split(body: &[u8], length: usize) -> (&[u8], Vec<MplsLabel>) {
    if length > 0 {
        return match body.split_at_checked(length) {
            Some((quote, extension)) => (quote, labels(extension, false).unwrap_or_default()),
            None => (body, Vec::new()),
        };
    }
    // Only with a correct checksum: otherwise the bytes may be the packet's own payload.
    let old = body.split_at_checked(OLD_QUOTE);
    match old.and_then(|(quote, extension)| Some((quote, labels(extension, true)?))) {
        Some(found) => found,
        None => (body, Vec::new()),
    }
}

/// Parses the label stack of an extension structure; `None` if it is not one.
fn labels(extension: &[u8], needs_checksum: bool) -> Option<Vec<MplsLabel>> {
    let header: &[u8; 4] = extension.first_chunk()?;
    let has_checksum = header[2..] != [0, 0];
    let is_right = fold(sum(extension)) == 0xffff;
    if header[0] >> 4 != VERSION || has_checksum && !is_right || needs_checksum && !has_checksum {
        return None;
    }
    let mut rest = &extension[4..];
    let mut labels = Vec::new();
    while let Some(object) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([object[0], object[1]]));
        let Some((object, next)) = rest.split_at_checked(length.max(4)) else {
            break;
        };
        if object[2..4] == MPLS {
            labels.extend(object[4..].as_chunks::<4>().0.iter().map(label));
        }
        rest = next;
    }
    labels.truncate(MAX_LABELS);
    Some(labels)
}

fn label(entry: &[u8; 4]) -> MplsLabel {
    let bits = u32::from_be_bytes(*entry);
    MplsLabel {
        label: bits >> 12,
        traffic_class: (bits >> 9 & 7) as u8,
        is_bottom: bits & 0x100 != 0,
        ttl: bits as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Label 24,015, class 5, bottom, TTL 1 in one object, with a right checksum.
    fn extension() -> Vec<u8> {
        let mut bytes = vec![0x20, 0, 0, 0, 0, 8, 1, 1];
        bytes.extend_from_slice(&(24_015_u32 << 12 | 5 << 9 | 1 << 8 | 1).to_be_bytes());
        let checksum = !fold(sum(&bytes));
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    const LABEL: MplsLabel = MplsLabel { label: 24_015, traffic_class: 5, is_bottom: true, ttl: 1 };

    fn body(quote: usize, extension: &[u8]) -> Vec<u8> {
        let mut body = vec![0x45; quote];
        body.extend_from_slice(extension);
        body
    }

    #[test]
    fn labels_stand_behind_the_length_that_the_message_gives() {
        let (bytes, extension) = (body(64, &extension()), extension());
        let (quote, labels) = split(&bytes, 64);
        assert_eq!((quote.len(), labels), (64, vec![LABEL]));
        let (quote, labels) = split(&bytes, 65);
        assert_eq!((quote.len(), labels.len()), (65, 0), "no extension there");
        assert_eq!(split(&extension, 500), (&extension[..], Vec::new()));
    }

    #[test]
    fn old_routers_put_them_after_128_bytes_and_only_a_right_checksum_tells() {
        let right = body(OLD_QUOTE, &extension());
        assert_eq!(split(&right, 0), (&right[..OLD_QUOTE], vec![LABEL]));
        let mut wrong = right.clone();
        wrong[OLD_QUOTE + 11] ^= 1;
        assert_eq!(split(&wrong, 0), (&wrong[..], Vec::new()));
        let mut without = right;
        without[OLD_QUOTE + 2..OLD_QUOTE + 4].fill(0);
        assert_eq!(split(&without, 0), (&without[..], Vec::new()));
    }

    #[test]
    fn objects_of_other_classes_are_passed_over_and_a_cut_one_ends_it() {
        let mut bytes = vec![0x20, 0, 0, 0, 0, 8, 2, 15, 9, 9, 9, 9];
        bytes.extend_from_slice(&extension()[4..]);
        assert_eq!(labels(&bytes, false), Some(vec![LABEL]));
        assert_eq!(labels(&bytes[..bytes.len() - 1], false), Some(Vec::new()));
    }
}
