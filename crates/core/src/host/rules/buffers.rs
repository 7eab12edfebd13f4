//! Rules for socket memory: buffers that fill the path, and the limit for all sockets together.

use super::super::advice::{Advice, Question};
use super::{PATH, at_least, change, fine, numbers, open, unreadable};
use crate::remedy::{MAX_BUFFER, buffer_for, power_of_two};

/// `tcp_rmem`: the kernel offers about half of the buffer as the window.
pub(in super::super) fn receive_buffer(q: &Question<'_>) -> Advice {
    last_of_three(q, "the receive window cannot grow to what fills the path")
}

/// `tcp_wmem`: buffers grow to twice the congestion window (`tcp_sndbuf_expand`,
/// net/ipv4/tcp_input.c).
pub(in super::super) fn send_buffer(q: &Question<'_>) -> Advice {
    last_of_three(q, "the send buffer cannot grow to what fills the path")
}

fn last_of_three(q: &Question<'_>, low: &str) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    let needed = buffer_for(path.product_bytes(), None);
    let inputs = vec![
        ("rate_bps", path.rate_bps),
        ("rtt_us", path.rtt_us),
        ("needed_bytes", 2.0 * path.product_bytes()),
    ];
    let numbers = numbers(q.now);
    let [min, first, max] = numbers[..] else {
        return unreadable();
    };
    if max as f64 >= (2.0 * path.product_bytes()).min(MAX_BUFFER as f64) {
        return fine(format!("{max} bytes are enough for {path}")).with(inputs);
    }
    let right = format!("{min} {first} {needed}");
    change(right, format!("{low}, {path}")).with(inputs)
}

/// `rmem_max`, `wmem_max`: the kernel doubles what an application asks for (`sock_setsockopt`,
/// net/core/sock.c), so that once the product is enough.
pub(in super::super) fn asked_buffer(q: &Question<'_>) -> Advice {
    let Some(path) = &q.need.path else {
        return open(PATH);
    };
    let needed = path.product_bytes();
    let inputs =
        vec![("rate_bps", path.rate_bps), ("rtt_us", path.rtt_us), ("needed_bytes", needed)];
    let low = format!("an application that sets its buffer itself cannot fill {path}");
    at_least(q, needed, power_of_two(needed), low).with(inputs)
}

/// `tcp_mem`, in pages: the connections' buffers together, at most half of the memory.
pub(in super::super) fn pages(q: &Question<'_>) -> Advice {
    let page = q.view.page_bytes.max(1) as f64;
    let path = q.need.path.as_ref().map_or(0.0, |path| 4.0 * path.product_bytes() / page);
    // TCP keeps a page each way for a connection that moves data (ip-sysctl.rst, tcp_rmem's and
    // tcp_wmem's least).
    let connections = q.need.connections.map_or(0.0, |count| 2.0 * count as f64);
    let needed = path + connections;
    if needed == 0.0 {
        return open("--rate and --rtt, or --connections");
    }
    let numbers = numbers(q.now);
    let [first, pressure, last] = numbers[..] else {
        return unreadable();
    };
    let inputs = vec![("needed_pages", needed), ("page_bytes", page)];
    if pressure as f64 >= needed {
        return fine("all buffers together stay below the pressure mark").with(inputs);
    }
    let half = (q.view.memory_bytes as f64 / page / 2.0).floor();
    let most = if half > 0.0 { (needed * 1.5).min(half) } else { needed * 1.5 };
    if most / 1.5 <= pressure as f64 {
        let why = "half of the memory is in it already: more buffers than that take the memory of \
            everything else";
        return fine(why).with(inputs);
    }
    let most = most.max(last as f64);
    // Rounded down it would be advised again.
    let right = [(most / 2.0).max(first as f64), most / 1.5, most]
        .map(|pages| format!("{:.0}", pages.ceil()))
        .join(" ");
    change(right, "under memory pressure TCP shrinks the windows of all connections").with(inputs)
}
