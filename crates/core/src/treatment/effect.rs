//! Whether a treatment shows in the record of a run: reading back an option says what the kernel
//! was told, not what it did.

use super::change::{DeviceSetting, RouteSetting};
use super::error::TreatmentError;
use super::list::{Treatment, Treatments};
use super::table::Setting;
use crate::plan::{Direction, End};
use crate::record::{EndReport, FlowRecord, Record, TcpSender};
use crate::value::Value;

impl Treatments {
    /// Holds each treatment whose effect a record shows against that record: segments and path MTU
    /// on the wire, the window that the sender saw, the congestion control in force, the address
    /// that flows came from, the way of sending. The others were read back when they were applied.
    ///
    /// # Errors
    /// [`TreatmentError::NotTaken`] with the first whose effect is not there: the run is none of
    /// this treatment.
    pub fn took(&self, record: &Record) -> Result<(), TreatmentError> {
        for treatment in self.iter() {
            let flows = record.flows.iter();
            let mut faults = flows.filter_map(|flow| fault_of_flow(treatment, flow));
            if let Some(fault) = faults.next().or_else(|| fault_of_end(treatment, record)) {
                return Err(TreatmentError::NotTaken {
                    treatment: treatment.to_string(),
                    found: fault.found,
                    why: fault.why,
                });
            }
        }
        Ok(())
    }
}

struct Fault {
    found: String,
    why: &'static str,
}

fn fault(found: impl ToString, why: &'static str) -> Option<Fault> {
    let found = found.to_string();
    Some(Fault { found, why })
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
        ) if treatment.is_at(sender) && u64::from(tcp.pmtu_bytes) > *mtu => fault(
            format!("pmtu_bytes {}", tcp.pmtu_bytes),
            "the sender's path has a larger MTU",
        ),
        (Setting::Route(RouteSetting::Advmss), Value::Number(mss))
            if treatment.is_at(receiver) && u64::from(tcp.mss_bytes) > *mss =>
        {
            fault(
                format!("mss_bytes {}", tcp.mss_bytes),
                "the sender's segments are larger",
            )
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
            let window = tcp
                .send_window_bytes
                .filter(|window| *window as f64 > most)?;
            fault(
                format!("send_window_bytes {window}"),
                "the kernel's least buffer offers more, or the window is not held",
            )
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
    let mut methods = ends
        .into_iter()
        .flatten()
        .filter_map(|end| end.method.as_deref());
    let other = methods.find(|method| ways.contains(method) != wanted)?;
    fault(other, why)
}

/// TCP options of one segment (RFC 9293).
const MAX_OPTIONS: u64 = 40;
/// The window is steered, and may pass what was asked for while it is.
const MAX_WINDOW: f64 = 1.25;
/// As the engine names them.
const ZERO_COPY: &[&str] = &["vmsplice", "sendfile"];
const DISCARD: &[&str] = &["discard"];
