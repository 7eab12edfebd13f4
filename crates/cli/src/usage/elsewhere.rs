//! Hints for users who type the commands and options of other programs: iperf3, netperf, mtr,
//! traceroute, ping and others. Each is an entry of a table.

use crate::iperf3::args as iperf3;

/// What to type instead of a command that is another program's name, or is gone.
pub(super) fn program(name: &str) -> Option<&'static str> {
    found(PROGRAMS, name)
}

/// What to type instead of an option of another program, at a command of linerate.
pub(super) fn hint(command: &str, option: &str) -> Option<&'static str> {
    if command.is_empty() {
        return iperf3::instead(option).map(|_| IPERF3);
    }
    let mut tables = OPTIONS.iter().filter(|(commands, _)| commands.contains(&command));
    tables.find_map(|(_, hints)| found(hints, option))
}

/// What to type instead of a word that a command does not take.
pub(super) fn excess(command: &str, word: &str) -> Option<String> {
    let of_filters = FILTER_WORDS.iter().find(|(words, _)| words.contains(&word));
    if let Some((_, hint)) = of_filters.filter(|_| command == "connections") {
        return Some((*hint).to_owned());
    }
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let mut hints = EXCESS.iter();
    let (.., hint) = hints.find(|(commands, of_numbers, _)| {
        commands.contains(&command) && *of_numbers == is_number
    })?;
    Some(hint.replace("{}", word))
}

/// What to do instead of an option of iperf3's that no command of linerate's has.
pub(super) fn of_iperf3(command: &str, option: &str) -> Option<&'static str> {
    iperf3::instead(option).filter(|_| is_traffic(command))
}

/// Whether a command sends to an endpoint.
pub(super) fn is_traffic(command: &str) -> bool {
    TRAFFIC.contains(&command)
}

fn found(hints: Hints, name: &str) -> Option<&'static str> {
    let (_, hint) = hints.iter().find(|(names, _)| names.contains(&name))?;
    Some(hint)
}

/// Names that share a hint, and the hint.
type Hints = &'static [(&'static [&'static str], &'static str)];

const IPERF3: &str =
    "iperf3's command line is `linerate iperf3`, linerate's own `linerate stream HOST`";

/// Other programs, and commands that are other programs now, with what does what they do.
const PROGRAMS: Hints = &[
    (&["mtr", "ping", "fping", "ping6", "hping3"], "linerate trace HOST --watch"),
    (&["traceroute", "traceroute6", "tracepath", "tcptraceroute"], "linerate trace HOST"),
    (&["iperf", "nuttcp", "ttcp"], "linerate stream HOST"),
    (&["netperf", "neper", "sockperf", "qperf"], "linerate stream HOST or linerate rr HOST"),
    (&["netserver"], "linerate serve --netperf"),
    (&["flent"], "linerate load HOST"),
    (&["speedtest", "test"], "linerate check HOST"),
    (&["ss", "netstat", "lsof"], "linerate connections"),
    (&["iftop", "nethogs", "tcptop"], "linerate connections --watch"),
    (&["tcpdump", "tshark", "wireshark", "tcptrace"], "linerate explain FILE, with their capture"),
    (&["tc", "netem"], "linerate qos apply FILE for classes, linerate lab up to emulate a path"),
    (&["nc", "ncat", "netcat", "socat"], "linerate serve there and linerate stream HOST here"),
    (&["dig", "nslookup"], "linerate trace HOST, which resolves the name; dig shows its records"),
    (&["owping", "twping", "irtt"], "linerate rr HOST -u --stamp --rate 10"),
    (&["ab", "wrk", "hey"], "linerate crr HOST"),
    (&["ethtool", "sysctl"], "linerate host show"),
    (&["perf"], "linerate profile HOST"),
    (&["server", "listen"], "linerate serve"),
    (&["client"], "linerate stream HOST"),
    (&["watch", "top"], "linerate connections --watch or linerate trace HOST --watch"),
    (&["version"], "linerate --version"),
    (
        &["qos cost"],
        "linerate compare HOST --a none --b qos=FILE; or the paper's: linerate run \
         experiments/ipqos.toml",
    ),
    (
        &["mesh simulate"],
        "in the source: cargo run --release -p linerate-mesh --example simulate FILE",
    ),
    (&["lab truth"], "linerate-truth (cargo run --release -p linerate-truth)"),
];

/// Commands that send to an endpoint.
const TRAFFIC: &[&str] =
    &["check", "stream", "rr", "crr", "load", "throughput", "capacity", "compare", "profile"];
const STREAMS: &[&str] = &["stream", "compare", "profile"];
const TESTS: &[&str] = &["stream", "rr", "crr", "compare", "profile"];

