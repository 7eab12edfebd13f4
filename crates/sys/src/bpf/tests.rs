use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use linerate_testkit::{Need, PATIENCE, skip, uninterrupted};

use super::map::possible_cpus;
use super::*;
use crate::netns::{Pair, pair_or_skip};

/// A program that returns `value`: `r0 = value; exit`.
fn answer(value: i32, attach: Attach) -> Result<Program, BpfError> {
    let [a, b, c, d] = value.to_ne_bytes();
    load(&[[0xb7, 0, 0, 0, a, b, c, d], EXIT], Some(attach))
}

fn load(instructions: &[[u8; 8]], attach: Option<Attach>) -> Result<Program, BpfError> {
    Program::load(&LoadRequest {
        instructions,
        name: "test",
        kind: ProgramKind::SchedCls { attach },
        license: "GPL",
    })
}

/// The value, or `None` and a message where this host does not allow bpf(2) or a part of it.
fn or_skip<T>(result: Result<T, BpfError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if matches!(error.errno(), Some(libc::EPERM | libc::ENOSYS)) => {
            skipped(&format!("{error}: needs bpf(2) and CAP_BPF"));
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn skipped(why: &str) {
    skip(Need::Bpf, why);
}

/// Whether this kernel has everything that the tests need; prints a message if not.
fn supported() -> bool {
    let support = probe();
    if !support.is_whole() {
        skipped(&format!("eBPF at TCX is not to be had here: {support:?}"));
    }
    support.is_whole()
}

/// A directory in a bpffs for one test; removed with its pins when dropped.
struct Pins(PathBuf);

impl Pins {
    fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = or_skip(mount())?;
        let directory = root.join(format!("linerate-test-{}-{number}", process::id()));
        std::fs::create_dir(&directory).unwrap();
        Some(Self(directory))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        for pin in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            unpin(&pin.path()).ok();
        }
        std::fs::remove_dir(&self.0).ok();
    }
}

fn array(kind: MapKind, entries: u32) -> Option<Map> {
    or_skip(Map::create(&MapRequest { name: "test", kind, key_bytes: 4, value_bytes: 12, entries }))
}

fn index_of(pair: &Pair) -> u32 {
    pair.a.namespace.configure(|netlink| netlink.link(Pair::LINK)).unwrap().index
}

#[test]
fn values_of_a_map_read_back() {
    let Some(map) = array(MapKind::Array, 3) else {
        return;
    };
    map.update(&1u32.to_ne_bytes(), &[7; 12]).unwrap();
    let read = |key: u32| map.lookup(&key.to_ne_bytes()).unwrap();
    assert_eq!(read(0), Some(vec![0; 12]));
    assert_eq!(read(1), Some(vec![7; 12]));
    assert_eq!(read(3), None);
    map.fill(&[9; 24]).unwrap();
    assert_eq!(read(1), Some(vec![9; 12]));
    assert_eq!(map.fill(&[9; 13]).unwrap_err().errno(), Some(libc::EINVAL));
    assert_eq!(map.fill(&[9; 48]).unwrap_err().errno(), Some(libc::E2BIG));
    assert_eq!(map.update(&[0; 3], &[0; 12]).unwrap_err().errno(), Some(libc::EINVAL));
}

#[test]
fn a_map_of_each_cpu_has_a_value_for_each() {
    let Some(map) = array(MapKind::PerCpuArray, 1) else {
        return;
    };
    let length = 16 * possible_cpus().unwrap();
    let mut values: Vec<u8> = (0..length).map(|i| i as u8).collect();
    map.update(&[0; 4], &values).unwrap();
    // The padding of a value is not stored.
    for padding in values.chunks_mut(16) {
        padding[12..].fill(0);
    }
    let mut read = map.lookup(&[0; 4]).unwrap().unwrap();
    for padding in read.chunks_mut(16) {
        padding[12..].fill(0);
    }
    assert_eq!(read, values);
}

#[test]
fn a_pinned_map_is_found_again_with_what_is_in_it() {
    let Some(pins) = Pins::new() else { return };
    let Some(map) = array(MapKind::Array, 2) else {
        return;
    };
    let path = pins.path("map");
    map.pin(&path).unwrap();
    map.update(&[0; 4], &[5; 12]).unwrap();
    let info = map.info().clone();
    assert_eq!(map.pin(&path).unwrap_err().errno(), Some(libc::EEXIST));
    drop(map);
    let found = Map::from_pin(&path).unwrap();
    assert_eq!(found.info(), &info);
    assert_eq!(found.lookup(&[0; 4]).unwrap(), Some(vec![5; 12]));
    unpin(&path).unwrap();
    unpin(&path).unwrap();
    let error = Map::from_pin(&path).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOENT));
    assert!(error.to_string().contains(path.to_str().unwrap()));
}

#[test]
fn a_program_that_the_verifier_refuses_says_why() {
    if !supported() {
        return;
    }
    // Reads a register that was never written.
    let error = load(&[[0xbf, 0x20, 0, 0, 0, 0, 0, 0], EXIT], None).unwrap_err();
    assert!(error.verifier_log().unwrap().contains("R2 !read_ok"), "{error:?}");
    assert!(error.to_string().contains("test"));
}

