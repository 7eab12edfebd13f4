//! The files under `examples/qos` are read.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use linerate_qos::policy::{Names, NoNames, PolicyFile};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/qos").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).expect("an example")
}

/// `/etc/services` with one service.
struct Web;

impl Names for Web {
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, String> {
        NoNames.addresses(host)
    }

    fn ports(&mut self, service: &str, _: &[&str]) -> Result<Vec<u16>, String> {
        assert_eq!(service, "http");
        Ok(vec![80])
    }

    fn uid(&mut self, user: &str) -> Result<u32, String> {
        NoNames.uid(user)
    }
}

#[test]
fn every_example_is_read_without_names() {
    let mut count = 0;
    for entry in std::fs::read_dir(path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let read = PolicyFile::from_toml(&text, &mut NoNames);
            read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            count += 1;
        }
    }
    assert!(count >= 3, "{count} examples");
}

#[test]
fn the_file_of_hpux_is_what_is_written_beside_it() {
    let file = PolicyFile::from_hpux(&text("ipqos.conf"), &mut Web).unwrap();
    assert_eq!(file.to_toml(), text("ipqos.toml"));
}

#[test]
fn the_example_of_the_documentation_is_read() {
    let page = std::fs::read_to_string(path("../../docs/qos.md")).unwrap();
    let (_, example) = page.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    PolicyFile::from_toml(example, &mut NoNames).unwrap();
}
