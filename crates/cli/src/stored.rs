//! What an argument FILE names: a file, standard input, or a run of the history.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use linerate_history::Place;
use linerate_report::document::StoredDocument;
use linerate_report::html;

use crate::args::WhichRun;
use crate::failure::Failure;
use crate::files::{self, MAX_DOCUMENT, named};
use crate::history;
use crate::unpack::unpacked;

/// The saved run that an argument names; `None` where a file has that name, or no run can.
pub(crate) fn saved_run(path: &Path) -> Option<WhichRun> {
    let name = path.to_str().filter(|_| !path.exists())?;
    name.parse().ok()
}

/// The bytes of a file, standard input or a saved run; `limit` at most.
///
/// # Errors
/// As [`Opened::new`], or there are more.
pub(crate) fn read(
    option: &str,
    path: &Path,
    db: Option<&Place>,
    limit: u64,
) -> Result<Vec<u8>, Failure> {
    let opened = Opened::new(option, path, db)?;
    files::read_open(opened.bytes, &opened.name, limit).map_err(Failure::usage)
}

/// A file, standard input or a saved run, whose first bytes were read.
pub(crate) struct Opened {
    /// Its name in messages.
    pub(crate) name: String,
    /// Its size, unless it is unpacked.
    pub(crate) size: Option<u64>,
    head: [u8; 4],
    is_empty: bool,
    /// All its bytes, from the beginning; those in a gzip or zstd file.
    pub(crate) bytes: Box<dyn Read + Send>,
}

impl Opened {
    /// Opens what `option` names, which is empty for an argument: `-` is standard input; where
    /// there is no file of that name, a number, a label or `last` is a run of the history at `db`.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(crate) fn new(option: &str, path: &Path, db: Option<&Place>) -> Result<Self, Failure> {
        let name = named(option, path);
        if path == Path::new("-") {
            let name = "standard input".to_owned();
            return Self::begun(name, None, Box::new(io::stdin())).map_err(Failure::usage);
        }
        if let Some(which) = saved_run(path) {
            let found = history::newest(&which, db).map_err(|failure| failure.at(name.clone()))?;
            let (id, text) = found.ok_or_else(|| {
                Failure::usage(anyhow!(
                    "{name}: there is no such file and no such saved run; `linerate history` \
                     lists the runs"
                ))
            })?;
            let name = format!("run {id} of the history");
            return Self::begun(name, None, Box::new(Cursor::new(text))).map_err(Failure::usage);
        }
        let open = || {
            let file = File::open(path).with_context(|| name.clone())?;
            let size = file.metadata().ok().filter(|file| file.is_file());
            Self::begun(name.clone(), size.map(|file| file.len()), Box::new(file))
        };
        open().map_err(Failure::usage)
    }

    /// The contents of a file of that size, unpacked.
    fn begun(name: String, size: Option<u64>, file: Box<dyn Read + Send>) -> anyhow::Result<Self> {
        let (begin, bytes) = begun(file).with_context(|| name.clone())?;
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
    fn may_be_a_document(&self) -> bool {
        let begin = self.head.iter().find(|byte| !byte.is_ascii_whitespace());
        matches!(begin, None | Some(b'{' | b'[' | b'<' | 0xef)) || self.is_empty
    }

    /// What it is, and the command that makes of it what is read.
    fn converted_by(&self) -> Option<(&'static str, &'static str)> {
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

    /// Its documents: one, or those of a report.
    ///
    /// # Errors
    /// It has none; the error says what to do with it instead of giving it to `command`.
    pub(crate) fn documents(self, command: &str) -> anyhow::Result<Vec<StoredDocument>> {
        let name = self.name.clone();
        if self.is_capture() {
            bail!(
                "{name}: a packet capture: linerate explain {name} --json --output FILE, then FILE"
            );
        }
        if let Some((what, converted)) = self.converted_by() {
            bail!("{name}: {what}: {converted} | linerate {command} -");
        }
        if !self.may_be_a_document() {
            let other = match command {
                "explain" => "a packet capture (pcap, pcapng, snoop)",
                _ => "a page of `linerate report` (HTML)",
            };
            bail!("{name}: it is neither a linerate document (JSON) nor {other}");
        }
        let bytes = files::read_open(self.bytes, &name, MAX_DOCUMENT)?;
        let documents = html::documents(&bytes).with_context(|| name.clone())?;
        ensure!(!documents.is_empty(), "{name}: an HTML page without a document of linerate");
        Ok(documents)
    }

    /// Its only document.
    ///
    /// # Errors
    /// As [`Opened::documents`], or it is a report of several.
    pub(crate) fn document(self, command: &str) -> anyhow::Result<StoredDocument> {
        let name = self.name.clone();
        let mut documents = self.documents(command)?;
        ensure!(
            documents.len() == 1,
            "{name}: a report of {} documents; {command} takes a file with one",
            documents.len()
        );
        Ok(documents.remove(0))
    }
}

/// The first four bytes, and all.
fn begun(mut bytes: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut begin = Vec::new();
    bytes.by_ref().take(4).read_to_end(&mut begin)?;
    let all = Cursor::new(begin.clone()).chain(bytes);
    Ok((begin, Box::new(all)))
}
