//! What a node of a cluster says of itself: which slots it has, by the one line of `CLUSTER NODES` that is about it. Its
//! lowest slot is where the proxies before it keep what is about no lock.

use lockwarden_lock::companion::{Home, SLOTS};
use lockwarden_resp::Value;

use crate::backend::conversation::{BackendError, Conversation};

/// What a node says of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// This is the lowest.
    From(u16),
    /// It has none.
    None,
}

/// Asks a node. An error is Redis's own.
pub async fn ask_home(own: &mut Conversation) -> Result<Result<Option<Home>, String>, BackendError> {
    let answer = own.ask(&["CLUSTER", "NODES"]).await?;
    if let Some(error) = answer.as_error() {
        return Ok(Err(String::from_utf8_lossy(error).into_owned()));
    }
    let Value::Bulk(text) = &answer else {
        return Ok(Err("CLUSTER NODES was answered with no text".to_owned()));
    };
    Ok(match read(&String::from_utf8_lossy(text)) {
        Some(Served::From(slot)) => Ok(Some(Home::of_slot(slot))),
        Some(Served::None) => Ok(None),
        None => Err("CLUSTER NODES does not say which line is about the node itself".to_owned()),
    })
}

/// Reads the answer to `CLUSTER NODES`: a line a node, of its id, address, flags, the id of its primary, three numbers, the
/// state of its link, and its slots. `None` where no line is about the node that was asked.
fn read(nodes: &str) -> Option<Served> {
    let is_own =
        |line: &&str| line.split(' ').nth(2).is_some_and(|flags| flags.split(',').any(|flag| flag == "myself"));
    let own = nodes.lines().find(is_own)?;
    let lowest = own.split(' ').skip(8).filter_map(first_slot).min();
    Some(lowest.map_or(Served::None, Served::From))
}

/// The first slot of `0-5460` or `5461`; a slot that moves, `[93->-…]`, stands among the others for as long as it is this node's.
fn first_slot(range: &str) -> Option<u16> {
    let first = range.split_once('-').map_or(range, |(first, _)| first);
    first.parse().ok().filter(|slot| *slot < SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_tells_its_lowest_slot() {
        let others = "07c3 10.0.0.1:7000@17000,host-1 master - 0 1426238317239 4 connected 0-5460\n\
                      67ed 10.0.0.2:7001@17001 slave 07c3 0 1426238316232 2 connected\n";
        for (own, expected) in [
            ("e7d1 :7002@17002 myself,master - 0 0 2 connected 10923-16383", Some(Served::From(10_923))),
            (
                "e7d1 10.0.0.3:7002@17002,,tls-port=0,shard-id=69bc myself,master - 0 0 2 connected 9000 42 7-8 [93-<-07c3]",
                Some(Served::From(7)),
            ),
            ("e7d1 10.0.0.3:7002@17002 myself,master - 0 0 2 connected", Some(Served::None)),
            ("e7d1 10.0.0.3:7002@17002 myself,master - 0 0 2 connected 16384 x -1", Some(Served::None)),
            ("e7d1 10.0.0.3:7002@17002 master,fail - 0 0 2 connected 0-3", None),
            ("", None),
        ] {
            assert_eq!(read(&[others, own].concat()), expected, "{own}");
            assert_eq!(read(&[own, "\n", others].concat()), expected, "{own}");
        }
    }
}
