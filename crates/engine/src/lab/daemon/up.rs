//! Starting the process that holds a lab.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linerate_sys::poll::wait_readable;

use super::hold::READY;
use crate::category::Category;
use crate::lab::LabError;

/// Starts this program again, with those arguments, as the process that holds a lab, gives it
/// `input` to read, and waits until it says that the lab is up. It is then on its own.
///
/// # Errors
/// [`LabError::Holder`] with the words and the exit status of that process.
pub fn start_holder<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    input: &str,
) -> Result<(), LabError> {
    let mut child = Command::new("/proc/self/exe")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| LabError::Process {
            what: "start the process that is to hold the lab",
            source,
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read it will say why.
        let _ = stdin.write_all(input.as_bytes());
    }
    match is_ready(&mut child) {
        Ok(true) => Ok(()),
        Ok(false) => Err(last_words(child)),
        Err(source) => {
            let _ = child.kill();
            let _ = child.wait();
            let what = "wait for the process that is to hold the lab";
            Err(LabError::Process { what, source })
        }
    }
}

fn is_ready(child: &mut Child) -> io::Result<bool> {
    let Some(mut stdout) = child.stdout.take() else {
        return Ok(false);
    };
    if !wait_readable(&stdout, MAX_WAIT)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut text = [0; READY.len()];
    match stdout.read_exact(&mut text) {
        Ok(()) => Ok(text == *READY.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// It has ended, or is about to: its words and its exit status are the caller's.
fn last_words(mut child: Child) -> LabError {
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(MAX_WORDS).read_to_string(&mut text);
    }
    let status = child.wait();
    let code = status.as_ref().ok().and_then(|status| status.code());
    let text = text.trim();
    let message = match (text, &status) {
        ("", Ok(status)) => format!("the process that was to hold the lab ended: {status}"),
        ("", Err(error)) => format!("the process that was to hold the lab is lost: {error}"),
        (text, _) => text.strip_prefix("linerate: ").unwrap_or(text).to_owned(),
    };
    let category = match code {
        Some(2) => Category::Usage,
        Some(3) => Category::Missing,
        _ => Category::Failed,
    };
    LabError::Holder { message, category }
}

/// 256 hosts take some ten seconds on a slow machine.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// More than a chain of causes has.
const MAX_WORDS: u64 = 16 << 10;
