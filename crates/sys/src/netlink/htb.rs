//! Hierarchical token bucket (HTB): a queueing discipline whose classes have a guaranteed rate and
//! a ceiling.
//!
//! Layouts are those of include/uapi/linux/pkt_sched.h.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2, TcXstats};
use serde::{Deserialize, Serialize};

use super::exchange::attributes;
use super::qdisc::{header, raw};
use super::{Netlink, NetlinkError};
use crate::message::{u32_at, u64_at};

/// A class of an HTB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HtbClass {
    /// `major << 16 | minor`.
    pub id: u32,
    /// Id of the parent class; `None` for a class directly below the root.
    pub parent: Option<u32>,
    /// Guaranteed rate, bytes per second; not 0.
    pub rate: u64,
    /// Ceiling, bytes per second; not below `rate`.
    pub ceil: u64,
    /// Burst of the guaranteed rate: bytes that may be sent at once after a pause.
    pub burst: u32,
    /// Burst of the ceiling, bytes.
    pub ceil_burst: u32,
    /// Bytes that the class sends before the next class of the same priority may borrow, 1,000 to
    /// 200,000. If this is less than the longest frame, long frames get more than their share.
    pub quantum: u32,
    /// Priority for unused bandwidth: 0 (first) to 7 (last).
    pub priority: u8,
}

/// A queueing discipline that limits all packets together to one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shaper {
    /// `tbf` or `cake`.
    pub kind: &'static str,
    /// Bytes per second.
    pub rate: u64,
}

impl Shaper {
    /// Whether a queueing discipline of this kind can be a shaper.
    pub fn is_kind(kind: &str) -> bool {
        ["tbf", "cake"].contains(&kind)
    }

    /// From the attributes of `TCA_OPTIONS`; `None` for a cake without a rate.
    fn parse(kind: &str, options: &[u8]) -> Option<Self> {
        let wide = |kind| u64_at(value(options, kind)?, 0);
        let (kind, rate) = match kind {
            // All 32 bits are set if the rate needs more.
            "tbf" => (
                "tbf",
                wide(TCA_TBF_RATE64)
                    .or_else(|| u32_at(value(options, TCA_TBF_PARMS)?, 8).map(u64::from))?,
            ),
            "cake" => ("cake", wide(TCA_CAKE_BASE_RATE64)?),
            _ => return None,
        };
        (rate > 0).then_some(Self { kind, rate })
    }
}

/// Counters of a class since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HtbStatistics {
    /// Bytes sent, with layer-2 headers.
    pub bytes: u64,
    /// Packets sent; each segment of an offloaded packet counts. The kernel counts up to 2³² − 1.
    pub packets: u32,
    /// Packets dropped because the queue was full.
    pub drops: u32,
    /// Number of times that the rate delayed a packet.
    pub overlimits: u32,
    /// Bytes in the queue.
    pub backlog_bytes: u32,
    /// Packets sent from the class's own rate.
    pub lends: u32,
    /// Packets sent from rates that other classes lent.
    pub borrows: u32,
}

