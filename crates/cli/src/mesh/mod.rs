//! `mesh`: many sites that measure between each other, scheduled by a coordinator.

mod bus;
mod coordinator;
mod join;
mod matrix;
mod up;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

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
    let mut mesh = files::parse("", file, MAX_FILE, |text| {
        Mesh::from_toml(text, plan::fresh_seed())
    })?;
    mesh.db = mesh.db.map(|db| config::beside(&db, file));
    Ok(mesh)
}

/// The place of `--db`, or that of the mesh's file.
fn place(mesh: &Mesh, given: Option<&Place>) -> Option<Place> {
    let of_file = || mesh.db.as_ref().map(|db| OsString::from(db).into());
    given.cloned().or_else(of_file)
}

/// Largest file of a mesh, in bytes.
const MAX_FILE: u64 = 8 << 20;

/// Prints how the schedule does if each test takes up to 1.3 times its time and one site in a
/// hundred is away.
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
                "all measured in {}, {over:.0} % over the shortest possible time",
                Span(Duration::from_secs_f64(took.ceil()))
            ),
            _ => format!("{} measured in 30 days", it.measured),
        };
        let plural = if it.pairs == 1 { "" } else { "s" };
        let runs = match it.runs_of_site {
            (fewest, most) if fewest == most => most.to_string(),
            (fewest, most) => format!("{fewest} to {most}"),
        };
        page += &format!(
            "{}: {} pair{plural}, {time}\n  runs of a site: {runs}; missed: {}; messages for each \
             run: {:.1}\n",
            test.name, it.pairs, it.missed, it.messages
        );
    }
    page += &format!(
        "{} of memory for the state of the pairs\n",
        ByteCount(bytes as u64)
    );
    output::print(&page)
}
