//! What packages are made of: the image for containers, laid out and held to its digests without a
//! registry; the units, as systemd reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

use linerate_testkit::{Need, skip};
use serde_json::Value;

use crate::support::{done, sources};

fn digest(file: &Path) -> String {
    let output = done(Command::new("sha256sum").arg(file));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(' ').next().expect("a digest").to_owned()
}

/// The blob that a descriptor names, held to its digest and size.
fn blob(image: &Path, descriptor: &Value) -> std::path::PathBuf {
    let named = descriptor["digest"].as_str().expect("a digest");
    let named = named.strip_prefix("sha256:").expect("SHA-256");
    let path = image.join("blobs/sha256").join(named);
    assert_eq!(digest(&path), named);
    let size = fs::metadata(&path).expect("a blob").len();
    assert_eq!(descriptor["size"].as_u64(), Some(size));
    path
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("a file");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_image_is_what_its_digests_say_and_holds_the_program_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    // Small, so that it is compressed at once: the script does not look into it.
    let program = directory.path().join("program");
    fs::write(&program, b"a program").expect("written");
    let made = |name: &str| {
        let image = directory.path().join(name);
        let mut script = Command::new(sources().join("packaging/image"));
        done(
            script
                .args([&program, &image])
                .env("SOURCE_DATE_EPOCH", "1000000000"),
        );
        image
    };
    let image = made("image");
    assert_eq!(
        json(&image.join("oci-layout"))["imageLayoutVersion"],
        "1.0.0"
    );
    let index = json(&image.join("index.json"));
    let manifest = json(&blob(&image, &index["manifests"][0]));
    let config = json(&blob(&image, &manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/linerate");
    assert_ne!(config["config"]["User"], "0:0");
    let layer = blob(&image, &manifest["layers"][0]);
    let tar = directory.path().join("layer.tar");
    let unpacked = done(Command::new("gzip").args(["-dc"]).arg(&layer)).stdout;
    fs::write(&tar, unpacked).expect("written");
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        format!("sha256:{}", digest(&tar))
    );
    let listed = done(Command::new("tar").args(["-tf"]).arg(&tar)).stdout;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let files: Vec<&str> = listed.lines().filter(|name| !name.ends_with('/')).collect();
    assert_eq!(files, ["./usr/bin/linerate"]);
    // A digest is the name of all that it holds: the same bytes again.
    assert_eq!(index, json(&made("again").join("index.json")));
}

#[test]
fn the_services_are_little_exposed() {
    for name in ["linerate", "linerate-monitor", "linerate-web"] {
        let unit = sources().join(format!("packaging/{name}.service"));
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--threshold=20"]);
        let Ok(output) = analyze.arg(unit).output() else {
            let how = "needs systemd-analyze: apt-get install systemd";
            return skip(Need::Systemd, how);
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !said.contains("Overall exposure level") {
            let why = "systemd-analyze cannot look at a file here";
            return skip(Need::Systemd, why);
        }
        assert!(output.status.success(), "{name} above 2.0: {said}");
    }
}
