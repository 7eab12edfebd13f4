//! What TCP remembers of a host and uses for the next connection to it.

use std::net::IpAddr;

use linerate_core::record::{Caveat, CaveatKind};
use linerate_sys::netlink::{NetlinkError, TcpMetrics};

/// Makes the TCP of this network namespace forget what it has learnt of a host: the next connection
/// would begin with the window and the round-trip time of the last.
pub(crate) fn forget(host: IpAddr) -> Result<(), NetlinkError> {
    TcpMetrics::open()?.forget(host.to_canonical())
}

/// That it could not, on the host of these words.
pub(crate) fn remembers(whose: &str, error: &NetlinkError) -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        format!(
            "{whose}{error}: a run may start with the round-trip time and window of the one before \
             it; the random order \
             of a comparison keeps that from favouring either side"
        ),
        "run it as root, or with CAP_NET_ADMIN",
    )
}

/// That an endpoint which applies no treatments keeps what it has learnt.
pub(crate) fn endpoint_remembers() -> Caveat {
    Caveat::new(
        CaveatKind::NotReadable,
        "the endpoint, which sends, applies no treatments and does not forget what its TCP has \
         learnt of this host: a run may \
         start with the round-trip time and window of the one before it; the random order of a \
         comparison keeps that from \
         favouring either side",
        "start it by `linerate serve --allow-treatments` with a key, or set \
         net.ipv4.tcp_no_metrics_save=1 on its host",
    )
}
