//! What the owner of a site allows its agent to do, whatever a coordinator asks; and the ids of
//! tasks, by which a coordinator recognizes what it has asked for.

use std::net::IpAddr;

use linerate_core::lab::Prefix;
use linerate_core::monitor::keys::{QuietHours, bytes, is_name, quiet};
use linerate_core::plan::{Extent, Protocol, Test, Traffic};
use linerate_core::toml_reader::{self, At, Fault, FileError, Section};
use linerate_core::units::{BitRate, ByteCount, Nanos, Span};
use linerate_core::wire::{Key, is_same_secret};
use thiserror::Error;

use crate::bus::OFFER_LIFE;
use crate::message::{Report, Task};
use crate::plan::{Mesh, commands};

/// The limits that an owner sets for the agent of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Largest payload rate of one test, both directions together.
    pub rate: Option<BitRate>,
    /// Payload of all tests in any 24 hours, bytes.
    pub bytes_per_day: Option<u64>,
    /// Longest test: measured time and warm-up.
    pub longest: Option<Span>,
    /// The sites that it tests with; empty: all sites of the mesh.
    pub targets: Vec<Target>,
    /// The hours in which it runs nothing.
    pub quiet: Vec<QuietHours>,
    /// The commands that it runs; empty: all.
    pub can: Vec<String>,
}

/// A site, or the sites of a network, that an agent may test with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The site of that name, at whatever address the mesh has for it.
    Site(String),
    /// Every site whose address is in this network.
    Network(Prefix),
}

/// A test that a coordinator asks an agent to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TestRequest<'a> {
    /// Name of the other site.
    pub site: &'a str,
    /// Address of the other site's endpoint.
    pub address: IpAddr,
    /// The test.
    pub test: &'a Test,
}

/// Why an agent refuses a test, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct OwnerRefusal(String);

impl OwnerLimits {
    /// Reads the limits from the text of a file.
    ///
    /// | key | value |
    /// |---|---|
    /// | `rate` | payload rate of one test, both directions together: `"100mbit"` |
    /// | `bytes-per-day` | payload of all tests in any 24 hours: `"10GB"` |
    /// | `longest` | length of one test: `"30s"` |
    /// | `targets` | networks and sites: `["192.0.2.0/24", "oslo"]`; default: all sites |
    /// | `quiet` | hours of the day, UTC, in which nothing runs: `["08:00-18:00"]` |
    /// | `can` | commands that it runs: `["stream", "rr"]`; default: all |
    ///
    /// # Errors
    /// The first mistake, with its line and column.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        read(text).map_err(|fault| fault.located(text))
    }

    /// Checks a test that is to run `at` seconds since 1970, and returns the test that the agent
    /// runs: a TCP test is paced to the owner's rate. `used` is the number of bytes carried in the
    /// 24 hours before; tests under way count with the most that they may carry.
    ///
    /// # Errors
    /// The limit that forbids the test.
    pub fn admit(
        &self,
        request: &TestRequest<'_>,
        used: u64,
        at: u64,
    ) -> Result<Test, OwnerRefusal> {
        let refuse = |why: String| Err(OwnerRefusal(why));
        if !self.targets.is_empty() && !self.targets.iter().any(|it| it.includes(request)) {
            let (site, address) = (request.site, request.address);
            return refuse(format!(
                "{site} ({address}) is none of the targets that the owner allows"
            ));
        }
        let command = request.test.workload().word();
        if !self.can.is_empty() && !self.can.iter().any(|it| it == command) {
            return refuse(format!("the owner does not allow `{command}`"));
        }
        let takes_s = seconds(request.test);
        if let Some(allowed) = self.longest.filter(|it| it.as_secs_f64() < takes_s as f64) {
            return refuse(format!("the test takes {takes_s} s; the owner allows {allowed}"));
        }
        let test = self.slowed(request.test)?;
        self.check_bytes(&test, used)?;
        let quiet = self.quiet.iter().filter_map(|it| it.ends_after(at, takes_s));
        if let Some(until) = quiet.max() {
            return refuse(format!(
                "the owner lets nothing run in these hours; the next are {} s from now",
                until.saturating_sub(at)
            ));
        }
        Ok(test)
    }

    /// The test, slowed to the owner's rate.
    fn slowed(&self, test: &Test) -> Result<Test, OwnerRefusal> {
        let Some(allowed) = self.rate else {
            return Ok(test.clone());
        };
        let slowed = test.clone().slowed_to(allowed);
        let why = match max_rate(&slowed) {
            Some(rate) if rate <= allowed.0 => return Ok(slowed),
            Some(rate) => format!("the test asks for {}", BitRate(rate)),
            None => "a test over UDP needs a `rate`".to_owned(),
        };
        Err(OwnerRefusal(format!("the owner allows {allowed}; {why}")))
    }

    fn check_bytes(&self, test: &Test, used: u64) -> Result<(), OwnerRefusal> {
        let Some(allowed) = self.bytes_per_day else {
            return Ok(());
        };
        let why = match max_bytes(test) {
            Some(bytes) if used.saturating_add(bytes) <= allowed => return Ok(()),
            Some(bytes) => format!("the test may carry {}", ByteCount(bytes)),
            None => "nobody knows what the test carries: its rate is not limited".to_owned(),
        };
        let (allowed, used) = (ByteCount(allowed), ByteCount(used));
        let owner = format!("the owner allows {allowed} in 24 hours, {used} are carried");
        Err(OwnerRefusal(format!("{why}; {owner}")))
    }
}

