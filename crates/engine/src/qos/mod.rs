//! DiffServ policies of this host: compiled programs on its interfaces, with their classes, kept
//! between commands.
//!
//! No process is needed while a policy is in force: programs are pinned in a bpffs, classes are in
//! the kernel, and the state is in `/run/linerate/qos`. A command does everything or nothing. If it
//! is killed, the old policy or the new one is in force, and the next command cleans up. Interfaces
//! are those of the calling thread's network namespace.
//!
//! | module | what is in it |
//! |---|---|
//! | `port` | an interface; hosts, services and users as this host knows them |
//! | `state` | what is in force, as it is written down; what a command needs of the host |
//! | `prepare` | from a file to a loaded program |
//! | `change` | putting policies in force on all interfaces or none, also after being killed |
//! | `hook`, `queue` | programs at TCX or clsact; classes, and the cap on offloaded frames |
//! | `status` | what is in force, what it counted and what it costs |
//! | `watch` | restoring policies that others have removed, also after a reboot |
//! | `error` | what can go wrong |

mod change;
mod error;
mod hook;
mod port;
mod prepare;
mod queue;
mod state;
mod status;
mod watch;

use std::collections::BTreeMap;

use linerate_qos::classes::ClassError;
use linerate_qos::document::{AdapterReport, QosDocument, WarningReport};
use linerate_qos::policy::{Adapter, Place, PolicyFile};
use linerate_qos::rules::Bindings;
use linerate_qos::warnings::warnings;
use linerate_sys::netlink::{Direction, Link, Netlink};
use linerate_sys::netns::{in_mounts_of, outermost_process, shares_mounts_with};
use serde::{Deserialize, Serialize};

pub use error::QosError;
pub use port::{SystemNames, speeds};
pub use state::{Mode, tell_when_waiting};
pub(crate) use status::{Counting, counting, packet_ns};
pub use watch::{check_persist, persist, watch};

use change::{DIRECTIONS, QosChange, commit, settle};
use hook::Via;
use port::Port;
use prepare::{WantedPolicy, prepare};
use state::{InterfaceState, QosSite, Which};
use status::Readings;

/// How a policy is applied.
#[derive(Debug, Clone, Default)]
pub struct QosOptions {
    /// Only this interface, by the file's adapter of its name or else by `*`.
    pub adapter: Option<String>,
    /// Also beside somebody else's programs, and in the place of somebody else's queueing
    /// discipline.
    pub force: bool,
    /// Also packets that come in, whatever the file says.
    pub ingress: bool,
    /// The file's name, for messages.
    pub file: String,
}

/// What is in force on an interface, with all that is needed to restore it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What becomes of the packets.
    pub mode: Mode,
    /// The policy file, empty if there is none.
    pub text: String,
    options: (bool, bool),
}

/// Puts the policies of a file in force: on all its interfaces or on none.
///
/// # Errors
/// [`QosError`]; what was in force before is in force.
pub fn apply(text: &str, options: &QosOptions) -> Result<QosDocument, QosError> {
    let file = PolicyFile::from_toml(text, &mut SystemNames::default())?;
    let chosen = choose(&file, options.adapter.as_deref())?;
    let doubts = warnings(&file, &BTreeMap::new())?;
    on_site(|site| {
        let doubts = doubts.iter().map(|doubt| match &*options.file {
            "" => doubt.to_string(),
            file => format!("{file}:{doubt}"),
        });
        let mut notes: Vec<_> = doubts.collect();
        if options.adapter.is_none() {
            notes.extend(left_out(site, &chosen)?);
        }
        let mut all = Vec::new();
        for (adapter, interface) in &chosen {
            let port = Port::find(&mut site.netlink, interface)?;
            let unmet = port::unmet(&file, adapter, &port, options.ingress);
            notes.extend(unmet.iter().map(|unmet| match &*options.file {
                "" => unmet.text.clone(),
                file => format!("{file}:{}:{}: {}", unmet.line, unmet.column, unmet.text),
            }));
            let wanted = WantedPolicy {
                policy: Some((text, &file, adapter)),
                forced: options.force,
                with_ingress: options.ingress,
            };
            all.push((port, wanted));
        }
        put(site, all, notes)
    })
}

