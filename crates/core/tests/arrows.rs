//! Which way the arrows point: no module of a crate depends on another in a circle, and each crate
//! uses only those below it.
//!
//! A use is a path that begins with `crate::`, or with as many `super::` as lead to the crate's
//! root. Tests and comments do not count.

mod modules;

use std::fs;
use std::path::{Path, PathBuf};

use modules::Modules;

/// What each crate may depend on, besides crates of others.
const ARROWS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("testkit", &[]),
    ("stats", &[]),
    ("capture", &["stats", "units"]),
    ("link", &["units"]),
    ("trace", &["stats", "units"]),
    ("core", &["units", "stats", "link", "trace", "capture"]),
    ("sys", &[]),
    ("history", &[]),
    ("web", &["mesh", "units"]),
    ("qos", &["core"]),
    ("mesh", &["core"]),
    ("report", &["core", "qos", "mesh"]),
    ("engine", &["core", "qos", "mesh", "sys", "history"]),
    ("cli", &["core", "qos", "mesh", "engine", "report", "history", "web"]),
    ("truth", &["core", "engine", "report", "sys"]),
];

/// Crates whose modules may not depend on each other in a circle.
const WITHOUT_CYCLES: [&str; 13] = [
    "capture", "cli", "core", "engine", "link", "mesh", "qos", "report", "stats", "sys", "trace",
    "truth", "units",
];

fn crates() -> PathBuf {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    core.parent().expect("it is below `crates`").to_owned()
}

#[test]
fn no_module_depends_on_another_in_a_circle() {
    let cycles = WITHOUT_CYCLES.iter().filter_map(|name| {
        let modules = Modules::read(&crates().join(name).join("src"));
        assert!(modules.count() > 3, "{name}: only {} modules", modules.count());
        Some(format!("crates/{name}: a circle of modules\n{}", modules.cycle()?))
    });
    assert_eq!(cycles.collect::<Vec<_>>().join("\n"), "");
}

#[test]
fn a_crate_uses_only_those_below_it() {
    for entry in fs::read_dir(crates()).expect("it is a directory") {
        let directory = entry.expect("it can be read").path();
        let name = directory.file_name().and_then(|name| name.to_str()).unwrap();
        let allowed = ARROWS.iter().find(|(known, _)| *known == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{name} is not in `ARROWS`"));
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        for used in dependencies(&manifest) {
            assert!(allowed.contains(&used), "{name} must not depend on {used}");
        }
    }
}

/// Where not each file is a test program of its own, one that no program has is never run.
#[test]
fn each_file_of_tests_is_in_a_program() {
    for entry in fs::read_dir(crates()).expect("it is a directory") {
        let directory = entry.expect("it can be read").path();
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        if !manifest.contains("autotests = false") {
            continue;
        }
        let tests = directory.join("tests");
        let program = fs::read_to_string(tests.join("it.rs")).unwrap();
        for file in fs::read_dir(tests).unwrap() {
            let name = file.unwrap().file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".rs")) else {
                continue;
            };
            let is_run = program.contains(&format!("mod {name};"))
                || manifest.contains(&format!("name = \"{name}\""));
            assert!(is_run, "{}: tests/{name}.rs is in no program", directory.display());
        }
    }
}

/// Our crates in `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<&str> {
    manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.strip_prefix("linerate-"))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .collect()
}

#[test]
fn a_circle_is_named_with_the_lines_that_make_it() {
    let modules = Modules::from_texts(&[
        ("lib.rs", "mod plan;\nmod link;\nmod units;\n"),
        ("plan.rs", "use crate::units::Span;\n\nuse crate::link::{Packet, Link};\n"),
        ("units.rs", "// use crate::plan::Test;\n"),
        ("link/mod.rs", "mod queue;\n#[cfg(test)]\nmod tests;\n"),
        ("link/queue.rs", "fn full() {\n    super::super::plan::Test::new();\n}\n"),
        ("link/tests.rs", "use crate::record::Record;\n"),
    ]);
    assert_eq!(
        modules.cycle().as_deref(),
        Some(
            "link -> plan -> link\n  \
             link/queue.rs:2 uses plan\n  \
             plan.rs:3 uses link"
        )
    );
}

#[test]
fn what_tests_and_comments_use_is_no_arrow() {
    let modules = Modules::from_texts(&[
        ("a.rs", "use crate::b::B;\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n"),
        ("b.rs", "//! As in [`crate::a`].\n#[cfg(test)]\nuse crate::a::A;\n"),
        ("c.rs", "use crate::{a::A, b::{B, C}};\n"),
    ]);
    assert_eq!(modules.cycle(), None);
    assert_eq!(modules.uses("c"), ["a", "b"]);
    assert_eq!(modules.uses("a"), ["b"]);
}
