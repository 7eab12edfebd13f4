//! The document of a throughput search: the JSON contract.
//!
//! As in [`crate::record`]: adding a key is free, renaming one is a new version; a key is absent
//! where its figure is not known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::burst::Burst;
use super::search::{RateSearch, TrialOutcome};
use super::test::{Sought, ThroughputTest};
use crate::plan::Direction;
use crate::record::{Caveat, CaveatKind, Environment, Record, Status, Verdict};
use crate::units::Family;

/// Schema of [`ThroughputDocument`].
pub const THROUGHPUT_SCHEMA: &str = "linerate.throughput/1";

/// The highest rates of datagrams that a path carries, by frame size.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThroughputDocument {
    /// [`THROUGHPUT_SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// The endpoint as the user named it.
    pub host: String,
    /// The endpoint's address and port.
    pub peer: String,
    /// Address family of the datagrams.
    pub family: Family,
    /// Whether every size was searched to its end.
    pub status: Status,
    /// The test that was asked for.
    pub test: ThroughputTest,
    /// What was found for each size and direction, in the order in which it was searched.
    pub rows: Vec<ThroughputRow>,
    /// The rate of the slower of both ends' links, bits per second, where they tell one that is
    /// true.
    pub link_bps: Option<f64>,
    /// Duration of the whole run, s.
    pub seconds: f64,
    /// The hosts of both ends.
    pub environment: Environment,
    /// What limits the worth of these figures.
    pub caveats: Vec<Caveat>,
}

/// The highest rate of frames of one size in one direction.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThroughputRow {
    /// The direction of the payload.
    pub direction: Direction,
    /// Length of each frame, from the destination address to the check sequence, bytes.
    pub frame_bytes: u64,
    /// Payload of each datagram, bytes.
    pub datagram_bytes: u64,
    /// The highest rate that was carried, frames per second; absent if none was.
    pub frames_per_s: Option<f64>,
    /// That rate, frames in bits per second.
    pub frames_bps: Option<f64>,
    /// That rate, payload bits per second.
    pub throughput_bps: Option<f64>,
    /// That rate as a share of what the link carries with preamble and gap, percent.
    pub line_percent: Option<f64>,
    /// The lowest rate that was not carried, frames per second; absent if all were.
    pub fails_at_frames_per_s: Option<f64>,
    /// Datagrams lost at that rate, percent of those sent.
    pub lost_percent: Option<f64>,
    /// Growth of the one-way delay at that rate, percent of the time: what was sent too much and
    /// filled a queue.
    pub delay_growth_percent: Option<f64>,
    /// Whether both rates were decided by as many trials as were asked for.
    pub settled: bool,
    /// What ended the search upwards.
    pub limited_by: ThroughputLimit,
    /// The verdict about the trial that lost most beyond the border.
    pub verdict: Option<Verdict>,
    /// The longest burst that passed whole, if that was asked for.
    pub burst: Option<Burst>,
    /// Every trial, in order.
    pub trials: Vec<ThroughputTrial>,
}

/// One trial.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThroughputTrial {
    /// Frames per second that were asked of the sender.
    pub asked_per_s: f64,
    /// Frames per second that it sent.
    pub sent_per_s: f64,
    /// Its length, s.
    pub seconds: f64,
    /// Datagrams lost, percent of those sent.
    pub lost_percent: f64,
    /// Of these, dropped by the receiver's socket, percent of those sent.
    pub socket_drops_percent: Option<f64>,
    /// Growth of the one-way delay, percent of the time.
    pub delay_growth_percent: Option<f64>,
    /// Standard error of that growth, percent of the time.
    pub delay_growth_error_percent: Option<f64>,
    /// Whether it was carried.
    pub carried: bool,
}

/// What ended the search of a size upwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThroughputLimit {
    /// The path lost datagrams, or a queue on it grew.
    Path,
    /// The receiver's socket dropped most of what was lost: its program or its CPU is too slow.
    Receiver,
    /// The sender can send no faster.
    Sender,
    /// The highest rate that was asked for was carried.
    MostRate,
    /// Even the slowest rate lost more than is allowed: losses by chance, whatever the rate.
    Losses,
    /// Nothing: the search was ended before it had found a limit.
    Ended,
}

/// A trial with the verdict about it.
pub type Tried = (ThroughputTrial, Option<Verdict>);

