//! Queueing disciplines of a link.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::{Netlink, NetlinkError};

/// A queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Qdisc {
    /// `fq`, `fq_codel`, `mq`, `noqueue` and so on.
    pub kind: String,
    /// Major and minor number, as `tc` prints them: `8001:0`.
    pub handle: (u16, u16),
    /// It is the link's root, and not the child of another or an ingress hook.
    pub root: bool,
}

impl Netlink {
    /// The queueing disciplines of the link called `name`, the root first.
    ///
    /// # Errors
    /// Refused with `ENODEV` if there is no such link.
    pub fn qdiscs(&mut self, name: &str) -> Result<Vec<Qdisc>, NetlinkError> {
        let index = self.link(name)?.index;
        let query = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answer = self.dump(
            &format!("list the queueing disciplines of link {name}"),
            query,
        )?;
        let mut qdiscs: Vec<Qdisc> = answer
            .into_iter()
            .filter_map(|message| parse(message, index))
            .collect();
        qdiscs.sort_by_key(|qdisc| !qdisc.root);
        Ok(qdiscs)
    }
}

/// The kernel lists those of all links, whatever is asked.
fn parse(message: RouteNetlinkMessage, index: u32) -> Option<Qdisc> {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = message else {
        return None;
    };
    if u32::try_from(message.header.index) != Ok(index) {
        return None;
    }
    let kind = message
        .attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind),
            _ => None,
        })?;
    let TcHandle { major, minor } = message.header.handle;
    Some(Qdisc {
        kind,
        handle: (major, minor),
        root: message.header.parent == TcHandle::ROOT,
    })
}