impl Netlink {
    /// Makes an HTB the root queueing discipline of the link with this index. Packets without a
    /// class go to the class `default` (a minor number); until that class exists they pass
    /// unlimited. The previous root is deleted with the packets in its queue.
    ///
    /// # Errors
    /// Refused with `EPERM` without `CAP_NET_ADMIN`, `ENODEV` without the link, `ENOENT` if the
    /// kernel has no HTB.
    pub fn replace_root_by_htb(
        &mut self,
        index: u32,
        major: u16,
        default: u16,
    ) -> Result<(), NetlinkError> {
        let mut init = Vec::with_capacity(20);
        // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
        for word in [HTB_VERSION, 10, u32::from(default), 0, 0] {
            init.extend(word.to_ne_bytes());
        }
        let mut message = header(index, TcHandle { major, minor: 0 }, TcHandle::ROOT);
        message.attributes = vec![
            TcAttribute::Kind(HTB.to_owned()),
            TcAttribute::Options(vec![option(TCA_HTB_INIT, init)]),
        ];
        self.change(
            &format!("make an HTB {major:x}: the root of link {index}"),
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Deletes the root queueing discipline with this major number; the kernel puts its default in
    /// its place.
    ///
    /// # Errors
    /// Refused with `ENOENT` if there is none, `EINVAL` if it has another number.
    pub fn delete_root(&mut self, index: u32, major: u16) -> Result<(), NetlinkError> {
        let message = header(index, TcHandle { major, minor: 0 }, TcHandle::ROOT);
        self.change(
            &format!("delete the queueing discipline {major:x}: of link {index}"),
            RouteNetlinkMessage::DelQueueDiscipline(message),
            0,
        )
    }

    /// Creates a class, or changes the class with this id in place, which loses no packet. The
    /// parent class must exist: without it the kernel would silently put the class below the root.
    ///
    /// # Errors
    /// Refused with `EINVAL` without the queueing discipline, or for a rate of 0; `EEXIST` if the
    /// class should be new and exists.
    pub fn put_htb_class(
        &mut self,
        index: u32,
        class: &HtbClass,
        is_new: bool,
    ) -> Result<(), NetlinkError> {
        let id = TcHandle::from(class.id);
        let above = TcHandle { major: id.major, minor: 0 };
        let parent = class.parent.map_or(above, TcHandle::from);
        let mut message = header(index, id, parent);
        message.attributes =
            vec![TcAttribute::Kind(HTB.to_owned()), TcAttribute::Options(class.options())];
        let (verb, flags) = if is_new { ("add", NLM_F_CREATE | NLM_F_EXCL) } else { ("change", 0) };
        self.change(
            &format!("{verb} class {:x}:{:x} of link {index}", id.major, id.minor),
            RouteNetlinkMessage::NewTrafficClass(message),
            flags,
        )
    }

    /// Deletes a class; the packets in its queue are lost.
    ///
    /// # Errors
    /// Refused with `ENOENT` if there is no such class, `EBUSY` if it has child classes.
    pub fn delete_class(&mut self, index: u32, id: u32) -> Result<(), NetlinkError> {
        let id = TcHandle::from(id);
        let message = header(index, id, TcHandle::UNSPEC);
        self.change(
            &format!("delete class {:x}:{:x} of link {index}", id.major, id.minor),
            RouteNetlinkMessage::DelTrafficClass(message),
            0,
        )
    }

    /// The classless shaper at the root of the link with this index, if there is one, with its
    /// counters.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn root_shaper(
        &mut self,
        index: u32,
    ) -> Result<Option<(Shaper, HtbStatistics)>, NetlinkError> {
        let query = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answer = self.dump(&format!("list the shapers of link {index}"), query)?;
        // The kernel lists the disciplines of all links, whichever link is asked for.
        Ok(answer.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewQueueDiscipline(message)
                if message.header.index == index.cast_signed()
                    && message.header.parent == TcHandle::ROOT =>
            {
                shaper(&message)
            }
            _ => None,
        }))
    }

    /// The classes of the HTB with this major number, ordered by id, with their counters; empty if
    /// there is no such HTB.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn htb_classes(
        &mut self,
        index: u32,
        major: u16,
    ) -> Result<Vec<(HtbClass, HtbStatistics)>, NetlinkError> {
        let query = header(index, TcHandle::UNSPEC, TcHandle::UNSPEC);
        let operation = format!("list the classes of link {index}");
        let answer = self.dump(&operation, RouteNetlinkMessage::GetTrafficClass(query))?;
        let own = answer.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewTrafficClass(class) => Some(class),
            _ => None,
        });
        let mut classes = own
            .filter(|class| class.header.handle.major == major && is_htb(class))
            .map(|class| {
                parse(&class).ok_or_else(|| {
                    NetlinkError::malformed(&operation, "a class without its parameters")
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        classes.sort_by_key(|(class, _)| class.id);
        Ok(classes)
    }
}

impl HtbClass {
    fn options(&self) -> Vec<TcOption> {
        let mut parameters = Vec::with_capacity(PARAMETERS);
        for rate in [self.rate, self.ceil] {
            parameters.extend(rate_specification(rate));
        }
        let words = [
            ticks(self.burst, self.rate),
            ticks(self.ceil_burst, self.ceil),
            self.quantum,
            0,
            u32::from(self.priority),
        ];
        words.iter().for_each(|word| parameters.extend(word.to_ne_bytes()));
        vec![
            option(TCA_HTB_PARMS, parameters),
            option(TCA_HTB_RATE64, self.rate.to_ne_bytes().to_vec()),
            option(TCA_HTB_CEIL64, self.ceil.to_ne_bytes().to_vec()),
        ]
    }

    /// From the attributes of `TCA_OPTIONS`.
    fn parse(id: u32, parent: Option<u32>, options: &[u8]) -> Option<Self> {
        let parameters = value(options, TCA_HTB_PARMS)?;
        let word = |at| u32_at(parameters, at);
        let wide = |kind| u64_at(value(options, kind)?, 0);
        let rate = wide(TCA_HTB_RATE64).or(word(8).map(u64::from))?;
        let ceil = wide(TCA_HTB_CEIL64).or(word(20).map(u64::from))?;
        Some(Self {
            id,
            parent,
            rate,
            ceil,
            burst: bytes_of(word(24)?, rate),
            ceil_burst: bytes_of(word(28)?, ceil),
            quantum: word(32)?,
            priority: u8::try_from(word(40)?).ok()?,
        })
    }
}

/// The value of an attribute of `TCA_OPTIONS`.
pub(super) fn value(options: &[u8], kind: u16) -> Option<&[u8]> {
    let (_, value) = attributes(options).find(|(found, _)| *found == kind)?;
    Some(value)
}

/// `struct tc_ratespec`. Because the link layer is set, the kernel needs no rate table.
fn rate_specification(rate: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[1] = TC_LINKLAYER_ETHERNET;
    let narrow = u32::try_from(rate).unwrap_or(u32::MAX);
    bytes[8..].copy_from_slice(&narrow.to_ne_bytes());
    bytes
}

/// The time that `bytes` take to send, in ticks of the packet scheduler (`PSCHED_SHIFT`,
/// include/net/pkt_sched.h).
fn ticks(bytes: u32, rate: u64) -> u32 {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u32::try_from(nanoseconds.div_ceil(TICK_NS)).unwrap_or(u32::MAX)
}

fn bytes_of(ticks: u32, rate: u64) -> u32 {
    let bytes = u128::from(ticks) * TICK_NS * u128::from(rate) / 1_000_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn option(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}

fn is_htb(message: &TcMessage) -> bool {
    (message.attributes.iter())
        .any(|attribute| matches!(attribute, TcAttribute::Kind(kind) if kind == HTB))
}

fn parse(message: &TcMessage) -> Option<(HtbClass, HtbStatistics)> {
    let parent = message.header.parent;
    let parent = (parent.minor != 0 && parent != TcHandle::ROOT).then(|| u32::from(parent));
    let mut class = None;
    let mut statistics = HtbStatistics::default();
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Options(options) => {
                class = HtbClass::parse(message.header.handle.into(), parent, &raw(options));
            }
            TcAttribute::Stats2(parts) => parts.iter().for_each(|part| statistics.absorb(part)),
            TcAttribute::Xstats(TcXstats::Other(bytes)) => statistics.absorb_own(bytes),
            _ => {}
        }
    }
    class.map(|class| (class, statistics))
}

fn shaper(message: &TcMessage) -> Option<(Shaper, HtbStatistics)> {
    let mut kind = "";
    let mut options = Vec::new();
    let mut statistics = HtbStatistics::default();
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(name) => kind = name,
            TcAttribute::Options(own) => options = raw(own),
            TcAttribute::Stats2(parts) => parts.iter().for_each(|part| statistics.absorb(part)),
            _ => {}
        }
    }
    Some((Shaper::parse(kind, &options)?, statistics))
}

