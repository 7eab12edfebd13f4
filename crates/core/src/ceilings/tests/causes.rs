//! TCP: the rows of the kernel's table (20 ms, 4 s, one cause at a time) and their borders.

use std::time::Duration;

use super::scene::{MSS, SECONDS, Scene, end, limit, tcp};
use crate::ceilings::{Cause, Explained, Verdict, annotate, explain};
use crate::plan::{Direction, Traffic, Workload};
use crate::record::{CpuQuota, DeviceFacts, EndReport, Leg, Record, StepRates};
use crate::units::{BitRate, Span};

/// `SO_RCVBUF` of 64 KiB: the window is 86 KB, and full.
pub(super) fn small_window() -> Scene {
    let mut scene = tcp(31.2e6);
    let flow = scene.flow();
    flow.send_window_bytes = Some(86_000);
    flow.unacked_bytes = 84_000;
    flow.notsent_bytes = Some(316_000);
    flow.rwnd_limited_us = Some(3_920_000);
    scene.window.buffer_locked = true;
    scene
}

/// The reader takes 0.5 Mbit/s and never waits.
pub(super) fn slow_reader() -> Scene {
    let mut scene = tcp(0.5e6);
    let flow = scene.flow();
    flow.rwnd_limited_us = Some(3_960_000);
    flow.notsent_bytes = Some(491_000);
    scene.window.unread_bytes = Some(3_000_000);
    scene.receiver = end(0.01, 0.02);
    scene
}

/// `SO_SNDBUF` of 32 KiB, which reads 64 KiB: 27 Mbit/s over 20.3 ms are 47 segments, which
/// overshoot it by a piece.
pub(super) fn small_buffer() -> Scene {
    let mut scene = tcp(27e6);
    let flow = scene.flow();
    flow.send_buffer_bytes = 65_536;
    flow.send_buffer_locked = true;
    flow.send_queue_memory_bytes = Some(69_400);
    flow.notsent_bytes = Some(0);
    flow.unacked_bytes = 47 * MSS;
    flow.app_limited_share = Some(0.9);
    scene
}

/// The application writes 1 MB/s.
pub(super) fn slow_writer() -> Scene {
    let mut scene = tcp(8e6);
    let flow = scene.flow();
    flow.app_limited_share = Some(1.0);
    flow.notsent_bytes = Some(0);
    flow.unacked_bytes = 8 * MSS;
    flow.cwnd_bytes = 45 * MSS;
    scene.sender = of_others(0.0, 0.02);
    scene
}

/// An end whose application is not linerate's own: what it does beside writing is not known.
fn of_others(blocked: f64, running: f64) -> EndReport {
    EndReport { paced_us: None, ..end(blocked, running) }
}

/// 1 % of the segments is lost: 19 of 1,900.
pub(super) fn random_loss(congestion: &str) -> Scene {
    let mut scene = tcp(5.5e6);
    let flow = scene.flow();
    flow.congestion = Some(congestion.into());
    flow.retransmitted_segments = 19;
    flow.loss_events = 15;
    flow.cwnd_bytes = 13 * MSS;
    flow.unacked_bytes = 13 * MSS;
    flow.delivery_rate_max_bps = Some(9_000_000);
    scene
}

/// `SO_MAX_PACING_RATE` of 10 Mbit/s.
pub(super) fn paced() -> Scene {
    let mut scene = tcp(9.9e6);
    let flow = scene.flow();
    flow.pacing_rate_bps = Some(10_000_000);
    flow.max_pacing_rate_bps = Some(10_000_000);
    flow.notsent_bytes = Some(195_000);
    flow.unacked_bytes = 16 * MSS;
    flow.cwnd_bytes = 48 * MSS;
    scene
}

/// A link of 50 Mbit/s with a queue of a quarter of a second.
pub(super) fn bottleneck() -> Scene {
    let mut scene = tcp(46e6);
    let flow = scene.flow();
    flow.rtt_mean_us = 269_000;
    flow.rtt_var_us = 2_000;
    flow.cwnd_bytes = 1_546_000;
    flow.unacked_bytes = 1_546_000;
    scene
}

/// A token bucket: trains of losses at a steady rate, and no queue.
pub(super) fn policed() -> Scene {
    let mut scene = tcp(9.6e6);
    let flow = scene.flow();
    flow.retransmitted_segments = 60;
    flow.loss_events = 6;
    flow.cwnd_bytes = 18 * MSS;
    flow.unacked_bytes = 17 * MSS;
    flow.delivery_rate_max_bps = Some(30_000_000);
    scene.variation = 0.02;
    scene
}

#[test]
fn each_row_of_the_kernels_table_has_its_cause() {
    small_window().is(Cause::ReceiveWindow);
    slow_reader().is(Cause::ApplicationReceive);
    small_buffer().is(Cause::SendBuffer);
    slow_writer().is(Cause::ApplicationSend);
    random_loss("cubic").is(Cause::Congestion);
    random_loss("reno").is(Cause::Congestion);
    paced().is(Cause::Pacing);
    bottleneck().is(Cause::PathRate);
    let policed = policed().is(Cause::Policer).verdict;
    assert_eq!(
        policed.command(),
        "linerate stream mauchly --pacing 9.6mbit  # no faster: fewer losses, 1.8 % → 0"
    );
    assert_eq!(policed.predicted_bps, None);
}

/// Measured under `fq` of Linux 6.12.
#[test]
fn under_fq_a_pace_is_of_payload_and_a_maximum_of_frames() {
    let with = |mut scene: Scene, maximum: Option<u64>| {
        let device = scene.sender_host.device.as_mut().unwrap();
        (device.qdisc, device.flow_max_rate_bps) = (Some("fq".into()), maximum);
        scene
    };
    let paced = with(paced(), None).is(Cause::Pacing);
    assert_eq!(limit(&paced, Cause::Pacing), 10e6);
    let flows = with(tcp(7.64e6).times(2), Some(8_000_000));
    let verdict = flows.is(Cause::Pacing).verdict;
    assert_eq!(
        verdict.evidence[0],
        "fq of the sender's wa lets each flow leave with 8 Mbit/s at most"
    );
    let command = verdict.command();
    assert!(command.starts_with("tc qdisc change dev wa root fq maxrate "), "{command}");
    let slower = with(tcp(5e6), Some(8_000_000)).explain();
    assert_ne!(slower.verdict.cause, Cause::Pacing);
}

