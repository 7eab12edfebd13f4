//! The change that raises a limit.

use super::{LimitEnd, LimitKind, LimitView};
use crate::capacity::{CapacityHalf, DESCRIPTOR_RESERVE};
use crate::plan::End;
use crate::remedy::{Change, ProcessLimit, Remedy, RunOption};

/// How far a limit is to be raised.
pub(super) struct Wanted {
    /// The connections that are to fit.
    connections: u64,
    /// The limit's value and the number of connections that it admits, where they are known.
    stops: Option<(u64, u64)>,
}

impl Wanted {
    /// Far enough for the connections that were asked for.
    pub(super) fn asked(view: &LimitView<'_>) -> Self {
        Self { connections: view.asked.max(1), stops: None }
    }

    /// Far enough for twice the connections that a limit of `value` admits.
    pub(super) fn more_than(view: &LimitView<'_>, value: u64, stops: Option<u64>) -> Self {
        let stops = stops.filter(|stops| *stops > 0);
        Self {
            connections: stops.map_or(view.asked, |stops| stops.saturating_mul(2)).max(1),
            stops: stops.map(|stops| (value, stops)),
        }
    }

    /// The value for the wanted connections, in proportion to `now`, which admits `held`.
    fn scaled(&self, now: u64, held: u64) -> u64 {
        let (value, good_for) = self.stops.unwrap_or((now, held.max(1)));
        let more = self.connections as f64 / good_for.max(1) as f64;
        round_up(value as f64 * more.max(MIN_RAISE)).max(now)
    }
}

/// A smaller raise is not worth a command.
const MIN_RAISE: f64 = 1.25;

/// The remedy of a limit; `None` where nothing helps.
pub(super) fn of(
    limit: LimitKind,
    end: LimitEnd,
    wanted: &Wanted,
    view: &LimitView<'_>,
) -> Option<Remedy> {
    let half = match end {
        LimitEnd::Server => view.document.server.as_ref()?,
        LimitEnd::Client | LimitEnd::Both => &view.document.client,
    };
    let (limits, held, at) = (&half.limits, view.held, host(end));
    let set = |key: &str, value: u64| Remedy::host_setting(at, key, &[value]);
    let scaled = |now: u64| wanted.scaled(now, held);
    let twice = |now: u64| now.saturating_mul(2);
    let remedy = match limit {
        LimitKind::ProcessDescriptors => descriptors(half, wanted, at)?,
        LimitKind::HostFiles => set("fs.file-max", scaled(limits.files?)),
        LimitKind::Ports => ports(view),
        LimitKind::Owner => {
            let object = RunOption::MaxConnections;
            let value = Some(wanted.connections.to_string());
            Remedy::new(Change::Option { object, value }, at)
        }
        LimitKind::AcceptQueue => set("net.core.somaxconn", next_queue(limits.somaxconn?)),
        LimitKind::SynQueue => set("net.ipv4.tcp_max_syn_backlog", next_queue(limits.syn_backlog?)),
        LimitKind::TcpMemory => pages("net.ipv4.tcp_mem", limits.tcp_memory_pages?, at),
        LimitKind::UdpMemory => pages("net.ipv4.udp_mem", limits.udp_memory_pages?, at),
        LimitKind::GroupMemory => {
            let object = ProcessLimit::Memory;
            let value = scaled(limits.cgroup_bytes?);
            Remedy::new(Change::ProcessLimit { object, value }, at)
        }
        LimitKind::Conntrack => set("net.netfilter.nf_conntrack_max", scaled(limits.conntrack?)),
        LimitKind::Watches => set("fs.epoll.max_user_watches", scaled(limits.epoll_watches?)),
        LimitKind::Orphans => set("net.ipv4.tcp_max_orphans", twice(limits.orphans?)),
        LimitKind::TimeWait => set("net.ipv4.tcp_max_tw_buckets", twice(limits.time_wait?)),
        LimitKind::HostMemory | LimitKind::Forbidden | LimitKind::Unknown => return None,
    };
    Some(remedy.typed(None))
}

fn host(end: LimitEnd) -> Option<End> {
    match end {
        LimitEnd::Client => Some(End::Client),
        LimitEnd::Server => Some(End::Server),
        LimitEnd::Both => None,
    }
}

/// Raises the limit of descriptors in the shell that starts the program.
fn descriptors(half: &CapacityHalf, wanted: &Wanted, at: Option<End>) -> Option<Remedy> {
    let limits = &half.limits;
    let workers = limits.workers_most.unwrap_or(1).max(1);
    let needed = wanted.connections.div_ceil(workers);
    let each = round_up(needed.saturating_add(DESCRIPTOR_RESERVE) as f64);
    let value = each.max(limits.descriptors_each?.saturating_add(1));
    let object = ProcessLimit::Descriptors;
    let remedy = Remedy::new(Change::ProcessLimit { object, value }, at);
    Some(match limits.nr_open {
        Some(max) if value > max => remedy.after(Remedy::host_setting(at, "fs.nr_open", &[value])),
        _ => remedy,
    })
}

fn ports(view: &LimitView<'_>) -> Remedy {
    match view.document.client.limits.port_range {
        Some((low, high)) if low > WIDEST.0 || high < WIDEST.1 => {
            let (low, high) = (low.min(WIDEST.0).into(), WIDEST.1.into());
            let key = "net.ipv4.ip_local_port_range";
            Remedy::host_setting(Some(End::Client), key, &[low, high])
        }
        _ => Remedy::option(RunOption::Sources, "ADDRESS,ADDRESS")
            .because("more addresses of this host"),
    }
}

/// All ports that need no privilege.
const WIDEST: (u16, u16) = (1024, 65_535);

fn pages(key: &str, (low, pressure, high): (u64, u64, u64), at: Option<End>) -> Remedy {
    let pages = [low, pressure, high].map(|pages| pages.saturating_mul(2));
    Remedy::host_setting(at, key, &pages)
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
        for (value, round) in
            [(0.0, 0), (7.0, 7), (99.5, 100), (20_179.0, 21_000), (1e6, 1_000_000)]
        {
            assert_eq!(round_up(value), round, "{value}");
        }
        assert_eq!(next_queue(128), 4096);
        assert_eq!(next_queue(4096), 16_384);
        assert_eq!(next_queue(100_000), 100_000);
    }
}
