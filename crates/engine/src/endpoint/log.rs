//! What the owner's log is told: each refusal, unless one address has very many of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ServeEvent;
use super::minute::{MINUTE, Minutes};

/// Refusals of an address within a minute that have a line each.
const LINES: u64 = 10;

/// Sums up what would fill a disk.
#[derive(Clone, Default)]
pub(super) struct Repeats(Arc<Mutex<Minutes>>);

impl Repeats {
    fn minutes(&self) -> MutexGuard<'_, Minutes> {
        // Counts alone: a panic elsewhere cannot leave one half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the log is to be told now.
    pub(super) fn is_told(&self, event: &ServeEvent) -> bool {
        let ServeEvent::Refused { peer, .. } = event else {
            return true;
        };
        self.minutes().note(peer.ip(), Instant::now()) <= LINES
    }

    /// How long there is nothing to sum up.
    pub(super) fn patience(&self) -> Duration {
        if self.minutes().is_empty() {
            Duration::MAX
        } else {
            MINUTE / 60
        }
    }

    /// What was not told of the minutes that are over.
    pub(super) fn sum_up(&self, now: Instant) -> impl Iterator<Item = ServeEvent> {
        let over = self.minutes().take_over(now).into_iter();
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
    fn an_address_that_is_refused_without_end_has_few_lines_and_a_sum() {
        let repeats = Repeats::default();
        assert_eq!(repeats.patience(), Duration::MAX);
        let refused = |peer: &str| ServeEvent::Refused {
            peer: peer.parse().unwrap(),
            reason: "junk".into(),
        };
        let told = (0..1204).filter(|n| {
            let event = refused(&format!("198.18.0.1:{}", n + 1));
            repeats.is_told(&event)
        });
        assert_eq!(told.count() as u64, LINES);
        assert!(repeats.is_told(&refused("198.18.0.2:1")));
        assert_eq!(repeats.sum_up(Instant::now()).count(), 0);
        let later = Instant::now() + Duration::from_secs(60);
        let sums: Vec<_> = repeats.sum_up(later).collect();
        let sum = ServeEvent::Refused {
            peer: "198.18.0.1:0".parse().unwrap(),
            reason: "1194 more of this address within a minute".into(),
        };
        assert_eq!(sums, [sum]);
        assert_eq!(repeats.patience(), Duration::MAX);
    }
}