#[test]
fn the_remedy_of_a_window_is_what_the_next_ceiling_needs() {
    let mut scene = small_window();
    let locked = scene.is(Cause::ReceiveWindow).verdict;
    assert!(locked.command().starts_with("linerate stream mauchly --receive-window "));
    let most = ("net.core.rmem_max".to_owned(), "212992".to_owned());
    scene.receiver_host.sysctls.extend([most]);
    let capped = scene.is(Cause::ReceiveWindow).verdict;
    assert!(
        capped.command().starts_with("linerate host set net.core.rmem_max="),
        "{}",
        capped.command()
    );
    scene.window.buffer_locked = false;
    let mut device = DeviceFacts::clone(scene.sender_host.device.as_ref().unwrap());
    device.driver = Some("ice".into());
    device.speed_bps = Some(1_000_000_000);
    scene.sender_host.device = Some(device);
    let explained = scene.is(Cause::ReceiveWindow);
    let link = limit(&explained, Cause::PathRate);
    assert!((link / 1e9 - 1448.0 / 1538.0).abs() < 1e-9);
    // Thirty times as much is nobody's to promise.
    assert_eq!(explained.verdict.predicted_bps, None);
    let most = explained.verdict.evidence.last().unwrap();
    assert!(most.ends_with("path rate allows 941 Mbit/s at most"), "{most}");
    // 941 Mbit/s · 20.3 ms · 2 is 4.78 MB; the kernel's maximum of 32 MiB is not lowered, and
    // large enough: the window has to begin there.
    assert_eq!(
        explained.verdict.command(),
        "linerate host set net.ipv4.tcp_rmem='4096 8388608 33554432'  # on the endpoint's host"
    );
    scene.receiver_host.sysctls.clear();
    assert_eq!(
        scene.is(Cause::ReceiveWindow).verdict.command(),
        "linerate host show net.ipv4.tcp_rmem  # on the endpoint's host: raise the last figure to \
         8388608 if it is less"
    );
}

#[test]
fn a_window_that_only_fills_a_queue_is_no_cause() {
    let mut scene = bottleneck();
    let flow = scene.flow();
    flow.rwnd_limited_us = Some(3_900_000);
    (flow.rtt_mean_us, flow.rtt_p95_us) = (51_000, Some(51_800));
    flow.send_window_bytes = Some(293_000);
    flow.cwnd_bytes = 3_000_000;
    scene.is(Cause::PathRate);
}

#[test]
fn jitter_is_no_queue() {
    let mut scene = small_window();
    let flow = scene.flow();
    flow.rtt_min_us = Some(10_000);
    flow.rtt_var_us = 6_000;
    scene.is(Cause::ReceiveWindow);
}

/// 64 KiB over 300 Mbit/s and 30 ms with jitter of 8 ms, as it was measured: the queue of a window
/// that is always full would be as constant as the window.
#[test]
fn a_full_window_is_the_limit_also_where_jitter_makes_the_round_trip_twice_the_smallest() {
    let mut scene = small_window();
    scene.throughput_bps = 12.48e6;
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_p95_us) = (Some(21_000), 41_800, Some(45_300));
    (flow.rtt_var_us, flow.rwnd_limited_us) = (1_400, Some(3_990_000));
    (flow.send_window_bytes, flow.delivery_rate_max_bps) = (Some(65_536), Some(12_900_000));
    scene.is(Cause::ReceiveWindow);
    // It may as well be the link's.
    scene.flow().rtt_p95_us = Some(42_100);
    scene.is(Cause::PathRate);
}

/// Figures of a busy host: the mean round trip leaves out what it adds.
#[test]
fn a_window_that_is_always_full_is_the_cause_though_the_rate_is_a_little_lower() {
    let mut scene = small_window();
    scene.throughput_bps *= 0.88;
    scene.is(Cause::ReceiveWindow);
    scene.flow().rwnd_limited_us = Some(2_400_000);
    scene.flow().send_window_full_share = Some(0.6);
    scene.is(Cause::Unexplained);
}

#[test]
fn a_window_whose_ceiling_is_far_off_stays_unexplained() {
    let mut scene = small_window();
    scene.throughput_bps = 22e6;
    let verdict = scene.is(Cause::Unexplained).verdict;
    assert!(verdict.evidence[0].contains("receive window"), "{verdict:?}");
    assert_eq!((verdict.share_of_ceiling, verdict.predicted_bps), (None, None));
}

#[test]
fn an_unexplained_verdict_says_that_a_thread_waited_for_a_cpu() {
    let mut scene = small_window();
    scene.throughput_bps = 22e6;
    let waited = |scene: &Scene| {
        let evidence = scene.is(Cause::Unexplained).verdict.evidence;
        evidence.iter().find(|line| line.contains("CPU")).cloned()
    };
    assert_eq!(waited(&scene), None);
    scene.receiver = end(0.82, 0.03);
    scene.receiver.run_delay_us = Some(600_000);
    assert_eq!(
        waited(&scene).as_deref(),
        Some("the receiving threads waited for a CPU for 15 % of the time")
    );
}

#[test]
fn loss_whose_model_is_far_off_stays_unexplained() {
    let mut scene = random_loss("reno");
    scene.throughput_bps = 3e6;
    scene.flow().data_segments_out = Some(1900);
    scene.is(Cause::Unexplained);
}

#[test]
fn silent_kernels_leave_it_unexplained() {
    let mut scene = tcp(100e6);
    let explained = scene.is(Cause::Unexplained);
    assert_eq!(explained.verdict.evidence, ["no cause explains what the kernels counted"]);
    scene.tcp.clear();
    let mut record = scene.record();
    record.legs[0] = Leg { throughput_bps: record.throughput_bps(), ..Leg::new(Direction::Up) };
    let explained = explain(&record).remove(0);
    assert_eq!(explained.verdict.cause, Cause::Unexplained);
    assert_eq!(explained.ceilings, []);
}

#[test]
fn a_run_whose_full_segments_all_get_lost_names_a_black_hole_and_what_shows_it() {
    let mut scene = tcp(0.0);
    let flow = scene.flow();
    (flow.retransmitted_segments, flow.warm_up_retransmitted_segments) = (1, Some(1));
    flow.unacked_bytes = 10 * MSS;
    let found = |scene: &Scene| {
        let verdict = scene.is(Cause::Unexplained).verdict;
        let is_named = verdict.evidence.iter().any(|line| line.contains("an MTU black hole"));
        let next = verdict.runner_up.unwrap().tell_apart;
        (is_named, next.command.starts_with("linerate trace ") && next.command.ends_with(" --mtu"))
    };
    assert_eq!(found(&scene), (true, true));
    // A segment that was sent again once may be lost by chance; one that was small says nothing.
    scene.flow().retransmitted_segments = 0;
    assert_eq!(found(&scene), (false, false));
    scene.flow().retransmitted_segments = 9;
    scene.flow().unacked_bytes = MSS - 1;
    assert_eq!(found(&scene), (false, false));
    let mut some = tcp(1e3);
    (some.flow().retransmitted_segments, some.flow().unacked_bytes) = (9, 10 * MSS);
    assert!(!found(&some).0, "some arrived");
}

