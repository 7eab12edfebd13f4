//! Remedies are commands that can be typed, and change one thing.

use std::time::Duration;

use super::causes::{
    bottleneck, paced, policed, random_loss, slow_reader, slow_writer, small_buffer, small_window,
};
use super::scene::{MSS, Scene, tcp};
use crate::ceilings::{Cause, Verdict, explain};
use crate::plan::{Direction, Extent};
use crate::record::{LabFacts, Record};
use crate::units::{BitRate, ByteCount, Span};

#[track_caller]
fn verdict(scene: &Scene, cause: Cause) -> Verdict {
    scene.is(cause).verdict
}

#[test]
fn a_pacing_rate_is_left_out() {
    let mut scene = paced();
    scene.plan.options.pacing_bps = Some(BitRate(10_000_000));
    let found = verdict(&scene, Cause::Pacing);
    assert_eq!(
        found.command(),
        "linerate stream mauchly  # without --pacing, unless it avoids losses at a policer"
    );
}

#[test]
fn pacing_at_a_policer_brings_fewer_losses_and_no_rate_and_is_said_once() {
    let mut scene = policed();
    let found = verdict(&scene, Cause::Policer);
    let loss = found.command().split_once("  # ").map(|(_, words)| words.to_owned());
    let loss = loss.expect("what it brings");
    assert!(loss.starts_with("no faster: fewer losses, ") && loss.ends_with(" % → 0"), "{loss}");
    assert_eq!(found.predicted_bps, None);
    // The same run as it was advised.
    let rate = BitRate(scene.throughput_bps as u64);
    scene.plan.options.pacing_bps = Some(rate);
    scene.flow().max_pacing_rate_bps = Some(rate.0);
    let paced = scene.explain().verdict;
    assert!([Cause::Policer, Cause::Pacing].contains(&paced.cause), "{paced:?}");
    assert_eq!(paced.remedy, None);
    assert!(paced.evidence[0].ends_with("nothing at this host brings more"), "{paced:?}");
}

#[test]
fn a_rate_that_linerate_was_asked_to_keep_to_is_left_out() {
    let mut writer = slow_writer();
    assert_eq!(verdict(&writer, Cause::ApplicationSend).command(), "");
    writer.stream().write_rate_bps = Some(BitRate(8_000_000));
    assert_eq!(
        verdict(&writer, Cause::ApplicationSend).command(),
        "linerate stream mauchly  # without --write-rate"
    );
    let mut reader = slow_reader();
    assert_eq!(verdict(&reader, Cause::ApplicationReceive).command(), "");
    reader.stream().read_rate_bps = Some(BitRate(500_000));
    assert_eq!(
        verdict(&reader, Cause::ApplicationReceive).command(),
        "linerate stream mauchly  # without --read-rate"
    );
}

#[test]
fn a_remedy_keeps_the_other_options_of_the_run() {
    let mut scene = small_window();
    scene.plan.options.receive_window_bytes = Some(ByteCount(86_000));
    scene.plan.options.pacing_bps = Some(BitRate(1_500_000));
    scene.plan.options.congestion = Some("reno".into());
    scene.plan.options.nodelay = true;
    scene.stream().message_bytes = 8192;
    scene.stream().verify = true;
    scene.plan.extent = Extent::Count(9000);
    let remedy = verdict(&scene, Cause::ReceiveWindow).command();
    let command = "linerate stream mauchly --size 8192 --count 9000 --verify --pacing 1.5mbit \
                   --congestion reno --nodelay --receive-window ";
    assert!(remedy.starts_with(command), "{remedy}");
    assert_eq!(remedy.matches("--receive-window").count(), 1);
}

#[test]
fn both_buffers_are_raised_where_both_were_fixed() {
    let (window, buffer) = (small_window(), small_buffer());
    for (mut scene, cause) in [(window, Cause::ReceiveWindow), (buffer, Cause::SendBuffer)] {
        let one = verdict(&scene, cause).command();
        assert!(!one.contains(" -w "), "{one}");
        scene.plan.options.receive_window_bytes = Some(ByteCount(65_536));
        scene.plan.options.send_buffer_bytes = Some(ByteCount(65_536));
        let both = verdict(&scene, cause);
        let command = both.command();
        assert!(command.starts_with("linerate stream mauchly -w "), "{command}");
        let bytes: u64 = command.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(bytes >= 1 << 20, "{command}");
        let buffers = [Cause::ReceiveWindow, Cause::SendBuffer].map(Some);
        assert!(!buffers.contains(&both.next_cause), "{both:?}");
    }
}

