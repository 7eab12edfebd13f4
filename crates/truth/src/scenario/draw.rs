//! The families of scenarios and the order in which a run takes turns among them; draws the family
//! whose conditions have one limit that is clearly the lowest.

use linerate_core::ceilings::Cause;
use linerate_core::units::Dice;
use linerate_core::units::checksum::fnv1a;

use super::assemble::{EVENTS, MAX_S, loss_events_per_s, measured_s};
use super::conditions::{Conditions, CongestionControl, Limit, slow_start_rounds};
use super::outside::{self, OTHER_PROGRAMS, ScenarioDraft, other_program};
use super::{Scenario, causes};

/// A family: scenarios of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScenarioFamily {
    /// Name on the command line and in documents.
    pub(crate) name: &'static str,
    /// Description of its scenarios, in a line.
    pub(crate) means: &'static str,
    pub(super) draw: DrawBy,
}

/// The function that draws scenarios of a family.
#[derive(Debug, Clone, Copy)]
pub(super) enum DrawBy {
    /// Draws by seed and number, with the limits of [`CAUSES`] in turn.
    Causes(fn(u64, u32) -> Scenario),
    /// Draws with a random cause.
    Any(fn(&mut Dice) -> ScenarioDraft),
}

/// Name of the family with one limit that the lab makes, twelve causes in turn.
pub(crate) const SINGLE_LIMIT: &str = "old";

/// All families, that of single limits first, other programs' traffic last.
pub(crate) fn families() -> impl Iterator<Item = &'static ScenarioFamily> {
    static FIRST: ScenarioFamily = ScenarioFamily {
        name: SINGLE_LIMIT,
        means: "one limit of the lab's making for each of twelve causes, clearly the lowest",
        draw: DrawBy::Causes(single_limit),
    };
    static LAST: ScenarioFamily = ScenarioFamily {
        name: OTHER_PROGRAMS,
        means: "as old, and the kernel's TBF and HTB, with other programs' traffic",
        draw: DrawBy::Causes(other_program),
    };
    [&FIRST].into_iter().chain(outside::FAMILIES).chain([&LAST])
}

/// The families that a name means: one of theirs, `wild` (linerate's runs outside of single limits)
/// or `all` (all of linerate's runs).
pub(crate) fn families_named(name: &str) -> Option<Vec<&'static ScenarioFamily>> {
    let is_meant = |family: &&ScenarioFamily| match name {
        "all" => family.name != OTHER_PROGRAMS,
        "wild" => matches!(family.draw, DrawBy::Any(_)),
        _ => family.name == name,
    };
    Some(families().filter(is_meant).collect()).filter(|found: &Vec<_>| !found.is_empty())
}

/// Draws `count` scenarios from the families in turn, in random order; that of single limits takes
/// its causes in turn. The scenario of a number depends on the seed and the families, and not on
/// `count`.
pub(crate) fn draw(seed: u64, count: u32, families: &[&ScenarioFamily]) -> Vec<Scenario> {
    let turns: Vec<(&ScenarioFamily, u32)> = (families.iter())
        .flat_map(|family| (0..weight(family)).map(move |place| (*family, place)))
        .collect();
    if turns.is_empty() {
        return Vec::new();
    }
    let scenario = |number: u32| {
        let (family, place) = turns[number as usize % turns.len()];
        let turn = number / turns.len() as u32;
        let draft = match family.draw {
            DrawBy::Any(draft) => draft,
            DrawBy::Causes(draw) => {
                let own = turn * weight(family) + place;
                return Scenario { number, ..draw(seed, own) };
            }
        };
        // Each family has dice of its own, so that other families do not change its scenarios.
        let stream = fnv1a(family.name.as_bytes()) ^ u64::from(turn);
        draft(&mut Dice::new(seed, stream)).scenario(family.name, number, seed)
    };
    let mut scenarios: Vec<Scenario> = (0..count).map(scenario).collect();
    Dice::new(seed, u64::MAX).shuffle(&mut scenarios);
    scenarios
}

/// Number of turns of a family in each round.
fn weight(family: &ScenarioFamily) -> u32 {
    match family.draw {
        DrawBy::Causes(_) => CAUSES.len() as u32,
        DrawBy::Any(_) => 1,
    }
}

/// The causes that are drawn, equally often.
pub(crate) const CAUSES: [Cause; 12] = [
    Cause::ReceiveWindow,
    Cause::SendBuffer,
    Cause::Congestion,
    Cause::Pacing,
    Cause::SegmentSize,
    Cause::PathRate,
    Cause::Policer,
    Cause::ApplicationSend,
    Cause::ApplicationReceive,
    Cause::CpuSend,
    Cause::CpuReceive,
    Cause::Startup,
];

/// Every other limit is at least so many times the limit of the cause, or at most [`BORDER`] times.
pub(super) const CLEAR: f64 = 1.6;
/// Another limit of up to so many times the lowest one is also right.
pub(crate) const BORDER: f64 = 1.1;

