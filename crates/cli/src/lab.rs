//! `lab up`, `exec`, `status` and `down`: labs that stay between commands.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, anyhow};
use linerate_core::lab::{LAB_SCHEMA, LabsDocument, Topology};
use linerate_core::remedy::shell_word;
use linerate_engine::{
    LAB_EXEC, LAB_PROCESS, LabDirectory, LabOptions, LabState, hold_lab, start_holder,
};
use linerate_report::{Document, text};

use crate::args::{LabCommand, LabDownArgs, LabExecArgs, LabHoldArgs, LabStatusArgs, LabUpArgs};
use crate::failure::Failure;
use crate::{files, output, site};

/// Does what the command line says.
///
/// # Errors
/// With the kind that decides the exit status.
pub(crate) fn execute(command: LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Up(args) => up(args),
        LabCommand::Exec(args) => exec(args),
        LabCommand::Status(args) => status(&args),
        LabCommand::Down(args) => down(&args),
        LabCommand::Hold(args) => hold(&args),
    }
}

fn up(args: LabUpArgs) -> Result<(), Failure> {
    let text = match &args.file {
        Some(path) => {
            let text = files::read_text("", path, MAX_FILE).map_err(|error| {
                let is_path = !path.exists() && path.to_string_lossy().contains('=');
                Failure::usage(if is_path {
                    anyhow!("FILE {}: an emulated path is given by --lab", path.display())
                } else {
                    error
                })
            })?;
            // Checked here, where errors can name the file.
            Topology::from_toml(&text)
                .with_context(|| path.display().to_string())
                .map_err(Failure::usage)?;
            text
        }
        None => String::new(),
    };
    let (directory, _) = look()?;
    let seed = args.random.seed.to_string();
    let mut arguments =
        ["lab", "hold", "--name", &args.name, "--seed", &seed].map(OsStr::new).to_vec();
    let spec = args.lab.map(|spec| spec.to_string());
    if let Some(spec) = &spec {
        arguments.extend(["--lab", spec].map(OsStr::new));
    }
    let files = args.file.as_deref().and_then(beside);
    arguments.extend(files.as_deref());
    start_holder(arguments, &text)?;
    let (labs, _) = directory.labs()?;
    let lab = directory.find(&labs, Some(&args.name))?;
    show(&directory, vec![lab], args.json)
}

/// The option with the directory of the topology: files that it names lie there.
fn beside(file: &Path) -> Option<OsString> {
    let directory = file.parent().filter(|path| *path != Path::new(""))?;
    let mut option = OsString::from("--directory=");
    option.push(directory);
    Some(option)
}

fn hold(args: &LabHoldArgs) -> Result<(), Failure> {
    let mut text = String::new();
    let input = io::stdin().take(MAX_FILE + 1).read_to_string(&mut text);
    input.context("standard input").map_err(Failure::failed)?;
    let topology = match &args.lab {
        Some(spec) => Topology::of_path(spec),
        None => Topology::from_toml(&text).map_err(Failure::usage)?,
    };
    let links = topology.links.iter().flat_map(|link| [&link.up, &link.down]);
    let options = LabOptions {
        seed: args.seed,
        traces: site::traces(links, args.directory.as_deref().unwrap_or(Path::new("")))?,
    };
    hold_lab(&args.name, topology, &options).map_err(Failure::from)
}

fn exec(args: LabExecArgs) -> Result<(), Failure> {
    let (directory, labs) = look()?;
    let lab = directory.find(&labs, args.name.as_deref())?;
    for lacking in directory.enter(&lab, &args.host)? {
        output::note(&lacking);
    }
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::usage(anyhow!("no command")));
    };
    let option = args.name.as_deref().map(|name| format!(" --name {}", shell_word(name)));
    let (host, option) = (shell_word(&args.host), option.unwrap_or_default());
    let how = format!("{} linerate lab exec {host}{option} -- ", std::process::id());
    // Returns only if it cannot.
    let error = Command::new(program)
        .args(arguments)
        .env(LAB_PROCESS, lab.pid.to_string())
        .env(LAB_EXEC, how)
        .exec();
    let error = anyhow!(error).context(program.display().to_string());
    Err(Failure::usage(error))
}

fn status(args: &LabStatusArgs) -> Result<(), Failure> {
    let (directory, labs) = look()?;
    let labs = match args.which.name() {
        Some(name) => vec![directory.find(&labs, Some(name))?],
        None => labs,
    };
    show(&directory, labs, args.json)
}

fn down(args: &LabDownArgs) -> Result<(), Failure> {
    let (directory, labs) = look()?;
    let labs = if args.all { labs } else { vec![directory.find(&labs, args.which.name())?] };
    for lab in labs {
        let running = lab.inhabitants();
        directory.end(&lab)?;
        output::note(&format!("lab {} is down", lab.name));
        for process in running {
            output::note(&format!("still running: {}", text::inhabitant(&process)));
        }
    }
    Ok(())
}

/// The directory and the labs that are up. Prints which labs were killed.
fn look() -> Result<(LabDirectory, Vec<LabState>), Failure> {
    let directory = LabDirectory::open()?;
    let (labs, killed) = directory.labs()?;
    for name in killed {
        output::note(&format!("lab {name} was killed; what it left is removed"));
    }
    Ok((directory, labs))
}

fn show(directory: &LabDirectory, labs: Vec<LabState>, json: bool) -> Result<(), Failure> {
    let labs = labs.into_iter().map(|state| {
        let status =
            directory.status(&state).map_err(|error| output::note(&Failure::from(error).chain()));
        state.shown(status.ok())
    });
    let document = LabsDocument { schema: LAB_SCHEMA.to_owned(), labs: labs.collect() };
    if json {
        return output::print(&output::json(&document));
    }
    output::print(&document.text(output::style()))
}

/// Largest topology, in bytes; core has the same limit.
const MAX_FILE: u64 = 1 << 20;
