//! The layers that CPU time is sorted into, and the count of an end's samples by layer.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribution::{Owner, Place, Role, attribute, owner, plain_name};
use super::document::{EndLayers, FunctionCost, LayerCost};
use super::sample::{EndProfile, FoldedStack, How, SampleClock, USER_FRAME};
use crate::stats::{NORMAL_QUANTILE as Z, Proportion, wilson};

/// A layer. A soft interrupt is none: it is a mark on the work of any of them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Entering and leaving the kernel, file descriptors, the socket's own code and locks.
    Socket,
    /// Bytes moved between the application's memory and the kernel's.
    Copy,
    /// Packet buffers and their pages, made and freed.
    PacketMemory,
    /// Large packets cut (GSO) and joined (GRO).
    Offload,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// IPv4 and IPv6, routes, neighbours.
    Ip,
    /// Checksums computed by the CPU.
    Checksum,
    /// Queueing disciplines, classifiers, packet filters, eBPF programs.
    Queueing,
    /// Devices and their drivers, loopback and veth among them.
    Driver,
    /// Scheduling, waking, sleeping, timers.
    Scheduling,
    /// User code.
    Application,
    /// Idle CPU time.
    Idle,
    /// No rule of the table knows the call chain.
    Unattributed,
}

impl Layer {
    /// All layers, in the order in which they are printed.
    pub const ALL: [Self; 14] = [
        Self::Application,
        Self::Socket,
        Self::Copy,
        Self::PacketMemory,
        Self::Tcp,
        Self::Udp,
        Self::Ip,
        Self::Checksum,
        Self::Offload,
        Self::Queueing,
        Self::Driver,
        Self::Scheduling,
        Self::Unattributed,
        Self::Idle,
    ];
}

/// Largest number of functions listed for an end.
const MAX_FUNCTIONS: usize = 40;
/// The half-width that a share's interval is to have at most, percentage points.
const WANTED_HALF_WIDTH: f64 = 1.0;

/// An end's part in the transfer, and the divisors of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Its role; `None` where it sent and received.
    pub role: Option<Role>,
    /// Where the other end is.
    pub peer: Place,
    /// Packets on the wire that carried the data; `None` where not known.
    pub packets: Option<u64>,
    /// Payload bytes.
    pub bytes: u64,
}

/// The layers of an end.
///
/// One sample is 1/hz seconds of CPU time, more where samples were lost. The intervals of shares
/// are Wilson's: they take samples for independent, as the time between two of a CPU is that of
/// many packets, and say how well this run's share is known, not how another run's would differ.
/// Those of times are the share's, times the end's CPU time. Samples of stacks that were left out
/// for space are counted as unattributed, by as many as are likely this end's.
///
/// Where the kernel's part of the chains was not seen the layers are those of the kernel's account,
/// which has no intervals; the functions are still those of the samples.
pub fn count(profile: EndProfile, end: End) -> EndLayers {
    let tally = SampleTally::new(&profile, end);
    let sampled = (profile.how.tells_layers() && profile.hz > 0).then_some(tally.own);
    let mut parts = match sampled {
        Some(_) => tally.layers(&profile),
        None => accounted(&profile, end.peer),
    };
    parts.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    let costs =
        Costs { end, cpu_seconds: parts.iter().map(|(_, part)| part.seconds).sum(), sampled };
    let mut layers: Vec<LayerCost> =
        parts.iter().map(|&(layer, part)| costs.layer(layer, part)).collect();
    let unattributed = layers.iter().find(|cost| cost.layer == Layer::Unattributed);
    let unattributed_percent = unattributed.map_or(0.0, |cost| cost.share_percent);
    let more_seconds = sampled.and_then(|samples| more_seconds(&layers, samples, &profile));
    layers.extend(tally.idle(&profile));
    EndLayers {
        taken: taken(&profile.how, end.peer),
        cpu_seconds: costs.cpu_seconds,
        samples: tally.own,
        foreign_samples: tally.foreign,
        packets: end.packets,
        bytes: end.bytes,
        layers,
        functions: tally.functions(),
        unattributed_percent,
        service_demand_us_per_kib: costs.demand(costs.cpu_seconds),
        more_seconds,
        profile,
    }
}

