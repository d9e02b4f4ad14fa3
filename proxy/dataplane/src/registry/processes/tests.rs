use std::fs;
use std::fs::read_to_string;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use lockwarden_control::net::arrival::Arrival;
use lockwarden_control::net::peer::UnixPeer;
use lockwarden_lock::token::SessionId;
use socket2::{Domain, SockRef, Socket, Type};

use super::sock_diag::{Answer, Diag};
use super::*;
use crate::registry::clients::Holder;

fn connect(listener: &TcpListener) -> (TcpStream, Pair) {
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let pair = ends(&stream);
    (stream, pair)
}

/// As the proxy has them.
fn ends(client: &TcpStream) -> Pair {
    Pair::new(client.local_addr().unwrap(), client.peer_addr().unwrap())
}

fn inode(socket: &TcpStream) -> u64 {
    let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
    let digits = link.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit());
    digits.parse().unwrap()
}

/// What the table says of a pair.
fn listed(pair: Pair) -> Option<u64> {
    cache::inodes(&[pair].into()).get(&pair).copied()
}

#[test]
fn a_socket_that_a_child_has_as_well_is_its_parents() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (one, pair) = connect(&listener);
    // As every child has it until it runs a program.
    SockRef::from(&one).set_cloexec(false).unwrap();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let file = format!("/proc/{}/fd/{}", child.id(), one.as_raw_fd());
    assert_eq!(fs::read_link(file).unwrap(), std::path::Path::new(&format!("socket:[{}]", inode(&one))));
    let found = Finder::default().find(&[pair]);
    let ours = Running::of(std::process::id()).unwrap().process();
    assert_eq!(found.get(&pair), Some(&ours));
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn our_own_connections_are_ours_and_a_closed_one_is_nobodys() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ((one, first), (two, second)) = (connect(&listener), connect(&listener));
    let mut finder = Finder::default();
    let found = finder.find(&[first, second]);
    assert!(matches!(found[&first], Process::Known(_)));
    assert_eq!(found[&first], found[&second]);
    drop(one);
    // What other tests start has all files of this process for a moment.
    let found = (0..50).map(|_| finder.find(&[first, second])).find(|found| !found.contains_key(&first)).unwrap();
    assert!(matches!(found[&second], Process::Known(_)));
    drop(two);
}

/// What is looked at first is what started last: a child that has all files of its parent, and may end while it is looked at.
#[test]
fn a_process_that_starts_others_all_the_time_is_found_all_the_same() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open: Vec<_> = (0..100).map(|_| connect(&listener)).collect();
    let pairs: Vec<Pair> = open.iter().map(|(_, pair)| *pair).collect();
    let ours = Running::of(std::process::id()).unwrap().process();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..100).for_each(|_| assert!(Command::new("true").status().unwrap().success())));
        }
        for _ in 0..50 {
            let found = Finder::default().find(&pairs);
            let others = pairs.iter().map(|pair| found.get(pair)).filter(|found| *found != Some(&ours)).count();
            assert_eq!(others, 0, "of {}", pairs.len());
        }
    });
}

#[test]
fn the_kernel_tells_the_same_as_its_table_in_every_family() {
    let mut diag = Diag::open().expect("this kernel lets us ask");
    let four = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut streams = vec![connect(&four).0];
    // An IPv6 socket that is connected to an IPv4 address.
    let mapped = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    let port = four.local_addr().unwrap().port();
    let ip: Ipv6Addr = "::ffff:127.0.0.1".parse().unwrap();
    let address = SocketAddr::from(SocketAddrV6::new(ip, port, 0, 0));
    mapped.connect(&address.into()).unwrap();
    streams.push(mapped.into());
    // A socket that may speak over the loopback device only.
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    if bound.bind_device(Some(b"lo")).is_ok() {
        bound.connect(&four.local_addr().unwrap().into()).unwrap();
        streams.push(bound.into());
    }
    let six = TcpListener::bind("[::1]:0");
    streams.extend(six.iter().map(|six| connect(six).0));
    for stream in &streams {
        let (pair, expected) = (ends(stream), inode(stream));
        assert_eq!(diag.ask(&pair).unwrap(), Answer::Inode(expected), "{pair:?}");
        assert_eq!(listed(pair), Some(expected), "{pair:?}");
    }
    // A closed connection's rest has no inode, and nothing was ever connected to port 1.
    let (closed, pair) = connect(&four);
    drop(closed);
    assert_eq!(diag.ask(&pair).unwrap(), Answer::Nobodys);
    let nobody = Pair::new(four.local_addr().unwrap(), "127.0.0.1:1".parse().unwrap());
    assert_eq!(diag.ask(&nobody).unwrap(), Answer::NotThere);
    assert_eq!((listed(pair), listed(nobody)), (None, None));
}

