//! Readings of one TCP socket, of linerate or of another program, and the evidence that they make.

use std::net::TcpStream;

use linerate_core::record::{TcpEvidence, TcpReceiver, TcpSample, TcpSender};
use linerate_core::session::message::keep_every_second;
use linerate_core::stats::variation;
use linerate_sys::socket;
use linerate_sys::tcp_info::TcpInfo;

use super::flow::{FlowSocket, FlowState};
use super::options::WindowKeeper;

/// A reading of a sender: `TCP_INFO`, and the memory of the send queue, which is not in it.
#[derive(Debug, Clone, Copy)]
struct SenderReading {
    at_ns: u64,
    info: TcpInfo,
    send_queue: Option<u32>,
}

/// Readings of a socket, as the sender or as the receiver.
#[derive(Debug, Clone, Default)]
pub(crate) struct TcpReadings {
    begin: Option<TcpInfo>,
    readings: Vec<SenderReading>,
    unread: Vec<u32>,
    /// A receiver's estimates of the round-trip time, µs, from the moment that it has one.
    receiver_rtts: Vec<u32>,
    last: Option<TcpInfo>,
    largest_window: u64,
    /// A sender's largest window since the connection began.
    opened_window: u64,
}

/// Facts of a sender's socket that are read once, at the end.
#[derive(Debug, Default)]
pub(crate) struct SenderFacts {
    pub(crate) congestion: Option<String>,
    pub(crate) buffer_bytes: u64,
    pub(crate) buffer_locked: bool,
    pub(crate) subflows: Option<u32>,
    pub(crate) mptcp_fallback: Option<bool>,
}

/// Facts of a receiver's socket that are read once, at the end.
#[derive(Debug, Default)]
pub(crate) struct ReceiverFacts {
    pub(crate) congestion: Option<String>,
    pub(crate) buffer_bytes: Option<u64>,
    pub(crate) buffer_locked: bool,
}

impl TcpReadings {
    pub(crate) fn begin(&mut self, info: Option<TcpInfo>) {
        self.begin = info;
        self.last = info;
        info.iter().for_each(|info| self.open(info));
    }

    /// Takes note of the window that a sender is offered, also before the measured time.
    fn open(&mut self, info: &TcpInfo) {
        self.opened_window = self.opened_window.max(info.snd_wnd.unwrap_or(0).into());
    }

    /// Adds a reading of a sender.
    pub(crate) fn sender(&mut self, at_ns: u64, info: TcpInfo, send_queue: Option<u32>) {
        self.last = Some(info);
        self.open(&info);
        self.largest_window = self.largest_window.max(info.snd_wnd.unwrap_or(0).into());
        self.readings.push(SenderReading { at_ns, info, send_queue });
    }

    /// Adds a reading of a receiver, with the bytes that wait unread.
    pub(crate) fn receiver(&mut self, info: TcpInfo, unread: Option<u32>) {
        self.last = Some(info);
        self.largest_window = self.largest_window.max(info.rcv_wnd.unwrap_or(0).into());
        self.unread.extend(unread);
        self.receiver_rtts.extend(Some(info.rcv_rtt).filter(|rtt| *rtt > 0));
    }

    pub(crate) fn thin_out(&mut self) {
        keep_every_second(&mut self.readings);
        keep_every_second(&mut self.unread);
        keep_every_second(&mut self.receiver_rtts);
    }

    /// `None` without a reading.
    pub(crate) fn receiver_evidence(&mut self, facts: ReceiverFacts) -> Option<TcpReceiver> {
        let end = self.begin.and(self.last)?;
        Some(TcpReceiver {
            advmss_bytes: end.advmss,
            mss_bytes: end.snd_mss,
            pmtu_bytes: end.pmtu,
            rtt_min_us: end.min_rtt.filter(|rtt| *rtt != u32::MAX),
            rtt_mean_us: mean(self.receiver_rtts.iter().copied()),
            congestion: facts.congestion,
            window_bytes: Some(self.largest_window).filter(|w| *w > 0),
            buffer_bytes: facts.buffer_bytes,
            unread_bytes: median(&mut self.unread).map(u64::from),
            buffer_locked: facts.buffer_locked,
        })
    }