/// The most that an admitted test can carry, payload bytes of both directions together; `None` if
/// nothing limits it.
pub fn max_bytes(test: &Test) -> Option<u64> {
    match test.extent {
        Extent::Bytes(bytes) => Some(bytes.0.saturating_mul(test.flows().into())),
        Extent::Time(_) | Extent::Count(_) => {
            Some(max_rate(test)?.div_ceil(8).saturating_mul(seconds(test)))
        }
    }
}

/// Length of a test with its warm-up, seconds; for one that ends by an amount, the time that an
/// agent gives it.
fn seconds(test: &Test) -> u64 {
    test.seconds().map_or(UNTIMED_S, |seconds| seconds.ceil() as u64)
}

/// The largest payload rate of a test, all flows together, bits per second; `None` if nothing
/// limits it.
fn max_rate(test: &Test) -> Option<u64> {
    let of_flow = match (&test.traffic, test.protocol) {
        (Traffic::Stream(stream), Protocol::Udp) => stream.rate_bps,
        (Traffic::Rr(exchange) | Traffic::Crr(exchange), Protocol::Udp) => {
            let bits = 8 * (exchange.request_bytes + exchange.response_bytes);
            return Some((exchange.rate_per_s? * bits as f64).ceil() as u64);
        }
        _ => test.options.pacing_bps,
    };
    Some(of_flow?.0.saturating_mul(test.flows().into()))
}

impl Target {
    fn includes(&self, request: &TestRequest<'_>) -> bool {
        match self {
            Self::Site(name) => name == request.site,
            Self::Network(network) => network.contains(request.address.to_canonical()),
        }
    }

    fn new(text: &str) -> Option<Self> {
        match text.parse() {
            Ok(network) => Some(Self::Network(network)),
            Err(_) => is_name(text).then(|| Self::Site(text.to_owned())),
        }
    }
}

fn read(text: &str) -> Result<OwnerLimits, Fault> {
    let table = toml_reader::parse(text)?;
    let root = Section::new("the file", 0, table.get_ref(), KEYS)?;
    let target = |at: &At<&str>| match Target::new(at.value) {
        Some(target) => Ok(target),
        None => Fault::malformed(*at, "target", "write a site, an address or 192.0.2.0/24"),
    };
    let rate_hint = "write \"10kbit\" or more: \"100mbit\"";
    let time_hint = "write \"1s\" or more: \"30s\"";
    let targets = root.strings("targets")?.unwrap_or_default();
    Ok(OwnerLimits {
        rate: root.parsed("rate", "rate", rate_hint, |rate: &BitRate| rate.0 >= MIN_RATE)?,
        bytes_per_day: bytes(&root)?,
        longest: root
            .parsed("longest", "time", time_hint, |span: &Span| span.as_secs_f64() >= 1.0)?,
        targets: targets.iter().map(target).collect::<Result<_, _>>()?,
        quiet: quiet(&root)?,
        can: commands(&root)?,
    })
}

const KEYS: &str = "rate bytes-per-day longest targets quiet can";
/// Smallest rate, bits per second: each of 256 flows still has 39 bit/s.
const MIN_RATE: u64 = 10_000;
/// Seconds that a test without a length of its own takes
/// ([`linerate_core::monitor::MonitoredWork::seconds`]).
const UNTIMED_S: u64 = 11;

// Ids of tasks.

/// The key of a coordinator, with which it makes the ids of its tasks.
///
/// An id has the time of the offer and a message authentication code over the task. So a
/// coordinator that was started again still knows its own tasks, and when they were offered,
/// whatever an agent and its clock say. Nobody else can make an id.
#[derive(Debug, Clone)]
pub struct Offers {
    key: Key,
}

