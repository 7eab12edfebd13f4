//! All integration tests in one program: each program of its own would be linked with everything.

mod trace_laws;
mod trace_mpeix;
mod trace_mtu;
mod trace_multipath;
mod trace_quote;
mod trace_support;
mod trace_timing;
mod trace_watch;
