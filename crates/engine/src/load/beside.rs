//! The load beside each run of a comparison: a second session with the same endpoint.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use linerate_core::plan::{Extent, Test};
use linerate_core::record::Record;
use linerate_core::units::Span;

use crate::client::{Client, Live, Outcome};
use crate::error::MeasureError;
use crate::join::joined;
use crate::stop::Stop;

/// A session that sends while another one measures.
#[derive(Debug)]
pub(crate) struct LoadBeside {
    client: Client,
    test: Test,
}

/// Of the time that the load may have, what is left for the setting up of the run beside it.
const SPARE: Duration = Duration::from_secs(60);
/// Beside a run whose length nobody knows.
const LONGEST: Duration = Duration::from_secs(3600);

impl LoadBeside {
    /// A further session with the endpoint of `client`, for a load beside runs of `beside`.
    ///
    /// # Errors
    /// As [`Client::connect`]; an endpoint may allow no more clients.
    pub(crate) fn connect(
        client: &Client,
        load: &Test,
        beside: &Test,
    ) -> Result<Self, MeasureError> {
        let client = client.another()?;
        let run = beside.seconds().map(Duration::from_secs_f64);
        let longest = client.welcome().limits.seconds - load.warm_up.as_secs_f64();
        let time = run.map_or(LONGEST, |run| run + SPARE);
        let test = Test {
            extent: Extent::Time(Span(time.min(Duration::from_secs_f64(longest.max(0.01))))),
            ..load.clone()
        };
        Ok(Self { client, test })
    }

    /// Does something while the load is past its warm-up, and ends the load with it. Beside what
    /// came of it stands the load's headline.
    ///
    /// # Errors
    /// That of `act`; the load could not be begun, or ended before `act` did.
    pub(crate) fn beside<T>(
        &mut self,
        act: impl FnOnce() -> Result<T, MeasureError>,
    ) -> Result<(T, Option<(String, f64)>), MeasureError> {
        let (client, test) = (&mut self.client, &self.test);
        let over = &Stop::new();
        let (warm, is_warm) = mpsc::channel();
        let (done, outcome) = thread::scope(|scope| {
            let load = scope.spawn(move || {
                let warm_up = test.warm_up.as_secs_f64();
                client.run(test, &mut |live: &Live| {
                    if live.at_s >= warm_up {
                        // Nobody waits any more once the run is there.
                        let _ = warm.send(());
                    }
                    !over.is_requested()
                })
            });
            // A load that could not be begun hangs up.
            let done = is_warm.recv().ok().map(|()| act());
            over.request();
            (done, joined(load.join()))
        });
        let Outcome { record, error, .. } = outcome?;
        match (done, error) {
            (Some(Err(error)), _) => Err(error),
            // Told to stop, as it was to be.
            (Some(Ok(done)), Some(MeasureError::Interrupted)) => Ok((done, headline(&record))),
            (_, Some(error)) => Err(error),
            (_, None) => Err(MeasureError::LoadEnded),
        }
    }
}

fn headline(record: &Record) -> Option<(String, f64)> {
    let (name, value) = record.headline()?;
    Some((format!("with.{name}"), value))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use linerate_core::plan::{Draft, Workload};

    use super::*;
    use crate::own_endpoint::OwnEndpoint;

    fn test(workload: Workload, options: &[(&str, &str)]) -> Test {
        let mut draft = Draft::new(workload);
        for (key, text) in options {
            draft.set(key, text).unwrap();
        }
        draft.resolve(1).unwrap()
    }

    #[test]
    fn a_load_begins_before_the_run_and_ends_with_it_again_and_again() {
        let endpoint = OwnEndpoint::start(Ipv4Addr::LOCALHOST.into(), None).unwrap();
        let mut client = Client::connect(endpoint.target("here"), Stop::new()).unwrap();
        let run = test(Workload::Rr, &[("count", "50")]);
        let load = test(Workload::Stream, &[("warm-up", "20ms")]);
        let mut load = LoadBeside::connect(&client, &load, &run).unwrap();
        for _ in 0..2 {
            let measure = || Ok(client.run(&run, &mut |_| true)?.record);
            let (record, figure) = load.beside(measure).unwrap();
            assert_eq!(record.transactions, Some(50));
            let (path, _) = figure.unwrap();
            assert_eq!(path, "with.throughput_bps");
        }
        let failed = load.beside(|| Err::<(), _>(MeasureError::LoadEnded));
        assert!(matches!(failed, Err(MeasureError::LoadEnded)));
        assert!(load.beside(|| Ok(())).is_ok());
    }
}
