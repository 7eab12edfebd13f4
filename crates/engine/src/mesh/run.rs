//! Running a task: one test between this host and the endpoint of another site.

use std::net::{SocketAddr, ToSocketAddrs};

use linerate_core::record::Status;
use linerate_core::units::{DEFAULT_PORT, EndpointName};
use linerate_core::wire::Key;
use linerate_mesh::message::{Outcome, Task};

use crate::client::Client;
use crate::stop::Stop;
use crate::target::Target;

/// Runs the test of a task, and answers its outcome with the payload that it has carried, in bytes,
/// with that of the warm-up, where that is known. A run that ended early is a failure.
pub(super) fn run(
    task: &Task,
    addresses: Vec<SocketAddr>,
    key: Option<Key>,
    stop: Stop,
) -> (Outcome, Option<u64>) {
    match record(task, addresses, key, stop) {
        Ok((document, bytes)) => (Outcome::Finished { document }, Some(bytes)),
        Err(why) => (Outcome::Failed { why }, None),
    }
}

fn record(
    task: &Task,
    addresses: Vec<SocketAddr>,
    key: Option<Key>,
    stop: Stop,
) -> Result<(String, u64), String> {
    let first = *addresses.first().ok_or("the host has no address")?;
    let target = Target { addresses, key, ..Target::at(&task.address, first) };
    let mut client = Client::connect(target, stop).map_err(|error| error.to_string())?;
    let (record, error) =
        client.run_once(&task.work, &mut ()).map_err(|error| error.to_string())?;
    if let Some(error) = error {
        return Err(error.to_string());
    }
    if record.status != Status::Complete {
        return Err("it ended before its time".to_owned());
    }
    let document = serde_json::to_string(&record).map_err(|error| error.to_string())?;
    // In the warm-up it carried as much in the same time.
    let whole = 1.0 + task.work.warm_up.as_secs_f64() / record.seconds.max(1e-9);
    Ok((document, (record.bytes() as f64 * whole) as u64))
}

/// The addresses of the endpoint that the test is run against.
pub(super) fn addresses(task: &Task) -> Result<Vec<SocketAddr>, String> {
    let name: EndpointName = task.address.parse().map_err(|_| "its address is none")?;
    let found = (name.host.as_str(), name.port.unwrap_or(DEFAULT_PORT))
        .to_socket_addrs()
        .map_err(|error| format!("{}: {error}", name.host))?;
    Ok(found.collect())
}
