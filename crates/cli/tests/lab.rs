//! Labs that stay between commands: made, entered, looked at, taken down, killed; with root and
//! without.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use linerate_testkit::{Need, eventually, skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Killed, PROGRAM, assert_says, copy_for_everybody, has_labs, has_no_lab, is_root, stderr,
};

/// Labs of one test: in a directory of their own, and taken down with it.
struct Labs {
    directory: TempDir,
    program: PathBuf,
    user: Option<u32>,
}

impl Labs {
    /// None, after saying why, where this host allows no labs.
    fn new() -> Option<Self> {
        has_labs().then(|| Self::with(PathBuf::from(PROGRAM), None))
    }

    /// As a user without any privilege.
    fn unprivileged() -> Option<Self> {
        if !is_root() {
            return Self::new();
        }
        let mut labs = Self::with(PathBuf::new(), Some(NOBODY));
        labs.program = copy_for_everybody(labs.directory.path());
        let tried = labs.lab(&["up", "--lab", "rtt=0s", "--name", "trial"]);
        if has_no_lab(&tried) {
            return None;
        }
        assert!(tried.status.success(), "{tried:?}");
        let down = labs.lab(&["down", "--name", "trial"]);
        assert!(down.status.success(), "{down:?}");
        Some(labs)
    }

    fn with(program: PathBuf, user: Option<u32>) -> Self {
        let directory = TempDir::new().unwrap();
        let runtime = directory.path().join("run");
        fs::create_dir(&runtime).unwrap();
        std::os::unix::fs::chown(&runtime, user, user).unwrap();
        Self { directory, program, user }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("XDG_RUNTIME_DIR", self.directory.path().join("run"));
        command.current_dir("/");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// `linerate lab …` to its end.
    fn lab(&self, arguments: &[&str]) -> Output {
        self.command().arg("lab").args(arguments).output().unwrap()
    }

    /// `linerate lab …`, which is to succeed: what it prints.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.lab(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What `linerate` does in a host of the only lab.
    fn linerate(&self, host: &str, arguments: &[&str]) -> Output {
        let mut command = self.command();
        command.args(["lab", "exec", host, "--"]).arg(&self.program);
        command.args(arguments).output().unwrap()
    }

    /// An endpoint in a host of the only lab, listening.
    fn serve(&self, host: &str) -> Killed {
        let mut command = self.command();
        command.args(["lab", "exec", host, "--"]).arg(&self.program);
        let child = command.arg("serve").stderr(Stdio::piped()).spawn();
        let mut running = Killed(child.unwrap());
        let mut line = String::new();
        let stderr = running.0.stderr.take().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        assert!(line.contains("listening"), "{line}");
        running
    }

    /// Once every lab has answered: on a busy machine that may take longer than the command waits.
    fn status(&self) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let text = self.done(&["status", "--json"]);
            let document: Value = serde_json::from_str(&text).unwrap();
            let mut labs = document["labs"].as_array().unwrap().iter();
            if labs.all(|lab| lab["links"].is_array()) || Instant::now() > end {
                return document;
            }
        }
    }

    /// The names in the directory of the labs' files.
    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory.path().join("run/linerate")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    fn write(&self, text: &str) -> String {
        let path = self.directory.path().join("lab.toml");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Labs {
    fn drop(&mut self) {
        let _ = self.lab(&["down", "--all"]);
    }
}

const NOBODY: u32 = 65534;

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/labs");
    path.join(name).to_str().unwrap().to_owned()
}

