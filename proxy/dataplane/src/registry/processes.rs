//! Which process of this machine is at the other end of a loopback connection: the inode of the client's socket
//! (`proc_net.rs`), and the process that has that socket open (`proc_fd.rs`). It is looked up on a thread of its own,
//! for many connections at once. It needs `/proc`, the same network namespace, and a process that this user may look
//! into; otherwise there is no result.

mod cache;
pub(super) mod lineage;
mod namespaces;
mod pair;
mod proc_fd;
mod proc_net;
mod program;
mod sock_diag;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use lockwarden_control::net::peer::PeerAddress;
use lockwarden_lock::token::Process;
use tokio::sync::oneshot;

use super::clients::ClientConnection;
pub use lineage::{Lineage, Running};
pub use namespaces::MACHINE;
use pair::Pair;
use proc_fd::Search;
use proc_net::Inodes;
use program::Programs;

/// Connections that wait to be looked up; a further one stays unknown for now.
const MAX_WAITING: usize = 1024;
/// Connections that are looked up in one go.
const BATCH: usize = 256;
/// How long a caller waits for a result.
const PATIENCE: Duration = Duration::from_secs(3);

struct Wanted {
    peer: Arc<ClientConnection>,
    /// The caller that waits for the result.
    done: Option<oneshot::Sender<()>>,
}

/// A handle for asking the thread.
pub struct Processes {
    queue: SyncSender<Wanted>,
    pub sight: Arc<Sight>,
}

impl Processes {
    /// Starts the thread, which ends when the last handle is dropped.
    pub fn start() -> std::io::Result<Processes> {
        let (queue, wanted) = sync_channel(MAX_WAITING);
        let sight = Arc::<Sight>::default();
        let finder = Finder { sight: sight.clone(), ..Finder::default() };
        thread::Builder::new().name("lockwarden-processes".into()).spawn(move || serve(&wanted, finder))?;
        Ok(Processes { queue, sight })
    }

    /// The process of a client; `Process::Pending` if it could not be found out now.
    pub async fn of(&self, peer: &Arc<ClientConnection>) -> Process {
        if peer.process() == Process::Pending {
            self.look_up(peer).await;
        }
        peer.process()
    }

    /// The ancestor processes of a client, if they can be found out now.
    pub(crate) async fn lineage_of<'p>(&self, peer: &'p Arc<ClientConnection>) -> Option<&'p Lineage> {
        if peer.may_have_lineage() {
            self.look_up(peer).await;
        }
        peer.lineage()
    }

    async fn look_up(&self, peer: &Arc<ClientConnection>) {
        let (done, answered) = oneshot::channel();
        let wanted = Wanted { peer: peer.clone(), done: Some(done) };
        if self.queue.try_send(wanted).is_ok() {
            // In both cases the peer has what is known now.
            let _ = tokio::time::timeout(PATIENCE, answered).await;
        }
    }

    /// Has the unknown process of a client looked up, for the names that people know it by. Never waits.
    pub(crate) fn identify(&self, peer: &Arc<ClientConnection>) {
        if !peer.known_by.ask() {
            return;
        }
        let wanted = Wanted { peer: peer.clone(), done: None };
        if self.queue.try_send(wanted).is_err() {
            peer.known_by.missed();
        }
    }
}

fn serve(wanted: &Receiver<Wanted>, mut finder: Finder) {
    while let Ok(first) = wanted.recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(next) = wanted.try_recv()
        {
            batch.push(next);
        }
        finder.look_up(batch.iter().map(|wanted| &wanted.peer));
        for done in batch.into_iter().filter_map(|wanted| wanted.done) {
            // The session that asked may have stopped waiting.
            let _ = done.send(());
        }
    }
}

/// Where the process of a client is.
#[derive(Clone)]
enum Located {
    /// This one has the socket open.
    At(Process, Running),
    /// A process that this user may not look into has it open.
    Hidden,
    /// A process that this machine's `/proc` does not show has it open: it is in another PID namespace.
    Elsewhere,
}

/// Clients whose processes may not be seen.
#[derive(Default)]
pub struct Sight {
    hidden: AtomicU64,
}

