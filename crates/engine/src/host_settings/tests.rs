//! On the kernel: in network namespaces of the test's own, with a journal and a directory of kernel
//! settings of its own.

use std::fs;
use std::path::PathBuf;

use linerate_core::host::{Assignment, ChangeOutcome, SettingChange, assignments};
use linerate_core::treatment::HostChange;
use linerate_sys::netns::{Namespace, Pair};
use linerate_sys::proc::sysctl;
use linerate_testkit::{Need, eventually, skip};
use tempfile::TempDir;

use crate::category::Categorized;
use crate::state_files::StateDirectory;
use crate::treatment::{Applied, SysctlDirectory, TreatError, keep, kept, undo};

const SACK: &str = "net.ipv4.tcp_sack";
const RMEM: &str = "net.ipv4.tcp_rmem";

/// Runs in a namespace of its own; says so where none can be made.
fn in_namespace(work: impl FnOnce(&Bench) + Send) {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("no network namespaces here: {error}"));
            return;
        }
    };
    let bench = Bench::new();
    pair.a.namespace.run(|| work(&bench)).unwrap();
}

struct Bench {
    state: TempDir,
    settings: TempDir,
}

impl Bench {
    fn new() -> Self {
        let make = || tempfile::tempdir().expect("a directory in /tmp");
        Self { state: make(), settings: make() }
    }

    fn directory(&self) -> StateDirectory {
        StateDirectory::at(self.state.path())
    }

    fn file(&self) -> SysctlDirectory {
        SysctlDirectory::at(self.settings.path())
    }

    fn journal(&self) -> PathBuf {
        self.state.path().join("kept.jsonl")
    }

    fn lines(&self) -> usize {
        fs::read_to_string(self.journal()).map_or(0, |text| text.lines().count())
    }

    fn set(&self, words: &[&str]) -> Result<Vec<SettingChange>, TreatError> {
        self.set_with(words, false)
    }

    fn set_with(&self, words: &[&str], persist: bool) -> Result<Vec<SettingChange>, TreatError> {
        let own: Vec<Assignment> = assignments(words).expect("the test's own words");
        keep(&self.directory(), &own, persist.then(|| self.file()).as_ref())
    }

    fn undo(&self, keys: &[&str]) -> Vec<(String, ChangeOutcome)> {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        let undone =
            undo(&self.directory(), &keys, &self.file()).expect("what was set can be undone");
        let changes = undone.changes.into_iter();
        changes.map(|change| (change.key, change.outcome)).collect()
    }

    /// As if the host had been booted since.
    fn reboot(&self) {
        let text = fs::read_to_string(self.journal()).expect("something is kept");
        let own = sysctl::read("kernel.random.boot_id").expect("every kernel has it");
        let other = "00000000-0000-4000-8000-000000000000";
        fs::write(self.journal(), text.replace(&own, other)).expect("the journal is the test's");
    }
}

fn now(key: &str) -> String {
    sysctl::read(key).expect("the namespace has it")
}

#[test]
fn settings_stay_until_they_are_undone() {
    in_namespace(|bench| {
        let (sack, rmem) = (now(SACK), now(RMEM));
        let set =
            bench.set(&["net.ipv4.tcp_sack=0", "net.ipv4.tcp_rmem=4096 65536 1000000"]).unwrap();
        assert!(set.iter().all(|change| change.outcome == ChangeOutcome::Set), "{set:?}");
        assert_eq!((now(SACK), now(RMEM)), ("0".into(), "4096 65536 1000000".into()));
        // What undoes treatments does not undo it.
        crate::treatment::undo_leftovers();
        drop(Applied::apply(&[], [127, 0, 0, 1].into()).unwrap());
        assert_eq!(now(SACK), "0");
        let again =
            bench.set(&["net.ipv4.tcp_sack=0", "net.ipv4.tcp_rmem=4096 65536 2000000"]).unwrap();
        assert_eq!(again[0].outcome, ChangeOutcome::Already);
        assert_eq!(kept(&bench.directory()).unwrap()[RMEM].was, rmem);
        assert_eq!(bench.lines(), 2, "the second change of a key is joined to its first");
        assert_eq!(bench.undo(&[RMEM]), [(RMEM.to_owned(), ChangeOutcome::Restored)]);
        assert_eq!((now(SACK), now(RMEM)), ("0".into(), rmem));
        assert_eq!(bench.undo(&[]), [(SACK.to_owned(), ChangeOutcome::Restored)]);
        assert_eq!(now(SACK), sack);
        assert!(!bench.journal().exists());
        assert_eq!(bench.undo(&[]), []);
    });
}

