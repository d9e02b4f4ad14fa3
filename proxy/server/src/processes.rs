//! Which process of this machine is at the other end of a loopback connection: the socket's inode by
//! the kernel's table, and whoever has that inode open. Asked on a thread of its own, for many
//! connections at once and for those processes first that are known already. It needs `/proc`, the
//! same network namespace, and a process that this user may look into; otherwise there is no answer.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_lock::token::Process;
use tokio::sync::oneshot;

use crate::peers::Peer;

/// Connections that wait to be looked up; one more stays unknown for now.
const MOST_WAITING: usize = 1024;
/// Connections that are looked up in one go.
const BATCH: usize = 256;
/// Processes that are remembered; above that all are forgotten and found anew.
const MOST_KNOWN: usize = 1024;
/// The longest table of sockets that is read, in bytes: some 400,000 sockets.
const LONGEST_TABLE: u64 = 64 << 20;
/// The longest search through all processes.
const LONGEST_SEARCH: Duration = Duration::from_secs(2);
/// How long whoever asks waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What tells this machine's loopback addresses from every other's: its boot and its network
/// namespace. Empty where the system does not say.
pub(crate) static MACHINE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    [boot.trim_ascii(), namespace("net").as_bytes()].concat()
});

/// Numbers of processes are unique in here only.
static PROCESS_NAMESPACE: LazyLock<String> = LazyLock::new(|| namespace("pid"));

fn namespace(kind: &str) -> String {
    let link = fs::read_link(Path::new("/proc/self/ns").join(kind)).unwrap_or_default();
    link.to_string_lossy().into_owned()
}

struct Wanted {
    peer: Arc<Peer>,
    done: oneshot::Sender<()>,
}

/// The way to ask.
pub(crate) struct Processes {
    queue: SyncSender<Wanted>,
}

impl Processes {
    /// Starts the thread, which ends with the last way to ask.
    pub(crate) fn start() -> std::io::Result<Processes> {
        let (queue, wanted) = sync_channel(MOST_WAITING);
        thread::Builder::new()
            .name("lockwarden-processes".into())
            .spawn(move || serve(&wanted))?;
        Ok(Processes { queue })
    }

    /// The process of a client; pending where it could not be found out now.
    pub(crate) async fn of(&self, peer: &Arc<Peer>) -> Process {
        if peer.process() == Process::Pending {
            let (done, answered) = oneshot::channel();
            let wanted = Wanted {
                peer: peer.clone(),
                done,
            };
            if self.queue.try_send(wanted).is_ok() {
                // Either way the peer says what is known now.
                let _ = tokio::time::timeout(PATIENCE, answered).await;
            }
        }
        peer.process()
    }
}

fn serve(wanted: &Receiver<Wanted>) {
    let mut search = Search::default();
    while let Ok(first) = wanted.recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(next) = wanted.try_recv()
        {
            batch.push(next);
        }
        let pairs: Vec<(SocketAddr, SocketAddr)> = batch
            .iter()
            .filter(|wanted| wanted.peer.process() == Process::Pending)
            .map(|wanted| (wanted.peer.client, wanted.peer.local))
            .collect();
        let found = if pairs.is_empty() {
            HashMap::new()
        } else {
            search.find(&pairs)
        };
        for Wanted { peer, done } in batch {
            match found.get(&peer.client) {
                Some(process) => peer.found(*process),
                None => peer.missed(),
            }
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
    }
}

/// The processes that were found before, by their numbers.
#[derive(Default)]
struct Search {
    known: HashMap<u32, Process>,
}