/// Options of other programs, by the commands where they are typed. The first table that has a
/// command and an option gives the hint.
const OPTIONS: &[(&[&str], Hints)] = &[
    (&["rr", "crr"], EXCHANGE),
    (&["capacity"], CAPACITY),
    (&["check"], CHECK),
    (&["compare"], COMPARE),
    (&["stream", "compare"], &[(&["-k"], "a number of messages is --count")]),
    (STREAMS, OF_STREAMS),
    (TESTS, OF_TESTS),
    (TRAFFIC, OF_TRAFFIC),
    (&["serve"], SERVE),
    (&["trace"], TRACE),
    (&["explain", "connections"], CONNECTIONS),
    (
        &["monitor", "mesh up"],
        &[(
            &["--remote-write"],
            "metrics are sent by --otlp; to Prometheus 2.47 or later as --otlp \
             http://HOST:9090/api/v1/otlp/v1/metrics",
        )],
    ),
    (&["report"], &[(&["--png"], "charts are SVG, by --svg; rsvg-convert makes PNG of it")]),
];

const EXCHANGE: Hints = &[
    (&["-n", "--num", "-k"], "a number of transactions is --count"),
    (&["-r"], "the sizes are --request and --response"),
];

const CAPACITY: Hints = &[
    (&["-c"], "the number of connections is --connections"),
    (&["-u"], "the number of UDP sockets is --udp-sockets"),
];

const CHECK: Hints =
    &[(&["-R", "--reverse", "--bidir", "--direction"], "it measures both directions")];

const COMPARE: Hints = &[
    (&["-a", "-A"], "treatment A is --a, with two dashes"),
    (&["-B"], "treatment B is --b, with two dashes"),
];

const OF_STREAMS: Hints = &[
    (&["--num"], "a number of bytes is -n, or --total"),
    (&["--bitrate", "--bandwidth"], "the rate of UDP is -b; a TCP flow has --pacing"),
];

const OF_TESTS: Hints = &[
    (&["-D"], "TCP_NODELAY is -N, or --nodelay"),
    (&["--tos", "-S"], "the code point is --dscp, a quarter of the TOS byte"),
];

const OF_TRAFFIC: Hints = &[
    (&["-A", "--affinity"], "start it with taskset"),
    (&["--client", "-c", "-H"], "the host stands by itself, as in linerate stream HOST"),
    (&["--server", "-s"], "the server is linerate serve"),
    (&["-B"], "the local address is --source"),
    (&["--verbose", "-V"], "the evidence is --details, or -v"),
    (&["--logfile"], "the document goes to a file by --output"),
    (&["-f", "--format"], "a page chooses its units; --json has bits per second"),
    (&["--get-server-output"], "a record has both ends: --details, or --json"),
];

const SERVE: Hints = &[
    (&["--server", "-s"], "serve is the server"),
    (&["-D", "--daemon"], "it stays in the foreground, as systemd expects it; or put & behind it"),
    (&["-B"], "the local address is --bind"),
    (&["-I", "--pidfile"], "systemd or a shell knows its number"),
    (&["-J", "--json"], "events as JSON are --json-stream"),
    (&["--udp", "-u"], "it answers TCP and UDP"),
];

/// mtr 0.95 and traceroute 2.1, where their letters are not trace's own.
const TRACE: Hints = &[
    (&["--report", "-r", "--report-wide"], "a report is what trace prints without --watch"),
    (&["--mtr", "--curses", "--gtk", "--displaymode"], "mtr's screen is --watch"),
    (
        &["--aslookup", "-z", "-A", "-y", "--ipinfo", "--as-path-lookups"],
        "AS numbers come from a table: --as-table FILE",
    ),
    (&["-P"], "the port is -p, or --port"),
    (&["-R", "--back", "--way-back"], "the way back is --reverse, with `linerate serve` there"),
    (
        &["--order", "-b", "--show-ips", "-e", "--mpls"],
        "the columns are fixed; --details prints more, --json everything",
    ),
    (&["-j"], "the document is --json"),
    (
        &["--csv", "-C", "--xml", "-x", "--raw", "-l", "--split"],
        "a trace has no table; the document is --json",
    ),
    (&["-Q", "--tos"], "the code point is --dscp"),
    (&["-F", "--dont-fragment"], "the path MTU is found by --mtu"),
    (&["-a", "--address"], "the local address is -s, or --source"),
    (&["-Z", "--wait"], "the wait for an answer is -w, or --timeout"),
    (&["-S", "--sctp", "--dccp"], "probes are -U, -T or -I"),
    (&["-N", "--sim-queries", "--sendwait"], "it paces its probes itself"),
    (&["-L", "--localport", "--sport"], "trace chooses its source ports; --paths varies them"),
];

