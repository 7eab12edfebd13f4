//! What raises a limit: a command to copy where there is one.

use super::{LimitEnd, LimitKind, View};
use crate::capacity::{CapacityHalf, DESCRIPTOR_RESERVE};

/// What a limit is to be raised for.
pub(super) struct Wanted {
    /// As many connections.
    connections: u64,
    /// Where the limit's own value is known and how many it is good for.
    stops: Option<(u64, u64)>,
}

impl Wanted {
    /// What was asked for.
    pub(super) fn asked(view: &View<'_>) -> Self {
        Self {
            connections: view.asked.max(1),
            stops: None,
        }
    }

    /// Twice what a limit of `value` is good for.
    pub(super) fn more_than(view: &View<'_>, value: u64, stops: Option<u64>) -> Self {
        let stops = stops.filter(|stops| *stops > 0);
        Self {
            connections: stops
                .map_or(view.asked, |stops| stops.saturating_mul(2))
                .max(1),
            stops: stops.map(|stops| (value, stops)),
        }
    }

    /// A value in proportion, from what `now` is good for to what is wanted.
    fn scaled(&self, now: u64, held: u64) -> u64 {
        let (value, good_for) = self.stops.unwrap_or((now, held.max(1)));
        let more = self.connections as f64 / good_for.max(1) as f64;
        round_up(value as f64 * more.max(MIN_RAISE))
    }
}

/// Less would not be worth a command.
const MIN_RAISE: f64 = 1.25;

/// The remedy of a limit; empty where nothing helps.
pub(super) fn of(limit: LimitKind, end: LimitEnd, wanted: &Wanted, view: &View<'_>) -> String {
    let half = match end {
        LimitEnd::Server => view.document.server.as_ref(),
        LimitEnd::Client | LimitEnd::Both => Some(&view.document.client),
    };
    let Some(half) = half else {
        return String::new();
    };
    let limits = &half.limits;
    let held = view.held;
    let set = |key: &str, value: Option<u64>| match value {
        Some(value) => host_set(key, &value.to_string(), end),
        None => String::new(),
    };
    match limit {
        LimitKind::ProcessDescriptors => descriptors(half, wanted, end),
        LimitKind::HostFiles => set(
            "fs.file-max",
            limits.files.map(|now| wanted.scaled(now, held)),
        ),
        LimitKind::Ports => ports(view),
        LimitKind::Owner => format!(
            "linerate serve --max-connections {}{}",
            wanted.connections,
            place(end)
        ),
        LimitKind::AcceptQueue => set("net.core.somaxconn", limits.somaxconn.map(next_queue)),
        LimitKind::SynQueue => set(
            "net.ipv4.tcp_max_syn_backlog",
            limits.syn_backlog.map(next_queue),
        ),
        LimitKind::TcpMemory => pages("net.ipv4.tcp_mem", limits.tcp_memory_pages, end),
        LimitKind::UdpMemory => pages("net.ipv4.udp_mem", limits.udp_memory_pages, end),
        LimitKind::GroupMemory => group(limits.cgroup_bytes, wanted, held, end),
        LimitKind::Conntrack => set(
            "net.netfilter.nf_conntrack_max",
            limits.conntrack.map(|now| wanted.scaled(now, held)),
        ),
        LimitKind::Watches => match limits.epoll_watches {
            // Derived from the host's memory at boot; of the table that `host set` has it is no
            // entry.
            Some(now) => {
                let value = wanted.scaled(now, held);
                format!("sysctl -w fs.epoll.max_user_watches={value}{}", place(end))
            }
            None => String::new(),
        },
        LimitKind::Orphans => set(
            "net.ipv4.tcp_max_orphans",
            limits.orphans.map(|now| now.saturating_mul(2)),
        ),
        LimitKind::TimeWait => set(
            "net.ipv4.tcp_max_tw_buckets",
            limits.time_wait.map(|now| now.saturating_mul(2)),
        ),
        LimitKind::HostMemory | LimitKind::Forbidden | LimitKind::Unknown => String::new(),
    }
}

