//! The pages lead to each other: every link to a file finds it, and its heading; every page is in
//! the book.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::sources;

fn pages() -> Vec<PathBuf> {
    let directories = ["", "docs", "docs/adr"].map(|name| sources().join(name));
    let files = directories.iter().flat_map(|directory| {
        let entries = fs::read_dir(directory).expect("a directory");
        entries.map(|entry| entry.expect("an entry").path())
    });
    files.filter(|path| path.extension().is_some_and(|it| it == "md")).collect()
}

/// What stands in `](…)`, but in code.
fn links(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let prose = text.lines().filter(|line| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code
    });
    let parts = prose.flat_map(|line| line.split("](").skip(1));
    parts.filter_map(|rest| rest.split_once(')').map(|(link, _)| link)).collect()
}

/// How many directories below the book's a page lies.
fn depth(page: &Path, book: &Path) -> usize {
    let within = page.strip_prefix(book).map(|path| path.components().count());
    within.map_or(0, |parts| parts - 1)
}

/// As pages for a browser name a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_finds_its_page_and_heading() {
    let book = sources().join("docs");
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().expect("it is in a directory").join(file),
            };
            assert!(target.exists(), "{}: {link}", page.display());
            // The book is made of docs/ alone.
            let leaves =
                page.starts_with(&book) && file.matches("../").count() > depth(&page, &book);
            assert!(!leaves, "{}: {link} leads out of the book", page.display());
            if !heading.is_empty() {
                let there = fs::read_to_string(&target).expect("a page");
                let mut headings = there.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|line| anchor(line) == heading), "{}: {link}", page.display());
            }
        }
    }
}

/// Phrases that a reader stumbled over.
const ODD: &[&str] = &[
    "while they rest",
    "need it not",
    "of what there was",
    "what there is of them",
    "last: when an answer",
    "nobody answers at all",
    "tell no change from chance",
    "unless it spares",
    "point to no cause",
    "taken away\\n",
    "has no place here",
    "without a word\"",
    "slept in recv",
    "is no value of",
    "is no document",
    "leave it away",
];

#[test]
fn no_message_has_a_phrase_that_readers_stumbled_over() {
    let mut directories = vec![sources().join("crates")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let is_of_tests = path.ends_with("tests") || path.ends_with("benches");
            if path.is_dir() && !is_of_tests {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                let words = code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
                let said = words.replace("\\ ", "");
                let odd = ODD.iter().find(|odd| said.contains(*odd));
                assert_eq!(odd, None, "{}", path.display());
            }
        }
    }
}

#[test]
fn every_page_of_docs_is_in_the_book() {
    let book = sources().join("docs");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("the book's contents");
    let chapters = links(&summary);
    for page in pages() {
        let Ok(page) = page.strip_prefix(&book) else {
            continue;
        };
        let name = page.to_str().expect("text");
        assert!(name == "SUMMARY.md" || chapters.contains(&name), "{name} is in no chapter");
    }
}
