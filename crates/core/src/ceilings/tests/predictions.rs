//! What a remedy is to bring: only what lasts when the cause is lifted, and only as far as hosts
//! are known.

use super::causes::{bottleneck, paced, random_loss, slow_reader, small_buffer, small_window};
use super::scene::{MSS, Scene, end, limit, tcp};
use crate::ceilings::{Cause, Verdict, explain};
use crate::host::Need;
use crate::plan::End;
use crate::record::PathTrain;
use crate::remedy::{Change, Remedy, buffer_for};
use crate::units::{BitRate, ByteCount};

/// The verdict where a packet train found a link of so many bits/s.
fn behind_link(scene: &Scene, link_bps: f64) -> Verdict {
    let mut record = scene.record();
    record.path_train = Some(PathTrain {
        link_bps,
        datagrams: 100,
        datagram_bytes: 1472,
        dispersion_us: 100.0 * 1514.0 * 8e6 / link_bps,
    });
    explain(&record).remove(0).verdict
}

#[test]
fn a_run_that_has_what_a_packet_train_found_is_at_the_paths_rate() {
    let scene = tcp(113.8e6);
    let cause = |link_bps| behind_link(&scene, link_bps).cause;
    assert_eq!(cause(121e6), Cause::PathRate);
    assert_eq!(cause(200e6), Cause::Unexplained);
}

fn predicted(verdict: &Verdict) -> Option<(Cause, f64)> {
    Some((verdict.next_cause?, verdict.predicted_bps?))
}

#[track_caller]
fn promises(verdict: &Verdict, cause: Cause, bps: f64) {
    let (next, found) = predicted(verdict).expect("something is predicted");
    assert_eq!(next, cause, "{verdict:#?}");
    assert!((found / bps - 1.0).abs() < 1e-3, "{found} instead of {bps}");
}

#[track_caller]
fn at_most(verdict: &Verdict, words: &str) {
    assert_eq!(predicted(verdict), None, "{verdict:#?}");
    let last = verdict.evidence.last().expect("a verdict has evidence");
    assert!(last.starts_with("what the remedy would bring"), "{last}");
    assert!(last.contains(words), "{last}");
}

/// Payload of full segments with time stamps over packets with Ethernet's header.
const SHARE: f64 = 1448.0 / 1514.0;

#[test]
fn bbr_that_has_found_out_a_policer_is_told_by_what_it_lost_before_and_a_faster_train() {
    let mut scene = tcp(28.4e6);
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    flow.pacing_rate_bps = Some(29_500_000);
    flow.delivery_rate_max_bps = Some(28_500_000);
    flow.warm_up_retransmitted_segments = Some(570);
    assert_eq!(behind_link(&scene, 100e6).cause, Cause::Policer);
    assert_ne!(behind_link(&scene, 31e6).cause, Cause::Policer);
    scene.flow().warm_up_retransmitted_segments = Some(12);
    assert_ne!(behind_link(&scene, 100e6).cause, Cause::Policer);
}

#[test]
fn the_link_that_a_train_found_comes_next() {
    for scene in [small_window(), small_buffer(), paced()] {
        let found = behind_link(&scene, 80e6);
        promises(&found, Cause::PathRate, 80e6 * SHARE);
    }
    // One that seems slower than what came through it was not seen well.
    let found = behind_link(&small_window(), 20e6);
    assert_ne!(found.next_cause, Some(Cause::PathRate));
}

#[test]
fn beside_a_queue_the_train_tells_the_link() {
    // Others fill the queue: the delivery rate is what is left of the link.
    let mut scene = random_loss("cubic");
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us, flow.rtt_var_us) = (Some(40_000), 52_000, 800);
    (flow.cwnd_bytes, flow.unacked_bytes) = (26 * MSS, 26 * MSS);
    flow.data_segments_out = Some(3_200);
    flow.delivery_rate_max_bps = Some(7_000_000);
    let found = behind_link(&scene, 20e6);
    assert_eq!(found.cause, Cause::Congestion);
    promises(&found, Cause::PathRate, 20e6 * SHARE);
    // A queue of the flow's own is the link itself, and nothing lifts that.
    assert_eq!(predicted(&behind_link(&bottleneck(), 50e6)), None);
}