/// The task that a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered {
    /// Index in [`Mesh::tests`].
    pub test: usize,
    /// Index in [`Mesh::sites`].
    pub from: usize,
    /// Index in [`Mesh::sites`].
    pub to: usize,
    /// When it was offered, by the coordinator's clock of then.
    pub at: Nanos,
    /// Whether it is a run of a proof: the test may be changed.
    pub is_proof: bool,
}

/// Why a report is none of a task that was offered to its sender.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotOffered {
    /// Its sender reports in another site's name.
    #[error("it is in the name of {0}")]
    Runner(String),
    /// The file has no such test between these sites.
    #[error("the file has no test {test} from {from} to {to}")]
    Test {
        /// The test.
        test: String,
        /// The first site.
        from: String,
        /// The other site.
        to: String,
    },
    /// Its id is not one that this coordinator has given to this task.
    #[error("its task was never offered")]
    Id,
}

impl Offers {
    /// The offers of the coordinator that has this key.
    pub fn new(key: Key) -> Self {
        Self { key }
    }

    /// The id of a task that is offered `at` this time since 1970, of a proof or not. `number` is
    /// random: the same test is offered again and again.
    pub fn id(&self, task: &Task, at: Nanos, number: u64, is_proof: bool) -> String {
        let offer = format!("{:011x}{number:016x}", at.0 / MS_NS);
        self.signed(&offer, [&task.test, &task.from, &task.to], task.turned, is_proof)
    }

    /// Finds the task of a report that `site` has sent.
    ///
    /// # Errors
    /// The site was not offered such a task.
    pub fn find(&self, mesh: &Mesh, site: &str, report: &Report) -> Result<Offered, NotOffered> {
        if report.runner() != site {
            return Err(NotOffered::Runner(report.runner().to_owned()));
        }
        let names = [&report.test, &report.from, &report.to].map(String::as_str);
        let (test, from, to) = mesh.pair(names).ok_or_else(|| {
            let [test, from, to] = names.map(str::to_owned);
            NotOffered::Test { test, from, to }
        })?;
        let offer = report.id.get(..OFFER_DIGITS).ok_or(NotOffered::Id)?;
        let is_own = |is_proof: &bool| {
            let own = self.signed(offer, names, report.turned, *is_proof);
            is_same_secret(own.as_bytes(), report.id.as_bytes())
        };
        let is_proof = [false, true].into_iter().find(is_own).ok_or(NotOffered::Id)?;
        let ms = u64::from_str_radix(&offer[..TIME_DIGITS], 16).map_err(|_| NotOffered::Id)?;
        let at = Nanos(ms.saturating_mul(MS_NS));
        Ok(Offered { test, from, to, at, is_proof })
    }

    /// The offer with its authentication code. Names have no slash.
    fn signed(
        &self,
        offer: &str,
        [test, from, to]: [&str; 3],
        turned: bool,
        is_proof: bool,
    ) -> String {
        let proof = if is_proof { "/proof" } else { "" };
        let text = format!("{offer}/{test}/{from}/{to}/{turned}{proof}");
        format!("{offer}{:032x}", self.key.mac(text.as_bytes()))
    }
}

impl Offered {
    /// When its run began, by the coordinator's clock: what the agent says as far as it can be, and
    /// no later than `now`. A coordinator that has waited since the offer knows for how long,
    /// whatever has become of its clock meanwhile.
    pub fn began(&self, mesh: &Mesh, told: Nanos, now: Nanos, waited: Option<Nanos>) -> Nanos {
        let life = Nanos(OFFER_LIFE.as_nanos() as u64);
        let at = waited.map_or(self.at, |waited| now - waited);
        let latest = at + life + mesh.tests[self.test].max_duration();
        told.max(at).min(latest).min(now)
    }
}

/// Nanoseconds of a millisecond.
const MS_NS: u64 = 1_000_000;
/// Digits of the time of an offer: milliseconds since 1970.
const TIME_DIGITS: usize = 11;
/// Digits before the authentication code.
const OFFER_DIGITS: usize = TIME_DIGITS + 16;

#[cfg(test)]
mod tests {
    use linerate_core::plan::{Draft, Workload};
    use proptest::prelude::*;

    use super::*;
    use crate::message::{Message as _, Outcome};

    const FILE: &str = r#"
rate = "100mbit"
bytes-per-day = "1GB"
longest = "30s"
targets = ["192.0.2.0/24", "2001:2::/48", "oslo"]
quiet = ["08:00-18:00"]
can = ["stream", "rr"]
"#;

