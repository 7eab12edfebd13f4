//! `linerate qos cost`: what a policy costs, as the white paper on HP-UX IPQoS measured it in 2005,
//! and its future tests.
//!
//! The same transfer is made without a policy, with a program that does nothing (*pass-through*),
//! and with a policy, one right after the other and in random order, again and again: each cell of
//! a [`Plan`] is an experiment ([`linerate_core::experiment`]) with the treatments as its factor.
//! Of each such block the three runs are compared with each other ([`linerate_core::compare`]), so
//! that what else the machine does falls on all three alike. What comes out ([`QosCost`]) has the
//! paper's figures (throughput, CPU, service demand), the cost of a packet by the paper's own rule
//! ([`paper`]), and beside it what the program takes by itself on packets of that kind.
//!
//! | module | what is in it |
//! |---|---|
//! | `plan` | tests, cells, and the experiment that each cell is |
//! | `policies` | the policies of the tests: the paper's simple filter, long ones, ones that match nothing |
//! | `paper` | the paper's rules: packets per second of a link, cost per packet from service demand |
//! | `book` | every run, and what they amount to |
//! | `document` | what is printed |

mod book;
mod document;
pub mod paper;
mod plan;
pub mod policies;

pub use book::{Book, METRICS};
pub use document::{
    COST_SCHEMA, CostComparison, CostFigure, CostPolicy, CostRow, CostRun, DirectCost, LinkRates,
    PacketCost, QosCost, TREATMENTS, Treatment,
};
pub use plan::{Cell, Choice, LINKS, Plan, PlanFault, TESTS, Test};
