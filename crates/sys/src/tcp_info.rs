//! `TCP_INFO`: what the kernel knows of a TCP connection.

use std::io;
use std::os::fd::AsFd;

use super::message::{u16_at, u32_at, u64_at};
use crate::socket::OptionError;

/// Length of `struct tcp_info` in Linux 6.18; longer answers are cut, shorter ones leave fields
/// out.
const LENGTH: usize = 280;

/// The fields of the kernel's `struct tcp_info` (include/uapi/linux/tcp.h) that were ever of use,
/// under their kernel names without `tcpi_`. `Option` fields came after Linux 4.9 and may be
/// missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Connection state, as `TCP_ESTABLISHED` = 1.
    pub state: u8,
    /// Congestion-avoidance state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Consecutive timeouts without progress.
    pub retransmits: u8,
    /// Timestamps are in use (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements are in use (RFC 2018).
    pub sack: bool,
    /// ECN was negotiated (RFC 3168).
    pub ecn: bool,
    /// Window scale of this end's sends and of its receives, if both ends scale (RFC 7323).
    pub window_scale: Option<(u8, u8)>,
    /// The newest delivery-rate sample was limited by the application.
    pub delivery_rate_app_limited: bool,
    /// Largest segment that this end sends, options taken off, bytes.
    pub snd_mss: u32,
    /// Segments in flight; of a listener: connections that wait to be accepted.
    pub unacked: u32,
    /// Segments in flight that were reported as arrived (SACK).
    pub sacked: u32,
    /// Segments in flight that are held for lost.
    pub lost: u32,
    /// Segments in flight that were retransmitted.
    pub retrans: u32,
    /// Path MTU, bytes.
    pub pmtu: u32,
    /// Slow-start threshold, segments.
    pub snd_ssthresh: u32,
    /// Smoothed round-trip time, µs.
    pub rtt: u32,
    /// Its mean deviation, µs.
    pub rttvar: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// MSS that this end advertised, bytes.
    pub advmss: u32,
    /// Reordering that is tolerated, segments.
    pub reordering: u32,
    /// Receiver's estimate of the round-trip time, µs.
    pub rcv_rtt: u32,
    /// Segments retransmitted, all in all.
    pub total_retrans: u32,
    /// Pacing rate, bytes/s.
    pub pacing_rate: u64,
    /// Limit of the pacing rate, bytes/s; all ones if there is none.
    pub max_pacing_rate: u64,
    /// Payload acknowledged, bytes.
    pub bytes_acked: u64,
    /// Payload received, bytes.
    pub bytes_received: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Bytes written and not yet sent.
    pub notsent_bytes: Option<u32>,
    /// Smallest round-trip time, µs.
    pub min_rtt: Option<u32>,
    /// Segments with payload sent.
    pub data_segs_out: Option<u32>,
    /// Delivery rate, bytes/s.
    pub delivery_rate: Option<u64>,
    /// Time with data to send or in flight, µs; includes the two limited times.
    pub busy_time: Option<u64>,
    /// Time limited by the receiver's window, µs.
    pub rwnd_limited: Option<u64>,
    /// Time limited by the send buffer, µs.
    pub sndbuf_limited: Option<u64>,
    /// Segments delivered.
    pub delivered: Option<u32>,
    /// Segments delivered with a congestion mark.
    pub delivered_ce: Option<u32>,
    /// Payload sent, retransmissions included, bytes.
    pub bytes_sent: Option<u64>,
    /// Payload retransmitted, bytes.
    pub bytes_retrans: Option<u64>,
    /// Retransmissions that the peer reported as spurious.
    pub dsack_dups: Option<u32>,
    /// Reordering events.
    pub reord_seen: Option<u32>,
    /// Segments received before one that precedes them.
    pub rcv_ooopack: Option<u32>,
    /// Window that the peer offers, bytes.
    pub snd_wnd: Option<u32>,
    /// Window that this end offers, before the limit of its scale, bytes.
    pub rcv_wnd: Option<u32>,
    /// Timeouts, all in all.
    pub total_rto: Option<u16>,
}

impl TcpInfo {
    /// As it was before the first segment: its counters are 0.
    pub fn before_all(self) -> Self {
        let none = |count: Option<u32>| count.map(|_| 0);
        let nothing = |count: Option<u64>| count.map(|_| 0);
        Self {
            total_retrans: 0,
            bytes_acked: 0,
            bytes_received: 0,
            segs_out: 0,
            segs_in: 0,
            data_segs_out: none(self.data_segs_out),
            busy_time: nothing(self.busy_time),
            rwnd_limited: nothing(self.rwnd_limited),
            sndbuf_limited: nothing(self.sndbuf_limited),
            delivered: none(self.delivered),
            delivered_ce: none(self.delivered_ce),
            bytes_sent: nothing(self.bytes_sent),
            bytes_retrans: nothing(self.bytes_retrans),
            dsack_dups: none(self.dsack_dups),
            reord_seen: none(self.reord_seen),
            rcv_ooopack: none(self.rcv_ooopack),
            total_rto: self.total_rto.map(|_| 0),
            ..self
        }
    }

