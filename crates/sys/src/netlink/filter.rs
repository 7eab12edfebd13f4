//! eBPF programs as filters of a `clsact` queueing discipline, for kernels before 6.6, which have
//! no TCX.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};

use super::qdisc::header;
use super::{Netlink, NetlinkError};
use crate::errno;

/// The direction of a link's packets that a filter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received packets.
    Ingress,
    /// Packets to be sent.
    Egress,
}

/// An eBPF filter in direct-action mode: the program's return value is the action.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BpfFilter {
    /// Position among the filters; the lowest number runs first.
    pub priority: u16,
    /// Number of the filter at its priority.
    pub handle: u32,
    /// Name of the filter.
    pub name: String,
    /// The kernel's id of the program.
    pub program: Option<u32>,
}

impl Netlink {
    /// Adds a `clsact` queueing discipline to the link unless it has one.
    ///
    /// # Errors
    /// Refused with `EPERM` without `CAP_NET_ADMIN`; `EEXIST` if the link has an `ingress` queueing
    /// discipline instead, which filters no sent packets.
    pub fn ensure_clsact(&mut self, index: u32, name: &str) -> Result<(), NetlinkError> {
        let has = self.qdiscs(name)?.iter().any(|qdisc| qdisc.kind == CLSACT);
        if has {
            return Ok(());
        }
        let handle = TcHandle { major: TcHandle::CLSACT.major, minor: 0 };
        let mut message = header(index, handle, TcHandle::CLSACT);
        message.attributes = vec![TcAttribute::Kind(CLSACT.to_owned())];
        self.change(
            &format!("add a clsact to link {name}"),
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Attaches a program as `filter`: priority, handle and name. It replaces a filter with the
    /// same priority and handle atomically, so that each packet meets one of the two programs.
    ///
    /// # Errors
    /// Refused with `EPERM` without `CAP_NET_ADMIN`, `EINVAL` without a `clsact`.
    pub fn put_bpf_filter(
        &mut self,
        index: u32,
        direction: Direction,
        filter: (u16, u32, &str),
        program: BorrowedFd<'_>,
    ) -> Result<(), NetlinkError> {
        let (priority, handle, name) = filter;
        let fd = program.as_raw_fd().cast_unsigned();
        let mut message = self::filter(index, direction, priority, handle);
        message.attributes.push(TcAttribute::Options(vec![
            TcOption::Bpf(TcFilterBpfOption::ProgFd(fd)),
            TcOption::Bpf(TcFilterBpfOption::ProgName(name.to_owned())),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]));
        self.change(
            &format!("put program {name} on link {index}"),
            RouteNetlinkMessage::NewTrafficFilter(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Detaches a program.
    ///
    /// # Errors
    /// Refused with `ENOENT` if there is no such filter.
    pub fn delete_bpf_filter(
        &mut self,
        index: u32,
        direction: Direction,
        priority: u16,
        handle: u32,
    ) -> Result<(), NetlinkError> {
        let message = filter(index, direction, priority, handle);
        self.change(
            &format!("take program {priority}:{handle} off link {index}"),
            RouteNetlinkMessage::DelTrafficFilter(message),
            0,
        )
    }

    /// The filters for this direction; empty if the link has no `clsact`.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn bpf_filters(
        &mut self,
        index: u32,
        direction: Direction,
    ) -> Result<Vec<BpfFilter>, NetlinkError> {
        let query = header(index, TcHandle::UNSPEC, direction.parent());
        let answer = self.dump(
            &format!("list the filters of link {index}"),
            RouteNetlinkMessage::GetTrafficFilter(query),
        );
        match answer {
            Ok(answer) => Ok(answer.into_iter().filter_map(parse).collect()),
            Err(error) if matches!(error.errno(), Some(errno::EINVAL | errno::ENOENT)) => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}

impl Direction {
    fn parent(self) -> TcHandle {
        let minor = match self {
            Self::Ingress => TcHandle::MIN_INGRESS,
            Self::Egress => TcHandle::MIN_EGRESS,
        };
        TcHandle { major: TcHandle::CLSACT.major, minor }
    }
}

/// A message about the filter with this number at a priority.
fn filter(index: u32, direction: Direction, priority: u16, handle: u32) -> TcMessage {
    let mut message = header(index, handle.into(), direction.parent());
    message.header.info = info(priority);
    message.attributes = vec![TcAttribute::Kind(BPF.to_owned())];
    message
}

/// The priority in the upper 16 bits, the protocol in network byte order in the lower ones
/// (`TC_H_MAKE(prio << 16, htons(ETH_P_ALL))`).
fn info(priority: u16) -> u32 {
    u32::from(priority) << 16 | u32::from(ETH_P_ALL.to_be())
}

fn parse(message: RouteNetlinkMessage) -> Option<BpfFilter> {
    let RouteNetlinkMessage::NewTrafficFilter(message) = message else {
        return None;
    };
    let (mut is_bpf, mut name, mut program) = (false, None, None);
    for attribute in message.attributes {
        match attribute {
            TcAttribute::Kind(kind) => is_bpf = kind == BPF,
            TcAttribute::Options(options) => {
                for option in options {
                    match option {
                        TcOption::Bpf(TcFilterBpfOption::ProgName(text)) => name = Some(text),
                        TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => program = Some(id),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    // A dump also has an entry without a program for each priority.
    let name = name.filter(|_| is_bpf)?;
    Some(BpfFilter {
        priority: (message.header.info >> 16) as u16,
        handle: message.header.handle.into(),
        name,
        program,
    })
}

const CLSACT: &str = "clsact";
const BPF: &str = "bpf";
/// Every protocol (linux/if_ether.h).
const ETH_P_ALL: u16 = 3;
