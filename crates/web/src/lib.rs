#![forbid(unsafe_code)]
//! Serves linerate's pages to browsers and Prometheus over HTTP; the feature `nats` adds the
//! message bus of a mesh.
//!
//! All asynchronous code is in this crate, on one thread of its own; measuring uses threads and
//! blocking calls. The crate knows no document format: a function of the caller makes each page on
//! a thread where it may take its time.
//!
//! ```no_run
//! use linerate_web::Answer;
//!
//! let answer = |ask: &linerate_web::Ask| Answer::plain(200, format!("{}\n", ask.path));
//! let address = linerate_web::serve(([127, 0, 0, 1], 9476).into(), answer)?;
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(feature = "nats")]
pub mod nats;
mod room;
mod server;

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

pub use server::serve;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The path, without the query.
    pub path: String,
    /// Whether a form is sent, which may change something; otherwise a page is read.
    pub is_form: bool,
    /// Who asks.
    pub peer: IpAddr,
    /// Host name and port of the server as the browser knows them.
    pub host: String,
    /// The `Authorization` header.
    pub authorization: String,
    /// Whether a browser says that a page of another site asks (Fetch Metadata, W3C). It does not
    /// say so of an address that is neither loopback nor reached by TLS.
    pub is_of_other_site: bool,
    values: Vec<(String, String)>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    status: u16,
    headers: Vec<(HeaderName, String)>,
    body: String,
}

impl Ask {
    fn new(peer: IpAddr, head: &Parts, body: &[u8]) -> Self {
        let is_form = head.method == Method::POST;
        let form = String::from_utf8_lossy(body);
        let query = head.uri.query().unwrap_or_default();
        let values = if is_form { &form } else { query };
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        };
        let text = |name| {
            let value = head.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        Self {
            path: head.uri.path().to_owned(),
            is_form,
            peer,
            host: text(header::HOST),
            authorization: text(header::AUTHORIZATION),
            is_of_other_site: ["cross-site", "same-site"].contains(&&*text(SEC_FETCH_SITE)),
            values: values.split('&').map(pair).collect(),
        }
    }

    /// The first value of that name in the query or the form.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.values.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Decodes `%41` and `+` (application/x-www-form-urlencoded); invalid codes stay as they are.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| str::from_utf8(hex).ok());
        let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], code) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Answer {
    fn new(status: u16, kind: &str, body: impl Into<String>) -> Self {
        Self { status, headers: vec![(header::CONTENT_TYPE, kind.to_owned())], body: body.into() }
    }

    /// A page for Prometheus.
    pub fn metrics(body: String) -> Self {
        Self::new(200, "text/plain; version=0.0.4; charset=utf-8", body)
    }

    /// Plain text with a status.
    pub fn plain(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    /// A page for a browser with a status. It may load nothing from elsewhere, not be framed by
    /// another page, and run no script but this server's.
    pub fn page(status: u16, body: String) -> Self {
        Self::new(status, "text/html; charset=utf-8", body)
            .with(header::CONTENT_SECURITY_POLICY, POLICY)
            .with(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
            .with(header::CACHE_CONTROL, "no-cache")
            .with(header::REFERRER_POLICY, "same-origin")
    }

    /// A script of this server.
    pub fn script(body: &str) -> Self {
        Self::new(200, "text/javascript; charset=utf-8", body)
    }

    /// The request succeeded: continue at that path.
    pub fn go_on_at(path: &str) -> Self {
        Self::plain(303, "").with(header::LOCATION, path)
    }

    /// Requires a name and a password, which a browser asks its user for.
    pub fn who_asks() -> Self {
        let scheme = "Basic realm=\"linerate\", charset=\"UTF-8\"";
        Self::plain(401, "a password is needed\n").with(header::WWW_AUTHENTICATE, scheme)
    }

    /// The request is refused now, and may be sent again after that time.
    pub fn later(status: u16, wait: Duration, why: &str) -> Self {
        let wait = wait.as_secs().to_string();
        Self::plain(status, why).with(header::RETRY_AFTER, &wait)
    }

    fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// Content Security Policy (W3C).
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; \
    connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors \
    'none'";

impl From<Answer> for Response<Full<Bytes>> {
    fn from(answer: Answer) -> Self {
        let mut response = Self::new(answer.body.into());
        let status = StatusCode::from_u16(answer.status);
        *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in answer.headers {
            // A value made from user input that is not valid in a header is left out.
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}
