use super::*;
use crate::netns::{Pair, pair_or_skip};

fn open(host: &crate::netns::Host) -> PacketSocket {
    host.namespace
        .run(|| PacketSocket::open(Pair::LINK))
        .unwrap()
        .unwrap()
}

#[test]
fn frame_sent_comes_out_byte_for_byte() {
    let Some(pair) = pair_or_skip() else { return };
    let (mut a, mut b) = (open(&pair.a), open(&pair.b));
    for length in [60, 1514] {
        let frame = test_frame(length);
        let before = monotonic_ns();
        let outgoing = Outgoing {
            header: VirtioHeader::default(),
            frame: &frame,
        };
        assert_eq!(a.send(&[outgoing]).unwrap(), 1);
        let arrived_ns = receive_test_frame(&mut b, &frame);
        assert!((before - 1_000_000..monotonic_ns() + 1_000_000).contains(&arrived_ns));
    }
}

/// Of an EtherType for local experiments (IEEE 802), so that no stack answers.
fn test_frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0xFF; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xB5]);
    frame.extend((frame.len()..length).map(|i| (i % 251) as u8));
    frame
}

/// Waits for that frame, past what the hosts send by themselves, and answers when it arrived.
fn receive_test_frame(socket: &mut PacketSocket, expected: &[u8]) -> u64 {
    let deadline = monotonic_ns() + 10_000_000_000;
    while monotonic_ns() < deadline {
        if let Some(received) = socket.receive().unwrap()
            && received.frame[12..14] == [0x88, 0xB5]
        {
            assert_eq!(received.frame, expected);
            assert_eq!(received.header, VirtioHeader::default());
            return received.arrived_ns;
        }
    }
    panic!("the frame did not arrive");
}
