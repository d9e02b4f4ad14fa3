//! The connections of one thread: those that sessions share, two of each kind, and those that are kept
//! for the next session that needs one of its own. What nobody has used for a while is closed, so that
//! a burst of clients does not go on costing the backend connections.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::profile::{Lane, Traffic};
use super::shared_connection::Trunk;
use super::{Backend, Link};

/// Kinds of shared connections of one thread: as many as clients need.
const MOST_KINDS: usize = 64;
/// Connections of one kind that are set aside because nothing comes on them. Above that newcomers wait
/// with the others: it is the server that stands still.
const MAX_ASIDE: usize = 4;
/// Connections that are kept for the next session that needs one of its own, of each kind.
const MOST_SPARE: usize = 32;
/// What was not used from one look to the next is closed.
const LOOK_EVERY: Duration = Duration::from_secs(15);

thread_local! {
    static YARD: RefCell<Yard> = RefCell::default();
}

#[derive(Default)]
struct Yard {
    kinds: HashMap<Lane, Kind>,
    spare: HashMap<Lane, Vec<Spare>>,
    /// Somebody looks after it.
    tended: bool,
}

/// The shared connections of one kind.
#[derive(Default)]
struct Kind {
    reads: Option<Rc<Trunk>>,
    writes: Option<Rc<Trunk>>,
    /// How many are set aside.
    aside: usize,
}

impl Kind {
    fn place(&mut self, traffic: Traffic) -> &mut Option<Rc<Trunk>> {
        match traffic {
            Traffic::Reads => &mut self.reads,
            Traffic::Writes => &mut self.writes,
        }
    }

