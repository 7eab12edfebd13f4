//! Helpers that the tests of all crates share: a test that cannot run on this host says so, and a
//! test can wait for a condition.
//!
//! The crate has no dependencies, so that every crate can use it; a browser, for tests of pages, is
//! a feature. Helpers that start endpoints or programs are in `tests/` of engine and cli.

#[cfg(feature = "browser")]
pub mod browser;
pub mod postgres;

use std::env;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The environment variable with the needs that this host must meet, separated by commas: a test
/// that lacks one of them fails instead of being skipped. `all` means all of them.
pub const REQUIRE: &str = "LINERATE_REQUIRE";

/// How long [`eventually`] waits: longer than anything takes that does not hang, even on a busy
/// machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

macro_rules! needs {
    ($($(#[$doc:meta])* $need:ident = $name:literal,)*) => {
        /// What a test may need that a host may lack.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Need {
            $($(#[$doc])* $need,)*
        }

        impl Need {
            /// All of them, with their names in [`REQUIRE`].
            pub const ALL: &[(Self, &str)] = &[$((Self::$need, $name),)*];
        }
    };
}

needs! {
    /// The user root of the whole host, or some privilege of it.
    Root = "root",
    /// Network namespaces, and labs in them.
    Lab = "lab",
    /// Loading and attaching eBPF programs, and HTB.
    Bpf = "bpf",
    /// Samples of the CPUs by perf events.
    Perf = "perf",
    /// Addresses of the kernel's functions.
    Symbols = "symbols",
    /// Control groups that can be made.
    Cgroup = "cgroup",
    /// IPv6 on loopback.
    Ipv6 = "ipv6",
    /// MPTCP.
    Mptcp = "mptcp",
    /// The kernel's segmentation of UDP.
    UdpSegment = "udp_segment",
    /// `ip` of iproute2, with /dev/net/tun.
    Iproute2 = "iproute2",
    /// `setpriv` of util-linux, and mounts.
    Setpriv = "setpriv",
    /// Files of /proc and /sys that some hosts hide.
    Procfs = "procfs",
    /// The program iperf3.
    Iperf3 = "iperf3",
    /// The programs of netperf.
    Netperf = "netperf",
    /// The program nuttcp.
    Nuttcp = "nuttcp",
    /// The program iperf, version 2.
    Iperf = "iperf",
    /// Chromium with its WebDriver.
    Browser = "browser",
    /// Prometheus's promtool.
    Promtool = "promtool",
    /// The program nats-server.
    Nats = "nats",
    /// The library libfaketime.
    Faketime = "faketime",
    /// A Prometheus server.
    Prometheus = "prometheus",
    /// A Prometheus server that takes OTLP: 2.47 or later.
    PrometheusOtlp = "prometheus_otlp",
    /// The programs of a PostgreSQL server.
    Postgres = "postgres",
    /// The program openssl.
    Openssl = "openssl",
    /// `systemd-analyze` of systemd.
    Systemd = "systemd",
    /// `sshd` and `ssh` of OpenSSH.
    Ssh = "ssh",
    /// bash, zsh and fish, and `script` that gives them a terminal.
    Shells = "shells",
    /// The program python3.
    Python = "python",
    /// A machine that keeps up with the test; never the host's fault.
    Speed = "speed",
}

impl Need {
    /// The name in [`REQUIRE`].
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(need, _)| *need == self);
        found.expect("the table has every need").1
    }
}

/// Prints on stderr that the calling test is skipped. The test harness does not capture this,
/// unlike other output of a passing test.
///
/// # Panics
/// [`REQUIRE`] has the need, or an unknown name.
pub fn skip(need: Need, reason: impl Display) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let is_required = requires(&required, need).unwrap_or_else(|error| panic!("{error}"));
    assert!(!is_required, "{REQUIRE} has {}, but: {reason}", need.name());
    let test = thread::current();
    let test = test.name().unwrap_or("a test");
    let line = format!("SKIPPED: {test} ({}): {reason}\n", need.name());
    // A test does not fail because nobody can read why it did not run.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The value, or `None` after [`skip`].
///
/// # Panics
/// As [`skip`].
pub fn made_or_skip<T, E: Display>(need: Need, made: Result<T, E>) -> Option<T> {
    made.map_err(|error| skip(need, error)).ok()
}

fn requires(list: &str, need: Need) -> Result<bool, String> {
    let mut found = false;
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if name != "all" && !Need::ALL.iter().any(|(_, known)| *known == name) {
            let known: Vec<&str> = Need::ALL.iter().map(|(_, known)| *known).collect();
            let known = known.join(", ");
            return Err(format!("{REQUIRE}: no need is named {name:?}: all, {known}"));
        }
        found |= name == need.name() || (name == "all" && need != Need::Speed);
    }
    Ok(found)
}

