//! The commands by which other programs make a scenario's traffic.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use linerate_core::plan::{Direction, Extent, StreamTest, Traffic};

use super::TruthError;
use crate::scenario::{Scenario, TrafficProgram};

/// The commands for the two ends, the server first.
pub(super) struct Commands {
    pub(super) server: Vec<String>,
    pub(super) client: Vec<String>,
}

/// The server of the transfer.
pub(super) struct TransferServer<'a> {
    /// Address that it listens at.
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// Directory for the files of the programs; both ends may read and write there.
    pub(super) directory: &'a Path,
}

/// Directories with a host's programs, independent of the caller's PATH.
pub(super) const PATHS: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Looks for a program.
///
/// # Errors
/// [`TruthError::LeftOut`]: it is not installed.
pub(super) fn require(name: &str) -> Result<(), TruthError> {
    if is_installed(name) {
        return Ok(());
    }
    Err(TruthError::LeftOut(format!("SKIPPED: no `{name}` here")))
}

/// Whether a program is installed.
pub(super) fn is_installed(name: &str) -> bool {
    PATHS.split(':').any(|path| Path::new(path).join(name).exists())
}

/// The commands of the scenario's program.
///
/// # Errors
/// [`TruthError::LeftOut`]: it is not installed, or its files cannot be made.
pub(super) fn commands(
    program: TrafficProgram,
    scenario: &Scenario,
    server: &TransferServer<'_>,
) -> Result<Commands, TruthError> {
    for name in needed(program) {
        require(name)?;
    }
    let made = match program {
        TrafficProgram::Python => Ok(python(scenario, server)),
        TrafficProgram::Iperf3 => Ok(iperf3(scenario, server)),
        TrafficProgram::Nginx => nginx(scenario, server),
        TrafficProgram::Socat => Ok(socat(scenario, server)),
        TrafficProgram::Ssh | TrafficProgram::Scp => {
            ssh(scenario, server, program == TrafficProgram::Scp)
        }
    };
    made.map_err(|error| TruthError::LeftOut(format!("files for {program:?}: {error}")))
}

/// The executables that a program takes.
fn needed(program: TrafficProgram) -> &'static [&'static str] {
    match program {
        TrafficProgram::Python => &["python3"],
        TrafficProgram::Iperf3 => &["iperf3"],
        TrafficProgram::Nginx => &["nginx", "curl"],
        TrafficProgram::Socat => &["socat"],
        TrafficProgram::Ssh | TrafficProgram::Scp => &["ssh", "scp", "sshd", "ssh-keygen"],
    }
}

fn stream(scenario: &Scenario) -> StreamTest {
    match &scenario.test.traffic {
        Traffic::Stream(stream) => stream.clone(),
        Traffic::Rr(_) | Traffic::Crr(_) => StreamTest::new(LARGE_PIECE),
    }
}

fn transfer(scenario: &Scenario) -> Option<u64> {
    match scenario.test.extent {
        Extent::Bytes(bytes) => Some(bytes.0),
        Extent::Time(_) | Extent::Count(_) => None,
    }
}

fn client_sends(scenario: &Scenario) -> bool {
    scenario.test.direction != Direction::Down
}

/// The words of a command without quotes.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn python(scenario: &Scenario, server: &TransferServer<'_>) -> Commands {
    let (stream, options) = (stream(scenario), &scenario.test.options);
    let end = |role: &str, sends: bool| {
        let rate = if sends { stream.write_rate_bps } else { stream.read_rate_bps };
        let piece = if sends { stream.message_bytes } else { LARGE_PIECE };
        let options = [
            ("sends", Some(u64::from(sends))),
            ("message", Some(piece)),
            ("rate", rate.map(|rate| (rate.0 / 8).max(1))),
            ("bytes", transfer(scenario)),
            ("send_buffer", options.send_buffer_bytes.filter(|_| sends).map(|b| b.0)),
            ("receive_buffer", options.receive_window_bytes.filter(|_| !sends).map(|b| b.0)),
            ("pacing", options.pacing_bps.filter(|_| sends).map(|rate| rate.0 / 8)),
            ("mss", options.mss_bytes.map(u64::from)),
            ("nodelay", options.nodelay.then_some(1)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        let begin = ["python3", "-c", SCRIPT, role].map(str::to_owned);
        let site = [server.address.to_string(), server.port.to_string()];
        begin.into_iter().chain(site).chain(options).collect()
    };
    let up = client_sends(scenario);
    Commands { server: end("server", !up), client: end("client", up) }
}

fn iperf3(scenario: &Scenario, server: &TransferServer<'_>) -> Commands {
    let (stream, options) = (stream(scenario), &scenario.test.options);
    let TransferServer { address, port, .. } = server;
    let mut client = format!("iperf3 -c {address} -p {port} -t 3600 -l {}", stream.message_bytes);
    let mut tell = |key: &str, value: Option<u64>| {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = write!(client, " {key} {value}");
        }
    };
    tell("-b", stream.write_rate_bps.map(|rate| rate.0));
    tell("--fq-rate", options.pacing_bps.map(|rate| rate.0));
    tell("-M", options.mss_bytes.map(u64::from));
    if options.nodelay {
        client.push_str(" -N");
    }
    if !client_sends(scenario) {
        client.push_str(" -R");
    }
    Commands { server: words(&format!("iperf3 -s -p {port}")), client: words(&client) }
}

