//! What options of iperf3, netperf, mtr and traceroute are here.

/// What to type instead of an option of another tool, at a command of linerate.
pub(super) fn hint(command: &str, option: &str) -> Option<&'static str> {
    let table = match command {
        "trace" => TRACE,
        "serve" => SERVE,
        "" | "run" | "explain" | "analyze" => &[],
        command if command.contains(' ') => &[],
        _ => TRAFFIC,
    };
    let (_, hint) = table.iter().find(|(names, _)| names.contains(&option))?;
    Some(hint)
}

/// Whether a command sends to an endpoint.
pub(super) fn is_traffic(command: &str) -> bool {
    let names = [
        "check", "stream", "rr", "crr", "capacity", "compare", "profile",
    ];
    names.contains(&command)
}

type Hints = &'static [(&'static [&'static str], &'static str)];

const TRAFFIC: Hints = &[
    (&["--udp"], "UDP is -u"),
    (
        &["--client", "-c", "-H"],
        "the host stands by itself, as in linerate stream HOST",
    ),
    (&["--server", "-s"], "the server is linerate serve"),
    (&["--parallel"], "parallel flows are -P, or --streams"),
    (
        &["--bitrate", "--bandwidth"],
        "the rate of UDP is -b; a TCP flow has --pacing",
    ),
    (&["--fq-rate"], "the pacing of each flow is --pacing"),
    (
        &["--reverse"],
        "the reverse direction is -R, or --direction down",
    ),
    (
        &["--length", "--len"],
        "the size of a message is -l, or --size",
    ),
    (&["--set-mss"], "the maximum segment size is -M, or --mss"),
    (&["--no-delay", "-D"], "TCP_NODELAY is -N, or --nodelay"),
    (&["--blockcount", "-k"], "a number of messages is --count"),
    (&["--num"], "a number of bytes is -n, or --total"),
    (
        &["--tos", "-S"],
        "the code point is --dscp, a quarter of the TOS byte",
    ),
    (
        &["--linux-congestion"],
        "the congestion control is -C, or --congestion",
    ),
    (&["--version4"], "only IPv4 is -4"),
    (&["--version6"], "only IPv6 is -6"),
    (&["--bind", "-B"], "the local address is --source"),
    (&["--bind-dev"], "the interface is --device"),
    (&["-J"], "JSON is --json"),
    (&["--logfile"], "the document goes to a file by --output"),
    (
        &["--affinity", "-A"],
        "the CPU of a process is set by taskset",
    ),
    (
        &["-f", "--format"],
        "a page chooses its units; --json has bits per second",
    ),
];

const SERVE: Hints = &[
    (&["--server", "-s"], "serve is the server"),
    (
        &["-D", "--daemon"],
        "it stays in the foreground, as systemd expects it; or put & behind it",
    ),
    (&["-B"], "the local address is --bind"),
    (&["-J", "--json"], "events as JSON are --json-stream"),
    (&["--udp", "-u"], "it answers TCP and UDP"),
];

const TRACE: Hints = &[
    (
        &["--report", "-r", "--report-wide"],
        "a report is what trace prints without --watch",
    ),
    (&["--report-cycles"], "a number of rounds is --count"),
    (&["--tcp", "-T"], "TCP probes are --protocol tcp"),
    (&["--udp", "-U", "-u"], "UDP probes are --protocol udp"),
    (&["--icmp", "-I"], "ICMP probes are --protocol icmp"),
    (&["--max-hops", "--max-ttl"], "the highest TTL is --hops"),
    (&["--first-ttl", "--first-hop"], "the lowest TTL is --first"),
    (&["--no-dns"], "addresses without names are -n"),
    (
        &["--aslookup", "-z", "-A"],
        "AS numbers come from a table: --as-table FILE",
    ),
    (&["--psize"], "the size of a probe is --size"),
    (&["--interface"], "the interface is --device"),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn hints_about_other_tools_name_options_that_the_command_has() {
        let cli = Cli::command();
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
