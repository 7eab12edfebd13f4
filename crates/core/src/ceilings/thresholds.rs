//! The thresholds of the kernel's evidence, each with its reason.
//!
//! Shares are 0–1. The figures behind them were measured on Linux 6.18, one cause at a time.

/// Largest distance of the measured rate from the ceiling of an exact cause (windows, buffers,
/// pacing, a known link).
pub const EXACT_TOLERANCE: f64 = 0.10;
/// The same for modelled causes (congestion, CPU, startup) and ceilings from delivery rates.
pub const MODEL_TOLERANCE: f64 = 0.30;

/// Share of the busy time from which on a limit is the usual state of the flow.
/// A receiver's window that holds reads 98–99 %, one that does not 0 %.
pub(super) const USUAL_STATE: f64 = 0.5;

/// Window in use over congestion window from which on the congestion window is the limit. It reads
/// 1 with loss or a full queue, 0.03–0.33 with pacing, a small send buffer or an idle writer.
pub(super) const WINDOW_USED: f64 = 0.7;

/// `sndbuf_limited` counts only while nothing is queued: 35 % with BBR where the buffer held
/// always.
pub(super) const SNDBUF_SHARE: f64 = 0.25;
/// Share of the send buffer that its queue must fill: the kernel wakes a writer when a third is
/// free.
pub(super) const BUFFER_FILLED: f64 = 0.66;
/// Queue over buffer beyond which the buffer does not hold (small writes with Nagle's algorithm on
/// leak past it: 1.64 MB in one of 64 KiB).
pub(super) const BUFFER_LEAKS: f64 = 2.0;
/// Share of the buffer that may wait unsent while the buffer still is the limit.
pub(super) const NOTHING_UNSENT: f64 = 0.1;
/// The same where the congestion window is not known to have room: it may be no larger than what it
/// was ever asked for. A window that held would leave the rest of the buffer unsent.
pub(super) const ALL_SENT: f64 = 0.05;
/// RTT over the smallest behind a queue that is never empty. A buffer or window that is the limit
/// holds less than the path does, so that its bursts wait behind themselves for less than one
/// smallest RTT: the RTT is below twice the smallest. A quarter is for errors.
pub(super) const DEEP_QUEUE: f64 = 2.5;
/// The same where the kernel counts the buffer as the limit: a paced sender has a part of it always
/// waiting (BBR: 0.2).
pub(super) const PARTLY_UNSENT: f64 = 0.5;
/// Share of the readings in which the receiver's window was full from which on it is the limit,
/// also where pacing takes a part of the time that the kernel would count (BBR at a window: 34-48 %
/// counted, 50-100 % full).
pub(super) const WINDOW_FULL: f64 = 0.4;
/// Share of the busy time that the kernel must count for the window all the same.
pub(super) const WINDOW_COUNTED: f64 = 0.25;
/// Share of the busy time that the kernel must count for the window where BBR reaches the rate of
/// full windows and its congestion window has room for so many of them: its pace, of 1.25 times the
/// rate, takes the rest of the time (25 and 34 % at 0.87 and 0.97 of the rate).
pub(super) const WINDOW_OFTEN: f64 = 0.2;
pub(super) const WINDOW_ROOM: f64 = 1.5;
/// Share of the readings in which the window was full from which on it always is, and the share of
/// the busy time that the kernel then counts at least (BBR at a twentieth of a path: 90 % and 24
/// %).
pub(super) const WINDOW_ALWAYS_FULL: f64 = 0.8;
pub(super) const WINDOW_SEEN: f64 = 0.05;
/// Share of the busy time that the kernel counted for the window, or of the readings in which it
/// was full, from which on nothing else held the sender. The mean round trip leaves out what a busy
/// host adds between an acknowledgement and its answer: such rates were 0.78 to 0.99 of window over
/// round trip.
pub(super) const WINDOW_HELD: f64 = 0.75;
pub(super) const ALWAYS_TOLERANCE: f64 = 0.3;
/// The same of BBR, which takes a part of each round to fill the window by its pace: 0.86.
pub(super) const HELD_TOLERANCE: f64 = 0.2;
/// Current over maximal pacing rate from which on the maximum holds: they read equal.
pub(super) const PACED: f64 = 0.95;

