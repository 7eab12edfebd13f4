//! Posts to the user's own servers: to a webhook for alarms, to a receiver of metrics.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, anyhow};
use linerate_core::monitor::HttpUrl;

/// Longest wait for each step: connect, write, read.
const PATIENCE: Duration = Duration::from_secs(10);

/// The header of a JSON body.
pub(crate) const JSON: &str = "Content-Type: application/json\r\n";

/// Posts `body` with `headers`, of which each ends its line, and returns the HTTP status of the
/// answer.
///
/// # Errors
/// The server cannot be reached, or does not answer with HTTP.
pub(crate) fn post(to: &HttpUrl, headers: &str, body: &[u8]) -> anyhow::Result<u16> {
    let (host, port) = &to.address;
    let mut addresses = (host.as_str(), *port).to_socket_addrs()?;
    let address = addresses.next().context("the host has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "POST {} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        to.path,
        to.authority,
        body.len()
    )?;
    stream.write_all(body)?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    let status = String::from_utf8_lossy(&status);
    let number = status
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..));
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| anyhow!("answered {status:?}, which is not HTTP"))
}