impl HtbStatistics {
    fn absorb(&mut self, part: &TcStats2) {
        match part {
            TcStats2::Basic(basic) => (self.bytes, self.packets) = (basic.bytes, basic.packets),
            TcStats2::Queue(queue) => {
                self.drops = queue.drops;
                self.overlimits = queue.overlimits;
                self.backlog_bytes = queue.backlog;
            }
            TcStats2::App(TcXstats::Other(bytes)) => self.absorb_own(bytes),
            _ => {}
        }
    }

    /// `struct tc_htb_xstats`: lends, borrows, giants, tokens, ctokens.
    fn absorb_own(&mut self, bytes: &[u8]) {
        if let Some(lends) = u32_at(bytes, 0) {
            self.lends = lends;
            self.borrows = u32_at(bytes, 4).unwrap_or(0);
        }
    }
}

const HTB: &str = "htb";
/// `TC_HTB_PROTOVER`.
const HTB_VERSION: u32 = 3;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_CAKE_BASE_RATE64: u16 = 2;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TC_LINKLAYER_ETHERNET: u8 = 1;
const TICK_NS: u128 = 64;
/// Bytes of `struct tc_htb_opt`.
const PARAMETERS: usize = 44;

#[cfg(test)]
mod tests {
    use linerate_testkit::{Need, skip};

    use super::*;
    use crate::netns::pair_or_skip;

    const CLASS: HtbClass = HtbClass {
        id: 0x4c51_0010,
        parent: Some(0x4c51_0001),
        rate: 1_250_000,
        ceil: 12_500_000,
        burst: 3_200,
        ceil_burst: 25_000,
        quantum: 15_000,
        priority: 3,
    };

