//! The formulas of right values. Each rule answers for one setting; what it takes in and what came out is in the answer.

use super::advice::{Advice, Question};
use super::document::SettingState;
use super::need::{NeededPath, Profile};

/// Nothing is advised of it.
pub(super) fn not_judged(_: &Question<'_>) -> Advice {
    answer(SettingState::Shown, "nothing is advised of it")
}

/// `tcp_rmem`: the kernel offers about half of the buffer as the window (`tcp_win_from_space`, include/net/tcp.h).
pub(super) fn receive_buffer(q: &Question<'_>) -> Advice {
    last_of_three(q, "the receive window cannot grow to what fills the path")
}

/// `tcp_wmem`: buffers grow to twice the congestion window (`tcp_sndbuf_expand`, net/ipv4/tcp_input.c).
pub(super) fn send_buffer(q: &Question<'_>) -> Advice {
    last_of_three(q, "the send buffer cannot grow to what fills the path")
}

fn last_of_three(q: &Question<'_>, low: &str) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    let needed = buffer_for(2.0 * path.product_bytes());
    let inputs = vec![
        ("rate_bps", path.rate_bps),
        ("rtt_us", path.rtt_us),
        ("needed_bytes", 2.0 * path.product_bytes()),
    ];
    let numbers = numbers(q.now);
    let [least, first, most] = numbers[..] else {
        return unreadable();
    };
    if most as f64 >= (2.0 * path.product_bytes()).min(LARGEST_BUFFER as f64) {
        return fine(format!("{most} bytes are enough for {}", words(path))).with(inputs);
    }
    change(
        format!("{least} {first} {needed}"),
        format!("{low}, {}", words(path)),
    )
    .with(inputs)
}

/// `rmem_max`, `wmem_max`: the kernel doubles what an application asks for (`sock_setsockopt`, net/core/sock.c), so that
/// once the product is enough.
pub(super) fn asked_buffer(q: &Question<'_>) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    let needed = path.product_bytes();
    let inputs = vec![
        ("rate_bps", path.rate_bps),
        ("rtt_us", path.rtt_us),
        ("needed_bytes", needed),
    ];
    let low = format!(
        "an application that sets its buffer itself cannot fill {}",
        words(path)
    );
    at_least(q, needed, buffer_for(needed), low).with(inputs)
}

/// `tcp_mem`, `udp_mem`, in pages: the connections' buffers together, at most half of the memory.
pub(super) fn pages(q: &Question<'_>) -> Advice {
    let page = q.view.page_bytes.max(1) as f64;
    let path = q
        .need
        .path
        .as_ref()
        .map_or(0.0, |path| 4.0 * path.product_bytes() / page);
    // TCP keeps a page each way for a connection that moves data (ip-sysctl.rst, tcp_rmem's and tcp_wmem's least).
    let connections = q.need.connections.map_or(0.0, |count| 2.0 * count as f64);
    let needed = path + connections;
    if needed == 0.0 {
        return open("--rate and --rtt, or --connections");
    }
    let numbers = numbers(q.now);
    let [_, pressure, _] = numbers[..] else {
        return unreadable();
    };
    let inputs = vec![("needed_pages", needed), ("page_bytes", page)];
    if pressure as f64 >= needed {
        return fine("all buffers together stay below the pressure mark").with(inputs);
    }
    let half = (q.view.memory_bytes as f64 / page / 2.0).floor();
    let most = match half > 0.0 {
        true => (needed * 1.5).min(half),
        false => needed * 1.5,
    };
    if most / 1.5 <= pressure as f64 {
        let why = "half of the memory is in it already: more buffers than that take the memory of everything else";
        return fine(why).with(inputs);
    }
    let right = [most / 2.0, most / 1.5, most]
        .map(|pages| format!("{pages:.0}"))
        .join(" ");
    change(
        right,
        "under memory pressure TCP shrinks the windows of all connections",
    )
    .with(inputs)
}

/// `fs.file-max`.
pub(super) fn files(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let needed = 2 * count + 65_536;
    at_least(
        q,
        needed as f64,
        needed,
        "open() and socket() fail with ENFILE for every process",
    )
    .with(vec![
        ("connections", count as f64),
        ("needed", needed as f64),
    ])
}

