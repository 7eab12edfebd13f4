//! `serve --allow-treatments` as a program: what clients change on its host is undone, also when it
//! is killed.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::treatment::HostChange;
use linerate_core::wire::Key;
use linerate_engine::{Client, Stop, Target};
use linerate_sys::netns::Namespace;
use linerate_testkit::{Need, skip};

use crate::support::{PROGRAM, signal};

/// Long for a machine with much else to do: what is asserted is that it happens.
const SOON: Duration = Duration::from_secs(30);

/// An endpoint in a network namespace of its own, where clients may treat.
struct Served {
    namespace: Namespace,
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

fn key() -> String {
    "7e".repeat(32)
}

/// `None`, and says why, where no namespace can be made.
fn serve() -> Option<Served> {
    let namespace = match Namespace::create("host") {
        Ok(namespace) => namespace,
        Err(error) => {
            skip(Need::Lab, format_args!("needs a network namespace: {error}"));
            return None;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("key");
    fs::write(&path, key()).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let mut child = namespace
        .command(PROGRAM)
        .args("serve --port 0 --json-stream --allow-treatments --key-file".split(' '))
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let listening: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = listening["addresses"][0].as_str().unwrap();
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    Some(Served { namespace, child, port, _directory: directory })
}

impl Served {
    fn client(&self) -> Client {
        let target = Target {
            name: "host".into(),
            addresses: vec![([127, 0, 0, 1], self.port).into()],
            source: None,
            device: None,
            key: Some(Key::from_text(&key()).unwrap()),
            connect_timeout: SOON,
        };
        let connected = self.namespace.run(|| Client::connect(target, Stop::new()));
        connected.unwrap().unwrap()
    }

    fn has_sack(&self) -> bool {
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_sack").unwrap();
        self.namespace.run(read).unwrap().trim() == "1"
    }

    fn assert_sack_soon(&self) {
        let until = Instant::now() + SOON;
        while !self.has_sack() {
            assert!(Instant::now() < until, "the host is still changed");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it says on stderr to its end.
    fn words(&mut self) -> String {
        let mut words = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut words).unwrap();
        words
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has ended already unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn no_sack() -> [HostChange; 1] {
    [HostChange::Sysctl { key: "net.ipv4.tcp_sack".into(), value: "0".into() }]
}

#[test]
fn the_owner_sees_what_is_changed_and_that_it_is_undone() {
    let Some(mut served) = serve() else {
        return;
    };
    let mut client = served.client();
    client.treat(&no_sack()).unwrap();
    assert!(!served.has_sack());
    client.untreat().unwrap();
    assert!(served.has_sack());
    client.treat(&no_sack()).unwrap();
    assert!(!served.has_sack());
    signal(served.child.id(), "TERM");
    assert!(served.child.wait().unwrap().success());
    assert!(served.has_sack(), "the endpoint ended before it had undone it");
    let words = served.words();
    for line in [" treated: net.ipv4.tcp_sack", " untreated\n"] {
        assert_eq!(words.matches(line).count(), 2, "{words}");
    }
}

#[test]
fn a_killed_endpoint_leaves_its_host_as_it_was() {
    let Some(mut served) = serve() else {
        return;
    };
    let mut client = served.client();
    client.treat(&no_sack()).unwrap();
    assert!(!served.has_sack());
    signal(served.child.id(), "KILL");
    served.child.wait().unwrap();
    served.assert_sack_soon();
    assert!(client.untreat().is_err());
}
