//! Bytes that wait in the queueing discipline of the device by which a sender reaches its peer.

use linerate_sys::netlink::Netlink;

use super::shared::FlowState;

/// Reads the device's root queueing discipline.
pub(crate) struct BacklogMeter {
    netlink: Netlink,
    index: u32,
    readings: Vec<u64>,
}

impl BacklogMeter {
    /// The meter for the device by which the peer of these flows is reached, if this end sends and
    /// the device has a queue.
    pub(crate) fn towards_peer_of(flows: &[FlowState]) -> Option<Self> {
        let mut sending = flows.iter().filter(|flow| flow.sends);
        let peer = sending.find_map(|flow| flow.socket.as_ref()?.addresses().1)?;
        let mut netlink = Netlink::open().ok()?;
        let index = netlink.route_to(peer.ip().to_canonical()).ok()?.link?;
        let qdisc = netlink.link_by_index(index).ok()?.qdisc?;
        (qdisc != "noqueue").then(|| Self {
            netlink,
            index,
            readings: Vec::new(),
        })
    }

    pub(crate) fn look(&mut self) {
        let waiting = self.netlink.root_backlog(self.index);
        self.readings.extend(waiting.ok().flatten().map(u64::from));
    }

    /// Mean of all readings, bytes; `None` without a reading.
    pub(crate) fn mean(&self) -> Option<u64> {
        let sum: u64 = self.readings.iter().sum();
        sum.checked_div(self.readings.len() as u64)
    }
}
