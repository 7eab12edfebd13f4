//! A nats-server of a test's own, or a cluster of three, on loopback.
#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, reason = "a test says what it expects by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use linerate_testkit::{Need, eventually, free_port, made_or_skip};
use tempfile::TempDir;

use crate::monitor::get;

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
        Some(Self::at(free_port(), more))
    }

    fn at(port: u16, more: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let store = directory.path().join("store");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{more}\n",
            store.display()
        );
        fs::write(directory.path().join("nats.conf"), text).unwrap();
        let child = run(&directory.path().join("nats.conf"));
        let server = Self { directory, port, child };
        server.wait();
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
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
            // It speaks first; one that is starting accepts and hangs up.
            let stream = TcpStream::connect(("127.0.0.1", self.port));
            stream.is_ok_and(|mut stream| stream.read_exact(&mut [0; 4]).is_ok())
        });
    }
}

/// Three servers that keep copies of each other's streams.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    /// Where each says whether it has caught up with the others.
    health: Vec<u16>,
}

impl Cluster {
    /// With `more` in each file; none, after saying why, where there is no nats-server.
    pub(crate) fn start(more: &str) -> Option<Self> {
        let found = Command::new("nats-server").arg("--version").output();
        made_or_skip(Need::Nats, found)?;
        let routes = [(); 3].map(|()| free_port());
        let all = routes.map(|port| format!("\"nats://127.0.0.1:{port}\""));
        let health: Vec<u16> = routes.iter().map(|_| free_port()).collect();
        let servers = (0..3).map(|number| {
            let mut text = format!("server_name: n{number}\nhttp: \"127.0.0.1:");
            let _ = write!(
                text,
                "{}\"\ncluster {{ name: c, listen: \"127.0.0.1:{}\", routes: [{}] }}\n{more}",
                health[number],
                routes[number],
                all.join(", ")
            );
            Server::at(free_port(), &text)
        });
        let cluster = Self { servers: servers.collect(), health };
        (0..3).for_each(|number| cluster.wait(number));
        Some(cluster)
    }

    pub(crate) fn url(&self) -> String {
        let urls: Vec<String> = self.servers.iter().map(Server::url).collect();
        urls.join(",")
    }

    /// Until a server has all that the others have.
    pub(crate) fn wait(&self, number: usize) {
        let address = format!("127.0.0.1:{}", self.health[number]);
        eventually("the server has caught up", || {
            TcpStream::connect(&address).is_ok()
                && get(&address, "/healthz").starts_with("HTTP/1.1 200")
        });
    }
}

fn run(file: &Path) -> Child {
    let mut command = Command::new("nats-server");
    command.arg("-c").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
