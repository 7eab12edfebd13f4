//! Completions as a user gets them: keys that are typed at a shell in a pseudo-terminal.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use linerate_testkit::{Need, eventually, skip};

use crate::support::{PROGRAM, done};

/// What is typed, and the words that the program is then called with.
const TYPED: &[(&str, &str)] = &[
    ("linerate chec\t", "check"),
    ("linerate check --quic\t", "check --quick"),
    ("linerate host sho\t", "host show"),
    ("linerate check --via ip\t", "check --via iperf3"),
];

/// A shell in a terminal, until this is dropped.
struct Shell {
    child: Child,
    screen: Arc<Mutex<String>>,
}

impl Shell {
    /// `command` reads what `directory` has for it; its prompt is `ready>`.
    fn start(directory: &Path, command: &str) -> Self {
        let mut script = Command::new("script");
        // A terminal that asks nothing, and is wide enough.
        let command = format!("stty cols 200 rows 50; exec {command}");
        script.args(["-qc", &command, "/dev/null"]);
        script.env("TERM", "xterm").env("SHELL", "/bin/sh");
        script.env("HOME", directory).env("ZDOTDIR", directory);
        script.current_dir(directory);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().expect("it was asked for");
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (child.stdout.take().expect("piped"), Arc::clone(&screen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let mut screen = to.lock().expect("nobody panics with it");
                *screen += &String::from_utf8_lossy(&bytes[..count]);
            }
        });
        Self { child, screen }
    }

    fn screen(&self) -> String {
        self.screen.lock().expect("nobody panics with it").clone()
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        stdin.write_all(keys.as_bytes()).expect("it reads");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Ended already, where its test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the program's place: it writes down what it was called with.
const BASH: &str = "linerate() { echo \"$*\" >> called; }\nPS1='ready> '\n. ./linerate.bash\n";
const ZSH: &str = "linerate() { echo \"$*\" >> called }\nPROMPT='ready> '\nfpath=($PWD $fpath)\n\
    autoload -Uz compinit\ncompinit -D -u\n";
const FISH: &str = "function linerate; echo $argv >> called; end\n\
    function fish_prompt; echo 'ready> '; end\nfunction fish_greeting; end\n\
    source linerate.fish\n";

#[test]
fn a_tab_completes_commands_options_and_values() {
    let script = Command::new("script").arg("--version").output();
    for (shell, file, setup, command) in [
        ("bash", "linerate.bash", BASH, "bash --noprofile --rcfile setup -i"),
        ("zsh", "_linerate", ZSH, "zsh -i"),
        ("fish", "linerate.fish", FISH, "fish --no-config -iC 'source setup'"),
    ] {
        if script.is_err() || Command::new(shell).args(["-c", "true"]).output().is_err() {
            let missing = format!("needs {shell} and script: apt-get install {shell} bsdutils");
            skip(Need::Shells, missing);
            continue;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let completions = done(Command::new(PROGRAM).args(["completions", shell])).stdout;
        fs::write(at(file), completions).expect("written");
        for name in ["setup", ".zshrc"] {
            fs::write(at(name), setup).expect("written");
        }
        let mut terminal = Shell::start(directory.path(), command);
        for (line, (keys, called)) in TYPED.iter().enumerate() {
            // A shell may throw away what is typed before it asks.
            eventually("its prompt", || terminal.screen().matches("ready>").count() > line);
            terminal.press(&format!("{keys}\r"));
            let mut all = String::new();
            eventually(&format!("{shell}: {keys:?}"), || {
                all = fs::read_to_string(at("called")).unwrap_or_default();
                all.lines().count() > line
            });
            let last = all.lines().nth(line).expect("a line").trim();
            assert_eq!(last, *called, "{shell}: {}", terminal.screen());
        }
    }
}
