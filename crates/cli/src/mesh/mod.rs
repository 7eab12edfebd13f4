//! `mesh`: many sites that measure between each other, scheduled by a coordinator.

mod bus;
mod join;
mod matrix;
mod up;

use std::ffi::OsString;
use std::path::Path;

use linerate_history::Place;
use linerate_mesh::Mesh;

use crate::args::MeshCommand;
use crate::failure::Failure;
use crate::{config, files, plan};

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
        MeshCommand::Permissions(args) => bus::permissions(&args),
    }
}

/// Reads a mesh's file.
fn read(file: &Path) -> Result<Mesh, Failure> {
    let mut mesh =
        files::parse("", file, MAX_FILE, |text| Mesh::from_toml(text, plan::fresh_seed()))?;
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