impl Sight {
    fn is_hidden(&self, peer: &ClientConnection) {
        if self.hidden.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(client = %peer.client, "{HIDDEN}; type: {SHOW_PROCESSES}");
        }
    }

    /// The message if processes of clients may not be seen.
    pub fn notice(&self) -> Option<String> {
        let is_blind = self.hidden.load(Ordering::Relaxed) > 0;
        is_blind.then(|| format!("{HIDDEN}; type: {SHOW_PROCESSES}"))
    }
}

/// What it means that they may not be seen.
const HIDDEN: &str = "this proxy may not see the processes of other users on its machine, so their clients without a name are known by their                       address alone: they cannot be told apart, and jobs of a shell have no holder";

/// The command that gives the right to see them.
pub const SHOW_PROCESSES: &str = "install -D -m 0644 /usr/share/doc/lockwarden/examples/lockwarden-processes.conf \
                                         /etc/systemd/system/lockwarden.service.d/processes.conf && systemctl daemon-reload && \
                                         systemctl restart lockwarden";

#[derive(Default)]
struct Finder {
    inodes: Inodes,
    search: Search,
    programs: Programs,
    sight: Arc<Sight>,
}

impl Finder {
    /// Sets for each of these clients its process, or that it was missed: once, however many callers wait for it. A
    /// client that was missed may have a process; a client without one has none.
    fn look_up<'a>(&mut self, clients: impl Iterator<Item = &'a Arc<ClientConnection>>) {
        let mut asked: Vec<&Arc<ClientConnection>> = clients.collect();
        asked.sort_unstable_by_key(|peer| Arc::as_ptr(peer));
        asked.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let pair = |peer: &ClientConnection| match (peer.process(), peer.client, peer.local) {
            (Process::Pending, PeerAddress::Tcp(client), Some(local)) => Some(Pair::new(client, local)),
            _ => None,
        };
        let pairs: Vec<Pair> = asked.iter().filter_map(|peer| pair(peer)).collect();
        let found = self.locate(&pairs);
        for peer in asked {
            // Ancestors are looked at while the process waits for its reply: it may be gone a moment later.
            if let Some(running) = peer.running() {
                // A client on a unix socket has a known process, but its program is not known.
                let program = self.programs.of(running);
                peer.found(peer.process(), Some((running.clone(), running.lineage())), program);
                continue;
            }
            match pair(peer).and_then(|pair| found.get(&pair)) {
                Some(Located::At(process, running)) => {
                    let program = self.programs.of(running);
                    peer.found(*process, Some((running.clone(), running.lineage_of_living())), program);
                }
                Some(Located::Elsewhere) => peer.found(Process::None, None, None),
                Some(Located::Hidden) => {
                    peer.hidden();
                    self.sight.is_hidden(peer);
                }
                None if peer.process() == Process::Pending => peer.missed(),
                None => {}
            }
        }
    }

    /// The processes behind those connections. A connection that is closed by now has none, and one for which the
    /// search ran out of time is left out as well.
    fn locate(&mut self, pairs: &[Pair]) -> HashMap<Pair, Located> {
        let inodes = self.inodes.of(pairs);
        let found = self.search.find(inodes.values().copied());
        let (mut located, mut missing) = (HashMap::new(), Vec::new());
        for (pair, inode) in inodes {
            match found.processes.get(&inode) {
                Some((process, running)) => {
                    located.insert(pair, Located::At(*process, running.clone()));
                }
                None => missing.push(pair),
            }
        }
        if found.is_complete && !missing.is_empty() {
            // A process may have ended during the search.
            let unseen = match found.is_barred {
                true => Located::Hidden,
                false => Located::Elsewhere,
            };
            let still_there = self.inodes.of(&missing).into_keys();
            located.extend(still_there.map(|pair| (pair, unseen.clone())));
        }
        located
    }

    #[cfg(test)]
    fn find(&mut self, pairs: &[Pair]) -> HashMap<Pair, Process> {
        let process = |located| match located {
            Located::At(process, _) => process,
            Located::Hidden | Located::Elsewhere => Process::None,
        };
        let found = self.locate(pairs).into_iter();
        found.map(|(pair, located)| (pair, process(located))).collect()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