/// Puts the policies in force, on all of the interfaces or on none.
fn put(
    site: &mut QosSite,
    all: Vec<(Port, WantedPolicy<'_>)>,
    mut notes: Vec<String>,
) -> Result<QosDocument, QosError> {
    let mut changes = Vec::new();
    for (port, wanted) in all {
        let old = settle(site, &port)?;
        let mut change = prepare(site, port, old, wanted)?;
        refuse_foreign(site, &mut change, &mut notes)?;
        changes.push(change);
    }
    conclude(site, changes, notes)
}

/// Notes about interfaces that have a policy and that the file does not name.
fn left_out(site: &mut QosSite, chosen: &[(&Adapter, String)]) -> Result<Vec<String>, QosError> {
    let (ports, _) = site.ports()?;
    let is_chosen = |port: &Port| chosen.iter().any(|(_, name)| name == port.name());
    let left = ports.iter().filter(|port| !is_chosen(port)).map(Port::name);
    let said = left.map(|name| {
        format!(
            "{name} is not in this file and keeps the policy that it has: `linerate qos remove \
             {name}` removes it"
        )
    });
    Ok(said.collect())
}

/// Finds what [`apply`] would refuse in a file on this host, and what is doubtful here. It changes
/// nothing and needs no privilege.
///
/// # Errors
/// [`QosError::Which`], and if the interfaces cannot be listed.
pub fn here(file: &PolicyFile, only: Option<&str>) -> Result<Vec<WarningReport>, QosError> {
    let mut netlink = Netlink::open()?;
    let refused = |Place { line, column }, error: QosError| WarningReport {
        line,
        column,
        text: format!("it cannot be applied here: {error}"),
        refused: true,
    };
    let mut found = Vec::new();
    for filter in &file.filters {
        let bound = prepare::bind_filter(&mut netlink, filter, &mut Bindings::default());
        found.extend(bound.err().map(|error| refused(filter.place, error)));
    }
    for (adapter, interface) in choose(file, only)? {
        let port = match Port::find(&mut netlink, &interface) {
            Ok(port) => port,
            Err(error) => {
                found.push(refused(adapter.place, error));
                continue;
            }
        };
        found.extend(port::unmet(file, adapter, &port, false));
        // What the file alone tells is a warning of it.
        let is_warning = |error: &QosError| match error {
            QosError::Classes(error) => !matches!(error, ClassError::NoRate { .. }),
            _ => false,
        };
        let error = match prepare::check(file, adapter, &port) {
            Err(error) => Some(error).filter(|error| !is_warning(error)),
            // Without privilege nobody can know whether one of our number is ours.
            Ok(true) => queue::foreign_root(&mut netlink, &port, true)?
                .map(|what| in_the_way(&port, what, TO_REPLACE)),
            Ok(false) => None,
        };
        found.extend(error.map(|error| refused(adapter.place, error)));
    }
    Ok(found)
}

/// The policies of one interface, or of all that have one.
///
/// # Errors
/// [`QosError`].
pub fn status(interface: Option<&str>) -> Result<QosDocument, QosError> {
    let read = on_site(|site| {
        let (ports, gone) = known(site, interface)?;
        let mut adapters = Vec::new();
        for port in ports {
            if let Some(state) = settle(site, &port)? {
                adapters.push(status::report(site, &port, &state)?);
            }
        }
        Ok(QosDocument::new(adapters, gone))
    });
    read.map_err(|error| match error {
        QosError::NotPermitted { .. } => QosError::NotPermitted {
            operation: "read what is in force and what it counted".to_owned(),
        },
        error => error,
    })
}

/// Resets the counters of one interface or of all.
///
/// # Errors
/// [`QosError`].
pub fn reset(interface: Option<&str>) -> Result<QosDocument, QosError> {
    on_site(|site| {
        for (port, mut state) in whole(held(site, interface)?)? {
            let hooks = site.hooks(&port);
            for direction in DIRECTIONS {
                let slots = state.slots.clone();
                let hooked = state.hooked_mut(direction);
                let Some(pin) = hooked.maps.get(change::COUNTERS) else {
                    continue;
                };
                let Some(map) = hooks.map(pin)? else { continue };
                let readings = Readings::new(map);
                for (name, slot) in slots {
                    let counted = readings.slot(slot)?;
                    hooked.base.insert(name, counted);
                }
            }
            site.directory.write(&port.key, Which::Current, &state)?;
        }
        Ok(())
    })?;
    status(interface)
}

/// Puts policies in force again that were disabled or replaced by a program without rules.
///
/// # Errors
/// [`QosError`]; as of [`apply`].
pub fn enable(interface: Option<&str>) -> Result<QosDocument, QosError> {
    let standing = whole(on_site(|site| held(site, interface))?)?;
    let mut files = Vec::new();
    for (port, state) in &standing {
        if state.text.is_empty() {
            return Err(no_policy(port.name()));
        }
        files.push(PolicyFile::from_toml(&state.text, &mut SystemNames::default())?);
    }
    on_site(|site| {
        let mut all = Vec::new();
        for ((port, state), file) in standing.iter().zip(&files) {
            let mut adapters = file.adapters.iter();
            let adapter = adapters
                .find(|adapter| adapter.name == state.adapter)
                .ok_or_else(|| no_policy(port.name()))?;
            let wanted = WantedPolicy {
                policy: Some((&state.text, file, adapter)),
                forced: state.forced,
                with_ingress: state.with_ingress,
            };
            all.push((port.clone(), wanted));
        }
        put(site, all, Vec::new())
    })
}

/// Replaces the policy by a program that does nothing, which shows the cost of a program alone. The
/// policy and its counts are kept.
///
/// # Errors
/// [`QosError`]; as of [`apply`].
pub fn passthrough(interface: Option<&str>) -> Result<QosDocument, QosError> {
    on_site(|site| {
        let ports = match interface {
            Some(name) => vec![Port::find(&mut site.netlink, name)?],
            None => held(site, None)?.into_iter().map(|(port, _)| port).collect(),
        };
        let mut all = Vec::new();
        for port in ports {
            let old = settle(site, &port)?;
            let wanted = WantedPolicy {
                policy: None,
                forced: old.as_ref().is_some_and(|old| old.forced),
                with_ingress: old.as_ref().is_some_and(|old| old.with_ingress),
            };
            all.push((port, wanted));
        }
        put(site, all, Vec::new())
    })
}

/// Takes programs and classes away and keeps the policy and its counts.
///
/// # Errors
/// [`QosError`]; as of [`apply`].
pub fn disable(interface: Option<&str>) -> Result<QosDocument, QosError> {
    end(interface, Mode::Disabled)
}

/// Takes everything away, and what is kept over a reboot.
///
/// # Errors
/// [`QosError`]; as of [`apply`].
pub fn remove(interface: Option<&str>) -> Result<QosDocument, QosError> {
    // Without privilege nothing is forgotten either.
    on_site(|_| Ok(()))?;
    // Before the policy ends: a watch must not find it gone and still kept.
    let forgotten = watch::forget(interface)?;
    match end(interface, Mode::Removed) {
        Err(QosError::NoPolicy { .. } | QosError::Unknown { .. }) if !forgotten.is_empty() => {
            let notes =
                forgotten.iter().map(|name| format!("{name}: not kept over a reboot any more"));
            Ok(QosDocument::new(Vec::new(), notes.collect()))
        }
        removed => removed,
    }
}

/// What is in force on an interface; none if no policy is known of it.
///
/// # Errors
/// [`QosError`].
pub fn standing(interface: &str) -> Result<Option<Standing>, QosError> {
    on_site(|site| {
        let port = Port::find(&mut site.netlink, interface)?;
        let state = settle(site, &port)?.map(|state| (port, state));
        let state = whole(state.into_iter().collect())?.pop();
        Ok(state.map(|(_, state)| state.into()))
    })
}

/// Whether a policy may be known of a link of the calling thread's network namespace: a look for
/// one file, which needs no privilege and waits for nobody.
pub(crate) fn is_known(link: &Link) -> bool {
    Port::new(link.clone()).is_ok_and(|port| state::Directory::has(&port.key))
}

/// Puts back what was in force.
///
/// # Errors
/// [`QosError`].
pub fn put_back(interface: &str, was: Option<&Standing>) -> Result<(), QosError> {
    let Some(was) = was else {
        let known = standing(interface)?;
        return known.map_or(Ok(()), |_| remove(Some(interface)).map(drop));
    };
    if !was.text.is_empty() {
        let (force, ingress) = was.options;
        let adapter = Some(interface.to_owned());
        apply(&was.text, &QosOptions { adapter, force, ingress, ..QosOptions::default() })?;
    }
    match was.mode {
        Mode::Enabled | Mode::Removed => Ok(()),
        Mode::PassingThrough => passthrough(Some(interface)).map(drop),
        Mode::Disabled => disable(Some(interface)).map(drop),
    }
}

/// Finds a bpffs in which pins last: in the mounts of the host's first process, if this process may
/// look there. The mounts of `ip netns exec` end with its process, and the pins in them too.
fn on_site<T: Send>(
    work: impl FnOnce(&mut QosSite) -> Result<T, QosError> + Send,
) -> Result<T, QosError> {
    let work = || work(&mut QosSite::open()?);
    let outermost = outermost_process();
    match shares_mounts_with(outermost) {
        Ok(false) => in_mounts_of(outermost, work)
            .map_err(|error| QosError::kernel("enter the mounts of the host", error))?,
        // Where it cannot be told, this process has no privileges, or the host no /proc.
        Ok(true) | Err(_) => work(),
    }
}

/// The adapters of the file that are meant, and on which interfaces.
fn choose<'a>(
    file: &'a PolicyFile,
    only: Option<&str>,
) -> Result<Vec<(&'a Adapter, String)>, QosError> {
    let named = |name: &str| file.adapters.iter().find(|adapter| adapter.name == name);
    let names: Vec<_> = file.adapters.iter().map(|adapter| adapter.name.as_str()).collect();
    if let Some(only) = only {
        let adapter = named(only).or_else(|| named(ANY));
        return match adapter {
            Some(adapter) => Ok(vec![(adapter, only.to_owned())]),
            None => Err(QosError::Which {
                why: format!(
                    "the file has no adapter `{only}` and none for any (`*`), but {}",
                    names.join(", ")
                ),
            }),
        };
    }
    if named(ANY).is_some() {
        let why = "the file's adapter `*` is for the one that --adapter names".to_owned();
        return Err(QosError::Which { why });
    }
    if names.is_empty() {
        let why = "the file has no adapter".to_owned();
        return Err(QosError::Which { why });
    }
    Ok(file.adapters.iter().map(|adapter| (adapter, adapter.name.clone())).collect())
}

