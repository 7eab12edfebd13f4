use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

use linerate_testkit::{Need, PATIENCE, skip, uninterrupted};

use super::*;

/// A pair, or none and a message that says why the test is skipped.
pub(crate) fn pair_or_skip() -> Option<Pair> {
    skip_without_privilege(Pair::create())
}

/// None, and a message, where namespaces may not be created; any other failure fails the test.
fn skip_without_privilege<T>(result: Result<T, NamespaceError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.errno() == Some(libc::EPERM) => {
            skip(Need::Lab, format_args!("{error}: needs CAP_SYS_ADMIN"));
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Numbers that repeat at no power of two, so that a shifted block shows.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

#[test]
fn tcp_transfer_arrives_whole_in_both_families() {
    let Some(pair) = pair_or_skip() else { return };
    for (from, to) in pair.a.addresses().into_iter().zip(pair.b.addresses()) {
        let listener = pair.b.namespace.run(|| TcpListener::bind((to, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let receiver = thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            (received, peer)
        });
        let sent = pattern(3_000_000);
        pair.a
            .namespace
            .run(|| TcpStream::connect(target).unwrap().write_all(&sent).unwrap())
            .unwrap();
        let (received, peer) = receiver.join().unwrap();
        assert!(received == sent, "{} of {} bytes, or altered", received.len(), sent.len());
        assert_eq!(peer.ip(), from);
    }
}

#[test]
fn udp_datagram_arrives_in_both_families() {
    let Some(pair) = pair_or_skip() else { return };
    for (from, to) in pair.a.addresses().into_iter().zip(pair.b.addresses()) {
        let bind = |host: &Host, ip: IpAddr| {
            host.namespace.run(move || UdpSocket::bind((ip, 0))).unwrap().unwrap()
        };
        let (sender, receiver) = (bind(&pair.a, from), bind(&pair.b, to));
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent = pattern(1400);
        sender.send_to(&sent, receiver.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 2000];
        let (length, peer) = uninterrupted(|| receiver.recv_from(&mut buffer)).unwrap();
        assert_eq!((&buffer[..length], peer), (&sent[..], sender.local_addr().unwrap()));
    }
}

#[test]
fn namespaces_do_not_see_each_other() {
    let Some(pair) = pair_or_skip() else { return };
    let inodes = [
        pair.a.namespace.inode().unwrap(),
        pair.b.namespace.inode().unwrap(),
        Namespace::current().unwrap().inode().unwrap(),
    ];
    assert!(
        inodes[0] != inodes[1] && inodes[1] != inodes[2] && inodes[0] != inodes[2],
        "{inodes:?}"
    );
    let names = pair.a.namespace.netlink().unwrap().links().unwrap();
    let mut names: Vec<_> = names.into_iter().map(|link| link.name).collect();
    names.sort();
    assert_eq!(
        names.iter().filter(|name| *name == Pair::LINK || *name == "lo").count(),
        2,
        "{names:?}"
    );
}

#[test]
fn thread_and_command_run_inside_and_the_caller_stays_outside() {
    let Some(pair) = pair_or_skip() else { return };
    let outside = Namespace::current().unwrap().inode().unwrap();
    let inside = pair.a.namespace.inode().unwrap();
    let thread = pair.a.namespace.spawn_thread("inside", || {
        (
            Namespace::current().unwrap().inode().unwrap(),
            thread::current().name().map(str::to_owned),
        )
    });
    assert_eq!(thread.unwrap().join().unwrap(), (inside, Some("inside".to_owned())));
    let output = pair.a.namespace.command("readlink").arg("/proc/self/ns/net").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), format!("net:[{inside}]"));
    assert_eq!(Namespace::current().unwrap().inode().unwrap(), outside);
}

#[test]
fn entered_namespace_is_that_of_the_thread_and_of_those_it_starts() {
    let Some(pair) = pair_or_skip() else { return };
    let inside = pair.a.namespace.inode().unwrap();
    let path = format!("/proc/self/fd/{}", pair.a.namespace.as_fd().as_raw_fd());
    let current = || Namespace::current().unwrap().inode().unwrap();
    let entered = thread::spawn(move || {
        Namespace::open(path).unwrap().enter().unwrap();
        [current(), thread::spawn(current).join().unwrap()]
    });
    assert_eq!(entered.join().unwrap(), [inside; 2]);
    let missing = Namespace::open("/proc/self/fd/no").unwrap_err();
    assert_eq!(missing.errno(), Some(libc::ENOENT));
    let no_namespace = Namespace::open("/proc/self/status").unwrap();
    assert_eq!(no_namespace.enter().unwrap_err().errno(), Some(libc::EINVAL));
}

#[test]
fn mounts_of_a_thread_with_private_ones_are_its_own() {
    let Some(_) = pair_or_skip() else { return };
    let (shown, hidden) = (std::path::Path::new("/proc/version"), "/proc/uptime");
    let read = move || std::fs::read(hidden).unwrap();
    let inside = thread::spawn(move || {
        private_mounts().unwrap();
        bind_mount(shown, std::path::Path::new(hidden)).unwrap();
        let missing = bind_mount(shown, std::path::Path::new("/nosuchfile")).unwrap_err();
        assert_eq!(missing.errno(), Some(libc::ENOENT));
        read()
    });
    assert_eq!(inside.join().unwrap(), std::fs::read(shown).unwrap());
    assert_ne!(read(), std::fs::read(shown).unwrap());
}

#[test]
fn waiting_for_a_link_ends_at_once_if_it_is_up_or_missing() {
    let Some(pair) = pair_or_skip() else { return };
    pair.a.namespace.wait_until_up(Pair::LINK).unwrap();
    let missing = pair.a.namespace.wait_until_up("nosuchlink").unwrap_err();
    assert_eq!(missing.errno(), Some(libc::ENODEV));
}

#[test]
fn panic_inside_reaches_the_caller() {
    let Some(namespace) = skip_without_privilege(Namespace::create("panics")) else {
        return;
    };
    let result = std::panic::catch_unwind(|| namespace.run(|| panic!("from inside")));
    assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"from inside"));
}

