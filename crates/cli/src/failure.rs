//! Errors, and the exit status that tells scripts what kind of error it was.

use std::io::{self, Write as _};
use std::process::ExitCode;

use linerate_core::units::printable;
use linerate_engine::{Categorized, Category, MeasureError};

/// An error that ends the command, with its kind.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: FailureKind,
    error: anyhow::Error,
}

/// Why a command ends without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// The run failed, or a gate that the user set did.
    Failed,
    /// The command line, a name or a file is wrong.
    Usage,
    /// This host lacks something.
    Unsupported,
    /// The exit status is the result; everything is printed already.
    Finding(u8),
    /// The reader of stdout ended (`| head`): the rest of the output is lost.
    ReaderGone,
}

/// An error of the engine, with the exit status of its category.
impl<E: Categorized> From<E> for Failure {
    fn from(error: E) -> Self {
        let kind = match error.category() {
            Category::Failed => FailureKind::Failed,
            Category::Usage => FailureKind::Usage,
            Category::Missing => FailureKind::Unsupported,
        };
        Self::new(kind, error)
    }
}

impl Failure {
    /// The run failed (refused, unreachable, timed out, peer lost, disk full), or a gate did.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::new(FailureKind::Failed, error)
    }

    /// The command line, a name or a file is wrong.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::new(FailureKind::Usage, error)
    }

    /// This host lacks something; the message says what, and how to get it.
    pub(crate) fn unsupported(error: impl Into<anyhow::Error>) -> Self {
        Self::new(FailureKind::Unsupported, error)
    }

    /// Nothing went wrong: the exit status is the result.
    pub(crate) fn of_status(status: u8) -> Self {
        Self::new(FailureKind::Finding(status), anyhow::anyhow!("exit status {status}"))
    }

    /// Puts the file, or whatever the error is about, before it.
    pub(crate) fn at(self, place: String) -> Self {
        Self::new(self.kind, self.error.context(place))
    }

    /// Writing the document to stdout failed.
    pub(crate) fn stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            let lost = "stdout was closed before all of it was written";
            return Self::new(FailureKind::ReaderGone, anyhow::anyhow!("{lost}{KEPT}"));
        }
        Self::failed(anyhow::Error::new(error).context("stdout"))
    }

    /// There was no stdout from the beginning (`>&-`).
    pub(crate) fn no_stdout() -> Self {
        Self::failed(anyhow::anyhow!("stdout is closed{KEPT}"))
    }

    /// Whether the reader of stdout went away.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.kind == FailureKind::ReaderGone
    }

    /// Whether the endpoint had no room.
    pub(crate) fn is_busy(&self) -> bool {
        let cause = self.error.downcast_ref::<MeasureError>();
        cause.is_some_and(MeasureError::is_busy)
    }

    /// Prints the chain of causes as one line on stderr and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self.kind, FailureKind::Finding(_)) {
            // If stderr cannot be written, the exit status has to suffice.
            let _ = writeln!(io::stderr(), "{}", self.line());
        }
        ExitCode::from(self.status())
    }

    /// The exit status, which scripts rely on.
    fn status(&self) -> u8 {
        match self.kind {
            FailureKind::Finding(status) => status,
            FailureKind::Failed | FailureKind::ReaderGone => 1,
            FailureKind::Usage => 2,
            FailureKind::Unsupported => 3,
        }
    }

    /// `linerate: what: why: …`
    fn line(&self) -> String {
        format!("linerate: {}", self.chain())
    }

    /// `what: why: …`
    pub(crate) fn chain(&self) -> String {
        let causes: Vec<String> =
            self.error.chain().map(|c| shown(&without_passwords(plain(&c.to_string())))).collect();
        causes.join(": ")
    }

    fn new(kind: FailureKind, error: impl Into<anyhow::Error>) -> Self {
        Self { kind, error: error.into() }
    }
}

/// The message of the kernel or the resolver, without what Rust puts around it: ` (os error 2)`.
fn plain(cause: &str) -> &str {
    let lookup = "failed to lookup address information: ";
    let cause = cause.split_once(lookup).map_or(cause, |(_, why)| why);
    match cause.rsplit_once(" (os error ") {
        Some((words, number)) if number.trim_start_matches(|c: char| c.is_ascii_digit()) == ")" => {
            words
        }
        _ => cause,
    }
}

/// A hint for users who want the document and not the page.
const KEPT: &str = "; --output FILE keeps the whole document";

/// Prints a line on stderr.
pub(crate) fn note(text: &str) {
    // If stderr cannot be written, nobody can be told.
    let _ = writeln!(io::stderr(), "linerate: {}", shown(&without_passwords(text)));
}

