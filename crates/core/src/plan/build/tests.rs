use super::*;
use crate::units::ByteCount;

fn seconds(seconds: f64) -> Span {
    Span::from_secs_f64(seconds).unwrap()
}

/// What is wrong with options of a workload.
fn error(workload: Workload, options: &[(&str, &str)]) -> String {
    let mut draft = Draft::new(workload);
    for (key, text) in options {
        if let Err(error) = draft.set(key, text) {
            return error.to_string();
        }
    }
    draft.resolve(1).unwrap_err().to_string()
}

#[test]
fn every_default_is_a_value_of_its_option() {
    for workload in [Workload::Stream, Workload::Rr, Workload::Crr] {
        for protocol in [Protocol::Tcp, Protocol::Mptcp, Protocol::Udp] {
            if (workload, protocol) == (Workload::Crr, Protocol::Udp) {
                continue;
            }
            let test = Draft::new(workload).protocol(protocol).resolve(7).unwrap();
            let given: Vec<_> = test.given().into_iter().map(|(it, _)| it.key).collect();
            // To send datagrams without a rate is to be typed.
            let told = ["protocol", "rate"];
            assert!(given.iter().all(|key| told.contains(key)), "{given:?}");
        }
    }
}

#[test]
fn what_was_given_comes_back_as_words_of_a_command_line() {
    let test = Test::stream()
        .protocol(Protocol::Tcp)
        .mss(536u32)
        .direction(Direction::Down)
        .bytes(ByteCount(4096))
        .pacing(crate::units::BitRate(1_500_000))
        .nodelay(true)
        .resolve(7)
        .unwrap();
    assert_eq!(
        test.typed(&[]),
        ["--bytes 4096", "-R", "--mss 536", "--pacing 1.5mbit", "--nodelay"]
    );
}

#[test]
fn a_test_made_of_what_was_given_is_the_same_test() {
    let mut draft = Draft::new(Workload::Rr);
    let options =
        [("count", "10"), ("request", "64"), ("depth", "4"), ("dscp", "EF"), ("streams", "3")];
    for (key, text) in options {
        draft.set(key, text).unwrap();
    }
    let test = draft.resolve(7).unwrap();
    let mut again = Draft::new(Workload::Rr);
    for (option, value) in test.given() {
        again.set(option.key, &option.kind.written(&value)).unwrap();
    }
    assert_eq!(again.resolve(7).unwrap(), test);
}

#[test]
fn rules_look_at_the_rest_of_the_test() {
    let short = Test::stream().time(seconds(0.3)).resolve(7).unwrap();
    assert_eq!((short.warm_up, short.interval), (seconds(0.03), seconds(0.3)));
    let counted = Test::stream().count(5u64).resolve(7).unwrap();
    assert_eq!((counted.warm_up, counted.interval), (seconds(0.0), seconds(1.0)));
    assert!(Test::rr().resolve(7).unwrap().options.nodelay);
}

#[test]
fn a_total_is_shared_by_the_flows_and_a_window_is_both_buffers() {
    let test = Test::stream().total(ByteCount(1001)).streams(4u32).window(ByteCount(9000));
    let test = test.resolve(7).unwrap();
    assert_eq!(test.extent, Extent::Bytes(ByteCount(251)));
    let options = &test.options;
    assert_eq!(options.receive_window_bytes, options.send_buffer_bytes);
    assert_eq!(options.send_buffer_bytes, Some(ByteCount(9000)));
}

#[test]
fn impossible_options_are_refused_with_option_and_reason() {
    use Workload::{Crr, Rr, Stream};
    for (workload, options, expected) in [
        (Stream, &[("mss", "87")][..], "`mss` 87: it must be 88 to 32767 bytes"),
        (Stream, &[("depth", "2")], "stream has no option `depth`; rr has it"),
        (Stream, &[("mss", "536"), ("mss", "537")], "`mss` is given twice"),
        (Stream, &[("time", "1"), ("count", "2")], "`count` cannot be used with `time`"),
        (
            Stream,
            &[("protocol", "udp"), ("mss", "536")],
            "`mss` cannot be used with `protocol` udp: it is an option of TCP sockets",
        ),
        (
            Stream,
            &[("streams", "129"), ("direction", "both")],
            "`streams` 129: it must be 1 to 128 in both directions",
        ),
        (Stream, &[("batch", "8"), ("verify", "on")], "`verify` cannot be used with `batch`"),
        (
            Stream,
            &[("rate", "1mbit")],
            "`rate` cannot be used with TCP: a TCP stream is limited by `pacing` or \
             `write-rate`",
        ),
        (Stream, &[("protocol", "udp"), ("size", "9")], "`size` 9: it must be 16 to 65527"),
        (
            Stream,
            &[("offload", "off")],
            "`offload` cannot be used with TCP: it is an option of UDP",
        ),
        (
            Crr,
            &[("protocol", "udp")],
            "crr cannot be used with `protocol` udp: it opens connections, and UDP has none",
        ),
        (
            Rr,
            &[("depth", "1024"), ("request", "1MiB")],
            "`depth` times the size is 1073741824 bytes: it must be up to 64MiB",
        ),
    ] {
        assert_eq!(error(workload, options), expected);
    }
    let error = Test::rr().bytes(ByteCount(1)).resolve(7).unwrap_err();
    assert_eq!(
        (error.key(), error.to_string().as_str()),
        ("bytes", "rr has no option `bytes`; stream has it")
    );
}

#[test]
fn a_warm_up_goes_with_a_time_only() {
    for (extent, other) in [(Extent::Bytes(ByteCount(9000)), "bytes"), (Extent::Count(5), "count")]
    {
        let mut test = Test::stream().time(seconds(1.0)).resolve(7).unwrap();
        assert_eq!(test.check(), Ok(()));
        test.extent = extent;
        let error = test.check().unwrap_err();
        let expected = format!("`warm-up` cannot be used with `{other}`");
        assert_eq!((error.key(), error.to_string()), ("warm-up", expected));
        test.warm_up = seconds(0.0);
        assert_eq!(test.check(), Ok(()));
    }
}

#[test]
fn a_message_names_options_as_the_command_line_does() {
    let mut draft = Test::stream();
    draft.set("rate", "1mbit").unwrap();
    let error = draft.resolve(7).unwrap_err();
    assert_eq!(
        error.on_command_line(),
        "--rate cannot be used with TCP: a TCP stream is limited by --pacing or \
         --write-rate"
    );
}
