//! `mesh`: many sites that measure between each other, as a coordinator says.

mod bus;
mod coordinator;
mod join;
mod matrix;
mod up;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use linerate_core::units::{ByteCount, Span};
use linerate_history::Place;
use linerate_mesh::{Mesh, Simulation};

use crate::args::{MeshCommand, MeshSimulateArgs};
use crate::failure::Failure;
use crate::{config, files, output, plan};

/// Does what the command line says.
///
/// # Errors
/// With the kind that decides the exit status.
pub(crate) fn execute(command: MeshCommand) -> Result<(), Failure> {
    match command {
        MeshCommand::Up(args) => up::execute(&args),
        MeshCommand::Join(args) => join::execute(args),
        MeshCommand::Matrix(args) => matrix::execute(&args),
        MeshCommand::Pair(args) => matrix::pair(&args),
        MeshCommand::Simulate(args) => simulate(&args),
        MeshCommand::Permissions(args) => bus::permissions(&args),
    }
}

/// Reads a mesh's file.
fn read(file: &Path) -> Result<Mesh, Failure> {
    let read = || {
        let text = String::from_utf8(files::read_at_most(file, MAX_FILE)?)?;
        let mut mesh = Mesh::from_toml(&text, plan::fresh_seed())?;
        mesh.db = mesh.db.map(|db| config::beside(&db, file));
        anyhow::Ok(mesh)
    };
    read()
        .with_context(|| file.display().to_string())
        .map_err(Failure::usage)
}

/// The place of `--db`, or that of the mesh's file.
fn place(mesh: &Mesh, given: Option<&Place>) -> Option<Place> {
    let of_file = || mesh.db.as_ref().map(|db| OsString::from(db).into());
    given.cloned().or_else(of_file)
}

/// Longest file of a mesh, bytes.
const MAX_FILE: u64 = 8 << 20;

/// What the schedule comes to if each test takes up to 1.3 times its time and one site in a hundred is
/// away.
fn simulate(args: &MeshSimulateArgs) -> Result<(), Failure> {
    let mesh = read(&args.file)?;
    let how = Simulation {
        seed: plan::fresh_seed(),
        slowest: 1.3,
        away: 0.01,
        fails: 0.0,
        seconds: 30 * 86_400,
    };
    let (tests, bytes) = linerate_mesh::simulate(&mesh, how);
    let mut page = String::new();
    for (test, it) in mesh.tests.iter().zip(tests) {
        let time = match (it.took_s, it.over_bound_percent()) {
            (Some(took), Some(over)) => format!(
                "all in {}, {over:.0} % over the least time that there is",
                Span(Duration::from_secs_f64(took.ceil()))
            ),
            _ => format!("{} of them in 30 days", it.measured),
        };
        let (fewest, most) = it.runs_of_site;
        page += &format!(
            "{}: {} pairs, {time}\n  {fewest} to {most} runs of a site, {} missed, {:.1} messages a run\n",
            test.name, it.pairs, it.missed, it.messages
        );
    }
    page += &format!("{} for the pairs\n", ByteCount(bytes as u64));
    output::print(&page)
}