/// The part of a layer.
#[derive(Debug, Clone, Copy, Default)]
struct LayerPart {
    /// Samples; 0 where the time is from the kernel's accounting.
    samples: u64,
    seconds: f64,
    /// Share in a soft interrupt, 0 to 1.
    in_softirq: f64,
}

/// A layer's samples, and how many of them were in a soft interrupt.
#[derive(Debug, Clone, Copy, Default)]
struct Samples {
    all: u64,
    in_softirq: u64,
}

/// Samples by owner, layer and function.
#[derive(Default)]
struct SampleTally {
    by_layer: BTreeMap<Layer, Samples>,
    by_function: HashMap<String, BTreeMap<Layer, u64>>,
    own: u64,
    foreign: u64,
    idle: u64,
}

impl SampleTally {
    fn new(profile: &EndProfile, end: End) -> Self {
        let mut tally = Self::default();
        let mut foreign_stacks = 0;
        for stack in &profile.folded {
            match owner(stack, end.role, end.peer) {
                Owner::This => tally.add(stack),
                Owner::Idle => tally.idle += stack.count,
                Owner::Other | Owner::Foreign | Owner::Untold => {
                    tally.foreign += stack.count;
                    // Stacks without frames fold into one, which is never left out.
                    if !stack.frames.is_empty() {
                        foreign_stacks += stack.count;
                    }
                }
            }
        }
        tally.add_left_out(profile.other_samples, foreign_stacks);
        tally
    }

    fn add(&mut self, stack: &FoldedStack) {
        let leaf = stack.frames.first();
        let function = match stack.kernel_frames {
            0 => leaf.map_or(USER_FRAME, String::as_str),
            _ => leaf.map_or("", |leaf| plain_name(leaf)),
        };
        let by_layer = self.by_function.entry(function.to_owned()).or_default();
        for (layer, samples) in attribute(stack).share(stack.count) {
            let part = self.by_layer.entry(layer).or_default();
            part.all += samples;
            if stack.in_softirq() {
                part.in_softirq += samples;
            }
            *by_layer.entry(layer).or_default() += samples;
        }
        self.own += stack.count;
    }

    /// Divides samples without a stack in the proportions of those with one.
    fn add_left_out(&mut self, left_out: u64, foreign: u64) {
        let all = self.own + foreign;
        if left_out == 0 || all == 0 {
            self.foreign += left_out;
            return;
        }
        let own = (left_out as f64 * self.own as f64 / all as f64).round() as u64;
        // What a peer counts may be beyond what an f64 holds whole.
        let own = own.min(left_out);
        self.by_layer.entry(Layer::Unattributed).or_default().all += own;
        self.own += own;
        self.foreign += left_out - own;
    }

    /// Every layer except `idle`, including those without samples.
    fn layers(&self, profile: &EndProfile) -> Vec<(Layer, LayerPart)> {
        let lost = match profile.samples {
            0 => 0.0,
            samples => profile.lost as f64 / samples as f64,
        };
        let each = (1.0 + lost) / f64::from(profile.hz);
        let busy = Layer::ALL.iter().filter(|&&layer| layer != Layer::Idle);
        busy.map(|&layer| {
            let found = self.by_layer.get(&layer).copied().unwrap_or_default();
            let part = LayerPart {
                samples: found.all,
                seconds: found.all as f64 * each,
                in_softirq: found.in_softirq as f64 / found.all.max(1) as f64,
            };
            (layer, part)
        })
        .collect()
    }

