//! linerate's side: an endpoint in this process, a client of it, and what the document says.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use linerate_core::capacity::{CapacityDocument, CapacityTest, MAX_HELD, PoolResult};
use linerate_core::session::message::Limits;
use linerate_core::units::Span;
use linerate_engine::{CapacityOptions, Client, Endpoint, ServeOptions, Stop, Target};

use crate::{Case, Goal};

/// Opens, holds for a second and closes what the case has.
pub(crate) fn run(case: &Case) -> anyhow::Result<CapacityDocument> {
    let endpoint = Endpoint::bind(&serve_options())?;
    let address = endpoint.addresses()[0];
    let stop = Stop::new();
    let asked = stop.clone();
    let thread = thread::spawn(move || endpoint.serve(&asked, |_| {}));
    let outcome = hold(case, address);
    stop.request();
    match thread.join() {
        Ok(served) => served?,
        Err(_) => anyhow::bail!("the endpoint panicked"),
    }
    outcome
}

fn hold(case: &Case, address: SocketAddr) -> anyhow::Result<CapacityDocument> {
    let target = Target::at("loopback", address);
    let test = CapacityTest {
        connections: case.connections,
        udp_sockets: case.udp_sockets,
        rate_per_s: None,
        hold: Span(Duration::from_secs(1)),
        // The last heartbeat of all is beyond the hold.
        heartbeat: Span(Duration::from_secs(60)),
        churn_per_s: 0,
        load: None,
        latency: matches!(case.goal, Goal::Latency { .. }),
        find_limit: false,
        sources: Vec::new(),
        seed: 1,
    };
    let mut client = Client::connect(target, Stop::new())?;
    let outcome = client.capacity(&test, &CapacityOptions::default(), &mut |_| true)?;
    match outcome.error {
        Some(error) => Err(error.into()),
        None => Ok(outcome.document),
    }
}

fn serve_options() -> ServeOptions {
    ServeOptions {
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        ..ServeOptions::within(Limits {
            clients: 1,
            streams: 1,
            seconds: 3600.0,
            rate_bps: None,
            connections: MAX_HELD,
        })
    }
}

/// What it came to.
pub(crate) fn show(document: &CapacityDocument) {
    for (name, pool) in [("TCP", &document.tcp), ("UDP", &document.udp)] {
        if let Some(pool) = pool {
            show_pool(name, pool);
        }
    }
    for at in &document.latency {
        let us = at.latency_us;
        println!(
            "  beside {:>9} idle: p50 {:.1} us, p90 {:.1} us, p99 {:.1} us ({} exchanges)",
            at.population, us.p50, us.p90, us.p99, us.count
        );
    }
    let workers = |half: &linerate_core::capacity::CapacityHalf| {
        let cpu = half.cpu_seconds;
        format!(
            "{} workers, CPU {:.2} s user {:.2} s system, {} kB",
            half.workers,
            cpu.user,
            cpu.system,
            half.user_bytes.unwrap_or(0) / 1024
        )
    };
    println!("  client: {}", workers(&document.client));
    if let Some(server) = &document.server {
        println!("  endpoint: {}", workers(server));
    }
    let after = &document.client.memory.after;
    println!(
        "  in all {:.2} s, closing {:.2} s; after it {:?} TCP sockets, {:?} in TIME_WAIT, {:?} \
         orphans",
        document.seconds,
        document.close_seconds.unwrap_or(0.0),
        after.tcp_in_use,
        after.tcp_time_wait,
        after.tcp_orphans
    );
}

fn show_pool(name: &str, pool: &PoolResult) {
    let each = |bytes: Option<f64>| bytes.map_or("?".to_owned(), |bytes| format!("{bytes:.0}"));
    println!(
        "  {name}: {} of {} opened in {:.3} s, {:.0}/s; {} alive, {} lost; SYN again {}; bytes \
         each: kernel {}, \
         client {}, endpoint {}",
        pool.opened,
        pool.asked,
        pool.connect_seconds.unwrap_or(0.0),
        pool.connect_per_s.unwrap_or(0.0),
        pool.alive,
        pool.lost,
        pool.syn_retransmissions,
        each(pool.kernel_bytes_each),
        each(pool.user_bytes_each),
        each(pool.server_user_bytes_each)
    );
    for failure in pool.failures.iter().chain(&pool.losses) {
        println!("    {} times: {}", failure.count, failure.cause.words());
    }
}