impl ThroughputTrial {
    /// The figures of a trial's record; `None` where nothing was sent, or nobody counted.
    pub fn of(record: &Record, asked_per_s: f64) -> Option<Self> {
        let udp = record.legs.first()?.udp.as_ref()?;
        let percent = |count: u64| (100.0 * count as f64 / udp.sent as f64).min(100.0);
        (udp.sent > 0 && record.seconds > 0.0).then(|| Self {
            asked_per_s,
            sent_per_s: udp.sent as f64 / record.seconds,
            seconds: record.seconds,
            lost_percent: percent(udp.lost),
            socket_drops_percent: udp.socket_drops.map(percent),
            delay_growth_percent: udp.delay_growth_percent,
            delay_growth_error_percent: udp.delay_growth_error_percent,
            carried: false,
        })
    }

    /// What the search has to know of it.
    pub fn outcome(&self) -> TrialOutcome {
        TrialOutcome {
            sent_per_s: self.sent_per_s,
            lost_share: self.lost_percent / 100.0,
            growth: self.delay_growth_percent.map(|percent| percent / 100.0),
            growth_error: self.delay_growth_error_percent.unwrap_or(0.0) / 100.0,
        }
    }

    fn is_receivers(&self) -> bool {
        self.socket_drops_percent.is_some_and(|drops| drops > self.lost_percent / 2.0)
    }
}

impl ThroughputRow {
    /// What a search has found; `link_bps` is the rate of the link, if it is known.
    pub fn new(
        sought: Sought,
        search: &RateSearch,
        tried: Vec<Tried>,
        link_bps: Option<f64>,
    ) -> Self {
        let Sought { direction, frame_bytes, .. } = sought;
        let datagram_bytes = sought.datagram_bytes();
        let (carries, fails) = (search.carries(), search.fails());
        let bits = |bytes: u64| carries.map(|per_s| per_s * bytes as f64 * 8.0);
        let on_the_line = bits(frame_bytes + PREAMBLE_AND_GAP);
        let beyond = beyond(&tried, fails);
        let trials = tried.iter().map(|(trial, _)| trial);
        let worst = trials
            .filter(|trial| Some(trial.asked_per_s) == fails && !trial.carried)
            .max_by(|a, b| a.lost_percent.total_cmp(&b.lost_percent))
            .cloned();
        let limited_by = match (carries, fails) {
            (_, None) if search.is_generators() => ThroughputLimit::Sender,
            (_, None) if search.is_all_carried() => ThroughputLimit::MostRate,
            (_, None) => ThroughputLimit::Ended,
            (None, Some(_)) => ThroughputLimit::Losses,
            _ if beyond.is_some_and(|(trial, _)| trial.is_receivers()) => ThroughputLimit::Receiver,
            _ => ThroughputLimit::Path,
        };
        Self {
            direction,
            frame_bytes,
            datagram_bytes,
            frames_per_s: carries,
            frames_bps: bits(frame_bytes),
            throughput_bps: bits(datagram_bytes),
            line_percent: on_the_line.zip(link_bps).map(|(rate, link)| 100.0 * rate / link),
            fails_at_frames_per_s: fails,
            lost_percent: worst.as_ref().map(|trial| trial.lost_percent),
            delay_growth_percent: worst.and_then(|trial| trial.delay_growth_percent),
            settled: search.is_settled(),
            limited_by,
            verdict: beyond.and_then(|(_, verdict)| verdict.clone()),
            burst: None,
            trials: tried.into_iter().map(|(trial, _)| trial).collect(),
        }
    }

    /// Why a loss this small could not show in any trial, if it could not: one lost datagram is
    /// more.
    pub fn too_short(&self, test: &ThroughputTest) -> Option<Caveat> {
        let allowed = test.goal.loss_percent / 100.0;
        let sent = self.frames_per_s? * test.goal.trial.as_secs_f64();
        let is_too_short = allowed > 0.0 && sent * allowed < 1.0;
        is_too_short.then(|| {
            let message = format!(
                "a trial with frames of {} bytes sends {sent:.0} datagrams: it cannot show a loss \
                 of {} %",
                self.frame_bytes, test.goal.loss_percent
            );
            let longer = test.goal.trial.as_secs_f64() / (sent * allowed);
            let remedy = format!("give --trial {}s or longer", longer.ceil());
            Caveat::new(CaveatKind::TooShort, message, remedy)
        })
    }
}

/// The trial beyond the border that tells most of what limits: the slowest of those that lost
/// enough to show a pattern, or of all.
fn beyond(tried: &[Tried], fails: Option<f64>) -> Option<&Tried> {
    let fails = fails?;
    let is_vague = |trial: &ThroughputTrial| trial.lost_percent < CLEAR_LOSS_PERCENT;
    let beyond = tried.iter().filter(|(trial, _)| trial.asked_per_s >= fails && !trial.carried);
    beyond.min_by(|(a, _), (b, _)| {
        is_vague(a).cmp(&is_vague(b)).then(a.asked_per_s.total_cmp(&b.asked_per_s))
    })
}

