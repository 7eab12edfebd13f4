//! `linerate iperf3 …`, or this program under the name `iperf3`: iperf3's command line, text, JSON
//! and exit status for linerate's tests.
//!
//! The client speaks iperf3's protocol with a real iperf3 or `linerate serve`; the server is
//! linerate's endpoint, for one client at a time.

pub(crate) mod args;
mod client;
mod course;
mod json;
mod page;
mod server;
mod text;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use self::args::{Asked, Misuse};

/// iperf3's words of a command line, if this program was called as iperf3.
pub(crate) fn words_of(words: &[OsString]) -> Option<Vec<OsString>> {
    let name = words.first().and_then(|word| Path::new(word).file_name());
    match words {
        [_, rest @ ..] if name.is_some_and(|name| name == "iperf3") => Some(rest.to_vec()),
        [_, command, rest @ ..] if command == "iperf3" => Some(rest.to_vec()),
        [_, help, command] if help == "help" && command == "iperf3" => Some(vec!["-h".into()]),
        _ => None,
    }
}

/// Does what iperf3 would do, and returns its exit status.
pub(crate) fn execute(words: &[OsString]) -> u8 {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match args::parse(&words) {
        Ok(Asked::Help) => print(text::HELP),
        Ok(Asked::Version) => print(&format!("{}\n{}\n", text::version(), text::system())),
        Ok(Asked::Client(options)) => kept_to(options.cpu, || client::run(&options)),
        Ok(Asked::Server(options)) => kept_to(options.cpu, || server::run(&options, &words)),
        Err(misuse) => refuse(&misuse),
    }
}

/// Runs on the CPU of `-A`, if one was given.
fn kept_to(cpu: Option<u32>, run: impl FnOnce() -> u8) -> u8 {
    match cpu.map(|cpu| linerate_engine::set_affinity(&[cpu])) {
        Some(Err(_)) => refuse(&Misuse::Parameter("unable to set CPU affinity".to_owned())),
        _ => run(),
    }
}

/// What `--help` prints.
pub(crate) fn help() -> &'static str {
    text::HELP
}

fn print(text: &str) -> u8 {
    u8::from(std::io::stdout().write_all(text.as_bytes()).is_err())
}

/// Prints why the command line is refused. iperf3's exit status is then always 1.
fn refuse(misuse: &Misuse) -> u8 {
    let line = match misuse {
        Misuse::Getopt(words) => words.clone(),
        Misuse::Parameter(words) => format!("parameter error - {words}"),
    };
    // If stderr cannot be written, the exit status has to suffice.
    let _ = write!(std::io::stderr(), "iperf3: {line}\n\n{}", text::USAGE);
    1
}