/// The interfaces with a policy that are meant, and what is said of those that are gone.
fn known(
    site: &mut QosSite,
    interface: Option<&str>,
) -> Result<(Vec<Port>, Vec<String>), QosError> {
    let (ports, gone) = site.ports()?;
    let gone = gone.iter().map(|name| format!("interface {name} is gone; its policy is forgotten"));
    let gone = gone.collect();
    let Some(name) = interface else {
        return Ok((ports, gone));
    };
    Ok((vec![Port::find(&mut site.netlink, name)?], gone))
}

/// Interfaces with the state in force on each; at least one.
fn held(
    site: &mut QosSite,
    interface: Option<&str>,
) -> Result<Vec<(Port, InterfaceState)>, QosError> {
    let (ports, _) = known(site, interface)?;
    let mut held = Vec::new();
    for port in ports {
        match settle(site, &port)? {
            Some(state) => held.push((port, state)),
            // Of a command that was killed, or of a first policy that never came to be.
            None if interface.is_none() => {}
            None => return Err(no_policy(port.name())),
        }
    }
    if held.is_empty() { Err(no_policy("any interface")) } else { Ok(held) }
}

/// The interfaces, unless the state of one was lost.
fn whole(held: Vec<(Port, InterfaceState)>) -> Result<Vec<(Port, InterfaceState)>, QosError> {
    for (port, state) in &held {
        if let Some(why) = &state.lost {
            return Err(QosError::Lost { interface: port.name().to_owned(), why: why.clone() });
        }
    }
    Ok(held)
}

