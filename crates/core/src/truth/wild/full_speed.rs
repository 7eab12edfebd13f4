//! Nothing set, as fast as the hosts go: the CPUs are the limit. On one machine the sender's CPU is
//! as right an answer as the receiver's.

use super::super::scenario::CpuShare;
use super::{Draft, usual};
use crate::ceilings::Cause;
use crate::units::Dice;

/// Nothing limits but the machine.
pub(super) fn full_speed(random: &mut Dice) -> Draft {
    let draft = draft(random);
    if random.chance(0.25) {
        draft.routed()
    } else {
        draft
    }
}

pub(super) fn full_speed_loopback(random: &mut Dice) -> Draft {
    let mut made = draft(random);
    made.around.is_loopback = true;
    made
}

/// Sender, receiver and soft interrupts on one CPU.
pub(super) fn full_speed_one_cpu(random: &mut Dice) -> Draft {
    let mut made = draft(random);
    let cpu = random.choose(&[0, 1]);
    made.conditions.sender = CpuShare::Own { cpu };
    made.conditions.receiver = CpuShare::Own { cpu };
    made
}

/// Other work takes half or more of a CPU: of the sender's, of the receiver's or of both.
pub(super) fn full_speed_busy_host(random: &mut Dice) -> Draft {
    let mut made = draft(random);
    let mut shared = |cpu| CpuShare::Shared {
        cpu,
        neighbours: random.choose(&[1, 2]),
    };
    let (first, second) = (shared(0), shared(1));
    let conditions = &mut made.conditions;
    match random.below(3) {
        0 => (conditions.sender, conditions.receiver) = (first, CpuShare::Own { cpu: 1 }),
        1 => (conditions.sender, conditions.receiver) = (CpuShare::Own { cpu: 0 }, second),
        _ => (conditions.sender, conditions.receiver) = (first, second),
    }
    made
}

fn draft(random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 4, 16]);
    let mut made = Draft::new(conditions, Cause::CpuSend, random);
    made.accepted = vec![Cause::CpuReceive, Cause::CpuHost];
    made.is_control_free = true;
    made.seconds = Some((0.5, 3.0));
    made
}
