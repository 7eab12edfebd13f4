//! What a terminal, a flame graph and folded stacks show of a profile.

use insta::assert_snapshot;
use linerate_core::profile::{
    CpuSamples, DiskBeside, EndProfile, FoldedStack, How, Overhead, ProfileDocument, SampleClock,
    TaskClass,
};
use linerate_core::record::{Caveat, CaveatKind, CpuSeconds, TcpSender};
use linerate_report::text::{self, Style};
use linerate_report::{Document, svg};

use crate::samples::{self, whole};

/// Frames from leaf to root; the soft interrupt, if there is one, ends with `handle_softirqs`.
fn stack(frames: &str, count: u64) -> FoldedStack {
    let frames: Vec<String> = frames.split_whitespace().map(str::to_owned).collect();
    let entered = frames.iter().position(|name| name == "handle_softirqs");
    let user = |name: &&String| name.starts_with('[') || name.contains("::");
    FoldedStack {
        softirq_frames: entered.map_or(0, |at| at as u32 + 1),
        kernel_frames: (frames.len() - frames.iter().filter(user).count()) as u32,
        frames,
        task: TaskClass::Flow,
        count,
    }
}

fn end(folded: Vec<FoldedStack>) -> EndProfile {
    let others = FoldedStack {
        frames: Vec::new(),
        softirq_frames: 0,
        kernel_frames: 0,
        task: TaskClass::Other,
        count: 321,
    };
    let folded: Vec<FoldedStack> = folded.into_iter().chain([others]).collect();
    EndProfile {
        how: How::Sampled { clock: SampleClock::CpuClock, kernel_seen: true, all_cpus: true },
        hz: 1999,
        seconds: 10.0,
        samples: folded.iter().map(|stack| stack.count).sum(),
        lost: 0,
        throttled: 0,
        cpus: (0..4)
            .map(|cpu| CpuSamples {
                cpu,
                idle_percent: Some(70.0 + f64::from(cpu)),
                ..CpuSamples::default()
            })
            .collect(),
        folded,
        other_samples: 0,
        threads: CpuSeconds::default(),
        each_thread: Vec::new(),
        softirq_seconds: None,
        overhead: Overhead {
            thread_seconds: 0.05,
            interrupt_seconds: Some(0.02),
            percent: Some(0.71),
        },
        caveats: Vec::new(),
    }
}

const CALL: &str = "__x64_sys_sendto do_syscall_64 entry_SYSCALL_64_after_hwframe [user]";

fn sender() -> EndProfile {
    let call = |frames: &str, count| stack(&format!("{frames} {CALL}"), count);
    end(vec![
        call("rep_movs_alternative _copy_from_iter tcp_sendmsg_locked tcp_sendmsg", 6200),
        call("kmem_cache_alloc __alloc_skb tcp_sendmsg_locked tcp_sendmsg", 900),
        call("ip_output __tcp_transmit_skb tcp_write_xmit tcp_sendmsg_locked tcp_sendmsg", 400),
        call("tcp_write_xmit tcp_sendmsg_locked tcp_sendmsg", 1800),
        call("csum_partial_copy_generic csum_and_copy_from_iter_full ip_generic_getfrag", 101),
        call("frobnicate", 12),
        stack(
            "tcp_clean_rtx_queue tcp_ack net_rx_action handle_softirqs irq_exit_rcu [user]",
            1100,
        ),
        stack("<alloc::Vec<T>as\"&;x\">::grow core::main", 88),
    ])
}

fn receiver() -> EndProfile {
    let call = |frames: &str, count| stack(&format!("{frames} __x64_sys_recvfrom [user]"), count);
    end(vec![
        call("rep_movs_alternative _copy_to_iter tcp_recvmsg_locked", 7300),
        call("finish_task_switch __schedule schedule wait_woken sk_wait_data", 800),
        stack(
            "skb_gro_receive dev_gro_receive ice_napi_poll net_rx_action handle_softirqs [user]",
            700,
        ),
        stack("tcp_v4_rcv ip_rcv net_rx_action handle_softirqs irq_exit_rcu [user]", 1500),
    ])
}

pub(crate) fn document() -> ProfileDocument {
    let mut record = samples::stream();
    record.environment.shared_kernel = false;
    let tcp = record.tcp_sender().cloned().expect("a stream has it");
    let data_segments_out = Some(1_234_567);
    record.legs[0].tcp = Some(TcpSender { data_segments_out, ..tcp }.into());
    ProfileDocument::new(record, Some(sender()), Some(receiver()))
}

#[test]
fn both_ends_stand_beside_each_other() {
    assert_snapshot!("profile", document().text(whole()));
}

