//! From the endpoint that the user named to the addresses, the source and the key of a connection;
//! `check ssh://HOST` starts the endpoint first.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use linerate_core::plan::{Direction, Plan, Protocol, Test, Traffic};
use linerate_core::remedy::shell_word;
use linerate_core::units::{DEFAULT_PORT, EndpointName, Family, Span};
use linerate_core::wire::Key;
use linerate_engine::{Target, check_scope, knows_congestion, random_hex};
use serde_json::Value;

use crate::args::PathOptions;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{files, typed};

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest UDP payload of IPv4: 65,535 less 20 and 8 bytes of headers.
const MAX_IPV4_DATAGRAM: u64 = 65_507;

/// Looks up the name and reads the key.
///
/// # Errors
/// A contradiction, an unknown host, or a bad key file.
pub(crate) fn look_up(
    name: EndpointName,
    options: &PathOptions,
    progress: &mut Progress,
) -> Result<Target, Failure> {
    check_options(&name, options).map_err(Failure::usage)?;
    let key_file = options.key_file.as_deref();
    let key = files::read_key(key_file, |warning| progress.warn(warning))?;
    let port = name.port.or(options.port).unwrap_or(DEFAULT_PORT);
    let connect_timeout = options.connect_timeout.map_or(DEFAULT_CONNECT_TIMEOUT, |t| t.0);
    progress.waits(&format!("connecting to {name}, for {} at most", Span(connect_timeout)));
    let found = (name.host.as_str(), port).to_socket_addrs();
    let addresses = wanted(found, options).context(name.to_string()).map_err(Failure::usage)?;
    addresses.iter().try_for_each(|it| check_scope(it, options.device.as_deref()))?;
    Ok(Target {
        name: name.to_string(),
        addresses,
        source: options.source,
        device: options.device.clone(),
        key,
        connect_timeout,
    })
}

/// Refuses datagrams that the endpoint's family cannot carry.
///
/// # Errors
/// A size is too large for IPv4 and the endpoint has an IPv4 address.
pub(crate) fn check_sizes(target: &Target, plan: &Plan) -> Result<(), Failure> {
    let is_ipv4 = target.addresses.iter().any(SocketAddr::is_ipv4);
    let udp = plan.tests.iter().filter(|test| test.protocol == Protocol::Udp);
    let mut sizes = udp.flat_map(|test| messages(&test.traffic));
    match sizes.find(|(_, size)| is_ipv4 && *size > MAX_IPV4_DATAGRAM) {
        Some((key, size)) => Err(Failure::usage(anyhow!(
            "{} {size}: it must be up to {MAX_IPV4_DATAGRAM} over IPv4; or give -6",
            typed::option(key)
        ))),
        None => Ok(()),
    }
}

/// Refuses a congestion control that this host does not have, if it is to send by it. `option` is
/// where the user named it.
///
/// # Errors
/// The kernel does not have it; the error names those that it has.
pub(crate) fn check_congestion(
    test: &Test,
    option: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let receives_only =
        test.direction == Direction::Down && matches!(test.traffic, Traffic::Stream(_));
    match &test.options.congestion {
        Some(name) if !receives_only => {
            let known = knows_congestion(name).map_err(Failure::from);
            known.map_err(|failure| failure.at(option(name)))
        }
        _ => Ok(()),
    }
}

/// Refuses datagrams without a rate on a path that others may be on.
///
/// # Errors
/// No rate was typed, and the test sends as fast as it can.
pub(crate) fn check_pace(target: &Target, plan: &Plan, is_typed: bool) -> Result<(), Failure> {
    if is_typed || is_alone_on(target) || !plan.tests.iter().any(floods) {
        return Ok(());
    }
    let option = typed::option("-u");
    Err(Failure::usage(anyhow!("{option}: {FLOOD}")))
}

/// Whether nobody else is on the path to any of its addresses.
pub(crate) fn is_alone_on(target: &Target) -> bool {
    target.addresses.iter().all(|address| is_private(address.ip()))
}

/// Why UDP needs a rate, and how to give one.
pub(crate) const FLOOD: &str =
    "without a rate it floods the path: give --rate RATE, or --rate max for as fast as it goes";

/// Whether a test sends datagrams as fast as it can.
pub(crate) fn floods(test: &Test) -> bool {
    let is_unpaced =
        |traffic: &Traffic| matches!(traffic, Traffic::Stream(it) if it.rate_bps.is_none());
    test.protocol == Protocol::Udp && is_unpaced(&test.traffic)
}