#[test]
fn all_settings_are_applied_or_none() {
    in_namespace(|bench| {
        let before = (now(SACK), now(RMEM));
        for bad in [
            "net.ipv4.tcp_congestion_control=nosuch",
            "net.core.default_qdisc=nosuch",
            "device.veth0.rx_ring=512",
            "device.nosuch.tso=off",
            "device.veth0.tx_usecs=1",
        ] {
            let error =
                bench.set(&["net.ipv4.tcp_sack=0", "net.ipv4.tcp_rmem=1 2 3", bad]).unwrap_err();
            assert_eq!(error.category(), crate::Category::Missing, "{bad}: {error}");
            assert_eq!((now(SACK), now(RMEM)), before, "{bad}");
            assert_eq!(bench.lines(), 0, "{bad}");
        }
    });
}

#[test]
fn settings_changed_by_others_since_are_left_alone() {
    in_namespace(|bench| {
        let rmem = now(RMEM);
        bench.set(&["net.ipv4.tcp_sack=0", "net.ipv4.tcp_rmem=1 2 3"]).unwrap();
        sysctl::write(RMEM, "4 5 6").unwrap();
        assert_eq!(
            bench.undo(&[]),
            [
                (RMEM.to_owned(), ChangeOutcome::LeftAlone),
                (SACK.to_owned(), ChangeOutcome::Restored)
            ]
        );
        assert_eq!(now(RMEM), "4 5 6");
        assert_eq!(bench.lines(), 0);
        // Theirs is what a later change goes back to.
        bench.set(&["net.ipv4.tcp_rmem=7 8 9"]).unwrap();
        bench.undo(&[]);
        assert_eq!(now(RMEM), "4 5 6");
        sysctl::write(RMEM, &rmem).unwrap();
    });
}

#[test]
fn a_process_killed_before_or_after_it_set_leaves_what_undo_finds() {
    in_namespace(|bench| {
        let sack = now(SACK);
        bench.set(&["net.ipv4.tcp_sack=0"]).unwrap();
        // Killed after it was written down and before it was set.
        sysctl::write(SACK, &sack).unwrap();
        assert_eq!(bench.undo(&[]), [(SACK.to_owned(), ChangeOutcome::Restored)]);
        assert_eq!((now(SACK), bench.lines()), (sack.clone(), 0));
        // Killed while it wrote.
        bench.set(&["net.ipv4.tcp_sack=0"]).unwrap();
        let text = fs::read_to_string(bench.journal()).unwrap();
        let torn = text.replace(SACK, "net.ipv4.tcp_dsack");
        fs::write(bench.journal(), format!("{text}{}", &torn[..torn.len() / 2])).unwrap();
        assert_eq!(bench.undo(&[]), [(SACK.to_owned(), ChangeOutcome::Restored)]);
        assert_eq!((now(SACK), bench.lines()), (sack, 0));
    });
}

#[test]
fn a_file_of_ours_keeps_it_over_a_reboot_and_undo_takes_it_away() {
    in_namespace(|bench| {
        let file = bench.file();
        let (sack, rmem) = (now(SACK), now(RMEM));
        let words = ["net.ipv4.tcp_sack=0", "net.ipv4.tcp_rmem=4096 65536 1000000"];
        bench.set_with(&words, true).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(text.starts_with("# Written by `linerate host set --persist`"), "{text}");
        assert!(
            text.ends_with("net.ipv4.tcp_sack = 0\nnet.ipv4.tcp_rmem = 4096 65536 1000000\n"),
            "{text}"
        );
        fs::write(bench.settings.path().join("99-own.conf"), "net/ipv4/tcp_sack = 1\n").unwrap();
        let notes = file.overridden(&[SACK.to_owned(), RMEM.to_owned()]);
        assert!(
            notes.len() == 1 && notes[0].contains("99-own.conf sets net.ipv4.tcp_sack to 1"),
            "{notes:?}"
        );
        bench.reboot();
        // The boot has set what the file says, but somebody else's file comes later.
        sysctl::write(SACK, "1").unwrap();
        assert!(kept(&bench.directory()).unwrap()[RMEM].persisted);
        assert_eq!(bench.undo(&[RMEM]), [(RMEM.to_owned(), ChangeOutcome::Restored)]);
        assert_eq!(now(RMEM), rmem);
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(text.contains("tcp_sack") && !text.contains("tcp_rmem"), "{text}");
        bench.undo(&[]);
        assert!(!file.path().exists(), "nothing of ours is in it");
        assert!(bench.settings.path().join("99-own.conf").exists());
        assert_eq!(now(SACK), sack);
    });
}