    fn bytes(options: &[TcOption]) -> Vec<u8> {
        use netlink_packet_core::Emitable;
        let mut bytes = vec![0; options.buffer_len()];
        options.emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_class_is_read_as_it_is_written() {
        for rate in [1_000, 1_250_000, u64::from(u32::MAX) + 7, 50_000_000_000] {
            let class = HtbClass { rate, ceil: rate * 2, ..CLASS };
            let read = HtbClass::parse(class.id, class.parent, &bytes(&class.options())).unwrap();
            let near =
                |a: u32, b: u32, rate: u64| a.abs_diff(b) <= (rate * 64 / 1_000_000_000) as u32 + 1;
            assert!(near(read.burst, class.burst, rate), "{read:?}");
            assert!(near(read.ceil_burst, class.ceil_burst, rate * 2), "{read:?}");
            assert_eq!(
                HtbClass { burst: class.burst, ceil_burst: class.ceil_burst, ..read },
                class
            );
        }
        for length in 0..PARAMETERS {
            let cut = bytes(&CLASS.options())[..length].to_vec();
            assert_eq!(HtbClass::parse(1, None, &cut), None);
        }
    }

    #[test]
    fn a_shaper_has_its_rate_in_32_bits_or_in_64() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes
        };
        let mut parameters = [0; 36];
        parameters[8..12].copy_from_slice(&625_000_u32.to_ne_bytes());
        let narrow = attribute(TCA_TBF_PARMS, &parameters);
        let rate = |kind, options: &[u8]| Shaper::parse(kind, options).map(|shaper| shaper.rate);
        assert_eq!(rate("tbf", &narrow), Some(625_000));
        let large = attribute(TCA_TBF_RATE64, &1_250_000_000_000_u64.to_ne_bytes());
        let wide = [narrow.clone(), large].concat();
        assert_eq!(rate("tbf", &wide), Some(1_250_000_000_000));
        let cake = |rate: u64| attribute(TCA_CAKE_BASE_RATE64, &rate.to_ne_bytes());
        assert_eq!(rate("cake", &cake(625_000)), Some(625_000));
        // A cake without a bandwidth limit is no shaper.
        assert_eq!(rate("cake", &cake(0)), None);
        assert_eq!(rate("fq_codel", &narrow), None);
        for length in 0..narrow.len() {
            assert_eq!(rate("tbf", &narrow[..length]), None);
        }
    }

    #[test]
    fn a_burst_takes_its_time_in_ticks_of_64_ns() {
        assert_eq!(ticks(1_250, 1_250_000), 15_625);
        assert_eq!(ticks(u32::MAX, 1), u32::MAX);
        assert_eq!(ticks(0, 0), 0);
    }

    #[test]
    fn classes_are_made_changed_listed_and_deleted() {
        let Some(pair) = pair_or_skip() else { return };
        let mut netlink = pair.a.namespace.netlink().unwrap();
        let link = netlink.links().unwrap().into_iter().find(|link| !link.loopback).unwrap();
        let (index, major) = (link.index, 0x4c51);
        match netlink.replace_root_by_htb(index, major, 2) {
            Err(error) if error.errno() == Some(libc::ENOENT) => {
                skip(Need::Bpf, format_args!("{error}: the kernel has no HTB"));
                return;
            }
            made => made.unwrap(),
        }
        let root = HtbClass { id: 0x4c51_0001, parent: None, rate: 12_500_000, ..CLASS };
        netlink.put_htb_class(index, &root, true).unwrap();
        netlink.put_htb_class(index, &CLASS, true).unwrap();
        let twice = netlink.put_htb_class(index, &CLASS, true).unwrap_err();
        assert_eq!(twice.errno(), Some(libc::EEXIST), "{twice}");
        let faster = HtbClass { rate: 2_500_000, priority: 1, ..CLASS };
        netlink.put_htb_class(index, &faster, false).unwrap();
        let classes = netlink.htb_classes(index, major).unwrap();
        let found: Vec<_> = classes
            .iter()
            .map(|(class, _)| (class.id, class.parent, class.rate, class.priority))
            .collect();
        assert_eq!(found, [(root.id, None, root.rate, 3), (CLASS.id, Some(root.id), 2_500_000, 1)]);
        assert!(netlink.htb_classes(index, 7).unwrap().is_empty());
        netlink.delete_class(index, CLASS.id).unwrap();
        assert_eq!(netlink.htb_classes(index, major).unwrap().len(), 1);
        netlink.delete_root(index, major).unwrap();
        assert!(netlink.qdiscs(&link.name).unwrap().iter().all(|qdisc| qdisc.kind != HTB));
    }
}
