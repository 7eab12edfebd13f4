//! Why segments are small.

use super::scene::{Scene, tcp};
use crate::ceilings::{small_segments, views};

fn message(scene: &Scene) -> Option<String> {
    let record = scene.record();
    let caveat = small_segments(&views(&record)[0])?;
    assert!(!caveat.remedy.is_empty());
    Some(caveat.message)
}

/// A path of jumbo frames on which segments are as small as on the first networks.
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
fn what_was_advertised_tells_the_receiver_from_a_router() {
    let mut scene = jumbo(524);
    says(&scene, "TCP_MAXSEG of a socket, the advmss");
    scene.flow().receiver_advmss_bytes = Some(536);
    says(&scene, "the receiver advertised an MSS of 536 (advmss");
    scene.flow().receiver_advmss_bytes = Some(8960);
    says(&scene, "a router that clamps");
}

#[test]
fn a_small_interface_is_named() {
    let mut scene = jumbo(1228);
    scene.sender_host.device.as_mut().unwrap().mtu_bytes = 1280;
    scene.flow().pmtu_bytes = 1280;
    says(&scene, "the MTU of wa is 1280");
}
