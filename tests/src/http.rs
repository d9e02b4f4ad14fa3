//! As much of HTTP as the proxy's admin address needs: one request for each connection, and the whole reply
//! is read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer: its status and its body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// One request; `None` when no server answers.
pub(crate) fn request(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some(Answer { status: head.split(' ').nth(1)?.parse().ok()?, body: body.to_owned() })
}

/// The status and body of a GET; `None` when no server answers.
pub fn get_at(to: SocketAddr, path: &str) -> Option<(u16, String)> {
    let answer = request(to, "GET", path, &[], "")?;
    Some((answer.status, answer.body))
}