    fn trunks(&self) -> impl Iterator<Item = &Rc<Trunk>> {
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

/// A connection that nobody needs any more as his own, and that is as it was when it was opened.
pub(crate) fn keep_spare(lane: &Lane, link: Link) {
    YARD.with_borrow_mut(|yard| {
        if yard.spare.len() >= MOST_KINDS && !yard.spare.contains_key(lane) {
            return;
        }
        let spare = yard.spare.entry(lane.clone()).or_default();
        if spare.len() < MOST_SPARE {
            spare.push(Spare {
                link,
                was_there: false,
            });
            yard.tend();
        }
    });
}

/// A connection of this era that is as it was when it was opened, if there is one.
pub(crate) fn spare(lane: &Lane, era: u64) -> Option<Link> {
    YARD.with_borrow_mut(|yard| {
        let spare = yard.spare.get_mut(lane)?;
        // One that was closed meanwhile, or on which something was said, is dropped.
        std::iter::from_fn(|| spare.pop())
            .map(|spare| spare.link)
            .find(|link| link.era == era && link.is_quiet())
    })
}

/// A place on the trunk of this kind, opened if need be; `None` where there are too many kinds.
pub(super) fn trunk(lane: &Lane, traffic: Traffic, backend: &Arc<Backend>) -> Option<Rc<Trunk>> {
    YARD.with_borrow_mut(|yard| {
        let era = backend.server.era();
        if !yard.kinds.contains_key(lane) {
            if yard.kinds.len() >= MOST_KINDS && !yard.make_place() {
                return None;
            }
            yard.kinds.insert(lane.clone(), Kind::default());
        }
        let place = yard.kinds.get_mut(lane)?.place(traffic);
        let trunk = match place {
            Some(trunk) if trunk.era == era => trunk.clone(),
            _ => {
                let trunk = Trunk::open(lane, traffic, era, backend);
                if let Some(old) = place.replace(trunk.clone()) {
                    old.close();
                }
                yard.tend();
                trunk
            }
        };
        trunk.take_place();
        Some(trunk)
    })
}

/// Nobody finds this trunk any more.
pub(super) fn remove(trunk: &Rc<Trunk>) {
    YARD.with_borrow_mut(|yard| yard.remove(trunk));
}

/// Nothing comes on this trunk: newcomers get another, where not too many were set aside before.
pub(super) fn set_aside(trunk: &Rc<Trunk>) {
    let is_new = YARD.with_borrow_mut(|yard| {
        let kind = yard.kinds.get_mut(&trunk.lane)?;
        if kind.aside >= MAX_ASIDE || !trunk.set_aside() {
            return None;
        }
        kind.aside += 1;
        Some(())
    });
    if is_new.is_some() {
        trunk.retire();
    }
}

/// This trunk is closed.
pub(super) fn ended(trunk: &Rc<Trunk>) {
    if !trunk.is_aside() {
        return;
    }
    YARD.with_borrow_mut(|yard| {
        if let Some(kind) = yard.kinds.get_mut(&trunk.lane) {
            kind.aside -= 1;
        }
        yard.remove(trunk);
    });
}

/// Closes what was not used since it was called last; answers whether nothing is left.
fn look() -> bool {
    YARD.with_borrow_mut(|yard| {
        for spare in yard.spare.values_mut() {
            spare.retain(|spare| !spare.was_there && spare.link.is_quiet());
            for spare in spare {
                spare.was_there = true;
            }
        }
        yard.spare.retain(|_, spare| !spare.is_empty());
        for kind in yard.kinds.values_mut() {
            kind.reads.take_if(|trunk| trunk.close_if_unused());
            kind.writes.take_if(|trunk| trunk.close_if_unused());
        }
        yard.kinds.retain(|_, kind| !kind.is_empty());
        yard.tended = !(yard.spare.is_empty() && yard.kinds.is_empty());
        !yard.tended
    })
}

impl Yard {
    fn remove(&mut self, trunk: &Rc<Trunk>) {
        let Some(kind) = self.kinds.get_mut(&trunk.lane) else {
            return;
        };
        kind.place(trunk.traffic)
            .take_if(|now| Rc::ptr_eq(now, trunk));
        if kind.is_empty() {
            self.kinds.remove(&trunk.lane);
        }
    }

    /// Closes the trunks of one kind on which no session has a place; answers whether there was one.
    fn make_place(&mut self) -> bool {
        let is_unused = |kind: &Kind| kind.aside == 0 && kind.trunks().all(|trunk| trunk.is_free());
        let unused = self.kinds.iter().find(|(_, kind)| is_unused(kind));
        let Some(lane) = unused.map(|(lane, _)| lane.clone()) else {
            return false;
        };
        if let Some(kind) = self.kinds.remove(&lane) {
            kind.trunks().for_each(|trunk| trunk.close());
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
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::LocalSet;

    use super::*;

    async fn link() -> (Link, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let near = near.unwrap();
        // The event loop has to have seen it, or every look says that it may be read.
        near.writable().await.unwrap();
        (Link::uncounted(near), far.unwrap().0)
    }

    fn lane(db: u32) -> Lane {
        Lane {
            db,
            ..Lane::plain()
        }
    }

    #[tokio::test]
    async fn a_spare_connection_goes_to_who_needs_the_same_kind_and_to_nobody_twice() {
        LocalSet::new()
            .run_until(async {
                let (near, _far) = link().await;
                keep_spare(&lane(1), near);
                assert!(spare(&lane(0), 0).is_none());
                assert!(spare(&lane(1), 0).is_some());
                assert!(spare(&lane(1), 0).is_none());
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
                let port = quiet.stream.local_addr().unwrap();
                talking_far.try_write(b"-ERR\r\n").unwrap();
                drop(closed_far);
                talking.stream.readable().await.unwrap();
                closed.stream.readable().await.unwrap();
                for link in [quiet, talking, closed] {
                    keep_spare(&lane(0), link);
                }
                let found = spare(&lane(0), 0).expect("the quiet one");
                assert_eq!(found.stream.local_addr().unwrap(), port);
                assert!(spare(&lane(0), 0).is_none());
            })
            .await;
    }

    #[tokio::test]
    async fn what_was_not_used_between_two_looks_is_closed() {
        LocalSet::new()
            .run_until(async {
                let (near, _far) = link().await;
                keep_spare(&lane(0), near);
                assert!(!look());
                // Used: it counts as new.
                let near = spare(&lane(0), 0).expect("it is still there");
                keep_spare(&lane(0), near);
                assert!(!look());
                assert!(look(), "nothing is left to look after");
                assert!(spare(&lane(0), 0).is_none());
            })
            .await;
    }

    #[tokio::test]
    async fn only_so_many_are_kept() {
        LocalSet::new()
            .run_until(async {
                let mut far = Vec::new();
                for _ in 0..MOST_SPARE + 1 {
                    let (near, other) = link().await;
                    far.push(other);
                    keep_spare(&lane(0), near);
                }
                let kept = std::iter::from_fn(|| spare(&lane(0), 0)).count();
                assert_eq!(kept, MOST_SPARE);
            })
            .await;
    }
}