#[test]
fn spurious_retransmissions_are_not_losses() {
    let mut scene = random_loss("cubic");
    scene.flow().dsack_duplicates = Some(19);
    let explained = scene.is(Cause::Unexplained);
    assert!(explained.ceilings.iter().all(|c| c.cause != Cause::Congestion));
}

#[test]
fn an_autotuned_buffer_is_a_cause_only_at_its_maximum() {
    let mut scene = small_buffer();
    scene.flow().send_buffer_locked = false;
    scene.is(Cause::Unexplained);
    let wmem = ("net.ipv4.tcp_wmem".to_owned(), "4096 16384 65536".to_owned());
    scene.sender_host.sysctls.extend([wmem]);
    let verdict = scene.is(Cause::SendBuffer).verdict;
    assert!(verdict.command().starts_with("linerate host set net.ipv4.tcp_wmem='4096 16384 "));
}

#[test]
fn a_buffer_that_leaks_is_no_ceiling() {
    let mut scene = small_buffer();
    scene.throughput_bps = 300e6;
    let flow = scene.flow();
    flow.send_queue_memory_bytes = Some(1_640_000);
    flow.notsent_bytes = Some(800_000);
    let explained = scene.is(Cause::Unexplained);
    assert!(explained.ceilings.iter().all(|c| c.cause != Cause::SendBuffer));
}

/// As it was measured over 40 ms: the pace took three quarters of the time that the window held.
#[test]
fn a_window_that_is_always_full_holds_a_sender_with_a_pace_too() {
    let mut scene = small_window();
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    flow.send_window_full_share = Some(0.9);
    flow.rwnd_limited_us = Some(400_000);
    scene.is(Cause::ReceiveWindow);
    // Behind a queue it is the path that gives no more.
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us) = (Some(17_000), 20_300);
    let found = scene.explain().verdict.cause;
    assert_ne!(found, Cause::ReceiveWindow);
}

/// As it was measured over 252 ms: each round begins with the time that the pace takes to fill it.
#[test]
fn a_sender_with_a_pace_comes_a_little_less_near_to_the_window_that_holds_it() {
    let mut scene = small_window();
    scene.throughput_bps *= 0.93;
    let flow = scene.flow();
    flow.send_window_full_share = Some(0.64);
    flow.rwnd_limited_us = Some(1_520_000);
    scene.is(Cause::Unexplained);
    scene.flow().congestion = Some("bbr".into());
    scene.is(Cause::ReceiveWindow);
}

/// As it was measured over 88 ms: the window was seen full in a tenth of the readings, and the
/// kernel counted it for a quarter of the time.
#[test]
fn a_sender_with_a_pace_that_reaches_the_rate_of_full_windows_is_held_by_them() {
    let mut scene = small_window();
    scene.throughput_bps *= 0.97;
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    flow.send_window_full_share = Some(0.1);
    flow.rwnd_limited_us = Some(1_000_000);
    flow.cwnd_mean_bytes = Some(190_000);
    scene.is(Cause::ReceiveWindow);
    // A congestion window that is no larger may be the limit as well.
    scene.flow().cwnd_mean_bytes = Some(90_000);
    scene.is(Cause::Unexplained);
    scene.flow().cwnd_mean_bytes = Some(190_000);
    scene.throughput_bps *= 0.7;
    scene.is(Cause::Unexplained);
}

/// Timestamps tick in milliseconds: 13 of 13.9 ms, once a segment was sent again.
#[test]
fn a_shortest_round_trip_of_whole_milliseconds_makes_no_queue_after_losses() {
    let mut scene = random_loss("reno");
    scene.throughput_bps = 50e6;
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(13_000), 14_400, 200);
    flow.retransmitted_segments = flow.retransmitted_segments.max(1);
    let record = scene.record();
    let views = crate::ceilings::views(&record);
    assert!(!views[0].queue_or_marks());
    scene.flow().rtt_min_us = Some(13_001);
    let record = scene.record();
    let views = crate::ceilings::views(&record);
    assert!(views[0].queue_or_marks());
}

/// A clock of 540 kbit/s before a link of 2.3 Mbit/s: the second of two segments waits for the
/// first.
#[test]
fn a_burst_behind_itself_is_no_queue_that_stands() {
    let mut scene = tcp(540e3);
    scene.variation = 0.0;
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(4_000), 10_400, 1_090);
    assert_ne!(scene.explain().verdict.cause, Cause::PathRate);
    scene.flow().rtt_mean_us = 40_000;
    scene.is(Cause::PathRate);
}

#[test]
fn bbr_tells_of_its_send_buffer_itself() {
    let mut scene = small_buffer();
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    flow.sndbuf_limited_us = Some(1_400_000);
    scene.sender.blocked_us = None;
    scene.is(Cause::SendBuffer);
}

/// BBR keeps a part of a small buffer waiting for its pace, which it does not reach. Figures of
/// runs: 52 KiB set, and 22 KiB of `tcp_wmem` that a piece overshoots by twice as much.
#[test]
fn what_waits_for_a_pace_that_is_not_reached_is_in_a_small_buffer() {
    let mut scene = tcp(23.3e6);
    scene.sender = end(0.99, 0.001);
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    (flow.rtt_min_us, flow.rtt_mean_us) = (Some(20_210), 20_414);
    (flow.cwnd_bytes, flow.unacked_bytes) = (148_800, 57_660);
    flow.notsent_bytes = Some(12_090);
    (flow.busy_us, flow.sndbuf_limited_us) = (Some(4_000_000), Some(930_000));
    flow.pacing_rate_bps = Some(29_500_000);
    (flow.send_buffer_bytes, flow.send_buffer_locked) = (106_370, true);
    flow.send_queue_memory_bytes = Some(88_886);
    let share = scene.is(Cause::SendBuffer).verdict.share_of_ceiling;
    assert!((share.unwrap() - 1.0).abs() < 0.05, "{share:?}");
    let of_host = scene.sender_host.sysctls.get_mut("net.ipv4.tcp_wmem");
    *of_host.unwrap() = "4096\t16384\t22758".into();
    scene.throughput_bps = 7.39e6;
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us) = (Some(39_371), 39_387);
    (flow.cwnd_bytes, flow.unacked_bytes) = (151_368, 34_272);
    flow.notsent_bytes = Some(15_708);
    flow.sndbuf_limited_us = Some(1_800_000);
    flow.pacing_rate_bps = Some(15_224_864);
    (flow.send_buffer_bytes, flow.send_buffer_locked) = (22_758, false);
    flow.send_queue_memory_bytes = Some(73_772);
    scene.is(Cause::SendBuffer);
}

