//! What the owner of a site allows its agent, whatever a coordinator asks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::monitor::MonitoredWork;
use linerate_core::monitor::keys::{QuietHours, bytes, is_name, quiet};
use linerate_core::plan::{Extent, Protocol, Test, Traffic};
use linerate_core::toml_reader::{self, At, Fault, Section};
use linerate_core::units::{BitRate, ByteCount, Span};
use thiserror::Error;

use crate::plan::MeshError;

/// What an agent does at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerLimits {
    /// The payload of one test, both ways together.
    pub rate: Option<BitRate>,
    /// The payload of all tests in any 24 hours, bytes.
    pub bytes_per_day: Option<u64>,
    /// The measured time of one test with its warm-up.
    pub longest: Option<Span>,
    /// Whom it tests with; empty is all sites of the mesh.
    pub targets: Vec<Target>,
    /// When it runs nothing.
    pub quiet: Vec<QuietHours>,
    /// What it runs; empty is all.
    pub can: Vec<String>,
}

/// Whom an agent may test with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The site of that name, wherever the mesh says that it is.
    Site(String),
    /// Whoever has an address of this network.
    Network {
        /// Its first address.
        address: IpAddr,
        /// The bits of it that count.
        bits: u8,
    },
}

/// What an agent is asked to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked<'a> {
    /// The other site.
    pub site: &'a str,
    /// The address that would be connected to, or that connects.
    pub address: IpAddr,
    /// The command.
    pub command: &'a str,
    /// What it would do.
    pub work: &'a MonitoredWork,
}

/// Why an owner's agent does not do it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OwnerRefusal {
    /// The other end.
    #[error("{site} ({address}) is none of the targets that the owner allows")]
    Target {
        /// Its name.
        site: String,
        /// Its address.
        address: IpAddr,
    },
    /// The command.
    #[error("the owner does not allow `{0}`")]
    Command(String),
    /// The time.
    #[error("the test takes {asked} s; the owner allows {allowed}")]
    Longest {
        /// What it takes.
        asked: u64,
        /// The limit.
        allowed: Span,
    },
    /// The rate, where it cannot be kept to the limit.
    #[error("the owner allows {allowed}; {why}")]
    Rate {
        /// The limit.
        allowed: BitRate,
        /// Why it cannot be kept to.
        why: String,
    },
    /// The day's bytes.
    #[error("{why}; the owner allows {} in 24 hours, {} are carried", ByteCount(*allowed), ByteCount(*used))]
    Bytes {
        /// What the test would carry.
        why: String,
        /// The limit.
        allowed: u64,
        /// What was carried in the last 24 hours.
        used: u64,
    },
    /// The hours.
    #[error(
        "the owner lets nothing run in these hours; the next are {} s from now",
        until_s
    )]
    Quiet {
        /// When it may, in seconds.
        until_s: u64,
    },
}

impl OwnerLimits {
    /// Reads the limits from the text of a file.
    ///
    /// | key | value |
    /// |---|---|
    /// | `rate` | the payload of one test, both ways together: `"100mbit"` |
    /// | `bytes-per-day` | the payload of all tests in any 24 hours: `"10GB"` |
    /// | `longest` | the time of one test: `"30s"` |
    /// | `targets` | networks and sites: `["192.0.2.0/24", "oslo"]`; default all sites |
    /// | `quiet` | hours of the day, UTC, in which nothing runs: `["08:00-18:00"]` |
    /// | `can` | what it runs: `["stream", "rr"]`; default all |
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column.
    pub fn from_toml(text: &str) -> Result<Self, MeshError> {
        read(text).map_err(|fault| fault.located(text))
    }

    /// Whether the agent does what it is asked, `at` seconds since 1970, having carried `used` bytes in
    /// the 24 hours before; the tests under way count with all that they may carry. What it then runs: a
    /// TCP test is paced to the owner's rate.
    ///
    /// # Errors
    /// What the owner does not allow.
    pub fn admit(
        &self,
        asked: &Asked<'_>,
        used: u64,
        at: u64,
    ) -> Result<MonitoredWork, OwnerRefusal> {
        if !self.targets.is_empty() && !self.targets.iter().any(|it| it.allows(asked)) {
            return Err(OwnerRefusal::Target {
                site: asked.site.to_owned(),
                address: asked.address,
            });
        }
        if !self.can.is_empty() && !self.can.iter().any(|it| it == asked.command) {
            return Err(OwnerRefusal::Command(asked.command.to_owned()));
        }
        let takes_s = takes_s(asked.work);
        if let Some(allowed) = self.longest.filter(|it| it.as_secs_f64() < takes_s as f64) {
            let asked = takes_s;
            return Err(OwnerRefusal::Longest { asked, allowed });
        }
        let work = self.slowed(asked.work)?;
        self.within_bytes(&work, used)?;
        let quiet = self
            .quiet
            .iter()
            .filter_map(|it| it.ends_after(at, takes_s));
        match quiet.max() {
            Some(until) => Err(OwnerRefusal::Quiet {
                until_s: until.saturating_sub(at),
            }),
            None => Ok(work),
        }
    }

