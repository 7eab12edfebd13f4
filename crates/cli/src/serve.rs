//! `serve`: the endpoint, from its options to what it prints about its clients.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use linerate_core::session::message::Limits;
use linerate_core::units::{DEFAULT_PORT, Family, Span};
use linerate_engine::{Endpoint, NetperfOptions, ServeEvent, ServeOptions, StampOptions};
use serde_json::json;

use crate::args::{Count, LimitOptions, ListenOptions, MAX_FLOWS, OtherOptions, ServeArgs};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::progress::Progress;
use crate::{files, run, site};

/// Answers clients until a signal ends it.
///
/// # Errors
/// An option or a file is wrong, the port cannot be had, or this host lacks something.
pub(crate) fn execute(args: ServeArgs) -> Result<(), Failure> {
    let inetd = args.listen.inetd;
    let log = Log {
        json: args.json_stream,
        // Inetd makes the client's connection stderr, too: nothing but errors may go there.
        quiet: args.quiet || inetd,
    };
    let options = options(&args)?;
    let stop = run::signals()?;
    let endpoint = if inetd {
        let listeners = linerate_engine::inherited_listeners().context("--inetd");
        Endpoint::from_listeners(listeners.map_err(Failure::usage)?, &options)
    } else {
        Endpoint::bind(&options)
    }?;
    if options.allow_treatments {
        site::prepare_to_treat().iter().for_each(|note| log.say(note));
    }
    log.started(&endpoint)?;
    let served = endpoint.serve(&stop, move |event| log.event(&event));
    served.map_err(Failure::from)
}

/// What the arguments ask for, after the files that they name were read.
fn options(args: &ServeArgs) -> Result<ServeOptions, Failure> {
    let (listen, limits) = (&args.listen, &args.limits);
    let mut options = listening(listen, limits).map_err(Failure::usage)?;
    let warn = |warning: &str| {
        if !listen.inetd {
            Progress::new(Format::Text, args.quiet).warn(warning);
        }
    };
    options.key = files::read_key(limits.key_file.as_deref(), warn)?;
    if let (Some(users), Some(key)) = (&limits.iperf3_users, &limits.iperf3_key) {
        let (access, warning) = files::read_iperf3_access(users, key, limits.iperf3_pkcs1)?;
        warning.iter().for_each(|warning| warn(warning));
        options.iperf3 = Some(Arc::new(access));
    }
    with_others(options, &args.others)
}

fn listening(listen: &ListenOptions, limits: &LimitOptions) -> anyhow::Result<ServeOptions> {
    let family = listen.family.chosen();
    match (listen.bind, family) {
        (Some(address @ IpAddr::V6(_)), Some(Family::Ipv4)) => {
            bail!("--bind {address} cannot be used with -4: it is an IPv6 address")
        }
        (Some(address @ IpAddr::V4(_)), Some(Family::Ipv6)) => {
            bail!("--bind {address} cannot be used with -6: it is an IPv4 address")
        }
        _ => {}
    }
    ensure!(
        limits.key_file.is_some() || !limits.allow_treatments,
        "--allow-treatments needs --key-file: settings of this host are changed only for clients \
         with its key"
    );
    Ok(ServeOptions {
        port: listen.port.unwrap_or(DEFAULT_PORT),
        bind: listen.bind,
        family,
        max_memory: limits.max_memory.map(|size| size.0),
        allow_treatments: limits.allow_treatments,
        allow_profiles: !limits.no_profile,
        one_off: listen.one_off,
        ..ServeOptions::within(Limits {
            clients: limits.max_clients.unwrap_or(DEFAULT_CLIENTS),
            streams: limits.max_streams.unwrap_or(MAX_FLOWS),
            seconds: limits.max_duration.unwrap_or(DEFAULT_DURATION).as_secs_f64(),
            rate_bps: limits.max_rate.map(|rate| rate.0),
            connections: limits.max_connections.unwrap_or(DEFAULT_CONNECTIONS).0,
        })
    })
}

/// Adds the ports for clients of other tools. With a key, none of them may let in clients that
/// prove nothing.
fn with_others(serve: ServeOptions, others: &OtherOptions) -> Result<ServeOptions, Failure> {
    let read = |path| files::read_passphrase("--netperf-passphrase", path);
    let passphrase = others.netperf_passphrase.as_deref().map(read).transpose()?;
    let checked = || {
        ensure!(
            serve.key.is_none() || others.netperf.is_none() || passphrase.is_some(),
            "--key-file keeps strangers out, and --netperf alone lets them in: \
             give --netperf-passphrase too"
        );
        ensure!(
            serve.key.is_none() || (others.ttcp.is_none() && others.ttcp_source.is_none()),
            "--key-file keeps strangers out, and --ttcp and --ttcp-source let them in: \
             ttcp has no way to prove anything"
        );
        Ok(())
    };
    checked().map_err(Failure::usage)?;
    Ok(ServeOptions {
        netperf: others.netperf.map(|port| NetperfOptions { port, passphrase }),
        ttcp_sink: others.ttcp,
        ttcp_source: others.ttcp_source,
        stamp: others.stamp.map(|port| StampOptions { port, allowed: others.stamp_allow.clone() }),
        ..serve
    })
}

const DEFAULT_CLIENTS: u32 = 64;
/// What `capacity` may hold here: all of it takes about half a gigabyte of kernel memory.
const DEFAULT_CONNECTIONS: Count = Count(100_000);
const DEFAULT_DURATION: Span = Span(Duration::from_secs(3600));

/// What an endpoint prints about itself and its clients.
#[derive(Clone, Copy)]
struct Log {
    /// One JSON line on stdout for each event.
    json: bool,
    /// No lines about clients on stderr.
    quiet: bool,
}

