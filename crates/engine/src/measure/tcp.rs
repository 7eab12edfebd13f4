//! TCP's evidence of one flow: sampled through the run, summed up at its end.

use std::net::TcpStream;

use linerate_core::record::{TcpEvidence, TcpReceiver, TcpSample, TcpSender};
use linerate_core::session::message::keep_every_second;
use linerate_sys::socket;
use linerate_sys::tcp_info::TcpInfo;

use super::flow::FlowSocket;
use super::shared::FlowState;
use super::window::WindowKeeper;

/// A reading of a sender, with what `TCP_INFO` does not have.
#[derive(Clone, Copy)]
struct Reading {
    at_ns: u64,
    info: TcpInfo,
    send_queue: Option<u32>,
}

/// Looks at one flow's socket, as its sender or as its receiver.
pub(crate) struct TcpProbe {
    /// A descriptor of its own: the worker may be done with the flow before the last look.
    socket: TcpStream,
    sends: bool,
    begin: Option<TcpInfo>,
    readings: Vec<Reading>,
    unread: Vec<u32>,
    /// What a receiver estimated, µs.
    receiver_rtts: Vec<u32>,
    last: Option<TcpInfo>,
    largest_window: u64,
    /// Of a receiver whose window is to be held at a figure.
    keeper: Option<WindowKeeper>,
}

impl TcpProbe {
    /// Of a flow's socket, whose window is to be held at `window`; `None` for one that is no TCP's,
    /// or that comes and goes.
    pub(crate) fn from_flow(flow: &FlowState, window: Option<u64>) -> Option<Self> {
        let Some(FlowSocket::Tcp(stream)) = &flow.socket else {
            return None;
        };
        let keeper = window.filter(|_| !flow.sends).map(WindowKeeper::new);
        Some(Self {
            keeper,
            ..Self::new(stream, flow.sends)?
        })
    }

    pub(crate) fn new(stream: &TcpStream, sends: bool) -> Option<Self> {
        Some(Self {
            socket: stream.try_clone().ok()?,
            sends,
            begin: None,
            readings: Vec::new(),
            unread: Vec::new(),
            receiver_rtts: Vec::new(),
            last: None,
            largest_window: 0,
            keeper: None,
        })
    }

