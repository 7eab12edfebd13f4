#![forbid(unsafe_code)]
//! What linerate answers browsers and Prometheus: pages over HTTP, read only.
//!
//! All that is asynchronous is in this crate, on one thread of its own: what measures has threads and
//! blocking calls. It knows no document: a function of the caller makes each page, in a thread where it
//! may take its time.
//!
//! ```no_run
//! use linerate_web::Answer;
//!
//! let answer = |ask: &linerate_web::Ask| Answer::plain(200, format!("{}\n", ask.path));
//! let address = linerate_web::serve(([127, 0, 0, 1], 9476).into(), answer)?;
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use axum::Router;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// From the first slash on, without what follows a question mark.
    pub path: String,
    query: Vec<(String, String)>,
}

/// What they get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Ask {
    fn new(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&');
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        };
        Self {
            path: uri.path().to_owned(),
            query: pairs.map(pair).collect(),
        }
    }

    /// The first value of that name after the question mark.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Without `%41` and `+` (application/x-www-form-urlencoded); what is no such code stays.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes
            .get(at + 1..at + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
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
    /// A page for Prometheus.
    pub fn metrics(body: String) -> Self {
        Self {
            status: 200,
            kind: "text/plain; version=0.0.4; charset=utf-8",
            body,
        }
    }

    /// A text with its status.
    pub fn plain(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(header::CONTENT_TYPE, self.kind)], self.body).into_response()
    }
}

/// Answers whoever asks at that address, port 0 for a free one, until the process ends; the address.
///
/// # Errors
/// The address cannot be had; no threads.
pub fn serve(
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
    let pages = Router::new().fallback(move |method: Method, uri: Uri| {
        let answer = answer.clone();
        async move {
            if method != Method::GET && method != Method::HEAD {
                return Answer::plain(405, "pages are read\n");
            }
            let page = spawn_blocking(move || answer(&Ask::new(&uri))).await;
            page.unwrap_or_else(|_| Answer::plain(500, "this page cannot be made\n"))
        }
    });
    thread::Builder::new().name("web".into()).spawn(move || {
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener)?;
            axum::serve(listener, pages).await
        })
    })?;
    Ok(bound)
}

/// Pages that are made at once.
const MOST_AT_ONCE: usize = 4;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn get(address: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
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