#[test]
fn bbr_at_a_bottleneck_leaves_a_short_queue() {
    let mut scene = bottleneck();
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    flow.pacing_rate_bps = Some(46_400_000);
    flow.rtt_mean_us = 51_000;
    flow.unacked_bytes = 290_000;
    scene.is(Cause::PathRate);
    scene.flow().rtt_mean_us = 20_500;
    scene.is(Cause::PathRate);
    scene.variation = 0.01;
    let flow = scene.flow();
    flow.retransmitted_segments = 800;
    flow.loss_events = 40;
    scene.is(Cause::Policer);
}

/// As it was measured at a TBF, with a full way back: a policer delays nothing.
#[test]
fn a_queue_that_bbr_overflows_all_the_time_is_the_paths() {
    let mut scene = tcp(5.56e6);
    scene.variation = 0.05;
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(113_805), 142_764, 191);
    (flow.cwnd_bytes, flow.unacked_bytes) = (168_504, 94_248);
    (flow.retransmitted_segments, flow.loss_events) = (282, 10);
    flow.data_segments_out = Some(2_100);
    flow.delivery_rate_max_bps = Some(5_452_600);
    flow.pacing_rate_bps = Some(5_351_792);
    scene.is(Cause::PathRate);
    // Less than a queue of segments, and as much loss.
    let flow = scene.flow();
    (flow.rtt_mean_us, flow.rtt_var_us) = (115_500, 100);
    scene.is(Cause::Policer);
}

#[test]
fn bbr_below_its_own_pace_is_held_by_something_else_than_the_path() {
    let mut scene = bottleneck();
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    (flow.rtt_mean_us, flow.unacked_bytes) = (20_500, 290_000);
    // In the phase with a gain of 1.25 that a full window or buffer never lets it leave.
    flow.pacing_rate_bps = Some(57_500_000);
    scene.is(Cause::Unexplained);
    scene.flow().pacing_rate_bps = Some(46_400_000);
    scene.is(Cause::PathRate);
    let mut policed = policed();
    let flow = policed.flow();
    flow.congestion = Some("bbr".into());
    flow.retransmitted_segments = 300;
    flow.pacing_rate_bps = Some(9_800_000);
    policed.is(Cause::Policer);
    policed.flow().pacing_rate_bps = Some(12_500_000);
    assert_ne!(policed.explain().verdict.cause, Cause::Policer);
}

#[test]
fn short_trains_at_one_window_are_a_policers_and_single_losses_there_are_not() {
    // 20 events that the kernel counted, 27 segments.
    let mut scene = policed();
    scene.flow().retransmitted_segments = 27;
    scene.flow().loss_events = 20;
    let counters = [("TcpRetransSegs", 27), ("TcpExtTCPSackRecovery", 20)];
    scene.sender.counters = counters.map(|(name, n)| (name.to_owned(), n)).into();
    scene.flow().loss_window_variation = Some(0.03);
    scene.is(Cause::Policer);
    scene.flow().loss_window_variation = Some(0.3);
    scene.is(Cause::Congestion);
    // Each so many-th segment is lost.
    scene.flow().loss_window_variation = Some(0.0);
    scene.flow().retransmitted_segments = 20;
    scene.sender.counters.insert("TcpRetransSegs".into(), 20);
    scene.is(Cause::Congestion);
}

#[test]
fn a_pace_that_is_kept_is_the_limit_though_the_window_be_full() {
    let mut scene = paced();
    scene.flow().cwnd_bytes = 17 * MSS;
    scene.is(Cause::Pacing);
    scene.throughput_bps = 8.9e6;
    assert_ne!(scene.explain().verdict.cause, Cause::Pacing);
}

#[test]
fn windows_of_few_segments_are_taken_as_they_were_in_the_mean() {
    let mut scene = random_loss("reno");
    scene.flow().cwnd_bytes = 5 * MSS;
    scene.flow().cwnd_mean_bytes = Some(10 * MSS);
    let explained = scene.is(Cause::Congestion);
    assert_mean_window(&explained);
    // A record of an older version has the median alone.
    scene.flow().cwnd_mean_bytes = None;
    scene.is(Cause::Unexplained);
}

#[test]
fn windows_that_come_down_are_taken_as_they_were_in_the_mean() {
    let mut scene = random_loss("reno");
    scene.flow().cwnd_bytes = 50 * MSS;
    scene.flow().cwnd_mean_bytes = Some(10 * MSS);
    // The first interval has 1.5 times the mean, the rest 0.8 times.
    scene.variation = -0.5;
    assert_mean_window(&scene.explain());
}

/// Ten segments in each RTT of the scenes with losses.
fn assert_mean_window(explained: &Explained) {
    let wanted = 10.0 * MSS as f64 * 8.0 / 0.0203;
    assert!((limit(explained, Cause::Congestion) / wanted - 1.0).abs() < 1e-9);
}

#[test]
fn a_short_queue_on_a_plateau_is_the_paths_rate_in_spite_of_its_losses() {
    // 12 ms at 5.5 Mbit/s are 5.7 segments.
    let mut scene = random_loss("cubic");
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(40_000), 52_000, 800);
    (flow.cwnd_bytes, flow.unacked_bytes) = (26 * MSS, 26 * MSS);
    flow.delivery_rate_max_bps = Some(5_700_000);
    let explained = scene.is(Cause::PathRate);
    let path = explained.ceilings.iter().find(|c| c.cause == Cause::PathRate);
    assert!(!path.unwrap().independent);
    // Off the plateau others fill the queue, and the losses decide.
    scene.flow().delivery_rate_max_bps = Some(7_000_000);
    scene.flow().data_segments_out = Some(3_200);
    scene.is(Cause::Congestion);
}

#[test]
fn timeouts_lower_the_ceiling_of_loss() {
    // Readings with losses: 25 of 40, which are 39 events, enough for a model.
    let mut scene = random_loss("cubic");
    scene.flow().retransmitted_segments = 40;
    scene.flow().loss_events = 25;
    let without = limit(&scene.explain(), Cause::Congestion);
    scene.flow().timeouts = Some(6);
    let with = limit(&scene.explain(), Cause::Congestion);
    assert!(with < without, "{with} {without}");
}

