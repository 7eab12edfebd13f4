//! Clients that vanish in any state.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::thread;

use linerate_core::foreign::iperf3::{Cookie, State};
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, PATIENCE, eventually, made_or_skip, skip, uninterrupted};

use super::bench::{Bench, LIMITS, is_installed};

const TCP: &str = r#"{"tcp":true,"len":1000,"time":30,"parallel":2}"#;
const BOTH: &str = r#"{"tcp":true,"len":1000,"time":30,"parallel":2,"bidirectional":true}"#;
const UDP: &str = r#"{"udp":true,"len":1000,"time":30,"parallel":1,"bandwidth":1000000}"#;
/// Of them all, in so many states.
const STATES: u32 = 12;

/// A client that stops in one of the states; its sockets are open until this is dropped.
struct Stranger {
    _streams: Vec<TcpStream>,
    _datagrams: Option<UdpSocket>,
}

fn expect(control: &mut TcpStream, state: State) {
    let mut byte = [0];
    control.read_exact(&mut byte).unwrap();
    assert_eq!(byte[0], state.0);
}

fn framed(json: &str) -> Vec<u8> {
    let mut bytes = (json.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes
}

impl Stranger {
    fn come(bench: &Bench, number: u32) -> Self {
        // A test that runs costs both ends some milliseconds: so fewer of these.
        let state = match number % STATES {
            running @ 7..=10 if !(number / STATES).is_multiple_of(4) => running - 5,
            state => state,
        };
        let mut random = [0; 36];
        random[..4].copy_from_slice(&number.to_be_bytes());
        // Four bits in each letter.
        for (at, letter) in random.iter_mut().enumerate().take(8) {
            *letter = ((number >> (4 * at)) & 15) as u8;
        }
        let cookie = Cookie::from_random(random).0;
        match state {
            0 => return Self::of(bench.say(b"")),
            1 => return Self::of(bench.say(&cookie[..20])),
            _ => {}
        }
        let mut control = bench.say(&cookie);
        expect(&mut control, State::PARAM_EXCHANGE);
        match state {
            2 => return Self::of(control),
            3 => control.write_all(&[0, 0, 0, 200, b'{']).unwrap(),
            4 => control.write_all(&[0xff; 64]).unwrap(),
            5 => control.write_all(&framed("[[[[")).unwrap(),
            6..=9 => return Self::with_streams(bench, control, &cookie, state, TCP),
            10 => return Self::with_streams(bench, control, &cookie, state, BOTH),
            _ => return Self::with_datagrams(bench, control, number),
        }
        Self::of(control)
    }

    fn of(stream: TcpStream) -> Self {
        Self { _streams: vec![stream], _datagrams: None }
    }

    fn with_streams(
        bench: &Bench,
        mut control: TcpStream,
        cookie: &[u8],
        state: u32,
        parameters: &str,
    ) -> Self {
        control.write_all(&framed(parameters)).unwrap();
        expect(&mut control, State::CREATE_STREAMS);
        let wanted = if parameters == BOTH { 4 } else { 2 };
        let opened = if state == 6 { 1 } else { wanted };
        let mut streams: Vec<_> = (0..opened).map(|_| bench.say(cookie)).collect();
        if state >= 7 {
            expect(&mut control, State::TEST_START);
            expect(&mut control, State::TEST_RUNNING);
            streams[0].write_all(&[7; 5000]).unwrap();
        }
        if state >= 8 {
            control.write_all(&[State::TEST_END.0]).unwrap();
            expect(&mut control, State::EXCHANGE_RESULTS);
        }
        if state == 9 {
            control.write_all(&framed(r#"{"streams":[]}"#)).unwrap();
        }
        streams.push(control);
        Self { _streams: streams, _datagrams: None }
    }

    fn with_datagrams(bench: &Bench, mut control: TcpStream, number: u32) -> Self {
        control.write_all(&framed(UDP)).unwrap();
        expect(&mut control, State::CREATE_STREAMS);
        let socket = UdpSocket::bind((bench.address.ip(), 0)).unwrap();
        socket.connect(bench.address).unwrap();
        if number & 1 == 0 {
            socket.send(b"9876").unwrap();
        }
        Self { _streams: vec![control], _datagrams: Some(socket) }
    }
}

fn count(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// Threads, descriptors and resident memory in MiB of this process.
fn held() -> (usize, usize, usize) {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split_whitespace().nth(1).unwrap();
    let resident: usize = resident.parse().unwrap();
    (count("/proc/self/task"), count("/proc/self/fd"), (resident * 4096) >> 20)
}

/// Threads of sessions and of their tests.
fn workers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let is_worker =
        |name: &String| ["iperf3", "sampler"].contains(&name.trim()) || name.starts_with("flow-");
    names.filter(is_worker).count()
}

#[test]
fn a_thousand_clients_that_vanish_leave_nothing_behind() {
    own_process!();
    let bench = Bench::start();
    // What is made once is made before.
    for number in 0..STATES {
        drop(Stranger::come(&bench, number));
    }
    eventually("the first ones are gone", || workers() == 0);
    let before = held();
    for batch in 0..50 {
        // Together, in whatever order.
        thread::scope(|scope| {
            for n in 0..20 {
                let bench = &bench;
                scope.spawn(move || Stranger::come(bench, STATES + 20 * batch + n));
            }
        });
        eventually(&format!("no more is held than {before:?}"), || {
            held().0 <= before.0 && held().1 <= before.1
        });
    }
    assert!(held().2 < before.2 + 64, "{before:?} became {:?}", held());
    let mut next = bench.say(&Cookie::from_random([31; 36]).0);
    expect(&mut next, State::PARAM_EXCHANGE);
    if is_installed() {
        assert_eq!(bench.client("-n 1M").get("error"), None);
    }
}

#[test]
fn bytes_of_no_known_protocol_are_refused() {
    let bench = Bench::start();
    let mut stream = bench.say(b"GET / HTTP/1.1\r\n\r\n");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(!answer.is_empty());
    bench.assert_says("does not speak linerate's protocol");
}

/// Nothing says that it is gone: neither a FIN nor ICMP.
#[test]
fn datagrams_to_a_client_whose_host_has_vanished_end_with_its_silence() {
    const DOWN: &str =
        r#"{"udp":true,"len":1000,"time":50,"parallel":1,"bandwidth":100000,"reverse":true}"#;
    let Some(pair) = made_or_skip(Need::Lab, Pair::create()) else {
        return;
    };
    let bench = || Bench::with(pair.b.ipv4.into(), LIMITS);
    let bench = pair.b.namespace.run(bench).unwrap();
    let cookie = Cookie::from_random([7; 36]).0;
    let come = || {
        let mut control = bench.say(&cookie);
        expect(&mut control, State::PARAM_EXCHANGE);
        control.write_all(&framed(DOWN)).unwrap();
        expect(&mut control, State::CREATE_STREAMS);
        let data = UdpSocket::bind((pair.a.ipv4, 0)).unwrap();
        data.connect(bench.address).unwrap();
        data.set_read_timeout(Some(PATIENCE)).unwrap();
        data.send(b"9876").unwrap();
        expect(&mut control, State::TEST_START);
        expect(&mut control, State::TEST_RUNNING);
        // The answer to the greeting, and the first of the test.
        for _ in 0..2 {
            uninterrupted(|| data.recv(&mut [0; 2000])).unwrap();
        }
        let mut ip = Command::new("ip");
        let gone = ip.args(["address", "flush", "dev", Pair::LINK]).status();
        (control, data, gone)
    };
    let (_control, _data, gone) = pair.a.namespace.run(come).unwrap();
    if !gone.is_ok_and(|status| status.success()) {
        skip(Need::Iproute2, "needs ip: apt-get install iproute2");
        return;
    }
    bench.assert_says("closed");
    assert_eq!(bench.records(1).len(), 1);
}