/// The scenario with a single limit that has this number; the causes take turns.
pub(super) fn single_limit(seed: u64, number: u32) -> Scenario {
    let turn = number as usize / CAUSES.len();
    let cause = CAUSES[number as usize % CAUSES.len()];
    let is_border = HAVE_BORDERS.contains(&cause) && turn % BORDER_TURNS == 2;
    let mut random = Dice::new(seed, number.into());
    let (conditions, limit) = drawn(cause, is_border, &mut random, |_| true);
    Scenario::new(number, seed, cause, &conditions, limit.bps)
}

/// Draws conditions, changed by `fits`, under which the cause is clearly the lowest limit.
pub(super) fn clear(
    cause: Cause,
    random: &mut Dice,
    fits: impl Fn(&mut Conditions) -> bool,
) -> (Conditions, Limit) {
    drawn(cause, false, random, fits)
}

fn drawn(
    cause: Cause,
    is_border: bool,
    random: &mut Dice,
    fits: impl Fn(&mut Conditions) -> bool,
) -> (Conditions, Limit) {
    (0..TRIES).find_map(|_| attempt(cause, is_border, random, &fits)).expect(
        "one draw in a thousand is clear, and the laws of `tests` are drawn from many seeds",
    )
}

fn attempt(
    cause: Cause,
    is_border: bool,
    random: &mut Dice,
    fits: impl Fn(&mut Conditions) -> bool,
) -> Option<(Conditions, Limit)> {
    let mut conditions = causes::conditions(cause, random)?;
    if !fits(&mut conditions) {
        return None;
    }
    if is_border {
        add_rival(cause, &mut conditions, random)?;
    }
    let limit = conditions.limit(cause)?;
    let right = stands_alone(&conditions, &limit, is_border)
        && can_be_carried(&conditions, &limit)
        && shows(&conditions, &limit);
    right.then_some((conditions, limit))
}

/// Adds a second limit at 1.01 to 1.09 times the first.
fn add_rival(cause: Cause, conditions: &mut Conditions, random: &mut Dice) -> Option<()> {
    let all = conditions.limit(cause)?.bps * random.uniform(1.01, 1.09);
    let each = (all / f64::from(conditions.streams)) as u64;
    let share = conditions.payload_share();
    match random.below(3) {
        0 if cause != Cause::Pacing && !conditions.is_udp => conditions.pacing_bps = Some(each),
        1 if cause != Cause::ApplicationSend => conditions.write_bps = Some(each),
        2 if cause != Cause::PathRate => {
            conditions.line.as_mut()?.rate_bps = Some((all / share) as u64);
            // Without a queue the flow would not reach this limit.
            causes::deepen_queue(conditions, 2.0);
        }
        _ => return None,
    }
    Some(())
}

/// Whether the limit is the lowest, within the spread of kernels and machines; at a border with one
/// rival beside it.
fn stands_alone(conditions: &Conditions, own: &Limit, is_border: bool) -> bool {
    let limits = conditions.limits();
    let rivals = limits.iter().filter(|limit| limit.cause != own.cause);
    let (near, far): (Vec<&Limit>, Vec<&Limit>) =
        rivals.partition(|rival| rival.bps <= BORDER * own.bps);
    let lowest = near.iter().all(|rival| rival.bps >= own.bps);
    lowest && near.len() == usize::from(is_border) && far.iter().all(|rival| is_far(own, rival))
}

fn is_far(own: &Limit, rival: &Limit) -> bool {
    // A slow machine lowers all of these.
    let of_machine = |limit: &Limit| {
        matches!(limit.cause, Cause::CpuSend | Cause::CpuReceive | Cause::SegmentSize)
    };
    let spreads =
        if of_machine(own) && of_machine(rival) { 1.0 } else { own.spread * rival.spread };
    rival.bps >= CLEAR * own.bps && rival.bps >= SURE * spreads * own.bps
}

/// Whether the emulator can carry it, and the congestion control reaches the limit in time.
fn can_be_carried(conditions: &Conditions, own: &Limit) -> bool {
    let segment = conditions.segment_bytes();
    let rtt = conditions.rtt_s();
    let in_flight = own.bps * rtt / 8.0 / segment / f64::from(conditions.streams);
    let most = match own.cause {
        Cause::PathRate | Cause::Policer | Cause::Congestion => match conditions.control {
            CongestionControl::Reno => 400.0,
            CongestionControl::Cubic => 2000.0,
            CongestionControl::Bbr => 3000.0,
        },
        _ => 5000.0,
    };
    let asked = conditions.write_bps.filter(|_| conditions.is_udp);
    let offered = asked.map_or(own.bps, |rate| own.bps.max(rate as f64));
    let packets = offered / 8.0 / segment;
    own.bps >= MIN_BPS
        && (conditions.line.is_none() || packets <= PACKETS_PER_S)
        && (conditions.is_udp || in_flight <= most)
        && in_flight * segment <= MAX_IN_FLIGHT
        && conditions.loaded_rtt_s(own.cause) <= 1.0
}