    /// Reads the connection's figures.
    ///
    /// # Errors
    /// The socket is gone or is not TCP.
    pub fn read(socket: &impl AsFd) -> Result<Self, OptionError> {
        let mut bytes = [0; LENGTH];
        let length =
            crate::socket::read_bytes(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)
                .map_err(|source| OptionError::Read { option: "TCP_INFO", source })?;
        Self::parse(&bytes[..length]).ok_or_else(|| OptionError::Read {
            option: "TCP_INFO",
            source: io::ErrorKind::UnexpectedEof.into(),
        })
    }

    /// Reads the kernel's layout, of any length from Linux 4.9's on; `None` if it is shorter.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let byte = |offset: usize| bytes.get(offset).copied();
        let u32 = |offset| u32_at(bytes, offset);
        let u64 = |offset| u64_at(bytes, offset);
        let (options, scales) = (byte(5)?, byte(6)?);
        Some(Self {
            state: byte(0)?,
            ca_state: byte(1)?,
            retransmits: byte(2)?,
            timestamps: options & 1 != 0,
            sack: options & 2 != 0,
            ecn: options & 8 != 0,
            window_scale: (options & 4 != 0).then_some((scales & 15, scales >> 4)),
            delivery_rate_app_limited: byte(7)? & 1 != 0,
            snd_mss: u32(16)?,
            unacked: u32(24)?,
            sacked: u32(28)?,
            lost: u32(32)?,
            retrans: u32(36)?,
            pmtu: u32(60)?,
            rtt: u32(68)?,
            rttvar: u32(72)?,
            snd_ssthresh: u32(76)?,
            snd_cwnd: u32(80)?,
            advmss: u32(84)?,
            reordering: u32(88)?,
            rcv_rtt: u32(92)?,
            total_retrans: u32(100)?,
            pacing_rate: u64(104)?,
            max_pacing_rate: u64(112)?,
            bytes_acked: u64(120)?,
            bytes_received: u64(128)?,
            segs_out: u32(136)?,
            segs_in: u32(140)?,
            notsent_bytes: u32(144),
            min_rtt: u32(148),
            data_segs_out: u32(156),
            delivery_rate: u64(160),
            busy_time: u64(168),
            rwnd_limited: u64(176),
            sndbuf_limited: u64(184),
            delivered: u32(192),
            delivered_ce: u32(196),
            bytes_sent: u64(200),
            bytes_retrans: u64(208),
            dsack_dups: u32(216),
            reord_seen: u32(220),
            rcv_ooopack: u32(224),
            snd_wnd: u32(228),
            rcv_wnd: u32(232),
            total_rto: u16_at(bytes, 240),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_transfer_shows_in_the_figures() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let sender = std::thread::spawn(move || {
            client.write_all(&vec![0; 1_000_000]).unwrap();
            // One byte back says that all has arrived, and acknowledges it.
            client.read_exact(&mut [0]).unwrap();
            TcpInfo::read(&client).unwrap()
        });
        server.read_exact(&mut vec![0; 1_000_000]).unwrap();
        server.write_all(&[0]).unwrap();
        let receiver = TcpInfo::read(&server).unwrap();
        let sender = sender.join().unwrap();
        assert_eq!(sender.state, 1);
        assert_eq!(sender.bytes_acked, 1_000_000 + 1);
        // The FIN of the client that is gone may count as one more.
        assert!((1_000_000..=1_000_001).contains(&receiver.bytes_received));
        assert!(sender.data_segs_out.is_none_or(|segments| segments > 0));
        assert!(sender.timestamps && sender.sack);
        assert!(sender.snd_mss > 500 && sender.pmtu > sender.snd_mss);
        assert!(sender.min_rtt.is_none_or(|rtt| rtt > 0));
    }

    #[test]
    fn every_length_is_read_without_panic_and_shorter_ones_leave_fields_out() {
        let bytes = [1; 300];
        for length in 0..300 {
            let info = TcpInfo::parse(&bytes[..length]);
            assert_eq!(info.is_some(), length >= 144, "{length}");
            if let Some(info) = info {
                assert_eq!(info.snd_wnd.is_some(), length >= 232, "{length}");
            }
        }
    }
}
