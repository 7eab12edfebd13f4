//! What packages are made of: the image for containers, laid out and held to its digests without a
//! registry; the units, as systemd reads them; the maintainer scripts, beside what `host set` keeps.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use linerate_testkit::{Need, skip};
use serde_json::Value;

use crate::support::{PROGRAM, assert_says, done, is_root, sources, stderr, stdout};

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
        done(script.args([&program, &image]).env("SOURCE_DATE_EPOCH", "1000000000"));
        image
    };
    let image = made("image");
    assert_eq!(json(&image.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let index = json(&image.join("index.json"));
    let manifest = json(&blob(&image, &index["manifests"][0]));
    let config = json(&blob(&image, &manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/linerate");
    assert_ne!(config["config"]["User"], "0:0");
    let layer = blob(&image, &manifest["layers"][0]);
    let tar = directory.path().join("layer.tar");
    let unpacked = done(Command::new("gzip").args(["-dc"]).arg(&layer)).stdout;
    fs::write(&tar, unpacked).expect("written");
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(&tar)));
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

/// What systemd does before it starts the unit: the directory of its state is its user's, with all
/// that is in it.
fn state_directory(unit: &str) -> String {
    let text = fs::read_to_string(sources().join("packaging").join(unit)).expect("a unit");
    let setting = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    setting("StateDirectory=").map_or_else(String::new, |directory| {
        let user = setting("User=").expect("a user");
        let path = format!("/var/lib/{directory}");
        format!("mkdir -p {path} && chown -R {user}: {path} && touch {path}/history.db\n")
    })
}

/// Runs a script as root of a host with empty `/var/lib` and `/run`, the user `linerate`, and the
/// maintainer scripts as working directory; systemd does not run there. `None`, and says why, where
/// that cannot be had.
fn on_a_host(script: &str) -> Option<Output> {
    if !is_root() {
        skip(Need::Root, "needs root of the host");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().display();
    let script = format!(
        "set -e
        mkdir {at}/bin; ln -s {PROGRAM} {at}/bin/linerate
        for stub in systemd-sysusers deb-systemd-helper userdel; do ln -s /bin/true {at}/bin/$stub; done
        for file in passwd group; do cp /etc/$file {at}; done
        echo linerate:x:64999:64999::/:/bin/false >> {at}/passwd
        echo linerate:x:64999: >> {at}/group
        {{ mount -t tmpfs none /var/lib && mount -t tmpfs none /run \
            && for file in passwd group; do mount --bind {at}/$file /etc/$file; done; }} || exit 77
        PATH={at}/bin:$PATH
        cd {}/packaging/debian
        sack() {{ [ \"$(cat /proc/sys/net/ipv4/tcp_sack)\" = $1 ]; }}
        {script}",
        sources().display()
    );
    let mut host = Command::new("unshare");
    let output = host.args(["--mount", "--net", "sh", "-c", &script]).output();
    let output = output.expect("unshare is there");
    if output.status.code() == Some(77) || stderr(&output).starts_with("unshare:") {
        skip(Need::Lab, stderr(&output));
        return None;
    }
    Some(output)
}

#[test]
fn what_host_set_keeps_outlives_the_units_and_is_undone_before_the_package_goes() {
    let units = ["linerate", "linerate-monitor", "linerate-web"];
    let units: String = units.map(|unit| state_directory(&format!("{unit}.service"))).concat();
    let Some(output) = on_a_host(&format!(
        "linerate host set net.ipv4.tcp_sack=0 >/dev/null
        {units}
        ./postinst configure
        linerate host undo; sack 1
        linerate host set net.ipv4.tcp_sack=0 >/dev/null
        ./prerm upgrade; ./prerm 1; sack 0
        ./prerm remove; sack 1
        ./postrm remove; ls /var/lib
        ./postrm purge; ls -A /var/lib"
    )) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    assert!(
        stdout(&output).ends_with("linerate\nlinerate-monitor\n"),
        "a purge leaves nothing: {output:?}"
    );
}

#[test]
fn a_package_whose_settings_cannot_all_be_undone_stays() {
    let Some(output) = on_a_host(
        "unshare --net sh -c 'linerate host set net.ipv4.tcp_sack=0; touch /run/set; exec sleep 99' >&2 &
        trap 'kill $!' EXIT
        until [ -e /run/set ]; do sleep 0.1; done
        if ./prerm 0; then exit 1; fi
        ./postrm purge
        [ -s /var/lib/linerate/kept.jsonl ]",
    ) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    assert_says(&output, "kept in other network namespaces");
    assert_says(&output, "/var/lib/linerate stays");
}

/// The first units had one directory for root's journal and the history, and its owner was the
/// monitor's user; root's next journal was in `/run` then.
#[test]
fn a_journal_in_a_directory_of_another_user_is_an_error_and_the_package_mends_it() {
    let Some(output) = on_a_host(
        "linerate host set net.ipv4.tcp_sack=0 >/dev/null
        echo kept > /var/lib/linerate/history.db
        chown -R linerate: /var/lib/linerate
        if linerate host undo; then exit 1; fi
        if linerate host set net.ipv4.tcp_sack=1; then exit 1; fi
        sack 0
        ./postinst configure
        linerate host undo; sack 1
        grep kept /var/lib/linerate-monitor/history.db
        stat -c '%U %a' /var/lib/linerate /var/lib/linerate-monitor

        linerate host set net.ipv4.tcp_sack=0 >/dev/null
        mkdir -pm 700 /run/linerate
        mv /var/lib/linerate/kept.jsonl /run/linerate
        ./postinst 2
        linerate host undo >/dev/null; sack 1",
    ) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    assert_says(&output, "/var/lib/linerate: it must be this user's own directory");
    assert!(stdout(&output).ends_with("root 700\nlinerate 700\n"), "{output:?}");
}