fn end(interface: Option<&str>, mode: Mode) -> Result<QosDocument, QosError> {
    on_site(|site| {
        let mut held = held(site, interface)?;
        if mode != Mode::Removed {
            held = whole(held)?;
        }
        let changes = held.into_iter().map(|(port, old)| {
            let mut next = old.clone();
            next.mode = mode;
            (next.egress.program, next.ingress.program) = (None, None);
            (next.classes, next.default_class, next.offload) = (Vec::new(), None, None);
            next.class_of.clear();
            next.replaced.clear();
            let name = port.name();
            let removed = (mode == Mode::Removed).then(|| format!("{name}: removed"));
            let cap = port.link.gso_max_size.filter(|_| old.lost.is_some());
            let capped = cap.map(|bytes| {
                format!("{name}: gso_max_size stays at {bytes}: what it was before is not known")
            });
            QosChange {
                notes: removed.into_iter().chain(capped).collect(),
                port,
                old: Some(old),
                next,
                loaded: Vec::new(),
            }
        });
        let changes = changes.collect();
        conclude(site, changes, Vec::new())
    })
}

/// Makes the changes, and answers the document of what is then in force.
fn conclude(
    site: &mut QosSite,
    changes: Vec<QosChange>,
    mut notes: Vec<String>,
) -> Result<QosDocument, QosError> {
    let ports: Vec<_> = changes.iter().map(|change| change.port.clone()).collect();
    notes.extend(changes.iter().flat_map(|change| change.notes.clone()));
    let runs = changes.iter().any(|change| !change.loaded.is_empty());
    let given_back: Vec<_> = (changes.iter())
        .filter(|change| change.next.replaced.is_empty())
        .filter_map(|change| Some((change.port.clone(), change.old.as_ref()?.replaced.clone())))
        .filter(|(_, replaced)| !replaced.is_empty())
        .collect();
    commit(site, changes)?;
    let mut adapters: Vec<AdapterReport> = Vec::new();
    for (port, replaced) in given_back {
        let is_whole = queue::has(&mut site.netlink, &port, &replaced)?;
        let (name, root) = (port.name(), &replaced[0].class);
        let what = format!("the queueing discipline {} {:x}:", root.kind, root.id >> 16);
        notes.push(if is_whole {
            format!("{name}: {what} is there again")
        } else {
            format!("{name}: {what} could not be given back as it was: look at `tc qdisc show`")
        });
    }
    for port in &ports {
        if runs && site.hooks(port).via() == Via::Clsact {
            let name = port.name();
            notes.push(format!(
                "{name}: this kernel has no TCX (Linux 6.6): the program is a filter of clsact"
            ));
        }
        if let Some(Ok(state)) = site.directory.read(&port.key, Which::Current) {
            adapters.push(status::report(site, port, &state)?);
        }
    }
    let mut classes = adapters.iter().filter_map(|one| one.default_class.as_ref());
    if classes.any(|class| class.queue.as_deref() == Some(queue::FIFO)) {
        notes.push(
            "this kernel has no fq_codel (CONFIG_NET_SCH_FQ_CODEL): packets of a class wait in one \
             queue, first in, first out"
                .to_owned(),
        );
    }
    Ok(QosDocument::new(adapters, notes))
}