    /// Holds what is to be held, without looking at anything else.
    pub(crate) fn settle(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.look(&self.socket);
        }
    }

    pub(crate) fn begin(&mut self, _now_ns: u64) {
        self.begin = TcpInfo::read(&self.socket).ok();
        self.last = self.begin;
    }

    /// Looks once; `at_ns` counts from the beginning of the measured time.
    pub(crate) fn sample(&mut self, at_ns: u64) {
        self.settle();
        let Ok(info) = TcpInfo::read(&self.socket) else {
            return;
        };
        self.last = Some(info);
        if self.sends {
            self.largest_window = self.largest_window.max(info.snd_wnd.unwrap_or(0).into());
            self.readings.push(Reading {
                at_ns,
                info,
                send_queue: socket::memory(&self.socket).ok().map(|m| m.send_queue),
            });
        } else {
            self.largest_window = self.largest_window.max(info.rcv_wnd.unwrap_or(0).into());
            self.unread.extend(socket::unread(&self.socket));
            self.receiver_rtts
                .extend((info.rcv_rtt > 0).then_some(info.rcv_rtt));
        }
    }

    pub(crate) fn end(&mut self, at_ns: u64) {
        self.sample(at_ns);
    }

    pub(crate) fn thin_out(&mut self) {
        keep_every_second(&mut self.readings);
        keep_every_second(&mut self.unread);
        keep_every_second(&mut self.receiver_rtts);
    }

    /// The evidence and, of a sender, its course. `bytes` is the payload that this end moved.
    pub(crate) fn evidence(mut self, bytes: u64) -> (Option<TcpEvidence>, Vec<TcpSample>) {
        let (Some(begin), Some(end)) = (self.begin, self.last) else {
            return (None, Vec::new());
        };
        let evidence: TcpEvidence = if self.sends {
            let mut sender = self.sender(&end);
            self.differences(&mut sender, &begin, &end, bytes);
            self.medians(&mut sender, &end);
            sender.into()
        } else {
            self.receiver(&end).into()
        };
        (Some(evidence), self.samples())
    }

    fn receiver(&mut self, end: &TcpInfo) -> TcpReceiver {
        TcpReceiver {
            advmss_bytes: end.advmss,
            mss_bytes: end.snd_mss,
            pmtu_bytes: end.pmtu,
            rtt_min_us: end.min_rtt.filter(|rtt| *rtt != u32::MAX),
            rtt_mean_us: mean(self.receiver_rtts.iter().copied()),
            congestion: socket::congestion(&self.socket).ok(),
            window_bytes: Some(self.largest_window).filter(|w| *w > 0),
            buffer_bytes: socket::receive_buffer(&self.socket).ok().map(u64::from),
            unread_bytes: median(&mut self.unread).map(u64::from),
            buffer_locked: self.keeper.is_some(),
        }
    }

    fn sender(&self, end: &TcpInfo) -> TcpSender {
        let mptcp = socket::mptcp_info(&self.socket).ok().flatten();
        // A kernel before 5.14 does not say: then the buffer counts as the kernel's to tune.
        let locks = socket::buffer_locks(&self.socket).unwrap_or_default();
        let options = [
            (end.timestamps, "timestamps"),
            (end.sack, "sack"),
            (end.window_scale.is_some(), "wscale"),
            (end.ecn, "ecn"),
        ];
        TcpSender {
            congestion: socket::congestion(&self.socket).ok(),
            mss_bytes: end.snd_mss,
            advmss_bytes: end.advmss,
            pmtu_bytes: end.pmtu,
            rtt_min_us: end.min_rtt.filter(|rtt| *rtt != u32::MAX),
            rtt_mean_us: end.rtt,
            rtt_var_us: end.rttvar,
            send_buffer_bytes: socket::send_buffer(&self.socket).map_or(0, u64::from),
            send_buffer_locked: locks.send,
            options: options
                .iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| (*name).to_owned())
                .collect(),
            subflows: mptcp.map(|info| u32::from(info.subflows) + 1),
            mptcp_fallback: mptcp.map(|info| info.fallback),
            ..TcpSender::default()
        }
    }

    fn differences(&self, evidence: &mut TcpSender, begin: &TcpInfo, end: &TcpInfo, bytes: u64) {
        let grown =
            |pick: fn(&TcpInfo) -> Option<u64>| Some(pick(end)?.saturating_sub(pick(begin)?));
        let segments = grown(|i| i.data_segs_out.map(u64::from));
        let sent = grown(|i| i.bytes_sent).unwrap_or(bytes);
        evidence.data_segments_out = segments;
        evidence.effective_segment_bytes = segments
            .filter(|segments| *segments > 0)
            .map(|segments| sent as f64 / segments as f64);
        evidence.segments_in = grown(|i| Some(i.segs_in.into()));
        evidence.samples = Some(self.readings.len() as u64);
        evidence.retransmitted_segments = grown(|i| Some(i.total_retrans.into())).unwrap_or(0);
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
        // An interval between two looks in which segments were retransmitted counts as one event.
        let totals = std::iter::once(begin.total_retrans)
            .chain(self.readings.iter().map(|r| r.info.total_retrans));
        evidence.loss_events = totals
            .clone()
            .zip(totals.skip(1))
            .filter(|(before, after)| after > before)
            .count() as u64;
    }

    fn medians(&self, evidence: &mut TcpSender, end: &TcpInfo) {
        let of = |pick: fn(&TcpInfo) -> u64| {
            let mut values: Vec<u64> = self.readings.iter().map(|r| pick(&r.info)).collect();
            median(&mut values)
        };
        evidence.rtt_mean_us = mean(self.readings.iter().map(|r| r.info.rtt)).unwrap_or(0);
        evidence.rtt_p95_us = self.rtt_p95();
        evidence.send_window_full_share = self.window_full_share();
        let infos = self
            .begin
            .into_iter()
            .chain(self.readings.iter().map(|r| r.info));
        evidence.loss_window_variation = loss_windows(infos).as_deref().and_then(variation);
        evidence.cwnd_bytes = of(|i| u64::from(i.snd_cwnd) * u64::from(i.snd_mss)).unwrap_or(0);
        evidence.cwnd_mean_bytes = self.mean_window();
        evidence.unacked_bytes = of(|i| u64::from(i.unacked) * u64::from(i.snd_mss)).unwrap_or(0);
        evidence.notsent_bytes = end
            .notsent_bytes
            .and(of(|i| i.notsent_bytes.unwrap_or(0).into()));
        evidence.pacing_rate_bps = of(|i| i.pacing_rate)
            .filter(|rate| *rate != u64::MAX)
            .map(|rate| rate.saturating_mul(8));
        let mut memory: Vec<u32> = self.readings.iter().filter_map(|r| r.send_queue).collect();
        evidence.send_queue_memory_bytes = median(&mut memory).map(u64::from);
        self.delivery(evidence);
    }

    /// Mean of the congestion window, bytes.
    fn mean_window(&self) -> Option<u64> {
        let windows = self
            .readings
            .iter()
            .map(|r| u64::from(r.info.snd_cwnd) * u64::from(r.info.snd_mss));
        windows.sum::<u64>().checked_div(self.readings.len() as u64)
    }

    /// The observed value that 95 % do not exceed.
    fn rtt_p95(&self) -> Option<u32> {
        let mut rtts: Vec<u32> = self.readings.iter().map(|r| r.info.rtt).collect();
        rtts.sort_unstable();
        rtts.get((rtts.len() * 19).div_ceil(20).checked_sub(1)?)
            .copied()
    }

    /// A window is full when not one more segment fits.
    fn window_full_share(&self) -> Option<f64> {
        let is_full = |info: &TcpInfo| {
            let window = u64::from(info.snd_wnd?);
            Some((u64::from(info.unacked) + 1) * u64::from(info.snd_mss) > window)
        };
        let known: Vec<bool> = self
            .readings
            .iter()
            .filter_map(|r| is_full(&r.info))
            .collect();
        let full = known.iter().filter(|full| **full).count();
        (!known.is_empty()).then(|| full as f64 / known.len() as f64)
    }

    fn delivery(&self, evidence: &mut TcpSender) {
        let mut rates: Vec<u64> = self
            .readings
            .iter()
            .filter_map(|r| r.info.delivery_rate)
            .map(|rate| rate.saturating_mul(8))
            .collect();
        evidence.delivery_rate_max_bps = self
            .readings
            .iter()
            .filter(|r| !r.info.delivery_rate_app_limited)
            .filter_map(|r| r.info.delivery_rate)
            .max()
            .map(|rate| rate.saturating_mul(8));
        let limited = self
            .readings
            .iter()
            .filter(|r| r.info.delivery_rate_app_limited)
            .count();
        if !rates.is_empty() {
            evidence.app_limited_share = Some(limited as f64 / rates.len() as f64);
        }
        evidence.delivery_rate_bps = median(&mut rates);
    }

    fn samples(&self) -> Vec<TcpSample> {
        self.readings
            .iter()
            .map(|Reading { at_ns, info, .. }| TcpSample {
                at_us: at_ns / 1000,
                acked_bytes: info.bytes_acked,
                rtt_us: info.rtt,
                cwnd_bytes: u64::from(info.snd_cwnd) * u64::from(info.snd_mss),
                send_window_bytes: info.snd_wnd.unwrap_or(0).into(),
                unacked_bytes: u64::from(info.unacked) * u64::from(info.snd_mss),
                notsent_bytes: info.notsent_bytes.unwrap_or(0).into(),
                retransmitted_segments: info.total_retrans.into(),
                delivery_rate_bps: info.delivery_rate.unwrap_or(0).saturating_mul(8),
            })
            .collect()
    }
}

