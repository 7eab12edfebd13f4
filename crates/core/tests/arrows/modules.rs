//! The modules at the root of a crate and which of the others each uses, read from its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where a module is used: file and line.
type Place = String;

/// The modules at a crate's root, with what each uses and where.
pub(crate) struct Modules(BTreeMap<String, BTreeMap<String, Place>>);

impl Modules {
    /// Those of a crate's `src`.
    pub(crate) fn read(src: &Path) -> Self {
        let mut files = Vec::new();
        collect(src, src, &mut files);
        files.sort();
        let texts: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        Self::from_texts(&texts)
    }

    /// Those of files, each by its path below `src` and its text.
    pub(crate) fn from_texts(files: &[(&str, &str)]) -> Self {
        let bare: Vec<(&str, Bare)> =
            files.iter().map(|(path, text)| (*path, Bare::from(text))).collect();
        let tests: BTreeSet<String> = bare
            .iter()
            .flat_map(|(path, bare)| bare.tests.iter().map(|name| [module(path), name.clone()]))
            .map(|[parent, name]| join(&parent, &name))
            .collect();
        let is_test = |path: &str| {
            let module = module(path);
            tests.iter().any(|test| module == *test || module.starts_with(&format!("{test}/")))
        };
        let bare: Vec<_> = bare.into_iter().filter(|(path, _)| !is_test(path)).collect();
        let root = |path: &str| module(path).split('/').next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> =
            bare.iter().map(|(path, _)| root(path)).filter(|name| !name.is_empty()).collect();
        let mut modules: BTreeMap<String, BTreeMap<String, Place>> =
            names.iter().map(|name| (name.clone(), BTreeMap::new())).collect();
        for (path, bare) in &bare {
            let user = root(path);
            let Some(uses) = modules.get_mut(&user) else {
                continue;
            };
            for (line, used) in bare.uses(module(path).split('/').count()) {
                if names.contains(&used) && used != user {
                    uses.entry(used).or_insert_with(|| format!("{path}:{line}"));
                }
            }
        }
        Self(modules)
    }

    /// How many modules there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// What a module uses.
    pub(crate) fn uses(&self, name: &str) -> Vec<&str> {
        self.0[name].keys().map(String::as_str).collect()
    }

    /// The shortest cycle, with a line for each of its arrows.
    pub(crate) fn cycle(&self) -> Option<String> {
        let cycles = self.0.keys().filter_map(|start| self.way_back(start));
        let way = cycles.min_by_key(Vec::len)?;
        let arrows = way.windows(2).map(|arrow| {
            let [from, to] = [arrow[0], arrow[1]];
            format!("\n  {} uses {to}", self.0[from][to])
        });
        Some(way.join(" -> ") + &arrows.collect::<String>())
    }

    /// The shortest way from a module back to itself.
    fn way_back<'a>(&'a self, start: &'a str) -> Option<Vec<&'a str>> {
        let mut ways = vec![vec![start]];
        let mut seen = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in &ways {
                let last = way.last().expect("a way has its start");
                for next in self.0[*last].keys() {
                    let way: Vec<&str> = way.iter().copied().chain([next.as_str()]).collect();
                    if next == start {
                        return Some(way);
                    }
                    if seen.insert(next) {
                        longer.push(way);
                    }
                }
            }
            ways = longer;
        }
        None
    }
}

fn collect(src: &Path, directory: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).expect("it is a directory") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            collect(src, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(src).expect("it is below `src`");
            let text = fs::read_to_string(&path).expect("it can be read");
            files.push((name.display().to_string(), text));
        }
    }
}

/// The module that a file is, its names parted by `/`; empty for the crate's root.
fn module(path: &str) -> String {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if matches!(path, "lib" | "main") {
        return String::new();
    }
    path.to_owned()
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        return name.to_owned();
    }
    format!("{parent}/{name}")
}

/// The lines of a file without comments and tests.
struct Bare {
    lines: Vec<String>,
    /// Modules in files of their own that are tests.
    tests: Vec<String>,
}

impl Bare {
    fn from(text: &str) -> Self {
        let mut bare = Self { lines: Vec::new(), tests: Vec::new() };
        // Where a test's item is left out: its indentation, and whether its body has begun.
        let mut left_out: Option<usize> = None;
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default().trim_end();
            let indentation = code.len() - code.trim_start().len();
            let mut kept = code;
            if let Some(item) = left_out {
                kept = "";
                let ends = indentation == item && code.ends_with([';', '}']);
                if ends {
                    left_out = None;
                    bare.tests.extend(declared(code));
                }
            } else if code.trim_start() == "#[cfg(test)]" {
                kept = "";
                left_out = Some(indentation);
            }
            bare.lines.push(kept.to_owned());
        }
        bare
    }

    /// Each module at the root that is named, with the line; `depth` is the file's own.
    fn uses(&self, depth: usize) -> Vec<(usize, String)> {
        let supers = "super::".repeat(depth);
        let text = self.lines.join("\n");
        let mut found = Vec::new();
        for prefix in ["crate::", supers.as_str()] {
            for (at, _) in text.match_indices(prefix) {
                let before = text[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let line = text[..at].matches('\n').count() + 1;
                let names = heads(&text[at + prefix.len()..]);
                found.extend(names.into_iter().map(|name| (line, name)));
            }
        }
        found
    }
}

/// The name of a module that a line such as `mod tests;` declares.
fn declared(code: &str) -> Option<String> {
    let words = code.trim().strip_suffix(';')?;
    let (_, name) = words.split_once("mod ")?;
    Some(name.to_owned())
}

/// The first name of a path, or of each path in braces.
fn heads(path: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(list) = path.strip_prefix('{') else {
        return vec![name(path)];
    };
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            _ if depth == 0 => parts.last_mut().expect("there is one").push(c),
            _ => {}
        }
    }
    parts.iter().map(|part| name(part.trim())).collect()
}
