//! Ports for servers that need a given port.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};

/// Linux gives those from 32768 on to connections, and to listeners that name none.
const FIRST: u16 = 12_000;
const COUNT: u64 = 20_000;
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A port on which no program listens. The system gives it to no program that asks for any free port, so a server
/// that stops finds it free again.
pub fn free_port() -> u16 {
    // Test programs that run side by side begin at different ones.
    let first = u64::from(std::process::id()) * 7_919;
    for _ in 0..COUNT {
        let number = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = FIRST + u16::try_from(number).expect("there are fewer ports");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}