#[test]
fn a_limit_of_each_host_is_raised_before_both_buffers() {
    let mut scene = small_window();
    scene.plan.options.receive_window_bytes = Some(ByteCount(65_536));
    scene.plan.options.send_buffer_bytes = Some(ByteCount(65_536));
    let limit = |key: &str| (key.to_owned(), "212992".to_owned());
    scene.sender_host.sysctls.extend([limit("net.core.wmem_max")]);
    scene.receiver_host.sysctls.extend([limit("net.core.rmem_max")]);
    // The kernel's tuning cannot take the buffers' place where it ends as low.
    for (host, key) in [
        (&mut scene.sender_host, "net.ipv4.tcp_wmem"),
        (&mut scene.receiver_host, "net.ipv4.tcp_rmem"),
    ] {
        host.sysctls.insert(key.to_owned(), "4096 65536 131072".to_owned());
    }
    let command = verdict(&scene, Cause::ReceiveWindow).command();
    let (there, here) = command.split_once("  # on the endpoint's host, and then: ").unwrap();
    assert!(there.starts_with("linerate host set net.core.rmem_max="), "{command}");
    let steps: Vec<&str> = here.split(" && ").collect();
    assert!(steps[0].starts_with("linerate host set net.core.wmem_max="), "{command}");
    assert!(steps[1].starts_with("linerate stream mauchly -w "), "{command}");
}

#[test]
fn a_buffer_beyond_its_limit_is_left_to_the_kernels_tuning() {
    let limit = |key: &str| (key.to_owned(), "212992".to_owned());
    let mut scene = small_window();
    scene.plan.options.receive_window_bytes = Some(ByteCount(65_536));
    let sysctls = &mut scene.receiver_host.sysctls;
    sysctls.extend([limit("net.core.rmem_max")]);
    let without = "linerate stream mauchly  # without --receive-window";
    assert_eq!(verdict(&scene, Cause::ReceiveWindow).command(), without);
    scene.plan.options.send_buffer_bytes = Some(ByteCount(65_536));
    let without = "linerate stream mauchly  # without -w";
    assert_eq!(verdict(&scene, Cause::ReceiveWindow).command(), without);
}

#[test]
fn a_limit_that_nobody_can_write_is_not_raised() {
    let mut scene = small_buffer();
    let key = "net.core.wmem_max".to_owned();
    let host = &mut scene.sender_host;
    host.sysctls.insert(key.clone(), "212992".to_owned());
    let raised = verdict(&scene, Cause::SendBuffer).command();
    assert!(raised.starts_with("linerate host set net.core.wmem_max="), "{raised}");
    scene.sender_host.read_only_sysctls.push(key);
    let left = "linerate stream mauchly  # without --send-buffer";
    assert_eq!(verdict(&scene, Cause::SendBuffer).command(), left);
}

#[test]
fn a_strangers_options_do_not_reach_the_shell() {
    let mut scene = small_window();
    scene.plan.options.congestion = Some("x; reboot".into());
    assert!(!verdict(&scene, Cause::ReceiveWindow).command().contains("reboot"));
    let mut record = scene.record();
    for spec in ["rate=1mbit' ; reboot '", "reboot"] {
        record.environment.lab = Some(LabFacts { spec: spec.into(), ..LabFacts::default() });
        let remedy = explain(&record).remove(0).verdict.command();
        assert!(remedy.starts_with("linerate stream mauchly "), "{remedy}");
    }
}

