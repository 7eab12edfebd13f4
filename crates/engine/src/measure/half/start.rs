//! What a half is started with, and how it begins at a set time together with others.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use linerate_core::plan::Traffic;
use linerate_core::profile::ProfileRequest;
use linerate_sys::clock::sleep_until;
use linerate_sys::thread::{set_real_time_policy, wake_sharply};

use super::Half;
use crate::measure::flow::FlowSocket;
use crate::measure::outcome::Answer;
use crate::measure::shared::Marks;
use crate::measure::stream;

/// What a half is started with, apart from its test and its sockets.
#[derive(Default)]
pub(crate) struct HalfOptions {
    /// Profile this host during the run.
    pub(crate) profile: Option<ProfileRequest>,
    /// Gets each transaction of `crr` when it has ended.
    pub(crate) answers: Option<Sender<Answer>>,
    /// When to begin, by [`crate::clock::now_ns`]; at once if that has passed.
    pub(crate) at_ns: Option<u64>,
    /// Header of the test's datagrams.
    pub(crate) marks: Marks,
    /// Bytes that all TCP senders together send at most; the last message is sent whole.
    pub(crate) quota: Option<u64>,
}

impl From<Marks> for HalfOptions {
    fn from(marks: Marks) -> Self {
        Self {
            marks,
            ..Self::default()
        }
    }
}

impl Half {
    /// Waits for the set time and then sends the first bytes of all flows from one thread, one flow
    /// after the other. Only then the workers begin: the first worker with a CPU would keep it for
    /// as long as the scheduler lets it.
    pub(super) fn begin_on_time(&self) -> io::Result<()> {
        thread::scope(|scope| {
            let starter = thread::Builder::new().name("start".into());
            let starter = starter.spawn_scoped(scope, || {
                // Where this is refused, the record shows how late the flows began.
                let _ = set_real_time_policy();
                wake_sharply();
                sleep_until(self.shared.began_ns, Duration::ZERO);
                self.send_first();
                self.let_go();
            })?;
            let ended = starter.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(())
        })
    }

    fn send_first(&self) {
        let Traffic::Stream(test) = &self.shared.test.traffic else {
            return;
        };
        for flow in self.shared.flows.iter().filter(|flow| flow.sends) {
            if let Some(FlowSocket::Tcp(socket)) = &flow.socket {
                stream::send_first(&self.shared.test, test, &flow.counters, socket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use linerate_core::plan::Test;
    use linerate_core::record::HostFacts;
    use linerate_core::units::End;

    use super::*;
    use crate::clock::now_ns;
    use crate::measure::flow::Flow;
    use crate::measure::source::FlowSource;

    #[test]
    fn flows_send_their_first_bytes_in_order_and_not_before_the_set_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let flow = |id| {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = FlowSocket::Tcp(stream);
            (Flow { id, socket }, listener.accept().unwrap().0)
        };
        let (flows, _peers): (Vec<_>, Vec<_>) = (0..12).map(flow).unzip();
        let test = Test::stream().streams(12_u32).resolve(7).unwrap();
        let at_ns = now_ns() + 30_000_000;
        let options = HalfOptions {
            at_ns: Some(at_ns),
            ..HalfOptions::default()
        };
        let half = Half::start(End::Client, &test, flows, FlowSource::Bound, options).unwrap();
        let counters = half.shared.flows.iter().map(|flow| &flow.counters);
        let begun: Vec<u64> = counters
            .filter_map(|counters| counters.begun_ns())
            .collect();
        assert_eq!(begun.len(), 12);
        assert!(begun[0] >= at_ns && begun.is_sorted(), "{at_ns} {begun:?}");
        assert!(half.sent_bytes() >= 12 * stream::FIRST);
        let report = half.stop(HostFacts::default()).report;
        let first = |id: usize| report.flows[id].first_us.unwrap();
        assert!((0..11).all(|id| first(id) <= first(id + 1)));
    }
}