    fn stream(options: &[(&str, &str)]) -> Test {
        let mut draft = Test::stream();
        for (key, value) in options {
            draft.set(key, value).unwrap();
        }
        draft.resolve(7).unwrap()
    }

    fn admit(request: TestRequest<'_>, used: u64, at: u64) -> Result<Test, String> {
        let limits = OwnerLimits::from_toml(FILE).unwrap();
        let admitted = limits.admit(&request, used, at);
        admitted.map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn the_refusal_names_the_limit_that_forbids_the_test() {
        let test = stream(&[("time", "10s")]);
        let request =
            TestRequest { site: "rome", address: "192.0.2.7".parse().unwrap(), test: &test };
        let admitted = admit(request, 0, 0).unwrap();
        assert_eq!(admitted.options.pacing_bps, Some(BitRate(100_000_000)));
        let far = TestRequest { address: "192.0.3.7".parse().unwrap(), ..request };
        assert_eq!(
            admit(far, 0, 0).unwrap_err(),
            "rome (192.0.3.7) is none of the targets that the owner allows"
        );
        let by_name = TestRequest { site: "oslo", ..far };
        assert!(admit(by_name, 0, 0).is_ok());
        let mapped = TestRequest { address: "::ffff:192.0.2.7".parse().unwrap(), ..request };
        assert!(admit(mapped, 0, 0).is_ok());
        let refused = |test: &Test, used, at| {
            let refused = admit(TestRequest { test, ..request }, used, at);
            refused.unwrap_err()
        };
        let connections = Test::crr().resolve(7).unwrap();
        assert_eq!(refused(&connections, 0, 0), "the owner does not allow `crr`");
        let long = refused(&stream(&[("time", "30s")]), 0, 0);
        assert!(long.starts_with("the test takes 31 s; the owner allows 30"), "{long}");
        let bytes = refused(&test, 900_000_000, 0);
        assert!(bytes.starts_with("the test may carry 131 MiB; the owner allows"), "{bytes}");
        assert!(admit(request, 862_500_000, 0).is_ok());
        let hours = refused(&test, 0, 8 * 3600 - 10);
        assert!(hours.contains("nothing run in these hours"), "{hours}");
        assert!(admit(request, 0, 8 * 3600 - 11).is_ok());
        let udp = refused(&stream(&[("protocol", "udp"), ("rate", "200mbit")]), 0, 0);
        assert!(udp.ends_with("the test asks for 200 Mbit/s"), "{udp}");
    }

    #[test]
    fn a_test_without_a_length_takes_as_long_as_a_monitored_one() {
        let test = stream(&[("bytes", "1GB")]);
        assert_eq!(seconds(&test), UNTIMED_S);
        let monitored = linerate_core::monitor::MonitoredWork::Test(Box::new(test));
        assert_eq!(monitored.seconds(), UNTIMED_S);
    }

    #[test]
    fn a_mistake_in_the_file_is_reported_with_its_place() {
        let cases = [
            ("192.0.2.0/24", "192.0.2.0/33", "line 5, column 12: `192.0.2.0/33` is no target"),
            ("\"30s\"", "\"0s\"", "line 4, column 11: `0s` is no time"),
            ("rate =", "rates =", "line 2, column 1: the file has no key `rates`; did you mean"),
            ("\"rr\"", "\"rm\"", "line 7, column 18: `rm` is no command"),
        ];
        for (text, other, says) in cases {
            let error = OwnerLimits::from_toml(&FILE.replacen(text, other, 1)).unwrap_err();
            assert!(error.to_string().contains(says), "{error}\n{says}");
        }
    }

    proptest! {
        #[test]
        fn no_task_makes_an_agent_exceed_its_limits(
            seconds in 1_u64..100,
            streams in 1_u32..64,
            udp in any::<bool>(),
            both in any::<bool>(),
            rate in prop::option::of(1_000_u64..10_000_000_000),
            limit in 10_000_u64..1_000_000_000,
            budget in 1_u64..10_000_000_000,
            used in 0_u64..10_000_000_000,
            longest in 1_u64..100,
        ) {
            let mut draft = Test::stream();
            draft.set("time", &format!("{seconds}s")).unwrap();
            draft.set("streams", &streams.to_string()).unwrap();
            draft.set("direction", if both { "both" } else { "up" }).unwrap();
            if udp {
                draft.set("protocol", "udp").unwrap();
            }
            if let Some(rate) = rate {
                draft.set(if udp { "rate" } else { "pacing" }, &rate.to_string()).unwrap();
            }
            let Ok(test) = draft.resolve(1) else {
                return Ok(());
            };
            let limits = OwnerLimits {
                rate: Some(BitRate(limit)),
                bytes_per_day: Some(budget),
                longest: Some(Span(std::time::Duration::from_secs(longest))),
                ..OwnerLimits::default()
            };
            let request = TestRequest {
                site: "a",
                address: IpAddr::from([127, 0, 0, 1]),
                test: &test,
            };
            if let Ok(test) = limits.admit(&request, used, 0) {
                let flows = u64::from(test.flows());
                let of_flow = match &test.traffic {
                    Traffic::Stream(stream) if udp => stream.rate_bps,
                    _ => test.options.pacing_bps,
                };
                let sends = of_flow.unwrap().0 * flows;
                prop_assert!(sends <= limit);
                prop_assert!(seconds <= longest);
                prop_assert!(used + sends / 8 * seconds <= budget);
            }
        }
    }

    const AT: Nanos = Nanos::from_millis(1_800_000_000_123);

    fn mesh() -> Mesh {
        let site = |name| format!("[[site]]\nname = \"{name}\"\nhost = \"192.0.2.1\"\n");
        let sites: String = ["a", "b", "c"].map(site).concat();
        let test = |name, more| {
            format!(
                "[[test]]\nname = \"{name}\"\n{more}workload = {{ command = \"stream\", time = \
                 \"10s\" }}\n"
            )
        };
        let tests = test("bulk", "") + &test("some", "sites = [\"a\", \"b\"]\n");
        Mesh::from_toml(&(sites + &tests), 7).unwrap()
    }

    fn offers(digit: &str) -> Offers {
        Offers::new(Key::from_text(&digit.repeat(64)).unwrap())
    }

    /// The report on a task that was offered.
    fn report(test: &str, from: &str, to: &str) -> Report {
        let mut task = Task {
            id: String::new(),
            test: test.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            turned: false,
            address: "192.0.2.1".to_owned(),
            work: Draft::new(Workload::Stream).resolve(7).unwrap(),
            lease_s: 30,
        };
        task.id = offers("1").id(&task, AT, u64::MAX, false);
        Report::new(&task, Outcome::Started)
    }

    #[test]
    fn an_offered_task_is_known_after_a_restart_and_nothing_else_is() {
        let mesh = mesh();
        let good = report("bulk", "a", "b");
        assert_eq!(good.check(), Ok(()));
        let offered = Offered { test: 0, from: 0, to: 1, at: AT, is_proof: false };
        assert_eq!(offers("1").find(&mesh, "a", &good), Ok(offered));
        assert_eq!(offers("2").find(&mesh, "a", &good), Err(NotOffered::Id));
        let name = "a".to_owned();
        assert_eq!(offers("1").find(&mesh, "b", &good), Err(NotOffered::Runner(name)));
        type Change = fn(&mut Report);
        let changes: [Change; 6] = [
            |it| it.id.replace_range(..1, "f"),
            |it| it.id.truncate(OFFER_DIGITS),
            |it| it.id = "5f0c".to_owned(),
            |it| it.id = it.id.to_uppercase(),
            |it| it.to = "c".to_owned(),
            |it| it.test = "some".to_owned(),
        ];
        for change in changes {
            let mut report = good.clone();
            change(&mut report);
            assert_eq!(offers("1").find(&mesh, "a", &report), Err(NotOffered::Id), "{report:?}");
        }
        let mut turned = good.clone();
        turned.turned = true;
        assert_eq!(offers("1").find(&mesh, "b", &turned), Err(NotOffered::Id));
    }

    #[test]
    fn only_pairs_of_a_test_of_the_file_are_known_whoever_signed_the_id() {
        let mesh = mesh();
        for (test, from, to) in [("other", "a", "b"), ("some", "a", "c"), ("bulk", "a", "d")] {
            let found = offers("1").find(&mesh, "a", &report(test, from, to));
            let is_unknown = matches!(found, Err(NotOffered::Test { .. }));
            assert!(is_unknown, "{test} {from} {to}: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn no_clock_of_an_agent_moves_a_run_away_from_its_offer(
            told in any::<u64>(),
            now in any::<u64>(),
        ) {
            let mesh = mesh();
            let offered = Offered { test: 0, from: 0, to: 1, at: AT, is_proof: false };
            let began = offered.began(&mesh, Nanos(told), Nanos(now), None);
            prop_assert!(began.0 <= now);
            prop_assert!(began >= AT.min(Nanos(now)));
            prop_assert!(began <= AT + Nanos::from_millis(10_000) + mesh.tests[0].max_duration());
            let right = Nanos(AT.0 + told % 10_000_000_000);
            prop_assert_eq!(offered.began(&mesh, right, right + Nanos(now >> 1), None), right);
        }
    }
}