/// A queue delays by this at least, µs; less is the wake-up of a host's own CPUs.
pub(super) const QUEUE_DELAY_US: f64 = 1000.0;
/// The same where others have a host's CPUs: some turns of theirs, of 4 ms each. 5.5 ms were read
/// over a plain veth with two busy neighbours.
pub(super) const SCHEDULER_DELAY_US: f64 = 15_000.0;
/// Mean over minimal RTT that a standing queue makes by itself (a drop-tail queue read 13, with BBR
/// 2.5).
pub(super) const QUEUE_INFLATION: f64 = 1.5;
/// Mean over minimal RTT that is a short queue where the rate also stays on a plateau.
pub(super) const SHORT_QUEUE_INFLATION: f64 = 1.1;
/// Segments that a queue holds at least to be one: with windows of a few segments delayed
/// acknowledgements alone make the RTT as long as 4 of them take.
pub(super) const QUEUE_SEGMENTS: f64 = 5.0;
/// The 95th percentile of the RTT over its mean, both above the smallest, from which on it varies:
/// 1.00 to 1.04 with a window that was always full before a link, also at a load of 20; 1.13 to 1.28
/// with jitter of 3 to 15 ms.
pub(super) const QUEUE_VARIES: f64 = 1.1;
/// Deviation of the RTT over its excess: a queue changes slowly, jitter does not.
pub(super) const JITTER_OVER_EXCESS: f64 = 0.5;
/// Measured rate over the largest delivery rate from which on the rate does not rise with the
/// window. A sawtooth under random loss stays below it.
pub(super) const PLATEAU: f64 = 0.85;

/// Distance of the quartiles of the rates in steps of 100 ms over their median, up to which a clock
/// keeps the rate: 0.000 to 0.008 behind token buckets of 20 to 300 Mbit/s, 0.04 to 0.7 where CPUs
/// were the limit.
pub(super) const EVEN: f64 = 0.03;

/// Least share of segments lost that is a policer's: a token bucket drops in each round that it is
/// full.
pub(super) const POLICER_LOSS: f64 = 0.0005;
/// Share of segments lost from which on a sender that ignores loss (BBR) is policed and not just
/// noisy.
pub(super) const POLICER_LOSS_BBR: f64 = 0.02;
/// Segments lost for each loss event: a token bucket takes the rest of a burst, random loss takes
/// one, and now and then a second of the same window (1.2 for each at a loss of 2 %).
pub(super) const POLICER_TRAIN: f64 = 1.6;
/// The same where the windows at which losses came are as good as one: then trains of a loss or two
/// are a bucket's, too. What takes each so many-th segment takes single ones, also at one window.
pub(super) const POLICER_SHORT_TRAIN: f64 = 1.1;
/// Segments lost for each event that no noise takes, bursts of it included.
pub(super) const POLICER_LONG_TRAIN: f64 = 3.5;
/// Deviation over mean of the windows at which losses came, below which they came at the same one:
/// a bucket read 0.1 to 0.2, random losses 0.2 to 1.7.
pub(super) const SAME_WINDOW: f64 = 0.22;
/// The same of windows that are as good as one: losses by chance come at any, so that their
/// deviation is a quarter of the mean and more, whatever the algorithm.
pub(super) const ONE_WINDOW: f64 = 0.15;
/// Loss events of it at least: the first overshoot of a deep queue is one, however much it loses.
pub(super) const POLICER_EVENTS_BBR: f64 = 3.0;
/// Of each flow that answers to loss: the end of slow start before a short queue may take two.
/// Policed ones had 12 and more in eight seconds.
pub(super) const POLICER_EVENTS: f64 = 4.0;
/// Share of segments that BBR loses to a policer that it has found out, and sends below for the
/// most part.
pub(super) const POLICER_LOSS_BBR_FOUND: f64 = 0.001;
/// Measured rate over BBR's pace from which on the network sets both. The gains of its cycle come
/// to 1 in the mean, and it stays in the phase with a gain of 1.25 until 1.25 times the product of
/// bandwidth and delay are in flight, which a window or a buffer does not allow
/// (net/ipv4/tcp_bbr.c, bbr_is_next_cycle_phase): 0.8 and less there, 0.89 to 1.02 at links and
/// policers.
pub(super) const BBR_PACE_REACHED: f64 = 0.85;
/// Mean over minimal RTT that BBR's probing makes at least where there is a queue.
pub(super) const BBR_INFLATION: f64 = 1.05;
/// The same of a queue too short to hold what it probes with, which loses as much as a policer.
pub(super) const BBR_QUEUE_INFLATION: f64 = 1.3;
/// Delay of such a queue at least, µs: 2.5 ms and more behind links, up to 1.9 ms and 5 ms of less
/// than four segments at policers.
pub(super) const BBR_QUEUE_DELAY_US: f64 = 2000.0;
/// Readings with losses over all, beyond which events of their own cannot be told from each other.
pub(super) const EVENTS_SATURATED: f64 = 0.8;
/// Deviation over mean of the intervals' rates: a token bucket's long-run rate is steady, but for
/// the sawtooth of a window that is halved.
pub(super) const STEADY: f64 = 0.4;
/// Intervals that a deviation needs.
pub(super) const STEADY_INTERVALS: usize = 4;
/// Rate of the first quarter of the intervals over that of the rest, from which on a run still came
/// down from where slow start had left it: a window is halved at each loss, and these were few.
pub(super) const COMING_DOWN: f64 = 1.5;
/// Loss events from which on a model of the steady state holds; before, the window remembers how it
/// began.
pub(super) const EVENTS_STEADY: f64 = 25.0;
/// Segments of a congestion window below which the models of the steady state are half as much
/// again off (CUBIC at a loss of 2 %: 5.6 instead of 8.5).
pub(super) const SMALL_WINDOW: f64 = 10.0;
/// For CUBIC, whose window below grows by whole segments after whole numbers of acknowledgements
/// (net/ipv4/tcp_cubic.c, bictcp_update): W·√p is 0.8 to 1.0 there, where Reno has 1.05 to 1.25.
pub(super) const SMALL_WINDOW_CUBIC: f64 = 16.0;
/// Timeouts over loss events from which on they decide the rate (Padhye's model).
pub(super) const TIMEOUTS_DECIDE: f64 = 0.1;

