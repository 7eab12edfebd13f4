//! The search for the highest rate of datagrams that a path carries: its trials, one after another
//! on one session. [`linerate_core::throughput`] decides which.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use linerate_core::ceilings;
use linerate_core::plan::Test;
use linerate_core::record::{Caveat, CaveatKind, Environment, Record, Status};
use linerate_core::throughput::{
    Burst, BurstSearch, ETHERNET_FRAMING, NextTrial, RateSearch, Sought, THROUGHPUT_SCHEMA,
    ThroughputDocument, ThroughputRow, ThroughputTest, ThroughputTrial, Tried,
};
use linerate_core::units::{Family, format_rfc3339};

use crate::campaign::Observer;
use crate::error::MeasureError;
use crate::partner::Partner;
use crate::path;
use crate::stop::Stop;
use crate::target::Target;

/// The first rate of a search, frames in bits per second: hardly any path carries less.
const FIRST_BPS: f64 = 1e6;
/// The first rate of the next size over what the size before it was found to be carried at: a limit
/// in bits or in frames per second allows no more than that, whichever it is.
const NEXT: f64 = 0.5;
/// What a trial takes beside its own time, about: its flow, and datagrams that are still under way.
const BESIDE: Duration = Duration::from_millis(700);
/// Trials of a search, about.
const USUAL_TRIALS: f64 = 14.0;

/// The largest frame that the interface towards the endpoint sends, check sequence included, bytes;
/// `None` if its MTU cannot be read.
pub fn largest_frame(target: &Target) -> Option<u64> {
    path::facts(target).device_mtu_bytes.map(|mtu| u64::from(mtu) + ETHERNET_FRAMING)
}

/// Searches each size in each direction. The error beside the document is what ended it early.
///
/// # Errors
/// The endpoint cannot be connected to, or the first trial could not begin.
pub fn throughput(
    target: &Target,
    test: &ThroughputTest,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(ThroughputDocument, Option<MeasureError>), MeasureError> {
    let partner = Partner::connect(target.clone(), None, stop.clone())?;
    let began = Instant::now();
    let peer = peer(&partner);
    let mut trials = Trials {
        partner,
        test,
        family: Family::from(peer.ip()),
        sent_bytes: 0.0,
        environment: None,
        caveats: Vec::new(),
    };
    let started_at = format_rfc3339(SystemTime::now());
    let mut rows: Vec<ThroughputRow> = Vec::new();
    let mut ended = None;
    let ways = test.direction.parts();
    let all = ways.iter().flat_map(|way| test.frame_bytes.iter().map(move |frame| (*way, *frame)));
    for (number, (direction, frame_bytes)) in all.enumerate() {
        let left = (ways.len() * test.frame_bytes.len() - number) as f64 * USUAL_TRIALS;
        observer.takes([(test.goal.trial.0 + BESIDE).mul_f64(left); 2]);
        let sought = Sought { direction, frame_bytes, family: trials.family };
        let before = rows.last().filter(|row| row.direction == direction);
        let (row, end) = trials.search(sought, before, observer);
        ended = match end {
            Some(SearchEnd::Error(error)) if rows.is_empty() && row.trials.is_empty() => {
                return Err(error);
            }
            end => end,
        };
        rows.push(row);
        if ended.is_some() {
            break;
        }
    }
    let environment = trials.environment.unwrap_or_default();
    let mut document = ThroughputDocument {
        schema: THROUGHPUT_SCHEMA.to_owned(),
        started_at,
        host: target.name.clone(),
        peer: peer.to_string(),
        family: trials.family,
        status: if ended.is_none() { Status::Complete } else { Status::Partial },
        test: test.clone(),
        link_bps: ceilings::link_bps(&environment),
        rows,
        seconds: began.elapsed().as_secs_f64(),
        environment,
        caveats: trials.caveats,
    };
    document.note_short_trials();
    let why = ended.as_ref().map(|ended| match ended {
        SearchEnd::Error(error) => error.to_string(),
        SearchEnd::Budget => "the bytes of --max-bytes are spent".to_owned(),
    });
    document.caveats.extend(why.map(|why| Caveat::new(CaveatKind::Partial, why, "")));
    let error = ended.and_then(|ended| match ended {
        SearchEnd::Error(error) => Some(error),
        SearchEnd::Budget => None,
    });
    Ok((document, error))
}

fn peer(partner: &Partner) -> SocketAddr {
    match partner {
        Partner::Own(client) => client.peer(),
        Partner::Foreign(foreign) => foreign.peer(),
    }
}

/// Why a search ended before its end.
enum SearchEnd {
    Error(MeasureError),
    Budget,
}

struct Trials<'a> {
    partner: Partner,
    test: &'a ThroughputTest,
    family: Family,
    /// Bytes of frames that were sent so far.
    sent_bytes: f64,
    environment: Option<Environment>,
    caveats: Vec<Caveat>,
}

