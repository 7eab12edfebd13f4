//! Where the time of a capture's requests went.

use linerate_core::capture::{CapturedAt, Names, Quic, Requests, SlowRequest, Whose};

use super::number::{
    counted, if_known, joined, micros, named, percent, plural, seconds, some_joined,
};
use super::parts::latencies;
use crate::page::{Page, table};

/// How much of it is written where no details are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Length {
    /// The answer alone.
    Answer,
    /// The phases, too.
    Phases,
    /// The slowest requests, too.
    Whole,
}

/// Writes the answer, the phases and the slowest requests, which are on so many connections.
pub(super) fn requests(page: &mut Page, requests: &Requests, connections: usize, length: Length) {
    let length = if page.has_details() { Length::Whole } else { length };
    if let Some(headline) = headline(requests) {
        page.heading(&headline);
    }
    page.indented(&joined(facts(requests, connections), ", "));
    if requests.count > 0 && length >= Length::Phases {
        phases(page, requests);
    }
    if requests.count > 0 && length == Length::Whole {
        slowest(page, &requests.slowest);
    }
    page.gap();
    let connects = &requests.connects;
    let failed = connects.refused + connects.unanswered > 0 || connects.retransmitted_syns > 0;
    let connects = [
        counted(connects.count, "in all"),
        counted(connects.refused, "refused"),
        counted(connects.unanswered, "unanswered"),
        Some(connects.retransmitted_syns)
            .filter(|again| *again > 0)
            .map(|again| format!("{} sent again", plural(again, "SYN"))),
        Some(connects.failed_s)
            .filter(|lost| *lost > 0.0)
            .map(|lost| format!("{} lost with those that failed", seconds(lost))),
    ];
    page.facts("connects", connects.into_iter().filter(|_| failed));
    page.facts("names", requests.names.iter().flat_map(names));
    page.facts("QUIC", requests.quic.iter().flat_map(quic));
    page.facts("not told", not_told(requests));
}

/// `97 % of the 12.4 s were the server's; the network took 0.3 s.`
fn headline(requests: &Requests) -> Option<String> {
    let Some(verdict) = requests.verdict else {
        let connects = &requests.connects;
        let failed = [
            counted(connects.refused, "refused"),
            counted(connects.unanswered, "without an answer"),
        ];
        let failed = some_joined(failed, ", ");
        return failed.map(|failed| format!("{}: {failed}.", plural(connects.count, "connect")));
    };
    let spent = &requests.spent;
    let rest = match verdict.whose {
        Whose::Network => format!("the server took {}", seconds(spent.server_s)),
        Whose::Server | Whose::Client | Whose::Names => {
            format!("the network took {}", seconds(spent.network_s))
        }
    };
    let (share, total) = (percent(100.0 * verdict.share), seconds(spent.total_s));
    Some(format!("{share} of the {total} were {}; {rest}.", words(verdict.whose)))
}

fn words(whose: Whose) -> &'static str {
    match whose {
        Whose::Server => "the server's",
        Whose::Network => "the network's",
        Whose::Client => "the client's",
        Whose::Names => "the lookup of names",
    }
}

/// Whose time the requests of a connection took most of, for a list of connections.
pub(super) fn mostly(whose: Whose) -> &'static str {
    match whose {
        Whose::Server => "server's time",
        Whose::Network => "network's time",
        Whose::Client => "client's time",
        Whose::Names => "lookup of a name",
    }
}

fn facts(requests: &Requests, connections: usize) -> [Option<String>; 4] {
    let spent = &requests.spent;
    let has_any = requests.count > 0;
    let on = plural(connections as u64, "connection");
    let trip = requests.phases.round_trip_us.filter(|_| has_any);
    [
        has_any.then(|| format!("{} on {on}", plural(requests.count, "request"))),
        counted(requests.unanswered, "unanswered"),
        named("captured", captured(&requests.captured), |trip_of| {
            trip_of + &if_known(trip, |trip| format!(", round trip {}", micros(trip.p50)))
        }),
        Some(spent.between_s)
            .filter(|between| has_any && *between > 0.0)
            .map(|between| format!("{} of the client's own before them", seconds(between))),
    ]
}