    /// `None` without a reading. `bytes` is the payload that this end moved.
    pub(crate) fn sender_evidence(&self, facts: SenderFacts, bytes: u64) -> Option<TcpSender> {
        let (begin, end) = (self.begin?, self.last?);
        let options = [
            (end.timestamps, "timestamps"),
            (end.sack, "sack"),
            (end.window_scale.is_some(), "wscale"),
            (end.ecn, "ecn"),
        ];
        let mut sender = TcpSender {
            congestion: facts.congestion,
            mss_bytes: end.snd_mss,
            advmss_bytes: end.advmss,
            pmtu_bytes: end.pmtu,
            rtt_min_us: end.min_rtt.filter(|rtt| *rtt != u32::MAX),
            rtt_mean_us: end.rtt,
            rtt_var_us: end.rttvar,
            send_buffer_bytes: facts.buffer_bytes,
            send_buffer_locked: facts.buffer_locked,
            options: options
                .iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| (*name).to_owned())
                .collect(),
            subflows: facts.subflows,
            mptcp_fallback: facts.mptcp_fallback,
            ..TcpSender::default()
        };
        self.differences(&mut sender, &begin, &end, bytes);
        self.medians(&mut sender, &end);
        Some(sender)
    }

    fn differences(&self, evidence: &mut TcpSender, begin: &TcpInfo, end: &TcpInfo, bytes: u64) {
        let grown =
            |pick: fn(&TcpInfo) -> Option<u64>| Some(pick(end)?.saturating_sub(pick(begin)?));
        let segments = grown(|i| i.data_segs_out.map(u64::from));
        let sent = grown(|i| i.bytes_sent).unwrap_or(bytes);
        evidence.data_segments_out = segments;
        evidence.effective_segment_bytes =
            segments.filter(|segments| *segments > 0).map(|segments| sent as f64 / segments as f64);
        evidence.segments_in = grown(|i| Some(i.segs_in.into()));
        evidence.samples = Some(self.readings.len() as u64);
        evidence.retransmitted_segments = grown(|i| Some(i.total_retrans.into())).unwrap_or(0);
        evidence.warm_up_retransmitted_segments = Some(begin.total_retrans.into());
        evidence.retransmitted_bytes = grown(|i| i.bytes_retrans);
        evidence.dsack_duplicates = grown(|i| i.dsack_dups.map(u64::from));
        evidence.timeouts = grown(|i| i.total_rto.map(u64::from));
        evidence.reordering_seen = grown(|i| i.reord_seen.map(u64::from));
        evidence.delivered_ce = grown(|i| i.delivered_ce.map(u64::from));
        evidence.busy_us = grown(|i| i.busy_time);
        evidence.rwnd_limited_us = grown(|i| i.rwnd_limited);
        evidence.sndbuf_limited_us = grown(|i| i.sndbuf_limited);
        evidence.ssthresh_bytes = (end.snd_ssthresh < i32::MAX as u32)
            .then(|| u64::from(end.snd_ssthresh) * u64::from(end.snd_mss));
        evidence.max_pacing_rate_bps =
            (end.max_pacing_rate != u64::MAX).then(|| end.max_pacing_rate.saturating_mul(8));
        evidence.send_window_bytes = Some(self.largest_window).filter(|w| *w > 0);
        evidence.send_window_max_bytes = Some(self.opened_window).filter(|w| *w > 0);
        // Retransmissions between two readings count as one loss event.
        let totals = std::iter::once(begin.total_retrans)
            .chain(self.readings.iter().map(|r| r.info.total_retrans));
        evidence.loss_events =
            totals.clone().zip(totals.skip(1)).filter(|(before, after)| after > before).count()
                as u64;
    }

    fn infos(&self) -> impl Iterator<Item = &TcpInfo> + Clone {
        self.readings.iter().map(|reading| &reading.info)
    }

    fn medians(&self, evidence: &mut TcpSender, end: &TcpInfo) {
        let of = |pick: fn(&TcpInfo) -> u64| {
            let mut values: Vec<u64> = self.infos().map(pick).collect();
            median(&mut values)
        };
        evidence.rtt_mean_us = mean(self.infos().map(|i| i.rtt)).unwrap_or(0);
        evidence.rtt_p95_us = self.rtt_p95();
        evidence.send_window_full_share = self.window_full_share();
        evidence.send_window_median_bytes =
            of(|i| i.snd_wnd.unwrap_or(0).into()).filter(|_| self.largest_window > 0);
        let infos = self.begin.into_iter().chain(self.infos().copied());
        evidence.loss_window_variation = loss_windows(infos).as_deref().and_then(variation);
        evidence.cwnd_bytes = of(congestion_window).unwrap_or(0);
        evidence.cwnd_mean_bytes = self.mean_window();
        evidence.unacked_bytes = of(|i| u64::from(i.unacked) * u64::from(i.snd_mss)).unwrap_or(0);
        evidence.notsent_bytes = end.notsent_bytes.and(of(|i| i.notsent_bytes.unwrap_or(0).into()));
        evidence.pacing_rate_bps = of(|i| i.pacing_rate)
            .filter(|rate| *rate != u64::MAX)
            .map(|rate| rate.saturating_mul(8));
        let mut memory: Vec<u32> = self.readings.iter().filter_map(|r| r.send_queue).collect();
        evidence.send_queue_memory_bytes = median(&mut memory).map(u64::from);
        self.delivery(evidence);
    }

    /// Mean of the congestion window, bytes.
    fn mean_window(&self) -> Option<u64> {
        let sum: u64 = self.infos().map(congestion_window).sum();
        sum.checked_div(self.readings.len() as u64)
    }

    /// The observed value that 95 % do not exceed.
    fn rtt_p95(&self) -> Option<u32> {
        let mut rtts: Vec<u32> = self.infos().map(|i| i.rtt).collect();
        rtts.sort_unstable();
        rtts.get((rtts.len() * 19).div_ceil(20).checked_sub(1)?).copied()
    }

    /// Share of the readings with a full send window: one into which not one more segment fits.
    fn window_full_share(&self) -> Option<f64> {
        let is_full = |info: &TcpInfo| {
            let window = u64::from(info.snd_wnd?);
            Some((u64::from(info.unacked) + 1) * u64::from(info.snd_mss) > window)
        };
        let known: Vec<bool> = self.infos().filter_map(is_full).collect();
        let full = known.iter().filter(|full| **full).count();
        (!known.is_empty()).then(|| full as f64 / known.len() as f64)
    }

    fn delivery(&self, evidence: &mut TcpSender) {
        let bps = |info: &TcpInfo| Some(info.delivery_rate?.saturating_mul(8));
        let mut rates: Vec<u64> = self.infos().filter_map(bps).collect();
        let is_limited = |info: &&TcpInfo| info.delivery_rate_app_limited;
        let limited = self.infos().filter(is_limited).count();
        let unlimited = self.infos().filter(|info| !is_limited(info));
        evidence.delivery_rate_max_bps = unlimited.filter_map(bps).max();
        if !rates.is_empty() {
            evidence.app_limited_share = Some(limited as f64 / rates.len() as f64);
        }
        evidence.delivery_rate_bps = median(&mut rates);
    }

    /// The course of a sender.
    pub(crate) fn samples(&self) -> Vec<TcpSample> {
        self.readings
            .iter()
            .map(|SenderReading { at_ns, info, .. }| TcpSample {
                at_us: at_ns / 1000,
                acked_bytes: info.bytes_acked,
                rtt_us: info.rtt,
                cwnd_bytes: congestion_window(info),
                send_window_bytes: info.snd_wnd.unwrap_or(0).into(),
                unacked_bytes: u64::from(info.unacked) * u64::from(info.snd_mss),
                notsent_bytes: info.notsent_bytes.unwrap_or(0).into(),
                retransmitted_segments: info.total_retrans.into(),
                delivery_rate_bps: info.delivery_rate.unwrap_or(0).saturating_mul(8),
            })
            .collect()
    }
}

