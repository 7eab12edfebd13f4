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

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The path, without the query.
    pub path: String,
    /// Whether a form is sent, which may change something; otherwise a page is read.
    pub is_form: bool,
    /// Host name and port of the server as the browser knows them.
    pub host: String,
    /// The `Authorization` header.
    pub authorization: String,
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
    fn new(is_form: bool, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Self {
        let form = String::from_utf8_lossy(body);
        let query = uri.query().unwrap_or_default();
        let values = if is_form { &form } else { query };
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        };
        let text = |name| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        Self {
            path: uri.path().to_owned(),
            is_form,
            host: text(header::HOST),
            authorization: text(header::AUTHORIZATION),
            values: values.split('&').map(pair).collect(),
        }
    }

    /// The first value of that name in the query or the form.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.values.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Compares two secrets in a time that does not depend on how much of them agrees.
pub fn is_same_secret(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// Decodes `%41` and `+` (application/x-www-form-urlencoded); invalid codes stay as they are.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|hex| str::from_utf8(hex).ok());
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
        Self {
            status,
            headers: vec![(header::CONTENT_TYPE, kind.to_owned())],
            body: body.into(),
        }
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
        let page = Self::new(status, "text/html; charset=utf-8", body);
        let page = page.with(header::CONTENT_SECURITY_POLICY, POLICY);
        let page = page.with(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        let page = page.with(header::CACHE_CONTROL, "no-cache");
        page.with(header::REFERRER_POLICY, "same-origin")
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

    fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// Content Security Policy (W3C).
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; \
    connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors \
    'none'";

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.body).into_response();
        for (name, value) in self.headers {
            // A value made from user input that is not valid in a header is left out.
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// Serves pages at that address (port 0 takes a free one) until the process ends; returns the
/// address.
///
/// # Errors
/// The address cannot be bound, or no thread can be started.
pub fn serve(
    address: SocketAddr,
    answer: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    serve_forms(address, move |ask| match ask.is_form {
        true => Answer::plain(405, "pages are read\n"),
        false => answer(ask),
    })
}

/// As [`serve`], but also accepts forms ([`Ask::is_form`]).
///
/// # Errors
/// As [`serve`].
pub fn serve_forms(
    address: SocketAddr,
    answer: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .max_blocking_threads(MOST_AT_ONCE)
        .build()?;
    let answer = Arc::new(answer);
    let page = move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
        let answer = answer.clone();
        async move {
            if ![Method::GET, Method::HEAD, Method::POST].contains(&method) {
                return Answer::plain(405, "pages are read, forms are sent\n");
            }
            let ask = Ask::new(method == Method::POST, &uri, &headers, &body);
            let page = spawn_blocking(move || answer(&ask)).await;
            page.unwrap_or_else(|_| Answer::plain(500, "this page cannot be made\n"))
        }
    };
    let pages = Router::new()
        .fallback(page)
        .layer(DefaultBodyLimit::max(MAX_FORM));
    thread::Builder::new().name("web".into()).spawn(move || {
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener)?;
            axum::serve(listener, pages).await
        })
    })?;
    Ok(bound)
}

/// Pages made in parallel.
const MOST_AT_ONCE: usize = 4;
/// Longest form, bytes.
const MAX_FORM: usize = 4096;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn ask(address: SocketAddr, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "{head}\r\nHost: x\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(address: SocketAddr, line: &str) -> String {
        ask(address, &format!("{line} HTTP/1.1"), "")
    }

    #[test]
    fn a_form_comes_with_its_values_and_a_page_is_kept_from_loading_anything() {
        let address = serve_forms(([127, 0, 0, 1], 0).into(), |ask| {
            match (ask.is_form, ask.value("name")) {
                (true, Some(_)) if ask.authorization.is_empty() => Answer::who_asks(),
                (true, Some(name)) => Answer::go_on_at(&format!("/{}{name}", ask.host)),
                _ => Answer::page(200, "<p>".to_owned()),
            }
        });
        let address = address.unwrap();
        let form = |more: &str, body: &str| {
            let length = body.len();
            let head = format!("POST /start HTTP/1.1\r\n{more}Content-Length: {length}");
            ask(address, &head, body)
        };
        let page = get(address, "GET /");
        assert!(
            page.contains("content-security-policy: default-src 'none'") && page.ends_with("<p>"),
            "{page}"
        );
        let refused = form("", "name=a");
        assert!(
            refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: Basic "),
            "{refused}"
        );
        let done = form("Authorization: Basic eDp5\r\n", "name=a%20b");
        assert!(done.starts_with("HTTP/1.1 303 "), "{done}");
        assert!(form("", &"x".repeat(5000)).starts_with("HTTP/1.1 413 "));
        assert!(
            is_same_secret("ab", "ab")
                && !is_same_secret("ab", "ac")
                && !is_same_secret("ab", "abc")
        );
    }

    #[test]
    fn a_page_is_made_of_what_was_asked_and_nothing_is_written() {
        let address = serve(([127, 0, 0, 1], 0).into(), |ask| match ask.path.as_str() {
            "/probe" => Answer::plain(200, format!("{:?}", ask.value("target"))),
            "/broken" => panic!("a page that cannot be made ends no server"),
            _ => Answer::plain(404, "none"),
        });
        let address = address.unwrap();
        let answer = get(address, "GET /probe?a&target=a%20b%2Bc+d%zz&target=x");
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("Some(\"a b+c d%zz\")"),
            "{answer}"
        );
        assert!(get(address, "GET /x").starts_with("HTTP/1.1 404 "));
        assert!(get(address, "POST /probe").starts_with("HTTP/1.1 405 "));
        assert!(get(address, "GET /broken").starts_with("HTTP/1.1 500 "));
        assert!(get(address, "GET /probe").ends_with("None"));
    }
}
