#![forbid(unsafe_code)]
//! The truth test: how often linerate's verdict names the cause of runs whose cause is known by
//! construction.
//!
//! It draws scenarios from a seed, runs each in a lab of its own, and counts how often the verdict
//! is right and how often its remedy brings what it predicts. It is no part of the program
//! `linerate`, which does not depend on it.
//!
//! | module | what is in it |
//! |---|---|
//! | [`args`] | the command line |
//! | [`run`] | what the program does: draws, runs, keeps, judges again |
//! | [`scenario`] | what is to be run, and which verdicts on it are right |
//! | [`lab`] | a run of a scenario |
//! | [`trial`] | a scenario's answer, and whether it is right |
//! | [`remedy`] | a verdict's remedy applied, and what it brought |
//! | [`score`] | the document: the counts, with intervals |
//! | [`page`] | the document as a page |

mod args;
mod lab;
mod page;
mod remedy;
mod run;
mod scenario;
mod score;
mod trial;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use linerate_core::units::printable;
use linerate_engine::{Categorized as _, Category, LabError};

use args::TruthArgs;
use lab::WatchArgs;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let done = match words.get(1) {
        Some(word) if word == WatchArgs::COMMAND => run::watch(&WatchArgs::parse_from(&words[1..])),
        _ => run::execute(&TruthArgs::parse_from(&words)),
    };
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    // If stderr cannot be written, the exit status has to suffice.
    let _ = writeln!(io::stderr(), "linerate-truth: {}", printable(&format!("{error:#}")));
    let lab = error.downcast_ref::<LabError>();
    let is_missing = lab.is_some_and(|error| error.category() == Category::Missing);
    ExitCode::from(if is_missing { 3 } else { 1 })
}