/// `fs.nr_open`: what RLIMIT_NOFILE can be raised to.
pub(super) fn files_of_process(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let needed = count + SPARE_FILES;
    at_least(
        q,
        needed as f64,
        needed,
        "no process may raise its limit of descriptors to what the connections take",
    )
    .with(vec![
        ("connections", count as f64),
        ("needed", needed as f64),
    ])
}

/// RLIMIT_NOFILE, `SOFT HARD`.
pub(super) fn descriptors(q: &Question<'_>) -> Advice {
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
    let why = match hard >= needed {
        true => "`ulimit -n` raises it in the shell that starts the program",
        false => {
            "the hard limit is too low as well: LimitNOFILE= of the unit, limits.conf, or several processes"
        }
    };
    change(needed.to_string(), why).with(inputs)
}

/// `ip_local_port_range`: connecting slows down by tens when one parity of the ports is used up
/// (`__inet_hash_connect`, net/ipv4/inet_hashtables.c, tries the half of the other parity last).
pub(super) fn ports(q: &Question<'_>) -> Advice {
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
    let enough = 2 * count <= 64_512;
    let more = if enough {
        ""
    } else {
        "; beyond 32256 to one address and port, use several source addresses"
    };
    if first <= 1_024 && last == 65_535 {
        return fine(format!("all ports that there are{more}")).with(inputs);
    }
    let why = format!(
        "to one address and port, connect() slows down at half of {size} ports and fails at all{more}"
    );
    change("1024 65535", why).with(inputs)
}

/// `somaxconn`: connections that arrive while the program does not accept for a tenth of a second, all in ten seconds.
pub(super) fn accept_queue(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let needed = (count / 100).clamp(LEAST_QUEUE, 65_535);
    at_least(
        q,
        needed as f64,
        needed,
        "SYNs are dropped, and sent again after a second, when the program accepts too late",
    )
    .with(vec![
        ("connections", count as f64),
        ("needed", needed as f64),
    ])
}

/// `netdev_max_backlog`: packets of a tick of 4 ms.
pub(super) fn backlog(q: &Question<'_>) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    let needed = packets(path, 4_000.0).max(1_000.0);
    at_least(
        q,
        needed,
        power_of_two(needed),
        "packets are dropped where a CPU is late by a tick of the clock",
    )
    .with(vec![("rate_bps", path.rate_bps), ("needed", needed)])
}

/// `tcp_max_tw_buckets`, `tcp_max_orphans`: all connections closed at once.
pub(super) fn closing(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    at_least(
        q,
        count as f64,
        count,
        "closing them all at once, those above it are cut off without their state",
    )
    .with(vec![("connections", count as f64)])
}

/// `tcp_fin_timeout`.
pub(super) fn fin_timeout(q: &Question<'_>) -> Advice {
    at_most(
        q,
        60,
        "closed connections whose peer is gone hold memory for long",
    )
}

/// `nf_conntrack_max`.
pub(super) fn tracked(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let needed = count + count / 4;
    at_least(
        q,
        needed as f64,
        needed,
        "packets of new connections are dropped when the table is full",
    )
    .with(vec![
        ("connections", count as f64),
        ("needed", needed as f64),
    ])
}

/// `nf_conntrack_buckets`.
pub(super) fn tracking_buckets(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let needed = count / 4;
    at_least(
        q,
        needed as f64,
        power_of_two(needed as f64),
        "each packet walks a long chain to find its connection",
    )
    .with(vec![
        ("connections", count as f64),
        ("needed", needed as f64),
    ])
}

/// `nf_conntrack_tcp_timeout_established`, 5 days of itself.
pub(super) fn tracking_timeout(q: &Question<'_>) -> Advice {
    match q.need.connections {
        None => open(CONNECTIONS),
        Some(_) => at_most(
            q,
            86_400,
            "connections that died without a word fill the table for days",
        ),
    }
}

/// `nf_conntrack_tcp_timeout_time_wait`.
pub(super) fn tracking_wait(q: &Question<'_>) -> Advice {
    at_most(q, 120, "closed connections fill the table")
}

/// What is to be on.
pub(super) fn on(q: &Question<'_>) -> Advice {
    match q.now {
        "0" => change("1", "it is off"),
        _ => fine("it is on"),
    }
}

