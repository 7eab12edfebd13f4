//! Hints for users who type options of iperf3, netperf, mtr or traceroute.

use crate::iperf3::args as iperf3;

/// What to type instead of an option of another tool, at a command of linerate.
pub(super) fn hint(command: &str, option: &str) -> Option<&'static str> {
    let table = match command {
        "rr" | "crr" if matches!(option, "-n" | "--num") => {
            return Some("a number of transactions is --count");
        }
        "capacity" if option == "-c" => {
            return Some("the number of connections is --connections");
        }
        "capacity" if option == "-u" => return Some("the number of UDP sockets is --udp-sockets"),
        "check" if matches!(option, "-R" | "--reverse" | "--bidir" | "--direction") => {
            return Some("it measures both directions");
        }
        "trace" => TRACE,
        "serve" => SERVE,
        "" if iperf3::instead(option).is_some() => {
            return Some(
                "iperf3's command line is `linerate iperf3`, linerate's own `linerate stream HOST`",
            );
        }
        "" | "run" | "explain" | "analyze" => &[],
        command if command.contains(' ') => &[],
        _ => TRAFFIC,
    };
    let (_, hint) = table.iter().find(|(names, _)| names.contains(&option))?;
    Some(hint)
}

/// What to do instead of an option of iperf3's that no command of linerate's has.
pub(super) fn of_iperf3(command: &str, option: &str) -> Option<&'static str> {
    iperf3::instead(option).filter(|_| is_traffic(command))
}

/// Whether a command sends to an endpoint.
pub(super) fn is_traffic(command: &str) -> bool {
    let names = [
        "check", "stream", "rr", "crr", "load", "capacity", "compare", "profile",
    ];
    names.contains(&command)
}

type Hints = &'static [(&'static [&'static str], &'static str)];

const TRAFFIC: Hints = &[
    (&["-A", "--affinity"], "start it with taskset"),
    (
        &["--client", "-c", "-H"],
        "the host stands by itself, as in linerate stream HOST",
    ),
    (&["--server", "-s"], "the server is linerate serve"),
    (
        &["--bitrate", "--bandwidth"],
        "the rate of UDP is -b; a TCP flow has --pacing",
    ),
    (&["-D"], "TCP_NODELAY is -N, or --nodelay"),
    (&["-k"], "a number of messages is --count"),
    (&["--num"], "a number of bytes is -n, or --total"),
    (
        &["--tos", "-S"],
        "the code point is --dscp, a quarter of the TOS byte",
    ),
    (&["-B"], "the local address is --source"),
    (&["--verbose", "-V"], "the evidence is --details, or -v"),
    (&["--logfile"], "the document goes to a file by --output"),
    (
        &["-f", "--format"],
        "a page chooses its units; --json has bits per second",
    ),
    (
        &["--get-server-output"],
        "a record has both ends: --details, or --json",
    ),
];

const SERVE: Hints = &[
    (&["--server", "-s"], "serve is the server"),
    (
        &["-D", "--daemon"],
        "it stays in the foreground, as systemd expects it; or put & behind it",
    ),
    (&["-B"], "the local address is --bind"),
    (&["-I", "--pidfile"], "systemd or a shell knows its number"),
    (&["-J", "--json"], "events as JSON are --json-stream"),
    (&["--udp", "-u"], "it answers TCP and UDP"),
];

const TRACE: Hints = &[
    (
        &["--report", "-r", "--report-wide"],
        "a report is what trace prints without --watch",
    ),
    (
        &["--aslookup", "-z", "-A"],
        "AS numbers come from a table: --as-table FILE",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    #[test]
    fn hints_about_other_tools_name_options_that_the_command_has() {
        let cli = Cli::whole();
        let commands = [(TRAFFIC, "stream"), (SERVE, "serve"), (TRACE, "trace")];
        for (hint, command) in commands
            .iter()
            .flat_map(|(table, name)| table.iter().map(move |(_, hint)| (hint, name)))
        {
            let command = cli.find_subcommand(command).unwrap();
            let words = hint
                .split([' ', ',', ';'])
                .filter(|word| word.starts_with('-'));
            for word in words {
                let has = command.get_arguments().any(|argument| {
                    let long = argument.get_long().map(|long| format!("--{long}"));
                    let short = argument.get_short().map(|short| format!("-{short}"));
                    long.as_deref() == Some(word) || short.as_deref() == Some(word)
                });
                assert!(has, "{}: {hint}", command.get_name());
            }
        }
    }
}