#[test]
fn events_between_two_readings_are_estimated() {
    let mut scene = random_loss("reno");
    let flow = scene.flow();
    flow.retransmitted_segments = 100;
    flow.loss_events = 20;
    let inputs = |scene: &Scene| {
        let ceilings = scene.explain().ceilings;
        let found = ceilings.into_iter().find(|c| c.cause == Cause::Congestion);
        found.unwrap().inputs["loss_events"]
    };
    // Half of 40 readings with losses: 40 · ln 2 events.
    assert!((inputs(&scene) - 40.0 * 2f64.ln()).abs() < 1e-9);
    scene.flow().samples = None;
    assert_eq!(inputs(&scene), 20.0);
}

#[test]
fn a_busy_thread_is_the_cpus_and_an_idle_one_the_applications() {
    let mut scene = slow_reader();
    scene.receiver = end(0.01, 0.97);
    scene.is(Cause::CpuReceive);
    let mut scene = slow_writer();
    scene.sender = end(0.02, 0.96);
    scene.is(Cause::CpuSend);
    scene.sender = of_others(0.05, 0.6);
    scene.sender.run_delay_us = Some((0.3 * SECONDS * 1e6) as u64);
    scene.is(Cause::CpuSend);
    scene.sender.run_delay_us = Some(0);
    scene.is(Cause::ApplicationSend);
}

#[test]
fn a_quota_of_cpu_time_that_is_used_up_is_the_cause_at_its_end() {
    let quota = |throttled_periods| CpuQuota {
        cpus: 0.15,
        periods: 40,
        throttled_periods,
        throttled_us: 3_000_000,
    };
    let limited = |end: &mut EndReport, throttled_periods| {
        end.cpu_quota = Some(quota(throttled_periods));
        end.cpu_seconds.system = 0.14 * SECONDS;
    };
    // Neither thread seems to want a CPU: one is stopped on its way out of the kernel.
    let mut scene = tcp(1e9);
    limited(&mut scene.sender, 38);
    scene.is(Cause::CpuSend);
    scene.sender = end(0.95, 0.02);
    limited(&mut scene.receiver, 38);
    let verdict = scene.is(Cause::CpuReceive).verdict;
    let says = "its control group's quota of 15 % of a CPU was used up in 38 of 40 periods";
    assert!(verdict.evidence.iter().any(|line| line == says), "{verdict:?}");
    // Seldom used up; by others of the group; one group of both ends.
    limited(&mut scene.receiver, 10);
    scene.is(Cause::Unexplained);
    limited(&mut scene.receiver, 38);
    scene.receiver.cpu_seconds.system = 0.02 * SECONDS;
    scene.is(Cause::Unexplained);
    limited(&mut scene.receiver, 38);
    limited(&mut scene.sender, 38);
    scene.is(Cause::Unexplained);
}

/// The hypervisor took a sixth of the CPUs while the writer wrote as fast as it could.
#[test]
fn an_unlimited_writer_of_linerates_own_is_no_slow_application() {
    let mut scene = slow_writer();
    scene.sender = end(0.22, 0.6);
    scene.is(Cause::Unexplained);
    scene.sender.run_delay_us = Some((0.15 * SECONDS * 1e6) as u64);
    scene.is(Cause::Unexplained);
    (scene.sender.steal_percent, scene.sender.host_cpu_percent) = (Some(16.0), Some(76.0));
    scene.is(Cause::CpuSend);
    // What waits for the network was not kept from a CPU.
    let mut window = small_window();
    (window.sender.steal_percent, window.sender.host_cpu_percent) = (Some(16.0), Some(76.0));
    window.is(Cause::ReceiveWindow);
}

#[test]
fn a_writer_in_bursts_leaves_the_connection_without_data() {
    // 128 KiB each 210 ms: the delivery rate is the network's whenever it is sampled.
    let mut scene = slow_writer();
    scene.flow().app_limited_share = Some(0.0);
    scene.flow().busy_us = Some(780_000);
    let verdict = scene.is(Cause::ApplicationSend).verdict;
    let says = "the connection had data for only 20 % of the time";
    assert!(verdict.evidence.iter().any(|line| line == says));
    // An eighth of the buffer waits, for most of the time: the network was not starved.
    scene.flow().busy_us = Some(2_400_000);
    scene.flow().notsent_bytes = Some(500_000);
    scene.is(Cause::Unexplained);
}

#[test]
fn the_next_ceiling_after_a_slow_reader_ignores_the_small_window_and_its_queue() {
    // It keeps the window small, and what is delivered in it makes a short queue.
    let mut scene = slow_reader();
    scene.throughput_bps = 5e6;
    let flow = scene.flow();
    flow.send_window_bytes = Some(20_480);
    (flow.cwnd_bytes, flow.unacked_bytes) = (20_480, 20_272);
    (flow.rtt_mean_us, flow.rtt_var_us) = (30_000, 2_000);
    flow.rwnd_limited_us = Some(1_990_000);
    flow.delivery_rate_max_bps = Some(5_700_000);
    let explained = scene.is(Cause::ApplicationReceive);
    assert!(limit(&explained, Cause::PathRate) < 6e6);
    assert!(limit(&explained, Cause::ReceiveWindow) > 1e9);
    scene.stream().read_rate_bps = Some(crate::units::BitRate(5_000_000));
    let verdict = scene.is(Cause::ApplicationReceive).verdict;
    assert_eq!((verdict.predicted_bps, verdict.next_cause), (None, None));
    let most = verdict.evidence.last().unwrap();
    assert!(most.contains("receive window allows "), "{most}");
    scene.flow().rwnd_limited_us = Some(3_960_000);
    assert!(limit(&scene.explain(), Cause::ReceiveWindow) > 1e9);
}

#[test]
fn a_backlog_or_a_closed_window_shows_a_late_reader() {
    let mut scene = slow_reader();
    scene.flow().rwnd_limited_us = Some(1_000_000);
    scene.is(Cause::ApplicationReceive);
    scene.window.unread_bytes = Some(1_000_000);
    scene.is(Cause::Unexplained);
    scene.flow().rwnd_limited_us = Some(3_000_000);
    scene.is(Cause::ApplicationReceive);
}