/// `tcp_window_scaling`: 65,535 bytes without it (RFC 7323, section 2).
pub(super) fn scaling(q: &Question<'_>) -> Advice {
    let limit = q
        .need
        .path
        .as_ref()
        .map(|path| 65_535.0 * 8e6 / path.rtt_us.max(1.0));
    match (q.now, limit) {
        ("0", None) => change("1", "no window is larger than 65535 bytes"),
        ("0", Some(limit)) => {
            let why = "no window is larger than 65535 bytes: that over the round-trip time is the most a connection gets";
            change("1", why).with(vec![("most_bps", limit)])
        }
        _ => fine("windows may be larger than 64 KiB"),
    }
}

/// `tcp_syncookies`.
pub(super) fn cookies(q: &Question<'_>) -> Advice {
    match q.now {
        "0" => change("1", "a full queue of half-open connections drops every SYN"),
        "2" => change(
            "1",
            "every connection is made from a cookie, which costs it options: 2 is for tests",
        ),
        _ => fine("cookies only where the queue is full"),
    }
}

/// `tcp_mtu_probing`.
pub(super) fn probing(q: &Question<'_>) -> Advice {
    let is_long = q.need.profile == Some(Profile::Wan);
    match q.now {
        "0" if is_long => change(
            "1",
            "a path that swallows \"packet too big\" stalls connections for good; 1 probes only then",
        ),
        _ => fine("path MTU discovery is by ICMP, or helps itself"),
    }
}

/// `tcp_no_metrics_save`.
pub(super) fn metrics(q: &Question<'_>) -> Advice {
    let keeps_threshold = q.view.text("net.ipv4.tcp_no_ssthresh_metrics_save") == Some("0");
    match (q.now, &q.need.path) {
        ("0", Some(_)) if keeps_threshold => change(
            "1",
            "a connection leaves slow start where the last one to the same host met loss",
        ),
        _ => fine("no slow-start threshold is carried from one connection to the next"),
    }
}

/// `tcp_slow_start_after_idle`.
pub(super) fn after_idle(q: &Question<'_>) -> Advice {
    let is_long = q.need.profile == Some(Profile::Wan);
    match q.now {
        "1" if is_long => change(
            "0",
            "after a pause of one timeout a connection begins again with ten segments",
        ),
        _ => fine("pauses cost what RFC 2861 says, or nothing"),
    }
}

/// `tcp_tw_reuse`: safe by time stamps (RFC 6191).
pub(super) fn reuse(q: &Question<'_>) -> Advice {
    let Some(count) = q.need.connections else {
        return open(CONNECTIONS);
    };
    let has_stamps = q.view.text("net.ipv4.tcp_timestamps") != Some("0");
    match q.now {
        "1" => fine("ports in TIME_WAIT are used again after a second"),
        _ if !has_stamps => fine("it needs time stamps, which are off"),
        _ => change(
            "1",
            "a client that connects often runs out of ports that wait for a minute",
        )
        .with(vec![("connections", count as f64)]),
    }
}

/// `tcp_congestion_control`.
pub(super) fn congestion(q: &Question<'_>) -> Advice {
    let has = |name: &str| q.view.congestion_controls.iter().any(|own| own == name);
    match (q.now, q.need.profile) {
        ("bbr", _) => fine("it takes little from random loss"),
        (_, Some(Profile::Wan)) if has("bbr") => change(
            "bbr",
            "over long paths a loss of one packet in 10,000 takes most of the rate of the others",
        ),
        ("reno", _) if has("cubic") => change(
            "cubic",
            "Reno takes minutes to fill a long and fast path again after a loss",
        ),
        (_, Some(Profile::Wan)) => {
            fine("bbr would take less from loss: this kernel has not loaded it (modprobe tcp_bbr)")
        }
        _ => fine("it is made for fast paths"),
    }
}

/// `default_qdisc`.
pub(super) fn discipline(q: &Question<'_>) -> Advice {
    let known = &q.view.queueing_disciplines;
    let better = ["fq", "fq_codel"]
        .into_iter()
        .find(|name| known.iter().any(|own| own == name));
    let is_plain = ["pfifo_fast", "pfifo", "bfifo"].contains(&q.now);
    match (better, &q.need.path) {
        (Some(name), Some(_)) if is_plain => change(
            name,
            "one full queue for all flows delays each by what the others send; new devices get the other",
        ),
        (None, Some(_)) if is_plain => {
            fine("fq or fq_codel would keep flows apart; this kernel is not known to have them")
        }
        _ if is_plain => open(PATH),
        _ => fine("flows have queues of their own"),
    }
}