    fn functions(&self) -> Vec<FunctionCost> {
        let functions = self.by_function.iter().filter_map(|(function, layers)| {
            let (&layer, _) = layers.iter().max_by_key(|&(_, &count)| count)?;
            let own: u64 = layers.values().sum();
            Some(FunctionCost {
                function: function.clone(),
                layer,
                samples: own,
                share_percent: own as f64 / self.own.max(1) as f64 * 100.0,
            })
        });
        let mut functions: Vec<FunctionCost> = functions.collect();
        let order = |a: &FunctionCost, b: &FunctionCost| {
            let most_first = b.samples.cmp(&a.samples);
            most_first.then_with(|| a.function.cmp(&b.function))
        };
        functions.sort_by(order);
        functions.truncate(MAX_FUNCTIONS);
        functions
    }

    /// The kernel's own account where there is one: an idle CPU gives hardly any samples.
    fn idle(&self, profile: &EndProfile) -> Option<LayerCost> {
        let cpus = profile.cpus.len() as f64;
        if profile.cpus.is_empty() || profile.seconds <= 0.0 {
            return None;
        }
        let told: Option<Vec<f64>> = profile.cpus.iter().map(|cpu| cpu.idle_percent).collect();
        // A counter of cycles stands still while the CPU is halted, and its rate was calibrated by
        // this very account: only a timer's samples tell how long all CPUs were busy.
        let is_timed = match profile.how {
            How::Sampled { clock, all_cpus, .. } => clock == SampleClock::CpuClock && all_cpus,
            How::Accounted => false,
        };
        let percent = match told {
            Some(each) => each.iter().sum::<f64>() / cpus,
            None if is_timed && profile.hz > 0 => {
                let busy = profile.samples.saturating_sub(self.idle) as f64;
                let possible = f64::from(profile.hz) * profile.seconds * cpus;
                (100.0 * (1.0 - busy / possible)).clamp(0.0, 100.0)
            }
            None => return None,
        };
        Some(LayerCost {
            layer: Layer::Idle,
            samples: self.idle,
            cpu_seconds: percent / 100.0 * cpus * profile.seconds,
            share_percent: percent,
            share_interval_percent: [percent; 2],
            ns_per_packet: None,
            ns_per_packet_interval: None,
            ns_per_byte: None,
            ns_per_byte_interval: None,
            service_demand_us_per_kib: None,
            softirq_percent: 0.0,
        })
    }
}

/// Without call chains in the kernel: user time is the application's, and of the rest the layer is
/// not known. How much of that was in soft interrupts is, between two hosts; on one host they are
/// in the threads' time, or nobody's.
fn accounted(profile: &EndProfile, peer: Place) -> Vec<(Layer, LayerPart)> {
    let softirq = match peer {
        Place::Elsewhere => profile.softirq_seconds.unwrap_or(0.0),
        Place::Here => 0.0,
    };
    let of = |seconds, softirq: f64| LayerPart {
        seconds,
        in_softirq: share_of(softirq, seconds),
        ..LayerPart::default()
    };
    let kernel = profile.threads.system + softirq;
    vec![
        (Layer::Application, of(profile.threads.user, 0.0)),
        (Layer::Unattributed, of(kernel, softirq)),
    ]
}

/// The divisors of a layer's part.
struct Costs {
    end: End,
    cpu_seconds: f64,
    /// The samples that shares refer to; `None` where they refer to accounted time.
    sampled: Option<u64>,
}

