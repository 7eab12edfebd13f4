//! `explain FILE` of a packet capture.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use linerate_core::capture::{Capture, CaptureError, follow};
use linerate_core::connection::ConnectionsDocument;
use linerate_core::units::format_rfc3339;

use crate::args::{CaptureOptions, ExplainArgs};
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::progress::Progress;
use crate::stored::Opened;
use crate::{connections, run};

/// Explains the connections of a capture.
///
/// # Errors
/// It is no capture of TCP, cannot be read, or has no connection that was asked for.
pub(crate) fn execute(args: &ExplainArgs, format: Format, opened: Opened) -> Result<(), Failure> {
    let output = Output::open(&args.document, format)?;
    let Opened { name, size, bytes, .. } = opened;
    let stop = run::signals()?;
    let mut progress = Progress::new(format, args.document.quiet);
    let found = follow(bytes, MAX_CONNECTIONS, |read| {
        let share =
            size.map_or_else(String::new, |size| format!("{} %, ", read * 100 / size.max(1)));
        progress.live(&format!("{name}: {share}{} MB read", read / 1_000_000));
        !stop.is_requested()
    });
    drop(progress);
    let mut capture = found.map_err(|error| failure(&name, error))?;
    keep_asked(args, &name, &mut capture)?;
    let mut document = ConnectionsDocument::from_capture(&name, &capture);
    document.started_at =
        format_rfc3339(SystemTime::UNIX_EPOCH + Duration::from_nanos(capture.began.0));
    document.asked = args.capture.asked();
    document.explained = !args.capture.flows;
    document.explain();
    output.write(&document)
}

fn failure(name: &str, error: CaptureError) -> Failure {
    Failure::usage(anyhow!(error).context(name.to_owned()))
}

/// Keeps the connections that were asked for.
fn keep_asked(args: &ExplainArgs, name: &str, capture: &mut Capture) -> Result<(), Failure> {
    let CaptureOptions { port, peer, .. } = &args.capture;
    let networks = peer.as_deref().map(connections::peers).transpose().map_err(Failure::usage)?;
    let all = capture.flows.len();
    capture.flows.retain(|flow| {
        let mut ends = flow.ends.iter();
        let has_port = ends.clone().any(|end| port.contains(&end.port()));
        let has_peer = networks.as_ref().is_none_or(|networks| {
            ends.any(|end| networks.iter().any(|network| is_in(end.ip(), *network)))
        });
        (port.is_empty() || has_port) && has_peer
    });
    if capture.flows.is_empty() {
        let asked = args.capture.asked().unwrap_or_default();
        return Err(Failure::usage(anyhow!(
            "{name}: none of its {all} TCP connections is one {asked}; --flows lists them"
        )));
    }
    Ok(())
}

/// Whether an address is in a network, whose length is in bits.
fn is_in(address: IpAddr, (network, length): (IpAddr, u8)) -> bool {
    let same = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    same >= length.into()
}

impl CaptureOptions {
    /// The selection in words: `with port 80 or 443`; `None` for all.
    pub(crate) fn asked(&self) -> Option<String> {
        connections::in_words(&self.port, [self.peer.as_ref().map(|peer| format!("of {peer}"))])
    }
}

/// Most connections that are kept.
const MAX_CONNECTIONS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        for (address, network, length, has) in [
            ("198.18.3.4", "198.18.0.0", 15, true),
            ("198.20.0.1", "198.18.0.0", 15, false),
            ("198.18.0.1", "198.18.0.1", 32, true),
            ("10.0.0.1", "0.0.0.0", 0, true),
            ("2001:2::7", "2001:2::", 48, true),
            ("2001:3::7", "2001:2::", 48, false),
            ("2001:2::7", "0.0.0.0", 0, false),
        ] {
            let network = (network.parse().unwrap(), length);
            assert_eq!(is_in(address.parse().unwrap(), network), has, "{address}");
        }
    }
}
