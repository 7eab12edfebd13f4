//! All integration tests in one program: each program of its own would be linked with everything.

mod frame_support;
mod link_codel;
mod link_frame;
mod link_laws;
mod link_router;
mod link_spec;
mod link_support;
mod link_tables;
mod link_trace;