/// Share of the time on a CPU, or waiting for one, that is all that a thread can get.
pub(super) const THREAD_FULL: f64 = 0.9;
/// Share of the time that a runnable thread waits for a CPU: others hold it.
pub(super) const CPU_CONTENDED: f64 = 0.2;
/// Share of the time that a runnable thread waits for a CPU, from which on the CPUs are short, if
/// all of them are busy. Idle-priority work of others fills CPUs too, but makes no other thread
/// wait.
pub(super) const CPU_SHORT: f64 = 0.1;
/// CPUs that threads which lack CPU have at least, all flows together: one beside thirty others
/// would get as much. Readers of a slow path ran for 0.002 to 0.013 on full hosts, and waited for
/// half of the time.
pub(super) const CPU_WORK: f64 = 0.03;
/// Share of the time that it waits, from which on others have the most of its CPU.
pub(super) const CPU_TAKEN: f64 = 0.4;
/// Share of the periods in which a control group had work, from which on its quota of CPU time was
/// usually used up: they are counted where the group was stopped before the end
/// (kernel/sched/fair.c, throttle_cfs_rq).
pub(super) const QUOTA_USED_UP: f64 = 0.5;
/// Such periods at least, of 100 ms by default.
pub(super) const QUOTA_PERIODS: u64 = 5;
/// Share of the quota that the test's own threads took at least: else somebody else in the group
/// used it up.
pub(super) const QUOTA_OWN: f64 = 0.5;
/// Share of the time in which one end or the other works from which on their work is the limit.
pub(super) const WORK_FULL: f64 = 0.8;
/// Soft interrupts of one core from which on packets of a short path wait for it and not for a
/// link, percent: 44 to 57 were read with 125,000 to 800,000 small segments a second over a veth
/// pair whose queue stood, 29 to 38 where the threads were the limit.
pub(super) const SOFTIRQ_QUEUES_PERCENT: f64 = 40.0;
/// Median of the delivery rates over the mean rate from which on something other than a link takes
/// the data: 2.2 to 13 were read where a quota or other programs stopped the receiver's CPU for most
/// of the time, and up to 1.15 behind links.
pub(super) const BY_TURNS: f64 = 2.0;
/// Busiest core from which on it has no more to give, percent.
pub(super) const CORE_FULL_PERCENT: f64 = 95.0;
/// Soft interrupts of one core from which on it takes no more packets, percent: the kernel leaves
/// the rest of a full core's time to a thread (ksoftirqd) that shares it with others.
pub(super) const SOFTIRQ_FULL_PERCENT: f64 = 90.0;
/// Share of the time that a data thread ran or waited for a CPU, where the whole host is full, from
/// which on that is what it lacked.
pub(super) const HOST_SHARE: f64 = 0.5;
/// Share of the CPUs that a test can use at once from which on its threads, those of both ends on
/// one host, have all of them. The threads of one flow hand its bytes on and run by turns, so that
/// all of them together can use one CPU.
pub(super) const CHAIN_FULL: f64 = 0.9;
/// Share of them that the threads must have had: threads that only wait for a CPU do little.
pub(super) const CHAIN_RUNS: f64 = 0.5;
/// Share of the time that a thread was on a CPU, or awake, below which extrapolating its rate to
/// the whole time says nothing.
pub(super) const MIN_UTILISATION: f64 = 0.1;
/// Share of the time asleep in `send` below which the writer does not wait for the network.
pub(super) const WRITER_WAITS: f64 = 0.25;
/// Share of the time asleep in `recv` below which the reader does not wait for the network.
pub(super) const READER_WAITS: f64 = 0.1;
/// Unread bytes over the receive buffer that are a backlog: at most about half of a buffer is
/// payload.
pub(super) const BACKLOG: f64 = 0.25;
/// Unread bytes over the window that is still offered, from which on they fill the most of what the
/// buffer holds: 39 with segments of 148 bytes, of which 3 MB filled a buffer of 30 MiB.
pub(super) const LEFT_BY_A_BACKLOG: f64 = 2.0;
/// Datagrams dropped by the receiver's buffer over those sent, from which on the reader is too
/// slow.
pub(super) const SOCKET_DROPS: f64 = 0.01;
/// Datagrams lost on the path over those sent, from which on more is sent than it carries, where
/// neither their delays nor the pattern of the losses are known.
pub(super) const DATAGRAMS_LOST: f64 = 0.1;
/// The same where delays or losses show a full queue or a bucket, and of the growth of the delay:
/// less is within the error of a rate.
pub(super) const DATAGRAMS_OVER: f64 = 0.01;
/// Jitter of datagrams over the delay that was added to the smallest, up to which a queue made it:
/// a full one changes by a datagram at a time (0.001 to 0.033 at 50 to 500 Mbit/s). Jitter that
/// keeps the order of packets had 0.15, of a normal distribution without memory it is 0.38.
pub(super) const DATAGRAM_JITTER: f64 = 0.1;
/// Variation of the distances between losses over that of losses by chance from which on they are
/// such: its error is a sixth where 20 distances were seen. Each so many-th has half of it at most.
pub(super) const LOST_BY_CHANCE: f64 = 0.75;