/// Figures of a run: segments of 148 bytes, 3.2 MB of which fill a buffer of 31 MB, so that the
/// window closes now and then, and BBR's own probing makes a queue.
#[test]
fn unread_data_that_leaves_hardly_a_window_is_a_backlog_of_small_segments() {
    let mut scene = tcp(23.5e6);
    scene.sender = end(0.99, 0.001);
    scene.receiver = end(0.0, 0.015);
    scene.window.buffer_bytes = Some(31_448_768);
    scene.window.unread_bytes = Some(3_185_038);
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(7_890), 14_821, 3_299);
    (flow.cwnd_bytes, flow.unacked_bytes) = (145_632, 53_576);
    flow.send_window_bytes = Some(82_944);
    flow.rwnd_limited_us = Some(827_000);
    flow.notsent_bytes = Some(5_345_980);
    scene.is(Cause::ApplicationReceive);
    scene.flow().send_window_bytes = Some(6_700_000);
    let found = scene.explain().verdict.cause;
    assert_ne!(found, Cause::ApplicationReceive);
}

/// Figures of a run: 10 KiB set, which reads 21 KiB, and pieces that come and go between two
/// readings.
#[test]
fn a_small_send_buffer_lets_through_up_to_a_piece_more_than_was_read_of_it() {
    let mut scene = tcp(18.5e6);
    scene.sender = end(0.99, 0.001);
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(15_732), 15_766, 26);
    (flow.cwnd_bytes, flow.unacked_bytes) = (139_008, 26_064);
    (flow.notsent_bytes, flow.app_limited_share) = (Some(0), Some(0.033));
    (flow.busy_us, flow.sndbuf_limited_us) = (Some(4_000_000), Some(1_780_000));
    (flow.pacing_rate_bps, flow.delivery_rate_max_bps) = (Some(34_300_000), Some(21_500_000));
    (flow.send_buffer_bytes, flow.send_buffer_locked) = (21_528, true);
    flow.send_queue_memory_bytes = Some(73_048);
    scene.is(Cause::SendBuffer);
    // More than that no small buffer lets through.
    scene.throughput_bps = 70e6;
    let found = scene.explain().verdict.cause;
    assert_ne!(found, Cause::SendBuffer);
}

/// Figures of a run over a plain veth whose CPUs two other programs have.
#[test]
fn round_trips_that_wait_for_a_cpu_are_no_queue_of_the_path() {
    let mut scene = tcp(4.26e9);
    scene.sender = end(0.34, 0.18);
    scene.sender.run_delay_us = Some((0.48 * SECONDS * 1e6) as u64);
    scene.receiver = end(0.42, 0.13);
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(1), 5_516, 242);
    (flow.cwnd_bytes, flow.unacked_bytes) = (525_504, 0);
    (flow.delivery_rate_bps, flow.delivery_rate_max_bps) = (Some(5_000_000_000), None);
    let found = scene.explain().verdict.cause;
    assert_ne!(found, Cause::PathRate);
}

#[test]
fn wake_ups_are_no_queue() {
    let mut scene = small_window();
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(300), 900, 100);
    flow.send_window_bytes = Some((31.2e6 * 900e-6 / 8.0) as u64);
    scene.is(Cause::ReceiveWindow);
}

#[test]
fn interrupts_that_fill_a_core_of_the_receiver_are_its_cpu() {
    let mut scene = tcp(9e9);
    scene.receiver = end(0.4, 0.5);
    scene.receiver.busiest_core_percent = Some(99.0);
    scene.is(Cause::Unexplained);
    scene.receiver.softnet_dropped = Some(1_000);
    scene.receiver.busiest_thread_percent = Some(80.0);
    scene.is(Cause::CpuReceive);
}

#[test]
fn a_core_that_does_nothing_but_soft_interrupts_is_the_receivers_cpu() {
    let mut scene = tcp(9e9);
    scene.receiver = end(0.7, 0.2);
    scene.receiver.softirq_core_percent = Some(70.0);
    scene.is(Cause::Unexplained);
    scene.receiver.softirq_core_percent = Some(98.0);
    scene.is(Cause::CpuReceive);
}

/// Only the receiver's kernel was read: iperf3 serves at the far end.
fn seen_by_the_receiver(rtt_mean_us: u32) -> Record {
    let mut scene = tcp(50e6);
    scene.window.rtt_min_us = Some(20_000);
    scene.window.rtt_mean_us = Some(rtt_mean_us);
    scene.window.window_bytes = Some(3_000_000);
    let mut record = scene.record();
    let flows = record.flows.iter_mut().map(|flow| &mut flow.tcp);
    let legs = record.legs.iter_mut().map(|leg| &mut leg.tcp);
    for tcp in flows.chain(legs).flatten() {
        tcp.sender = None;
    }
    record
}

#[test]
fn a_queue_shows_in_the_round_trips_of_the_receiver_alone() {
    let cause = |record: &Record| explain(record)[0].verdict.cause;
    assert_eq!(cause(&seen_by_the_receiver(80_000)), Cause::PathRate);
    assert_eq!(cause(&seen_by_the_receiver(21_000)), Cause::Unexplained);
    // A writer that rests makes them long, too.
    let mut rests = seen_by_the_receiver(80_000);
    if let Traffic::Stream(stream) = &mut rests.plan.traffic {
        stream.write_rate_bps = Some(BitRate(50_000_000));
    }
    assert_eq!(cause(&rests), Cause::Unexplained);
    // So does a receiver whose own window is full.
    let mut full = seen_by_the_receiver(80_000);
    let flow = full.flows[0].tcp.as_mut().unwrap();
    flow.receiver.as_mut().unwrap().window_bytes = Some(500_000);
    assert_eq!(cause(&full), Cause::Unexplained);
}

/// As it was measured over a veth pair from the sender's end: 770,000 segments a second.
#[test]
fn a_queue_of_small_segments_before_a_cpu_is_no_link() {
    let mut scene = tcp(966e6);
    scene.sender = EndReport {
        softirq_core_percent: Some(50.0),
        busiest_core_percent: Some(74.0),
        ..end(1.0, 0.36)
    };
    let device = scene.sender_host.device.as_mut().unwrap();
    device.offloads.insert("tx-tcp-segmentation".into(), false);
    let flow = scene.flow();
    flow.mss_bytes = 156;
    flow.effective_segment_bytes = Some(156.0);
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(10), 2_770, 300);
    scene.is(Cause::SegmentSize);
    // On a longer path, or without so many interrupts, it is the queue of a link.
    scene.flow().rtt_min_us = Some(1_500);
    scene.flow().rtt_mean_us = 8_000;
    scene.is(Cause::PathRate);
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us) = (Some(10), 2_770);
    scene.sender.softirq_core_percent = Some(20.0);
    scene.is(Cause::PathRate);
}

