//! Queueing disciplines of a link.

use netlink_packet_core::{DefaultNla, Emitable, NLM_F_CREATE, NLM_F_REPLACE, Nla};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};
use serde::{Deserialize, Serialize};

use super::htb::value;
use super::{Netlink, NetlinkError};
use crate::message::u32_at;

/// A queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Qdisc {
    /// Kind: `fq`, `fq_codel`, `mq`, `noqueue` and so on.
    pub kind: String,
    /// Major and minor number, as `tc` prints them: `8001:0`.
    pub handle: (u16, u16),
    /// Whether it is the link's root, not a child or an ingress hook.
    pub root: bool,
    /// Id of its parent, `major << 16 | minor`.
    pub parent: u32,
    /// Its options, in the form in which the kernel reports and accepts them (`TCA_OPTIONS`).
    pub options: Vec<u8>,
}

impl Qdisc {
    /// The most with which `fq` lets each flow leave, bytes of frames per second; `None` of other
    /// kinds, and without a maximum.
    pub fn flow_max_rate(&self) -> Option<u32> {
        let rate = u32_at(value(&self.options, TCA_FQ_FLOW_MAX_RATE)?, 0)?;
        (self.kind == "fq" && rate != u32::MAX).then_some(rate)
    }
}

/// A class of any queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficClass {
    /// Kind of the queueing discipline.
    pub kind: String,
    /// Id, `major << 16 | minor`.
    pub id: u32,
    /// Id of its parent.
    pub parent: u32,
    /// Its options (`TCA_OPTIONS`).
    pub options: Vec<u8>,
}

impl Netlink {
    /// The queueing disciplines of the link called `name`, the root first.
    ///
    /// # Errors
    /// Refused with `ENODEV` if there is no such link.
    pub fn qdiscs(&mut self, name: &str) -> Result<Vec<Qdisc>, NetlinkError> {
        let index = self.link(name)?.index;
        let query = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answer = self.dump(&format!("list the queueing disciplines of link {name}"), query)?;
        let mut qdiscs: Vec<Qdisc> =
            answer.into_iter().filter_map(|message| parse(message, index)).collect();
        qdiscs.sort_by_key(|qdisc| !qdisc.root);
        Ok(qdiscs)
    }

