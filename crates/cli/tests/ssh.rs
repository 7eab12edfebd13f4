//! `check ssh://HOST` by a real sshd, which this user runs on loopback with a configuration and
//! keys of its own.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use linerate_testkit::{Need, eventually, skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{PROGRAM, done, stderr};

/// `pit` of ssh's configuration, until this is dropped.
struct Sshd {
    child: Child,
    directory: TempDir,
}

impl Sshd {
    fn start() -> Option<Self> {
        let program = ["/usr/sbin/sshd", "/usr/bin/sshd"];
        let Some(program) = program.into_iter().find(|path| Path::new(path).exists()) else {
            skip(Need::Ssh, "needs sshd: apt-get install openssh-server");
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let port = configure(directory.path());
        let root = done(Command::new("id").arg("-u")).stdout == b"0\n";
        // As root it wants a directory in /run that only its own start script makes.
        let run = "[ -d /run/sshd ] || { mount -t tmpfs none /run && mkdir /run/sshd; } && ";
        let start = format!(
            "{}exec {program} -De -f {}/sshd_config",
            if root { run } else { "" },
            directory.path().display()
        );
        let mut command = Command::new(if root { "unshare" } else { "env" });
        command.args(root.then_some("--mount"));
        let log = fs::File::create(directory.path().join("log")).expect("a file");
        let spawned = command.args(["sh", "-c", &start]).stderr(log).spawn();
        let mut started = Self { child: spawned.expect("a shell"), directory };
        let mut ended = false;
        eventually("sshd listens", || {
            ended = started.child.try_wait().expect("it is ours").is_some();
            ended || TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        if ended {
            let why = fs::read_to_string(started.at("log")).unwrap_or_default();
            skip(Need::Ssh, format!("sshd does not run here: {why}"));
            return None;
        }
        Some(started)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn check(&self, options: &[&str]) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new(PROGRAM)
            .args(["check", "--quick", "--json"])
            .args(options)
            .env("PATH", format!("{}:{path}", self.at("bin").display()))
            .stdin(Stdio::null())
            .output()
            .expect("the program was built for this test")
    }

    fn assert_nothing_is_left(&self) {
        let left = || fs::read_dir(self.at("there")).expect("read").count();
        eventually("what was copied is gone", || left() == 0);
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Ended already, where it could not start.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes keys, sshd's configuration and ssh's, and an `ssh` that reads it; sshd's port.
fn configure(directory: &Path) -> u16 {
    let at = directory.display();
    for key in ["host", "user", "stranger"] {
        let mut make = Command::new("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        done(make.arg(directory.join(key)));
    }
    let user = String::from_utf8(done(Command::new("id").arg("-un")).stdout).expect("a name");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let server = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\n\
         PidFile none\nStrictModes no\nUsePAM no\nSetEnv TMPDIR={at}/there\n"
    );
    let client = format!(
        "Host pit other\nHostName 127.0.0.1\nPort {port}\nUser {}\nIdentitiesOnly yes\n\
         StrictHostKeyChecking no\nUserKnownHostsFile {at}/known\nBatchMode yes\n\
         Host pit\nIdentityFile {at}/user\nHost other\nIdentityFile {at}/stranger\n",
        user.trim()
    );
    let ssh = format!("#!/bin/sh\nPATH=${{PATH#*:}}\nexec ssh -F {at}/ssh_config \"$@\"\n");
    for name in ["there", "bin"] {
        fs::create_dir(directory.join(name)).expect("made");
    }
    for (name, text) in [("sshd_config", server), ("ssh_config", client), ("bin/ssh", ssh)] {
        fs::write(directory.join(name), text).expect("written");
    }
    done(Command::new("chmod").arg("755").arg(directory.join("bin/ssh")));
    port
}

#[test]
fn an_endpoint_that_ssh_starts_measures_and_leaves_nothing() {
    let Some(sshd) = Sshd::start() else {
        return;
    };
    let output = sshd.check(&["ssh://pit"]);
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["schema"], "linerate.check/1");
    assert_eq!(document["host"], "ssh://pit", "as it was typed");
    assert!(document["up"]["throughput_bps"].as_f64() > Some(0.0), "{document}");
    sshd.assert_nothing_is_left();

    // Its port is taken: the endpoint ends as soon as it begins.
    let taken = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    let taken = taken.expect("a port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let ended = sshd.check(&["ssh://pit", "-p", &port]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let said = stderr(&ended);
    assert!(said.contains("no endpoint could be started"), "{said}");
    sshd.assert_nothing_is_left();

    let unknown = sshd.check(&["ssh://nowhere.invalid"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let said = stderr(&unknown);
    assert!(said.contains("linerate: ssh://nowhere.invalid: unknown host: "), "{said}");

    let refused = sshd.check(&["ssh://other"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = stderr(&refused);
    assert!(said.contains("Permission denied (publickey"), "{said}");
    assert!(said.contains("no endpoint could be started by ssh"), "{said}");
    sshd.assert_nothing_is_left();
}
