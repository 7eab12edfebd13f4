//! Rules for the number of connections: descriptors, ports, queues, and the state that remains of
//! closed ones.

use super::super::advice::{Advice, Question};
use super::{
    CONNECTIONS, at_least, at_most, change, fine, numbers, open, power_of_two, unreadable,
};

/// At least the value that `needed` computes from the number of connections.
fn enough(q: &Question<'_>, needed: fn(u64) -> u64, why: &str) -> Advice {
    sized(q, needed, |needed| needed, why)
}

/// Like [`enough`], with a recommended value that `right` makes of what is needed.
fn sized(q: &Question<'_>, needed: fn(u64) -> u64, right: fn(u64) -> u64, why: &str) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let needed = needed(count);
    let inputs = vec![("connections", count as f64), ("needed", needed as f64)];
    at_least(q, needed as f64, right(needed), why).with(inputs)
}

/// `fs.file-max`.
pub(in super::super) fn files(q: &Question<'_>) -> Advice {
    let why = "open() and socket() fail with ENFILE for every process";
    enough(q, |count| 2 * count + 65_536, why)
}

/// `fs.nr_open`: what RLIMIT_NOFILE can be raised to.
pub(in super::super) fn files_of_process(q: &Question<'_>) -> Advice {
    let why = "no process may raise its limit of descriptors to what the connections take";
    enough(q, |count| count + SPARE_FILES, why)
}

/// RLIMIT_NOFILE, `SOFT HARD`.
pub(in super::super) fn descriptors(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let needed = count + SPARE_FILES;
    let inputs = vec![("connections", count as f64), ("needed", needed as f64)];
    let numbers = numbers(q.now);
    let [soft, hard] = numbers[..] else {
        return unreadable();
    };
    if soft >= needed {
        return fine("one process can hold the connections").with(inputs);
    }
    let how = if hard >= needed {
        "`ulimit -n` raises it in the shell that starts the program"
    } else {
        "LimitNOFILE= of the unit or limits.conf raise it"
    };
    let why = format!(
        "a program of one process holds fewer than {soft}: {how}, or it is made of several \
         processes, as linerate capacity is"
    );
    change(needed.to_string(), why).with(inputs)
}

/// `ip_local_port_range`: connecting slows down by tens when one parity of the ports is used up
/// (`__inet_hash_connect`, net/ipv4/inet_hashtables.c, tries the half of the other parity last).
pub(in super::super) fn ports(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let numbers = numbers(q.now);
    let [first, last] = numbers[..] else {
        return unreadable();
    };
    let size = (last + 1).saturating_sub(first);
    let inputs = vec![("connections", count as f64), ("ports", size as f64)];
    if size >= 2 * count {
        return fine("twice as many ports as connections").with(inputs);
    }
    let more = match 2 * count {
        0..=ALL_PORTS => "",
        _ => "; for more than 32256 to one address and port use several source addresses",
    };
    if first <= 1_024 && last == 65_535 {
        return fine(format!("all ports that there are{more}")).with(inputs);
    }
    let why = format!(
        "to one address and port, connect() becomes slow when half of the {size} ports are \
         taken{more}"
    );
    change(format!("{} 65535", first.min(1_024)), why).with(inputs)
}

/// `somaxconn`: connections that arrive while the program does not accept for a tenth of a second,
/// all in ten seconds.
pub(in super::super) fn accept_queue(q: &Question<'_>) -> Advice {
    let why =
        "SYNs are dropped, and retransmitted after a second, when the program accepts too late";
    enough(q, |count| (count / 100).clamp(MIN_QUEUE, 65_535), why)
}

/// `tcp_max_syn_backlog`: with cookies the length of the accept queue bounds half-open connections,
/// too (`tcp_conn_request`, net/ipv4/tcp_input.c).
pub(in super::super) fn syn_queue(q: &Question<'_>) -> Advice {
    match q.view.text("net.ipv4.tcp_syncookies") {
        Some("0") => accept_queue(q),
        _ => fine("SYN cookies are on, and somaxconn is the limit"),
    }
}

/// `tcp_max_tw_buckets`, `tcp_max_orphans`: all connections closed at once.
pub(in super::super) fn closing(q: &Question<'_>) -> Advice {
    let why = "if all close at once, those above it are closed without their state";
    enough(q, |count| count, why)
}

/// `tcp_fin_timeout`.
pub(in super::super) fn fin_timeout(q: &Question<'_>) -> Advice {
    let why = "closed connections whose peer is gone hold memory for long";
    at_most(q, 60, why)
}

/// `nf_conntrack_max`.
pub(in super::super) fn tracked(q: &Question<'_>) -> Advice {
    let why = "packets of new connections are dropped when the table is full";
    enough(q, |count| count + count / 4, why)
}

/// `nf_conntrack_buckets`.
pub(in super::super) fn tracking_buckets(q: &Question<'_>) -> Advice {
    let why = "each packet walks a long chain to find its connection";
    sized(q, |count| count / 4, |needed| power_of_two(needed as f64), why)
}

/// `nf_conntrack_tcp_timeout_established`, 5 days of itself.
pub(in super::super) fn tracking_timeout(q: &Question<'_>) -> Advice {
    let why = "connections that died without a word fill the table for days";
    match q.need.connections {
        None => open(CONNECTIONS),
        Some(_) => at_most(q, 86_400, why),
    }
}

/// `nf_conntrack_tcp_timeout_time_wait`.
pub(in super::super) fn tracking_wait(q: &Question<'_>) -> Advice {
    at_most(q, 120, "closed connections fill the table")
}

/// `tcp_syncookies`.
pub(in super::super) fn cookies(q: &Question<'_>) -> Advice {
    match q.now {
        "0" => change("1", "a full queue of half-open connections drops every SYN"),
        "2" => change(
            "1",
            "every connection is made from a cookie, which costs it options: 2 is for tests",
        ),
        _ => fine("cookies only where the queue is full"),
    }
}

/// `tcp_tw_reuse`: safe by time stamps (RFC 6191).
pub(in super::super) fn reuse(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let has_stamps = q.view.text("net.ipv4.tcp_timestamps") != Some("0");
    match q.now {
        "1" => fine("ports in TIME_WAIT are used again after a second"),
        _ if !has_stamps => fine("it needs time stamps, which are off"),
        _ => {
            let why = "a client that connects often runs out of ports that wait for a minute";
            change("1", why).with(vec![("connections", count as f64)])
        }
    }
}

/// The kernel's own `somaxconn` (since Linux 5.4).
const MIN_QUEUE: u64 = 4_096;

/// Ports from 1024 on.
const ALL_PORTS: u64 = 64_512;

/// Descriptors of a process for other things than connections.
const SPARE_FILES: u64 = 1_024;