impl Costs {
    fn layer(&self, layer: Layer, part: LayerPart) -> LayerCost {
        let share = self.share(part);
        let per = |count: Option<u64>| {
            let count = count.filter(|&count| count > 0)? as f64;
            Some(move |seconds: f64| seconds * 1e9 / count)
        };
        let [low, high] = [share.low, share.high].map(|part| part * self.cpu_seconds);
        let packet = per(self.end.packets);
        let byte = per(Some(self.end.bytes));
        LayerCost {
            layer,
            samples: part.samples,
            cpu_seconds: part.seconds,
            share_percent: share.share * 100.0,
            share_interval_percent: [share.low * 100.0, share.high * 100.0],
            ns_per_packet: packet.map(|ns| ns(part.seconds)),
            ns_per_packet_interval: packet.map(|ns| [ns(low), ns(high)]),
            ns_per_byte: byte.map(|ns| ns(part.seconds)),
            ns_per_byte_interval: byte.map(|ns| [ns(low), ns(high)]),
            service_demand_us_per_kib: self.demand(part.seconds),
            softirq_percent: part.in_softirq * 100.0,
        }
    }

    /// The share with its interval; accounted time has no interval.
    fn share(&self, part: LayerPart) -> Proportion {
        let sampled = self.sampled.map(|all| wilson(part.samples, all).ok());
        sampled.flatten().unwrap_or_else(|| {
            let share = share_of(part.seconds, self.cpu_seconds);
            let (low, high) = (share, share);
            Proportion { share, low, high }
        })
    }

    fn demand(&self, seconds: f64) -> Option<f64> {
        (self.end.bytes > 0).then(|| seconds * 1e6 / (self.end.bytes as f64 / 1024.0))
    }
}

