//! Limits on how often something may happen: within a minute by address (wrong passwords, lines of
//! the log), within a second in all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::ServeEvent;
use super::clients::one_address;
use crate::clock::now_ns;
use crate::shares::lock;

const MINUTE: Duration = Duration::from_secs(60);
/// Most addresses that are counted separately; all further ones are counted together.
const ADDRESSES: usize = 1024;
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Counts by address. The minute of an address begins with its first count.
#[derive(Debug, Default)]
pub(super) struct Minutes(HashMap<IpAddr, (Instant, u64)>);

impl Minutes {
    /// Counts one more; the result is the count within the minute.
    pub(super) fn note(&mut self, peer: IpAddr, now: Instant) -> u64 {
        let address = one_address(peer);
        let is_new = !self.0.contains_key(&address);
        let is_full = self.0.len() >= ADDRESSES;
        let key = if is_new && is_full { OTHERS } else { address };
        let (_, count) = self.0.entry(key).or_insert((now, 0));
        *count += 1;
        *count
    }

    /// The count of an address within its minute.
    pub(super) fn count(&self, peer: IpAddr) -> u64 {
        let entry = self.0.get(&one_address(peer));
        entry.map_or(0, |(_, count)| *count)
    }

    /// Whether no address has a count.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the addresses whose minute is over; the result has their counts.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<(IpAddr, u64)> {
        let is_over = |(since, _): &(Instant, u64)| now.duration_since(*since) >= MINUTE;
        let over = self.0.extract_if(|_, entry| is_over(entry));
        over.map(|(address, (_, count))| (address, count)).collect()
    }
}

/// Counts events within a second.
#[derive(Debug, Default)]
pub(super) struct PerSecond {
    began_ns: u64,
    count: u32,
}

impl PerSecond {
    /// Counts one more event; false if there are more than `max` within the second.
    pub(super) fn admits(&mut self, max: u32) -> bool {
        let now = now_ns();
        if now.saturating_sub(self.began_ns) >= 1_000_000_000 {
            (self.began_ns, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= max
    }
}

/// Refusals of an address within a minute that have a line each.
const LINES: u64 = 10;

/// Which refusals the owner's log gets: the first ones of an address each minute, and the number of
/// the others. Otherwise one host could fill the owner's disk.
#[derive(Clone, Default)]
pub(super) struct RefusalLimit(Arc<Mutex<Minutes>>);

impl RefusalLimit {
    /// Whether the log gets this event.
    pub(super) fn admits(&self, event: &ServeEvent) -> bool {
        let ServeEvent::Refused { peer, .. } = event else {
            return true;
        };
        lock(&self.0).note(peer.ip(), Instant::now()) <= LINES
    }

    /// How long [`RefusalLimit::sum_up`] has nothing to do.
    pub(super) fn patience(&self) -> Duration {
        if lock(&self.0).is_empty() {
            Duration::MAX
        } else {
            MINUTE / 60
        }
    }

    /// For each address whose minute is over, the number of refusals that the log did not get.
    pub(super) fn sum_up(&self, now: Instant) -> impl Iterator<Item = ServeEvent> {
        let over = lock(&self.0).take_over(now).into_iter();
        over.filter(|(_, count)| *count > LINES)
            .map(|(address, count)| ServeEvent::Refused {
                peer: SocketAddr::new(address, 0),
                reason: format!("{} more of this address within a minute", count - LINES),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_begins_with_the_first_count_and_excess_addresses_are_counted_together() {
        let (mut minutes, began) = (Minutes::default(), Instant::now());
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        assert_eq!(
            (
                minutes.note(address(1), began),
                minutes.note(address(1), began)
            ),
            (1, 2)
        );
        let late = began + MINUTE;
        assert_eq!(minutes.note(address(2), late), 1);
        assert_eq!(minutes.take_over(late), [(address(1), 2)]);
        assert_eq!(
            (minutes.count(address(1)), minutes.count(address(2))),
            (0, 1)
        );
        for n in 0..2 * ADDRESSES as u32 {
            minutes.note(address(n), late);
        }
        assert!(minutes.0.len() <= ADDRESSES + 1);
        assert!(minutes.count(OTHERS) > 1000);
    }

    #[test]
    fn many_refusals_of_an_address_have_ten_lines_and_a_sum() {
        let limit = RefusalLimit::default();
        assert_eq!(limit.patience(), Duration::MAX);
        let refused = |peer: &str| ServeEvent::Refused {
            peer: peer.parse().unwrap(),
            reason: "junk".into(),
        };
        let logged = (0..1204).filter(|n| {
            let event = refused(&format!("198.18.0.1:{}", n + 1));
            limit.admits(&event)
        });
        assert_eq!(logged.count() as u64, LINES);
        assert!(limit.admits(&refused("198.18.0.2:1")));
        assert_eq!(limit.sum_up(Instant::now()).count(), 0);
        let later = Instant::now() + Duration::from_secs(60);
        let sums: Vec<_> = limit.sum_up(later).collect();
        let sum = ServeEvent::Refused {
            peer: "198.18.0.1:0".parse().unwrap(),
            reason: "1194 more of this address within a minute".into(),
        };
        assert_eq!(sums, [sum]);
        assert_eq!(limit.patience(), Duration::MAX);
    }
}
