//! Reservations, limits and priorities as classes of HTB.
//!
//! The root class has the rate of the link. Below it, each policy that reserves, limits or has a
//! priority has a class, which is below its parent's if the policy is nested. Packets that no
//! policy takes go to the default class. Rate that nobody reserves is shared equally by the default
//! class and the policies without a reservation: a class with almost no guaranteed rate would
//! starve beside a greedy one. Rate that nobody uses is lent to other classes, those with the
//! lowest priority number first, up to their limits. Reservations never add up to more than the
//! link: HTB would send more than it carries, and the queue would move to where no policy orders
//! it.

use linerate_core::units::BitRate;

use crate::policy::{Adapter, Policy, PolicyFile, Share};
use crate::rules::Slot;

/// The classes of one adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassPlan {
    /// Rate of the link.
    pub rate: BitRate,
    /// The classes: the root's, then one for each policy that has one, then the default.
    pub classes: Vec<Class>,
    /// The class of each policy of the file, `major << 16 | minor`; `None` without a class.
    pub of_policy: Vec<Option<u32>>,
    /// The class of packets that no policy takes.
    pub default: u32,
}

/// One class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// `major << 16 | minor`.
    pub id: u32,
    /// The class above it; `None` for the root's.
    pub parent: Option<u32>,
    /// Guaranteed rate, bits per second.
    pub rate: BitRate,
    /// Maximum rate.
    pub ceil: BitRate,
    /// Order in which unused rate is offered: 0 (first) to 7.
    pub priority: u8,
    /// Whether its policy reserves the rate.
    pub reserves: bool,
}

/// Why there are no classes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClassError {
    /// Nobody knows what the link carries.
    #[error(
        "adapter `{adapter}` needs `rate`: its driver tells no speed, and a policy of it reserves \
         or limits"
    )]
    NoRate {
        /// Its name.
        adapter: String,
    },
    /// More is reserved than there is.
    #[error(
        "adapter `{adapter}` carries {rate}, but its policies reserve {reserved}, and {default} \
         must be left for packets of no policy"
    )]
    Overbooked {
        /// Its name.
        adapter: String,
        /// What the link carries.
        rate: BitRate,
        /// The sum, with the least share of policies that limit without reserving.
        reserved: BitRate,
        /// See [`least_default`].
        default: BitRate,
    },
    /// The shares of a policy are impossible.
    #[error("line {line}: {problem}")]
    Policy {
        /// Line of the policy's definition.
        line: usize,
        /// Its name.
        policy: String,
        /// Problem, in words that begin with the policy.
        problem: String,
    },
    /// Too many policies were known on this adapter.
    #[error("policy `{policy}` has no number left for a class")]
    NoNumber {
        /// Its name.
        policy: String,
    },
}

impl ClassError {
    /// `problem` follows the policy's name.
    fn of(policy: &Policy, problem: &str) -> Self {
        Self::Policy {
            line: policy.place.line,
            policy: policy.name.clone(),
            problem: format!("policy `{}`{problem}", policy.name),
        }
    }

    /// The policy that is at fault by itself, if one is.
    pub fn policy(&self) -> Option<&str> {
        match self {
            Self::Policy { policy, .. } | Self::NoNumber { policy } => Some(policy),
            Self::NoRate { .. } | Self::Overbooked { .. } => None,
        }
    }
}

/// Major number of the queueing discipline's handle and of its classes: `4c51:` in `tc`, LQ in
/// ASCII. It identifies what linerate has made.
pub const MAJOR: u16 = 0x4c51;

/// Below this rate, a frame of 1,500 bytes takes more than a second and a half.
pub const MIN_RATE: BitRate = BitRate(8_000);

/// Minimum rate of the default class: 80 kbit/s, as HP-UX IPQoS kept for its default flow, or 1 %
/// of slower links.
pub fn least_default(rate: BitRate) -> BitRate {
    BitRate((rate.0 / 100).clamp(MIN_RATE.0, 80_000))
}