#[test]
fn lines_of_others_in_our_file_stay() {
    in_namespace(|bench| {
        bench.set_with(&["net.ipv4.tcp_sack=0", "net.ipv4.tcp_dsack=0"], true).unwrap();
        let file = bench.file();
        let text = fs::read_to_string(file.path()).unwrap();
        fs::write(
            file.path(),
            format!("{}net.ipv4.tcp_ecn = 1\n", text.replace("tcp_dsack = 0", "tcp_dsack = 1")),
        )
        .unwrap();
        let undone = undo(&bench.directory(), &[], &file).unwrap();
        let of = |key: &str| undone.changes.iter().find(|change| change.key == key).unwrap();
        assert_eq!(of(SACK).outcome, ChangeOutcome::Restored);
        let why = of("net.ipv4.tcp_dsack").why.as_deref().unwrap();
        assert!(why.contains("another value"), "{why}");
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(text.ends_with("net.ipv4.tcp_dsack = 1\nnet.ipv4.tcp_ecn = 1\n"), "{text}");
        assert!(!text.contains("tcp_sack"), "{text}");
    });
}

#[test]
fn a_reboot_has_undone_what_no_file_keeps() {
    in_namespace(|bench| {
        let sack = now(SACK);
        bench.set(&["net.ipv4.tcp_sack=0"]).unwrap();
        bench.reboot();
        // It is what somebody set after the boot.
        assert_eq!(bench.undo(&[]), []);
        assert_eq!((now(SACK), bench.lines()), ("0".to_owned(), 0));
        sysctl::write(SACK, &sack).unwrap();
    });
}

#[test]
fn a_treatment_and_a_kept_setting_do_not_meet() {
    in_namespace(|bench| {
        let sack = now(SACK);
        let change = HostChange::Sysctl { key: SACK.to_owned(), value: "0".to_owned() };
        let peer = [127, 0, 0, 1].into();
        let treated = Applied::apply(std::slice::from_ref(&change), peer).unwrap();
        let error = bench.set(&["net.ipv4.tcp_sack=1"]).unwrap_err();
        assert!(matches!(error, TreatError::Busy { .. }), "{error}");
        treated.undo().unwrap();
        bench.set(&["net.ipv4.tcp_sack=0", "net.ipv4.tcp_dsack=0"]).unwrap();
        // A treatment goes back to what the owner keeps.
        let back = HostChange::Sysctl { key: SACK.to_owned(), value: "1".to_owned() };
        Applied::apply(&[back], peer).unwrap().undo().unwrap();
        assert_eq!(now(SACK), "0");
        assert_eq!(bench.undo(&[]).len(), 2);
        assert_eq!(now(SACK), sack);
    });
}

#[test]
fn settings_of_a_device_are_set_and_undone() {
    in_namespace(|bench| {
        let words = ["device.veth0.tso=off", "device.veth0.gro=on", "device.veth0.txqueuelen=777"];
        let view =
            || crate::host_settings::view(None, &["device.veth0.tso".to_owned()]).unwrap().readings;
        let before = view();
        let set = bench.set(&words).unwrap();
        assert_eq!(set.len(), 3, "{set:?}");
        let after = view();
        let text = |key: &str| match &after[key] {
            linerate_core::host::Reading::Value { text, .. } => text.clone(),
            other => panic!("{key}: {other:?}"),
        };
        assert_eq!(text("device.veth0.tso"), "off");
        assert_eq!(text("device.veth0.txqueuelen"), "777");
        let undone = bench.undo(&[]);
        assert!(
            undone.iter().all(|(_, outcome)| *outcome == ChangeOutcome::Restored),
            "{undone:?}"
        );
        assert_eq!(view(), before);
        // Checksums and what needs them, off and on again.
        bench.set(&["device.veth0.tso=off", "device.veth0.checksum_offload=off"]).unwrap();
        bench.undo(&[]);
        assert_eq!(view(), before);
    });
}

