//! What each of the client's workers is told first: where to connect to, from where, and how many.

use std::net::SocketAddr;

use linerate_core::capacity::{CapacityTest, HoldPort, HoldPorts};

use super::message::{Connect, Role, Terms};
use super::run::CapacityOptions;
use super::{readings, share};
use crate::client::Client;
use crate::words;

/// For workers with so many TCP connections, and for workers with so many UDP sockets. `source` is
/// the address that the control connection comes from.
pub(super) fn roles(
    client: &Client,
    test: &CapacityTest,
    options: &CapacityOptions,
    ports: &HoldPorts,
    source: SocketAddr,
    [tcp, udp]: [&[u64]; 2],
) -> [Vec<Role>; 2] {
    let request = test.request();
    let sources = if test.sources.is_empty() {
        vec![source]
    } else {
        let all = test.sources.iter();
        all.map(|ip| SocketAddr::new(*ip, 0)).collect()
    };
    let plain = Connect {
        terms: Terms {
            token: words::hexadecimal(&client.session_token().0),
            // Both are bounded by the request's own check.
            request_bytes: request.request_bytes as u32,
            response_bytes: request.response_bytes as u32,
            descriptors: options.descriptors,
        },
        peer: client.peer(),
        ports: Vec::new(),
        sources,
        port_range: readings::port_range().unwrap_or(USUAL_PORTS),
        backlog: ports.backlog,
        patience_s: ports.patience_s,
        first_number: 0,
        seed: test.seed,
    };
    let of = |ports: &[HoldPort], shares: &[u64], role: fn(Connect) -> Role| {
        let mut first_number = 0;
        let dealt = share::deal(ports, shares).into_iter().zip(shares);
        dealt
            .map(|(ports, share)| {
                let connect = Connect {
                    ports,
                    first_number,
                    seed: test.seed.wrapping_add(first_number),
                    ..plain.clone()
                };
                first_number += share;
                role(connect)
            })
            .collect()
    };
    [
        of(&ports.tcp, tcp, Role::OpenTcp),
        of(&ports.udp, udp, Role::OpenUdp),
    ]
}

/// Linux's own default range.
const USUAL_PORTS: (u16, u16) = (32_768, 60_999);