/// The slow-start thresholds that losses set, each a fixed share of the window at which they came
/// (RFC 5681, 3.1; RFC 9438, 4.6), segments. A loss event shows as another threshold; or as
/// segments retransmitted since a reading at which none was being repaired, which leave the same one.
/// `None` for too few.
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

/// Standard deviation over mean.
fn variation(windows: &[f64]) -> Option<f64> {
    let n = windows.len() as f64;
    let mean = windows.iter().sum::<f64>() / n;
    let square = windows.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(square.sqrt() / mean).filter(|variation| variation.is_finite())
}

/// `TCP_CA_CWR`: from this state on what was lost is being repaired, or the window reduced
/// (include/uapi/linux/tcp.h).
const CWR: u8 = 2;
/// A spread of fewer says nothing.
const FEWEST_WINDOWS: usize = 4;

/// The lower median: an observed value.
fn mean(values: impl Iterator<Item = u32>) -> Option<u32> {
    let (mut sum, mut count) = (0, 0);
    for value in values {
        sum += u64::from(value);
        count += 1;
    }
    u32::try_from(sum.checked_div(count)?).ok()
}

fn median<T: Copy + Ord>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings by congestion-avoidance state, threshold and segments retransmitted.
    fn windows(readings: &[(u8, u32, u32)]) -> Option<Vec<f64>> {
        let infos = readings
            .iter()
            .map(|&(ca_state, snd_ssthresh, total_retrans)| TcpInfo {
                ca_state,
                snd_ssthresh,
                total_retrans,
                ..TcpInfo::default()
            });
        loss_windows(infos)
    }

    #[test]
    fn windows_of_losses_count_also_where_they_stay_the_same() {
        const OPEN: u8 = 0;
        const RECOVERY: u8 = 3;
        let same = [
            (OPEN, 20, 0),
            (OPEN, 20, 2),
            (OPEN, 20, 3),
            (RECOVERY, 20, 4),
            (OPEN, 20, 6),
        ];
        // What is retransmitted while it is being repaired is no event of its own.
        assert_eq!(windows(&same), None);
        let more = [&same[..], &[(OPEN, 20, 7), (OPEN, 14, 9)]].concat();
        let found = windows(&more).unwrap();
        assert_eq!(found, [20.0, 20.0, 20.0, 20.0, 14.0]);
        let cv = variation(&found).unwrap();
        assert!((cv - 2.683_281_6 / 18.8).abs() < 1e-6, "{cv}");
        // None was set yet.
        assert_eq!(windows(&[(OPEN, u32::MAX, 0); 9]), None);
    }
}