impl Search {
    /// The processes behind those connections, by the clients' addresses. A connection that is closed
    /// already has no entry.
    fn find(&mut self, pairs: &[(SocketAddr, SocketAddr)]) -> HashMap<SocketAddr, Process> {
        let wanted: HashMap<_, SocketAddr> = pairs
            .iter()
            .map(|&(client, local)| ((plain(client), plain(local)), client))
            .collect();
        let mut inodes = HashMap::new();
        for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
            let mut text = String::new();
            let read = fs::File::open(table)
                .and_then(|file| file.take(LONGEST_TABLE).read_to_string(&mut text));
            if read.is_ok() {
                inodes.extend(text.lines().skip(1).filter_map(|row| {
                    let (client, local, inode) = socket(row)?;
                    Some((inode, *wanted.get(&(client, local))?))
                }));
            }
        }
        // A socket that is there and whose process is not found is somebody's that may not be seen.
        let mut found: HashMap<_, _> = inodes.values().map(|&it| (it, Process::None)).collect();
        if inodes.is_empty() {
            return found;
        }
        let end = Instant::now() + LONGEST_SEARCH;
        let before: Vec<u32> = self.known.keys().copied().collect();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let others = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for number in before.into_iter().chain(others) {
            if inodes.is_empty() || Instant::now() > end {
                break;
            }
            self.look_into(number, &mut inodes, &mut found);
        }
        found
    }

    /// Takes what this process has open out of `inodes`.
    fn look_into(
        &mut self,
        number: u32,
        inodes: &mut HashMap<u64, SocketAddr>,
        found: &mut HashMap<SocketAddr, Process>,
    ) {
        let directory = format!("/proc/{number}");
        let Ok(files) = fs::read_dir(format!("{directory}/fd")) else {
            self.known.remove(&number);
            return;
        };
        let mut clients = Vec::new();
        for file in files.flatten() {
            let Ok(link) = fs::read_link(file.path()) else {
                continue;
            };
            let inode = link.to_str().and_then(|link| {
                link.strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .parse()
                    .ok()
            });
            if let Some(client) = inode.and_then(|inode: u64| inodes.remove(&inode)) {
                clients.push(client);
                if inodes.is_empty() {
                    break;
                }
            }
        }
        if clients.is_empty() {
            return;
        }
        // Read after the files: a number that was given to another process meanwhile has its time.
        let stat = fs::read_to_string(format!("{directory}/stat")).unwrap_or_default();
        let Some(started) = start_time(&stat) else {
            return;
        };
        let process = Process::of(&[
            &MACHINE,
            PROCESS_NAMESPACE.as_bytes(),
            &number.to_be_bytes(),
            started.as_bytes(),
        ]);
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        self.known.insert(number, process);
        found.extend(clients.into_iter().map(|client| (client, process)));
    }
}

/// Local and remote address and inode out of a row of the table; `None` for a socket that no process
/// has any more.
fn socket(row: &str) -> Option<(SocketAddr, SocketAddr, u64)> {
    let mut words = row.split_ascii_whitespace().skip(1);
    let local = address(words.next()?)?;
    let remote = address(words.next()?)?;
    let inode = words.nth(6)?.parse().ok().filter(|inode| *inode != 0)?;
    Some((local, remote, inode))
}

/// An address as the kernel writes it: words of four bytes in the machine's own order, in hex.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match address.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            IpAddr::from(bytes)
        }
        _ => return None,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(plain(SocketAddr::new(ip, port)))
}

/// An IPv4 address that is written as an IPv6 one is that IPv4 address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// When a process began, in ticks since the machine did. The name before it may hold anything, also
/// parentheses and blanks.
fn start_time(stat: &str) -> Option<&str> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_row_of_the_kernels_table_is_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        let row = "   3: 0100007F:1F90 0200007F:0016 01 00000000:00000000 00:00000000 00000000  1000        0 40212 1 0000000000000000 20 4 30 10 -1";
        let parse = |text: &str| text.parse().unwrap();
        let expected = (parse("127.0.0.1:8080"), parse("127.0.0.2:22"), 40212);
        assert_eq!(socket(row), Some(expected));
        let mapped = address("0000000000000000FFFF00000100007F:1F90");
        assert_eq!(mapped, Some(parse("127.0.0.1:8080")));
        assert_eq!(
            address("00000000000000000000000001000000:0001"),
            Some(parse("[::1]:1"))
        );
        for bad in [
            "",
            "x",
            "0100007F",
            "0100007:1",
            "é100007F:1F90",
            "0100007F:12345",
        ] {
            assert_eq!(address(bad), None, "{bad}");
        }
        assert_eq!(socket("  sl  local_address rem_address"), None);
    }

    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_time(stat), Some("4711"));
        assert_eq!(start_time("7 (a) S"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn our_own_connections_are_ours_and_a_closed_one_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let pair = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            (stream, pair)
        };
        let ((one, first), (two, second)) = (connect(), connect());
        let mut search = Search::default();
        let found = search.find(&[first, second]);
        assert!(matches!(found[&first.0], Process::Known(_)));
        assert_eq!(found[&first.0], found[&second.0]);
        drop(one);
        let found = search.find(&[first, second]);
        assert!(!found.contains_key(&first.0));
        assert!(matches!(found[&second.0], Process::Known(_)));
        drop(two);
    }
}
