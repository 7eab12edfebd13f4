//! All tests of this kind in one program: each program of its own would be linked with everything.
//! Apart stay `capacity`, which needs a process with one thread, and `faults`, `iperf3` and
//! `netperf`, which count the process's threads, descriptors or memory.

mod engine;
mod qos_program;