impl Trials<'_> {
    /// Searches one row, from what the row before it has found.
    fn search(
        &mut self,
        sought: Sought,
        before: Option<&ThroughputRow>,
        observer: &mut dyn Observer,
    ) -> (ThroughputRow, Option<SearchEnd>) {
        let bits = sought.frame_bytes as f64 * 8.0;
        let known = before.and_then(|row| Some(row.frames_per_s?.min(row.frames_bps? / bits)));
        let first = known.map_or(FIRST_BPS / bits, |per_s| NEXT * per_s);
        let mut search = RateSearch::new(self.test.goal, self.range(sought), first);
        let mut tried: Vec<Tried> = Vec::new();
        let mut ended = None;
        while let Some(offer) = search.next() {
            observer.phase(&title(sought, tried.len() + 1, offer));
            match self.trial(sought, offer, observer) {
                Ok((mut trial, verdict)) => {
                    trial.carried = self.test.goal.keeps(&trial.outcome());
                    search.take(trial.outcome());
                    tried.push((trial, verdict));
                }
                Err(end) => {
                    ended = Some(end);
                    break;
                }
            }
        }
        let link_bps = self.environment.as_ref().and_then(ceilings::link_bps);
        let mut row = ThroughputRow::new(sought, &search, tried, link_bps);
        if self.test.bursts && ended.is_none() {
            match self.burst(sought, row.frames_per_s, observer) {
                Ok(burst) => row.burst = Some(burst),
                Err(end) => ended = Some(end),
            }
        }
        (row, ended)
    }

    /// Searches the longest burst on a path that carries so many frames per second.
    fn burst(
        &mut self,
        sought: Sought,
        frames_per_s: Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<Burst, SearchEnd> {
        let Sought { direction, frame_bytes, .. } = sought;
        let mut search = BurstSearch::new(frame_bytes, self.left_bytes());
        while let Some(frames) = search.next_frames() {
            let way = direction.word();
            observer.phase(&format!("{way}, a burst of {frames} frames of {frame_bytes} bytes"));
            self.spend(frames as f64 * frame_bytes as f64)?;
            let burst = self.test.burst(sought, frames);
            let asked = burst.expect("the size was checked, and a count of datagrams is one");
            let record = self.run(&asked, observer)?;
            search.take(record.legs.first().and_then(|leg| leg.udp.as_ref()));
        }
        Ok(search.found(frames_per_s))
    }

    /// What --max-bytes leaves.
    fn left_bytes(&self) -> Option<f64> {
        self.test.most_bytes.map(|most| (most.0 as f64 - self.sent_bytes).max(0.0))
    }

    fn spend(&mut self, bytes: f64) -> Result<(), SearchEnd> {
        if self.left_bytes().is_some_and(|left| bytes > left) {
            return Err(SearchEnd::Budget);
        }
        self.sent_bytes += bytes;
        Ok(())
    }

    fn run(&mut self, asked: &Test, observer: &mut dyn Observer) -> Result<Record, SearchEnd> {
        match self.partner.run_once(asked, observer) {
            Ok((record, None)) => Ok(record),
            Ok((_, Some(error))) | Err(error) => Err(SearchEnd::Error(error)),
        }
    }

    /// The rates to search among, frames per second: what was asked for, and no more than the owner
    /// of the endpoint allows.
    fn range(&self, sought: Sought) -> [f64; 2] {
        let [least, most] = self.test.range(sought.frame_bytes);
        let allowed = match &self.partner {
            Partner::Own(client) => client.welcome().limits.rate_bps,
            Partner::Foreign(_) => None,
        };
        let payload_bits = 8.0 * sought.datagram_bytes() as f64;
        [least, allowed.map_or(most, |bps| most.min(bps as f64 / payload_bits))]
    }

    fn trial(
        &mut self,
        sought: Sought,
        offer: NextTrial,
        observer: &mut dyn Observer,
    ) -> Result<Tried, SearchEnd> {
        self.spend(offer.per_s * offer.seconds * sought.frame_bytes as f64)?;
        let next = self.test.trial(sought, offer);
        let asked = next.expect("the size was checked, and a rate of datagrams is one");
        let record = self.run(&asked, observer)?;
        let trial = ThroughputTrial::of(&record, offer.per_s).ok_or_else(|| {
            SearchEnd::Error(MeasureError::Lacks {
                peer: peer(&self.partner),
                what: "it does not count the datagrams that arrive".to_owned(),
            })
        })?;
        self.note(&record, &trial);
        Ok((trial, record.verdict().cloned()))
    }

    /// What every trial would say is said once.
    fn note(&mut self, record: &Record, trial: &ThroughputTrial) {
        let is_new = |caveats: &[Caveat], kind| caveats.iter().all(|caveat| caveat.kind != kind);
        for caveat in record.caveats.iter().filter(|caveat| !OF_A_TRIAL.contains(&caveat.kind)) {
            if is_new(&self.caveats, caveat.kind) {
                self.caveats.push(caveat.clone());
            }
        }
        if trial.delay_growth_percent.is_none() && is_new(&self.caveats, CaveatKind::NotReadable) {
            self.caveats.push(Caveat::new(
                CaveatKind::NotReadable,
                "the receiver tells no delays: a queue may take what is sent too much for as long \
                 as a trial lasts",
                "give --trial 10s or longer, or run `linerate serve` there",
            ));
        }
        self.environment.get_or_insert_with(|| record.environment.clone());
    }
}

/// Caveats of a single trial, which are what a search looks for.
const OF_A_TRIAL: [CaveatKind; 5] = [
    CaveatKind::LinerateLimited,
    CaveatKind::RateNotReached,
    CaveatKind::TooShort,
    CaveatKind::SocketDrops,
    CaveatKind::FewRuns,
];

fn title(sought: Sought, number: usize, offer: NextTrial) -> String {
    let (way, size) = (sought.direction.word(), sought.frame_bytes);
    let NextTrial { per_s, seconds } = offer;
    format!("{way}, frames of {size} bytes, trial {number}: {per_s:.0}/s for {seconds} s")
}
