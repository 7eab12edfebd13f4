//! Writes the output as text, as one JSON document or as a JSON line for each event.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};

use linerate_core::record::Record;
use linerate_core::units::printable;
use linerate_engine::{Accounts, LiveFlow};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Value, json};

use super::args::Options;
use super::course::{Facts, Iperf3Course, Row, totals};
use super::{json, text};

/// The output of one test.
pub(super) struct Page {
    options: Options,
    file: Option<File>,
    facts: Option<Facts>,
    course: Option<Iperf3Course>,
    /// The latest state of the flows.
    last: Option<(f64, Vec<LiveFlow>)>,
    has_heading: bool,
    start: Value,
    intervals: Vec<Value>,
    end: Value,
    /// Keys of the document beside start, intervals and end.
    beside: Vec<(&'static str, Value)>,
}

impl Page {
    /// The output of a test that is about to begin. The log file is opened.
    ///
    /// # Errors
    /// The log file cannot be opened.
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        let open = |path: &String| OpenOptions::new().append(true).create(true).open(path);
        let file = options.logfile.as_ref().map(open).transpose();
        let words = |error| format!("unable to open log file: {}", text::kernels(&error));
        Ok(Self {
            options: options.clone(),
            file: file.map_err(words)?,
            facts: None,
            course: None,
            last: None,
            has_heading: false,
            start: json::start(),
            intervals: Vec::new(),
            end: json!({}),
            beside: Vec::new(),
        })
    }

    /// Prints a line of text, unless the output is JSON.
    pub(super) fn line(&mut self, line: &str) {
        if !self.options.json {
            let Options { title, timestamps, .. } = &self.options;
            let title = title.as_ref().map(|title| format!("{title}:  ")).unwrap_or_default();
            let when = timestamps.as_ref().map(|format| text::moment(format, false));
            self.write(&format!("{}{title}{line}\n", when.unwrap_or_default()));
        }
    }

    fn lines(&mut self, lines: &[String]) {
        lines.iter().for_each(|line| self.line(line));
    }