/// The kernel gives one port to several sockets of different processes, if they connect to different
/// addresses.
#[test]
fn two_clients_with_the_same_address_are_told_apart_by_the_proxys() {
    let listeners = ["127.0.0.1:0", "127.0.0.2:0"].map(|it| TcpListener::bind(it).unwrap());
    // Another test may have a socket with the same number meanwhile.
    let two_of_one_port = || {
        let first = connect(&listeners[0]).0;
        SockRef::from(&first).set_reuse_address(true).ok()?;
        let second = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
        second.set_reuse_address(true).ok()?;
        second.bind(&first.local_addr().ok()?.into()).ok()?;
        let address = listeners[1].local_addr().ok()?;
        second.connect(&address.into()).ok()?;
        Some((first, TcpStream::from(second)))
    };
    let (first, second) = (0..50).find_map(|_| two_of_one_port()).unwrap();
    let pairs = [ends(&first), ends(&second)];
    assert_eq!(pairs[0].client, pairs[1].client);
    // The second is handed to another process.
    let mut sleeper = Command::new("sleep").arg("1000").stdin(Stdio::from(OwnedFd::from(second))).spawn().unwrap();
    let found = Finder::default().find(&pairs);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(matches!(found[&pairs[0]], Process::Known(_)));
    assert!(matches!(found[&pairs[1]], Process::Known(_)));
    assert_ne!(found[&pairs[0]], found[&pairs[1]]);
}

#[test]
fn many_connections_of_one_process_are_found_together_one_by_one_and_after_a_change() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut open: Vec<_> = (0..100).map(|_| connect(&listener)).collect();
    let mut finder = Finder::default();
    let pairs: Vec<Pair> = open.iter().map(|(_, pair)| *pair).collect();
    let ours = finder.find(&pairs[..1])[&pairs[0]];
    assert!(matches!(ours, Process::Known(_)));
    let found = finder.find(&pairs);
    let others: Vec<_> = pairs.iter().map(|pair| found.get(pair)).filter(|found| *found != Some(&ours)).collect();
    assert!(others.is_empty(), "{others:?} beside {ours:?}");
    // Where the first was, there is another now.
    drop(open.remove(0));
    open.extend((0..3).map(|_| connect(&listener)));
    for (_, pair) in &open {
        assert_eq!(finder.find(&[*pair])[pair], ours);
    }
}

/// What a look-up costs where the machine has 50,000 sockets that wait out their time, and the client
/// 1,000 connections. `cargo test --profile profiling -p lockwarden-dataplane what_a_look_up_costs -- --ignored --nocapture`
#[test]
#[ignore = "prints figures, and leaves 50,000 sockets waiting for a minute"]
fn what_a_look_up_costs() {
    let listeners = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"].map(|it| TcpListener::bind(it).unwrap());
    let open: Vec<_> = (0..1000)
        .map(|_| {
            let client = connect(&listeners[0]);
            (listeners[0].accept().unwrap(), client)
        })
        .collect();
    let pairs: Vec<Pair> = open.iter().map(|(_, (_, pair))| *pair).collect();
    for waiting in [0, 50_000] {
        for number in 0..waiting {
            let listener = &listeners[number % 3];
            let (client, _) = connect(listener);
            let accepted = listener.accept().unwrap();
            // The client's end waits.
            drop(client);
            drop(accepted);
        }
        let mut diag = Diag::open().unwrap();
        let mut next = pairs.iter().cycle();
        let mut one = || *next.next().unwrap();
        println!("{}", read_to_string("/proc/net/sockstat").unwrap().lines().nth(1).unwrap());
        cost("the inode, by the table", 20, || assert!(listed(one()).is_some()));
        cost("the inode, asked for", 10_000, || {
            assert!(matches!(diag.ask(&one()), Ok(Answer::Inode(_))));
        });
    }
    let mut inodes = Inodes::default();
    let inodes = inodes.of(&pairs);
    let mut next = pairs.iter().cycle();
    let mut one = || inodes[next.next().unwrap()];
    cost("the process, nothing known", 20, || {
        assert_eq!(Search::default().find([one()].into_iter()).processes.len(), 1);
    });
    let mut search = Search::default();
    search.find([one()].into_iter());
    cost("the process, seen before", 2000, || {
        assert_eq!(search.find([one()].into_iter()).processes.len(), 1);
    });
    cost("the processes of 256, nothing known", 20, || {
        assert_eq!(Search::default().find((0..256).map(|_| one())).processes.len(), 256);
    });
    let mut finder = Finder::default();
    let mut newcomers = Vec::new();
    for stays in [true, false] {
        let kind = if stays { "stays" } else { "is closed" };
        cost(&format!("a new connection that {kind}, all of it"), 200, || {
            let (client, pair) = connect(&listeners[1]);
            let accepted = listeners[1].accept().unwrap();
            assert_eq!(finder.find(&[pair]).len(), 1);
            if stays {
                newcomers.push((client, accepted));
            }
        });
    }
}

