//! Where the CPU time of a transfer goes, layer by layer, at each end.
//!
//! An end takes samples of what its CPUs do ([`EndProfile`]); each is a call chain of kernel
//! functions. The chains that are alike are folded into one [`FoldedStack`] with a count, as
//! everything that is asked of them is a sum. Which layer a chain belongs to is a table
//! ([`Layer`]); what comes out for both ends, with the record of the run, is one
//! [`ProfileDocument`].
//!
//! | module | what is in it |
//! |---|---|
//! | `sample` | what a client asks of an end's profiler; what the end took: folded stacks, rates |
//! | `count` | the layers; samples of an end → its layers, their costs and intervals |
//! | [`attribution`] | from a call chain to its layer, and to the end whose work it is |
//! | `document` | the document, built from a record and two profiles |
//! | [`projection`] | what a change would bring, computed from what was measured |

pub mod attribution;
mod count;
mod document;
pub mod projection;
mod sample;

pub use count::{End, Layer, count};
pub use document::{
    DiskBeside, EndLayers, FunctionCost, LayerCost, PROFILE_SCHEMA, ProfileDocument,
};
pub use sample::{
    CpuSamples, EndProfile, FoldedStack, How, MAX_FRAMES, MAX_FUNCTION, MAX_HZ, MAX_STACKS, MIN_HZ,
    Overhead, ProfileRequest, SampleClock, TaskClass, USER_FRAME,
};
