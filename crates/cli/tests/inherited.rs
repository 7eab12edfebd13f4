//! `serve --inetd` with listening sockets as systemd hands them over.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use linerate_testkit::{Need, skip};
use socket2::{Domain, Socket, Type};

use crate::support::{Killed, PROGRAM, done, json, words};

/// An endpoint on both sockets.
fn serve(sockets: [OwnedFd; 2]) -> Killed {
    let [first, second] = sockets.map(Stdio::from);
    // `exec` keeps the number of the process.
    let script = format!(
        "exec 3<&0 4<&1 0</dev/null 1>&2
        LISTEN_FDS=2 LISTEN_PID=$$ exec {PROGRAM} serve --inetd --no-profile"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).stdin(first).stdout(second);
    Killed(shell.spawn().expect("sh is there"))
}

/// A socket of `ListenStream=PORT`, which takes both families.
fn dual() -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_only_v6(false)?;
    socket.bind(&SocketAddr::from(([0; 16], 0)).into())?;
    socket.listen(64)?;
    Ok(socket.into())
}

#[test]
fn every_socket_of_systemd_serves_each_workload_in_both_families() {
    let dual = match dual() {
        Ok(dual) => dual,
        Err(error) => return skip(Need::Ipv6, error),
    };
    let own = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let [both, ipv4] = [&dual, &own].map(|socket| socket.local_addr().expect("bound").port());
    let _endpoint = serve([dual.into(), own.into()]);
    for (host, port) in [("127.0.0.1", both), ("::1", both), ("127.0.0.1", ipv4)] {
        for test in ["stream", "stream --udp", "rr --udp", "crr"] {
            let mut client = Command::new(PROGRAM);
            client.args(words(test)).args([host, "-p", &port.to_string()]);
            let output = done(client.args(words("-t 200ms --json --quiet")));
            let record = json(&output);
            assert_eq!(record["status"], "complete", "{host} {test}: {record}");
        }
    }
}