fn captured(at: &CapturedAt) -> Option<String> {
    let places = [
        (at.client_requests, "at the client"),
        (at.server_requests, "at the server"),
        (at.between_requests, "between both ends"),
        (at.unknown_requests, "where no round trip is known"),
    ];
    let (most, place) = places.into_iter().max_by_key(|(number, _)| *number)?;
    let others =
        at.client_requests + at.server_requests + at.between_requests + at.unknown_requests - most;
    let most_of = if others > 0 { "mostly " } else { "" };
    (most > 0).then(|| format!("{most_of}{place}"))
}

fn phases(page: &mut Page, requests: &Requests) {
    let phases = &requests.phases;
    latencies(
        page,
        [
            ("all of it", phases.total_us.as_ref()),
            ("name", phases.name_us.as_ref()),
            ("connect", phases.connect_us.as_ref()),
            ("TLS", phases.tls_us.as_ref()),
            ("request", phases.request_us.as_ref()),
            ("server", phases.server_us.as_ref()),
            ("response", phases.response_us.as_ref()),
            ("before it", phases.client_us.as_ref()),
        ],
    );
}

fn slowest(page: &mut Page, slowest: &[SlowRequest]) {
    let most = if page.has_details() { slowest.len() } else { SHOWN.min(slowest.len()) };
    let has_several = slowest.iter().any(|one| one.server != slowest[0].server);
    page.gap();
    page.table(&table! { &slowest[..most], one =>
        right "packet" => one.packet;
        right @2 "at" => seconds(one.at_s);
        right ["all", "of it"] => micros(one.phases.total_us?);
        right ["", "server"] => seconds(one.spent.server_s);
        right ["", "network"] => seconds(one.spent.network_s);
        right @4 ["sent", "again"] => Some(one.retransmitted_segments).filter(|again| *again > 0);
        left @3 "to" => has_several.then(|| one.server.clone());
        left "request" => request(one);
    });
}

/// `GET /api/items 503`
fn request(one: &SlowRequest) -> Option<String> {
    let status = match (one.answered, one.status) {
        (false, _) => Some("no answer".to_owned()),
        (true, status) => status.map(|status| status.to_string()),
    };
    some_joined([one.line.clone(), status], " ")
}

fn names(names: &Names) -> [Option<String>; 7] {
    let slowest =
        names.slowest.first().filter(|one| names.count > 1 || !one.answered || one.asked > 1);
    [
        Some(plural(names.count, "lookup")),
        counted(names.nxdomain, "NXDOMAIN"),
        counted(names.failed, "failed"),
        counted(names.retried, "asked again"),
        counted(names.unanswered, "unanswered"),
        named("p50", names.time_us, |time| micros(time.p50)),
        named("slowest", slowest, |one| {
            let time = micros(one.time_us);
            let time = if one.answered { time } else { "no answer".to_owned() };
            format!("{} ({time}, packet {})", one.name, one.packet)
        }),
    ]
}

fn quic(quic: &Quic) -> [Option<String>; 2] {
    [
        Some(plural(quic.connections, "connection") + " that turns cannot tell"),
        named("handshake p50", quic.handshake_us, |time| micros(time.p50)),
    ]
}

/// What turns cannot tell.
fn not_told(requests: &Requests) -> [Option<String>; 4] {
    let overlapped = Some(requests.overlapped).filter(|number| *number > 0);
    let multiplexed = Some(requests.multiplexed_connections).filter(|number| *number > 0);
    let may_be = Some(requests.http2_offering_connections).filter(|number| *number > 0);
    [
        overlapped.map(|number| format!("{} that overlapped others", plural(number, "request"))),
        multiplexed
            .map(|number| format!("{} with HTTP/2 or an upgrade", plural(number, "connection"))),
        may_be.map(|number| {
            format!(
                "{} offered HTTP/2: a turn may be several requests",
                plural(number, "connection")
            )
        }),
        counted(requests.unfinished, "under way at the end"),
    ]
}

/// Requests that are shown without details.
const SHOWN: usize = 3;
