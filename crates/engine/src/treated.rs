//! One run under a treatment: applied to both hosts, run, undone.

use linerate_core::plan::{Direction, End, Protocol, Test, Workload};
use linerate_core::record::Record;
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::operation::TREATMENTS;
use linerate_core::treatment::{HostChange, Treatments};

use crate::campaign::Observer;
use crate::client::Client;
use crate::error::MeasureError;
use crate::load::LoadBeside;
use crate::responsiveness;
use crate::treatment::{Applied, TreatError, endpoint_remembers, forget};

/// Runs a test once under treatments: what they change on this host and on the endpoint's is
/// changed before and changed back afterwards, whatever comes of the run. What this host's TCP
/// remembers of the peer from earlier runs is forgotten first, where that is allowed; an endpoint
/// that applies treatments does the same, and of one that does not the record has a caveat.
///
/// # Errors
/// A treatment contradicts the test, could not be applied, did not take or could not be undone; the
/// run could not be made, or not to its end.
pub fn run_treated(
    client: &mut Client,
    test: &Test,
    treatments: &Treatments,
    observer: &mut dyn Observer,
) -> Result<Record, MeasureError> {
    let what = What::Run;
    run(client, test, what, treatments, None, observer).map(|treated| treated.record)
}

/// Kind of test that is run under treatments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    /// One run.
    Run,
    /// The load of the path's responsiveness.
    Responsiveness,
}

/// A run and what it was made under.
#[derive(Debug)]
pub(crate) struct Treated {
    pub(crate) record: Record,
    /// The settings of both hosts, as they read them back.
    pub(crate) read_back: Vec<String>,
    /// What the load beside it got, by its path.
    pub(crate) load: Option<(String, f64)>,
}

/// [`run_treated`], with a load beside the run, and with what the hosts read back.
pub(crate) fn run(
    client: &mut Client,
    asked: &Test,
    what: What,
    treatments: &Treatments,
    load: Option<&mut LoadBeside>,
    observer: &mut dyn Observer,
) -> Result<Treated, MeasureError> {
    let mut test = asked.clone();
    treatments.apply_to(&mut test).map_err(TreatError::from)?;
    check_permission(client, treatments)?;
    let peer = client.peer().ip();
    let here = Applied::apply(&treatments.host_changes(End::Client), peer)?;
    let mut read_back: Vec<String> =
        here.read_back().into_iter().map(|line| format!("client: {line}")).collect();
    let changes = treatments.host_changes(End::Server);
    let record = under(client, &changes, &mut read_back, |client| {
        // Not being allowed to is said once, by who compares.
        let _ = forget(peer);
        let mut measure = || match what {
            What::Responsiveness => responsiveness::of_load(client, &test),
            What::Run => match client.run_once(&test, observer)? {
                (record, None) => Ok(record),
                (_, Some(error)) => Err(error),
            },
        };
        match load {
            Some(load) => load.beside(measure),
            None => Ok((measure()?, None)),
        }
    });
    let undone = here.undo();
    let (mut record, load) = record?;
    undone?;
    if endpoint_keeps_metrics(client, &record) {
        record.caveats.push(endpoint_remembers());
    }
    // What can be granted and yet not hold, only the run shows: the window that the peer saw, the
    // segments on the wire.
    treatments.took(&record).map_err(TreatError::from)?;
    Ok(Treated { record, read_back, load })
}

/// Whether the endpoint sends by TCP with what it has learnt of this host in runs before: one that
/// applies no treatments does not forget that. On loopback there is one memory of both ends, which
/// was cleared here.
fn endpoint_keeps_metrics(client: &Client, record: &Record) -> bool {
    let sends = record.workload != Workload::Stream || record.direction != Direction::Up;
    let server = record.environment.server.as_ref();
    let saves = server.and_then(|host| host.sysctls.get("net.ipv4.tcp_no_metrics_save"));
    sends
        && record.protocol != Protocol::Udp
        && !client.peer().ip().to_canonical().is_loopback()
        && saves.is_none_or(|value| value.trim() != "1")
        && !client.welcome().has(TREATMENTS)
}

/// Before anything is sent or changed: whether the endpoint applies what it is to.
pub(crate) fn check_permission(
    client: &Client,
    treatments: &Treatments,
) -> Result<(), MeasureError> {
    let is_needed = !treatments.host_changes(End::Server).is_empty();
    if is_needed && !client.welcome().has(TREATMENTS) {
        Err(MeasureError::Refused {
            peer: client.peer(),
            refusal: Refusal {
                reason: RefusalReason::Treatment,
                message: "it applies no treatments; its owner allows them by `linerate serve \
                    --allow-treatments` with a \
                          key, which the client gives by --key-file"
                    .to_owned(),
            },
        })
    } else {
        Ok(())
    }
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