/// Runs the calling test again, in a process of its own that runs nothing else: for tests that
/// count the threads or the descriptors of their process. True after it has passed there, and the
/// caller returns; false in that process.
///
/// # Panics
/// The test fails there, or its process cannot be started.
pub fn passes_in_own_process() -> bool {
    const IS_THERE: &str = "LINERATE_TEST_PROCESS";
    if env::var_os(IS_THERE).is_some() {
        return false;
    }
    let test = thread::current();
    let test = test.name().expect("a test's thread has the name of the test");
    let program = env::current_exe().expect("the file of this program");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture"]).env(IS_THERE, "1");
    let output = command.stdin(Stdio::null()).output();
    let output = output.expect("this program can be started again");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    for line in stderr.lines().filter(|line| line.starts_with("SKIPPED: ")) {
        // As in `skip`.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    let passes = output.status.success() && stdout.contains("1 passed");
    assert!(passes, "in a process of its own:\n{stdout}{stderr}");
    true
}

/// Waits until `holds` returns true.
///
/// # Panics
/// It does not within [`PATIENCE`].
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Makes a call again that has ended because the whole process was stopped and goes on: a call with
/// a timeout does (signal(7)), and no reader wants to know of it.
///
/// # Errors
/// Those of the call, but [`io::ErrorKind::Interrupted`].
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A port of TCP and UDP for a server that another program opens.
///
/// It is none that the kernel hands out by itself (net.ipv4.ip_local_port_range, from 32768 by
/// default), so that no other test's connection gets it before the server does. Nor does a process
/// get it, or the one after it, a second time.
///
/// # Panics
/// None is free.
pub fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Processes of one time begin apart.
    let own = std::process::id().wrapping_mul(194);
    (0..COUNT / 2)
        .map(|_| own.wrapping_add(TAKEN.fetch_add(2, Ordering::Relaxed)))
        .map(|number| (FIRST + number % COUNT) as u16)
        .find(|&port| {
            let anywhere = (Ipv4Addr::UNSPECIFIED, port);
            TcpListener::bind(anywhere).is_ok() && UdpSocket::bind(anywhere).is_ok()
        })
        .expect("one of 6,000 ports is free")
}

/// `struct tc_tbf_qopt` in `TCA_TBF_PARMS` (include/uapi/linux/pkt_sched.h): 32 KiB at once, and a
/// queue of so many bytes.
pub fn token_bucket(rate: u32, queue: u32) -> Vec<u8> {
    const ETHERNET: u32 = 1 << 8;
    let ticks = (32_768 * 1_000_000_000 / u64::from(rate) / 64) as u32;
    let specification = [ETHERNET, 0, rate, 0, 0, 0];
    let words = specification.into_iter().chain([queue, ticks, 0]);
    let header = [40_u16, 1].into_iter().flat_map(u16::to_ne_bytes);
    header.chain(words.flat_map(u32::to_ne_bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_required_by_its_name_or_by_all_and_a_wrong_name_is_refused() {
        assert_eq!(requires("", Need::Lab), Ok(false));
        assert_eq!(requires("root, lab", Need::Lab), Ok(true));
        assert_eq!(requires("root", Need::Lab), Ok(false));
        assert_eq!(requires("all", Need::Iperf3), Ok(true));
        assert_eq!(requires("all", Need::Speed), Ok(false));
        assert!(requires("rooot", Need::Lab).is_err());
    }
}
