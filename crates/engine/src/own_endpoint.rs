//! An endpoint in this process, for a check of this host alone and for the lab.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread::{self, JoinHandle};

use data_encoding::HEXLOWER;
use linerate_core::capacity::MAX_HELD;
use linerate_core::load::MAX_MEMBERS;
use linerate_core::plan::{MAX_SECONDS, MAX_STREAMS};
use linerate_core::session::message::Limits;
use linerate_core::wire::Key;
use linerate_sys::netns::Namespace;

use crate::endpoint::{Endpoint, ServeOptions};
use crate::error::MeasureError;
use crate::state_files::{read_file, replace_file};
use crate::stop::Stop;
use crate::target::Target;

/// An endpoint that serves this process's own client until it is dropped.
#[derive(Debug)]
pub(crate) struct OwnEndpoint {
    address: SocketAddr,
    key: Key,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl OwnEndpoint {
    /// Serves at `bind`, in `namespace` or in that of the caller. Its threads have the CPUs of the
    /// calling thread. With a `namespace` it accepts treatments, because everything there belongs
    /// to the lab.
    pub(crate) fn start(bind: IpAddr, namespace: Option<&Namespace>) -> Result<Self, MeasureError> {
        let key = random_key()?;
        let options = options(bind, key.clone(), namespace.is_some());
        let bind = || Endpoint::bind(&options);
        let endpoint = match namespace {
            Some(namespace) => namespace.run(bind).map_err(cannot_start)??,
            None => bind()?,
        };
        let address = endpoint.addresses()[0];
        let stop = Stop::new();
        let asked = stop.clone();
        let serve = move || {
            // The client sees an error of the endpoint as a connection that fails.
            let _ = endpoint.serve(&asked, |_| {});
        };
        let thread = match namespace {
            Some(namespace) => namespace.spawn_thread("endpoint", serve).map_err(cannot_start)?,
            // Entering a namespace needs a privilege, even if it is the present one.
            None => thread::Builder::new()
                .name("endpoint".to_owned())
                .spawn(serve)
                .map_err(MeasureError::host("cannot start the endpoint"))?,
        };
        Ok(Self { address, key, stop, thread: Some(thread) })
    }

    /// The target for a client of this endpoint.
    pub(crate) fn target(&self, name: &str) -> Target {
        Target { key: Some(self.key.clone()), ..Target::at(name, self.address) }
    }
}

impl Drop for OwnEndpoint {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            // The thread ends soon. Its panic has been seen as a failed connection.
            let _ = thread.join();
        }
    }
}

/// A random key: only this process knows it, so that no other program of this host can connect.
///
/// # Errors
/// This host has no random numbers.
pub fn random_key() -> Result<Key, MeasureError> {
    Ok(Key::from_text(&random_hex(32)?).expect("32 bytes are 64 digits"))
}

/// The key in a file, which is made if it is missing; only this user can read it.
///
/// # Errors
/// It cannot be read or made, or has no key.
pub(crate) fn kept_key(file: &Path) -> Result<Key, MeasureError> {
    // A file is put into its place by way of its directory, which a name alone does not have.
    let file = &std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let cannot = |source| MeasureError::Host {
        what: format!("cannot keep a key in {}", file.display()),
        source,
    };
    let read = read_file(file, 1 << 10).map_err(|error| cannot(error.into()))?;
    let text = match read {
        Some(text) => text,
        None => {
            let digits = random_hex(32)?;
            let kept = replace_file(file, digits.as_bytes(), 0o600);
            kept.map_err(|error| cannot(error.into()))?;
            digits
        }
    };
    Key::from_text(&text).map_err(|error| cannot(io::Error::other(error)))
}

/// A seed that no other run is likely to have. It has 32 bits, so that it can be typed and a JSON
/// reader that knows only doubles keeps it.
pub fn fresh_seed() -> u64 {
    // The standard library seeds its hash maps from the operating system's random numbers.
    RandomState::new().hash_one(std::process::id()) >> 32
}

/// Random bytes as hexadecimal digits.
///
/// # Errors
/// This host has no random numbers.
pub fn random_hex(bytes: usize) -> Result<String, MeasureError> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random)
        .map_err(|error| MeasureError::host("no random numbers")(io::Error::other(error)))?;
    Ok(HEXLOWER.encode(&random))
}

fn options(bind: IpAddr, key: Key, allow_treatments: bool) -> ServeOptions {
    ServeOptions {
        bind: Some(bind),
        key: Some(key),
        allow_treatments,
        ..ServeOptions::within(Limits {
            clients: MAX_MEMBERS as u32,
            streams: MAX_STREAMS,
            seconds: MAX_SECONDS,
            rate_bps: None,
            connections: MAX_HELD,
        })
    }
}

fn cannot_start(error: linerate_sys::netns::NamespaceError) -> MeasureError {
    MeasureError::host("cannot start the endpoint")(std::io::Error::other(error))
}
