//! What links make of one fixed pattern of arrivals, as tables.

use crate::link_support::{drive, packet};
use linerate_link::{Fate, Link, PathSpec};
use linerate_units::Nanos;

/// One second at 100 Mbit/s, in bursts of 20 packets of 1500 bytes on the wire.
fn row(spec: &str) -> String {
    let path: PathSpec = spec.parse().expect("a valid path");
    let mut link = Link::new(&path.up, 7);
    let sent_at = |id: u64| Nanos::from_micros(2400 * (id / 20));
    let arrivals = (0..8340).map(|id| (sent_at(id), packet(id, 1486)));
    let deliveries = drive(&mut link, arrivals);
    let arrived =
        || deliveries.iter().filter(|delivery| matches!(delivery.fate, Fate::Arrived { .. }));
    let end = arrived().map(|delivery| delivery.at).max().expect("some arrive");
    let slowest =
        arrived().map(|delivery| delivery.at - sent_at(delivery.id)).max().expect("some arrive");
    let counters = link.counters();
    let dropped = counters.dropped;
    format!(
        "{spec:42} {:7.2} {:9} {:6} {:6} {:6} {:7} {:9} {:8.3}\n",
        counters.delivered as f64 * 12e3 / (end.0 as f64 / 1e3),
        counters.delivered,
        dropped.loss,
        dropped.queue,
        dropped.aqm,
        dropped.policer,
        counters.reordered,
        slowest.0 as f64 / 1e6,
    )
}

fn table(specs: impl IntoIterator<Item = String>) -> String {
    let heading = format!(
        "{:42} {:>7} {:>9} {:>6} {:>6} {:>6} {:>7} {:>9} {:>8}\n",
        "path", "Mbit/s", "delivered", "loss", "queue", "aqm", "policer", "reordered", "max ms"
    );
    specs.into_iter().fold(heading, |table, spec| table + &row(&spec))
}

#[test]
fn throughput_by_rate_queue_and_loss() {
    let mut specs = Vec::new();
    for rate in ["10mbit", "90mbit", "100mbit", "1gbit"] {
        for queue in ["10p", "100p", "64KiB"] {
            for loss in ["0%", "1%", "ge(1%,25%)"] {
                specs.push(format!("rate={rate},queue={queue},loss={loss}"));
            }
        }
    }
    insta::assert_snapshot!(table(specs));
}

#[test]
fn throughput_by_feature() {
    let specs = [
        "rtt=20ms",
        "rtt=20ms,jitter=2ms",
        "rtt=20ms,jitter=normal(2ms)",
        "rtt=20ms,reorder=1%",
        "rtt=20ms,reorder=1%:100us",
        "rate=50mbit,rtt=20ms",
        "rate=50mbit,rtt=20ms,burst=64KiB",
        "rate=50mbit,rtt=20ms,aqm=codel",
        "rate=50mbit,rtt=20ms,framing=aal5",
        "rate=50mbit,rtt=20ms,overhead=24",
        "policer=50mbit,rtt=20ms",
        "policer=50mbit,burst=16KiB,rtt=20ms",
        "loss=every(10),duplicate=5%,rtt=20ms",
    ];
    insta::assert_snapshot!(table(specs.map(str::to_owned)));
}