fn share_of(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// How much longer the run should have been: n = Z² p (1 − p) ÷ h² samples for the share p nearest
/// to a half. The shares are the middles of their intervals (Wilson): three samples of one layer do
/// not say that there is no other.
fn more_seconds(layers: &[LayerCost], samples: u64, profile: &EndProfile) -> Option<f64> {
    let variances = layers.iter().map(|cost| {
        let share = (cost.samples as f64 + Z * Z / 2.0) / (samples as f64 + Z * Z);
        share * (1.0 - share)
    });
    let widest = variances.fold(0.0, f64::max);
    let needed = Z * Z * widest / (WANTED_HALF_WIDTH / 100.0).powi(2);
    // Without samples: as if one CPU had been busy.
    let per_second = match samples {
        0 => f64::from(profile.hz),
        _ => samples as f64 / profile.seconds.max(f64::MIN_POSITIVE),
    };
    let more = (needed - samples as f64) / per_second;
    (more > 0.0).then_some(more)
}

fn taken(how: &How, peer: Place) -> String {
    let sees_all_cpus = matches!(how, How::Sampled { all_cpus: true, .. });
    let taken = match (how.tells_layers(), sees_all_cpus, peer) {
        (true, true, Place::Here) => {
            "the threads of its flows without the soft interrupts that ran in them for the other \
             end, and the soft interrupts anywhere on the host whose call chain is this end's; \
             both ends run on one kernel"
        }
        (true, true, Place::Elsewhere) => {
            "the threads of its flows, and the host's soft interrupts for the network, those for \
             other connections among them"
        }
        (true, false, _) => {
            "the threads of its flows only: soft interrupts in other threads were not seen"
        }
        (false, _, Place::Elsewhere) => {
            "by the kernel's account: CPU time of the threads of its flows, and of the host's soft \
             interrupts"
        }
        (false, _, Place::Here) => {
            "by the kernel's account: CPU time of the threads of its flows, with what ran in them \
             for the other end"
        }
    };
    taken.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{CpuSamples, TaskClass};
    use super::*;
    use crate::record::CpuSeconds;

    const END: End = End {
        role: Some(Role::Sender),
        peer: Place::Elsewhere,
        packets: Some(1000),
        bytes: 1 << 20,
    };

    fn stack(task: TaskClass, frames: &[&str], softirq_frames: u32, count: u64) -> FoldedStack {
        FoldedStack {
            frames: frames.iter().map(|&name| name.to_owned()).collect(),
            softirq_frames,
            kernel_frames: frames.iter().filter(|&&name| name != USER_FRAME).count() as u32,
            task,
            count,
        }
    }

    fn profile(folded: Vec<FoldedStack>) -> EndProfile {
        EndProfile {
            how: How::Sampled { clock: SampleClock::CpuClock, kernel_seen: true, all_cpus: true },
            hz: 1000,
            seconds: 2.0,
            samples: folded.iter().map(|stack| stack.count).sum(),
            lost: 0,
            throttled: 0,
            cpus: vec![CpuSamples::default(); 2],
            folded,
            other_samples: 0,
            threads: Default::default(),
            each_thread: Vec::new(),
            softirq_seconds: None,
            overhead: Default::default(),
            caveats: Vec::new(),
        }
    }

    fn of(counted: &EndLayers, layer: Layer) -> &LayerCost {
        let mut layers = counted.layers.iter();
        layers.find(|cost| cost.layer == layer).expect("every layer is counted")
    }

    #[test]
    fn costs_are_the_samples_time_over_what_was_carried() {
        let counted = count(
            profile(vec![
                stack(TaskClass::Flow, &["_copy_from_iter", "tcp_sendmsg_locked"], 0, 600),
                stack(TaskClass::Flow, &["tcp_ack", "handle_softirqs"], 2, 300),
                stack(TaskClass::Flow, &["tcp_write_xmit"], 0, 100),
                stack(TaskClass::Tool, &["ksys_read"], 0, 50),
                stack(TaskClass::Other, &[], 0, 70),
                stack(TaskClass::Idle, &[], 0, 30),
            ]),
            END,
        );
        assert_eq!((counted.samples, counted.foreign_samples), (1000, 120));
        assert_eq!(counted.cpu_seconds, 1.0);
        let copy = of(&counted, Layer::Copy);
        assert_eq!((copy.samples, copy.cpu_seconds), (600, 0.6));
        assert_eq!(copy.ns_per_packet, Some(600_000.0));
        assert_eq!(copy.ns_per_byte, Some(0.6e9 / 1_048_576.0));
        assert_eq!(copy.service_demand_us_per_kib, Some(600_000.0 / 1024.0));
        let [low, high] = copy.share_interval_percent;
        assert!(56.5 < low && low < 60.0 && 60.0 < high && high < 63.5);
        assert_eq!(of(&counted, Layer::Tcp).softirq_percent, 75.0);
        // 1 − 1120 ÷ (1000/s · 2 s · 2 CPUs), as the kernel gave no account.
        assert_eq!(of(&counted, Layer::Idle).share_percent, 72.0);
        assert_eq!(counted.layers[0].layer, Layer::Copy);
        assert_eq!(counted.layers.last().unwrap().layer, Layer::Idle);
        assert_eq!(counted.functions[0].function, "_copy_from_iter");
        assert_eq!(counted.functions[0].share_percent, 60.0);
    }

    #[test]
    fn too_few_samples_say_how_many_more_seconds() {
        let few = vec![
            stack(TaskClass::Flow, &["tcp_ack"], 0, 500),
            stack(TaskClass::Flow, &["ip_rcv"], 0, 500),
        ];
        // A share of a half to ±1 point takes 9604 samples; 1000 came in 2 s.
        let more = count(profile(few), END).more_seconds.unwrap();
        assert!((more - 2.0 * 8.604).abs() < 0.01, "{more}");
        let enough = vec![
            stack(TaskClass::Flow, &["tcp_ack"], 0, 5000),
            stack(TaskClass::Flow, &["ip_rcv"], 0, 5000),
        ];
        assert_eq!(count(profile(enough), END).more_seconds, None);
        assert!(count(profile(Vec::new()), END).more_seconds.unwrap() > 9.0);
        let all_alike = |count| vec![stack(TaskClass::Flow, &["tcp_ack"], 0, count)];
        assert!(count(profile(all_alike(3)), END).more_seconds.unwrap() > 0.0);
        assert_eq!(count(profile(all_alike(300)), END).more_seconds, None);
    }

    #[test]
    fn lost_samples_lengthen_those_that_came() {
        let mut lossy = profile(vec![stack(TaskClass::Flow, &["tcp_ack"], 0, 1000)]);
        lossy.lost = 250;
        assert_eq!(count(lossy, END).cpu_seconds, 1.25);
    }

    #[test]
    fn stacks_left_out_are_unattributed_as_far_as_they_are_likely_ones_own() {
        let mut thinned = profile(vec![
            stack(TaskClass::Flow, &["tcp_ack"], 0, 600),
            stack(TaskClass::Tool, &["ksys_read"], 0, 200),
            stack(TaskClass::Other, &[], 0, 5000),
        ]);
        thinned.other_samples = 80;
        let counted = count(thinned, END);
        assert_eq!(of(&counted, Layer::Unattributed).samples, 60);
        assert_eq!((counted.samples, counted.foreign_samples), (660, 5220));
    }

    #[test]
    fn an_end_without_samples_has_its_accounted_time() {
        let mut accounted = profile(Vec::new());
        accounted.how = How::Accounted;
        accounted.hz = 0;
        accounted.threads.user = 0.5;
        accounted.threads.system = 1.0;
        accounted.softirq_seconds = Some(0.5);
        let here = count(accounted.clone(), End { peer: Place::Here, ..END });
        assert_eq!(here.cpu_seconds, 1.5);
        let counted = count(accounted, END);
        assert_eq!(counted.cpu_seconds, 2.0);
        assert_eq!(counted.unattributed_percent, 75.0);
        // Of the kernel's 1.5 s a third was in soft interrupts; on one host that cannot be told.
        let softirq = |counted: &EndLayers| of(counted, Layer::Unattributed).softirq_percent;
        assert!((softirq(&counted) - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(softirq(&here), 0.0);
        assert_eq!(of(&counted, Layer::Application).share_interval_percent, [25.0; 2]);
        assert_eq!(counted.more_seconds, None);
    }

    /// What `kernel.perf_event_paranoid` at 2 leaves, and a hidden kallsyms.
    #[test]
    fn without_the_kernel_functions_are_shares_of_the_samples_and_layers_of_the_account() {
        let unseen = |folded| {
            let mut unseen = profile(folded);
            unseen.how =
                How::Sampled { clock: SampleClock::CpuClock, kernel_seen: false, all_cpus: false };
            unseen.threads.user = 0.5;
            unseen.threads.system = 1.5;
            count(unseen, END)
        };
        let user = unseen(vec![
            stack(TaskClass::Flow, &["[user]"], 0, 400),
            stack(TaskClass::Flow, &["[user]", "[user]"], 0, 17),
        ]);
        assert_eq!((user.samples, user.foreign_samples), (417, 0));
        assert_eq!(user.functions.len(), 1);
        assert_eq!(user.functions[0].share_percent, 100.0);
        let application = of(&user, Layer::Application);
        assert_eq!((application.samples, application.share_percent), (0, 25.0));
        assert_eq!(application.share_interval_percent, [25.0; 2]);
        assert_eq!((user.cpu_seconds, user.more_seconds), (2.0, None));
        let nameless = unseen(vec![
            stack(TaskClass::Flow, &["[kernel]", "[kernel]"], 0, 300),
            stack(TaskClass::Flow, &["[user]"], 0, 100),
        ]);
        let shares = nameless.functions.iter().map(|cost| cost.share_percent);
        assert_eq!(shares.collect::<Vec<_>>(), [75.0, 25.0]);
        assert_eq!(nameless.unattributed_percent, 75.0);
    }

    #[test]
    fn idle_is_no_matter_of_cycles_which_stand_still_then() {
        let mut cycles = profile(vec![stack(TaskClass::Flow, &["tcp_ack"], 0, 1000)]);
        cycles.how = How::Sampled { clock: SampleClock::Cycles, kernel_seen: true, all_cpus: true };
        let idle = |profile| {
            let counted = count(profile, END);
            let mut layers = counted.layers.iter();
            let found = layers.find(|cost| cost.layer == Layer::Idle);
            found.map(|cost| cost.share_percent)
        };
        assert_eq!(idle(cycles.clone()), None);
        cycles.cpus.iter_mut().for_each(|cpu| cpu.idle_percent = Some(40.0));
        assert_eq!(idle(cycles), Some(40.0));
    }

    fn any_stack() -> impl Strategy<Value = FoldedStack> {
        let name = prop::sample::select(vec![
            "tcp_ack",
            "ip_rcv",
            "csum_partial_copy_generic",
            "handle_softirqs",
            "veth_xmit",
            "frobnicate",
            "memcpy",
            "entry_SYSCALL_64",
            "net_rx_action",
            USER_FRAME,
        ]);
        let task = prop::sample::select(vec![
            TaskClass::Flow,
            TaskClass::Tool,
            TaskClass::Kernel,
            TaskClass::Other,
            TaskClass::Idle,
        ]);
        (task, prop::collection::vec(name, 0..6), 0_u32..4, 0_u64..1000).prop_map(
            |(task, frames, softirq, count)| {
                stack(task, &frames, softirq.min(frames.len() as u32), count)
            },
        )
    }

    proptest! {
        #[test]
        fn shares_and_times_sum_to_the_ends(
            folded in prop::collection::vec(any_stack(), 0..20),
            left_out in 0_u64..100,
            lost in 0_u64..100,
            packets in 0_u64..1000,
            bytes in 0_u64..1_000_000,
            role in prop::sample::select(vec![Some(Role::Sender), Some(Role::Receiver), None]),
            peer in prop::sample::select(vec![Place::Here, Place::Elsewhere]),
            kernel_seen in any::<bool>(),
            threads in (0.0..10.0, 0.0..10.0),
        ) {
            let mut profile = profile(folded);
            profile.how =
                How::Sampled { clock: SampleClock::CpuClock, kernel_seen, all_cpus: true };
            profile.threads = CpuSeconds { user: threads.0, system: threads.1 };
            profile.samples += left_out;
            profile.other_samples = left_out;
            profile.lost = lost;
            let all = profile.samples;
            let counted = count(profile, End { role, peer, packets: Some(packets), bytes });
            let busy = || counted.layers.iter().filter(|cost| cost.layer != Layer::Idle);
            let idle: u64 = counted.layers.iter().filter(|cost| cost.layer == Layer::Idle)
                .map(|cost| cost.samples).sum();
            let of_layers = if kernel_seen { counted.samples } else { 0 };
            prop_assert_eq!(busy().map(|cost| cost.samples).sum::<u64>(), of_layers);
            prop_assert_eq!(counted.samples + counted.foreign_samples + idle, all);
            let seconds: f64 = busy().map(|cost| cost.cpu_seconds).sum();
            prop_assert!((seconds - counted.cpu_seconds).abs() < 1e-9);
            let shares: f64 = busy().map(|cost| cost.share_percent).sum();
            prop_assert!(counted.cpu_seconds == 0.0 || (shares - 100.0).abs() < 1e-6);
            let functions: f64 = counted.functions.iter().map(|cost| cost.share_percent).sum();
            prop_assert!((0.0..100.0 + 1e-6).contains(&functions));
            for cost in busy() {
                let [low, high] = cost.share_interval_percent;
                prop_assert!(0.0 <= low && low <= cost.share_percent + 1e-9);
                prop_assert!(cost.share_percent <= high + 1e-9 && high <= 100.0 + 1e-9);
            }
            let total: f64 = busy().filter_map(|cost| cost.ns_per_byte).sum();
            prop_assert!(bytes == 0
                || (total * bytes as f64 / 1e9 - counted.cpu_seconds).abs() < 1e-6);
        }
    }
}
