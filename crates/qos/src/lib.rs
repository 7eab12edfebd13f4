#![forbid(unsafe_code)]
//! DiffServ policies: from the text of a file to rules, and from rules to a program that the kernel
//! runs on each packet.
//!
//! This crate compiles and does not touch: it has no socket, file, thread or clock, makes no system
//! call, and the same text and the same names resolved give the same program, byte for byte. The
//! engine resolves names, loads the program and keeps the classes; the kernel's verifier has the
//! last word.
//!
//! ```text
//! text ─ policy ─▶ PolicyFile ─ rules ─▶ RuleSet ─┬─ interpret ─▶ Decision  (what a packet gets)
//!   TOML, HP-UX's            one adapter's        ├─ explain ───▶ which rule takes a packet, and why
//!                                                 ├─ program ───▶ Program   (eBPF, TCX or clsact)
//!                                                 └─ classes ───▶ ClassPlan (HTB)
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`policy`] | files: filters, policies, adapters; what can be wrong with them |
//! | [`rules`] | the one intermediate form: rules of an adapter in the order they are tested |
//! | [`packet`] | what rules see of a packet |
//! | [`interpret`] | what becomes of a packet, in plain Rust: the definition of the program |
//! | [`explain`] | which rule takes a packet, and why not those before it |
//! | [`warnings`] | what a file says and its author may not mean |
//! | [`classes`] | reservations, limits and priorities as classes of HTB |
//! | [`program`] | the compiler from rules to eBPF |
//! | [`document`] | what `linerate qos --json` prints |

pub mod classes;
pub mod document;
pub mod explain;
pub mod interpret;
pub mod packet;
pub mod policy;
pub mod program;
pub mod rules;
pub mod warnings;