    fn slowed(&self, work: &MonitoredWork) -> Result<MonitoredWork, OwnerRefusal> {
        let Some(allowed) = self.rate else {
            return Ok(work.clone());
        };
        let why = match work {
            MonitoredWork::Test(test) => {
                let slowed = (**test).clone().slowed_to(allowed);
                match most_rate(&slowed) {
                    Some(rate) if rate <= allowed.0 => {
                        return Ok(MonitoredWork::Test(Box::new(slowed)));
                    }
                    Some(rate) => format!("the test asks for {}", BitRate(rate)),
                    None => "a test over UDP needs a `rate`".to_owned(),
                }
            }
            MonitoredWork::Load(_) => "a mix cannot be kept to that".to_owned(),
            MonitoredWork::Check(_) => "a check cannot be kept to that".to_owned(),
        };
        Err(OwnerRefusal::Rate { allowed, why })
    }

    fn within_bytes(&self, work: &MonitoredWork, used: u64) -> Result<(), OwnerRefusal> {
        let Some(allowed) = self.bytes_per_day else {
            return Ok(());
        };
        let why = match most_bytes(work) {
            Some(bytes) if used.saturating_add(bytes) <= allowed => return Ok(()),
            Some(bytes) => format!("the test may carry {}", ByteCount(bytes)),
            None => "nobody knows what the test carries: its rate is not limited".to_owned(),
        };
        Err(OwnerRefusal::Bytes { why, allowed, used })
    }
}

/// What a test of an admitted work carries at most, payload bytes both ways together; `None` if nothing
/// limits it.
pub fn most_bytes(work: &MonitoredWork) -> Option<u64> {
    let MonitoredWork::Test(test) = work else {
        return None;
    };
    match test.extent {
        Extent::Bytes(bytes) => Some(bytes.0.saturating_mul(test.flows().into())),
        Extent::Time(_) | Extent::Count(_) => {
            Some((most_rate(test)?.div_ceil(8)).saturating_mul(takes_s(work)))
        }
    }
}

/// Seconds of a run, with its warm-up: of one that has no time what an agent gives it.
fn takes_s(work: &MonitoredWork) -> u64 {
    match work {
        MonitoredWork::Test(test) => test.seconds().map_or(work.seconds(), |it| it.ceil() as u64),
        MonitoredWork::Load(_) | MonitoredWork::Check(_) => work.seconds(),
    }
}

/// The payload that a test sends at most, all flows together, bits per second.
fn most_rate(test: &Test) -> Option<u64> {
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
    fn allows(&self, asked: &Asked<'_>) -> bool {
        match (self, asked.address.to_canonical()) {
            (Self::Site(name), _) => name == asked.site,
            (
                Self::Network {
                    address: IpAddr::V4(own),
                    bits,
                },
                IpAddr::V4(other),
            ) => {
                let different = u32::from(*own) ^ u32::from(other);
                different.leading_zeros() >= u32::from(*bits)
            }
            (
                Self::Network {
                    address: IpAddr::V6(own),
                    bits,
                },
                IpAddr::V6(other),
            ) => {
                let different = u128::from(*own) ^ u128::from(other);
                different.leading_zeros() >= u32::from(*bits)
            }
            _ => false,
        }
    }

    fn new(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address.parse().ok()?, Some(bits.parse::<u8>().ok()?)),
            None => match text.parse() {
                Ok(address) => (address, None),
                Err(_) => return is_name(text).then(|| Self::Site(text.to_owned())),
            },
        };
        let all = match address {
            IpAddr::V4(_) => Ipv4Addr::BITS as u8,
            IpAddr::V6(_) => Ipv6Addr::BITS as u8,
        };
        let bits = bits.unwrap_or(all);
        (bits <= all).then_some(Self::Network { address, bits })
    }
}

fn read(text: &str) -> Result<OwnerLimits, Fault> {
    let table = toml_reader::parse(text)?;
    let root = Section::new("the file", 0, table.get_ref(), KEYS)?;
    let rate = match root.string("rate")? {
        None => None,
        Some(at) => match at.value.parse::<BitRate>() {
            Ok(rate) if rate.0 >= MIN_RATE => Some(rate),
            _ => return Fault::malformed(at, "rate", "write \"10kbit\" or more: \"100mbit\""),
        },
    };
    let longest = match root.string("longest")? {
        None => None,
        Some(at) => match at.value.parse::<Span>() {
            Ok(span) if span.as_secs_f64() >= 1.0 => Some(span),
            _ => return Fault::malformed(at, "time", "write \"1s\" or more: \"30s\""),
        },
    };
    let target = |at: &At<&str>| match Target::new(at.value) {
        Some(target) => Ok(target),
        None => Fault::malformed(*at, "target", "write a site, an address or 192.0.2.0/24"),
    };
    let targets = root.strings("targets")?.unwrap_or_default();
    Ok(OwnerLimits {
        rate,
        bytes_per_day: bytes(&root)?,
        longest,
        targets: targets.iter().map(target).collect::<Result<_, _>>()?,
        quiet: quiet(&root)?,
        can: crate::plan::commands(&root)?,
    })
}

