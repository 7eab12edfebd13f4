//! `-s`: linerate's endpoint for one client at a time, with iperf3's output.

use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_core::session::message::Limits;
use linerate_engine::{Endpoint, Iperf3Access, Running, ServeEvent, ServeOptions};
use serde_json::json;

use super::args::Options;
use super::course::Facts;
use super::page::{Page, PidFile};
use super::text;
use crate::{files, run};

/// Serves until a signal, or with `-1` until one test is over; returns the exit status.
pub(super) fn run(options: &Options, words: &[String]) -> u8 {
    let served = if options.daemon { daemon(words) } else { serve(options) };
    match served {
        Ok(()) => 0,
        Err(words) => {
            let page = Page::new(options);
            page.into_iter().for_each(|mut page| page.error(&format!("error - {words}")));
            1
        }
    }
}

/// Starts the same server in the background, without a terminal.
fn daemon(words: &[String]) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| text::kernels(&error))?;
    let rest = words.iter().filter_map(|word| match word.strip_prefix('-') {
        _ if word == "--daemon" => None,
        Some(letters)
            if !letters.starts_with('-') && letters.chars().all(char::is_alphanumeric) =>
        {
            let letters = letters.replace('D', "");
            (!letters.is_empty()).then(|| format!("-{letters}"))
        }
        _ => Some(word.clone()),
    });
    let mut command = Command::new(program);
    command.arg("iperf3").args(rest).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = command.spawn();
    spawned.map_err(|error| format!("unable to become a daemon: {}", text::kernels(&error)))?;
    Ok(())
}

fn serve(options: &Options) -> Result<(), String> {
    let stop = run::signals().map_err(|failure| failure.chain())?;
    let limit = Some(options.rate_limit).filter(|rate| *rate > 0);
    let seconds = match options.max_duration {
        0 => linerate_core::plan::MAX_SECONDS,
        seconds => f64::from(seconds),
    };
    let interval_s = if options.interval_s > 0.0 { options.interval_s } else { 60.0 };
    let serve = ServeOptions {
        port: options.port,
        bind: options.bind.as_ref().map(|bind| address(bind)).transpose()?,
        family: options.family,
        iperf3: access(options)?.map(Arc::new),
        one_off: options.one_off,
        live: Some(Duration::from_secs_f64(interval_s)),
        ..ServeOptions::within(Limits {
            clients: 1,
            streams: 256,
            seconds,
            rate_bps: limit,
            connections: 0,
        })
    };
    let cannot_listen = |error| {
        let why = text::error(&error);
        format!("unable to start listener for connections: {why}")
    };
    let endpoint = Endpoint::bind(&serve).map_err(cannot_listen)?;
    let _pidfile = PidFile::new(options)?;
    let desk = Mutex::new(Desk::new(options)?);
    let served = endpoint.serve(&stop, move |event| {
        // If the thread of a test panicked, the next test is served all the same.
        let mut desk = desk.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        desk.take(&event);
    });
    served.map_err(|error| text::error(&error))
}

fn address(name: &str) -> Result<IpAddr, String> {
    let found = (name, 0).to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(address)) => Ok(address.ip()),
        _ => Err("unable to start listener for connections: Name or service not known".to_owned()),
    }
}

fn access(options: &Options) -> Result<Option<Iperf3Access>, String> {
    let (Some(users), Some(key)) = (&options.users, &options.private_key) else {
        return Ok(None);
    };
    let read = files::read_iperf3_access(users.as_ref(), key.as_ref(), options.pkcs1);
    read.map(|(access, _)| Some(access)).map_err(|failure| failure.chain())
}

/// Prints the events of one test after another.
struct Desk {
    options: Options,
    number: u32,
    page: Page,
    /// The client's test, once it is known.
    facts: Option<Facts>,
}

impl Desk {
    fn new(options: &Options) -> Result<Self, String> {
        let mut desk =
            Self { options: options.clone(), number: 1, page: Page::new(options)?, facts: None };
        desk.listening();
        Ok(desk)
    }

    fn listening(&mut self) {
        let line = format!("Server listening on {} (test #{})", self.options.port, self.number);
        [text::RULE, &line, text::RULE].iter().for_each(|line| self.page.line(line));
    }

    fn take(&mut self, event: &ServeEvent) {
        match event {
            ServeEvent::Connected { peer } => {
                let (host, port) = (peer.ip().to_canonical(), peer.port());
                self.page.line(&format!("Accepted connection from {host}, port {port}"));
                let accepted = json!({"host": host.to_string(), "port": port});
                self.page.set_start("accepted_connection", accepted);
            }
            ServeEvent::Running { running, .. } => self.running(running),
            ServeEvent::Served { record, .. } => self.page.verdict(record),
            ServeEvent::Tested { .. } => self.page.line("a test of linerate's own"),
            ServeEvent::Disconnected { reason, .. } => {
                match reason {
                    Some(reason) => self.page.error(&format!("error - {reason}")),
                    None => self.page.document(),
                }
                self.next();
            }
            ServeEvent::Refused { reason, .. } => self.page.line(&format!("refused: {reason}")),
            ServeEvent::LeftOut { what, .. } => self.page.line(&format!("left out: {what}")),
            ServeEvent::Treated { .. } | ServeEvent::Untreated { .. } => {}
        }
    }

    fn running(&mut self, running: &Running) {
        if let Some(accounts) = &running.accounts {
            return self.page.finish(accounts);
        }
        let interval_s = self.options.interval_s;
        let facts = self.facts.get_or_insert_with(|| Facts {
            is_client: false,
            test: running.test.clone(),
            cookie: running.cookie.clone(),
            mss: None,
            interval_s,
        });
        self.page.look(facts, running.at_s, &running.flows);
    }

    fn next(&mut self) {
        self.number += 1;
        self.facts = None;
        // If the log file cannot be opened any more, the old one is written on.
        if let Ok(page) = Page::new(&self.options) {
            self.page = page;
        }
        if !self.options.one_off {
            self.listening();
        }
    }
}