/// Round trips and segments of a capture from which on a cause may be 90 % sure. Without such a
/// minimum 27 of 39 path rates that were named so on other people's captures were wrong.
pub(super) const FEWEST_ROUNDS: f64 = 10.0;
pub(super) const FEWEST_SEGMENTS: f64 = 50.0;
/// How sure a cause is at most with less.
pub(super) const SURE_OF_FEW: f64 = 0.89;
/// Share of the segments sent while no other was in flight, of a sender that waits for each: all
/// but some at the start.
pub(super) const ALONE: f64 = 0.9;

/// Readings from which on the largest delivery rate of them is one that the flow kept to.
pub(super) const READINGS_OF_A_RATE: u64 = 10;
/// Slow start over the measured time from which on it is what was measured.
pub(super) const SLOW_START_SHARE: f64 = 0.5;

/// Segment size over what the interface carries, below which something made it small. A few bytes
/// less are options or a tunnel on the path.
pub(super) const SEGMENT_SMALL: f64 = 0.85;
/// A limit of less than this share of what was measured is not known well enough to be what comes
/// next.
pub(super) const MIN_NEXT: f64 = 0.9;
/// Rates up to so many times the measured one are predicted whatever was the cause: further off
/// nobody has seen what a byte costs the hosts' CPUs.
pub(super) const PREDICTED_TIMES: f64 = 10.0;
/// Bytes of payload that cost a host's CPU as much as a packet does by itself, without segmentation
/// offload. Fitted to 108 runs with small segments and full ones, of BBR, CUBIC and Reno.
pub(super) const PACKET_IN_BYTES: f64 = 4000.0;

/// Ethernet's header: what a queueing discipline counts beside the IP packet, bytes.
pub(super) const QDISC_HEADER_BYTES: f64 = 14.0;
/// Share of the transfer that a class must have carried, to be its class: acknowledgements of
/// others may be elsewhere.
pub(super) const CLASS_CARRIES: f64 = 0.8;
/// What a class, or a link, sent over what it may, from which on it is full. HTB keeps a rate
/// within some percent.
pub(super) const CLASS_FULL: f64 = 0.9;