#[test]
fn small_segments_without_offload_cost_the_cpu() {
    let mut scene = tcp(800e6);
    scene.sender = end(0.01, 0.97);
    let device = scene.sender_host.device.as_mut().unwrap();
    device.mtu_bytes = 9000;
    device.offloads.insert("tx-tcp-segmentation".into(), false);
    let flow = scene.flow();
    (flow.mss_bytes, flow.pmtu_bytes) = (524, 9000);
    flow.effective_segment_bytes = Some(524.0);
    scene.receiver_host.device.as_mut().unwrap().mtu_bytes = 9000;
    let verdict = scene.is(Cause::SegmentSize).verdict;
    assert!(verdict.evidence.iter().any(|line| line.contains("524")), "{verdict:?}");
    let device = scene.sender_host.device.as_mut().unwrap();
    device.offloads.insert("tx-tcp-segmentation".into(), true);
    scene.is(Cause::CpuSend);
}

#[test]
fn a_link_is_believed_unless_it_is_virtual() {
    let mut scene = tcp(930e6);
    let device = scene.receiver_host.device.as_mut().unwrap();
    device.speed_bps = Some(1_000_000_000);
    scene.is(Cause::Unexplained);
    let device = scene.receiver_host.device.as_mut().unwrap();
    device.driver = Some("igc".into());
    let verdict = scene.is(Cause::PathRate).verdict;
    assert_eq!(verdict.command(), "");
    assert_eq!(verdict.predicted_bps, None);
}

#[test]
fn a_short_transfer_ends_in_slow_start() {
    // 10 + 20 + 40 + 80 segments in four round trips.
    let bytes = 150 * MSS;
    let mut scene = tcp(bytes as f64 * 8.0 / 0.0812).transfer(bytes);
    scene.seconds = 0.0812;
    scene.flow().delivery_rate_max_bps = Some(100_000_000);
    scene.is(Cause::Startup);
    // The same start of a long transfer is a small part of it.
    small_window().transfer(15_600_000).is(Cause::ReceiveWindow);
    scene.plan.warm_up = Span(Duration::from_millis(10));
    assert!(scene.explain().ceilings.iter().all(|c| c.cause != Cause::Startup));
}

/// 200 Mbit/s over 600 ms: after the warm-up the window still doubles.
#[test]
fn a_rate_that_still_grows_after_the_warm_up_has_met_no_limit() {
    let mut scene = tcp(40e6);
    scene.plan.warm_up = Span(Duration::from_millis(500));
    let cause = |scene: &Scene, rates: [f64; 4]| {
        let mut record = scene.record();
        for (interval, rate) in record.intervals.iter_mut().zip(rates) {
            interval.throughput_bps = rate;
        }
        explain(&record).remove(0).verdict.cause
    };
    assert_eq!(cause(&scene, [8e6, 20e6, 45e6, 87e6]), Cause::Startup);
    assert_ne!(cause(&scene, [40e6, 42e6, 38e6, 40e6]), Cause::Startup);
    assert_ne!(cause(&scene, [8e6, 45e6, 20e6, 87e6]), Cause::Startup);
    scene.flow().retransmitted_segments = 3;
    assert_ne!(cause(&scene, [8e6, 20e6, 45e6, 87e6]), Cause::Startup);
}

/// 10 + 20 + 15 segments, and a round more for the pace. It had half of its largest rate in the
/// mean, which says nothing while it paces at more than twice of that, however many looks there
/// were.
#[test]
fn bbr_that_paces_ahead_of_what_it_gets_is_in_slow_start() {
    let bytes = 45 * MSS;
    let mut scene = tcp(bytes as f64 * 8.0 / 0.08).transfer(bytes);
    scene.seconds = 0.08;
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    (flow.samples, flow.delivery_rate_max_bps) = (Some(14), Some(11_600_000));
    flow.pacing_rate_bps = Some(16_000_000);
    scene.is(Cause::Startup);
}

#[test]
fn ceilings_of_flows_add_up() {
    for scene in [small_window(), small_buffer(), paced(), random_loss("reno")] {
        let one = scene.explain();
        let cause = one.verdict.cause;
        let four = scene.times(4).is(cause);
        assert!((limit(&four, cause) / limit(&one, cause) - 4.0).abs() < 1e-9, "{cause:?}");
        let remedy = four.verdict.command();
        assert!(remedy.contains("--streams 4") || remedy.contains("modprobe"), "{remedy}");
    }
}

#[test]
fn a_flow_without_a_figure_leaves_no_sum() {
    let mut scene = small_window().times(2);
    scene.tcp[1].send_window_bytes = None;
    assert!(scene.explain().ceilings.iter().all(|c| c.cause != Cause::ReceiveWindow));
}

#[test]
fn several_subflows_are_not_explained_by_the_first() {
    let mut scene = small_window();
    scene.flow().subflows = Some(2);
    scene.is(Cause::Unexplained);
    scene.flow().subflows = Some(1);
    scene.is(Cause::ReceiveWindow);
}

#[test]
fn both_directions_have_a_verdict_each() {
    let mut down = paced();
    down.direction = Direction::Down;
    let (up, down) = (small_window().record(), down.record());
    let mut both = up;
    both.direction = Direction::Both;
    both.legs.extend(down.legs);
    both.flows.extend(down.flows);
    both.intervals.extend(down.intervals);
    annotate(&mut both);
    let verdict = |way| both.leg_to(way).unwrap().verdict.clone().unwrap();
    assert_eq!(verdict(Direction::Up).cause, Cause::ReceiveWindow);
    assert_eq!(verdict(Direction::Down).cause, Cause::Pacing);
    assert!(
        verdict(Direction::Down)
            .command()
            .starts_with("linerate stream mauchly -R  # without --pacing")
    );
    assert_eq!((both.leg(), both.verdict()), (None, None));
}

#[test]
fn annotating_again_changes_nothing() {
    let mut record = random_loss("cubic").record();
    annotate(&mut record);
    assert_eq!(record.verdict().unwrap().cause, Cause::Congestion);
    let once = record.clone();
    annotate(&mut record);
    assert_eq!(record, once);
}

#[test]
fn requests_and_responses_have_no_ceilings() {
    let mut record = small_window().record();
    record.workload = Workload::Rr;
    assert_eq!(explain(&record), []);
}

#[test]
fn a_strangers_names_do_not_reach_the_shell() {
    let mut record = small_window().record();
    record.host = "x; reboot".into();
    let remedy = explain(&record).remove(0).verdict.command();
    assert!(remedy.starts_with("linerate stream HOST "), "{remedy}");
}

