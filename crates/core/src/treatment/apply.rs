//! Treatments of sockets, put into a test's plan.

use std::net::IpAddr;

use super::change::source_of;
use super::error::TreatmentError;
use super::list::Treatments;
use super::table::{Scope, Setting, SocketSetting};
use crate::plan::{End, Protocol, ReceiveMethod, SendMethod, SocketOptions, Test, Traffic};
use crate::units::{BitRate, ByteCount};
use crate::value::Value;

impl Treatments {
    /// Sets the socket options of a test; what is changed of hosts is [`Treatments::host_changes`].
    ///
    /// # Errors
    /// The test has the option already, its traffic does not have what is treated, or it is outside
    /// its limits then. The test may have been changed in part.
    pub fn apply_to(&self, test: &mut Test) -> Result<(), TreatmentError> {
        for treatment in self.iter() {
            let name = treatment.entry().name;
            if let Setting::Socket(setting) = treatment.entry().setting {
                fits(setting, name, test)?;
                if !set(setting, treatment.value(), test) {
                    return Err(TreatmentError::Given { name });
                }
            }
        }
        self.name_route_source(test)?;
        self.check_routes(test)?;
        test.check()?;
        Ok(())
    }

    /// The endpoint knows the address of the control connection, and changes the route to that one.
    fn check_routes(&self, test: &Test) -> Result<(), TreatmentError> {
        let route = self.iter().find(|treatment| {
            treatment.entry().scope == Scope::Route && treatment.is_at(End::Server)
        });
        match (test.options.source, route) {
            (Some(_), Some(route)) => Err(TreatmentError::Unfit {
                name: route.entry().name,
                why: "the endpoint's route is that to the address of the control connection, and the data connections \
                      come from another one (source, route_source)",
            }),
            _ => Ok(()),
        }
    }

    /// An endpoint takes data connections from the address that the test names: one that the route
    /// prefers is named, and bound to, too.
    fn name_route_source(&self, test: &mut Test) -> Result<(), TreatmentError> {
        let changes = self.host_changes(End::Client);
        let Some(address) = changes.iter().find_map(source_of) else {
            return Ok(());
        };
        let name = "route_source";
        if test.protocol == Protocol::Udp {
            let why = UDP_SOURCE;
            return Err(TreatmentError::Unfit { name, why });
        }
        if put(&mut test.options.source, address) {
            Ok(())
        } else {
            Err(TreatmentError::Given { name })
        }
    }
}

const UDP_SOURCE: &str =
    "an endpoint takes datagrams only from the address that the control connection came from";

/// Whether the traffic has what is treated.
fn fits(setting: SocketSetting, name: &'static str, test: &Test) -> Result<(), TreatmentError> {
    use SocketSetting as S;
    let is_udp = test.protocol == Protocol::Udp;
    let is_stream = matches!(test.traffic, Traffic::Stream(_));
    let why = match setting {
        S::Mss | S::Congestion | S::Nodelay | S::QuickAck if is_udp => {
            "it is an option of TCP sockets"
        }
        S::Pacing if is_udp => "datagrams are paced by --rate",
        S::Source if is_udp => UDP_SOURCE,
        S::ZeroCopy if is_udp || !is_stream => "only a TCP stream can be sent without a copy",
        S::Discard if is_udp || !is_stream => "only a TCP stream can be dropped in the kernel",
        _ => return Ok(()),
    };
    Err(TreatmentError::Unfit { name, why })
}

/// False if the test has it already.
fn set(setting: SocketSetting, value: &Value, test: &mut Test) -> bool {
    use SocketSetting as S;
    let options = &mut test.options;
    match (setting, value) {
        (S::ReceiveWindow, Value::Number(n)) => {
            put(&mut options.receive_window_bytes, ByteCount(*n))
        }
        (S::SendBuffer, Value::Number(n)) => put(&mut options.send_buffer_bytes, ByteCount(*n)),
        (S::Mss, Value::Number(n)) => put(&mut options.mss_bytes, small(*n)),
        (S::Pacing, Value::Number(n)) => put(&mut options.pacing_bps, BitRate(*n)),
        (S::Congestion, Value::Name(name)) => put(&mut options.congestion, name.clone()),
        (S::QuickAck, Value::Switch(on)) => put(&mut options.quickack, *on),
        (S::Dscp, Value::Dscp(dscp)) => put(&mut options.dscp, *dscp),
        (S::BusyPoll, Value::Number(n)) => put(&mut options.busy_poll_us, small(*n)),
        (S::Source, Value::Address(address)) => put::<IpAddr>(&mut options.source, *address),
        (S::Nodelay, Value::Switch(on)) => set_nodelay(options, &test.traffic, *on),
        (S::ZeroCopy, Value::Switch(on)) => set_send_method(&mut test.traffic, *on),
        (S::Discard, Value::Switch(on)) => set_receive_method(&mut test.traffic, *on),
        // The table gives each setting values of its own kind alone.
        _ => true,
    }
}

fn put<T>(option: &mut Option<T>, value: T) -> bool {
    let is_free = option.is_none();
    if is_free {
        *option = Some(value);
    }
    is_free
}

/// rr and crr have it on by themselves, so that there only a stream can have been given it.
fn set_nodelay(options: &mut SocketOptions, traffic: &Traffic, on: bool) -> bool {
    let is_free = !(options.nodelay && matches!(traffic, Traffic::Stream(_)));
    options.nodelay = on || !is_free;
    is_free
}

fn set_send_method(traffic: &mut Traffic, on: bool) -> bool {
    let Traffic::Stream(stream) = traffic else {
        return true;
    };
    let is_free = stream.send == SendMethod::Copy;
    if on {
        stream.send = SendMethod::ZeroCopy;
    }
    is_free
}

fn set_receive_method(traffic: &mut Traffic, on: bool) -> bool {
    let Traffic::Stream(stream) = traffic else {
        return true;
    };
    let is_free = stream.receive == ReceiveMethod::Read;
    if on {
        stream.receive = ReceiveMethod::Discard;
    }
    is_free
}

/// The ranges of the table are those of 32 bits.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
