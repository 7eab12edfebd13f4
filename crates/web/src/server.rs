//! The HTTP server: one request for each connection, so that none is kept for nothing.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::room::Room;
use crate::{Answer, Ask};

/// Pages made in parallel.
const MOST_AT_ONCE: usize = 4;
/// Longest form, bytes.
const MAX_FORM: usize = 4096;
/// Longest head of a request, bytes.
const MAX_HEAD: usize = 1 << 16;
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_secs(1);
/// When to ask again for a page that there was no room for.
const RETRY: Duration = Duration::from_secs(1);
/// Pause where this process has no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves pages, and takes forms ([`Ask::is_form`]), at that address (port 0 takes a free one) until
/// the process ends; returns the address. A panic of `answer` is to end the process.
///
/// # Errors
/// The address cannot be bound, or no thread can be started.
pub fn serve(
    address: SocketAddr,
    answer: impl Fn(&Ask) -> Answer + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(MOST_AT_ONCE)
        .build()?;
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let server = Arc::new(PageServer { answer, room: Mutex::new(Room::new(descriptors as usize)) });
    thread::Builder::new().name("web".into()).spawn(move || {
        runtime.block_on(async move { server.accept(TcpListener::from_std(listener)?).await })
    })?;
    Ok(bound)
}

struct PageServer<F> {
    answer: F,
    room: Mutex<Room<JoinHandle<()>>>,
}

/// A page that is under way, until this is dropped.
struct PageUnderWay<F: Fn(&Ask) -> Answer> {
    server: Arc<PageServer<F>>,
    peer: IpAddr,
}

impl<F: Fn(&Ask) -> Answer> Drop for PageUnderWay<F> {
    fn drop(&mut self) {
        self.server.room().end_page(self.peer);
    }
}

impl<F: Fn(&Ask) -> Answer> PageServer<F> {
    /// Each change of the room is whole when its lock is released.
    fn room(&self) -> MutexGuard<'_, Room<JoinHandle<()>>> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fn(&Ask) -> Answer + Send + Sync + 'static> PageServer<F> {
    async fn accept(self: Arc<Self>, listener: TcpListener) -> io::Result<Infallible> {
        loop {
            let is_empty = self.room().is_empty();
            let tick = if is_empty { Duration::MAX } else { TICK };
            let accepted = timeout(tick, listener.accept()).await;
            let overdue = self.room().take_overdue(Instant::now());
            close(overdue).await;
            match accepted {
                Err(_) => {}
                Ok(Ok((stream, peer))) => self.admit(stream, peer.ip()).await,
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Out of descriptors, mostly.
                Ok(Err(_)) => {
                    let idle = self.room().take_idle(None);
                    if idle.is_none() {
                        sleep(PAUSE).await;
                    }
                    close(idle).await;
                }
            }
        }
    }

    async fn admit(self: &Arc<Self>, stream: TcpStream, peer: IpAddr) {
        let in_the_way = self.room().make_room(peer);
        close(in_the_way).await;
        self.room().keep(peer, Instant::now(), |id| {
            let server = Arc::clone(self);
            spawn(async move {
                let respond = service_fn(|request| server.respond(id, peer, request));
                let mut protocol = http1::Builder::new();
                let http = protocol.keep_alive(false).max_buf_size(MAX_HEAD);
                // A client that breaks off has nobody to be told.
                let _ = http.serve_connection(TokioIo::new(stream), respond).await;
                server.room().leave(id);
            })
        });
    }

    /// The answer to a request; none to one that breaks off.
    async fn respond(
        self: &Arc<Self>,
        id: u64,
        peer: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
        let (head, body) = request.into_parts();
        if ![Method::GET, Method::HEAD, Method::POST].contains(&head.method) {
            return Ok(Answer::plain(405, "pages are read, forms are sent\n").into());
        }
        let body = match Limited::new(body, MAX_FORM).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Ok(Answer::plain(413, "the form is too long\n").into());
            }
            Err(error) => return Err(error),
        };
        let ask = Ask::new(peer, &head, &body);
        if !self.room().begin_page(id) {
            return Ok(Answer::later(503, RETRY, "other pages are being made\n").into());
        }
        let page = PageUnderWay { server: Arc::clone(self), peer };
        let made = spawn_blocking(move || (page.server.answer)(&ask)).await;
        self.room().answer(id, Instant::now());
        Ok(made?.into())
    }
}

/// Ends the tasks, and with them their connections: their descriptors are free afterwards.
async fn close(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        task.abort();
        // It has ended by itself, or by this.
        let _ = task.await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn ask(address: SocketAddr, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{head}\r\nHost: x\r\nConnection: close\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(address: SocketAddr, line: &str) -> String {
        ask(address, &format!("{line} HTTP/1.1"), "")
    }

    #[test]
    fn a_form_comes_with_its_values_and_a_page_is_kept_from_loading_anything() {
        let address =
            serve(([127, 0, 0, 1], 0).into(), |ask| match (ask.is_form, ask.value("name")) {
                (true, Some(_)) if ask.authorization.is_empty() => Answer::who_asks(),
                (true, Some(name)) => Answer::go_on_at(&format!("/{}{name}", ask.host)),
                _ => Answer::page(200, "<p>".to_owned()),
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
    }

    #[test]
    fn a_page_is_made_of_what_was_asked_and_nothing_is_written() {
        let address = serve(([127, 0, 0, 1], 0).into(), |ask| match ask.path.as_str() {
            "/probe" => Answer::plain(200, format!("{:?}", ask.value("target"))),
            _ => Answer::plain(404, "none"),
        });
        let address = address.unwrap();
        let answer = get(address, "GET /probe?a&target=a%20b%2Bc+d%zz&target=x");
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("Some(\"a b+c d%zz\")"),
            "{answer}"
        );
        assert!(get(address, "GET /x").starts_with("HTTP/1.1 404 "));
        assert!(get(address, "PUT /probe").starts_with("HTTP/1.1 405 "));
        assert!(get(address, "GET /probe").ends_with("None"));
    }
}
