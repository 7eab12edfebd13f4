//! Connections of others, watched from period to period.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use linerate_core::connection::{Connection, ConnectionsDocument};
use linerate_engine::connections::{Place, Selection, Watch};
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, eventually, made_or_skip};

/// The rows of a page, sorted.
fn facts(document: &ConnectionsDocument) -> Vec<(String, String, u64, bool, bool, bool)> {
    let fact = |one: &Connection| {
        let is_explained = one.verdict.is_some();
        let (local, remote) = (one.local.clone(), one.remote.clone());
        (local, remote, one.bytes_sent, one.ended, one.began, is_explained)
    };
    let mut facts: Vec<_> = document.connections.iter().map(fact).collect();
    facts.sort();
    facts
}

#[test]
fn a_page_that_is_brought_up_to_date_is_that_of_a_new_one() {
    let Some(pair) = made_or_skip(Need::Lab, Pair::create()) else {
        return;
    };
    let listener = pair.b.namespace.run(|| TcpListener::bind((pair.b.ipv4, 0)));
    let listener = listener.unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    let connect = || {
        let near = pair.a.namespace.run(|| TcpStream::connect(target));
        (near.unwrap().unwrap(), listener.accept().unwrap().0)
    };
    let send = |(near, far): &mut (TcpStream, TcpStream)| {
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
    };
    let mut flows = [connect(), connect(), connect()];
    let descriptor = pair.a.namespace.as_fd().as_raw_fd();
    let place = Place::Named(format!("/proc/self/fd/{descriptor}"));
    let mut watch = Watch::open(&Selection { place, ..Selection::default() }).unwrap();
    let mut page = watch.document();
    assert_eq!(page.connections.len(), 3);
    let sent = |page: &ConnectionsDocument| -> u64 {
        page.connections.iter().map(|one| one.bytes_sent).sum()
    };
    // One carries; then another, while one comes and one goes; then none.
    let mut added = None;
    for period in 0..3 {
        watch.begin_again();
        match period {
            0 => send(&mut flows[0]),
            1 => {
                send(&mut flows[1]);
                added = Some(connect());
                flows[2].0.shutdown(std::net::Shutdown::Both).unwrap();
                flows[2].1.shutdown(std::net::Shutdown::Both).unwrap();
            }
            _ => {}
        }
        eventually(&format!("period {period} is seen"), || {
            watch.look().unwrap();
            let now = watch.document();
            let ended = now.connections.iter().filter(|one| one.ended).count();
            match period {
                0 => sent(&now) >= 5000,
                1 => sent(&now) >= 5000 && ended == 1 && now.connections.len() == 4,
                _ => true,
            }
        });
        watch.update(&mut page);
        assert_eq!(facts(&page), facts(&watch.document()), "period {period}");
    }
    assert_eq!(page.connections.len(), 3);
    drop(added);
}
