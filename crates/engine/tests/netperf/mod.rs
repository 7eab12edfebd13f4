//! netperf's and ttcp's clients at an endpoint, on loopback: the requests that stock clients sent
//! once, as bytes, with data phases of the tests' own; clients that vanish; and the programs
//! themselves where they are installed.

mod bench;
mod dialogue;
mod programs;
mod served;
mod ttcp;
mod used;
mod vanishing;
