//! Each row of the kernel's table of causes, the borders between them, and laws on any evidence.

mod any;
mod causes;
mod full_host;
mod predictions;
mod proofs;
mod qos;
mod remedies;
pub(crate) mod scene;
mod segments;
mod udp;