/// Refuses to replace or join somebody else's programs and disciplines, except with `--force`.
fn refuse_foreign(
    site: &mut QosSite,
    change: &mut QosChange,
    notes: &mut Vec<String>,
) -> Result<(), QosError> {
    let (port, next) = (&change.port, &change.next);
    let refuse = |what: String, remedy, note: &str, notes: &mut Vec<String>| {
        if next.forced {
            notes.push(format!("{}: {what} {note}", port.name()));
            return Ok(());
        }
        Err(in_the_way(port, what, remedy))
    };
    for direction in [Direction::Egress, Direction::Ingress] {
        let meets = next.hooked(direction).program.is_some();
        let found = (site.hooks(port)).others(&mut site.netlink, port, direction)?;
        let others: Vec<_> = found.into_iter().map(|(words, _)| words).collect();
        if meets && !others.is_empty() {
            refuse(
                others.join(" and "),
                "--force runs the policy beside it",
                "runs beside the policy",
                notes,
            )?;
        }
    }
    if !next.classes.is_empty()
        && let Some(what) = queue::foreign_root(&mut site.netlink, port, change.has_root())?
    {
        refuse(what, TO_REPLACE, "is replaced until `remove` gives it back", notes)?;
        change.next.replaced = queue::tree(&mut site.netlink, &change.port)?;
    }
    Ok(())
}

fn in_the_way(port: &Port, what: String, remedy: &'static str) -> QosError {
    QosError::Foreign { interface: port.name().to_owned(), what, remedy }
}

/// Somebody else's queueing discipline.
const TO_REPLACE: &str = "--force replaces it, until `remove` gives it back";

fn no_policy(interface: &str) -> QosError {
    QosError::NoPolicy { interface: interface.to_owned() }
}

/// Name of the file's adapter for any interface.
const ANY: &str = "*";