/// `linerate host set`, on the host that it is for.
fn host_set(key: &str, value: &str, end: LimitEnd) -> String {
    let value = if value.contains(' ') {
        format!("'{value}'")
    } else {
        value.to_owned()
    };
    format!("linerate host set {key}={value}{}", place(end))
}

fn place(end: LimitEnd) -> &'static str {
    match end {
        LimitEnd::Client | LimitEnd::Both => "",
        LimitEnd::Server => "  # on the endpoint's host",
    }
}

/// In the shell that starts the program. A hard limit is raised by root alone, and no further than
/// `fs.nr_open`.
fn descriptors(half: &CapacityHalf, wanted: &Wanted, end: LimitEnd) -> String {
    let workers = half.limits.workers_most.unwrap_or(1).max(1);
    let needed = wanted.connections.div_ceil(workers);
    let each = round_up(needed.saturating_add(DESCRIPTOR_RESERVE) as f64);
    let each = each.max(
        half.limits
            .descriptors_each
            .map_or(0, |now| now.saturating_add(1)),
    );
    let raise = format!("ulimit -n {each}");
    let program = match end {
        LimitEnd::Server => "  # as root, before `linerate serve` on the endpoint's host",
        LimitEnd::Client | LimitEnd::Both => "  # as root, before `linerate capacity`",
    };
    match half.limits.nr_open {
        Some(most) if each > most => {
            let set = host_set("fs.nr_open", &each.to_string(), LimitEnd::Client);
            format!("{set} && {raise}{program}")
        }
        _ => format!("{raise}{program}"),
    }
}

fn ports(view: &View<'_>) -> String {
    match view.document.client.limits.port_range {
        Some(range) if range != WIDEST => {
            let key = "net.ipv4.ip_local_port_range";
            host_set(key, &format!("{} {}", WIDEST.0, WIDEST.1), LimitEnd::Client)
        }
        _ => {
            "linerate capacity --sources ADDRESS,ADDRESS  # more addresses of this host".to_owned()
        }
    }
}

/// Ports that need no privilege.
const WIDEST: (u16, u16) = (1024, 65_535);

fn pages(key: &str, now: Option<(u64, u64, u64)>, end: LimitEnd) -> String {
    let Some((low, pressure, high)) = now else {
        return String::new();
    };
    let [low, pressure, high] = [low, pressure, high].map(|pages| pages.saturating_mul(2));
    host_set(key, &format!("{low} {pressure} {high}"), end)
}

fn group(now: Option<u64>, wanted: &Wanted, held: u64, end: LimitEnd) -> String {
    let Some(now) = now else {
        return String::new();
    };
    let bytes = wanted.scaled(now, held);
    let program = match end {
        LimitEnd::Server => "serve",
        LimitEnd::Client | LimitEnd::Both => "capacity",
    };
    let place = place(end);
    format!("systemd-run --scope -p MemoryMax={bytes} linerate {program}{place}")
}

/// Queues are cut to what fits 16 bits on kernels before 5.4, and none needs more.
fn next_queue(now: u64) -> u64 {
    now.saturating_mul(4).clamp(4096, 65_535).max(now)
}

/// Two significant digits, so that the value can be read and leaves some room. The casts saturate.
fn round_up(value: f64) -> u64 {
    let scale = 10_f64.powf((value.max(1.0).log10().floor() - 1.0).max(0.0));
    ((value / scale).ceil() * scale) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_round_and_never_lower() {
        for (value, round) in [
            (0.0, 0),
            (7.0, 7),
            (99.5, 100),
            (20_179.0, 21_000),
            (1e6, 1_000_000),
        ] {
            assert_eq!(round_up(value), round, "{value}");
        }
        assert_eq!(next_queue(128), 4096);
        assert_eq!(next_queue(4096), 16_384);
        assert_eq!(next_queue(100_000), 100_000);
    }
}
