//! What the reports of hand-built documents look like.

mod analysis;
mod answers;
mod browser;
mod capacity;
mod connections;
mod csv;
mod documents;
mod experiment;
mod host;
mod html;
mod load;
mod matrix;
mod profile;
mod projection;
mod qos;
mod samples;
mod schemas;
mod stored;
mod text;
mod throughput;
mod trace;