#[test]
fn evidence_that_only_nearly_holds_is_for_no_cause() {
    let nearly = |mut scene: Scene, change: fn(&mut Scene)| {
        change(&mut scene);
        scene.is(Cause::Unexplained);
    };
    nearly(small_window(), |s| s.flow().rwnd_limited_us = Some(1_900_000));
    nearly(small_buffer(), |s| s.flow().send_queue_memory_bytes = Some(40_000));
    nearly(small_buffer(), |s| s.flow().notsent_bytes = Some(8_000));
    nearly(small_buffer(), |s| {
        // A window that may hold has something to keep back.
        s.flow().cwnd_bytes = 40 * MSS;
        s.flow().notsent_bytes = Some(4_000);
    });
    nearly(slow_writer(), |s| s.sender = of_others(0.28, 0.02));
    nearly(slow_writer(), |s| {
        s.flow().app_limited_share = Some(0.4);
        s.flow().notsent_bytes = Some(500_000);
    });
    nearly(slow_reader(), |s| s.receiver = end(0.12, 0.02));
    nearly(paced(), |s| s.flow().pacing_rate_bps = Some(9_000_000));
    nearly(random_loss("cubic"), |s| s.flow().unacked_bytes = 8 * MSS);
    nearly(random_loss("cubic"), |s| s.flow().rwnd_limited_us = Some(2_100_000));
    nearly(bottleneck(), |s| s.flow().delivery_rate_max_bps = Some(70_000_000));
    // The model of many losses is too far off a policed rate to take the place of a policer.
    nearly(policed(), |s| s.flow().loss_events = 35);
    // Losses in nearly all readings: trains cannot be told from events that follow each other.
    nearly(policed(), |s| {
        let flow = s.flow();
        (flow.retransmitted_segments, flow.loss_events) = (600, 38);
    });
}

#[test]
fn few_losses_that_are_no_policers_are_the_windows() {
    // 18 segments each 20.3 ms are 10.3 Mbit/s, of which 93 % were reached.
    let mut scene = policed();
    scene.variation = 0.5;
    scene.is(Cause::Congestion);
    let mut scene = policed();
    scene.flow().retransmitted_segments = 16;
    scene.is(Cause::Congestion);
}

#[test]
fn random_loss_at_a_steady_rate_is_no_policer() {
    let mut scene = random_loss("cubic");
    scene.variation = 0.01;
    scene.is(Cause::Congestion);
}

/// CUBIC over 20 ms and a link of 100 Mbit/s with a buffer of 64 KiB, as it was measured: pieces of
/// 64 KiB overshoot the buffer and queue behind themselves, and the window has grown to what it was
/// asked for.
#[test]
fn a_buffer_that_holds_all_that_is_in_flight_is_the_limit_also_where_its_bursts_queue() {
    let mut scene = small_buffer();
    scene.throughput_bps = 54e6;
    let flow = scene.flow();
    flow.send_buffer_bytes = 131_072;
    flow.send_queue_memory_bytes = Some(264_400);
    (flow.unacked_bytes, flow.cwnd_bytes) = (211_408, 259_192);
    flow.rtt_min_us = Some(20_100);
    (flow.rtt_mean_us, flow.rtt_var_us) = (28_855, 550);
    flow.retransmitted_segments = 28;
    flow.delivery_rate_max_bps = Some(75_000_000);
    scene.is(Cause::SendBuffer);
    // What waits unsent waits for the congestion window.
    scene.flow().notsent_bytes = Some(40_000);
    assert_ne!(scene.explain().verdict.cause, Cause::SendBuffer);
    // A queue that never empties: the path gives all that it has.
    let flow = scene.flow();
    flow.notsent_bytes = Some(0);
    flow.rtt_mean_us = 31_300;
    flow.delivery_rate_max_bps = Some(55_000_000);
    scene.is(Cause::PathRate);
}

/// CUBIC over 120 ms and 33.4 Mbit/s with a buffer of 109 KiB, as it was measured: the window has
/// grown, and in each burst the kernel takes far more than the buffer holds.
#[test]
fn a_small_buffer_that_bursts_go_past_is_the_limit_where_the_path_runs_dry() {
    let mut scene = tcp(20.59e6);
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(120_451), 210_374, 737);
    (flow.unacked_bytes, flow.cwnd_bytes) = (641_172, 775_404);
    flow.notsent_bytes = Some(0);
    (flow.send_buffer_bytes, flow.send_buffer_locked) = (223_082, true);
    flow.send_queue_memory_bytes = Some(821_736);
    flow.app_limited_share = Some(0.86);
    flow.delivery_rate_max_bps = Some(7_631_880);
    let mut record = scene.record();
    record.legs[0].steps = Some(StepRates {
        step_s: 0.1,
        p25_bps: 16.4e6,
        p50_bps: 21.2e6,
        p75_bps: 26.0e6,
        p90_bps: 27.5e6,
    });
    assert_eq!(explain(&record)[0].verdict.cause, Cause::SendBuffer);
    // All that the path gave in any step: larger bursts would only queue.
    record.legs[0].steps.as_mut().unwrap().p90_bps = 21.5e6;
    assert_ne!(explain(&record)[0].verdict.cause, Cause::SendBuffer);
}

/// A tuned buffer in front of an HTB whose queue never overflows does hold what is in flight, but a
/// larger one would only make the queue longer.
#[test]
fn a_buffer_that_fills_a_standing_queue_is_not_the_limit() {
    let mut scene = small_buffer();
    let least = scene.flow().rtt_min_us.expect("a smallest RTT");
    scene.flow().rtt_mean_us = 10 * least;
    assert_ne!(scene.explain().verdict.cause, Cause::SendBuffer);
}

#[test]
fn what_is_far_from_its_thresholds_is_surer_and_each_verdict_has_a_next_run() {
    let sure = small_window().explain().verdict;
    let mut scene = small_window();
    scene.flow().rwnd_limited_us = Some(2_150_000);
    let near = scene.is(Cause::ReceiveWindow).verdict;
    assert!(sure.confidence > near.confidence, "{sure:?} {near:?}");
    let next = |verdict: &Verdict| verdict.runner_up.as_ref().unwrap().tell_apart.command.clone();
    let unexplained = tcp(20e6).is(Cause::Unexplained).verdict;
    assert_eq!(unexplained.confidence, None);
    assert_eq!(next(&unexplained), "linerate profile mauchly");
    let queue = bottleneck().is(Cause::PathRate).verdict;
    assert!(next(&queue).starts_with("linerate "), "{queue:?}");
}