const KEYS: &str = "rate bytes-per-day longest targets quiet can";
/// A flow of each of 256 has 39 bit/s at least.
const MIN_RATE: u64 = 10_000;

#[cfg(test)]
mod tests {
    use linerate_core::monitor::MonitoredWork;
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"
rate = "100mbit"
bytes-per-day = "1GB"
longest = "30s"
targets = ["192.0.2.0/24", "2001:2::/48", "oslo"]
quiet = ["08:00-18:00"]
can = ["stream", "rr"]
"#;

    fn work(test: linerate_core::plan::Draft) -> MonitoredWork {
        MonitoredWork::Test(Box::new(test.resolve(7).unwrap()))
    }

    fn stream(seconds: u64) -> MonitoredWork {
        let mut draft = Test::stream();
        draft.set("time", &format!("{seconds}s")).unwrap();
        work(draft)
    }

    fn admitted(asked: &Asked<'_>, used: u64, at: u64) -> Result<MonitoredWork, String> {
        let limits = OwnerLimits::from_toml(FILE).unwrap();
        limits
            .admit(asked, used, at)
            .map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn what_the_owner_does_not_allow_is_refused_in_words() {
        let ten = stream(10);
        let asked = Asked {
            site: "rome",
            address: "192.0.2.7".parse().unwrap(),
            command: "stream",
            work: &ten,
        };
        let MonitoredWork::Test(test) = admitted(&asked, 0, 0).unwrap() else {
            panic!("it is a test");
        };
        assert_eq!(test.options.pacing_bps, Some(BitRate(100_000_000)));
        let far = Asked {
            address: "192.0.3.7".parse().unwrap(),
            ..asked
        };
        assert_eq!(
            admitted(&far, 0, 0).unwrap_err(),
            "rome (192.0.3.7) is none of the targets that the owner allows"
        );
        assert!(
            admitted(
                &Asked {
                    site: "oslo",
                    ..far
                },
                0,
                0
            )
            .is_ok()
        );
        let mapped = Asked {
            address: "::ffff:192.0.2.7".parse().unwrap(),
            ..asked
        };
        assert!(admitted(&mapped, 0, 0).is_ok());
        let other = Asked {
            command: "crr",
            ..asked
        };
        assert_eq!(
            admitted(&other, 0, 0).unwrap_err(),
            "the owner does not allow `crr`"
        );
        let long = stream(30);
        let refused = admitted(
            &Asked {
                work: &long,
                ..asked
            },
            0,
            0,
        )
        .unwrap_err();
        assert!(
            refused.starts_with("the test takes 31 s; the owner allows 30"),
            "{refused}"
        );
        let refused = admitted(&asked, 900_000_000, 0).unwrap_err();
        assert!(
            refused.starts_with("the test may carry 131 MiB; the owner allows"),
            "{refused}"
        );
        assert!(admitted(&asked, 862_500_000, 0).is_ok());
        let refused = admitted(&asked, 0, 8 * 3600 - 10).unwrap_err();
        assert!(refused.contains("nothing run in these hours"), "{refused}");
        assert!(admitted(&asked, 0, 8 * 3600 - 11).is_ok());
        let mut udp = Test::stream();
        udp.set("protocol", "udp").unwrap();
        udp.set("rate", "200mbit").unwrap();
        let udp = work(udp);
        let refused = admitted(
            &Asked {
                work: &udp,
                ..asked
            },
            0,
            0,
        )
        .unwrap_err();
        assert!(
            refused.ends_with("the test asks for 200 Mbit/s"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_place() {
        let cases = [
            (
                "192.0.2.0/24",
                "192.0.2.0/33",
                "line 5, column 12: `192.0.2.0/33` is no target",
            ),
            ("\"30s\"", "\"0s\"", "line 4, column 11: `0s` is no time"),
            (
                "rate =",
                "rates =",
                "line 2, column 1: the file has no key `rates`; did you mean",
            ),
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
            let work = MonitoredWork::Test(Box::new(test));
            let limits = OwnerLimits {
                rate: Some(BitRate(limit)),
                bytes_per_day: Some(budget),
                longest: Some(Span(std::time::Duration::from_secs(longest))),
                ..OwnerLimits::default()
            };
            let asked = Asked {
                site: "a",
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                command: "stream",
                work: &work,
            };
            if let Ok(MonitoredWork::Test(test)) = limits.admit(&asked, used, 0) {
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
}
