//! One end's half of a test: the workers that move the data, the sampler that decides when the
//! measured time begins and ends, and the evidence that both leave.

pub(crate) mod crr;
pub(crate) mod exchange;
pub(crate) mod flow;
pub(crate) mod half;
pub(crate) mod meter;
pub(crate) mod options;
pub(crate) mod outcome;
mod page_aligned;
pub(crate) mod pause;
pub(crate) mod sampler;
pub(crate) mod source;
mod stream;
pub(crate) mod tcp_readings;
mod transfer;
pub(crate) mod udp;
