//! A simulated service in front of a managed Redis, with a rule of its own about what it lets through.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::Redis;

/// What it refuses or ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// A script must name a key, by which its shard is found.
    ScriptsNameKeys,
    /// A connection that has logged in must do it again within this time, or is cut.
    LoginsEnd(Duration),
}

/// A service in front of this server.
pub(super) fn serve(redis: &Redis, rule: Rule) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let redis = redis.address();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || connection(client, redis, rule));
        }
    });
    address
}

fn connection(mut client: TcpStream, redis: SocketAddr, rule: Rule) -> std::io::Result<()> {
    let mut server = TcpStream::connect(redis)?;
    let (mut replies, mut back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut replies, &mut back);
        back.shutdown(Shutdown::Both)
    });
    let logged_in: Arc<Mutex<Option<Instant>>> = Arc::default();
    if let Rule::LoginsEnd(after) = rule {
        let (logged_in, server) = (logged_in.clone(), server.try_clone()?);
        thread::spawn(move || cut(&logged_in, &server, after));
    }
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = client.read(&mut buffer)?;
        if read == 0 {
            return server.shutdown(Shutdown::Both);
        }
        let words = String::from_utf8_lossy(&buffer[..read]);
        match rule {
            // The script's text stands between the two; the proxy's own requests are sent in one piece.
            Rule::ScriptsNameKeys if names_no_key(&words) => {
                client
                    .write_all(b"-ERR for redis cluster, eval/evalsha number of keys can't be negative or zero\r\n")?;
                continue;
            }
            Rule::LoginsEnd(_) if words.contains("\r\nAUTH\r\n") => {
                *logged_in.lock().expect("nobody panics with it") = Some(Instant::now());
            }
            Rule::ScriptsNameKeys | Rule::LoginsEnd(_) => {}
        }
        server.write_all(&buffer[..read])?;
    }
}

/// Whether one of these requests is a script without a key.
fn names_no_key(requests: &str) -> bool {
    let words: Vec<&str> = requests.split("\r\n").collect();
    words.iter().enumerate().any(|(at, word)| {
        // `EVAL $20 text $1 0`
        matches!(*word, "EVAL" | "EVALSHA") && words.get(at + 4) == Some(&"0")
    })
}

fn cut(logged_in: &Mutex<Option<Instant>>, server: &TcpStream, after: Duration) {
    loop {
        thread::sleep(Duration::from_millis(50));
        let last = *logged_in.lock().expect("nobody panics with it");
        if last.is_some_and(|last| last.elapsed() > after) {
            let _ = server.shutdown(Shutdown::Both);
            return;
        }
    }
}
