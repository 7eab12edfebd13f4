//! A nats-server of a test's own, on loopback.
#![cfg(feature = "nats")]
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use linerate_testkit::{Need, eventually, made_or_skip};
use tempfile::TempDir;

/// Gone with this value.
pub(crate) struct Server {
    directory: TempDir,
    port: u16,
    child: Child,
}

impl Server {
    /// With `more` in its file; none, after saying why, where there is no nats-server.
    pub(crate) fn start(more: &str) -> Option<Self> {
        let found = Command::new("nats-server").arg("--version").output();
        made_or_skip(Need::Nats, found)?;
        let directory = TempDir::new().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let store = directory.path().join("store");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{more}\n",
            store.display()
        );
        fs::write(directory.path().join("nats.conf"), text).unwrap();
        let child = run(&directory.path().join("nats.conf"));
        let server = Self {
            directory,
            port,
            child,
        };
        server.wait();
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// As by kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = run(&self.directory.path().join("nats.conf"));
        self.wait();
    }

    fn wait(&self) {
        eventually("the server answers", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }
}

fn run(file: &Path) -> Child {
    let mut command = Command::new("nats-server");
    command
        .arg("-c")
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
