//! Which process of this machine is at the other end of a loopback connection: the inode of the
//! client's socket (`proc_net.rs`), and whoever has that open (`proc_fd.rs`). Asked on a thread of its own,
//! for many connections at once. It needs `/proc`, the same network namespace, and a process that this
//! user may look into; otherwise there is no answer.

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
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use lockwarden_lock::token::Process;
use tokio::sync::oneshot;

use super::clients::ClientConnection;
use crate::net::peer::PeerAddress;
pub(crate) use lineage::Running;
pub(crate) use namespaces::MACHINE;
use pair::Pair;
use proc_fd::Search;
use proc_net::Inodes;
use program::Programs;

/// Connections that wait to be looked up; one more stays unknown for now.
const MAX_WAITING: usize = 1024;
/// Connections that are looked up in one go.
const BATCH: usize = 256;
/// How long whoever asks waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

struct Wanted {
    peer: Arc<ClientConnection>,
    /// Who waits for the answer.
    done: Option<oneshot::Sender<()>>,
}

/// The way to ask.
pub(crate) struct Processes {
    queue: SyncSender<Wanted>,
}

impl Processes {
    /// Starts the thread, which ends with the last way to ask.
    pub(crate) fn start() -> std::io::Result<Processes> {
        let (queue, wanted) = sync_channel(MAX_WAITING);
        thread::Builder::new()
            .name("lockwarden-processes".into())
            .spawn(move || serve(&wanted))?;
        Ok(Processes { queue })
    }

    /// The process of a client; pending where it could not be found out now.
    pub(crate) async fn of(&self, peer: &Arc<ClientConnection>) -> Process {
        if peer.process() == Process::Pending {
            let (done, answered) = oneshot::channel();
            let wanted = Wanted {
                peer: peer.clone(),
                done: Some(done),
            };
            if self.queue.try_send(wanted).is_ok() {
                // Either way the peer says what is known now.
                let _ = tokio::time::timeout(PATIENCE, answered).await;
            }
        }
        peer.process()
    }

    /// Has the process of a client looked up that is not known yet, for what people know it by. Never waits.
    pub(crate) fn identify(&self, peer: &Arc<ClientConnection>) {
        if !peer.known_by.ask() {
            return;
        }
        let wanted = Wanted {
            peer: peer.clone(),
            done: None,
        };
        if self.queue.try_send(wanted).is_err() {
            peer.known_by.missed();
        }
    }
}

fn serve(wanted: &Receiver<Wanted>) {
    let mut finder = Finder::default();
    while let Ok(first) = wanted.recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(next) = wanted.try_recv()
        {
            batch.push(next);
        }
        finder.look_up(batch.iter().map(|wanted| &wanted.peer));
        for done in batch.into_iter().filter_map(|wanted| wanted.done) {
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
    }
}

#[derive(Default)]
struct Finder {
    inodes: Inodes,
    search: Search,
}

impl Finder {
    /// Tells each of these clients its process, or that it was missed: once, however many wait for it.
    fn look_up<'a>(&mut self, clients: impl Iterator<Item = &'a Arc<ClientConnection>>) {
        let mut asked: Vec<&Arc<ClientConnection>> = clients.collect();
        asked.sort_unstable_by_key(|peer| Arc::as_ptr(peer));
        asked.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let pair = |peer: &ClientConnection| match (peer.process(), peer.client, peer.local) {
            (Process::Pending, PeerAddress::Tcp(client), Some(local)) => {
                Some(Pair::new(client, local))
            }
            _ => None,
        };
        let pairs: Vec<Pair> = asked.iter().filter_map(|peer| pair(peer)).collect();
        let found = self.locate(&pairs);
        let mut programs = Programs::default();
        for peer in asked {
            // One that came by a unix socket is known; its program is not.
            let known = match peer.running() {
                Some(running) => Some((peer.process(), Some(running.clone()))),
                None => pair(peer).and_then(|pair| found.get(&pair).cloned()),
            };
            match known {
                Some((process, running)) => {
                    let told = |running: Running| (running.clone(), programs.of(&running));
                    peer.found(process, running.map(told));
                }
                None if peer.process() == Process::Pending => peer.missed(),
                None => {}
            }
        }
    }

    /// The processes behind those connections. A connection that is closed already has none.
    fn locate(&mut self, pairs: &[Pair]) -> HashMap<Pair, (Process, Option<Running>)> {
        let inodes = self.inodes.of(pairs);
        let processes = self.search.find(inodes.values().copied());
        let process = |(pair, inode)| {
            // A socket that is there and whose process is not found is somebody's that may not be seen.
            let found = processes.get(&inode).cloned();
            let found = found.map_or((Process::None, None), |(process, running)| {
                (process, Some(running))
            });
            (pair, found)
        };
        inodes.into_iter().map(process).collect()
    }

    #[cfg(test)]
    fn find(&mut self, pairs: &[Pair]) -> HashMap<Pair, Process> {
        let found = self.locate(pairs).into_iter();
        found.map(|(pair, (process, _))| (pair, process)).collect()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