fn goes_up_and_down(labs: &Labs) {
    let printed = labs.done(&["up", "--lab", "rate=100mbit,rtt=4ms,hops=1"]);
    assert!(printed.contains("router r1"), "{printed}");

    let hosts = labs.done(&["exec", "server", "--", "cat", "/etc/hosts"]);
    assert!(hosts.contains("198.18.0.1 client\n2001:2::1 client\n"), "{hosts}");
    let script =
        "ls /sys/class/net | grep -v bonding_masters; echo --; cut -s -d: -f1 /proc/net/dev";
    let devices = labs.lab(&["exec", "client", "--", "sh", "-c", script]);
    let listed = String::from_utf8(devices.stdout.clone()).unwrap();
    let (shown, there) = listed.split_once("--").unwrap();
    let sorted = |names: &str| {
        let mut names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
        names.sort();
        names
    };
    if stderr(&devices).contains("/sys does not have") {
        skip(Need::Procfs, format_args!("devices in /sys: {}", stderr(&devices)))
    } else {
        assert_eq!(sorted(shown), sorted(there))
    }
    let status = labs.lab(&["exec", "client", "sh", "-c", "exit 7"]);
    assert_eq!(status.status.code(), Some(7));

    let _server = labs.serve("server");
    for family in ["-4", "-6"] {
        let run = labs.linerate("client", &["rr", "server", family, "--count", "5"]);
        assert!(run.status.success(), "{}", stderr(&run));
    }
    let document = labs.status();
    let lab = &document["labs"][0];
    assert_eq!(document["schema"], "linerate.lab/1");
    assert_eq!(lab["hosts"][2]["addresses"][0], "198.18.1.2");
    assert_eq!(lab["links"][0]["between"][1], "r1");
    assert!(lab["links"][0]["up"]["delivered"].as_u64() >= Some(10), "{lab}");
    assert!(lab["links"][1]["up"].is_null(), "it is plain");
    assert_eq!(lab["running"][0]["host"], "server");
    assert!(lab["links"][0]["up"]["offered"].as_u64() >= Some(10), "{lab}");
    let kept = labs.directory.path().join("labs.json");
    fs::write(&kept, document.to_string()).unwrap();
    let mut explain = labs.command();
    let explained = explain.arg("explain").arg(&kept).output().unwrap();
    let explained = String::from_utf8(explained.stdout).unwrap();
    assert!(explained.contains("link   client-r1"), "{explained}");

    let down = labs.lab(&["down"]);
    assert!(down.status.success() && stderr(&down).contains("still running: linerate"), "{down:?}");
    assert_eq!(labs.status()["labs"].as_array().unwrap().len(), 0);
    assert_eq!(labs.files(), ["labs.lock"]);
}

#[test]
fn a_lab_is_made_entered_looked_at_and_taken_down() {
    if let Some(labs) = Labs::new() {
        goes_up_and_down(&labs);
    }
}

#[test]
fn a_user_without_privileges_has_labs_too() {
    if let Some(labs) = Labs::unprivileged() {
        goes_up_and_down(&labs);
    }
}

#[test]
fn packets_pass_60_routers_and_live_as_long_as_their_ttl() {
    let Some(labs) = Labs::new() else {
        return;
    };
    labs.done(&["up", &example("chain.toml")]);
    let _server = labs.serve("omega");
    let set_ttl = |ttl: u32| {
        let script = format!("echo {ttl} > /proc/sys/net/ipv4/ip_default_ttl");
        labs.done(&["exec", "alpha", "--", "sh", "-c", &script]);
    };
    set_ttl(60);
    let run = labs.linerate("alpha", &["rr", "omega", "-4", "--count", "3"]);
    assert!(stderr(&run).contains("unreachable"), "{run:?}");
    set_ttl(61);
    // First each of 61 links asks for an address: on a busy machine that takes longer than 5 s.
    let patient = "rr omega -4 --count 3 --connect-timeout 50s";
    let run = labs.linerate("alpha", &patient.split(' ').collect::<Vec<_>>());
    assert!(run.status.success(), "{}", stderr(&run));
}

#[test]
fn each_of_ten_sites_reaches_each_other() {
    let Some(labs) = Labs::new() else {
        return;
    };
    labs.done(&["up", &example("mesh.toml")]);
    for (from, to) in [("site1", "site10"), ("site7", "site3")] {
        let _server = labs.serve(to);
        let run = labs.linerate(from, &["rr", to, "--count", "3"]);
        assert!(run.status.success(), "{}", stderr(&run));
    }
}

#[test]
fn what_a_killed_lab_left_is_removed_by_the_next_command_and_said() {
    let Some(labs) = Labs::new() else {
        return;
    };
    labs.done(&["up", "--lab", "rtt=2ms"]);
    let pid = labs.status()["labs"][0]["pid"].to_string();
    let killed = Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert!(killed.success());
    // Its threads end one after the other.
    let said = "lab lab was killed; what it left is removed";
    eventually(said, || stderr(&labs.lab(&["status"])).contains(said));
    assert!(!stderr(&labs.lab(&["status"])).contains("killed"));
    labs.done(&["up", "--lab", "rtt=2ms"]);
}

