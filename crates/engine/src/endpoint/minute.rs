//! How often an address did something within a minute: for what is bounded by guesses or lines.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::clients::one_address;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// Addresses that are told apart; all further ones are one.
const ADDRESSES: usize = 1024;
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Counts by address, each within a minute that begins with the first.
#[derive(Debug, Default)]
pub(super) struct Minutes(HashMap<IpAddr, (Instant, u64)>);

impl Minutes {
    /// Notes one more, and says how many that is within the minute.
    pub(super) fn note(&mut self, peer: IpAddr, now: Instant) -> u64 {
        let address = one_address(peer);
        let is_new = !self.0.contains_key(&address);
        let is_full = self.0.len() >= ADDRESSES;
        let key = if is_new && is_full { OTHERS } else { address };
        let (_, count) = self.0.entry(key).or_insert((now, 0));
        *count += 1;
        *count
    }

    /// How many there were of it within the minute.
    pub(super) fn count(&self, peer: IpAddr) -> u64 {
        let entry = self.0.get(&one_address(peer));
        entry.map_or(0, |(_, count)| *count)
    }

    /// Whether there was none lately.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out the minutes that are over, with their counts.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<(IpAddr, u64)> {
        let is_over = |(since, _): &(Instant, u64)| now.duration_since(*since) >= MINUTE;
        let over = self.0.extract_if(|_, entry| is_over(entry));
        over.map(|(address, (_, count))| (address, count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_begins_with_the_first_and_many_addresses_are_counted_as_one() {
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
}