    /// The test goes on even if nobody reads the output: its exit status counts.
    fn write(&mut self, text: &str) {
        let _ = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()),
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
            }
        };
    }

    /// Prints an error on stderr, in the log file, or in the document.
    pub(super) fn error(&mut self, words: &str) {
        let words = printable(words);
        if self.options.json {
            self.beside.push(("error", json!(words)));
            return self.document();
        }
        let line = format!("iperf3: {words}\n");
        match &self.file {
            Some(_) => self.write(&line),
            // If stderr cannot be written, nobody can be told.
            None => drop(io::stderr().write_all(line.as_bytes())),
        }
    }

    /// Sets a key of the document's start.
    pub(super) fn set_start(&mut self, key: &str, value: Value) {
        self.start[key] = value;
    }

    /// Prints what is known when the flows are connected and the test begins.
    fn begin(&mut self, facts: &Facts, flows: &[LiveFlow]) {
        let options = self.options.clone();
        json::started(&mut self.start, facts, flows, &options);
        let connected = flows.iter().filter_map(|flow| text::connected(facts, flow));
        self.lines(&connected.collect::<Vec<_>>());
        if options.verbose {
            let tos = facts.test.options.dscp.map_or(0, |dscp| dscp.octet());
            self.line(&text::starting(facts, tos));
        }
        if options.json_stream {
            self.event("start", &self.start.clone());
        }
        self.course = Some(Iperf3Course::new(facts));
        self.facts = Some(facts.clone());
    }

    /// Takes the current state of the flows, and prints an interval that has ended.
    pub(super) fn look(&mut self, facts: &Facts, at_s: f64, flows: &[LiveFlow]) {
        if self.course.is_none() {
            self.begin(facts, flows);
        }
        let course = self.course.as_mut();
        let rows = course.and_then(|course| course.look(at_s, flows));
        self.last = Some((at_s, flows.to_vec()));
        rows.iter().for_each(|rows| self.interval(facts, rows));
    }

    fn interval(&mut self, facts: &Facts, rows: &[Row]) {
        if self.options.json {
            let interval = json::interval(facts, rows);
            if self.options.json_stream {
                self.event("interval", &interval);
            }
            if !self.options.json_stream || self.options.full_stream {
                self.intervals.push(interval);
            }
            return;
        }
        if !std::mem::replace(&mut self.has_heading, true) {
            self.line(&text::interval_heading(facts));
        } else if facts.test.streams > 1 {
            self.line(text::SEPARATOR);
        }
        self.lines(&text::interval(facts, rows, self.options.format));
    }

    /// Prints the summary of what both ends counted.
    pub(super) fn finish(&mut self, accounts: &Accounts) {
        let (Some(facts), Some(mut course)) = (self.facts.clone(), self.course.take()) else {
            return;
        };
        if let Some((at_s, flows)) = self.last.take()
            && let Some(rows) = course.rest(at_s, &flows)
        {
            self.interval(&facts, &rows);
        }
        let totals = totals(&facts, accounts);
        self.line(text::SEPARATOR);
        if self.options.verbose {
            self.line("Test Complete. Summary Results:");
        }
        self.lines(&text::summary(&facts, &totals, self.options.format));
        if self.options.verbose {
            self.ends(&facts, accounts);
        }
        self.end = json::end(&facts, &course, &totals, accounts);
        let output = accounts.there.as_ref().and_then(|there| there.output.as_ref());
        if let Some(output) = output.filter(|_| self.options.server_output) {
            match serde_json::from_str(output) {
                Ok(json @ Value::Object(_)) => self.beside.push(("server_output_json", json)),
                _ => self.beside.push(("server_output_text", json!(output))),
            }
            self.line(&format!("\nServer output:\n{}", printable_lines(output)));
        }
    }

    /// Prints CPU time and congestion control, for `-V`.
    fn ends(&mut self, facts: &Facts, accounts: &Accounts) {
        let name = |sends: bool| if sends { "sender" } else { "receiver" };
        let share = |(user, system): (f64, f64)| {
            format!("{:.1}% ({user:.1}%u/{system:.1}%s)", user + system)
        };
        let there = accounts.there.as_ref();
        let cpu = format!(
            "CPU Utilization: local/{} {}, remote/{} {}",
            name(facts.sends()),
            share(accounts.here.cpu_percent),
            name(!facts.sends()),
            share(there.map_or((0.0, 0.0), |there| there.cpu_percent))
        );
        self.line(&cpu);
        if !facts.is_udp() {
            let [sender, receiver] = json::congestions(facts, accounts);
            for (name, of) in [("snd", sender), ("rcv", receiver)] {
                of.iter().for_each(|of| self.line(&format!("{name}_tcp_congestion {of}")));
            }
        }
    }

    /// Adds the bottleneck, unless it is not wanted.
    pub(super) fn verdict(&mut self, record: &Record) {
        if self.options.no_verdict {
            return;
        }
        if let Some(line) = text::bottleneck(record) {
            self.line(&line);
        }
        if let Some(bottleneck) = json::bottleneck(record) {
            self.end["bottleneck"] = bottleneck;
        }
    }

    /// Prints the document, if the output is JSON.
    pub(super) fn document(&mut self) {
        if !self.options.json {
            return;
        }
        let texts = [("title", &self.options.title), ("extra_data", &self.options.extra_data)];
        for (key, text) in texts {
            self.beside.extend(text.iter().map(|text| (key, json!(text))));
        }
        if self.options.json_stream {
            for (key, value) in self.beside.clone() {
                self.event(key, &value);
            }
            self.event("end", &self.end.clone());
            if !self.options.full_stream {
                return;
            }
        }
        let mut document = json!({
            "start": self.start,
            "intervals": self.intervals,
            "end": self.end,
        });
        for (key, value) in &self.beside {
            document[*key] = value.clone();
        }
        let document = json::numbers(document);
        let mut text = Vec::new();
        let mut serializer =
            Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"\t"));
        document.serialize(&mut serializer).expect("a document in memory can be written");
        text.push(b'\n');
        self.write(&String::from_utf8_lossy(&text));
    }

    fn event(&mut self, name: &str, data: &Value) {
        let is_told = !["title", "extra_data"].contains(&name);
        if is_told {
            // In iperf3's order, by which scripts find the events of a kind.
            let (name, data) = (json!(name), json::numbers(data.clone()));
            self.write(&format!("{{\"event\":{name},\"data\":{data}}}\n"));
        }
    }
}

/// The peer's lines without control characters.
fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n")
}

/// The PID file, which is removed on drop.
pub(super) struct PidFile(Option<String>);

impl PidFile {
    /// Writes the file of `--pidfile`, if there is one.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        if let Some(path) = &options.pidfile {
            fs::write(path, format!("{}\n", std::process::id()))
                .map_err(|error| format!("unable to write PID file: {}", text::kernels(&error)))?;
        }
        Ok(Self(options.pidfile.clone()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Somebody else may have removed it.
            let _ = fs::remove_file(path);
        }
    }
}
