//! Rules for TCP's behaviour and for the queue below it.

use super::super::advice::{Advice, Profile, Question};
use super::{PATH, change, fine, open};

/// A switch that should be on.
pub(in super::super) fn on(q: &Question<'_>) -> Advice {
    match q.now {
        "0" => change("1", "it is off"),
        _ => fine("it is on"),
    }
}

/// `tcp_window_scaling`: 65,535 bytes without it (RFC 7323, section 2).
pub(in super::super) fn scaling(q: &Question<'_>) -> Advice {
    let path = q.need.path.as_ref();
    let limit = path.map(|path| 65_535.0 * 8e6 / path.rtt_us.max(1.0));
    match (q.now, limit) {
        ("0", None) => change("1", "no window is larger than 65535 bytes"),
        ("0", Some(limit)) => {
            let why = "no window is larger than 65535 bytes: that over the round-trip time is the \
                most a connection gets";
            change("1", why).with(vec![("most_bps", limit)])
        }
        _ => fine("windows may be larger than 64 KiB"),
    }
}

/// `tcp_mtu_probing`.
pub(in super::super) fn probing(q: &Question<'_>) -> Advice {
    let is_long = q.need.profile == Some(Profile::Wan);
    match q.now {
        "0" if is_long => change(
            "1",
            "a path that swallows \"packet too big\" stalls connections for good; 1 probes only \
             then",
        ),
        _ => fine("path MTU discovery works by ICMP, or by probes of its own"),
    }
}

/// `tcp_no_metrics_save`.
pub(in super::super) fn metrics(q: &Question<'_>) -> Advice {
    let keeps_threshold = q.view.text("net.ipv4.tcp_no_ssthresh_metrics_save") == Some("0");
    match (q.now, &q.need.path) {
        ("0", Some(_)) if keeps_threshold => change(
            "1",
            "a connection leaves slow start where the last one to the same host met loss",
        ),
        _ => fine("no slow-start threshold is carried from one connection to the next"),
    }
}

/// `tcp_slow_start_after_idle`.
pub(in super::super) fn after_idle(q: &Question<'_>) -> Advice {
    let is_long = q.need.profile == Some(Profile::Wan);
    match q.now {
        "1" if is_long => {
            change("0", "after a pause of one timeout a connection begins again with ten segments")
        }
        _ => fine("pauses cost what RFC 2861 says, or nothing"),
    }
}

/// `tcp_congestion_control`.
pub(in super::super) fn congestion(q: &Question<'_>) -> Advice {
    let has = |name: &str| q.view.congestion_controls.iter().any(|own| own == name);
    match (q.now, q.need.profile) {
        ("bbr", _) => fine("it takes little from random loss"),
        (_, Some(Profile::Wan)) if has("bbr") => change(
            "bbr",
            "over long paths a loss of one packet in 10,000 takes most of the rate of the others",
        ),
        ("reno", _) if has("cubic") => {
            change("cubic", "Reno takes minutes to fill a long and fast path again after a loss")
        }
        (_, Some(Profile::Wan)) => {
            fine("bbr would take less from loss: this kernel has not loaded it (modprobe tcp_bbr)")
        }
        _ => fine("it is made for fast paths"),
    }
}

/// `default_qdisc`.
pub(in super::super) fn discipline(q: &Question<'_>) -> Advice {
    let known = &q.view.queueing_disciplines;
    let mut fair = ["fq", "fq_codel"].into_iter();
    let better = fair.find(|name| known.iter().any(|own| own == name));
    let is_plain = ["pfifo_fast", "pfifo", "bfifo"].contains(&q.now);
    match (better, &q.need.path) {
        (Some(name), Some(_)) if is_plain => change(
            name,
            "one full queue for all flows delays each by what the others send; new devices get the \
             other",
        ),
        (None, Some(_)) if is_plain => {
            fine("fq or fq_codel would keep flows apart; this kernel is not known to have them")
        }
        _ if is_plain => open(PATH),
        _ => fine("flows have queues of their own"),
    }
}
