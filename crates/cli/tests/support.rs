//! What the tests of the program share: the program as a child, and an endpoint on loopback.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

pub(crate) use linerate_testkit::PATIENCE;
use linerate_testkit::{Need, skip};
use serde_json::Value;

/// A copy of the program in `directory` that everybody can run; the program itself may lie where
/// nobody else can read.
///
/// Another process copies it: a child that another test starts in the meantime would inherit the
/// descriptor that this one writes by, and a file that is open for writing cannot be run.
pub(crate) fn copy_for_everybody(directory: &Path) -> PathBuf {
    let copy = directory.join("linerate");
    let copied = Command::new("cp").args([Path::new(PROGRAM), &copy]).status();
    assert!(copied.unwrap().success());
    for path in [directory, &copy] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_linerate");
/// `linerate serve` on a port of its own, gone when this is.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// What listens for TCP clients of other tools.
    pub(crate) others: Vec<String>,
    events: Receiver<String>,
}

impl Served {
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.stdin(Stdio::null());
        Self::by(command, options)
    }

    /// By a command that runs the program as somebody else, or elsewhere.
    pub(crate) fn by(mut command: Command, options: &[&str]) -> Self {
        command.args(["serve", "--bind", "127.0.0.1", "--port", "0"]);
        command.args(["--quiet", "--json-stream"]).args(options);
        let mut child = spawn(command);
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let listening: Value = serde_json::from_str(&first).expect("a JSON line");
        let address = listening["addresses"][0].as_str().expect(&first).to_owned();
        let others = listening["others"].as_object().into_iter().flatten();
        let others = others.filter(|(tool, _)| *tool != "stamp").map(|(_, at)| &at[0]);
        let others = others.filter_map(Value::as_str).map(str::to_owned).collect();
        let (sender, events) = channel();
        // It goes on writing: somebody has to read, whether they are looked at or not.
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, address, others, events }
    }

    pub(crate) fn await_event(&self, name: &str) {
        let is_it = |line: &String| line.contains(&format!("\"event\":\"{name}\""));
        while !is_it(&self.events.recv_timeout(PATIENCE).expect(name)) {}
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Gone already, in some tests.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn spawn(mut command: Command) -> Child {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn();
    child.expect("the program was built for this test")
}

/// What the child leaves, which it must within `time`. A thread reads its output: a full pipe would
/// hold it.
pub(crate) fn ended_within(child: Child, time: Duration) -> Output {
    let pid = child.id();
    let (sender, ended) = channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    if let Ok(output) = ended.recv_timeout(time) {
        return output.unwrap();
    }
    signal(pid, "KILL");
    panic!("still there after {time:?}: {:?}", ended.recv());
}

/// The directory of the sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command that must succeed.
pub(crate) fn done(command: &mut Command) -> Output {
    let output = command.output().expect("it is there");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

pub(crate) fn signal(pid: u32, name: &str) {
    let pid = pid.to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.expect("kill is there").success(), "{name}");
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The words of a command line.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The one document on stdout.
#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    let document = serde_json::from_slice(&output.stdout);
    document.unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[track_caller]
pub(crate) fn assert_says(output: &Output, words: &str) {
    assert!(stderr(output).contains(words), "{words:?} is not in {output:?}");
}

/// Whether a command ended because this host allows no lab; then the test is skipped.
pub(crate) fn has_no_lab(output: &Output) -> bool {
    let lacks = output.status.code() == Some(3);
    if lacks {
        skip(Need::Lab, stderr(output));
    }
    lacks
}

/// Whether this host allows labs; else the test is skipped. One lab is made for all tests that ask.
pub(crate) fn has_labs() -> bool {
    static TRIED: OnceLock<Output> = OnceLock::new();
    let tried = TRIED.get_or_init(|| {
        let mut command = Command::new(PROGRAM);
        command.args(["stream", "--lab", "rate=10mbit", "-t", "10ms", "--json", "--quiet"]);
        command.output().expect("the program was built for this test")
    });
    !has_no_lab(tried)
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A child that is killed when this is dropped.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
