//! `rerun`: runs the test of a stored document again, by the command that the document holds.

use anyhow::{Context, ensure};
use linerate_core::remedy::shell_word;
use linerate_core::units::listed;

use crate::args::{Command, RerunArgs};
use crate::failure::{Failure, without_passwords};
use crate::stored::Opened;
use crate::typed::{self, CommandLine, OF_OUTPUT};
use crate::{output, usage};

/// The command that runs the document's test again. With `--list` its line is printed here, and
/// there is none.
///
/// # Errors
/// There is no such document, or it has no such command.
pub(crate) fn command(args: &RerunArgs) -> Result<Option<Command>, Failure> {
    let opened = Opened::new("", &args.file, args.document.keep.db.as_ref())?;
    let name = opened.name.clone();
    let document = opened.document("rerun").map_err(Failure::usage)?;
    let again = again(&document.command, args.host.as_deref(), typed::line());
    let words = again.context(name).map_err(Failure::usage)?.words();
    let line: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let line = without_passwords(&line.join(" "));
    if args.list {
        return output::print(&format!("{line}\n")).map(|()| None);
    }
    if !args.document.quiet {
        if words.iter().any(|word| word.contains("qos=")) {
            output::note("the policy is what its file says now");
        }
        output::note(&line);
    }
    let cli = usage::parse(words.into_iter().map(Into::into))?;
    Ok(Some(cli.command))
}

/// Commands whose tests are run again.
const RERUN: [&str; 9] =
    ["stream", "rr", "crr", "check", "compare", "load", "throughput", "capacity", "trace"];

/// The command line of a document with the options of `rerun`, as it was `given`, and with another
/// endpoint if there is a `host`.
fn again(
    command: &[String],
    host: Option<&str>,
    given: CommandLine,
) -> anyhow::Result<CommandLine> {
    let name = command.get(1).context(
        "it does not hold its `command`: it is of an earlier version, or a monitor's check \
         or load; `linerate explain` explains it",
    )?;
    ensure!(
        RERUN.contains(&&**name),
        "`linerate {name}` made it, which is not run again; {} are",
        listed(&RERUN, "and")
    );
    let mut line = usage::command_line(command).context("its `command`")?.without(OF_OUTPUT);
    if let Some(host) = host {
        // With --lab the first word is no host.
        if !line.has("lab") {
            line = line.without("host");
        }
        line = line.without("lab port ipv4 ipv6 key_file").with_host(host);
    }
    let given = given.without("file host list");
    for anew in ["seed", "key_file"] {
        if given.has(anew) {
            line = line.without(anew);
        }
    }
    Ok(line.and(given))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::planned;

    fn read(line: &str) -> CommandLine {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        usage::command_line(&words).unwrap()
    }

    /// The command line of `rerun` with these options, for the document of a command.
    fn typed(made: &str, options: &str) -> anyhow::Result<String> {
        let given = read(&format!("linerate rerun x.json{options}"));
        let host = options.split_once("--host ").map(|(_, rest)| rest.split(' ').next().unwrap());
        Ok(again(&read(made).of_document(), host, given)?.words().join(" "))
    }

    #[test]
    fn a_command_is_run_again_as_it_was_typed() {
        for (options, is_test) in [
            ("stream pit -R -P 4 -t 2500ms --mss 536 -C reno --dscp EF -4 -p 5202", true),
            ("stream pit -u --rate 10mbit --size 1000 --count 50", true),
            ("stream pit --size 64,128,1448 --warm-up 0", true),
            ("stream pit --size=32 --batch=16 --repeat 3", true),
            ("rr pit -u --stamp --rate 10 --request 100", true),
            ("rr pit --objects 40 --streams 6 --rate 0.5", true),
            ("rr pit --video --request 400 --precision 2%", true),
            ("crr pit --close client --reset --fast-open", true),
            ("check --quick", false),
            ("check pit -ub 20mbit", false),
            ("compare --lab rate=50mbit --a mss=536 --b none --metric rpm,udp.lost", false),
            ("load pit,pat mine.toml", false),
            ("load --lab rtt=2ms voip -t 3s", false),
            ("capacity pit --connections 9 --requests 100 --sources 127.0.0.1,127.0.0.2", false),
            ("trace pit -n --paths=99 --reverse -I", false),
        ] {
            let line = typed(&format!("linerate {options}"), "").unwrap();
            assert!(line.contains(" --seed "), "{line}");
            assert_eq!(typed(&line, "").unwrap(), line);
            if is_test {
                let again = planned(line.trim_start_matches("linerate "));
                assert_eq!(again.unwrap(), planned(options).unwrap(), "{line}");
            }
        }
    }

    #[test]
    fn a_rerun_is_given_its_endpoint_key_seed_and_output_anew() {
        let made = "linerate stream pit -p 5202 -R --key-file k --seed 7 --json --output a.json \
                    --save --db postgres://me:secret@db/x --fail-on-worse 5%";
        let first = "linerate stream pit --port 5202 -R --key-file k --seed 7";
        for (options, line) in [
            ("", first.to_owned()),
            (" --output b.json --quiet", format!("{first} --output b.json --quiet")),
            (" --seed 8", first.replace("7", "8")),
            (" --key-file other", first.replace("--key-file k", "") + " --key-file other"),
            (" --host pat:5201", "linerate stream pat:5201 -R --seed 7".to_owned()),
        ] {
            let typed = typed(made, options).unwrap();
            let [is, expected] = [&typed, &line].map(|line| {
                let mut words: Vec<&str> = line.split_whitespace().collect();
                words.sort_unstable();
                words
            });
            assert_eq!(is, expected, "{typed}");
        }
        let lab = "linerate load --lab rtt=2ms voip --seed 7";
        let line = typed(lab, " --host pit").unwrap();
        assert_eq!(line, "linerate load pit voip --seed 7");
    }

    #[test]
    fn what_does_not_hold_such_a_command_is_refused() {
        for (command, why) in [
            (&[][..], "it does not hold its `command`"),
            (&["linerate", "host", "show"], "`linerate host` made it, which is not run again"),
            (&["linerate", "stream", "pit", "--frob"], "its `command`"),
        ] {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            let error = again(&command, None, read("linerate rerun x.json")).unwrap_err();
            assert!(error.to_string().starts_with(why), "{error}");
        }
    }
}
