//! An endpoint in this process that serves other tools' clients, and what it said.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use linerate_core::record::Record;
use linerate_core::session::message::Limits;
use linerate_engine::{Endpoint, NetperfOptions, ServeEvent, ServeOptions, Stop};
use linerate_testkit::PATIENCE;

pub(crate) struct Bench {
    pub(crate) own: SocketAddr,
    pub(crate) netperf: SocketAddr,
    pub(crate) sink: SocketAddr,
    pub(crate) source: SocketAddr,
    events: Receiver<ServeEvent>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn options() -> ServeOptions {
    ServeOptions {
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        netperf: Some(NetperfOptions::default()),
        ttcp_sink: Some(0),
        ttcp_source: Some(0),
        ..ServeOptions::within(Limits {
            clients: 32,
            streams: 8,
            seconds: 20.0,
            rate_bps: None,
            connections: 0,
        })
    }
}

impl Bench {
    pub(crate) fn start() -> Self {
        Self::with(&options())
    }

    /// On IPv6's loopback; `None` where this host has none.
    pub(crate) fn over_ipv6() -> Option<Self> {
        let options = ServeOptions { bind: Some(Ipv6Addr::LOCALHOST.into()), ..options() };
        let is_there = Endpoint::bind(&options).is_ok();
        is_there.then(|| Self::with(&options))
    }

    pub(crate) fn with(options: &ServeOptions) -> Self {
        let endpoint = Endpoint::bind(options).expect("loopback has free ports");
        let foreign = endpoint.foreign_addresses();
        let of = |name| {
            let found = foreign.iter().find(|(tool, _)| *tool == name);
            found.expect("it listens for that tool").1
        };
        let (own, netperf) = (endpoint.addresses()[0], of("netperf"));
        let (sink, source) = (of("ttcp"), of("ttcp-source"));
        let stop = Stop::new();
        let (sender, events) = channel();
        let thread = {
            let stop = stop.clone();
            let log = move |event| {
                // The test may be over.
                let _ = sender.send(event);
            };
            thread::spawn(move || endpoint.serve(&stop, log).expect("it serves to its end"))
        };
        Self { own, netperf, sink, source, events, stop, thread: Some(thread) }
    }

    /// The record of the next test that was served.
    pub(crate) fn record(&self) -> Record {
        let until = Instant::now() + PATIENCE;
        while let Ok(event) =
            self.events.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if let ServeEvent::Served { record, .. } = event {
                return *record;
            }
        }
        panic!("no test was served");
    }

    /// The next reason for which somebody was turned away.
    pub(crate) fn refusal(&self) -> String {
        let until = Instant::now() + PATIENCE;
        while let Ok(event) =
            self.events.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if let ServeEvent::Refused { reason, .. } = event {
                return reason;
            }
        }
        panic!("nobody was refused");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the endpoint ends");
        }
    }
}
