//! The one file in sysctl.d that is ours: lines `KEY = VALUE` under a header. Lines that others
//! have put into it are kept.

/// The parsed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysctlFile {
    lines: Vec<String>,
}

impl SysctlFile {
    /// Its name. `systemd-sysctl` and sysctl(8) read the files of all directories in the order of
    /// their names: those of distributions come before it, `99-sysctl.conf` after it.
    pub const NAME: &'static str = "90-linerate.conf";

    /// Parses the file; an empty text stands for a missing file.
    pub fn parse(text: &str) -> Self {
        Self { lines: text.lines().map(str::to_owned).collect() }
    }

    /// The value of a key: the last one in the file, as in sysctl.d(5).
    pub fn value(&self, key: &str) -> Option<String> {
        let mut lines = self.lines.iter().rev();
        lines.find_map(|line| {
            let (own, value) = assignment(line)?;
            (own == key).then_some(value)
        })
    }

    /// Sets a key, in its present place or at the end.
    pub fn set(&mut self, key: &str, value: &str) {
        let line = format!("{key} = {value}");
        if self.lines.is_empty() {
            self.lines.extend(HEADER.iter().map(|&line| line.to_owned()));
        }
        let is_its = |line: &&mut String| assignment(line).is_some_and(|(own, _)| own == key);
        match self.lines.iter_mut().rev().find(is_its) {
            Some(own) => *own = line,
            None => self.lines.push(line),
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.lines.retain(|line| assignment(line).is_none_or(|(own, _)| own != key));
    }

    /// Whether the file has nothing but the header.
    pub fn is_empty(&self) -> bool {
        let is_ours = |line: &String| line.trim().is_empty() || HEADER.contains(&line.as_str());
        self.lines.iter().all(is_ours)
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Key and value of a line; none of a comment. A minus before the key means that a failure is
/// passed over.
fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (key, value) = line.split_once('=')?;
    let key = key.trim().trim_start_matches('-').trim();
    // `net/ipv4/tcp_sack` is the same key (sysctl.d(5)).
    let is_slashed = key.find(['.', '/']).is_some_and(|at| key[at..].starts_with('/'));
    let key = if is_slashed { key.chars().map(swapped).collect() } else { key.to_owned() };
    let words: Vec<&str> = value.split_whitespace().collect();
    Some((key, words.join(" ")))
}

fn swapped(c: char) -> char {
    match c {
        '/' => '.',
        '.' => '/',
        other => other,
    }
}

const HEADER: [&str; 2] = [
    "# Written by `linerate host set --persist`; `linerate host undo` takes its lines out again.",
    "# Put settings of your own into another file.",
];
