//! All integration tests in one program: each program of its own would be linked with everything.

mod aai_ttcp;
mod analyze_reports;
mod arrows;
mod bsd_1981;
mod captures;
#[path = "../../stats/tests/compare_support/mod.rs"]
mod compare_support;
mod corpus;
mod host_table;
mod lab_file;
mod lab_support;
mod profile_stacks;
mod proof_error_rates;
mod proof_support;
mod reports;
mod service_demand;
mod treatment_table;
