//! `explain FILE` of a packet capture.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use linerate_core::capture::{Capture, CaptureError, Selection, follow_selected};
use linerate_core::connection::ConnectionsDocument;
use linerate_core::units::format_rfc3339;

use crate::args::{CaptureOptions, ExplainArgs};
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::progress::Progress;
use crate::unpack::unpacked;
use crate::{connections, run};

/// A file, or standard input, whose first bytes were read.
pub(crate) struct Opened {
    /// Its name in messages.
    pub(crate) name: String,
    /// Its size, unless it is unpacked.
    size: Option<u64>,
    head: [u8; 4],
    is_empty: bool,
    /// All its bytes, from the beginning; those in a gzip or zstd file.
    pub(crate) bytes: Box<dyn Read + Send>,
}

impl Opened {
    /// Opens `path`; `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let is_stdin = name == "-";
        let name = if is_stdin { "standard input".to_owned() } else { name };
        let (size, bytes): (_, Box<dyn Read + Send>) = if is_stdin {
            (None, Box::new(io::stdin()))
        } else {
            let file = File::open(path).with_context(|| name.clone())?;
            let size = file.metadata().ok().filter(|file| file.is_file());
            (size.map(|file| file.len()), Box::new(file))
        };
        let (begin, bytes) = begun(bytes).with_context(|| name.clone())?;
        let (size, (begin, bytes)) = match unpacked(&begin, bytes) {
            Ok(bytes) => (None, begun(bytes).with_context(|| name.clone())?),
            Err(bytes) => (size, (begin, bytes)),
        };
        let mut head = [0; 4];
        head[..begin.len()].copy_from_slice(&begin);
        Ok(Self { name, size, head, is_empty: begin.is_empty(), bytes })
    }

    /// Whether it begins like pcap, in both byte orders and resolutions, pcapng or snoop.
    pub(crate) fn is_capture(&self) -> bool {
        let magic = u32::from_be_bytes(self.head);
        let either = [magic, magic.swap_bytes()];
        let pcap = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34];
        magic == 0x0a0d_0d0a
            || self.head == *b"snoo"
            || either.iter().any(|magic| pcap.contains(magic))
    }

    /// Whether it begins like JSON or HTML, or is empty.
    pub(crate) fn may_be_a_document(&self) -> bool {
        let begin = self.head.iter().find(|byte| !byte.is_ascii_whitespace());
        matches!(begin, None | Some(b'{' | b'[' | b'<' | 0xef)) || self.is_empty
    }

    /// What it is, and the command that makes of it what is read.
    pub(crate) fn converted_by(&self) -> Option<(&'static str, &'static str)> {
        let unpack = |command| Some(("it is compressed", command));
        match &self.head {
            [0xfd, b'7', b'z', b'X'] => unpack("xz -dc FILE"),
            [b'B', b'Z', b'h', _] => unpack("bzip2 -dc FILE"),
            [0x04, 0x22, 0x4d, 0x18] => unpack("lz4 -dc FILE"),
            // Network Monitor, Sniffer, iptrace.
            b"GMBU" | b"RTSS" | b"TRSN" | b"iptr" => {
                Some(("a capture of another format", "editcap -F pcapng FILE -"))
            }
            _ => None,
        }
    }
}

/// The first four bytes, and all.
fn begun(mut bytes: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut begin = Vec::new();
    (&mut bytes).take(4).read_to_end(&mut begin)?;
    let all = Cursor::new(begin.clone()).chain(bytes);
    Ok((begin, Box::new(all)))
}

/// Explains the connections of a capture.
///
/// # Errors
/// It is no capture of TCP, cannot be read, or has no connection that was asked for.
pub(crate) fn execute(args: &ExplainArgs, format: Format, opened: Opened) -> Result<(), Failure> {
    let output = Output::open(&args.document, format)?;
    let Opened { name, size, bytes, .. } = opened;
    let stop = run::signals()?;
    let mut progress = Progress::new(format, args.document.quiet);
    let CaptureOptions { port, peer, .. } = &args.capture;
    let asked = Selection { ports: port.clone(), peer: *peer };
    let found = follow_selected(bytes, MAX_CONNECTIONS, asked.clone(), |read| {
        let share =
            size.map_or_else(String::new, |size| format!("{} %, ", read * 100 / size.max(1)));
        progress.live(&format!("{name}: {share}{} MB read", read / 1_000_000));
        !stop.is_requested()
    });
    drop(progress);
    let mut capture = found.map_err(|error| failure(&name, error))?;
    keep_asked(args, &asked, &name, &mut capture)?;
    let mut document = ConnectionsDocument::from_capture(&name, &capture);
    document.started_at =
        format_rfc3339(SystemTime::UNIX_EPOCH + Duration::from_nanos(capture.began.0));
    document.asked = args.capture.asked();
    document.explained = !args.capture.flows;
    document.explain();
    output.write(&document)
}

fn failure(name: &str, error: CaptureError) -> Failure {
    Failure::usage(anyhow!(error).context(name.to_owned()))
}

/// Keeps the connections that were asked for.
fn keep_asked(
    args: &ExplainArgs,
    asked: &Selection,
    name: &str,
    capture: &mut Capture,
) -> Result<(), Failure> {
    let all = capture.flows.len();
    capture.flows.retain(|flow| asked.has(&flow.ends));
    if capture.flows.is_empty() && args.capture.asked().is_some() {
        let asked = args.capture.asked().unwrap_or_default();
        return Err(Failure::usage(anyhow!(
            "{name}: none of its {all} TCP connections is one {asked}; --flows lists them"
        )));
    }
    Ok(())
}

impl CaptureOptions {
    /// The selection in words: `with port 80 or 443`; `None` for all.
    pub(crate) fn asked(&self) -> Option<String> {
        connections::in_words(&self.port, [self.peer.map(|peer| format!("of {peer}"))])
    }
}

/// Most connections that are kept.
const MAX_CONNECTIONS: usize = 10_000;