#[test]
fn functions_and_the_disk_stand_below_the_layers() {
    let mut document = document();
    document.disk = Some(DiskBeside {
        directory: "/var/tmp".to_owned(),
        bytes: 1 << 30,
        write_bps: 1.9e9,
        read_bps: 4.2e9,
        from_storage_percent: 100.0,
        path_over_disk: 4.95,
    });
    assert_snapshot!("profile_functions", document.text(detailed()));
}

#[test]
fn an_end_without_samples_or_profile_is_said() {
    let mut accounted = end(Vec::new());
    accounted.how = How::Accounted;
    accounted.hz = 0;
    accounted.threads.user = 0.4;
    accounted.threads.system = 6.2;
    accounted.each_thread =
        vec![CpuSeconds { user: 0.1, system: 2.2 }, CpuSeconds { user: 0.3, system: 4.0 }];
    accounted.softirq_seconds = Some(1.55);
    accounted.caveats = vec![Caveat::new(
        CaveatKind::NotReadable,
        "samples of the kernel are not allowed",
        "sysctl kernel.perf_event_paranoid=1",
    )];
    let mut record = samples::stream();
    record.environment.shared_kernel = false;
    let document = ProfileDocument::new(record, Some(accounted), None);
    assert_snapshot!("profile_accounted", document.text(detailed()));
}

/// What `kernel.perf_event_paranoid` at 2 leaves on one host, and a machine that counts cycles at
/// the other end.
#[test]
fn functions_of_user_mode_are_shares_of_its_samples() {
    let mut user = end(vec![stack("core::hash core::main", 300), stack("[user]", 117)]);
    user.how = How::Sampled { clock: SampleClock::CpuClock, kernel_seen: false, all_cpus: false };
    user.threads = CpuSeconds { user: 0.9, system: 6.2 };
    user.each_thread = vec![user.threads];
    user.softirq_seconds = Some(3.1);
    user.overhead.interrupt_seconds = None;
    user.overhead.percent = None;
    let mut cycles = receiver();
    cycles.how = How::Sampled { clock: SampleClock::Cycles, kernel_seen: true, all_cpus: true };
    let document = ProfileDocument::new(samples::stream(), Some(user), Some(cycles));
    let text = document.text(detailed());
    assert_snapshot!("profile_user_mode", text);
}

#[test]
fn ends_on_one_kernel_say_what_both_profilers_took() {
    let mut record = samples::stream();
    record.environment.shared_kernel = true;
    let document = ProfileDocument::new(record, Some(sender()), Some(receiver()));
    let text = document.text(whole());
    assert!(text.contains("the profilers took 1.42 %"), "{text}");
}

#[test]
fn narrow_terminals_get_the_same_figures() {
    let style = Style { width: 72, colour: true, ..Style::default() };
    let narrow = document().text(style);
    assert!(narrow.contains("application") && narrow.contains("receiver"));
}

#[test]
fn folded_stacks_are_lines_that_other_tools_read() {
    assert_snapshot!("profile_folded", text::folded(&document()));
}

#[test]
fn a_flame_graph_is_the_same_each_time_and_well_formed() {
    let drawn = svg::flame_graph(&document());
    assert_eq!(drawn, svg::flame_graph(&document()));
    well_formed(&drawn);
    assert_snapshot!("profile_flame", drawn);
    // Nothing but the namespace is an address.
    assert_eq!(drawn.matches("http").count(), 1);
    for loads in ["href", "src=", "import", "fetch(", "url(http", "XMLHttp"] {
        assert!(!drawn.contains(loads), "{loads}");
    }
    for id in ["search", "reset", "status"] {
        assert_eq!(drawn.matches(&format!("id=\"{id}\"")).count(), 1);
        assert!(drawn.contains(&format!("getElementById(\"{id}\")")));
    }
}

#[test]
fn a_profile_without_samples_is_an_empty_picture() {
    let document = ProfileDocument::new(samples::stream(), None, None);
    well_formed(&svg::flame_graph(&document));
    assert_eq!(text::folded(&document), "");
}

/// Elements are closed in their order, and nothing but the five entities of XML begins with an
/// ampersand.
fn well_formed(xml: &str) {
    // The script is character data.
    let (before, script) = xml.split_once("<![CDATA[").expect("there is a script");
    let (_, after) = script.split_once("]]>").expect("it ends");
    let xml = &format!("{before}{after}");
    let mut open: Vec<&str> = Vec::new();
    for part in xml.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        for entity in text.split('&').skip(1).chain(tag.split('&').skip(1)) {
            let name = entity.split(';').next();
            let known = ["amp", "lt", "gt", "quot", "#39"];
            assert!(name.is_some_and(|name| known.contains(&name)), "{entity}");
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split(' ').next().unwrap_or_default();
        if let Some(closed) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

fn detailed() -> Style {
    Style { details: true, ..Style::default() }
}