/// Maximum bytes of an offloaded frame, so that none delays an important packet: what the link
/// carries in a millisecond, but at least a frame of `mtu` bytes with its headers; `None` if all
/// frames are short enough.
pub fn largest_offload(rate: BitRate, mtu: u32) -> Option<u32> {
    let in_time = rate.bytes_per_second() / 1000;
    let least = u64::from(mtu) + FRAME_HEADERS;
    let bytes = u32::try_from(in_time.max(least)).ok();
    bytes.filter(|bytes| *bytes < MAX_FRAME)
}

impl ClassPlan {
    /// The classes of `adapter`, whose driver reports `speed`; `None` if no policy of it needs one.
    /// Their numbers come from the `slots` of the file's policies, and so stay the same when the
    /// file changes.
    ///
    /// # Errors
    /// [`ClassError`].
    pub fn new(
        file: &PolicyFile,
        adapter: &Adapter,
        slots: &[Slot],
        speed: Option<BitRate>,
    ) -> Result<Option<Self>, ClassError> {
        let policies = || adapter.policies.iter().map(|index| &file.policies[*index]);
        if !policies().any(Policy::has_class) {
            return Ok(None);
        }
        let rate = adapter
            .rate
            .or(speed)
            .ok_or_else(|| ClassError::NoRate { adapter: adapter.name.clone() })?;
        let root =
            Class { id: id(ROOT), parent: None, rate, ceil: rate, priority: 0, reserves: false };
        let mut plan = Self {
            rate,
            classes: vec![root.clone()],
            of_policy: vec![None; file.policies.len()],
            default: id(DEFAULT),
        };
        let left = plan.put_inside(file, adapter, slots, None, &root)?;
        plan.classes.push(Class {
            id: id(DEFAULT),
            parent: Some(id(ROOT)),
            rate: left,
            ceil: rate,
            priority: LAST,
            reserves: false,
        });
        Ok(Some(plan))
    }

    /// Adds the classes of the policies inside `parent`, whose class is `above`, each before those
    /// inside it. Returns what is left of that class's rate.
    fn put_inside(
        &mut self,
        file: &PolicyFile,
        adapter: &Adapter,
        slots: &[Slot],
        parent: Option<usize>,
        above: &Class,
    ) -> Result<BitRate, ClassError> {
        let is_inside = |policy: &Policy| policy.parent == parent && policy.has_class();
        let mut inside: Vec<usize> = adapter.policies.clone();
        inside.retain(|index| is_inside(&file.policies[*index]));
        let around = parent.map(|parent| &file.policies[parent]);
        let mut classes = Vec::with_capacity(inside.len());
        for index in &inside {
            let (policy, slot) = (&file.policies[*index], slots[*index]);
            classes.push(class_of(policy, slot, &adapter.name, (around, above))?);
        }
        let rate = above.rate;
        let default = around.map_or(Some(least_default(rate)), |_| None);
        let too_much = |reserved| match around {
            None => ClassError::Overbooked {
                adapter: adapter.name.clone(),
                rate,
                reserved,
                default: default.unwrap_or(BitRate(0)),
            },
            Some(around) => {
                let on = &adapter.name;
                let problem = format!(
                    " is guaranteed {rate} on adapter `{on}`, but those inside it need {reserved}"
                );
                ClassError::of(around, &problem)
            }
        };
        let left = share_out(&mut classes, rate, default).map_err(too_much)?;
        for (index, class) in inside.into_iter().zip(classes) {
            self.of_policy[index] = Some(class.id);
            self.classes.push(class.clone());
            self.put_inside(file, adapter, slots, Some(index), &class)?;
        }
        Ok(left)
    }
}

