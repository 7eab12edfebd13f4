//! Checks in the record of a run whether a treatment had its effect: reading an option back shows
//! what the kernel was told, not what it did.

use super::change::{DeviceSetting, RouteSetting, source_of};
use super::error::TreatmentError;
use super::list::{Treatment, Treatments};
use super::table::{Scope, Setting, find};
use crate::plan::{Direction, End, Test, TestOption};
use crate::record::{EndReport, FlowRecord, Record, TcpSender};
use crate::value::Value;

impl Treatments {
    /// Checks each treatment whose effect a record shows: segments and path MTU on the wire, the
    /// window that the sender saw, the congestion control in force, the source address of flows,
    /// the method of sending. The others were read back when they were applied.
    ///
    /// # Errors
    /// [`TreatmentError::NotTaken`] with the first treatment whose effect is missing: the run does
    /// not show this treatment.
    pub fn took(&self, record: &Record) -> Result<(), TreatmentError> {
        for treatment in self.iter() {
            let flows = record.flows.iter();
            let mut faults = flows.filter_map(|flow| fault_of_flow(treatment, flow));
            let fault = faults.next().or_else(|| fault_of_end(treatment, record));
            if let Some((found, why)) = fault {
                let treatment = treatment.to_string();
                return Err(TreatmentError::NotTaken { treatment, found, why });
            }
        }
        Ok(())
    }
}

/// What a record shows instead of a treatment's effect, and the likely reason.
type Fault = (String, &'static str);

fn fault(found: impl ToString, why: &'static str) -> Option<Fault> {
    Some((found.to_string(), why))
}

fn fault_of_flow(treatment: &Treatment, flow: &FlowRecord) -> Option<Fault> {
    let (sender, receiver) = match flow.direction {
        Direction::Down => (End::Server, End::Client),
        Direction::Up | Direction::Both => (End::Client, End::Server),
    };
    // No other treatment has an address.
    if let Value::Address(address) = treatment.value() {
        let local: Option<std::net::SocketAddr> = flow.local.parse().ok();
        let other = local.filter(|local| local.ip() != *address)?;
        return fault(other, "the flow came from another address");
    }
    let tcp = flow.tcp.as_ref()?.sender()?;
    match (treatment.entry().setting, treatment.value()) {
        (Setting::Socket(option), value) => fault_of_socket(option.name, value, tcp),
        (
            Setting::Route(RouteSetting::Mtu) | Setting::Device(DeviceSetting::Mtu),
            Value::Number(mtu),
        ) if treatment.is_at(sender) && u64::from(tcp.pmtu_bytes) > *mtu => {
            fault(format!("pmtu_bytes {}", tcp.pmtu_bytes), "the sender's path has a larger MTU")
        }
        (Setting::Route(RouteSetting::Advmss), Value::Number(mss))
            if treatment.is_at(receiver) && u64::from(tcp.mss_bytes) > *mss =>
        {
            fault(format!("mss_bytes {}", tcp.mss_bytes), "the sender's segments are larger")
        }
        _ => None,
    }
}

fn fault_of_socket(name: &str, value: &Value, tcp: &TcpSender) -> Option<Fault> {
    match (name, value) {
        ("mss", Value::Number(asked)) => {
            let mss = u64::from(tcp.mss_bytes);
            let found = format!("mss_bytes {mss}");
            if mss > *asked {
                fault(found, "the segments are larger")
            } else if mss + MAX_OPTIONS < *asked {
                fault(found, "the path or the peer takes no larger segments")
            } else {
                None
            }
        }
        ("congestion", Value::Name(asked)) => {
            let other = tcp.congestion.as_ref().filter(|name| *name != asked)?;
            fault(other, "another congestion control was in force")
        }
        ("receive_window", Value::Number(asked)) => {
            let most = *asked as f64 * MAX_WINDOW;
            let window = tcp.send_window_bytes?;
            let why = "the kernel's least buffer offers more, or the window is not held";
            fault(format!("send_window_bytes {window}"), why).filter(|_| window as f64 > most)
        }
        _ => None,
    }
}

fn fault_of_end(treatment: &Treatment, record: &Record) -> Option<Fault> {
    let wanted = *treatment.value() == Value::Switch(true);
    let legs = record.legs.iter();
    let (ends, ways, why): (Vec<&Option<EndReport>>, &[&str], _) = match treatment.entry().name {
        "zerocopy" => {
            let ends = legs.map(|leg| &leg.sender);
            (ends.collect(), ZERO_COPY, "the sender took another way")
        }
        "discard" => {
            let ends = legs.map(|leg| &leg.receiver);
            (ends.collect(), DISCARD, "the receiver took another way")
        }
        _ => return None,
    };
    let ends = ends.into_iter().flatten();
    let mut methods = ends.filter_map(|end| end.method.as_deref());
    let other = methods.find(|method| ways.contains(method) != wanted)?;
    fault(other, why)
}

/// Maximum length of a segment's TCP options, bytes (RFC 9293).
const MAX_OPTIONS: u64 = 40;
/// The window is adjusted continuously and may exceed the asked value by this factor meanwhile.
const MAX_WINDOW: f64 = 1.25;
/// The engine's names of methods without a copy.
const ZERO_COPY: &[&str] = &["vmsplice", "sendfile"];
const DISCARD: &[&str] = &["discard"];

impl Treatments {
    /// Sets the socket options of a test. Changes of hosts are in [`Treatments::host_changes`].
    ///
    /// # Errors
    /// The test has the option already, its traffic has no such option, or the changed test is
    /// outside its limits. The test may have been changed in part.
    pub fn apply_to(&self, test: &mut Test) -> Result<(), TreatmentError> {
        for treatment in self.iter() {
            let entry = treatment.entry();
            if let Setting::Socket(option) = entry.setting {
                set(option, entry.name, treatment.value(), test)?;
            }
        }
        self.name_route_source(test)?;
        self.check_routes(test)?;
        test.check()?;
        Ok(())
    }

    /// A change of the route to the peer. The endpoint knows the address of the control connection,
    /// and changes the route to that address.
    fn check_routes(&self, test: &Test) -> Result<(), TreatmentError> {
        let route = self.iter().find(|treatment| {
            treatment.entry().scope == Scope::Route && treatment.is_at(End::Server)
        });
        match (test.options.source, route) {
            (Some(_), Some(route)) => Err(TreatmentError::unfit(
                route.entry().name,
                "the endpoint's route is that to the address of the control connection, and the \
                 data connections come from another one (source, route_source)",
            )),
            _ => Ok(()),
        }
    }

    /// An endpoint accepts data connections only from the address that the test names. So a source
    /// address that a route prefers is named in the test, and sockets are bound to it, too.
    fn name_route_source(&self, test: &mut Test) -> Result<(), TreatmentError> {
        let changes = self.host_changes(End::Client);
        let Some(address) = changes.iter().find_map(source_of) else {
            return Ok(());
        };
        match find("source")?.setting {
            Setting::Socket(source) => set(source, "route_source", &Value::Address(address), test),
            _ => Ok(()),
        }
    }
}

/// # Errors
/// The traffic does not have the option, or the test has it already.
fn set(
    option: &TestOption,
    name: &'static str,
    value: &Value,
    test: &mut Test,
) -> Result<(), TreatmentError> {
    if let Some(why) = option.why_unfit(test) {
        return Err(TreatmentError::unfit(name, &why));
    }
    if option.value_in(test) != option.default_in(test) {
        return Err(TreatmentError::Given { name });
    }
    option.put(test, value);
    Ok(())
}