/// Losses from which on the rules of a stream's verdict have a pattern to judge.
const CLEAR_LOSS_PERCENT: f64 = 2.0;
/// What a frame takes on the line beside itself (IEEE 802.3), bytes: preamble, 8, and the gap of
/// 12.
pub const PREAMBLE_AND_GAP: u64 = 20;

impl ThroughputDocument {
    /// Computes again what follows from the rows: what a loss goal could not show.
    pub fn note_short_trials(&mut self) {
        let short: Vec<Caveat> =
            self.rows.iter().filter_map(|row| row.too_short(&self.test)).collect();
        self.caveats.extend(short);
    }
}

#[cfg(test)]
mod tests {
    use super::super::search::{GOAL, Goal};
    use super::*;

    /// The row of a search whose trials lose what exceeds 50,000 datagrams per second, a share of
    /// it at the receiver's socket.
    fn row(at_socket: f64, most: f64, generates: f64) -> ThroughputRow {
        let mut search = RateSearch::new(GOAL, [100.0, most], 1_000.0);
        let mut tried = Vec::new();
        while let Some(offer) = search.next() {
            let sent_per_s = offer.per_s.min(generates);
            let lost_percent = 100.0 * (1.0 - 50_000.0 / sent_per_s).max(0.0);
            let mut trial = ThroughputTrial {
                asked_per_s: offer.per_s,
                sent_per_s,
                seconds: offer.seconds,
                lost_percent,
                socket_drops_percent: Some(at_socket * lost_percent),
                delay_growth_percent: Some(0.0),
                delay_growth_error_percent: Some(0.0),
                carried: false,
            };
            trial.carried = GOAL.keeps(&trial.outcome());
            search.take(trial.outcome());
            tried.push((trial, None));
        }
        let sought = Sought { direction: Direction::Up, frame_bytes: 1518, family: Family::Ipv4 };
        ThroughputRow::new(sought, &search, tried, Some(1e9))
    }

    #[test]
    fn a_row_has_its_rate_in_frames_payload_and_share_of_the_line() {
        let row = row(0.0, 1e7, 1e7);
        let per_s = row.frames_per_s.expect("some are carried");
        assert!((49_500.0..=50_000.0).contains(&per_s), "{row:?}");
        assert_eq!(row.throughput_bps, Some(per_s * 1472.0 * 8.0));
        assert_eq!(row.frames_bps, Some(per_s * 1518.0 * 8.0));
        assert_eq!(row.line_percent, Some(100.0 * per_s * 1538.0 * 8.0 / 1e9));
        assert_eq!(row.limited_by, ThroughputLimit::Path);
        assert!(row.settled && row.lost_percent.is_some_and(|lost| lost > 0.0));
    }

    #[test]
    fn what_ended_the_search_is_told_apart() {
        assert_eq!(row(0.9, 1e7, 1e7).limited_by, ThroughputLimit::Receiver);
        assert_eq!(row(0.0, 20_000.0, 1e7).limited_by, ThroughputLimit::MostRate);
        assert_eq!(row(0.0, 1e7, 40_000.0).limited_by, ThroughputLimit::Sender);
    }

    #[test]
    fn a_search_that_was_ended_has_found_no_limit() {
        let sought = Sought { direction: Direction::Up, frame_bytes: 64, family: Family::Ipv4 };
        let mut search = RateSearch::new(GOAL, [100.0, 1e7], 1_000.0);
        let outcome =
            TrialOutcome { sent_per_s: 1_000.0, lost_share: 0.0, growth: None, growth_error: 0.0 };
        search.take(outcome);
        let row = ThroughputRow::new(sought, &search, Vec::new(), None);
        assert_eq!(row.frames_per_s, Some(1_000.0));
        assert_eq!((row.limited_by, row.settled), (ThroughputLimit::Ended, false));
    }

    #[test]
    fn a_loss_that_no_trial_can_show_is_a_caveat_with_the_length_that_can() {
        let row = row(0.0, 1e7, 1e7);
        let goal = Goal { loss_percent: 0.001, ..GOAL };
        let test = ThroughputTest {
            frame_bytes: vec![1518],
            direction: Direction::Up,
            goal,
            most_bps: None,
            most_bytes: None,
            bursts: false,
            seed: 1,
        };
        let caveat = row.too_short(&test).expect("fifty thousand datagrams are too few");
        assert_eq!(String::from(caveat.remedy), "give --trial 3s or longer");
        let lax = ThroughputTest { goal: Goal { loss_percent: 0.01, ..GOAL }, ..test };
        assert_eq!(row.too_short(&lax), None);
    }
}