const CONNECTIONS: Hints = &[
    (&["-t", "--tcp"], "all that are listed are TCP"),
    (&["-l"], "listening sockets: linerate connections --listen"),
    (&["-n", "--numeric"], "addresses are always numeric"),
    (
        &["-a", "--all"],
        "listening sockets: linerate connections --listen; in other states: linerate connections \
         --state STATE",
    ),
    (&["--processes", "-e", "--extended", "-m", "--memory"], "all that is known is --details"),
    (&["-s", "--summary"], "linerate connections --by cause sums them up"),
    (&["-4", "-6"], "a family is a network: --peer 0.0.0.0/0 or --peer ::/0"),
];

/// Words of ss's filters, and the option for each.
const FILTER_WORDS: Hints = &[
    (&["dport", "sport"], "a local or remote port is --port 443"),
    (&["dst", "src"], "the other end is --peer 10.0.0.0/8"),
    (&["state", "exclude"], "a state is --state established"),
    (&["established", "time-wait", "close-wait", "syn-sent"], "a state is --state established"),
    (&["listening"], "listening sockets are --listen"),
];

/// Commands, whether the word that they do not take is a number, and the hint; `{}` stands for
/// the word.
const EXCESS: &[(&[&str], bool, &str)] = &[
    (&["check", "stream", "rr", "crr", "compare", "profile", "serve"], true, "the port is -p {}"),
    (&["capacity"], true, "the number of connections is --connections {}"),
    (&["trace"], true, "a port is -p {}, the length of probes --size {}"),
    (&["serve"], false, "the address to listen on is --bind"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    /// The options in a hint that the command lacks.
    fn unknown<'a>(command: &clap::Command, hint: &'a str) -> Vec<&'a str> {
        let words = hint.split([' ', ',', ';', ':', '`']);
        let options = words.filter(|word| word.starts_with('-'));
        let lacks = |word: &&str| {
            !command.get_arguments().any(|argument| {
                let long = argument.get_long().map(|long| format!("--{long}"));
                let short = argument.get_short().map(|short| format!("-{short}"));
                long.as_deref() == Some(word) || short.as_deref() == Some(word)
            })
        };
        options.filter(lacks).collect()
    }

    /// Commands that a hint names, as `linerate NAME`, with their options behind them.
    fn named(hint: &str) -> Vec<&str> {
        hint.split("linerate ").skip(1).collect()
    }

    #[test]
    fn hints_about_other_programs_name_options_that_the_command_has() {
        let cli = Cli::whole();
        for (commands, hints) in OPTIONS {
            for (command, (_, hint)) in
                commands.iter().flat_map(|c| hints.iter().map(move |h| (c, h)))
            {
                let command =
                    command.split(' ').fold(&cli, |cli, name| cli.find_subcommand(name).unwrap());
                // The options of a command that a hint names are that command's.
                let own = hint.split("linerate ").next().unwrap_or_default();
                assert_eq!(unknown(command, own), [""; 0], "{}: {hint}", command.get_name());
            }
        }
        let connections = cli.find_subcommand("connections").unwrap();
        for (_, hint) in FILTER_WORDS {
            assert_eq!(unknown(connections, hint), [""; 0], "{hint}");
        }
        for (commands, _, hint) in EXCESS {
            for command in *commands {
                let command = cli.find_subcommand(command).unwrap();
                assert_eq!(unknown(command, hint), [""; 0], "{}", command.get_name());
            }
        }
    }

    #[test]
    fn the_page_for_those_who_come_from_other_tools_names_what_there_is() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/from-other-tools.md");
        let page = std::fs::read_to_string(page).unwrap();
        let cli = Cli::whole();
        for tool in ["iperf3", "flent", "netperf", "nuttcp", "mtr", "ping", "ss"] {
            let heading = format!("\n## From {tool}");
            let section = page.split(&heading).nth(1).expect(tool).split("\n## ").next().unwrap();
            let rows =
                section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
            let mut lines = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).peekable();
            assert!(lines.peek().is_some(), "no table for {tool}");
            for line in lines {
                let command = cli.find_subcommand(line.split(' ').next().unwrap());
                let unknown = command.map_or(Vec::new(), |command| unknown(command, line));
                assert_eq!(unknown, [""; 0], "{line}");
            }
        }
    }

    #[test]
    fn hints_name_commands_that_exist_and_their_options() {
        let cli = Cli::whole();
        let all = OPTIONS.iter().flat_map(|(_, hints)| hints.iter());
        for (_, hint) in all.chain(PROGRAMS) {
            for line in named(hint) {
                let name = line.split([' ', '`', ',']).next().unwrap();
                let command = match name.starts_with('-') {
                    true => &cli,
                    false => cli.find_subcommand(name).unwrap(),
                };
                assert_eq!(unknown(command, line), [""; 0], "{hint}");
            }
        }
        for (names, _) in PROGRAMS {
            assert!(names.iter().all(|name| cli.find_subcommand(name).is_none()));
        }
    }
}
