//! Where both ends of a run live.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use anyhow::Context;
use linerate_sys::netns::{Host, Pair};
use linerate_sys::proc::sysctl;

/// Two hosts, or one that talks to itself.
pub(crate) enum Place {
    /// Both processes in this network namespace.
    Loopback,
    /// Client and server in a namespace each.
    Veth(Pair),
}

/// Which end of a run a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

impl Place {
    /// Two hosts with nothing between them. Connections that have ended keep no ports there: some
    /// programs leave one for each transaction.
    pub(crate) fn veth() -> anyhow::Result<Self> {
        let pair = Pair::create()?;
        for host in [&pair.a, &pair.b] {
            host.namespace.run(|| sysctl::write("net.ipv4.tcp_tw_reuse", "1"))??;
        }
        Ok(Self::Veth(pair))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth(_) => "veth",
        }
    }

    /// A command that runs at that end.
    pub(crate) fn command(&self, end: End, program: &str) -> Command {
        match self.host(end) {
            None => Command::new(program),
            Some(host) => host.namespace.command(program),
        }
    }

    /// Where clients reach the server.
    pub(crate) fn server_address(&self) -> Ipv4Addr {
        self.host(End::Server).map_or(Ipv4Addr::LOCALHOST, |host| host.ipv4)
    }

    /// Ports that nobody listens on, all different.
    pub(crate) fn free_ports<const N: usize>(&self) -> anyhow::Result<[u16; N]> {
        let ports = match self.host(End::Server) {
            None => unused_ports(),
            Some(host) => host.namespace.run(unused_ports)?,
        };
        ports.context("cannot find a free port")
    }

    fn host(&self, end: End) -> Option<&Host> {
        match (self, end) {
            (Self::Loopback, _) => None,
            (Self::Veth(pair), End::Client) => Some(&pair.a),
            (Self::Veth(pair), End::Server) => Some(&pair.b),
        }
    }
}

/// All are held until the last is found, so that none comes twice.
fn unused_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
