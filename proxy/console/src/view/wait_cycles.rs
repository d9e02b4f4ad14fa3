//! Circles of waiters: one client holds the lock that another polls, which holds the lock that the first polls, with any number
//! of clients. Found by walking from waiter to holder, up to a bound. A connection that polls probably does nothing else, but
//! that is not certain: a circle is a finding, not a proof.

use std::collections::HashMap;
use std::sync::Arc;

use lockwarden_control::telemetry::events::{Caller, SessionNumber};
use lockwarden_lock::db_key::DbKey;

/// Waits that are followed in one search.
pub(super) const MAX_EDGES: usize = 16_384;
/// Reported circles.
const MAX_CIRCLES: usize = 64;

/// A connection polls a lock that another connection holds.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) waiter: Arc<Caller>,
    pub(super) key: DbKey,
    pub(super) holder: SessionNumber,
    /// When both the wait and the lease had begun, Unix ms.
    pub(super) since_ms: u64,
}

/// A circle, as the edges that make it, in order; the smallest connection number first.
#[derive(Clone, Debug)]
pub(super) struct Circle {
    pub(super) edges: Vec<Edge>,
}

impl Circle {
    /// When it was closed, Unix ms.
    pub(super) fn since_ms(&self) -> u64 {
        let begun = self.edges.iter().map(|edge| edge.since_ms);
        begun.max().unwrap_or(0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// On the current path.
    OnTheWay,
    Done,
}

/// At least one circle of each connected group of waiters.
pub(super) fn circles(edges: &[Edge]) -> Vec<Circle> {
    let mut from: HashMap<SessionNumber, Vec<usize>> = HashMap::new();
    for (place, edge) in edges.iter().enumerate().take(MAX_EDGES) {
        from.entry(edge.waiter.session).or_default().push(place);
    }
    let mut starts: Vec<SessionNumber> = from.keys().copied().collect();
    // Sorted, so that the same waiters give the same circles every time.
    starts.sort_unstable();
    let mut marks: HashMap<SessionNumber, Mark> = HashMap::new();
    let mut found = Vec::new();
    for start in starts {
        if !marks.contains_key(&start) {
            walk(start, edges, &from, &mut marks, &mut found);
        }
        if found.len() >= MAX_CIRCLES {
            break;
        }
    }
    found.truncate(MAX_CIRCLES);
    found
}

/// Depth first, without recursion: a chain of waiters may be long.
fn walk(
    start: SessionNumber,
    edges: &[Edge],
    from: &HashMap<SessionNumber, Vec<usize>>,
    marks: &mut HashMap<SessionNumber, Mark>,
    found: &mut Vec<Circle>,
) {
    // Each connection on the path, with the place of its next edge; `way` has the edges between them.
    let mut stack = vec![(start, 0)];
    let mut way: Vec<usize> = Vec::new();
    marks.insert(start, Mark::OnTheWay);
    while let Some((node, next)) = stack.last_mut() {
        let outgoing = from.get(node).map_or(&[][..], Vec::as_slice);
        let Some(place) = outgoing.get(*next) else {
            marks.insert(*node, Mark::Done);
            stack.pop();
            way.pop();
            continue;
        };
        *next += 1;
        let holder = edges[*place].holder;
        match marks.get(&holder) {
            Some(Mark::Done) => {}
            Some(Mark::OnTheWay) => {
                let begin = stack.iter().position(|(node, _)| *node == holder);
                let between = way.get(begin.unwrap_or(0)..).unwrap_or_default();
                let places = between.iter().chain(std::iter::once(place));
                found.push(circle(places.map(|place| edges[*place].clone()).collect()));
            }
            None => {
                marks.insert(holder, Mark::OnTheWay);
                way.push(*place);
                stack.push((holder, 0));
            }
        }
    }
}

fn circle(mut edges: Vec<Edge>) -> Circle {
    let first = (0..edges.len()).min_by_key(|place| edges[*place].waiter.session);
    edges.rotate_left(first.unwrap_or(0));
    Circle { edges }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn edge(waiter: u64, key: &'static str, holder: u64) -> Edge {
        Edge {
            waiter: Arc::new(Caller {
                session: SessionNumber(waiter),
                address: ([127, 0, 0, 1], 1).into(),
                name: Bytes::new(),
                user: Bytes::new(),
                library: None,
                known_by: Arc::default(),
            }),
            key: DbKey::new(0, key.as_bytes()),
            holder: SessionNumber(holder),
            since_ms: waiter * 10,
        }
    }

    fn told(edges: &[Edge]) -> Vec<Vec<u64>> {
        let of = |circle: Circle| circle.edges.iter().map(|edge| edge.waiter.session.0).collect();
        circles(edges).into_iter().map(of).collect()
    }

    #[test]
    fn circles_of_any_length_are_found_and_chains_are_none() {
        assert_eq!(told(&[edge(1, "b", 2), edge(2, "a", 1)]), [[1, 2]]);
        assert_eq!(told(&[edge(7, "a", 7)]), [[7]]);
        assert_eq!(told(&[edge(3, "a", 1), edge(1, "b", 2), edge(2, "c", 3), edge(4, "a", 1)]), [[1, 2, 3]]);
        let chain: Vec<Edge> = (1..10_000).map(|one| edge(one, "a", one + 1)).collect();
        assert!(circles(&chain).is_empty());
        let closed: Vec<Edge> = (0..10_000).map(|one| edge(one, "a", (one + 1) % 10_000)).collect();
        assert_eq!(told(&closed)[0].len(), 10_000);
    }

    #[test]
    fn two_circles_that_share_a_connection_are_both_found() {
        let edges = [edge(1, "b", 2), edge(2, "a", 1), edge(1, "c", 3), edge(3, "a", 1)];
        assert_eq!(told(&edges), [vec![1, 2], vec![1, 3]]);
    }

    #[test]
    fn a_circle_is_as_old_as_the_wait_that_closed_it() {
        let found = circles(&[edge(1, "b", 2), edge(2, "a", 1)]);
        assert_eq!(found[0].since_ms(), 20);
    }

    #[test]
    fn very_many_circles_are_cut() {
        let edges: Vec<Edge> = (0..1_000).map(|one| edge(one, "a", one)).collect();
        assert_eq!(circles(&edges).len(), MAX_CIRCLES);
    }
}