/// Whether the run is long enough for the cause to show, and no detail hides it.
fn shows(conditions: &Conditions, own: &Limit) -> bool {
    let segment = conditions.segment_bytes();
    let rtt = conditions.rtt_s();
    let in_flight = own.bps * rtt / 8.0 / segment / f64::from(conditions.streams);
    let enough = match conditions.transfer_bytes {
        Some(_) => true,
        None => own.bps / 8.0 / segment * measured_s(conditions, own.cause) >= MIN_SEGMENTS,
    };
    let particular = match own.cause {
        // A window of few segments is not used fully, and one of small segments is not known.
        Cause::ReceiveWindow => in_flight >= 5.0 && segment >= 500.0,
        // A buffer of small segments holds mostly overhead.
        Cause::SendBuffer => in_flight >= 6.0 && segment >= 500.0,
        Cause::Congestion => EVENTS / loss_events_per_s(conditions) <= MAX_S && in_flight >= 4.0,
        // With fewer segments a bucket causes only timeouts.
        Cause::Policer => {
            in_flight >= 4.0
                && (0.01..=0.15).contains(&rtt)
                && grows_back_s(conditions.control, in_flight, rtt) <= SOON_S
        }
        // Unread data does not make the kernel enlarge the window (tcp_rcv_space_adjust): the first
        // window must suffice, and it reopens by whole segments (RFC 9293, 3.8.6.2.2).
        Cause::ApplicationReceive => {
            conditions.line.is_none()
                || CLEAR * (own.bps * rtt / 8.0 + 2.0 * segment) <= FIRST_WINDOW
        }
        Cause::Startup => ends_in_slow_start(conditions),
        _ => true,
    };
    enough && particular && bursts_pass(conditions)
}

/// Time until a window that was halved (or cut to 0.7, RFC 9438) has its size again, seconds. If it
/// is long, the congestion control is the limit and not the bucket.
fn grows_back_s(control: CongestionControl, segments: f64, rtt_s: f64) -> f64 {
    let by_one_each_round = segments * rtt_s;
    match control {
        CongestionControl::Reno => by_one_each_round,
        CongestionControl::Cubic => (segments * 0.3 / 0.4).cbrt().min(by_one_each_round),
        CongestionControl::Bbr => 0.0,
    }
}

/// Whether the last flight is far below the capacity of the path, and the transfer takes a few
/// round trips.
fn ends_in_slow_start(conditions: &Conditions) -> bool {
    let Some(line) = &conditions.line else {
        return false;
    };
    let bytes = conditions.transfer_bytes.unwrap_or(0) as f64;
    let holds = line.rate_bps.unwrap_or(0) as f64 * conditions.payload_share() * line.rtt_s / 8.0;
    let rounds = slow_start_rounds(bytes, conditions.segment_bytes());
    (0.01..=0.2).contains(&line.rtt_s) && rounds >= 3.0 && bytes / 2.0 <= holds / CLEAR
}

/// Whether each burst of a writer has passed before the next one, though the window may have fallen
/// back to ten segments.
fn bursts_pass(conditions: &Conditions) -> bool {
    let (Some(rate), Some(line), false) =
        (conditions.write_bps, &conditions.line, conditions.is_udp)
    else {
        return true;
    };
    let message = conditions.message_bytes as f64;
    let segment = conditions.segment_bytes();
    if message <= 10.0 * segment {
        return true;
    }
    let line_bps = line.rate_bps.unwrap_or(1_000_000_000) as f64 * conditions.payload_share();
    let through = line.rtt_s * slow_start_rounds(message, segment) + message * 8.0 / line_bps;
    through * 1.5 <= message * 8.0 / rate as f64
}

/// Causes whose limit is known well enough for a border. That of a window is not: the kernel may
/// offer a third of a buffer.
const HAVE_BORDERS: [Cause; 5] = [
    Cause::Pacing,
    Cause::PathRate,
    Cause::Policer,
    Cause::ApplicationSend,
    Cause::ApplicationReceive,
];
/// One in so many of their scenarios is a border: a tenth of all scenarios.
const BORDER_TURNS: usize = 4;
/// Draws until a scenario is given up.
const TRIES: u32 = 1_000_000;
/// Least ratio of two limits when both are as near to each other as their spreads allow.
const SURE: f64 = 1.1;
/// Lowest limit, payload bits/s.
const MIN_BPS: f64 = 1e5;
/// Window that a receive buffer of 128 KiB offers at first, bytes: half of it.
const FIRST_WINDOW: f64 = 65_536.0;
/// Longest time of [`grows_back_s`], seconds: a run with a policer has eight such cycles.
const SOON_S: f64 = 1.0;
/// Most packets that an emulated path is asked to carry, packets/s.
const PACKETS_PER_S: f64 = 100_000.0;
/// Most bytes in flight.
const MAX_IN_FLIGHT: f64 = 4e6;
/// Fewest segments in the measured time.
const MIN_SEGMENTS: f64 = 100.0;
