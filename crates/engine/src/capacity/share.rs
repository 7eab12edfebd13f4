//! How the connections are divided between the workers.

use linerate_core::capacity::{HoldPort, MAX_AT_PORT};

/// The connections of each worker, with as few workers as possible: at most `each` per worker, and
/// at most `max` workers. If these do not suffice, each gets more than it can hold, and finds the
/// limit.
pub(super) fn workers(total: u64, each: u64, max: u64) -> Vec<u64> {
    let needed = total.div_ceil(each.max(1)).clamp(1, max.max(1));
    match total {
        0 => Vec::new(),
        total => even(total, needed),
    }
}

/// Divides `total` into parts that differ by 1 at most; the larger ones come first.
pub(super) fn even(total: u64, parts: u64) -> Vec<u64> {
    let (share, more) = (total / parts.max(1), total % parts.max(1));
    (0..parts).map(|part| share + u64::from(part < more)).collect()
}

/// The connections that each port of an endpoint's worker takes: fewer than there are local ports
/// for one destination.
pub(super) fn ports(connections: u64) -> Vec<u64> {
    even(connections, connections.div_ceil(MAX_AT_PORT).max(1))
}

/// Divides the endpoint's ports between workers with these shares, in order, so that two workers
/// have the same port only where they must.
pub(super) fn deal(ports: &[HoldPort], shares: &[u64]) -> Vec<Vec<HoldPort>> {
    let mut left = ports.iter().copied();
    let mut current = left.next();
    let mut dealt = Vec::with_capacity(shares.len());
    for share in shares {
        let mut wanted = *share;
        let mut own = Vec::new();
        while wanted > 0 {
            let Some(port) = &mut current else {
                break;
            };
            let count = wanted.min(port.count);
            if count > 0 {
                own.push(HoldPort { count, ..*port });
            }
            wanted -= count;
            port.count -= count;
            if port.count == 0 {
                current = left.next();
            }
        }
        dealt.push(own);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_workers_that_suffice_have_even_shares() {
        assert_eq!(workers(0, 19_000, 8), Vec::<u64>::new());
        assert_eq!(workers(19_000, 19_000, 8), [19_000]);
        assert_eq!(workers(20_001, 19_000, 8), [10_001, 10_000]);
        assert_eq!(workers(100, 10, 2), [50, 50]);
        assert_eq!(ports(50_000), [16_667, 16_667, 16_666]);
        assert_eq!(ports(7), [7]);
    }

    #[test]
    fn ports_are_divided_completely() {
        let port = |port, count| HoldPort { port, count };
        let ports = [port(1, 30), port(2, 30), port(3, 30)];
        let dealt = deal(&ports, &[45, 40]);
        assert_eq!(dealt[0], [port(1, 30), port(2, 15)]);
        assert_eq!(dealt[1], [port(2, 15), port(3, 25)]);
        assert_eq!(deal(&ports, &[90]), [ports.to_vec()]);
        assert_eq!(deal(&[], &[5]), [vec![]]);
    }
}
