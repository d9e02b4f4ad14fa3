//! The connections of one thread: those that sessions share, two of each kind, and those that are kept for the next
//! session that needs one of its own. A kind belongs to one server: with several servers, each has its own. A
//! connection that was not used for a while is closed, so that the backend does not keep connections after a burst of
//! clients.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cluster::ShardId;
use super::profile::{Profile, Traffic};
use super::shared_connection::SharedConnection;
use super::{Backend, Link};

/// Most kinds of shared connections of one thread; clients' needs decide how many there are.
const MAX_KINDS: usize = 64;
/// Connections of one kind that are set aside because nothing comes on them. Beyond this limit new sessions wait with
/// the others: then the server itself stands still.
const MAX_ASIDE: usize = 4;
/// Connections that are kept for the next session that needs one of its own, of each kind.
const MAX_SPARE: usize = 32;
/// For this long after one could not be opened, none is opened that no client needs.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(300);
/// A connection that was not used between two checks is closed.
const LOOK_EVERY: Duration = Duration::from_secs(15);

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// Which server a connection leads to, and how it was opened.
type Key = (ShardId, Profile);

#[derive(Default)]
struct Pool {
    kinds: HashMap<Key, Kind>,
    spare: HashMap<Key, Vec<Spare>>,
    /// Kinds whose shared connection could not be opened lately.
    unopened: HashMap<Key, Instant>,
    /// The task that closes unused connections is running.
    tended: bool,
}

/// The shared connections of one kind.
#[derive(Default)]
struct Kind {
    reads: Option<Rc<SharedConnection>>,
    writes: Option<Rc<SharedConnection>>,
    /// How many are set aside.
    aside: usize,
}

impl Kind {
    fn place(&mut self, traffic: Traffic) -> &mut Option<Rc<SharedConnection>> {
        match traffic {
            Traffic::Reads => &mut self.reads,
            Traffic::Writes => &mut self.writes,
        }
    }

    fn connections(&self) -> impl Iterator<Item = &Rc<SharedConnection>> {
        self.reads.iter().chain(&self.writes)
    }

    fn is_empty(&self) -> bool {
        self.reads.is_none() && self.writes.is_none() && self.aside == 0
    }
}

struct Spare {
    link: Link,
    /// It was there at the last look.
    was_there: bool,
}

/// Keeps a connection that no session needs as its own any more, and that is in the state in which it was opened.
pub(crate) fn keep_spare(shard: ShardId, profile: &Profile, link: Link) {
    POOL.with_borrow_mut(|pool| {
        let key = (shard, profile.clone());
        if pool.spare.len() >= MAX_KINDS && !pool.spare.contains_key(&key) {
            return;
        }
        let spare = pool.spare.entry(key).or_default();
        if spare.len() < MAX_SPARE {
            spare.push(Spare { link, was_there: false });
            pool.tend();
        }
    });
}

/// A connection of this era in the state in which it was opened, if there is one.
pub(crate) fn spare(shard: ShardId, profile: &Profile, era: u64) -> Option<Link> {
    POOL.with_borrow_mut(|pool| {
        let spare = pool.spare.get_mut(&(shard, profile.clone()))?;
        // A connection that was closed meanwhile, or on which something has come, is dropped.
        std::iter::from_fn(|| spare.pop())
            .map(|spare| spare.link)
            .find_map(|mut link| (link.era == era && link.is_quiet()).then_some(link))
    })
}

/// Closes all connections that this thread keeps, while it can still do so: the closing message of TLS is written in
/// memory of the thread.
pub fn close_all() {
    // Outside the borrow of the pool, from which a shared connection may remove itself.
    drop(POOL.take());
}

/// The shared connection of this kind, opened if need be; `None` if there are too many kinds.
pub(super) fn connection(profile: &Profile, traffic: Traffic, backend: &Arc<Backend>) -> Option<Rc<SharedConnection>> {
    POOL.with_borrow_mut(|pool| {
        let era = backend.server.era();
        let key = (backend.shard, profile.clone());
        if !pool.kinds.contains_key(&key) && pool.kinds.len() >= MAX_KINDS && !pool.make_place() {
            return None;
        }
        let place = pool.kinds.entry(key).or_default().place(traffic);
        let connection = match place {
            // A connection of an older era may lead to a server that takes no writes any more.
            Some(connection) if connection.era == era => connection.clone(),
            _ => {
                let connection = SharedConnection::open(profile, traffic, era, backend);
                if let Some(old) = place.replace(connection.clone()) {
                    // Replies that are due on it still come.
                    old.close();
                }
                pool.tend();
                connection
            }
        };
        connection.take_place();
        Some(connection)
    })
}

/// Removes this connection, so that no session finds it any more.
pub(super) fn remove(connection: &Rc<SharedConnection>) {
    POOL.with_borrow_mut(|pool| pool.remove(connection));
}

/// Nothing comes on this connection: new sessions get another, unless too many were set aside before.
pub(super) fn set_aside(connection: &Rc<SharedConnection>) {
    let is_new = POOL.with_borrow_mut(|pool| {
        let kind = pool.kinds.get_mut(&connection.key())?;
        if kind.aside >= MAX_ASIDE || !connection.set_aside() {
            return None;
        }
        kind.aside += 1;
        Some(())
    });
    // Outside the borrow of the pool, from which retiring removes the connection.
    if is_new.is_some() {
        connection.retire();
    }
}

/// This connection could not be opened: a password is not valid any more, or the server accepts no more connections.
pub(super) fn could_not_be_opened(connection: &SharedConnection) {
    POOL.with_borrow_mut(|pool| {
        let now = Instant::now();
        pool.unopened.retain(|_, at| now.duration_since(*at) < PAUSE_AFTER_FAILURE);
        if pool.unopened.len() < MAX_KINDS {
            pool.unopened.insert(connection.key(), now);
        }
    });
}

