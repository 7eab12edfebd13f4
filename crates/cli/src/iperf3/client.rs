//! `-c`: a test with a server of iperf3 or linerate.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use linerate_core::plan::{Direction, Test};
use linerate_core::units::Family;
use linerate_engine::{Foreign, MeasureError, Target};
use serde_json::json;

use super::args::Options;
use super::course::Facts;
use super::page::{Page, PidFile};
use super::text;
use crate::{plan, run};

/// Makes the test, and returns the exit status.
pub(super) fn run(options: &Options) -> u8 {
    let mut page = match Page::new(options) {
        Ok(page) => page,
        Err(words) => return super::refuse(&super::Misuse::Parameter(words)),
    };
    match measured(options, &mut page) {
        Ok(status) => status,
        Err(EarlyEnd::Usage(words)) => super::refuse(&super::Misuse::Parameter(words)),
        Err(EarlyEnd::Error(words)) => {
            page.error(&format!("error - {words}"));
            1
        }
        Err(EarlyEnd::Interrupted) => {
            page.error("interrupt - the client has terminated");
            0
        }
    }
}

/// Why the test ended early, or did not begin.
enum EarlyEnd {
    Usage(String),
    Error(String),
    Interrupted,
}

impl From<String> for EarlyEnd {
    fn from(words: String) -> Self {
        Self::Error(words)
    }
}

impl From<MeasureError> for EarlyEnd {
    fn from(error: MeasureError) -> Self {
        match error {
            MeasureError::Interrupted => Self::Interrupted,
            error => Self::Error(text::error(&error)),
        }
    }
}

fn measured(options: &Options, page: &mut Page) -> Result<u8, EarlyEnd> {
    // Refuses wrong options before anything is sent. The size of datagrams is not known yet.
    test(options, options.length.or(options.udp.then_some(1448)))?;
    let _pidfile = PidFile::new(options)?;
    if options.verbose {
        page.line(&text::version());
        page.line(&text::system());
    }
    let stop = run::signals().map_err(|failure| failure.chain())?;
    let mut server = Foreign::iperf3(target(options)?, stop.clone())?;
    if options.is_endless() {
        server.set_open_ended();
    }
    let mss = server.mss();
    // Datagrams are as long as the TCP segments of the path.
    let datagram = u64::from(mss.unwrap_or(1460)).clamp(16, 65_507);
    let length = options.length.or(options.udp.then_some(datagram));
    let facts = Facts {
        is_client: true,
        test: test(options, length)?,
        cookie: server.cookie().unwrap_or_default().to_owned(),
        mss,
        interval_s: options.interval_s,
    };
    opened(options, &facts, page);
    if options.server_output {
        server.want_output();
    }
    let outcome = server.run(&facts.test, &mut |live| {
        page.look(&facts, live.at_s, &live.flows);
        true
    })?;
    if let Some(accounts) = server.take_accounts() {
        page.finish(&accounts);
    }
    if let Some(error) = outcome.error {
        return Err(error.into());
    }
    if stop.is_requested() {
        return Err(EarlyEnd::Interrupted);
    }
    page.verdict(&outcome.record);
    page.line("");
    page.line("iperf Done.");
    page.document();
    Ok(0)
}

/// Prints what iperf3 prints when the server has answered.
fn opened(options: &Options, facts: &Facts, page: &mut Page) {
    let host = &options.host;
    page.set_start("connecting_to", json!({"host": host, "port": options.port}));
    if options.verbose {
        page.line(&format!("Control connection MSS {}", facts.mss.unwrap_or(0)));
        page.line(&format!("Time: {}", text::now().0));
    }
    page.line(&format!("Connecting to host {host}, port {}", options.port));
    if facts.test.direction == Direction::Down {
        page.line(&format!("Reverse mode, remote host {host} is sending"));
    }
    if options.verbose {
        page.line(&format!("      Cookie: {}", facts.cookie));
        match (facts.is_udp(), options.mss) {
            (true, _) => {}
            (false, 0) => {
                page.line(&format!("      TCP MSS: {} (default)", facts.mss.unwrap_or(0)));
            }
            (false, mss) => page.line(&format!("      TCP MSS: {mss}")),
        }
        if facts.rate() > 0 {
            page.line(&format!("      Target Bitrate: {}", facts.rate()));
        }
    }
}

