//! `connections`: every TCP connection of this host, of any program.

mod screen;

use std::cmp::Reverse;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use linerate_core::connection::{Connection, ConnectionsDocument};
use linerate_core::record::{Caveat, CaveatKind, Status};
use linerate_core::units::quoted;
use linerate_engine::Stop;
use linerate_engine::connections::{ConnectionsError, Place, Selection, Watch, listeners};
use linerate_report::text::{CONNECTION_ROWS, GroupBy};
use linerate_report::{Document, text};

use crate::args::{ConnectionsArgs, SortKey, WhichOptions};
use crate::failure::Failure;
use crate::output::{self, Format, Output};
use crate::progress::Progress;
use crate::{run, typed};
use screen::{Screen, ScreenStep, ScreenView};

/// Does what the command line says.
///
/// # Errors
/// With the kind that decides the exit status.
pub(crate) fn execute(args: &ConnectionsArgs) -> Result<(), Failure> {
    let interval = args.show.interval.map_or(SECOND, |span| span.0);
    let selection = selection(args).map_err(Failure::usage)?;
    let output = Output::open(&args.document, output::json_or_text(args.document.json))?;
    if args.show.listen {
        let document = listeners(&selection).map_err(failure)?;
        found(!document.listeners.is_empty(), "listening TCP socket", &args.which)?;
        return output.write(&document);
    }
    let mut watch = Watch::open(&selection).map_err(failure)?;
    let stop = run::signals()?;
    if args.show.watch {
        return again_and_again(args, &mut watch, interval, &stop);
    }
    let mut progress = Progress::new(Format::Text, args.document.quiet);
    if interval > SECOND {
        progress.takes([interval; 2]);
    }
    let document = once(args, &mut watch, interval, &stop)?;
    drop(progress);
    found(!document.connections.is_empty(), "TCP connection", &args.which)?;
    match args.show.by {
        Some(by) => output::print(&text::connections_by(&document, by, output::style())),
        None => output.write(&document),
    }
}

/// An error about an option, which is named as it was typed.
pub(crate) fn failure(error: ConnectionsError) -> Failure {
    match error {
        ConnectionsError::NoProcessCalled { name } => Failure::usage(anyhow!(
            "{} {}: no process has that name (as `ps -o comm` shows it) or number",
            typed::option("process"),
            quoted(&name)
        )),
        ConnectionsError::NoProcess { pid } => {
            Failure::usage(anyhow!("--container {pid}: no process has that number"))
        }
        error => error.into(),
    }
}

/// Fails if the user asked for something that does not exist, so that scripts notice it.
fn found(is_there: bool, what: &str, which: &WhichOptions) -> Result<(), Failure> {
    if is_there {
        return Ok(());
    }
    match asked(which) {
        Some(asked) => Err(Failure::usage(anyhow!("no {what} {asked}"))),
        None => Ok(()),
    }
}

/// The selection in words.
pub(crate) fn asked(which: &WhichOptions) -> Option<String> {
    let peer = which.peer.as_ref().map(|peer| format!("to {peer}"));
    let process = which.owner.process.as_ref().map(|name| format!("of process {name}"));
    in_words(&which.port, [peer, process])
}