/// The congestion window, bytes.
fn congestion_window(info: &TcpInfo) -> u64 {
    u64::from(info.snd_cwnd) * u64::from(info.snd_mss)
}

/// The slow-start thresholds that losses set, segments. Each is a fixed share of the window at the
/// loss (RFC 5681, 3.1; RFC 9438, 4.6). A loss event shows as a new threshold. If it leaves the
/// same threshold, it shows as retransmissions since a reading at which no loss was being repaired.
/// `None` if there are too few.
fn loss_windows(infos: impl Iterator<Item = TcpInfo> + Clone) -> Option<Vec<f64>> {
    let windows: Vec<f64> = infos
        .clone()
        .zip(infos.skip(1))
        .filter(|(_, now)| now.snd_ssthresh < i32::MAX as u32)
        .filter(|(before, now)| {
            let again = now.total_retrans > before.total_retrans && before.ca_state < CWR;
            now.snd_ssthresh != before.snd_ssthresh || again
        })
        .map(|(_, now)| f64::from(now.snd_ssthresh))
        .collect();
    (windows.len() >= FEWEST_WINDOWS).then_some(windows)
}

/// `TCP_CA_CWR` (include/uapi/linux/tcp.h): in this state and those above it the kernel reduces the
/// window or repairs a loss.
const CWR: u8 = 2;
/// Fewer windows have no meaningful spread.
const FEWEST_WINDOWS: usize = 4;

fn mean(values: impl Iterator<Item = u32>) -> Option<u32> {
    let (mut sum, mut count) = (0, 0);
    for value in values {
        sum += u64::from(value);
        count += 1;
    }
    u32::try_from(sum.checked_div(count)?).ok()
}

/// The lower median, which is an observed value.
fn median<T: Copy + Ord>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

// The readings of one flow, taken from its socket throughout the run.

/// Reads one flow's socket, as its sender or as its receiver.
pub(crate) struct TcpProbe {
    /// A separate descriptor: the worker may close its own before the last reading.
    socket: TcpStream,
    sends: bool,
    readings: TcpReadings,
    /// Holds a receiver's window at a set size.
    keeper: Option<WindowKeeper>,
}

