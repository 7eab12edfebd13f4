//! Shares of what there is so much of: the connections that all clients of `capacity` hold together
//! (never more than the owner allows one of them, so that many clients cannot do what one may not),
//! the profiles of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is spoken for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shares(Arc<AtomicU64>);

/// A part of it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    all: Shares,
    count: u64,
}

impl Shares {
    /// So many, if with those of the others they are within `limit`.
    ///
    /// # Errors
    /// How many the others have.
    pub(crate) fn take(&self, count: u64, limit: u64) -> Result<Share, u64> {
        let within = |others: u64| others.checked_add(count).filter(|sum| *sum <= limit);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, within)?;
        let all = self.clone();
        Ok(Share { all, count })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.count, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_may_not_have_two_may_not_either() {
        let shares = Shares::default();
        let first = shares.take(60, 100).unwrap();
        assert_eq!(shares.take(41, 100).unwrap_err(), 60);
        let second = shares.take(40, 100).unwrap();
        drop(first);
        assert!(shares.take(61, 100).is_err());
        drop(second);
        assert!(shares.take(100, 100).is_ok());
        assert!(shares.take(u64::MAX, 100).is_err());
    }
}
