//! `capacity`: many connections, held; and the search for the number at which they stop.

mod live;
pub(crate) mod test;

use anyhow::anyhow;
use linerate_core::capacity::{CapacityDocument, PoolResult};
use linerate_engine::{CapacityOptions, CapacityOutcome, Client, run_capacity_worker};

use crate::args::CapacityArgs;
use crate::failure::Failure;
use crate::output::{self, Output, conclude};
use crate::progress::Progress;
use crate::run::signals;
use crate::site::place;
use live::Live;

/// Opens, holds, loads and closes what was asked for, and prints what came of it.
///
/// # Errors
/// An option is wrong, the endpoint refuses, this host lacks something, or not all of them stayed
/// open.
pub(crate) fn execute(args: CapacityArgs) -> Result<(), Failure> {
    let format = output::json_or_text(args.document.json);
    let test = test::test(&args).map_err(Failure::usage)?;
    let output = Output::open(&args.document, format)?;
    let mut progress = Progress::new(format, args.document.quiet);
    let (site, target) = place(args.host, &args.path, test.seed, &mut progress)?;
    let mut client = Client::connect(target, signals()?)?;
    let mut live = Live::new(progress, &test);
    let options =
        CapacityOptions { workers: args.population.workers, ..CapacityOptions::default() };
    let outcome = client.capacity(&test, &options, &mut |now| live.show(now));
    drop(live);
    let CapacityOutcome { mut document, error } = outcome?;
    site.iter().for_each(|site| site.describe(&mut document));
    conclude(&document, error.map(Failure::from), output, None)?;
    if test.find_limit {
        return Ok(());
    }
    hold_to(&document)
}

/// Holds connections for the process that has started this one.
///
/// # Errors
/// It was started by somebody else.
pub(crate) fn work() -> Result<(), Failure> {
    run_capacity_worker().map_err(Failure::failed)
}

/// Fails unless everything that was asked for is there.
fn hold_to(document: &CapacityDocument) -> Result<(), Failure> {
    let pools = [("TCP connections", &document.tcp), ("UDP sockets", &document.udp)];
    let short: Vec<String> =
        pools.into_iter().filter_map(|(name, pool)| shortfall(name, pool.as_ref()?)).collect();
    if short.is_empty() { Ok(()) } else { Err(Failure::failed(anyhow!(short.join("; ")))) }
}

fn shortfall(name: &str, pool: &PoolResult) -> Option<String> {
    let PoolResult { asked, opened, alive, lost, .. } = pool;
    let losses = match lost {
        0 => String::new(),
        lost => format!(", {lost} of {opened} opened were lost"),
    };
    (alive < asked || *lost > 0).then(|| format!("{alive} of {asked} {name} are alive{losses}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_lost_connections_fail_with_their_number() {
        let pool = |asked, alive, lost| PoolResult {
            asked,
            opened: alive + lost,
            alive,
            lost,
            ..PoolResult::default()
        };
        assert_eq!(shortfall("TCP connections", &pool(5, 5, 0)), None);
        assert_eq!(
            shortfall("TCP connections", &pool(5, 3, 0)).as_deref(),
            Some("3 of 5 TCP connections are alive")
        );
        assert_eq!(
            shortfall("UDP sockets", &pool(5, 3, 1)).as_deref(),
            Some("3 of 5 UDP sockets are alive, 1 of 4 opened were lost")
        );
    }
}