#[test]
fn an_emulated_path_and_another_port_are_named() {
    let mut record = small_window().record();
    record.peer = "198.18.0.2:5300".into();
    let remedy = |record: &Record| explain(record).remove(0).verdict.command();
    assert!(remedy(&record).starts_with("linerate stream mauchly -p 5300 --receive-window "));
    record.host = "mauchly:5300".into();
    assert!(remedy(&record).starts_with("linerate stream mauchly:5300 --receive-window "));
    record.environment.lab =
        Some(LabFacts { spec: "rtt=29ms,loss=ge(1%,30%)".into(), ..LabFacts::default() });
    let command = "linerate stream --lab 'rtt=29ms,loss=ge(1%,30%)' --receive-window ";
    assert!(remedy(&record).starts_with(command));
}

#[test]
fn a_window_or_buffer_holds_what_the_path_does() {
    for (mut scene, cause) in
        [(small_window(), Cause::ReceiveWindow), (small_buffer(), Cause::SendBuffer)]
    {
        // A gigabit after this: 941 Mbit/s over 20.3 ms is 2.39 MB, with its overhead twice that.
        let device = scene.sender_host.device.as_mut().unwrap();
        (device.driver, device.speed_bps) = (Some("ice".into()), Some(1_000_000_000));
        let found = verdict(&scene, cause);
        assert!(found.command().ends_with(" 8388608"), "{}", found.command());
    }
}

/// Segments of 937 bytes take 2.5 times their payload: the kernel offered 11,392 bytes of a buffer
/// of 27,962.
#[test]
fn a_buffer_of_small_segments_is_larger_than_twice_what_is_under_way() {
    let mut scene = small_window();
    let device = scene.sender_host.device.as_mut().unwrap();
    (device.driver, device.speed_bps) = (Some("ice".into()), Some(1_000_000_000));
    scene
        .receiver_host
        .sysctls
        .insert("net.ipv4.tcp_rmem".to_owned(), "4096 65536 131072".to_owned());
    scene.window.buffer_locked = false;
    let window = scene.flow().send_window_bytes.unwrap() as f64;
    let remedy_at = |scene: &mut Scene, share: f64| {
        scene.window.buffer_bytes = Some((window / share) as u64);
        verdict(scene, Cause::ReceiveWindow).command()
    };
    // 2.39 MB in flight: twice that where half or more is payload, 2.39 · 1.25 / 0.2 MB at a fifth.
    assert!(remedy_at(&mut scene, 0.9).contains("4096 65536 8388608"));
    assert!(remedy_at(&mut scene, 0.63).contains("4096 65536 8388608"));
    assert!(remedy_at(&mut scene, 0.2).contains("4096 65536 16777216"));
    // No segment is so small: something else holds the window.
    assert!(remedy_at(&mut scene, 0.01).contains("4096 65536 8388608"));
}

#[test]
fn a_tuning_that_is_off_is_turned_on_and_one_that_is_enough_is_not_touched() {
    let mut scene = small_window();
    let device = scene.sender_host.device.as_mut().unwrap();
    (device.driver, device.speed_bps) = (Some("ice".into()), Some(1_000_000_000));
    scene.window.buffer_locked = false;
    let set = |scene: &mut Scene, key: &str, value: &str| {
        let entry = (key.to_owned(), value.to_owned());
        scene.receiver_host.sysctls.extend([entry]);
    };
    set(&mut scene, "net.ipv4.tcp_rmem", "4096 33554432 33554432");
    assert_eq!(verdict(&scene, Cause::ReceiveWindow).command(), "");
    assert_eq!(verdict(&scene, Cause::ReceiveWindow).predicted_bps, None);
    set(&mut scene, "net.ipv4.tcp_moderate_rcvbuf", "0");
    let remedy = verdict(&scene, Cause::ReceiveWindow).command();
    assert!(remedy.starts_with("linerate host set net.ipv4.tcp_moderate_rcvbuf=1"));
}

