//! `trace`: the route to a host, once or again and again.

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::panic;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::trace::{
    AsTable, ConfigError, PathEnd, ProbeKind, ReverseDocument, TraceConfig, TraceDocument,
};
use linerate_core::units::{EndpointName, Family, Nanos, quoted};
use linerate_engine::{
    Client, MeasureError, Stop, Target, TraceOptions, WatchPace, check_scope, interface_of,
    join_reverse, may_send_echo, trace, watch,
};
use linerate_report::text;

use crate::args::TraceArgs;
use crate::failure::Failure;
use crate::output::{self, Format, Output};
use crate::progress::Progress;
use crate::site::Site;
use crate::{files, run, typed};

/// Traces and prints; fails if the target was not reached.
///
/// # Errors
/// An option or the name is wrong, this host cannot send such probes, or the target did not answer.
pub(crate) fn execute(args: &TraceArgs) -> Result<(), Failure> {
    let format = output::json_or_text(args.document.json);
    check(args).map_err(Failure::usage)?;
    let origins = args.findings.as_table.as_deref().map(read_table).transpose()?;
    let output = Output::open(&args.document, format)?;
    // The lab comes before the lookup of names: it needs a process of one thread.
    let site = lab(args, format)?;
    let (host, target) = target(args, site.as_ref())?;
    let mut options = options(args, host, target);
    options.origins = origins.map(Arc::new);
    let checked = options.config.check();
    checked.map_err(|error| Failure::usage(out_of_range(&error)))?;
    let mut progress = Progress::new(format, args.document.quiet);
    if !args.rounds.watch {
        progress.waits(&format!("tracing the route to {}", options.host));
    }
    let mut document = match pace(args) {
        Some(pace) => rounds(args, &options, pace, progress)?,
        None => {
            if args.findings.bandwidth {
                progress.takes([BANDWIDTH; 2]);
            }
            let stop = run::signals()?;
            let document = once(args, site.as_ref(), &options, &stop)?;
            drop(progress);
            document
        }
    };
    (document.caveats).extend(site.iter().flat_map(Site::caveats));
    // A watch without a number of rounds is ended by the user.
    let is_open_ended = pace(args).is_some_and(|pace| pace.count.is_none());
    let is_cut = run::signals()?.is_requested() && !is_open_ended;
    let told = document.caveats.iter().any(|caveat| caveat.kind == CaveatKind::Partial);
    if is_cut && !told {
        document.caveats.push(Caveat::new(CaveatKind::Partial, "interrupted", ""));
    }
    let end = (document.end, document.end_words.clone());
    output.write(&document)?;
    if is_cut {
        return Err(MeasureError::Interrupted.into());
    }
    match end {
        (PathEnd::Reached { .. }, _) => Ok(()),
        (_, words) => Err(Failure::failed(anyhow!("not reached: {words}"))),
    }
}

/// The way there, and before it the way back: an endpoint that cannot tell it is to be known at
/// once.
fn once(
    args: &TraceArgs,
    site: Option<&Site>,
    options: &TraceOptions,
    stop: &Stop,
) -> Result<TraceDocument, Failure> {
    let reverse = match args.findings.reverse {
        Some(port) => {
            let endpoint = endpoint(args, site, options, port)?;
            let reverse = way_back(endpoint, options, stop);
            Some(reverse?)
        }
        None => None,
    };
    let mut document = trace(options, stop)?;
    if let Some(reverse) = reverse {
        join_reverse(&mut document, reverse, options);
    }
    Ok(document)
}

fn way_back(
    endpoint: Target,
    options: &TraceOptions,
    stop: &Stop,
) -> Result<ReverseDocument, MeasureError> {
    let mut client = Client::connect(endpoint, stop.clone())?;
    client.trace_back(&options.config, options.seed)
}

/// The endpoint at the target, by the very address that is traced.
fn endpoint(
    args: &TraceArgs,
    site: Option<&Site>,
    options: &TraceOptions,
    port: u16,
) -> Result<Target, Failure> {
    let address = options.config.target;
    if let Some(site) = site {
        let mut target = site.target();
        target.addresses.retain(|endpoint| endpoint.ip() == address);
        return Ok(target);
    }
    let mut progress = Progress::new(Format::Text, args.document.quiet);
    let key_file = args.findings.key_file.as_deref();
    let key = files::read_key(key_file, |warning| progress.warn(warning))?;
    Ok(Target {
        name: options.host.clone(),
        addresses: vec![SocketAddr::new(address, port)],
        source: options.source,
        device: options.device.clone(),
        key,
        connect_timeout: CONNECT_TIMEOUT,
    })
}