/// `busy_poll`, `busy_read`.
pub(super) fn polling(q: &Question<'_>) -> Advice {
    let can = q.view.devices.iter().any(|device| device.is_physical);
    match (q.now, q.need.profile) {
        ("0", Some(Profile::Lan)) if can => change(
            "50",
            "an interrupt and a wake-up are added to each round trip",
        ),
        ("0", _) => fine("no CPU is spent on waiting"),
        _ => fine("calls spin for packets"),
    }
}

/// `cpu.governor`.
pub(super) fn governor(q: &Question<'_>) -> Advice {
    let is_fast = q
        .need
        .path
        .as_ref()
        .is_some_and(|path| path.rate_bps >= 10e9);
    match (q.now, q.need.profile) {
        ("performance", _) => fine("the CPUs run at their full frequency"),
        (_, Some(Profile::Lan)) => {
            change("performance", "CPUs that slow down when idle answer late")
        }
        _ if is_fast => change(
            "performance",
            "one core carries one connection, and is not always at its full frequency",
        ),
        _ => fine("the rate needs no more"),
    }
}

/// Rings: packets of a millisecond, for a softirq that comes late.
pub(super) fn rx_ring(q: &Question<'_>) -> Advice {
    ring(
        q,
        q.device.and_then(|device| device.rx_ring_max),
        "packets are dropped where the CPU is late by a millisecond",
    )
}

/// As [`rx_ring`].
pub(super) fn tx_ring(q: &Question<'_>) -> Advice {
    ring(
        q,
        q.device.and_then(|device| device.tx_ring_max),
        "the device runs dry where the CPU is late by a millisecond",
    )
}

fn ring(q: &Question<'_>, most: Option<u32>, low: &str) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    let most = most.map_or(f64::INFINITY, f64::from);
    let needed = packets(path, 1_000.0).max(256.0).min(most);
    let right = power_of_two(needed).min(most.min(1e9) as u64);
    at_least(q, needed, right, low).with(vec![("rate_bps", path.rate_bps), ("needed", needed)])
}

/// `txqueuelen`: 0 is a device without a queue, which needs none.
pub(super) fn queue_length(q: &Question<'_>) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    if q.now == "0" {
        return fine("the device has no queue");
    }
    let needed = packets(path, 1_000.0).max(1_000.0);
    at_least(
        q,
        needed,
        power_of_two(needed),
        "a burst of an application is dropped in this host",
    )
    .with(vec![("rate_bps", path.rate_bps), ("needed", needed)])
}

/// `rx_usecs`: interrupts held back for longer than a quarter of the round trip show in it.
pub(super) fn coalescing(q: &Question<'_>) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    if q.device.is_some_and(|device| device.adapts) {
        return fine("the driver adapts it to the load");
    }
    let most = (path.rtt_us / 4.0).max(1.0).floor();
    at_most(
        q,
        most as u64,
        "held-back interrupts are a large part of each round trip",
    )
    .with(vec![("rtt_us", path.rtt_us)])
}

/// Offloads.
pub(super) fn offload(q: &Question<'_>) -> Advice {
    match q.now {
        "off" => change(
            "on",
            "the CPU does for each packet what the device or one pass over a large frame would",
        ),
        "on" => fine("it is on"),
        _ => fine("the device fixes it"),
    }
}

/// `adaptive_rx`.
pub(super) fn adaptive(q: &Question<'_>) -> Advice {
    match q.need.profile {
        Some(Profile::Lan) if q.now == "on" => {
            fine("it follows the load; `off` with few rx_usecs gives the least delay")
        }
        _ => fine("rx_usecs says how long interrupts are held back, or the driver does"),
    }
}

/// `rps_cpus`: one queue, many CPUs, a fast device.
pub(super) fn receive_steering(q: &Question<'_>) -> Advice {
    let (Some(path), Some(device)) = (&q.need.path, q.device) else {
        return open(PATH);
    };
    let inputs = vec![
        ("cpus", q.view.cpus.into()),
        ("rx_queues", device.rx_queues.into()),
    ];
    if !device.is_physical || device.rx_queues >= q.view.cpus {
        return fine("the queues are enough for the CPUs").with(inputs);
    }
    match (q.now, path.rate_bps >= 5e9) {
        ("none", true) => {
            let why =
                "all packets of a queue are worked on by the one CPU that takes its interrupt";
            change(cpu_list(q.view.cpus), why).with(inputs)
        }
        ("none", false) => fine("one CPU for each queue carries the rate").with(inputs),
        _ => fine("packets are spread").with(inputs),
    }
}