/// Whether nobody else is on the path: loopback, or a test network (RFC 2544, RFC 5180) such as a
/// lab's.
fn is_private(address: IpAddr) -> bool {
    address.is_loopback()
        || match address {
            IpAddr::V4(address) => matches!(address.octets(), [198, 18 | 19, ..]),
            IpAddr::V6(address) => matches!(address.segments(), [0x2001, 2, 0, ..]),
        }
}

fn check_options(name: &EndpointName, options: &PathOptions) -> anyhow::Result<()> {
    if let (Some(named), Some(given)) = (name.port, options.port) {
        ensure!(
            named == given,
            "HOST {name} cannot be used with {} {given}: give one port",
            typed::option("port")
        );
    }
    if let (Some(source), Some(family)) = (options.source, options.family()) {
        ensure!(
            Family::from(source) == family,
            "{} {source} cannot be used with {}: it is of the other family",
            typed::option("source"),
            typed::flag(family)
        );
    }
    Ok(())
}

/// The addresses of the family that was asked for, or of the source address.
fn wanted(
    found: io::Result<impl Iterator<Item = SocketAddr>>,
    options: &PathOptions,
) -> anyhow::Result<Vec<SocketAddr>> {
    let all: Vec<SocketAddr> = found.context("unknown host")?.collect();
    let family = options.family().or(options.source.map(Family::from));
    let mut addresses = Vec::new();
    for address in all {
        let is_wanted = family.is_none_or(|family| Family::from(address.ip()) == family);
        if is_wanted && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    match (addresses.is_empty(), family) {
        (true, Some(Family::Ipv4)) => bail!("the host has no IPv4 address"),
        (true, Some(Family::Ipv6)) => bail!("the host has no IPv6 address"),
        (true, None) => bail!("the host has no address"),
        (false, _) => Ok(addresses),
    }
}

/// The options that have the sizes of messages.
fn messages(traffic: &Traffic) -> Vec<(&'static str, u64)> {
    match traffic {
        Traffic::Stream(stream) => vec![("size", stream.message_bytes)],
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => {
            vec![("request", exchange.request_bytes), ("response", exchange.response_bytes)]
        }
    }
}

// `check ssh://HOST`: copies this program to HOST by ssh and starts it there as an endpoint with a
// key of its own. The endpoint ends with the ssh connection, and its files are removed.

/// An endpoint that runs on another host until this is dropped.
#[derive(Debug)]
pub(crate) struct Remote {
    ssh: Child,
    /// As the user named it.
    place: String,
    /// Where it listens.
    name: EndpointName,
    key: Key,
}

impl Remote {
    /// Starts an endpoint at `port`; 0 takes a free one. `place` is a URL as ssh takes it:
    /// `ssh://USER@HOST:PORT`.
    ///
    /// # Errors
    /// There is no such host; ssh is not installed or cannot log in, or the program does not run
    /// there.
    pub(crate) fn start(place: &str, port: u16) -> Result<Self, Failure> {
        let known = known_to_ssh(place).map_err(Failure::failed)?;
        Self::on(&known, place, port).map_err(|error| match known.lookup() {
            Err(unknown) => {
                Failure::usage(anyhow!(unknown).context(format!("{place}: unknown host")))
            }
            Ok(()) => Failure::failed(error),
        })
    }

    fn on(known: &SshHost, place: &str, port: u16) -> anyhow::Result<Self> {
        let text = random_hex(32)?;
        let key = Key::from_text(&text)?;
        let program = std::fs::read("/proc/self/exe").context("this program")?;
        let machine = format!("Linux {}", std::env::consts::ARCH);
        let bytes = program.len();
        let script = format!("MACHINE='{machine}' BYTES={bytes} PORT={port}\n{SCRIPT}");
        let mut ssh = Command::new("ssh")
            .args([
                "-T",
                // A host that is gone ends ssh, and with it the check.
                "-oConnectTimeout=30",
                "-oServerAliveInterval=15",
                "--",
                place,
                &format!("exec sh -c {}", shell_word(&script)),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("ssh")?;
        let mut stdin = ssh.stdin.take().expect("it is piped");
        // If ssh cannot log in, this write fails, and ssh has said why on stderr.
        let sent = writeln!(stdin, "{text}").and_then(|()| stdin.write_all(&program));
        ssh.stdin = Some(stdin);
        let stdout = ssh.stdout.take().expect("it is piped");
        let name = EndpointName { host: known.host.clone(), port: None };
        let mut started = Self { ssh, place: place.to_owned(), name, key };
        let listens = sent.and_then(|()| port_of(stdout, PATIENCE));
        let failed = format!("{place}: no endpoint could be started by ssh; it says why above");
        started.name.port = Some(listens.map_err(|error| match error.kind() {
            // ssh, or the script, has ended.
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => anyhow!(failed),
            io::ErrorKind::TimedOut => {
                anyhow!("{place}: no endpoint listens there after {PATIENCE:?}")
            }
            _ => anyhow!(error).context(failed),
        })?);
        Ok(started)
    }

    /// How to connect to the endpoint.
    ///
    /// # Errors
    /// As [`look_up`].
    pub(crate) fn target(
        &self,
        path: &PathOptions,
        progress: &mut Progress,
    ) -> Result<Target, Failure> {
        let path = PathOptions { port: None, key_file: None, ..path.clone() };
        let target = look_up(self.name.clone(), &path, progress)?;
        let key = Some(self.key.clone());
        Ok(Target { name: self.place.clone(), key, ..target })
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The script cleans up when its standard input ends, and ssh ends with the script.
        drop(self.ssh.stdin.take());
        let begun = Instant::now();
        while matches!(self.ssh.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE_AT_END {
                let _ = self.ssh.kill();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The port in the endpoint's first line. A thread waits for it, and reads and drops all later
/// lines.
fn port_of(stdout: impl Read + Send + 'static, patience: Duration) -> io::Result<u16> {
    let (sender, first) = mpsc::channel();
    thread::spawn(move || {
        let mut events = BufReader::new(stdout);
        let mut line = String::new();
        let read = (&mut events).take(MAX_LINE).read_line(&mut line);
        // Nobody listens after the deadline.
        let _ = sender.send(read.map(|_| line));
        io::copy(&mut events, &mut io::sink())
    });
    let line =
        first.recv_timeout(patience).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let event: Value = serde_json::from_str(&line).map_err(io::Error::from)?;
    let address = event["addresses"][0].as_str().unwrap_or_default();
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    port.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A host as ssh's configuration has it.
struct SshHost {
    /// The host name behind the name that the user typed, which may be an alias.
    host: String,
    /// Whether ssh goes by another host or program, which may know names that this host does not.
    by_proxy: bool,
}

impl SshHost {
    /// Looks the host up, unless somebody else does it for ssh.
    ///
    /// # Errors
    /// There is no such host.
    fn lookup(&self) -> io::Result<()> {
        if self.by_proxy {
            return Ok(());
        }
        (self.host.as_str(), 0).to_socket_addrs().map(drop)
    }
}

fn known_to_ssh(place: &str) -> anyhow::Result<SshHost> {
    let known =
        Command::new("ssh").args(["-G", "--", place]).output().context("ssh: is it installed?")?;
    ensure!(known.status.success(), "{place}: {}", String::from_utf8_lossy(&known.stderr).trim());
    let text = String::from_utf8_lossy(&known.stdout);
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("hostname "))
        .ok_or_else(|| anyhow!("{place}: ssh -G says no hostname"))?;
    let mut lines = text.lines();
    Ok(SshHost {
        host: name.trim_matches(['[', ']']).to_owned(),
        by_proxy: lines
            .any(|line| line.starts_with("proxyjump ") || line.starts_with("proxycommand ")),
    })
}

/// From the program's last byte to the endpoint's first line; what ssh and the network hold of the
/// program, some megabytes, is on its way then.
const PATIENCE: Duration = Duration::from_secs(120);
/// For the other host to clean up.
const PATIENCE_AT_END: Duration = Duration::from_secs(20);
/// Longest first line of an endpoint, bytes.
const MAX_LINE: u64 = 1 << 16;

/// Runs on the other host. It reads the key's line and then the program from standard input, ends
/// the endpoint when standard input ends, and ends with the endpoint.
const SCRIPT: &str = r#"set -e
[ "$(uname -sm)" = "$MACHINE" ] || { echo "it is $(uname -sm), and the program for $MACHINE" >&2; exit 1; }
umask 077
directory=$(mktemp -d)
endpoint= watch=
trap 'kill $watch $endpoint 2>/dev/null || true; rm -rf "$directory"' EXIT
trap 'exit 1' HUP INT TERM
IFS= read -r key
echo "$key" > "$directory/key"
head -c "$BYTES" > "$directory/linerate"
chmod 700 "$directory/linerate"
"$directory/linerate" serve --port "$PORT" --key-file "$directory/key" --json-stream --quiet &
endpoint=$!
exec 3<&0
{ cat; kill $endpoint; } <&3 >/dev/null 2>&1 &
watch=$! status=0
wait $endpoint || status=$?
endpoint=
exit $status
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_says_nothing_or_has_ended_is_not_waited_for() {
        let (silent, _open) = io::pipe().unwrap();
        let error = port_of(silent, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = port_of(io::empty(), PATIENCE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let line = b"{\"addresses\":[\"[::]:7\"]}\n";
        assert_eq!(port_of(&line[..], PATIENCE).unwrap(), 7);
    }
}