#[test]
fn predictions_end_at_the_highest_rate_known_of_the_hosts() {
    // Thirteen times the rate took two or three per cent of a CPU each.
    promises(&behind_link(&small_window(), 400e6), Cause::PathRate, 400e6 * SHARE);
    at_most(&small_window().explain().verdict, "send buffer");
    let found = behind_link(&small_window(), 1.2e9);
    at_most(&found, "path rate allows 1.15 Gbit/s at most");
    assert!(found.command().contains("--receive-window"), "{}", found.command());
    // A sender that is a third busy carries three times as much.
    let mut busy = small_window();
    busy.sender = end(0.6, 0.33);
    promises(&behind_link(&busy, 80e6), Cause::PathRate, 80e6 * SHARE);
    at_most(&behind_link(&busy, 120e6), "path rate");
    // A train that left no faster than it arrived is the sender's own.
    at_most(&behind_link(&small_window(), 9e9), "send buffer");
}

/// 150 KB waited for BBR's pace at the small window, 39 ms: what the buffer carries is not that.
#[test]
fn a_send_buffer_waits_for_no_pace_that_the_window_had_kept_low() {
    let mut scene = small_window();
    let wmem = "net.ipv4.tcp_wmem".to_owned();
    (scene.sender_host.sysctls).insert(wmem, "4096 16384 300000".into());
    let flow = scene.flow();
    flow.congestion = Some("bbr".into());
    flow.send_buffer_bytes = 300_000;
    flow.pacing_rate_bps = Some(31_000_000);
    flow.notsent_bytes = Some(150_000);
    flow.send_queue_memory_bytes = Some(250_000);
    let share = 65_536.0 / (65_536.0 + 1_280.0);
    let bps = 300_000.0 * 2.0 / 3.0 * share * 8.0 / 0.0203;
    promises(&behind_link(&scene, 400e6), Cause::SendBuffer, bps);
    // Nothing tells what the path carries.
    at_most(&scene.is(Cause::ReceiveWindow).verdict, "send buffer");
}

/// 1 Gbit/s over 40 ms with a `tcp_rmem` of 256 KiB: the send buffer comes next, and is no reason
/// for a window of less than the path holds.
#[test]
fn a_window_is_sized_for_the_path_as_the_hosts_settings_are() {
    let mut scene = small_window();
    let rmem = "net.ipv4.tcp_rmem";
    let hosts = [&mut scene.receiver_host, &mut scene.sender_host];
    let values = [(rmem, "4096 131072 262144"), ("net.ipv4.tcp_wmem", "4096 16384 4194304")];
    for (host, (key, value)) in hosts.into_iter().zip(values) {
        host.sysctls.insert(key.to_owned(), value.to_owned());
    }
    scene.throughput_bps *= 20.3 / 40.3;
    let flow = scene.flow();
    (flow.rtt_min_us, flow.rtt_mean_us) = (Some(40_000), 40_300);
    scene.window.buffer_locked = false;
    scene.window.buffer_bytes = Some(142_000);
    let figures = [4096, 131_072, 16_777_216];
    let advised = Remedy::host_setting(Some(End::Server), rmem, &figures);
    // Where nothing tells of the link, for all that the send buffer may hold.
    for verdict in [behind_link(&scene, 1e9), scene.explain().verdict] {
        let remedy = verdict.remedy.expect("a remedy");
        assert_eq!((remedy.change, remedy.end), (advised.change.clone(), advised.end));
    }
    let path = Need::of_path(BitRate(1_000_000_000), "40ms".parse().unwrap());
    let product = path.path.unwrap().product_bytes();
    assert_eq!(buffer_for(product, None), figures[2]);
}