/// `xps_cpus`.
pub(super) fn send_steering(q: &Question<'_>) -> Advice {
    let Some(device) = q.device else {
        return not_judged(q);
    };
    match (q.now, device.tx_queues) {
        (_, 0 | 1) => fine("there is one queue"),
        ("none", _) => fine(
            "queues are taken by the hash of flows; drivers that gain by XPS set it themselves",
        ),
        _ => fine("CPUs have queues of their own"),
    }
}

/// Interrupts of a device's queues.
pub(super) fn interrupts(q: &Question<'_>) -> Advice {
    let Some(device) = q.device else {
        return not_judged(q);
    };
    let inputs = vec![
        ("cpus", q.view.cpus.into()),
        ("rx_queues", device.rx_queues.into()),
    ];
    let is_one = !q.now.contains([',', '-']);
    match device.rx_queues > 1 && q.view.cpus > 1 && is_one {
        true => {
            let why = "the interrupts of all queues go to one CPU";
            change(cpu_list(q.view.cpus), why).with(inputs)
        }
        false => fine("as many CPUs as the queues can use may take them").with(inputs),
    }
}

impl Advice {
    fn with(mut self, inputs: Vec<(&'static str, f64)>) -> Self {
        self.inputs = inputs;
        self
    }
}

fn answer(state: SettingState, why: impl Into<String>) -> Advice {
    Advice {
        state,
        right: None,
        why: why.into(),
        inputs: Vec::new(),
    }
}

fn fine(why: impl Into<String>) -> Advice {
    answer(SettingState::Fine, why)
}

fn change(right: impl Into<String>, why: impl Into<String>) -> Advice {
    Advice {
        right: Some(right.into()),
        ..answer(SettingState::Change, why)
    }
}

fn open(what: &str) -> Advice {
    answer(SettingState::Open, format!("it depends on {what}"))
}

fn unreadable() -> Advice {
    answer(
        SettingState::Unknown,
        "the kernel writes it in a form that is not known",
    )
}

fn at_least(q: &Question<'_>, needed: f64, right: u64, low: impl Into<String>) -> Advice {
    match q.now.parse::<u64>() {
        Ok(now) if now as f64 >= needed => fine("it is enough"),
        Ok(_) => change(right.to_string(), low),
        Err(_) => unreadable(),
    }
}

fn at_most(q: &Question<'_>, most: u64, high: &str) -> Advice {
    match q.now.parse::<u64>() {
        Ok(now) if now <= most => fine("it is short enough"),
        Ok(_) => change(most.to_string(), high),
        Err(_) => unreadable(),
    }
}

fn numbers(text: &str) -> Vec<u64> {
    let numbers: Result<_, _> = text.split_whitespace().map(str::parse).collect();
    numbers.unwrap_or_default()
}

fn words(path: &NeededPath) -> String {
    format!(
        "{} over {:.3} ms",
        crate::units::BitRate(path.rate_bps as u64),
        path.rtt_us / 1e3
    )
}

/// Packets of 1500 bytes with their Ethernet headers that arrive in so many microseconds.
fn packets(path: &NeededPath, us: f64) -> f64 {
    (path.rate_bps * us / 1e6 / (8.0 * 1_514.0)).ceil()
}

/// A power of two, which buffers of large transfers are given by custom.
fn buffer_for(bytes: f64) -> u64 {
    power_of_two(bytes).clamp(65_536, LARGEST_BUFFER)
}

fn power_of_two(number: f64) -> u64 {
    // The cast saturates; nothing here needs more than 2³⁰.
    (number.ceil() as u64)
        .clamp(1, LARGEST_BUFFER)
        .next_power_of_two()
}

fn cpu_list(cpus: u32) -> String {
    match cpus {
        0 | 1 => "0".to_owned(),
        cpus => format!("0-{}", cpus - 1),
    }
}

const PATH: &str = "the path: --rate and --rtt, or --for HOST";
const CONNECTIONS: &str = "how many connections there are to be: --connections";
/// Largest power of two that the kernel takes for a buffer, bytes.
const LARGEST_BUFFER: u64 = 1 << 30;
/// The kernel's own `somaxconn` (since Linux 5.4).
const LEAST_QUEUE: u64 = 4_096;
/// Descriptors of a process for other things than connections.
const SPARE_FILES: u64 = 1_024;