/// A client that connects to this port, and lives until its input ends.
fn short_lived(port: u16) -> Child {
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; read -r line");
    Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

/// What it costs to find the process of a client that was started for one command, with those that it comes from, and its name.
/// `cargo test --locked --workspace --lib what_a_client_of_one_command_costs -- --ignored --nocapture`
#[test]
#[ignore = "prints figures"]
fn what_a_client_of_one_command_costs() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let mut finder = Finder::default();
    let (mut spent, rounds) = (0, 200);
    for _ in 0..rounds {
        let mut child = short_lived(local.port());
        let (_accepted, client) = listener.accept().unwrap();
        let pair = Pair::new(client, local);
        let before = cpu();
        let found = finder.locate(&[pair]);
        let Some(Located::At(_, running)) = found.get(&pair) else {
            panic!("it was not found");
        };
        let lineage = running.lineage();
        let program = finder.programs.of(running);
        spent += cpu() - before;
        assert_eq!(running.number(), child.id());
        assert!(lineage.is_whole && program.is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    let each = spent as f64 / f64::from(rounds) / 1000.0;
    println!("a client of one command {each:10.1} µs of CPU time");
}

/// A client that the kernel names needs no search. Its ancestors are looked up when they are needed, by the thread of
/// look-ups.
#[tokio::test]
async fn where_a_client_behind_a_unix_socket_comes_from_is_looked_up_when_it_is_wanted() {
    let processes = Processes::start().unwrap();
    let ours = UnixPeer { process: Some(std::process::id()) };
    let arrival = Arrival::direct(PeerAddress::Unix(ours));
    let session = SessionId(lockwarden_control::random::sixteen());
    let peer = ClientConnection::new(session, Holder::new(), arrival, None, Arc::default());
    let peer = Arc::new(peer);
    assert!(matches!(processes.of(&peer).await, Process::Known(_)));
    assert!(peer.lineage().is_none() && peer.may_have_lineage());
    let lineage = processes.lineage_of(&peer).await.expect("it runs");
    assert_eq!(Some(&lineage.processes[0]), peer.running());
    assert!(!peer.may_have_lineage());
    // One that the kernel does not name has none.
    let arrival = Arrival::direct(PeerAddress::Unix(UnixPeer { process: None }));
    let peer = ClientConnection::new(session, Holder::new(), arrival, None, Arc::default());
    assert!(processes.lineage_of(&Arc::new(peer)).await.is_none());
}

/// The newest numbers may be those of threads, which have the files of their process.
#[test]
fn the_process_of_a_connection_is_never_one_of_its_threads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = Running::of(std::process::id()).unwrap().process();
    for _ in 0..20 {
        let (stop, waits) = mpsc::channel::<()>();
        let thread = thread::spawn(move || waits.recv());
        let (_client, pair) = connect(&listener);
        assert_eq!(Finder::default().find(&[pair])[&pair], ours);
        drop(stop);
        let _ = thread.join();
    }
}

#[test]
fn clients_of_one_command_are_found_one_after_the_other_and_leave_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let mut finder = Finder::default();
    for _ in 0..20 {
        let mut child = short_lived(local.port());
        let (_accepted, client) = listener.accept().unwrap();
        let pair = Pair::new(client, local);
        let found = finder.locate(&[pair]);
        let Some(Located::At(process, running)) = found.get(&pair) else {
            panic!("it was not found");
        };
        let own = Running::of(child.id()).unwrap();
        assert_eq!((running, *process), (&own, own.process()));
        let lineage = running.lineage();
        let ours = Running::of(std::process::id()).unwrap();
        assert_eq!(lineage.processes[..2], [own, ours]);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    // Of those that have ended at most the last is still remembered.
    assert!(finder.search.known() <= 2, "{}", finder.search.known());
}

/// CPU time of this thread so far, ns.
fn cpu() -> u64 {
    let text = read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Of this thread alone, so that others on the machine do not count.
fn cost(what: &str, rounds: u32, mut run: impl FnMut()) {
    let before = cpu();
    for _ in 0..rounds {
        run();
    }
    let each = (cpu() - before) as f64 / f64::from(rounds) / 1000.0;
    println!("{what:44} {each:10.1} µs of CPU time");
}
