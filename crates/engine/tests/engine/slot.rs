//! The slot that an endpoint leases.

use std::time::{Duration, Instant};

use linerate_core::record::Status;
use linerate_core::session::message::Limits;
use linerate_engine::{MeasureError, Slot, Stop, Target};

use super::support::{LIMITS, Served, stream};

const LONG: Duration = Duration::from_secs(600);

fn take(served: &Served, lasts: Duration, patience: Duration) -> Result<Slot, MeasureError> {
    let target = Target::at("endpoint", served.address);
    Slot::take(target, lasts, patience, &Stop::new(), &mut |_| ())
}

#[test]
fn one_client_has_the_slot_and_takes_no_clients_place() {
    let limits = Limits { clients: 1, ..LIMITS };
    let served = Served::with([127, 0, 0, 1].into(), limits, None);
    let slot = take(&served, LONG, Duration::ZERO).unwrap();
    let busy = take(&served, LONG, Duration::ZERO).unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    let words = busy.to_string();
    assert!(words.contains("busy until ") && words.contains("its slot"), "{words}");
    // The endpoint sees the end of a session a moment later.
    let until = Instant::now() + linerate_testkit::PATIENCE;
    let soon = |what: &str| assert!(Instant::now() < until, "{what}");
    let mut client = served.client_with(None);
    while client.is_err() {
        soon("who was refused the slot holds the client's place");
        client = served.client_with(None);
    }
    // A client that does not know the slot measures as usual.
    let outcome = client.unwrap().run(&stream(), &mut |_| true).unwrap();
    assert_eq!(outcome.record.status, Status::Complete);
    drop(slot);
    while take(&served, LONG, Duration::ZERO).is_err() {
        soon("the slot is not given back");
    }
}

#[test]
fn a_waiting_client_gets_the_slot_when_the_lease_ends() {
    let served = Served::start();
    let (began, lease) = (Instant::now(), Duration::from_secs(1));
    let _slot = take(&served, lease, Duration::ZERO).unwrap();
    let target = Target::at("endpoint", served.address);
    let patience = linerate_testkit::PATIENCE;
    Slot::take(target, LONG, patience, &Stop::new(), &mut |_| ()).unwrap();
    assert!(began.elapsed() >= lease, "it was another one's");
}