/// The device of a host tells nothing of the path behind it; what was delivered, if in one round
/// trip, came through.
#[test]
fn only_what_came_through_the_path_bounds_a_prediction() {
    let mut scene = small_window();
    scene.flow().max_pacing_rate_bps = Some(90_000_000);
    at_most(&scene.is(Cause::ReceiveWindow).verdict, "pacing");
    scene.flow().delivery_rate_max_bps = Some(95_000_000);
    promises(&scene.is(Cause::ReceiveWindow).verdict, Cause::Pacing, 90e6);
}

#[test]
fn no_remedy_makes_a_buffer_smaller() {
    let mut scene = small_window();
    let asked = ByteCount(64 << 20);
    scene.plan.options.receive_window_bytes = Some(asked);
    let remedy = scene.is(Cause::ReceiveWindow).verdict.remedy.expect("a remedy");
    let Change::Option { value: Some(value), .. } = remedy.change else { panic!("{remedy:?}") };
    assert_eq!(value, (2 * asked.0).to_string());
}

#[test]
fn idle_threads_and_open_windows_are_no_limit() {
    // The writer slept for nine tenths: ten times as much is no ceiling of anything.
    let mut scene = small_window();
    scene.sender = end(0.5, 0.02);
    let explained = scene.is(Cause::ReceiveWindow);
    assert!(limit(&explained, Cause::ApplicationSend) < 100e6);
    at_most(&explained.verdict, "send buffer");
}

#[test]
fn values_that_the_user_set_stay() {
    let mut scene = small_window();
    scene.flow().max_pacing_rate_bps = Some(90_000_000);
    promises(&behind_link(&scene, 400e6), Cause::Pacing, 90e6);
    let mut reader = slow_reader();
    reader.throughput_bps = 5e6;
    reader.stream().read_rate_bps = Some(BitRate(5_000_000));
    reader.stream().write_rate_bps = Some(BitRate(12_000_000));
    promises(&behind_link(&reader, 400e6), Cause::ApplicationSend, 12e6);
}

#[test]
fn losses_by_chance_stay_and_few_ones_are_no_model() {
    // A loss in each 3,600 segments of 40 s lets 42 Mbit/s through over 20.3 ms.
    let mut scene = small_window();
    scene.seconds = 40.0;
    (scene.sender, scene.receiver) = (end(9.5, 0.02), end(9.5, 0.03));
    let flow = scene.flow();
    flow.congestion = Some("reno".into());
    flow.data_segments_out = Some(107_790);
    (flow.retransmitted_segments, flow.loss_events) = (36, 30);
    let counted = |recoveries| {
        let counters = [("TcpRetransSegs", 36), ("TcpExtTCPSackRecovery", recoveries)];
        counters.map(|(name, n)| (name.to_owned(), n)).into()
    };
    scene.sender.counters = counted(30);
    promises(&behind_link(&scene, 400e6), Cause::Congestion, 41.9e6);
    scene.sender.counters = counted(4);
    let found = scene.is(Cause::ReceiveWindow).verdict;
    assert_ne!(found.next_cause, Some(Cause::Congestion));
}

#[test]
fn cubic_for_reno_is_its_model_and_bbr_the_link() {
    let mut scene = random_loss("reno");
    let flow = scene.flow();
    (flow.retransmitted_segments, flow.loss_events) = (40, 30);
    (flow.rtt_min_us, flow.rtt_mean_us) = (Some(20_000), 20_300);
    scene.throughput_bps = 3.6e6;
    promises(&behind_link(&scene, 20e6), Cause::PathRate, 20e6 * SHARE);
    let known = "net.ipv4.tcp_available_congestion_control".to_owned();
    scene.sender_host.sysctls.insert(known, "reno cubic".into());
    let found = behind_link(&scene, 20e6);
    assert!(found.command().ends_with("-C cubic"), "{}", found.command());
    assert_eq!(found.next_cause, Some(Cause::Congestion));
}

