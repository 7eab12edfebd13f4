//! Simulates the schedule of a mesh of that many sites: `simulate SITES GROUP_SIZE AWAY [SEED]`.
#![allow(clippy::print_stdout)]

use linerate_mesh::{Mesh, Simulation, simulate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<f64> = std::env::args()
        .skip(1)
        .map(|it| it.parse())
        .collect::<Result<_, _>>()?;
    let argument = |place: usize, or: f64| arguments.get(place).copied().unwrap_or(or);
    let (sites, size, away) = (
        argument(0, 50.0) as usize,
        argument(1, 0.0) as usize,
        argument(2, 0.0),
    );
    let site = |number: usize| {
        let group = number
            .checked_div(size)
            .map(|group| format!("groups = [\"uplink-{group}\"]"));
        format!(
            "[[site]]\nname = \"s{number}\"\nhost = \"192.0.2.1\"\n{}\n",
            group.unwrap_or_default()
        )
    };
    let sites: String = (0..sites).map(site).collect();
    let test = "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\", time = \"10s\" }\n";
    let mesh = Mesh::from_toml(&format!("{sites}{test}"), 7)?;
    let how = Simulation {
        seed: argument(3, 7.0) as u64,
        slowest: 1.3,
        away,
        fails: 0.0,
        seconds: 30 * 86_400,
    };
    let (results, bytes) = simulate(&mesh, how);
    for result in results {
        println!(
            "{result:#?}\nover the bound {:.1?} %",
            result.over_bound_percent()
        );
        println!("{:.2} bytes a pair", bytes as f64 / result.pairs as f64);
    }
    Ok(())
}