/// `with port 80 or 443 and …`; `None` if all connections are selected.
pub(crate) fn in_words<const N: usize>(
    ports: &[u16],
    others: [Option<String>; N],
) -> Option<String> {
    let numbers: Vec<String> = ports.iter().map(ToString::to_string).collect();
    let ports = (!ports.is_empty()).then(|| format!("with port {}", numbers.join(" or ")));
    let parts: Vec<String> = ports.into_iter().chain(others.into_iter().flatten()).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// The connections that the options select.
fn selection(args: &ConnectionsArgs) -> anyhow::Result<Selection> {
    let mut selection = which(&args.which)?;
    selection.states = args.show.state.map(|state| 1 << state as u32);
    Ok(selection)
}

/// The connections that these options select, and their network namespace.
///
/// # Errors
/// A peer is no address, network or known name.
pub(crate) fn which(options: &WhichOptions) -> anyhow::Result<Selection> {
    Ok(Selection {
        ports: options.port.clone(),
        peers: options.peer.as_deref().map_or(Ok(Vec::new()), peers)?,
        process: options.owner.process.clone(),
        states: None,
        place: match (&options.owner.netns, options.owner.container) {
            (Some(name), _) => Place::Named(name.clone()),
            (None, Some(pid)) => Place::OfProcess(pid),
            (None, None) => Place::Here,
        },
    })
}

/// An address, a network, or all addresses of a name, each with the length of its network in bits.
///
/// # Errors
/// It is none of them.
pub(crate) fn peers(text: &str) -> anyhow::Result<Vec<(IpAddr, u8)>> {
    let host = |address: IpAddr| (address, if address.is_ipv4() { 32 } else { 128 });
    if let Ok(address) = text.parse() {
        return Ok(vec![host(address)]);
    }
    if let Some((address, length)) = text.split_once('/') {
        let network = || {
            let (address, most) = host(address.parse().ok()?);
            let length = length.parse().ok().filter(|length| *length <= most)?;
            Some((address, length))
        };
        let network = network().with_context(|| {
            format!("--peer {text}: not a network, such as 198.18.0.0/15 or 2001:2::/48")
        })?;
        return Ok(vec![network]);
    }
    let found =
        (text, 0).to_socket_addrs().with_context(|| format!("--peer {text}: unknown host"))?;
    Ok(found.map(|address| host(address.ip())).collect())
}

/// Watches for one interval, or until a signal. Only the processes of connections that are shown
/// are looked up.
fn once(
    args: &ConnectionsArgs,
    watch: &mut Watch,
    interval: Duration,
    stop: &Stop,
) -> Result<ConnectionsDocument, ConnectionsError> {
    let looks = watch.looks_within(interval);
    let began = Instant::now();
    for look in 1..=looks {
        let due = began + interval * look / looks;
        while Instant::now() < due && !stop.is_requested() {
            thread::sleep(due.saturating_duration_since(Instant::now()).min(PATIENCE));
        }
        watch.look()?;
        if stop.is_requested() {
            break;
        }
    }
    let mut document = watch.document();
    let key = args.show.sort.unwrap_or_default();
    let by_process = args.show.by == Some(GroupBy::Process) || key == SortKey::Process;
    if by_process {
        watch.name_owners(&mut document, usize::MAX)?;
    }
    sort(&mut document.connections, key);
    if !by_process {
        let lists_all =
            args.document.json || args.document.details || args.document.output.is_some();
        let most = if lists_all { usize::MAX } else { CONNECTION_ROWS };
        watch.name_owners(&mut document, most)?;
    }
    if stop.is_requested() {
        document.status = Status::Partial;
        let caveat = Caveat::new(CaveatKind::Partial, "interrupted", "");
        document.caveats.push(caveat);
    }
    Ok(document)
}

/// The whole screen of a terminal; anywhere else a page for each interval.
fn again_and_again(
    args: &ConnectionsArgs,
    watch: &mut Watch,
    interval: Duration,
    stop: &Stop,
) -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return on_screen(args, watch, interval, stop);
    }
    while !stop.is_requested() {
        let document = once(args, watch, interval, stop)?;
        let page = document.text(output::style());
        output::print(&format!("{page}\n"))?;
        watch.begin_again();
    }
    Ok(())
}

fn on_screen(
    args: &ConnectionsArgs,
    watch: &mut Watch,
    interval: Duration,
    stop: &Stop,
) -> Result<(), Failure> {
    let first = once(args, watch, SECOND.min(interval), stop)?;
    let mut view = ScreenView::new(first, args.show.sort.unwrap_or_default());
    let mut screen = Screen::open()?;
    // Whether the page shows the period before this one.
    let mut is_current = true;
    screen.draw(&mut view)?;
    loop {
        watch.begin_again();
        let (began, looks) = (Instant::now(), watch.looks_within(interval));
        for look in 1..=looks {
            let due = began + interval * look / looks;
            while Instant::now() < due {
                if let Some(event) = Screen::event(due)? {
                    if view.handle_event(&event) == ScreenStep::Quit {
                        return Ok(());
                    }
                    screen.draw(&mut view)?;
                }
                if stop.is_requested() {
                    return Ok(());
                }
            }
            watch.look()?;
        }
        if !view.is_paused {
            let renewed = view.renew(|page| {
                if is_current {
                    watch.update(page);
                } else {
                    *page = watch.document();
                }
                watch.name_owners(page, usize::MAX)
            });
            renewed?;
            screen.draw(&mut view)?;
        }
        is_current = !view.is_paused;
    }
}

/// Sorts by figures from the largest down, or by names.
fn sort(connections: &mut [Connection], key: SortKey) {
    let sender = |one: &Connection| one.tcp.as_ref().and_then(|tcp| tcp.sender()).cloned();
    match key {
        SortKey::Rate => {
            // Usually they are sorted already; positive floats are ordered as their bits are.
            let slowest_last = |one: &Connection| Reverse(one.throughput_bps.max(0.0).to_bits());
            if !connections.is_sorted_by_key(slowest_last) {
                connections.sort_by_cached_key(slowest_last);
            }
        }
        SortKey::Rtt => {
            connections
                .sort_by_cached_key(|one| Reverse(sender(one).map(|sender| sender.rtt_mean_us)));
        }
        SortKey::Retransmitted => connections.sort_by_cached_key(|one| {
            Reverse(sender(one).map(|sender| sender.retransmitted_segments))
        }),
        SortKey::Cwnd => {
            connections.sort_by_cached_key(|one| Reverse(sender(one).map(|s| s.cwnd_bytes)));
        }
        SortKey::Process => connections.sort_by_cached_key(|one| {
            let process = one.process.as_ref();
            (process.is_none(), process.map(|process| (process.name.clone(), process.pid)))
        }),
        SortKey::Peer => connections.sort_by_cached_key(|one| one.remote.clone()),
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// Longest time in which a signal is not noticed.
const PATIENCE: Duration = Duration::from_millis(100);