#[test]
fn loopback_is_up_in_a_new_namespace() {
    let Some(namespace) = skip_without_privilege(Namespace::create("loopback")) else {
        return;
    };
    let connected = namespace.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap())
            .map(|stream| stream.peer_addr().unwrap().ip())
    });
    assert_eq!(connected.unwrap().unwrap(), IpAddr::from([127, 0, 0, 1]));
}

#[test]
fn dropped_pair_takes_links_and_namespaces_with_it() {
    let Some(Pair { a, b }) = pair_or_skip() else {
        return;
    };
    let mut witness = a.namespace.netlink().unwrap();
    drop(a);
    assert!(witness.link(Pair::LINK).is_ok(), "the socket keeps the namespace and its link");
    drop(b);
    // The kernel takes namespaces apart in a work queue; the peer goes with b's.
    let gone =
        || matches!(witness.link(Pair::LINK), Err(error) if error.errno() == Some(libc::ENODEV));
    assert!(eventually(gone), "the link outlived the namespace of its peer");
}

#[test]
fn process_in_the_namespace_keeps_it_until_it_ends() {
    let Some(pair) = pair_or_skip() else { return };
    let mut witness = pair.b.namespace.netlink().unwrap();
    let mut child = pair.a.namespace.command("cat").stdin(Stdio::piped()).spawn().unwrap();
    drop(pair);
    assert!(witness.link(Pair::LINK).is_ok());
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(eventually(|| witness.link(Pair::LINK).is_err()), "the link outlived the process");
}

#[test]
fn cycles_of_create_and_drop_leak_no_descriptor() {
    // Other tests open descriptors meanwhile, so the count is taken in a process of its own.
    let Some(_) = skip_without_privilege(Namespace::create("probe")) else {
        return;
    };
    if std::env::var_os(CYCLES).is_none() {
        let test = "netns::tests::cycles_of_create_and_drop_leak_no_descriptor";
        let arguments = ["--exact", test, "--nocapture"];
        let child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .env(CYCLES, "1")
            .output();
        let child = child.unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        assert!(
            String::from_utf8_lossy(&child.stdout).contains("1 passed"),
            "the child ran no test"
        );
        return;
    }
    drop(Pair::create().unwrap());
    let before = descriptors();
    for _ in 0..30 {
        drop(Pair::create().unwrap());
    }
    assert_eq!(descriptors(), before);
}

const CYCLES: &str = "LINERATE_TEST_CYCLES";

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// True as soon as `condition` holds; false if it does not within [`PATIENCE`], which the kernel's
/// clean-up takes only when it is stuck.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < deadline {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn mtu_of_the_pair_decides_the_segment_size() {
    let Some(pair) = skip_without_privilege(Pair::with_mtu(9000)) else {
        return;
    };
    // 20 bytes of TCP header and those of IP.
    for (to, headers) in pair.b.addresses().into_iter().zip([40, 60]) {
        let listener = pair.b.namespace.run(|| TcpListener::bind((to, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let stream = pair.a.namespace.run(|| TcpStream::connect(target)).unwrap().unwrap();
        let mss = socket2::SockRef::from(&stream).tcp_mss().unwrap();
        // Timestamps take 12 bytes of it, where the host has them on.
        assert!(mss == 9000 - headers || mss == 9000 - headers - 12, "{mss} to {to}");
    }
}