    /// Bytes queued in the root queueing discipline of the link with this index, with its
    /// children; `None` if it has none.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn root_backlog(&mut self, index: u32) -> Result<Option<u32>, NetlinkError> {
        let query = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answer = self.dump(&format!("read the queue of link {index}"), query)?;
        Ok(answer.iter().find_map(|message| backlog(message, index)))
    }

    /// Adds a queueing discipline below `parent` (`major << 16 | minor`) or as the root of the link
    /// with this index. An existing one of the same kind is changed in place; one of another kind
    /// is deleted with its queue. With handle 0 the kernel chooses the number.
    ///
    /// # Errors
    /// Refused with `ENOENT` if the kernel has no such discipline or there is no such class,
    /// `EINVAL` if it does not take the options, `EPERM` without `CAP_NET_ADMIN`.
    pub fn put_qdisc(
        &mut self,
        index: u32,
        parent: Option<u32>,
        (kind, handle, options): (&str, u16, &[u8]),
    ) -> Result<(), NetlinkError> {
        let parent = parent.map_or(TcHandle::ROOT, TcHandle::from);
        let handle = TcHandle { major: handle, minor: 0 };
        self.change(
            &format!("put the queueing discipline {kind} on link {index}"),
            RouteNetlinkMessage::NewQueueDiscipline(message(index, handle, parent, kind, options)),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// The classes of all queueing disciplines of the link with this index.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn traffic_classes(&mut self, index: u32) -> Result<Vec<TrafficClass>, NetlinkError> {
        let mut query = TcMessage::default();
        query.header.index = index.cast_signed();
        let answer = self.dump(
            &format!("list the classes of link {index}"),
            RouteNetlinkMessage::GetTrafficClass(query),
        )?;
        let classes = answer.into_iter().filter_map(|message| {
            let RouteNetlinkMessage::NewTrafficClass(message) = message else {
                return None;
            };
            let (kind, options) = kind_and_options(&message)?;
            Some(TrafficClass {
                kind,
                id: message.header.handle.into(),
                parent: message.header.parent.into(),
                options,
            })
        });
        Ok(classes.collect())
    }

    /// Creates a class as [`Netlink::traffic_classes`] reports it.
    ///
    /// # Errors
    /// Refused with `EINVAL` without its queueing discipline, or if the kernel does not accept the
    /// options in the form in which it reports them.
    pub fn put_traffic_class(
        &mut self,
        index: u32,
        class: &TrafficClass,
    ) -> Result<(), NetlinkError> {
        let (id, parent) = (TcHandle::from(class.id), TcHandle::from(class.parent));
        self.change(
            &format!("add class {:x}:{:x} of link {index}", id.major, id.minor),
            RouteNetlinkMessage::NewTrafficClass(message(
                index,
                id,
                parent,
                &class.kind,
                &class.options,
            )),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }
}

/// A message about a queueing discipline, class or filter of the link with this index.
pub(super) fn header(index: u32, handle: TcHandle, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = index.cast_signed();
    message.header.handle = handle;
    message.header.parent = parent;
    message
}

fn message(
    index: u32,
    handle: TcHandle,
    parent: TcHandle,
    kind: &str,
    options: &[u8],
) -> TcMessage {
    let mut message = header(index, handle, parent);
    message.attributes = vec![TcAttribute::Kind(kind.to_owned())];
    if !options.is_empty() {
        let options = DefaultNla::new(TCA_OPTIONS, options.to_vec());
        message.attributes.push(TcAttribute::Other(options));
    }
    message
}

fn backlog(message: &RouteNetlinkMessage, index: u32) -> Option<u32> {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = message else {
        return None;
    };
    let is_root = message.header.parent == TcHandle::ROOT;
    if u32::try_from(message.header.index) != Ok(index) || !is_root {
        return None;
    }
    message.attributes.iter().find_map(|attribute| {
        let TcAttribute::Stats2(parts) = attribute else {
            return None;
        };
        parts.iter().find_map(|part| match part {
            TcStats2::Queue(queue) => Some(queue.backlog),
            _ => None,
        })
    })
}

/// The kernel lists the disciplines of all links, whichever link is asked for.
fn parse(message: RouteNetlinkMessage, index: u32) -> Option<Qdisc> {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = message else {
        return None;
    };
    if u32::try_from(message.header.index) != Ok(index) {
        return None;
    }
    let (kind, options) = kind_and_options(&message)?;
    let TcHandle { major, minor } = message.header.handle;
    Some(Qdisc {
        kind,
        handle: (major, minor),
        root: message.header.parent == TcHandle::ROOT,
        parent: message.header.parent.into(),
        options,
    })
}

fn kind_and_options(message: &TcMessage) -> Option<(String, Vec<u8>)> {
    let (mut kind, mut bytes) = (None, Vec::new());
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(name) => kind = Some(name.clone()),
            TcAttribute::Options(options) => bytes = raw(options),
            _ => {}
        }
    }
    let kind = kind?;
    // The kernel reports HTB's version with its revision (`HTB_VER`) but accepts only the version.
    if let ("htb", Some(version)) = (kind.as_str(), bytes.get_mut(4..8))
        && let Ok(shown) = (&*version).try_into().map(u32::from_ne_bytes)
        && shown >> 16 != 0
        && message.header.handle.minor == 0
    {
        version.copy_from_slice(&(shown >> 16).to_ne_bytes());
    }
    Some((kind, bytes))
}

/// The value of `TCA_OPTIONS`. For kinds that the library does not know, it is one single option.
pub(super) fn raw(options: &[TcOption]) -> Vec<u8> {
    if let [TcOption::Other(all)] = options {
        let mut bytes = vec![0; all.value_len()];
        all.emit_value(&mut bytes);
        return bytes;
    }
    let mut bytes = vec![0; options.buffer_len()];
    options.emit(&mut bytes);
    bytes
}

const TCA_OPTIONS: u16 = 2;
/// linux/pkt_sched.h.
const TCA_FQ_FLOW_MAX_RATE: u16 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_of_fq_for_each_flow_is_read() {
        let option = |kind: u16, value: u32| {
            [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value.to_ne_bytes()].concat()
        };
        let fq = |rate| Qdisc {
            kind: "fq".to_owned(),
            handle: (0x8001, 0),
            root: true,
            parent: u32::MAX,
            options: [option(1, 10_000), option(TCA_FQ_FLOW_MAX_RATE, rate)].concat(),
        };
        assert_eq!(fq(1_000_000).flow_max_rate(), Some(1_000_000));
        assert_eq!(fq(u32::MAX).flow_max_rate(), None);
        assert_eq!(Qdisc { kind: "fq_codel".to_owned(), ..fq(1_000_000) }.flow_max_rate(), None);
        assert_eq!(Qdisc { options: Vec::new(), ..fq(1) }.flow_max_rate(), None);
    }
}