#[test]
fn a_host_of_an_emulated_path_is_treated_in_a_comparison() {
    let mut scene = small_window();
    scene.window.buffer_locked = false;
    let rmem = "net.ipv4.tcp_rmem".to_owned();
    scene.receiver_host.sysctls.insert(rmem, "4096\t65536\t131072".into());
    let remedy = |scene: &Scene, spec: &str| {
        let mut record = scene.record();
        record.environment.lab = Some(LabFacts { spec: spec.into(), ..LabFacts::default() });
        explain(&record).remove(0).verdict.command()
    };
    let command = "linerate compare --lab 'rate=100mbit,rtt=40ms' \
                   --a 'server.sysctl:net.ipv4.tcp_rmem=4096 65536 131072' \
                   --b 'server.sysctl:net.ipv4.tcp_rmem=4096 65536 ";
    let typed = remedy(&scene, "rate=100mbit,rtt=40ms");
    assert!(typed.starts_with(command), "{typed}");
    scene.direction = Direction::Down;
    let typed = remedy(&scene, "rate=100mbit,rtt=40ms");
    assert!(typed.contains(" -R --a 'client.sysctl:"), "{typed}");
    // A comparison has neither this nor a topology: then it is what would be typed on that host.
    let typed = remedy(&scene, "labs/sites.toml");
    assert!(typed.starts_with("linerate host set net.ipv4.tcp_rmem="), "{typed}");
    scene.stream().verify = true;
    let typed = remedy(&scene, "rate=100mbit,rtt=40ms");
    assert!(typed.starts_with("linerate host set net.ipv4.tcp_rmem="), "{typed}");
}

#[test]
fn a_missing_congestion_control_is_loaded_and_then_used() {
    let mut scene = random_loss("cubic");
    let known = "net.ipv4.tcp_available_congestion_control".to_owned();
    scene.sender_host.sysctls.insert(known, "reno cubic".into());
    assert_eq!(
        verdict(&scene, Cause::Congestion).command(),
        "modprobe tcp_bbr && linerate stream mauchly -C bbr"
    );
    scene.plan.options.congestion = Some("cubic".into());
    let remedy = verdict(&scene, Cause::Congestion).command();
    assert!(remedy.ends_with("linerate stream mauchly -C bbr"), "{remedy}");
}

#[test]
fn a_queue_can_be_spared_and_a_link_cannot_be_made_faster() {
    let found = verdict(&bottleneck(), Cause::PathRate);
    let command =
        "linerate stream mauchly --pacing 43.7mbit  # no faster, but without the queue of 249 ms";
    assert!(found.command().starts_with(command), "{}", found.command());
    assert_eq!((found.predicted_bps, found.next_cause), (None, None));
    assert_eq!(verdict(&policed(), Cause::Policer).predicted_bps, None);
}

#[test]
fn a_longer_run_makes_slow_start_a_small_part() {
    // 10 + 20 + 40 + 80 segments in four round trips.
    let bytes = 150 * MSS;
    let mut scene = tcp(bytes as f64 * 8.0 / 0.0812).transfer(bytes);
    scene.seconds = 0.0812;
    scene.flow().delivery_rate_max_bps = Some(100_000_000);
    let remedy = |scene: &Scene| verdict(scene, Cause::Startup).command();
    assert_eq!(remedy(&scene), "linerate stream mauchly --time 10s");
    let flow = scene.flow();
    (flow.rtt_mean_us, flow.rtt_min_us) = (203_000, Some(200_000));
    scene.seconds = 0.812;
    scene.throughput_bps /= 10.0;
    assert_eq!(remedy(&scene), "linerate stream mauchly --time 17s");
    scene.direction = Direction::Down;
    scene.plan.interval = Span(Duration::from_millis(100));
    assert_eq!(remedy(&scene), "linerate stream mauchly -R --time 17s");
}

#[test]
fn what_a_remedy_sets_on_a_host_can_be_pasted() {
    let mut scene = small_window();
    scene.window.buffer_locked = false;
    let rmem = "net.ipv4.tcp_rmem".to_owned();
    scene.receiver_host.sysctls.insert(rmem, "4096\t65536\t131072".into());
    let remedy = verdict(&scene, Cause::ReceiveWindow).command();
    let (command, comment) = remedy.split_once("  # ").unwrap();
    assert_eq!(comment, "on the endpoint's host");
    // A shell takes the quotes away.
    let word = command.strip_prefix("linerate host set ").unwrap();
    let word = word.replace('\'', "");
    let set = crate::host::assignments(&[&word]).unwrap();
    assert_eq!(set[0].key(), "net.ipv4.tcp_rmem");
    assert!(set[0].text().starts_with("4096 65536 "), "{remedy}");
}