impl TcpProbe {
    /// The probe of a flow, which also holds a receiver's window at `window`; `None` if the flow is
    /// not TCP's or makes its connections within the run.
    pub(crate) fn from_flow(flow: &FlowState, window: Option<u64>) -> Option<Self> {
        let Some(FlowSocket::Tcp(stream)) = &flow.socket else {
            return None;
        };
        let keeper = window.filter(|_| !flow.sends).map(WindowKeeper::new);
        Some(Self { keeper, ..Self::new(stream, flow.sends)? })
    }

    pub(crate) fn new(stream: &TcpStream, sends: bool) -> Option<Self> {
        Some(Self {
            socket: stream.try_clone().ok()?,
            sends,
            readings: TcpReadings::default(),
            keeper: None,
        })
    }

    /// Looks before the measured time: at the window that is to be held, or at how far the other
    /// end opens its own.
    pub(crate) fn settle(&mut self) {
        self.keep_window();
        if self.sends
            && let Ok(info) = TcpInfo::read(&self.socket)
        {
            self.readings.open(&info);
        }
    }

    fn keep_window(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.look(&self.socket);
        }
    }

    pub(crate) fn begin(&mut self) {
        self.readings.begin(TcpInfo::read(&self.socket).ok());
    }

    /// Takes a reading; `at_ns` counts from the beginning of the measured time.
    pub(crate) fn sample(&mut self, at_ns: u64) {
        self.keep_window();
        let Ok(info) = TcpInfo::read(&self.socket) else {
            return;
        };
        if self.sends {
            let memory = socket::memory(&self.socket).ok();
            let queue = memory.map(|memory| memory.send_queue);
            self.readings.sender(at_ns, info, queue);
        } else {
            self.readings.receiver(info, socket::unread(&self.socket).ok());
        }
    }

    pub(crate) fn thin_out(&mut self) {
        self.readings.thin_out();
    }

    /// The evidence and, for a sender, its course. `bytes` is the payload that this end moved.
    pub(crate) fn evidence(mut self, bytes: u64) -> (Option<TcpEvidence>, Vec<TcpSample>) {
        let evidence: Option<TcpEvidence> = if self.sends {
            let facts = self.sender_facts();
            self.readings.sender_evidence(facts, bytes).map(Into::into)
        } else {
            let facts = self.receiver_facts();
            self.readings.receiver_evidence(facts).map(Into::into)
        };
        let samples = evidence.is_some().then(|| self.readings.samples());
        (evidence, samples.unwrap_or_default())
    }

    fn receiver_facts(&self) -> ReceiverFacts {
        ReceiverFacts {
            congestion: socket::congestion(&self.socket).ok(),
            buffer_bytes: socket::receive_buffer(&self.socket).ok().map(u64::from),
            buffer_locked: self.keeper.is_some(),
        }
    }

    fn sender_facts(&self) -> SenderFacts {
        let mptcp = socket::mptcp_info(&self.socket).ok().flatten();
        // Kernels before 5.14 do not tell: then the buffer is taken to be tuned by the kernel.
        let locks = socket::buffer_locks(&self.socket).unwrap_or_default();
        SenderFacts {
            congestion: socket::congestion(&self.socket).ok(),
            buffer_bytes: socket::send_buffer(&self.socket).map_or(0, u64::from),
            buffer_locked: locks.send,
            subflows: mptcp.map(|info| u32::from(info.subflows) + 1),
            mptcp_fallback: mptcp.map(|info| info.fallback),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings by congestion-avoidance state, threshold and segments retransmitted.
    fn windows(readings: &[(u8, u32, u32)]) -> Option<Vec<f64>> {
        let infos = readings.iter().map(|&(ca_state, snd_ssthresh, total_retrans)| TcpInfo {
            ca_state,
            snd_ssthresh,
            total_retrans,
            ..TcpInfo::default()
        });
        loss_windows(infos)
    }

    #[test]
    fn losses_count_even_if_the_threshold_stays_the_same() {
        const OPEN: u8 = 0;
        const RECOVERY: u8 = 3;
        let same = [(OPEN, 20, 0), (OPEN, 20, 2), (OPEN, 20, 3), (RECOVERY, 20, 4), (OPEN, 20, 6)];
        // Retransmissions while a loss is being repaired are part of the same event.
        assert_eq!(windows(&same), None);
        let more = [&same[..], &[(OPEN, 20, 7), (OPEN, 14, 9)]].concat();
        let found = windows(&more).unwrap();
        assert_eq!(found, [20.0, 20.0, 20.0, 20.0, 14.0]);
        let cv = variation(&found).unwrap();
        assert!((cv - 2.683_281_6 / 18.8).abs() < 1e-6, "{cv}");
        // Before the first loss there is no threshold.
        assert_eq!(windows(&[(OPEN, u32::MAX, 0); 9]), None);
    }
}
