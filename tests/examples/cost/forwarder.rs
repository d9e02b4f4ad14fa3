//! The least that anything in between can do: two blocking threads a connection, each of which
//! copies bytes one way. No event loop, no frame, no count; the floor that the proxy is held against.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::{env, process, thread};

/// What a copy moves at most in one go, bytes: what tokio's and haproxy's own copies take.
const CHUNK: usize = 16 * 1024;

/// The forwarder as a child. It ends when its standard input does: with this value, or with us.
pub(crate) struct Forwarder {
    child: Child,
    address: SocketAddr,
}

impl Forwarder {
    /// Starts this program again as a forwarder to `backend`.
    pub(crate) fn start(backend: SocketAddr) -> Result<Forwarder, Box<dyn Error>> {
        let mut child = Command::new(env::current_exe()?)
            .args(["forward", &backend.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("stdout is not piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Forwarder {
            child,
            address: line.trim().parse()?,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It has ended or is about to; there is nobody to tell.
        let _ = self.child.wait();
    }
}

/// Forwards until standard input ends.
pub(crate) fn serve(backend: SocketAddr) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?);
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    });
    loop {
        let (client, _) = listener.accept()?;
        let server = TcpStream::connect(backend)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from, to) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || copy(from, to));
        thread::spawn(move || copy(server, client));
    }
}

/// Copies until one side ends, and hands the end on.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    // The other side may have gone first.
    let _ = to.shutdown(Shutdown::Both);
}