/// Text for a terminal or a log: printable, and with blanks that `grep` finds. A page's figures
/// have others, which hold them on one line.
pub(crate) fn shown(text: &str) -> String {
    printable(text).replace('\u{a0}', " ")
}

/// The text with its URLs shown without passwords: one stands behind the name of a user, or is a
/// parameter. In a URL of NATS a name that stands alone is a token, as secret as a password.
pub(crate) fn without_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, url)) = rest.split_once("://") {
        let is_end = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
        let end = url.find(is_end).unwrap_or(url.len());
        // Of several with commas, the first.
        let next = url[..end].find("://").map(|next| &url[..next]);
        let end = next.map_or(end, |until| until.rfind(',').unwrap_or(0));
        let (url, after) = url.split_at(end);
        let (main, parameters) = url.split_once('?').unwrap_or((url, ""));
        let (user, host) = main.rsplit_once('@').unwrap_or((main, ""));
        let is_of_nats = ["nats", "tls"].iter().any(|it| before.ends_with(it));
        shown += &format!("{before}://");
        shown += &match user.split_once(':') {
            Some((user, _)) if !host.is_empty() => format!("{user}@{host}"),
            // A value that is too long for a message was cut within the password.
            Some((user, cut)) if !user.contains(['/', '[']) && !is_port(cut) => format!("{user}:…"),
            None if !host.is_empty() && is_of_nats => format!("…@{host}"),
            _ => main.to_owned(),
        };
        let parameters =
            parameters.split('&').filter(|it| !it.is_empty() && !it.starts_with("password="));
        for (place, parameter) in parameters.enumerate() {
            shown += if place == 0 { "?" } else { "&" };
            shown += parameter;
        }
        rest = after;
    }
    shown + rest
}

/// Whether a port begins the text, or the word that stands for one in a help text.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) || text.starts_with("PORT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_one_line_with_every_cause() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
        let chain = anyhow::Error::new(refused).context("cannot connect").context("pit:5201");
        assert_eq!(
            Failure::failed(chain).line(),
            "linerate: pit:5201: cannot connect: connection refused"
        );
    }

    #[test]
    fn errors_of_the_host_are_printed_without_rusts_additions() {
        let error = io::Error::from_raw_os_error(2);
        let line = Failure::usage(anyhow::Error::new(error).context("x.toml")).line();
        assert_eq!(line, "linerate: x.toml: No such file or directory");
        assert_eq!(plain("a (os error x)"), "a (os error x)");
        let lookup = "failed to lookup address information: Name or service not known";
        assert_eq!(plain(lookup), "Name or service not known");
    }

    #[test]
    fn what_is_shown_has_plain_blanks_and_nothing_that_moves_a_cursor() {
        assert_eq!(shown("94.1\u{a0}Mbit/s\x1b[2J").split(' ').next(), Some("94.1"));
        assert!(!shown("\x1b[2J").contains('\x1b'));
    }

    #[test]
    fn no_url_in_a_message_shows_its_password() {
        for (given, shown) in [
            ("postgres://me:a:b@db/x", "postgres://me@db/x"),
            (
                "postgres://me:p@w/x@db:5/x?connect_timeout=3",
                "postgres://me@db:5/x?connect_timeout=3",
            ),
            ("postgresql:///x?host=/run&password=p&user=u", "postgresql:///x?host=/run&user=u"),
            (
                "--bus nats://u:p@a,tls://tok@b:4222: no answer",
                "--bus nats://u@a,tls://…@b:4222: no answer",
            ),
            ("'http://u:p@h/x', `http://h:80/x`", "'http://u@h/x', `http://h:80/x`"),
            ("nats://u:a-password-that-was-cut", "nats://u:…"),
            ("http://[2001:2::1]:80/x", "http://[2001:2::1]:80/x"),
            ("http://HOST:PORT", "http://HOST:PORT"),
            ("a:// b://", "a:// b://"),
            ("ssh://me@pit is not known", "ssh://me@pit is not known"),
            ("no URL, me:p@w", "no URL, me:p@w"),
        ] {
            assert_eq!(without_passwords(given), shown);
            let line = Failure::failed(anyhow::anyhow!("{given}")).line();
            assert_eq!(line, format!("linerate: {shown}"));
        }
    }

    #[test]
    fn each_kind_has_its_exit_status() {
        let statuses = [
            Failure::failed(anyhow::anyhow!("x")).status(),
            Failure::usage(anyhow::anyhow!("x")).status(),
            Failure::unsupported(anyhow::anyhow!("x")).status(),
            Failure::stdout(io::ErrorKind::StorageFull.into()).status(),
            Failure::stdout(io::ErrorKind::BrokenPipe.into()).status(),
            Failure::of_status(11).status(),
        ];
        assert_eq!(statuses, [1, 2, 3, 1, 1, 11]);
    }
}