#[test]
fn a_test_run_gives_the_packet_and_its_context_back() {
    let Some(program) = or_skip(load(
        &[
            // skb->mark = skb->gso_segs; skb->cb[1] = 77; r0 = 9
            [0x61, 0x12, 164, 0, 0, 0, 0, 0],
            [0x63, 0x21, 8, 0, 0, 0, 0, 0],
            [0xb7, 2, 0, 0, 77, 0, 0, 0],
            [0x63, 0x21, 52, 0, 0, 0, 0, 0],
            [0xb7, 0, 0, 0, 9, 0, 0, 0],
            EXIT,
        ],
        None,
    )) else {
        return;
    };
    let frame = [[0x88, 0xb5]; 40].concat();
    let context = Context { priority: 6, gso_segments: 3, gso_size: 1000, ..Context::default() };
    let result = program.test_run(&TestRun { frame: &frame, context, repeat: 2 }).unwrap();
    assert_eq!(result.verdict, 9);
    assert_eq!(result.frame, frame);
    assert_eq!((result.context.mark, result.context.priority), (3, 6), "{result:?}");
    assert_eq!(result.context.cb[1], 77);
    let short = TestRun { frame: &frame[..13], context: Context::default(), repeat: 1 };
    assert_eq!(program.test_run(&short).unwrap_err().errno(), Some(libc::EINVAL));
}

#[test]
fn a_program_is_replaced_only_where_the_expected_one_runs() {
    let Some(pair) = pair_or_skip() else { return };
    if !supported() {
        return;
    }
    let index = index_of(&pair);
    let place = Attach::TcxEgress;
    let load = || answer(-1, place).unwrap();
    let (first, second, third) = (load(), load(), load());
    pair.a
        .namespace
        .run(|| {
            assert_eq!(query(index, place).unwrap(), [0_u32; 0]);
            let link = TcxLink::attach(&first, index, place).unwrap();
            link.replace(&second, Some(&first)).unwrap();
            let error = link.replace(&third, Some(&first)).unwrap_err();
            assert_eq!(error.errno(), Some(libc::EPERM));
            let attached = query(index, place).unwrap();
            assert_eq!(attached, [second.id().unwrap()]);
            let info = link.info().unwrap();
            assert_eq!((info.program, info.interface), (second.id().unwrap(), index));
            link.replace(&third, None).unwrap();
            link.detach().unwrap();
            assert_eq!(query(index, place).unwrap(), [0_u32; 0]);
        })
        .unwrap();
}

#[test]
fn a_pinned_link_runs_until_its_pin_is_gone() {
    let Some(pair) = pair_or_skip() else { return };
    let Some(pins) = Pins::new() else { return };
    if !supported() {
        return;
    }
    let index = index_of(&pair);
    let place = Attach::TcxIngress;
    let program = answer(-1, place).unwrap();
    let path = pins.path("link");
    pair.a
        .namespace
        .run(|| {
            let link = TcxLink::attach(&program, index, place).unwrap();
            link.pin(&path).unwrap();
            drop(link);
            assert_eq!(query(index, place).unwrap().len(), 1);
            let link = TcxLink::from_pin(&path).unwrap();
            assert_eq!(link.info().unwrap().interface, index);
            drop(link);
            unpin(&path).unwrap();
            let gone = || query(index, place).unwrap().is_empty();
            // The kernel drops the last reference of a link in deferred work.
            assert!(crate::netns::eventually(gone), "still attached");
        })
        .unwrap();
    assert!(other_objects_are_no_links(&pins.path("other")));
}

fn other_objects_are_no_links(path: &Path) -> bool {
    let Some(map) = array(MapKind::Array, 1) else {
        return false;
    };
    map.pin(path).unwrap();
    let error = TcxLink::from_pin(path).unwrap_err();
    error.errno() == Some(libc::EINVAL)
}

#[test]
fn a_link_outlives_its_interface_and_says_so() {
    let Some(pair) = pair_or_skip() else { return };
    if !supported() {
        return;
    }
    let index = index_of(&pair);
    let place = Attach::TcxEgress;
    let (first, second) = (answer(-1, place).unwrap(), answer(-1, place).unwrap());
    let attach = || TcxLink::attach(&first, index, place);
    let link = pair.a.namespace.run(attach).unwrap().unwrap();
    pair.a.namespace.configure(|netlink| netlink.delete_link(Pair::LINK)).unwrap();
    let error = link.replace(&second, None).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOLINK));
    assert_eq!(link.info().unwrap().interface, 0);
    let gone = pair.a.namespace.run(attach).unwrap().unwrap_err();
    assert_eq!(gone.errno(), Some(libc::ENODEV));
}

#[test]
fn a_packet_that_a_program_drops_does_not_arrive() {
    let Some(pair) = pair_or_skip() else { return };
    if !supported() {
        return;
    }
    const DROP: i32 = 2;
    let index = index_of(&pair);
    let place = Attach::TcxEgress;
    let program = answer(DROP, place).unwrap();
    let receiver =
        pair.b.namespace.run(|| std::net::UdpSocket::bind((pair.b.ipv4, 0))).unwrap().unwrap();
    let target = receiver.local_addr().unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let received = || {
        let mut message = [0; 16];
        let length = uninterrupted(|| receiver.recv(&mut message)).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    pair.a
        .namespace
        .run(|| {
            let sender = std::net::UdpSocket::bind((pair.a.ipv4, 0)).unwrap();
            // Afterwards the neighbour is known, and no packet waits for its address.
            sender.send_to(b"before", target).unwrap();
            assert_eq!(received(), "before");
            let link = TcxLink::attach(&program, index, place).unwrap();
            sender.send_to(b"dropped", target).ok();
            link.detach().unwrap();
            sender.send_to(b"after", target).unwrap();
        })
        .unwrap();
    assert_eq!(received(), "after");
}

const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