impl Log {
    fn started(self, endpoint: &Endpoint) -> Result<(), Failure> {
        let addresses: Vec<String> = endpoint.addresses().iter().map(ToString::to_string).collect();
        endpoint.notes().iter().for_each(|note| self.say(note));
        self.say(&format!("listening on {}", addresses.join(" and ")));
        let mut others: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for (tool, address) in endpoint.foreign_addresses() {
            self.say(&format!("listening on {address} for {tool}"));
            others.entry(tool).or_default().push(address.to_string());
        }
        if self.json {
            let event = json!({"event": "listening", "addresses": addresses, "others": others});
            output::print(&format!("{event}\n"))?;
        }
        Ok(())
    }

    fn event(self, event: &ServeEvent) {
        let (name, peer, text) = match event {
            ServeEvent::Connected { peer } => ("connected", peer, String::new()),
            ServeEvent::Tested { peer, summary } => ("tested", peer, summary.clone()),
            ServeEvent::Served { peer, summary, .. } => ("tested", peer, summary.clone()),
            // `serve` does not ask the engine for these.
            ServeEvent::Running { .. } => return,
            ServeEvent::Treated { peer, read_back } => ("treated", peer, read_back.join("; ")),
            ServeEvent::Untreated { peer, error } => {
                ("untreated", peer, error.clone().unwrap_or_default())
            }
            ServeEvent::Disconnected { peer, reason } => {
                ("disconnected", peer, reason.clone().unwrap_or_default())
            }
            ServeEvent::Refused { peer, reason } => ("refused", peer, reason.clone()),
            ServeEvent::LeftOut { peer, what } => ("left_out", peer, what.clone()),
        };
        let colon = if text.is_empty() { "" } else { ": " };
        self.say(&format!("{peer} {name}{colon}{text}"));
        if self.json {
            let mut line = json!({"event": name, "peer": peer.to_string(), "message": text});
            if let ServeEvent::Served { record, .. } = event {
                line["record"] = json!(record);
            }
            // The endpoint serves on, whether or not anybody reads its lines.
            let _ = output::print(&format!("{line}\n"));
        }
    }

    fn say(self, text: &str) {
        if !self.quiet {
            output::note(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, command};

    /// The options of `serve` on this command line, or why it is refused.
    fn served(options: &str) -> Result<ServeOptions, String> {
        let Command::Serve(args) = command(&format!("serve {options}"))? else {
            panic!("serve was asked for");
        };
        listening(&args.listen, &args.limits).map_err(|error| error.to_string())
    }

    fn limits(options: &str) -> (u32, u32, f64, Option<u64>, u64) {
        let limits = served(options).unwrap().limits;
        let (seconds, rate_bps) = (limits.seconds, limits.rate_bps);
        (limits.clients, limits.streams, seconds, rate_bps, limits.connections)
    }

    #[test]
    fn an_endpoint_is_bounded_by_default_and_takes_its_owners_limits() {
        let options = served("").unwrap();
        assert_eq!((options.port, options.bind, options.family), (5201, None, None));
        assert_eq!(limits(""), (64, 256, 3600.0, None, 100_000));
        let line = "--max-clients 3 --max-streams 8 --max-duration 2min --max-rate 1gbit \
                    --max-connections 2M";
        assert_eq!(limits(line), (3, 8, 120.0, Some(1_000_000_000), 2_000_000));
    }

    #[test]
    fn what_an_endpoint_cannot_be_is_refused() {
        for (line, words) in [
            ("--inetd --port 1", ["--inetd", "--port"]),
            ("--inetd --bind ::1", ["--inetd", "--bind"]),
            ("--inetd -4", ["--inetd", "-4"]),
            ("--inetd --json-stream", ["--inetd", "--json-stream"]),
            ("-4 -6", ["-4", "-6"]),
            ("-4 --bind ::1", ["-4", "--bind"]),
            ("-6 --bind 127.0.0.1", ["-6", "--bind"]),
            ("--max-clients 0", ["--max-clients", "1 to 10000"]),
            ("--max-streams 257", ["--max-streams", "1 to 256"]),
            ("--max-duration 0", ["--max-duration", "10ms"]),
            ("--max-connections 11M", ["--max-connections", "0 to 10M"]),
            ("--allow-treatments", ["--allow-treatments", "--key-file"]),
            ("--inetd --netperf", ["--inetd", "--netperf"]),
            ("--inetd --ttcp=5", ["--inetd", "--ttcp"]),
            ("--inetd --stamp", ["--inetd", "--stamp"]),
            ("--stamp-allow 192.0.2.0/24", ["required", "--stamp"]),
            ("--stamp --stamp-allow 192.0.2.0/33", ["192.0.2.0/33", "/32"]),
            ("--netperf-passphrase f", ["required", "--netperf"]),
        ] {
            let message = served(line).expect_err(line);
            for word in words {
                assert!(message.contains(word), "{line}: {message}");
            }
        }
        assert!(served("--inetd").is_ok());
        assert!(served("--allow-treatments --key-file k").is_ok());
    }

    #[test]
    fn no_other_tool_lets_clients_in_without_the_key() {
        let key = linerate_core::wire::Key::from_text(&"0".repeat(64)).unwrap();
        for options in ["--netperf", "--ttcp", "--ttcp-source"] {
            let Command::Serve(args) = command(&format!("serve {options}")).unwrap() else {
                panic!("serve was asked for");
            };
            let serve = served("").unwrap();
            assert!(with_others(serve.clone(), &args.others).is_ok(), "{options}");
            let key = Some(key.clone());
            let refused = with_others(ServeOptions { key, ..serve }, &args.others);
            assert!(refused.is_err(), "{options}");
        }
    }
}