fn socat(scenario: &Scenario, server: &TransferServer<'_>) -> Commands {
    let (stream, options) = (stream(scenario), &scenario.test.options);
    let up = client_sends(scenario);
    let of_socket = |sends: bool| {
        let buffer = if sends {
            options.send_buffer_bytes.map(|b| format!(",sndbuf={}", b.0))
        } else {
            options.receive_window_bytes.map(|b| format!(",rcvbuf={}", b.0))
        };
        let mss = options.mss_bytes.map(|mss| format!(",mss={mss}"));
        let nodelay = options.nodelay.then(|| ",nodelay".to_owned());
        let all = [buffer, mss, nodelay].into_iter().flatten();
        all.collect::<String>()
    };
    let (family, address) = match server.address {
        IpAddr::V4(address) => ("TCP4", address.to_string()),
        IpAddr::V6(address) => ("TCP6", format!("[{address}]")),
    };
    let port = server.port;
    let listen = format!("{family}-LISTEN:{port},reuseaddr{}", of_socket(!up));
    let connect = format!("{family}:{address}:{port}{}", of_socket(up));
    let left = transfer(scenario).map(|bytes| format!(",readbytes={bytes}"));
    let (from, to) =
        (format!("OPEN:/dev/zero{}", left.unwrap_or_default()), "OPEN:/dev/null".to_owned());
    let command = |sends: bool, socket: String| {
        // A receiver with as small pieces would need as much CPU time, and could be the slower end.
        let (size, both) = if sends {
            (stream.message_bytes, [from.clone(), socket])
        } else {
            (LARGE_PIECE, [socket, to.clone()])
        };
        let begin = words(&format!("socat -u -b {size}"));
        begin.into_iter().chain(both).collect()
    };
    Commands { server: command(!up, listen), client: command(up, connect) }
}

fn nginx(scenario: &Scenario, server: &TransferServer<'_>) -> io::Result<Commands> {
    let (stream, options) = (stream(scenario), &scenario.test.options);
    let directory = server.directory.display();
    let file = File::create(server.directory.join("file"))?;
    // The file is a hole, which takes no space.
    file.set_len(transfer(scenario).unwrap_or(LARGE_FILE))?;
    let address = authority(server.address);
    let port = server.port;
    let buffer = match options.send_buffer_bytes {
        Some(bytes) => format!(" sndbuf={}", bytes.0),
        None => String::new(),
    };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {directory}/own/{name};"))
        .concat();
    // For one scenario in two of each cause.
    let nopush = if (scenario.number / 12).is_multiple_of(2) { "on" } else { "off" };
    let text = format!(
        "daemon off; master_process off; pid {directory}/own/pid; error_log {directory}/own/errors;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush {nopush}; {temporary}\n\
         server {{ listen {address}:{port}{buffer}; root {directory}; }} }}\n"
    );
    fs::write(server.directory.join("nginx.conf"), text)?;
    let mut client =
        format!("curl --silent --globoff --output /dev/null http://{address}:{port}/file");
    if let Some(rate) = stream.read_rate_bps {
        // Writing to a string cannot fail.
        let _ = write!(client, " --limit-rate {}", (rate.0 / 8).max(1));
    }
    let command = format!("nginx -e {directory}/own/errors -c {directory}/nginx.conf");
    Ok(Commands { server: words(&command), client: words(&client) })
}

/// ssh or scp, with a server that only accepts the key made here.
fn ssh(scenario: &Scenario, server: &TransferServer<'_>, copies: bool) -> io::Result<Commands> {
    let TransferServer { address, port, .. } = server;
    let directory = server.directory.display();
    let key = format!("{directory}/key");
    // Its own; a package leaves it to the system's start.
    fs::create_dir_all("/run/sshd")?;
    let mut make = Command::new("ssh-keygen");
    make.args(["-q", "-t", "ed25519", "-N", "", "-f", &key]);
    if !make.status()?.success() {
        return Err(io::Error::other("ssh-keygen made no key"));
    }
    let config = format!(
        "Port {port}\nListenAddress {address}\nHostKey {key}\nAuthorizedKeysFile {key}.pub\n\
         StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n\
         Subsystem sftp internal-sftp\n"
    );
    fs::write(server.directory.join("sshd_config"), config)?;
    let options = "-q -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes";
    let up = client_sends(scenario);
    let session = if copies {
        File::create(server.directory.join("file"))?.set_len(LARGE_FILE)?;
        let there = format!("root@{}", authority(*address));
        let (from, to) = if up {
            (format!("{directory}/file"), format!("{there}:/dev/null"))
        } else {
            (format!("{there}:{directory}/file"), "/dev/null".to_owned())
        };
        format!("exec scp {options} -i {key} -P {port} {from} {to}")
    } else {
        let session = format!("exec ssh {options} -i {key} -p {port} root@{address}");
        if up {
            format!("{session} 'cat > /dev/null' < /dev/zero")
        } else {
            format!("{session} cat /dev/zero")
        }
    };
    Ok(Commands {
        server: words(&format!("/usr/sbin/sshd -D -f {directory}/sshd_config")),
        client: ["sh", "-c", &session].map(str::to_owned).to_vec(),
    })
}

/// An address as it stands in a URL.
fn authority(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// The script of [`TrafficProgram::Python`].
const SCRIPT: &str = include_str!("sender.py");
/// Size of pieces where the scenario sets none, bytes.
const LARGE_PIECE: u64 = 65_536;
/// Size of a file that no scenario transfers whole, bytes.
const LARGE_FILE: u64 = 1 << 36;