#[test]
fn the_buffers_of_slow_start_do_not_last() {
    let bytes = 150 * MSS;
    let mut scene = tcp(bytes as f64 * 8.0 / 0.0812).transfer(bytes);
    scene.seconds = 0.0812;
    scene.flow().delivery_rate_max_bps = Some(100_000_000);
    let found = scene.is(Cause::Startup).verdict;
    assert_eq!(predicted(&found), None, "{found:#?}");
    promises(&behind_link(&scene, 60e6), Cause::PathRate, 60e6 * SHARE);
    // A buffer that the application fixed does.
    scene.plan.options.send_buffer_bytes = Some(ByteCount(100_000));
    let flow = scene.flow();
    (flow.send_buffer_locked, flow.send_buffer_bytes) = (true, 200_000);
    flow.send_queue_memory_bytes = Some(150_000);
    let found = behind_link(&scene, 1e9);
    assert_eq!(found.next_cause, Some(Cause::SendBuffer), "{found:#?}");
}

/// 100,000 segments of 212 bytes a second, cut by the sender's CPU.
fn small_segments() -> Scene {
    let mut scene = tcp(170e6);
    let device = scene.sender_host.device.as_mut().unwrap();
    device.offloads.insert("tx-tcp-segmentation".into(), false);
    (scene.flow().mss_bytes, scene.flow().advmss_bytes) = (212, 212);
    scene.flow().data_segments_out = Some(400_000);
    (scene.sender, scene.receiver) = (end(0.05, 0.9), end(0.3, 0.6));
    scene
}

/// Two CPUs that take packets by turns reorder them.
#[test]
fn retransmissions_that_were_spurious_are_no_losses_by_chance() {
    let mut scene = small_segments();
    let flow = scene.flow();
    (flow.retransmitted_segments, flow.dsack_duplicates) = (2876, Some(2829));
    (flow.rtt_mean_us, flow.loss_window_variation) = (2000, Some(0.5));
    let counters = [("TcpRetransSegs", 2876), ("TcpExtTCPSackRecovery", 2800)];
    scene.sender.counters = counters.map(|(name, n)| (name.to_owned(), n)).into();
    let are_random = |scene: &Scene| crate::ceilings::views(&scene.record())[0].losses_are_random();
    assert!(!are_random(&scene));
    scene.flow().dsack_duplicates = Some(0);
    assert!(are_random(&scene));
}

#[test]
fn full_segments_cost_a_packet_each_and_their_bytes() {
    let found = behind_link(&small_segments(), 1.1e9);
    let (next, bps) = predicted(&found).expect("something is predicted");
    assert_eq!(next, Cause::CpuSend);
    // Less than as many packets would carry, and more than the same bytes for each second of CPU.
    let packets = 170e6 * 1448.0 / 212.0;
    assert!((0.5 * packets..packets).contains(&bps), "{bps} of {packets}");
    // A packet costs the same whoever paces it.
    let mut paced = small_segments();
    paced.flow().congestion = Some("bbr".to_owned());
    assert_eq!(predicted(&behind_link(&paced, 1.1e9)), Some((next, bps)));
    // The link is the limit before, with the larger share that full segments have of it.
    promises(&behind_link(&small_segments(), 500e6), Cause::PathRate, 500e6 * SHARE);
    // Others have a quarter of the receiver's CPU.
    let mut busy = small_segments();
    busy.receiver = end(0.0, 0.7);
    busy.receiver.run_delay_us = Some(1_000_000);
    at_most(&behind_link(&busy, 1.1e9), "receiver's CPU");
    // Seventeen times the size: nobody has seen that of these hosts.
    let mut tiny = small_segments();
    (tiny.flow().mss_bytes, tiny.flow().advmss_bytes) = (88, 88);
    tiny.throughput_bps = 70e6;
    at_most(&behind_link(&tiny, 1.1e9), "sender's CPU");
}

#[test]
fn a_remedy_for_the_cpu_promises_nothing() {
    let mut scene = tcp(31.2e6);
    scene.stream().message_bytes = 100;
    scene.sender = end(0.0, 0.97);
    let found = behind_link(&scene, 100e6);
    assert_eq!(found.cause, Cause::CpuSend);
    at_most(&found, "path rate");
}
