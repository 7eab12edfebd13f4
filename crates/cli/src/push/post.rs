//! Posts to the user's own servers: to a webhook for alarms, to a receiver of metrics.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use linerate_core::monitor::HttpUrl;
use rustls::crypto::ring;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What posts. It trusts the certificates that this host trusts.
static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    let of_host = rustls_native_certs::load_native_certs().certs;
    let trusted = of_host.iter().map(|one| Certificate::from_der(one).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::from(trusted))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(PATIENCE))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        .proxy(None)
        .user_agent(concat!("linerate/", env!("CARGO_PKG_VERSION")));
    config.build().into()
});

/// Posts `json` and returns the HTTP status of the answer.
///
/// # Errors
/// The server cannot be reached or is not trusted, or does not answer with HTTP.
pub(crate) fn post(to: &HttpUrl, json: &[u8]) -> anyhow::Result<u16> {
    let request = AGENT.post(to.to_string()).header("Content-Type", "application/json");
    Ok(request.send(json)?.status().as_u16())
}
