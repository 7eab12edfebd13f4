//! The end of the payload at which treatments act, which decides what a comparison can show.

use super::table::{Scope, Setting, acts_words};
use super::{Pair, Treatment, sysctl_of};
use crate::plan::{Direction, End, Role, Test, Traffic};
use crate::units::{Caveat, CaveatKind};

impl Treatment {
    /// The end of the payload at which the treatment acts, if it acts at one end only.
    fn acts(&self) -> Option<Role> {
        match self.entry().setting {
            Setting::Sysctl => sysctl_of(self.key()?)?.acts,
            _ => self.entry().acts,
        }
    }

    fn costs_cpu(&self) -> bool {
        let setting = self.key().and_then(sysctl_of);
        setting.map_or(self.entry().costs_cpu, |setting| setting.costs_cpu)
    }

    /// The caveat of a treatment at an end where it has no effect on the test.
    fn misplaced(&self, direction: Direction) -> Option<Caveat> {
        let acts = self.acts()?;
        let right = acts.end(direction);
        let is_host = self.entry().scope != Scope::Socket;
        if !is_host || self.is_at(right) {
            return None;
        }
        let name = self.name();
        let bare = name.trim_start_matches("client.").trim_start_matches("server.");
        let (whose, does) = match (right, acts) {
            (End::Server, Role::Receiver) => ("this host", "sends"),
            (End::Server, Role::Sender) => ("this host", "receives"),
            (End::Client, Role::Receiver) => ("the endpoint's host", "sends"),
            (End::Client, Role::Sender) => ("the endpoint's host", "receives"),
        };
        let other = match right {
            End::Server => format!("server.{bare}"),
            End::Client => bare.to_owned(),
        };
        let turned = match direction {
            Direction::Down => "leave -R out",
            Direction::Up | Direction::Both => "use -R",
        };
        Some(Caveat::new(
            CaveatKind::Misplaced,
            format!("{bare} acts {}, and {whose} {does}", acts_words(Some(acts))),
            format!("{turned}, or give {other}"),
        ))
    }
}

impl Pair {
    /// The treatments in which the two sides differ.
    fn differing(&self) -> impl Iterator<Item = &Treatment> {
        let sides = [(&self.a, &self.b), (&self.b, &self.a)];
        sides.into_iter().flat_map(|(one, other)| {
            one.iter().filter(move |it| !other.iter().any(|same| same == *it))
        })
    }

    /// Caveats for treatments in which the sides differ but which are at an end where they change
    /// almost nothing. With requests and responses both ends send and receive.
    pub fn misplaced(&self, test: &Test) -> Vec<Caveat> {
        if !matches!(test.traffic, Traffic::Stream(_)) || test.direction == Direction::Both {
            return Vec::new();
        }
        let differing = self.differing();
        let mut found = Vec::from_iter(differing.filter_map(|it| it.misplaced(test.direction)));
        found.dedup();
        found
    }

    /// The figures to compare beside the rate where the sides differ in CPU cost: the CPU time of
    /// threads and soft interrupts at the ends concerned.
    pub fn cpu_figures(&self) -> Vec<&'static str> {
        let concerns = |role: Role| {
            let mut costly = self.differing().filter(|it| it.costs_cpu());
            costly.any(|it| it.acts().is_none_or(|acts| acts == role))
        };
        let paths = [(Role::Sender, SENDER_CPU), (Role::Receiver, RECEIVER_CPU)];
        Vec::from_iter(paths.into_iter().filter(|it| concerns(it.0)).map(|(_, path)| path))
    }
}

const SENDER_CPU: &str = "sender.service_demand_threads_us_per_kib";
const RECEIVER_CPU: &str = "receiver.service_demand_threads_us_per_kib";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatment::pair;

    fn sides(a: &str, b: &str) -> Pair {
        pair(&a.parse().unwrap(), &b.parse().unwrap()).unwrap()
    }

    fn said(pair: &Pair) -> Vec<String> {
        let found = pair.misplaced(&stream(Direction::Up)).into_iter();
        found.map(|caveat| format!("{}: {}", caveat.message, caveat.remedy)).collect()
    }

    fn stream(direction: Direction) -> Test {
        Test::stream().direction(direction).resolve(1).unwrap()
    }

    #[test]
    fn a_treatment_at_the_end_that_it_does_not_concern_says_where_it_belongs() {
        let gro = sides("gro=on", "gro=off");
        assert_eq!(
            said(&gro),
            ["gro acts where data is received, and this host sends: use -R, or give server.gro"]
        );
        assert!(gro.misplaced(&stream(Direction::Down)).is_empty());
        assert!(gro.misplaced(&stream(Direction::Both)).is_empty());
        let tso = sides("server.tso=on", "server.tso=off");
        assert_eq!(
            said(&tso),
            ["tso acts where data is sent, and the endpoint's host receives: use -R, or give tso"]
        );
        let window = sides("none", "sysctl:net.ipv4.tcp_rmem=4096 65536 131072");
        assert_eq!(window.misplaced(&stream(Direction::Up)).len(), 1);
        assert!(said(&sides("none", "receive_window=50KiB")).is_empty());
    }

    #[test]
    fn treatments_that_cost_cpu_time_are_compared_by_it_at_their_ends() {
        for (a, b, metrics) in [
            ("gro=on", "gro=off", &[RECEIVER_CPU][..]),
            ("none", "zerocopy=on", &[SENDER_CPU]),
            ("checksum_offload=on", "checksum_offload=off", &[SENDER_CPU, RECEIVER_CPU]),
            ("none", "sysctl:net.core.busy_read=50", &[SENDER_CPU, RECEIVER_CPU]),
            ("none", "mss=536", &[]),
            ("tso=on,mss=1000", "tso=on,mss=536", &[]),
        ] {
            assert_eq!(sides(a, b).cpu_figures(), metrics, "{a} {b}");
        }
    }
}
