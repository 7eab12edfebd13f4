//! Why segments are small.

use super::scene::{Scene, tcp};
use crate::ceilings::{small_segments_caveat, views};

fn message(scene: &Scene) -> Option<String> {
    let record = scene.record();
    let caveat = small_segments_caveat(&views(&record)[0])?;
    assert!(!caveat.remedy.to_string().is_empty());
    Some(caveat.message)
}

#[track_caller]
fn mends(scene: &Scene, command: &str) {
    let record = scene.record();
    let caveat = small_segments_caveat(&views(&record)[0]).expect("the segments are small");
    assert!(caveat.remedy.to_string().contains(command), "{}", caveat.remedy);
}

/// As Linux 6.18 tells it: all sizes without the 12 bytes of timestamps. A path of jumbo frames on
/// which segments are as small as on the first networks.
fn jumbo(mss: u32) -> Scene {
    let mut scene = tcp(100e6);
    scene.sender_host.device.as_mut().unwrap().mtu_bytes = 9000;
    scene.receiver_host.device.as_mut().unwrap().mtu_bytes = 9000;
    (scene.flow().mss_bytes, scene.flow().pmtu_bytes) = (mss, 9000);
    scene
}

#[track_caller]
fn says(scene: &Scene, words: &str) {
    let message = message(scene).expect("the segments are small");
    assert!(message.contains(words), "{message}");
}

#[test]
fn full_segments_are_not_small() {
    assert_eq!(message(&jumbo(8948)), None);
    // An IPv4 tunnel on the path.
    assert_eq!(message(&jumbo(8928)), None);
    let mut loopback = jumbo(524);
    loopback.sender_host.device.as_mut().unwrap().name = "lo".into();
    assert_eq!(message(&loopback), None);
}

#[test]
fn the_path_mtu_is_named() {
    let mut scene = jumbo(1348);
    scene.flow().pmtu_bytes = 1400;
    says(&scene, "the path MTU is 1400");
}

#[test]
fn the_receivers_interface_is_named() {
    let mut scene = jumbo(1448);
    scene.receiver_host.device.as_mut().unwrap().mtu_bytes = 1500;
    says(&scene, "the receiver's wa has an MTU of 1500");
}

#[test]
fn a_path_mtu_that_was_learnt_is_told_from_one_that_was_set() {
    let mut scene = jumbo(1348);
    scene.flow().pmtu_bytes = 1400;
    scene.flow().advmss_bytes = 8948;
    says(&scene, "told by a router while the connection was open");
    mends(&scene, "tracepath -n 198.18.0.2  #");
    scene.flow().advmss_bytes = 1348;
    says(&scene, "an mtu of the sender's route or told by a router before");
    mends(
        &scene,
        "ip route change $(ip route get fibmatch 198.18.0.2 | sed -E 's/ mtu (lock )?[0-9]+//') mtu \
         9000",
    );
}

#[test]
fn without_the_receivers_account_all_causes_are_named() {
    let scene = jumbo(524);
    says(&scene, "TCP_MAXSEG of a socket, the advmss");
    mends(&scene, "advmss 8960  # on the endpoint's host");
}

/// The receiver advertised 536, and would itself send segments of `back` bytes.
fn asked_for(back: u32) -> Scene {
    let mut scene = jumbo(524);
    scene.flow().advmss_bytes = 8948;
    let receiver = &mut scene.window;
    (receiver.advmss_bytes, receiver.mss_bytes, receiver.pmtu_bytes) = (524, back, 9000);
    scene
}

#[test]
fn a_receivers_route_is_told_from_its_socket() {
    says(&asked_for(8948), "an MSS of 536: its route has such an advmss");
    mends(&asked_for(8948), "sed -E 's/ advmss (lock )?[0-9]+//') advmss 8960");
    says(&asked_for(524), "an MSS of 536: TCP_MAXSEG of its socket");
    mends(&asked_for(524), "linerate stream mauchly  # without --mss");
    // Held down by the sender's own small offer, it shows nothing of itself.
    let mut both = asked_for(524);
    both.flow().advmss_bytes = 524;
    says(&both, "(advmss of its route, TCP_MAXSEG of its socket)");
    let mut route = asked_for(524);
    route.window.pmtu_bytes = 576;
    says(&route, "an MSS of 536: its route has an mtu of 576");
    mends(&route, "mtu 9000  # on the endpoint's host");
}

#[test]
fn a_clamp_is_what_neither_end_explains() {
    let mut scene = jumbo(524);
    scene.window.advmss_bytes = 8948;
    scene.flow().advmss_bytes = 8948;
    says(&scene, "a router that clamps the MSS to 536 or takes the option away");
    scene.flow().mss_bytes = 1200;
    says(&scene, "a router that clamps the MSS to 1212 made it less");
    let probing = ("net.ipv4.tcp_mtu_probing".to_owned(), "1".to_owned());
    scene.sender_host.sysctls.extend([probing]);
    says(&scene, "TCP's MTU probing");
    mends(&scene, "tracepath -n 198.18.0.2");
    scene.flow().advmss_bytes = 1200;
    says(&scene, "TCP_MAXSEG of the sending socket");
    mends(&scene, "linerate stream mauchly  # without --mss");
}

/// The report of 1995: IP over ATM carries 9140 bytes, and half of its tests 536 or 512.
#[test]
fn the_segments_of_the_first_atm_networks_are_small() {
    for mss in [512, 536, 576] {
        let mut scene = jumbo(mss);
        scene.sender_host.device.as_mut().unwrap().mtu_bytes = 9180;
        scene.flow().pmtu_bytes = 9180;
        scene.flow().options.clear();
        says(&scene, &format!("segments carry {mss} bytes where wa with its MTU of 9180"));
    }
    let mut usual = jumbo(536);
    usual.sender_host.device.as_mut().unwrap().mtu_bytes = 1500;
    usual.flow().options.clear();
    says(&usual, "would carry 1460");
}

#[test]
fn the_other_direction_names_the_other_addresses() {
    let mut scene = asked_for(8948);
    scene.direction = crate::plan::Direction::Down;
    // A record without the client's address.
    mends(&scene, "$(ip route get fibmatch 198.18.0.2 |");
}

#[test]
fn a_small_interface_is_named() {
    let mut scene = jumbo(1228);
    scene.sender_host.device.as_mut().unwrap().mtu_bytes = 1280;
    scene.flow().pmtu_bytes = 1280;
    says(&scene, "the MTU of wa is 1280");
}