#[test]
fn several_labs_can_be_up_at_once() {
    let Some(labs) = Labs::new() else {
        return;
    };
    for name in ["one", "two"] {
        labs.done(&["up", "--lab", "rtt=2ms", "--name", name]);
    }
    let again = labs.lab(&["up", "--lab", "rtt=2ms", "--name", "one"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(stderr(&again).contains("a lab named one is up"), "{again:?}");
    let which = labs.lab(&["exec", "client", "--", "true"]);
    assert_eq!(which.status.code(), Some(2));
    assert!(stderr(&which).contains("one, two"), "{which:?}");
    labs.done(&["exec", "client", "--name", "two", "--", "true"]);
    labs.done(&["down", "--name", "one"]);
    labs.done(&["exec", "client", "--", "true"]);
    labs.done(&["down", "--all"]);
    assert_eq!(labs.status()["labs"].as_array().unwrap().len(), 0);
}

#[test]
fn what_is_wrong_is_said_and_leaves_nothing() {
    let Some(labs) = Labs::new() else {
        return;
    };
    let file = labs.write("[host.a]\n[host.b]\n[[link]]\nbetween = [\"a\", \"c\"]\n");
    let unknown = "[host.a]\nsysctl = { net.ipv4.no_such_key = 1 }\n";
    let missing = labs.directory.path().join("none.toml");
    let cases: [(&[&str], &str); 7] = [
        (&["up", &file], "lab.toml: line 4, column 17: no host or router has the name `c`"),
        (&["up", missing.to_str().unwrap()], "none.toml: No such file"),
        (&["up", "--lab", "rtt=1ms", "--name", "../x"], "is not a lab's name"),
        (&["up", "--lab", "trace=/no/such/trace"], "/no/such/trace"),
        (&["exec", "a", "--", "true"], "no lab is up"),
        (&["down", "--name", "x"], "no lab named x is up"),
        (&["status", "--name", "x"], "no lab named x is up"),
    ];
    for (arguments, words) in cases {
        let output = labs.lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
    let output = labs.lab(&["up", &labs.write(unknown)]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_says(&output, "no_such_key");
    assert_eq!(labs.status()["labs"].as_array().unwrap().len(), 0);
    assert_eq!(labs.files(), ["labs.lock"]);
}

/// Links in a row, each by its spec, and the rate of the slowest of them in Mbit/s.
const CHAINS: [(&[&str], f64); 6] = [
    (&["rtt=2ms", "rate=50mbit,rtt=30ms"], 50.0),
    (&["rate=50mbit,rtt=30ms", "rtt=2ms"], 50.0),
    (&["rtt=1ms", "rtt=1ms,mtu=1400", "rate=40mbit,rtt=4ms"], 40.0),
    (&["rate=80mbit,rtt=4ms", "rate=40mbit,rtt=4ms,mtu=1280"], 40.0),
    (&["", "rate=40mbit,queue=100p", "rtt=3ms"], 40.0),
    (&["rtt=1ms", "rate=60mbit", "rtt=1ms", "rate=30mbit,rtt=4ms"], 30.0),
];

/// A lab of a client, routers and a server joined by these links.
fn chain(links: &[&str]) -> String {
    let mut text = "[host.client]\n[host.server]\n".to_owned();
    for router in 1..links.len() {
        text += &format!("[router.r{router}]\n");
    }
    let name = |place: usize| match place {
        0 => "client".to_owned(),
        place if place == links.len() => "server".to_owned(),
        place => format!("r{place}"),
    };
    for (place, spec) in links.iter().enumerate() {
        let ends = [name(place), name(place + 1)];
        text += &format!("[[link]]\nbetween = {ends:?}\n");
        if !spec.is_empty() {
            text += &format!("spec = \"{spec}\"\n");
        }
    }
    text
}

/// Payload of a transfer over a chain.
const BYTES: u64 = 1_000_000;

#[test]
fn a_transfer_passes_a_chain_of_links_whole_and_no_faster_than_the_slowest() {
    let Some(labs) = Labs::new() else {
        return;
    };
    for (links, slowest_mbit) in CHAINS {
        labs.done(&["up", &labs.write(&chain(links))]);
        let began = Instant::now();
        let _server = labs.serve("server");
        let total = BYTES.to_string();
        for run in [["-4"].as_slice(), &["-6", "-R"], &["-6"], &["-4", "-R"]] {
            let line = [&["stream", "server", "-n", &total, "--json", "--quiet"], run].concat();
            let output = labs.linerate("client", &line);
            assert!(output.status.success(), "{run:?}: {}", stderr(&output));
            let record: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(record["bytes"], BYTES, "{links:?}, {run:?}");
        }
        let status = labs.status();
        let most = slowest_mbit * 1e6 * began.elapsed().as_secs_f64();
        for link in status["labs"][0]["links"].as_array().unwrap() {
            let is_slowest = link["spec"].to_string().contains(&format!("rate={slowest_mbit}mbit"));
            for way in ["up", "down"] {
                // A plain link counts nothing.
                let Some(bytes) = link[way]["delivered_bytes"].as_f64() else {
                    continue;
                };
                assert!(bytes >= 2.0 * BYTES as f64, "{links:?}: {link}");
                assert!(!is_slowest || 8.0 * bytes <= most, "{links:?}: {link}");
            }
        }
        labs.done(&["down"]);
    }
}
