//! How long all pairs of a mesh take, and how much longer than the shortest possible time:
//! `simulate FILE`, the file of a mesh, or `simulate SITES GROUP_SIZE AWAY [SEED]`.
#![allow(clippy::print_stdout)]

mod world;

use std::error::Error;
use std::fs;

use linerate_mesh::Mesh;
use world::{Simulation, simulate};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<f64> = arguments.iter().flat_map(|it| it.parse()).collect();
    let number = |place: usize, or: f64| numbers.get(place).copied().unwrap_or(or);
    let file = arguments.first().filter(|_| numbers.is_empty());
    let text = match file {
        Some(file) => fs::read_to_string(file)?,
        None => uniform(number(0, 50.0) as usize, number(1, 0.0) as usize),
    };
    let mesh = Mesh::from_toml(&text, 7)?;
    let how = Simulation {
        seed: number(3, 7.0) as u64,
        slowest: 1.3,
        away: number(2, if file.is_some() { 0.01 } else { 0.0 }),
        fails: 0.0,
        seconds: 30 * 86_400,
    };
    let (results, bytes) = simulate(&mesh, how);
    for (test, result) in mesh.tests.iter().zip(results) {
        let over = result.took_s.map(|took| (took / result.bound_s - 1.0) * 100.0);
        println!("{}: {result:#?}\nover the bound {over:.1?} %", test.name);
        println!("{:.2} bytes a pair", bytes as f64 / result.pairs as f64);
    }
    Ok(())
}

/// The file of a mesh in which each `size` sites share an uplink.
fn uniform(sites: usize, size: usize) -> String {
    let site = |number: usize| {
        let group = number.checked_div(size).map(|group| format!("groups = [\"uplink-{group}\"]"));
        format!(
            "[[site]]\nname = \"s{number}\"\nhost = \"192.0.2.1\"\n{}\n",
            group.unwrap_or_default()
        )
    };
    let sites: String = (0..sites).map(site).collect();
    let test = "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\", time = \"10s\" }\n";
    format!("{sites}{test}")
}