fn read_table(path: &Path) -> Result<AsTable, Failure> {
    files::parse("--as-table", path, MAX_TABLE, AsTable::parse)
}

/// Largest table of prefixes, bytes: the Internet's with names has some 60 MB.
const MAX_TABLE: u64 = 256 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn check(args: &TraceArgs) -> anyhow::Result<()> {
    if let Some(file) = &args.document.output
        && typed::option("output") == "-o"
        && is_order_of_mtr(&file.to_string_lossy())
    {
        let fields = file.display();
        bail!(
            "-o {fields}: these are mtr's columns, and the page has its own; a file of that name \
             is --output {fields}"
        );
    }
    let is_once = pace(args).is_none();
    if is_once && args.rounds.interval.is_some() {
        bail!("--interval is for --watch and --count");
    }
    if args.probes.kind() == Some(ProbeKind::Icmp) && args.probes.port.is_some() {
        bail!("--port is for UDP and TCP: ICMP has no ports");
    }
    if args.probes.kind() == Some(ProbeKind::Tcp) && args.probes.size.is_some() {
        bail!("--size is for UDP and ICMP: a SYN carries no data");
    }
    if let (Some(source), Some(family)) = (args.way.source, args.way.family.chosen()) {
        let is_of = source.is_ipv4() == (family == Family::Ipv4);
        ensure!(
            is_of,
            "--source {source} cannot be used with {}: it is of the other family",
            typed::flag(family)
        );
    }
    Ok(())
}

/// Whether `mtr -o` takes it: letters of its columns.
fn is_order_of_mtr(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| "LDRSNBAWVGJMXI ".contains(c))
}

fn lab(args: &TraceArgs, format: Format) -> Result<Option<Site>, Failure> {
    let Some(spec) = &args.way.lab else {
        return Ok(None);
    };
    Progress::new(format, args.document.quiet).phase("making the lab");
    Site::build(spec, args.way.family.chosen(), args.probes.random.seed).map(Some)
}

/// The target as it is named, and its address, with the interface of a link-local one.
fn target(args: &TraceArgs, site: Option<&Site>) -> Result<(String, SocketAddr), Failure> {
    if let Some(site) = site {
        let target = site.target();
        let found = target.addresses.first();
        let address = found.ok_or_else(|| Failure::failed(anyhow!("the lab has no address")))?;
        return Ok((target.name, *address));
    }
    let host = args.host.clone().unwrap_or_default();
    let address = resolve(&host, args).map_err(Failure::usage)?;
    check_scope(&address, args.way.device.as_deref())?;
    Ok((host, address))
}

/// What is out of range, by the option that it was given by.
fn out_of_range(error: &ConfigError) -> anyhow::Error {
    let ConfigError { what, value, least, most } = error;
    let option = match *what {
        "the lowest TTL" => typed::option("first"),
        "the size" => typed::option("size"),
        _ => return anyhow!(error.clone()),
    };
    anyhow!("{option} {value}: it must be {least} to {most}")
}

fn resolve(host: &str, args: &TraceArgs) -> anyhow::Result<SocketAddr> {
    match host.parse() {
        Ok(EndpointName { host, port: Some(port) }) => {
            bail!(
                "a trace goes to a host: linerate trace {host} --tcp --port {port}, or --udp for UDP"
            )
        }
        Err(error) if host.contains('/') => bail!("HOST {}: {}", quoted(host), error.why()),
        _ => {}
    }
    ensure!(!host.is_empty(), "HOST \"\": the host is missing");
    let named = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let mut found = (named.unwrap_or(host), 0)
        .to_socket_addrs()
        .with_context(|| format!("{host}: unknown host"))?;
    let family = args.way.family.chosen().or(args.way.source.map(Family::from));
    let is_wanted = |it: &SocketAddr| family.is_none_or(|family| Family::from(it.ip()) == family);
    found.find(is_wanted).ok_or_else(|| match family {
        Some(Family::Ipv4) => anyhow!("{host} has no IPv4 address"),
        Some(Family::Ipv6) => anyhow!("{host} has no IPv6 address"),
        None => anyhow!("{host} has no address"),
    })
}