/// A TAP device is the one whose driver a test can have that takes a figure (drivers/net/tun.c,
/// `tun_set_coalesce`).
#[test]
fn a_figure_of_a_driver_is_set_and_undone() {
    in_namespace(|bench| {
        let made = std::process::Command::new("ip")
            .args(["tuntap", "add", "dev", "tap0", "mode", "tap"])
            .output();
        if !made.is_ok_and(|made| made.status.success()) {
            skip(Need::Iproute2, "needs `ip tuntap add`, that is /dev/net/tun and iproute2");
            return;
        }
        let set = bench.set(&["device.tap0.rx_frames=17"]).unwrap();
        assert_eq!((set[0].was.as_str(), set[0].now.as_deref()), ("0", Some("17")));
        // The driver takes no more than 64: that is not what was asked.
        let error = bench.set(&["device.tap0.rx_frames=1000"]).unwrap_err();
        assert!(matches!(error, TreatError::NotTaken { .. }), "{error}");
        let undone = bench.undo(&[]);
        assert_eq!(undone, [("device.tap0.rx_frames".to_owned(), ChangeOutcome::Restored)]);
    });
}

#[test]
fn settings_that_a_namespace_lacks_are_named() {
    use linerate_core::host::Reading;
    in_namespace(|_| {
        let view = crate::host_settings::view(None, &[]).unwrap();
        let names: Vec<&str> = view.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["veth0"]);
        let unsupported = |key: &str, part: &str| match &view.readings[key] {
            Reading::Unsupported(why) => assert!(why.contains(part), "{key}: {why}"),
            other => panic!("{key}: {other:?}"),
        };
        unsupported("net.core.default_qdisc", "not in this network namespace");
        unsupported("device.veth0.rx_ring", "the driver of veth0");
        match &view.readings["device.veth0.rps_cpus"] {
            Reading::Unknown(why) => assert!(why.contains("another network namespace"), "{why}"),
            other => panic!("{other:?}"),
        }
        for key in linerate_core::host::settings().iter().map(|setting| setting.key) {
            let key = key.replace('*', "veth0");
            assert!(view.readings.contains_key(&key), "{key} is left out");
        }
        let error =
            crate::host_settings::view(None, &["device.nosuch.tso".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no such device"), "{error}");
    });
}

#[test]
fn a_namespace_that_is_gone_is_forgotten() {
    let Ok(first) = Namespace::create("first") else {
        skip(Need::Lab, "no network namespaces here");
        return;
    };
    let bench = Bench::new();
    first.run(|| bench.set(&["net.ipv4.tcp_sack=0"]).map(drop)).unwrap().unwrap();
    let second = Namespace::create("second").unwrap();
    let elsewhere =
        || second.run(|| undo(&bench.directory(), &[], &bench.file()).unwrap().elsewhere).unwrap();
    assert_eq!((elsewhere(), bench.lines()), (1, 1));
    drop(first);
    // A process that another test starts has every descriptor until it executes its program.
    eventually("it is forgotten", || elsewhere() == 0);
    assert_eq!(bench.lines(), 0);
}

#[test]
fn settings_kept_at_the_same_time_are_all_kept() {
    in_namespace(|bench| {
        let keys = ["tcp_sack", "tcp_dsack", "tcp_timestamps", "tcp_window_scaling"];
        let before: Vec<String> = keys.iter().map(|key| now(&format!("net.ipv4.{key}"))).collect();
        let here = Namespace::current().unwrap();
        std::thread::scope(|scope| {
            for key in keys {
                let here = &here;
                scope.spawn(move || {
                    here.enter().unwrap();
                    for _ in 0..5 {
                        bench.set(&[&format!("net.ipv4.{key}=0")]).unwrap();
                        bench.set(&[&format!("net.ipv4.{key}=1")]).unwrap();
                    }
                    bench.set(&[&format!("net.ipv4.{key}=0")]).unwrap();
                });
            }
        });
        assert_eq!(bench.lines(), keys.len());
        assert_eq!(bench.undo(&[]).len(), keys.len());
        let after: Vec<String> = keys.iter().map(|key| now(&format!("net.ipv4.{key}"))).collect();
        assert_eq!(after, before);
    });
}
