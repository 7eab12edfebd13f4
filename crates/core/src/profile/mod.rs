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
//! | `sample` | what a client asks of an end's profiler, with its limits; `sample` | what an end took: folded stacks, counts by CPU, how, at what cost; `sample` | how much time a sample of cycles stands for |
//! | `count` | the layers; `count` | samples of an end to its layers, their costs and intervals |
//! | [`attribution`] | from a call chain to its layer, and to the end whose work it is |
//! | `document` | a record and two profiles make a document; `document` | the document |
//! | [`projection`] | what a change would bring, computed from what was measured |

pub mod attribution;
mod count;
mod document;
pub mod projection;
mod sample;

pub use count::Layer;
pub use count::{End, count};
pub use document::{
    DiskBeside, EndLayers, FunctionCost, LayerCost, PROFILE_SCHEMA, ProfileDocument,
};
pub use sample::{
    CpuSamples, EndProfile, FoldedStack, How, MAX_FRAMES, MAX_FUNCTION, MAX_STACKS, Overhead,
    SampleClock, TaskClass, USER_FRAME,
};
pub use sample::{MAX_HZ, MIN_HZ, ProfileRequest};