fn options(args: &TraceArgs, host: String, target: SocketAddr) -> TraceOptions {
    let probes = &args.probes;
    let mut config = TraceConfig::new(target.ip()).with_kind(kind(args, target.ip()));
    if pace(args).is_some() {
        config.probes = 1;
        // A round that misses an answer is to show that.
        config.retries = 0;
    }
    config.hops = probes.hops.unwrap_or(config.hops);
    config.first = probes.first.unwrap_or(config.first);
    config.probes = probes.queries.unwrap_or(config.probes);
    config.size = probes.size.unwrap_or(config.size);
    config.dscp = probes.dscp.unwrap_or(config.dscp);
    if let Some(timeout) = probes.timeout {
        config.timeout = Nanos(u64::try_from(timeout.0.as_nanos()).unwrap_or(u64::MAX));
    }
    TraceOptions {
        source: args.way.source,
        device: args.way.device.clone().or_else(|| interface_of(&target)),
        port: probes.port,
        names: !args.findings.numeric,
        paths: args.findings.paths,
        mtu: args.findings.mtu,
        bandwidth: args.findings.bandwidth,
        seed: probes.random.seed,
        ..TraceOptions::new(host, config)
    }
}

/// The kind asked for. Rounds are of echo requests where those are allowed: a host that limits its
/// errors to one a second would look as if it lost packets.
fn kind(args: &TraceArgs, target: IpAddr) -> ProbeKind {
    match args.probes.kind() {
        Some(kind) => kind,
        None if pace(args).is_some() && args.probes.port.is_none() && may_send_echo(target) => {
            ProbeKind::Icmp
        }
        None => ProbeKind::Udp,
    }
}

fn pace(args: &TraceArgs) -> Option<WatchPace> {
    let rounds = &args.rounds;
    let is_watch = rounds.watch || rounds.count.is_some();
    is_watch.then(|| WatchPace {
        count: rounds.count,
        interval: rounds.interval.map_or(Duration::from_secs(1), |span| span.0),
    })
}

/// What the probes of many sizes take.
const BANDWIDTH: Duration = Duration::from_secs(20);

fn rounds(
    args: &TraceArgs,
    options: &TraceOptions,
    pace: WatchPace,
    mut progress: Progress,
) -> Result<TraceDocument, Failure> {
    let began = Instant::now();
    let stop = run::signals()?;
    let has_screen = args.rounds.watch && !args.document.json && io::stdout().is_terminal();
    let mut screen = has_screen.then(Screen::open).transpose()?;
    let document = watch(options, pace, &stop, &mut |document| {
        if let (None, Some(count)) = (&screen, pace.count) {
            let done = document.watch.as_ref().map_or(0, |watch| watch.rounds);
            // Those that wait long for answers take longer than the interval.
            let each = began.elapsed() / u32::try_from(done.max(1)).unwrap_or(u32::MAX);
            let left = count.saturating_sub(done).min(u64::from(u32::MAX)) as u32;
            let left = pace.interval.max(each).saturating_mul(left);
            if !left.is_zero() {
                progress.takes([left; 2]);
            }
            progress.live(&format!("round {done} of {count}"));
        }
        if let Some(screen) = &mut screen
            && screen.show(&text::watch(document, output::style())).is_err()
        {
            stop.request();
        }
    });
    drop(screen);
    document.map_err(Failure::from)
}

/// The terminal's alternate screen, until this is dropped.
struct Screen;

impl Screen {
    fn open() -> Result<Self, Failure> {
        output::print("\x1b[?1049h\x1b[?25l")?;
        // A panic ends the process where it is, and its words belong on the user's own screen.
        let print_panic = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            Self::leave();
            print_panic(panic);
        }));
        Ok(Self)
    }

    fn leave() {
        // A terminal that is gone needs nothing back.
        let _ = output::print("\x1b[?25h\x1b[?1049l");
    }

    /// A page in place of the one before; what does not fit is cut off.
    fn show(&mut self, page: &str) -> Result<(), Failure> {
        let rows = terminal_size::terminal_size().map_or(24, |(_, rows)| usize::from(rows.0));
        let mut frame = String::from("\x1b[H");
        let lines: Vec<&str> = page.lines().take(rows.max(2) - 1).collect();
        frame.push_str(&lines.join("\x1b[K\r\n"));
        frame.push_str("\x1b[K\x1b[J");
        output::print(&frame)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        Self::leave();
    }
}