/// The test that the options ask for.
fn test(options: &Options, length: Option<u64>) -> Result<Test, EarlyEnd> {
    let given = in_own_words(options, length);
    let mut draft = Test::stream();
    let set = given.iter().try_for_each(|(key, text)| draft.set(key, text));
    let test = set.and_then(|()| draft.resolve(plan::fresh_seed()));
    test.map_err(|error| EarlyEnd::Usage(error.on_command_line()))
}

/// The options by linerate's names, with their values.
fn in_own_words(options: &Options, length: Option<u64>) -> Vec<(&'static str, String)> {
    let mut given = Vec::new();
    let mut give = |key, value: String| given.push((key, value));
    let streams = u64::from(options.streams);
    give("streams", streams.to_string());
    give("direction", options.direction.word().to_owned());
    match (options.bytes, options.blocks, options.seconds()) {
        (0, 0, 0) => give("time", "86400s".to_owned()),
        (0, 0, seconds) => give("time", format!("{seconds}s")),
        (0, blocks, _) => give("count", blocks.div_ceil(streams).to_string()),
        (bytes, ..) => give("total", bytes.to_string()),
    }
    if options.bytes == 0 && options.blocks == 0 {
        give("warm-up", format!("{}s", options.omit_s));
    }
    let interval_s = match options.interval_s {
        0.0 => 60.0,
        seconds => seconds,
    };
    give("interval", format!("{interval_s}s"));
    length.iter().for_each(|length| give("size", length.to_string()));
    let rate = Some(options.target_rate()).filter(|rate| *rate > 0);
    let rate_key = if options.udp { "rate" } else { "write-rate" };
    rate.iter().for_each(|rate| give(rate_key, format!("{rate}bit")));
    for (key, figure, unit) in [
        ("source-port", options.client_port.unwrap_or(0).into(), ""),
        ("pacing", options.pacing, "bit"),
        ("window", options.window, ""),
        ("mss", options.mss.into(), ""),
        ("dscp", u64::from(options.tos >> 2), ""),
    ] {
        if figure > 0 {
            give(key, format!("{figure}{unit}"));
        }
    }
    for (key, is_on) in
        [("nodelay", options.nodelay), ("zerocopy", options.zerocopy), ("discard", options.discard)]
    {
        if is_on {
            give(key, "on".to_owned());
        }
    }
    options.congestion.iter().for_each(|name| give("congestion", name.clone()));
    if options.udp {
        // iperf3 accepts options of TCP with -u and ignores them.
        given.retain(|(key, _)| !["mss", "nodelay", "congestion", "zerocopy"].contains(key));
        given.push(("protocol", "udp".to_owned()));
        let offload = if options.offload { "on" } else { "off" };
        given.push(("offload", offload.to_owned()));
    }
    given
}

fn target(options: &Options) -> Result<Target, EarlyEnd> {
    let wanted = |address: IpAddr| options.family.is_none_or(|only| only == Family::from(address));
    let look_up = |host: &str, port: u16| -> Result<Vec<SocketAddr>, String> {
        let found = (host, port).to_socket_addrs();
        let all = found.map_err(|error| text::no_connection(&text::kernels(&error)))?;
        let addresses: Vec<_> = all.filter(|address| wanted(address.ip())).collect();
        if addresses.is_empty() {
            return Err(text::no_connection("Address family for hostname not supported"));
        }
        Ok(addresses)
    };
    let mut addresses = look_up(&options.host, options.port)?;
    let source = match &options.bind {
        Some(bind) => look_up(bind, 0)?.first().map(SocketAddr::ip),
        None => None,
    };
    if let Some(source) = source {
        addresses.retain(|address| Family::from(address.ip()) == Family::from(source));
    }
    let connect_timeout = options.connect_timeout_ms.map_or(
        // The kernel's own limit, with tcp_syn_retries of 6.
        Duration::from_secs(130),
        Duration::from_millis,
    );
    Ok(Target {
        name: options.host.clone(),
        addresses,
        source,
        device: options.device.clone(),
        key: None,
        connect_timeout,
    })
}