/// Whether a connection of its kind may be opened before it is needed.
pub(super) fn may_be_opened(connection: &SharedConnection) -> bool {
    POOL.with_borrow(|pool| {
        let at = pool.unopened.get(&connection.key());
        at.is_none_or(|at| at.elapsed() >= PAUSE_AFTER_FAILURE)
    })
}

/// This connection is closed.
pub(super) fn ended(connection: &Rc<SharedConnection>) {
    if !connection.is_aside() {
        return;
    }
    POOL.with_borrow_mut(|pool| {
        if let Some(kind) = pool.kinds.get_mut(&connection.key()) {
            kind.aside -= 1;
        }
        pool.remove(connection);
    });
}

/// Closes what was not used since the last call; returns whether nothing is left.
fn look() -> bool {
    POOL.with_borrow_mut(|pool| {
        for spare in pool.spare.values_mut() {
            spare.retain_mut(|spare| !spare.was_there && spare.link.is_quiet());
            for spare in spare {
                spare.was_there = true;
            }
        }
        pool.spare.retain(|_, spare| !spare.is_empty());
        for kind in pool.kinds.values_mut() {
            kind.reads.take_if(|connection| connection.close_if_unused());
            kind.writes.take_if(|connection| connection.close_if_unused());
        }
        pool.kinds.retain(|_, kind| !kind.is_empty());
        pool.tended = !(pool.spare.is_empty() && pool.kinds.is_empty());
        !pool.tended
    })
}

impl Pool {
    fn remove(&mut self, connection: &Rc<SharedConnection>) {
        let key = connection.key();
        let Some(kind) = self.kinds.get_mut(&key) else {
            return;
        };
        kind.place(connection.traffic).take_if(|now| Rc::ptr_eq(now, connection));
        if kind.is_empty() {
            self.kinds.remove(&key);
        }
    }

    /// Closes the connections of one kind that no session uses; returns whether there was such a kind.
    fn make_place(&mut self) -> bool {
        let is_unused = |kind: &Kind| kind.aside == 0 && kind.connections().all(|connection| connection.is_free());
        let unused = self.kinds.iter().find(|(_, kind)| is_unused(kind));
        let Some(key) = unused.map(|(key, _)| key.clone()) else {
            return false;
        };
        if let Some(kind) = self.kinds.remove(&key) {
            kind.connections().for_each(|connection| connection.close());
        }
        true
    }

    fn tend(&mut self) {
        if self.tended {
            return;
        }
        self.tended = true;
        tokio::task::spawn_local(async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if look() {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::Interest;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::LocalSet;

    use super::*;

    async fn link() -> (Link, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let near = near.unwrap();
        // The event loop must have seen it, or every check says that it may be read.
        near.writable().await.unwrap();
        (Link::uncounted(near.into()), far.unwrap().0)
    }

    fn profile(db: u32) -> Profile {
        Profile { db, ..Profile::plain() }
    }

    #[tokio::test]
    async fn a_spare_connection_goes_to_who_needs_the_same_kind_and_to_nobody_twice() {
        LocalSet::new()
            .run_until(async {
                let (near, _far) = link().await;
                keep_spare(ShardId::FIRST, &profile(1), near);
                assert!(spare(ShardId::FIRST, &profile(0), 0).is_none());
                assert!(spare(ShardId::FIRST, &profile(1), 0).is_some());
                assert!(spare(ShardId::FIRST, &profile(1), 0).is_none());
            })
            .await;
    }

    #[tokio::test]
    async fn a_spare_connection_on_which_something_was_said_or_that_was_closed_is_dropped() {
        LocalSet::new()
            .run_until(async {
                let (quiet, _quiet_far) = link().await;
                let (talking, talking_far) = link().await;
                let (closed, closed_far) = link().await;
                let port = quiet.stream.local_ip();
                talking_far.try_write(b"-ERR\r\n").unwrap();
                drop(closed_far);
                talking.stream.ready(Interest::READABLE).await.unwrap();
                closed.stream.ready(Interest::READABLE).await.unwrap();
                for link in [quiet, talking, closed] {
                    keep_spare(ShardId::FIRST, &profile(0), link);
                }
                let found = spare(ShardId::FIRST, &profile(0), 0).expect("the quiet one");
                assert_eq!(found.stream.local_ip(), port);
                assert!(spare(ShardId::FIRST, &profile(0), 0).is_none());
            })
            .await;
    }

    #[tokio::test]
    async fn what_was_not_used_between_two_looks_is_closed() {
        LocalSet::new()
            .run_until(async {
                let (near, _far) = link().await;
                keep_spare(ShardId::FIRST, &profile(0), near);
                assert!(!look());
                // Used: it counts as new.
                let near = spare(ShardId::FIRST, &profile(0), 0).expect("it is still there");
                keep_spare(ShardId::FIRST, &profile(0), near);
                assert!(!look());
                assert!(look(), "nothing is left to look after");
                assert!(spare(ShardId::FIRST, &profile(0), 0).is_none());
            })
            .await;
    }

    #[tokio::test]
    async fn only_so_many_are_kept() {
        LocalSet::new()
            .run_until(async {
                let mut far = Vec::new();
                for _ in 0..MAX_SPARE + 1 {
                    let (near, other) = link().await;
                    far.push(other);
                    keep_spare(ShardId::FIRST, &profile(0), near);
                }
                let kept = std::iter::from_fn(|| spare(ShardId::FIRST, &profile(0), 0)).count();
                assert_eq!(kept, MAX_SPARE);
            })
            .await;
    }
}