/// Distributes the rate that is left among the classes without a reservation, which have
/// [`MIN_RATE`] so far; the default class, if it is among them, gets the rest. The error is the sum
/// of what is reserved, if that is too much.
fn share_out(
    classes: &mut [Class],
    rate: BitRate,
    default: Option<BitRate>,
) -> Result<BitRate, BitRate> {
    let others = u64::from(default.is_some());
    let default = default.unwrap_or(BitRate(0));
    let reserved = (classes.iter()).fold(0_u64, |sum, class| sum.saturating_add(class.rate.0));
    let mut spare =
        rate.0.checked_sub(reserved.saturating_add(default.0)).ok_or(BitRate(reserved))?;
    let without = classes.iter().filter(|class| !class.reserves).count() as u64;
    let even = (spare + default.0 + without * MIN_RATE.0) / (without + others).max(1);
    let part = even.min(MIN_RATE.0 + spare / without.max(1));
    for class in classes.iter_mut().filter(|class| !class.reserves) {
        let more = part.min(class.ceil.0).saturating_sub(class.rate.0);
        class.rate.0 += more;
        spare -= more;
    }
    Ok(BitRate(spare + default.0))
}

impl ClassPlan {
    /// Changes the number of a policy's class.
    pub fn renumber(&mut self, policy: usize, id: u32) {
        let old = self.of_policy[policy].replace(id);
        for class in &mut self.classes {
            if Some(class.id) == old {
                class.id = id;
            }
            if class.parent == old {
                class.parent = Some(id);
            }
        }
    }
}

impl Share {
    /// The share as a rate on a link of `rate`, rounded down.
    pub fn of(self, rate: BitRate) -> BitRate {
        match self {
            Self::Rate(share) => share,
            Self::Percent(percent) => BitRate((rate.as_f64() * percent / 100.0) as u64),
        }
    }
}

fn class_of(
    policy: &Policy,
    slot: Slot,
    adapter: &str,
    (around, above): (Option<&Policy>, &Class),
) -> Result<Class, ClassError> {
    let wrong = |problem: String| Err(ClassError::of(policy, &problem));
    let ceil = above.ceil;
    let reserve = policy.reserve.map(|share| share.of(above.rate));
    let limit = policy.limit.map(|share| share.of(above.ceil));
    if let (Some(around), Some(limit)) = (around, limit.filter(|limit| *limit > above.ceil)) {
        return wrong(format!(
            " limits to {limit} on adapter `{adapter}`, but it is inside `{}`, which never \
             exceeds {ceil}",
            around.name
        ));
    }
    let slowest = reserve.iter().chain(&limit).min();
    if let Some(share) = slowest.filter(|share| **share < MIN_RATE) {
        return wrong(format!(
            ": {share} on adapter `{adapter}` is below {MIN_RATE}, the least that a class can keep"
        ));
    }
    let reserves = reserve.is_some();
    let reserve = reserve.unwrap_or(MIN_RATE);
    let limit = limit.map_or(above.ceil, |limit| limit.min(above.ceil.max(reserve)));
    if limit < reserve {
        return wrong(format!(
            " limits to {limit} what it reserves {reserve} for, on adapter `{adapter}` with {ceil}"
        ));
    }
    let next = u16::try_from(slot.0).ok().and_then(|slot| slot.checked_add(FIRST));
    let number = next
        .filter(|number| number & OTHER_NUMBER == 0)
        .ok_or_else(|| ClassError::NoNumber { policy: policy.name.clone() })?;
    Ok(Class {
        id: id(number),
        parent: Some(above.id),
        rate: reserve,
        ceil: limit,
        priority: policy.priority.unwrap_or(LAST),
        reserves,
    })
}

fn id(minor: u16) -> u32 {
    u32::from(MAJOR) << 16 | u32::from(minor)
}

/// Each class has two possible numbers, which differ in this bit. A class that must be made anew
/// gets the other one, and packets go to it from one step to the next.
pub const OTHER_NUMBER: u16 = 0x8000;

const ROOT: u16 = 1;
const DEFAULT: u16 = 2;
/// Minor number of the policy in slot 0.
const FIRST: u16 = 0x10;
/// Priority of the default class and of policies that name none: they share what is left equally.
const LAST: u8 = 7;
/// Ethernet, two VLAN tags, and what the kernel allows for TCP's headers (`MAX_TCP_HEADER`,
/// include/net/tcp.h).
const FRAME_HEADERS: u64 = 22 + 320;
/// Largest packet of IPv4, and the default of devices (`GSO_LEGACY_MAX_SIZE`).
const MAX_FRAME: u32 = 65_536;

#[cfg(test)]
mod tests;
