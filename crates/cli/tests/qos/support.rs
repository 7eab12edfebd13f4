//! Two hosts joined by a link, and the program run in one of them.

use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use linerate_engine::qos::{self, QosOptions};
use linerate_qos::document::QosDocument;
use linerate_sys::bpf::{self, probe};
use linerate_sys::netlink::{Netlink, NetlinkError};
use linerate_sys::netns::{Host, Pair};
use linerate_sys::socket::namespace_cookie;
use linerate_testkit::{Need, skip};
pub(crate) use linerate_testkit::{PATIENCE, eventually};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_linerate");

/// A pair of hosts and a directory for policy files. What was put in force on either is removed at
/// its end.
pub(crate) struct Bench {
    pub(crate) pair: Pair,
    directory: TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        for host in [&self.pair.a, &self.pair.b] {
            // Most tests have removed it themselves, and looked.
            let _ = host.namespace.run(|| qos::remove(None));
        }
    }
}

/// `None`, and a message, where programs cannot be loaded or namespaces not made.
pub(crate) fn bench() -> Option<Bench> {
    let support = probe();
    if !support.is_whole() {
        return skipped(&format!("needs root, and a kernel with TCX and bpffs: {support:?}"));
    }
    if let Err(error) = bpf::mount() {
        return skipped(&format!("needs a bpffs: {error}"));
    }
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&format!("needs network namespaces: {error}")),
    };
    if let Err(error) = pair.b.namespace.configure(try_htb) {
        return skipped(&format!("needs HTB: {error}"));
    }
    introduce(&pair.a, &pair.b);
    introduce(&pair.b, &pair.a);
    Some(Bench { pair, directory: tempfile::tempdir().unwrap() })
}

fn try_htb(netlink: &mut Netlink) -> Result<(), NetlinkError> {
    let index = netlink.link(Pair::LINK)?.index;
    netlink.replace_root_by_htb(index, 7, 0)?;
    netlink.delete_root(index, 7)
}

/// Tells a host the other's Ethernet address: what waits for ARP, on a busy machine for long, has
/// not met a policy yet, and too much of it is dropped.
fn introduce(host: &Host, other: &Host) {
    let of_link = |netlink: &mut Netlink| netlink.link(Pair::LINK);
    let mac = other.namespace.configure(of_link).unwrap().mac.unwrap();
    for address in other.addresses() {
        let know =
            |netlink: &mut Netlink| netlink.add_permanent_neighbour(Pair::LINK, address, mac);
        host.namespace.configure(know).unwrap();
    }
}

pub(crate) fn skipped<T>(why: &str) -> Option<T> {
    skip(Need::Bpf, why);
    None
}

impl Bench {
    /// A policy file.
    pub(crate) fn file(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("policy.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn a(&self) -> &Host {
        &self.pair.a
    }

    pub(crate) fn b(&self) -> &Host {
        &self.pair.b
    }

    /// Puts a policy in force in host a, by this process.
    pub(crate) fn apply(&self, text: &str) -> QosDocument {
        let apply = || qos::apply(text, &QosOptions::default());
        self.a().namespace.run(apply).unwrap().unwrap()
    }

    /// What is in force in host a.
    pub(crate) fn status(&self) -> QosDocument {
        self.a().namespace.run(|| qos::status(None)).unwrap().unwrap()
    }

    /// Where the pins of host a's end of the link are, in the bpffs that this process sees.
    pub(crate) fn pins(&self) -> PathBuf {
        let of_link = |netlink: &mut Netlink| netlink.link(Pair::LINK);
        let index = self.a().namespace.configure(of_link).unwrap().index;
        let cookie = self.a().namespace.run(namespace_cookie).unwrap().unwrap();
        bpf::mount().unwrap().join(format!("linerate/{cookie}-{index}"))
    }

    /// What a filter of host a has counted, packets and bytes.
    pub(crate) fn counted(&self, filter: &str) -> (u64, u64) {
        let status = self.status();
        let policies = status.adapters.iter().flat_map(|adapter| &adapter.policies);
        let mut filters = policies.flat_map(|policy| &policy.filters);
        let found = filters.find(|found| found.name == filter);
        found.map_or((0, 0), |found| (found.egress.packets, found.egress.bytes))
    }
}

/// The program with these arguments in that host.
pub(crate) fn run(host: &Host, arguments: &[&str], file: Option<&Path>) -> Output {
    command(host, arguments, file).output().unwrap()
}

pub(crate) fn command(host: &Host, arguments: &[&str], file: Option<&Path>) -> Command {
    let mut command = host.namespace.command(PROGRAM);
    command.arg("qos").args(arguments).args(file);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Its exit status, its document, and what it said beside.
pub(crate) fn json(host: &Host, arguments: &[&str], file: Option<&Path>) -> (i32, Value, String) {
    let mut all = arguments.to_vec();
    all.push("--json");
    let output = run(host, &all, file);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap_or(-1), document, stderr)
}

/// A socket of that host.
pub(crate) fn udp(host: &Host, address: IpAddr) -> UdpSocket {
    host.namespace.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap()
}
