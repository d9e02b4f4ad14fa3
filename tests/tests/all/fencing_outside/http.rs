//! The recipe for an HTTP server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockwarden_tests::{Process, holds_for, installed, run_to_end, wait_for};

use super::{Holders, example};

/// The server of the example; it ends when the value is dropped.
struct Shop {
    url: String,
    _process: Process,
}

impl Shop {
    fn start(database: Option<&Path>) -> Shop {
        let mut python = Command::new("python3");
        python.arg("-B").arg(example("shop.py")).arg("0").args(database);
        python.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::spawn(&mut python).expect("python3 is there");
        let said = process.takes_output().expect("it was asked for");
        let line = BufReader::new(said).lines().next();
        let line = line.expect("it says where it is").expect("text");
        let (_, address) = line.rsplit_once(' ').expect("it says where it is");
        Shop { url: format!("http://{address}/lamp"), _process: process }
    }

    /// The status of a request by curl, and what came.
    fn asked(&self, arguments: &[&str]) -> (String, String) {
        let done = run_to_end(Command::new("curl").args(["-s", "-w", "\n%{http_code}"]).args(arguments).arg(&self.url));
        assert_eq!(done.code, Some(0), "{done:?}");
        let (body, status) = done.stdout.rsplit_once('\n').expect("two lines");
        (status.to_owned(), body.to_owned())
    }
}

#[test]
fn a_server_refuses_the_late_write_of_a_paused_holder() {
    if !installed(&["python3", "curl"]) {
        return;
    }
    let holders = Holders::new();
    let write = "curl -sS --fail-with-body -X PUT -H \"Fencing-Token: $LOCKWARDEN_FENCE\" -d $value $SHOP";
    let careless = Shop::start(None);
    let (code, said) = holders.late_write(write, &|command| {
        command.env("SHOP", &careless.url);
    });
    assert_eq!(code, 0, "{said}");
    assert_eq!(careless.asked(&[]).1, "34", "the damage");

    let database = holders.file("fences.db");
    let careful = Shop::start(Some(&database));
    let (code, said) = holders.late_write(write, &|command| {
        command.env("SHOP", &careful.url);
    });
    assert_eq!(code, 22, "{said}");
    assert!(said.contains("a newer holder of the lock has written this"), "{said}");
    assert_eq!(careful.asked(&[]), ("200".to_owned(), "12".to_owned()));

    // A request without a number, or with an invalid one, writes nothing.
    for header in ["X-Other: 1", "Fencing-Token: x", "Fencing-Token: -1", "Fencing-Token: 99999999999999999"] {
        let (status, said) = careful.asked(&["-X", "PUT", "-H", header, "-d", "56"]);
        assert_eq!(status, "428", "{header}: {said}");
    }
    assert_eq!(careful.asked(&[]).1, "12");
    // The number outlives the server.
    drop(careful);
    let again = Shop::start(Some(&database));
    let old = ["-X", "PUT", "-H", "Fencing-Token: 1", "-d", "56"];
    assert_eq!(again.asked(&old).0, "412");
    assert_eq!(again.asked(&[]).1, "nothing");
}

/// Two servers with one file of numbers: the older write is under way, because its body has not come yet.
#[test]
fn a_server_lets_a_newer_write_through_when_no_older_one_is_under_way_any_more() {
    if !installed(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join("fences.db");
    let shops = [0, 1].map(|_| Shop::start(Some(&database)));
    let put = |shop: &Shop, fence: u64| {
        let address = shop.url.trim_start_matches("http://").trim_end_matches("/lamp");
        let mut stream = TcpStream::connect(address).expect("it listens");
        let head = format!("PUT /lamp HTTP/1.0\r\nFencing-Token: {fence}\r\nContent-Length: 2\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        stream
    };
    let answer = |mut stream: TcpStream, body: &str| {
        stream.write_all(body.as_bytes()).expect("it reads");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("it answers and closes");
        said.lines().next().unwrap_or_default().to_owned()
    };
    let older = put(&shops[0], 1);
    wait_for("the older write to be under way", || is_locked(&database));
    let newer = put(&shops[1], 2);
    let newer = std::thread::spawn(move || answer(newer, "22"));
    holds_for(Duration::from_millis(300), "the newer write waits", || !newer.is_finished());
    assert_eq!(answer(older, "11"), "HTTP/1.0 200 OK");
    assert_eq!(newer.join().expect("it is answered"), "HTTP/1.0 200 OK");
    let late = put(&shops[0], 1);
    assert_eq!(answer(late, "33"), "HTTP/1.0 412 Precondition Failed");
}

/// Whether a process is writing this database.
fn is_locked(database: &Path) -> bool {
    let script =
        "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')";
    let tried = run_to_end(Command::new("python3").args(["-c", script]).arg(database));
    tried.stderr.contains("database is locked")
}
