//! One run under a treatment: applied to both hosts, run, undone.

use std::net::IpAddr;

use linerate_core::plan::Test;
use linerate_core::record::{CaveatKind, Record};
use linerate_core::treatment::{End, HostChange, Treatments};
use linerate_core::wire::message::{Refusal, RefusalReason, TREATMENTS};
use linerate_sys::netlink::{NetlinkError, TcpMetrics};

use crate::campaign::Observer;
use crate::client::Client;
use crate::error::MeasureError;
use crate::treatment::{Applied, TreatError};

/// Runs a test once under treatments: what they change on this host and on the endpoint's is changed before and changed
/// back afterwards, whatever comes of the run. What this host's TCP remembers of the peer from earlier runs is forgotten
/// first, where that is allowed.
///
/// # Errors
/// A treatment contradicts the test, could not be applied, did not take or could not be undone; the run could not be made,
/// or not to its end.
pub fn run_treated(
    client: &mut Client,
    test: &Test,
    treatments: &Treatments,
    observer: &mut dyn Observer,
) -> Result<Record, MeasureError> {
    run(client, test, treatments, observer).map(|treated| treated.record)
}

/// A run and what it was made under.
#[derive(Debug)]
pub(crate) struct Treated {
    pub(crate) record: Record,
    /// The settings of both hosts, as they read them back.
    pub(crate) read_back: Vec<String>,
}

/// [`run_treated`], with what the hosts read back.
pub(crate) fn run(
    client: &mut Client,
    asked: &Test,
    treatments: &Treatments,
    observer: &mut dyn Observer,
) -> Result<Treated, MeasureError> {
    let mut test = asked.clone();
    treatments.apply_to(&mut test).map_err(TreatError::from)?;
    check_permission(client, treatments)?;
    let peer = client.peer().ip();
    let here = Applied::apply(&treatments.host_changes(End::Client), peer)?;
    let mut read_back: Vec<String> = here
        .read_back()
        .into_iter()
        .map(|line| format!("client: {line}"))
        .collect();
    let changes = treatments.host_changes(End::Server);
    let record = under(client, &changes, &mut read_back, |client| {
        // Not being allowed to is said once, by who compares.
        let _ = forget(peer);
        match client.run_once(&test, observer)? {
            (record, None) => Ok(record),
            (_, Some(error)) => Err(error),
        }
    });
    let undone = here.undo();
    let record = record?;
    undone?;
    has_taken(&record, asked, treatments)?;
    Ok(Treated { record, read_back })
}

/// Before anything is sent or changed: whether the endpoint applies what it is to.
pub(crate) fn check_permission(
    client: &Client,
    treatments: &Treatments,
) -> Result<(), MeasureError> {
    let operations = &client.welcome().operations;
    let is_needed = !treatments.host_changes(End::Server).is_empty();
    match is_needed && !operations.iter().any(|name| name == TREATMENTS) {
        true => Err(MeasureError::Refused {
            peer: client.peer(),
            refusal: Refusal {
                reason: RefusalReason::Treatment,
                message: "it applies no treatments; its owner allows them by `linerate serve --allow-treatments` with a \
                          key, which the client gives by --key-file"
                    .to_owned(),
            },
        }),
        false => Ok(()),
    }
}

/// Makes this host's TCP forget what it learnt of the peer: the next connection would start with the window and the
/// round-trip time of the last.
pub(crate) fn forget(peer: IpAddr) -> Result<(), NetlinkError> {
    TcpMetrics::open()?.forget(peer)
}

/// Does something while the endpoint's host is changed.
fn under<T>(
    client: &mut Client,
    changes: &[HostChange],
    read_back: &mut Vec<String>,
    act: impl FnOnce(&mut Client) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    if changes.is_empty() {
        return act(client);
    }
    let there = client.treat(changes)?;
    read_back.extend(there.into_iter().map(|line| format!("server: {line}")));
    let done = act(client);
    // Where the run failed, its error says more; the endpoint's lease undoes what this cannot.
    let undone = client.untreat();
    let done = done?;
    undone?;
    Ok(done)
}

/// What can be asked of a socket, be granted, and yet not hold: only the run shows the window that the peer saw and
/// the segments on the wire.
fn has_taken(record: &Record, asked: &Test, treatments: &Treatments) -> Result<(), MeasureError> {
    let (now, before) = (&record.plan.options, &asked.options);
    let window = (now.receive_window_bytes != before.receive_window_bytes)
        .then(|| window_missed(record))
        .flatten();
    let mss = (now.mss_bytes != before.mss_bytes)
        .then(|| segments_differ(record))
        .flatten();
    match window.or(mss) {
        Some(why) => Err(MeasureError::NotTaken {
            treatments: treatments.to_string(),
            why,
        }),
        None => Ok(()),
    }
}

fn window_missed(record: &Record) -> Option<String> {
    let mut caveats = record.caveats.iter();
    let found = caveats.find(|caveat| {
        caveat.kind == CaveatKind::SettingNotTaken && caveat.message.contains("receive window")
    });
    found.map(|caveat| caveat.message.clone())
}

fn segments_differ(record: &Record) -> Option<String> {
    let asked = record.plan.options.mss_bytes?;
    let seen = record.tcp.as_ref()?.mss_bytes;
    let holds = seen <= asked && seen + MAX_OPTIONS >= asked;
    (!holds).then(|| format!("segments of {asked} bytes were asked for and they carry {seen}"))
}

/// TCP options of a segment at most, bytes (RFC 9293, 3.1).
const MAX_OPTIONS: u32 = 40;
