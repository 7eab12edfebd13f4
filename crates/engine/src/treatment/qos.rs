//! The DiffServ policy of the device that leads to the peer.

use std::net::IpAddr;

use linerate_core::treatment::QosPolicy;
use linerate_core::units::checksum::fnv1a;
use linerate_qos::document::QosState;
use serde::{Deserialize, Serialize};

use super::device::{by_index, open_netlink, towards};
use super::error::TreatError;
use super::step::{Reversible, Undone};
use crate::qos::{self, Mode, QosOptions, Standing};

/// A policy of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QosStep {
    pub(super) index: u32,
    device: String,
    /// As the treatment is written.
    name: String,
    /// What stands there then, by which it is known to be ours.
    set: Mark,
    was: Option<Standing>,
    /// A journal has what is needed to undo it, and no policy that is thrown away.
    #[serde(skip)]
    policy: Option<QosPolicy>,
}

/// What tells one policy from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    /// Nothing.
    Nothing,
    /// A program without rules.
    Passthrough,
    /// A policy whose text has this length and FNV-1a hash.
    Text(usize, u64),
    /// Something else.
    Other,
}

impl QosStep {
    pub(super) fn prepare(policy: QosPolicy, peer: IpAddr) -> Result<Self, TreatError> {
        let device = towards(&mut open_netlink()?, peer)?;
        let set = match &policy {
            QosPolicy::Off => Mark::Nothing,
            QosPolicy::Passthrough => Mark::Passthrough,
            QosPolicy::File { text, .. } => Mark::of_text(text),
        };
        let name = format!("qos={policy}");
        if device.loopback && policy != QosPolicy::Off {
            let why = format!("{peer} is this host itself, and loopback serves all its programs");
            return Err(TreatError::unfit(name, why));
        }
        // Without the privilege to have a policy there is none of linerate's to take away.
        let was = match (qos::standing(&device.name), &policy) {
            (Ok(was), _) => was,
            (Err(_), QosPolicy::Off) => None,
            (Err(error), _) => return Err(error.into()),
        };
        Ok(Self { index: device.index, device: device.name, name, set, was, policy: Some(policy) })
    }
}

impl Reversible for QosStep {
    fn changes(&self) -> bool {
        self.set != Mark::Nothing || self.was.is_some()
    }

    fn set(&self) -> Result<(), TreatError> {
        let device = Some(self.device.as_str());
        match &self.policy {
            Some(QosPolicy::Off) => qos::put_back(&self.device, None)?,
            Some(QosPolicy::Passthrough) => drop(qos::passthrough(device)?),
            Some(QosPolicy::File { text, .. }) => {
                let options =
                    QosOptions { adapter: Some(self.device.clone()), ..QosOptions::default() };
                drop(qos::apply(text, &options)?);
            }
            // One from a journal is only ever undone.
            None => {}
        }
        Ok(())
    }

    /// What the kernel has, and not what was asked of it.
    fn check(&self) -> Result<String, TreatError> {
        let wanted = match self.set {
            Mark::Nothing => return Ok(format!("{}: no policy", self.device)),
            Mark::Passthrough => QosState::PassingThrough,
            Mark::Text(..) | Mark::Other => QosState::Filtering,
        };
        let document = qos::status(Some(&self.device))?;
        let adapter = document.adapters.first();
        let found = adapter.map(|adapter| adapter.state);
        if found != Some(wanted) {
            let words = match found {
                Some(QosState::Filtering) => "another policy",
                Some(QosState::PassingThrough) => "a program without rules",
                Some(QosState::Disabled | QosState::Failed) | None => "no program",
            };
            let (what, why) = (self.name.clone(), "somebody else changes the policy");
            return Err(TreatError::not_taken(what, words.to_owned(), why));
        }
        let attached =
            adapter.and_then(|adapter| adapter.attached.as_deref()).unwrap_or("no program");
        let policies = adapter.into_iter().flat_map(|adapter| &adapter.policies);
        let classes = policies.filter(|policy| policy.class.is_some()).count();
        let words = match (wanted, classes) {
            (QosState::PassingThrough, _) => "a program without rules".to_owned(),
            (_, 0) => format!("{}, no classes", self.name),
            (_, 1) => format!("{}, 1 class", self.name),
            (_, classes) => format!("{}, {classes} classes", self.name),
        };
        Ok(format!("{}: {words}, {attached}", self.device))
    }

    fn undo(&self) -> Result<Undone, TreatError> {
        let Some(link) = by_index(&mut open_netlink()?, self.index)? else {
            return Ok(Undone::Gone);
        };
        let now = qos::standing(&link.name)?;
        if Mark::of(now.as_ref()) != self.set {
            return Ok(Undone::NotOurs);
        }
        qos::put_back(&link.name, self.was.as_ref())?;
        Ok(Undone::Restored)
    }

    fn what(&self) -> String {
        format!("qos of {}", self.device)
    }
}

impl Mark {
    fn of(standing: Option<&Standing>) -> Self {
        match standing {
            None => Self::Nothing,
            Some(standing) if standing.mode == Mode::PassingThrough => Self::Passthrough,
            Some(standing) if standing.mode == Mode::Enabled => Self::of_text(&standing.text),
            Some(_) => Self::Other,
        }
    }

    fn of_text(text: &str) -> Self {
        Self::Text(text.len(), fnv1a(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_told_apart_by_their_text() {
        assert_eq!(Mark::of_text("a"), Mark::Text(1, 0xaf63_dc4c_8601_ec8c));
        assert_ne!(Mark::of_text("dscp = 10"), Mark::of_text("dscp = 11"));
    }
}
