//! What a node of a cluster says of itself and of the others, by `CLUSTER NODES`: which slots it has, in the lowest of which the
//! proxies before it keep what is about no lock; and from where other nodes come that hand keys over to it.

use std::net::IpAddr;

use lockwarden_lock::companion::{Home, SLOTS};

use crate::backend::conversation::{BackendError, Conversation};

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Where the keys stand that are about no lock; `None` where it has no slots.
    pub home: Option<Home>,
    /// Addresses of all nodes.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Asks a node. An error is Redis's own, or says what is wrong with the answer.
pub async fn ask_node(own: &mut Conversation) -> Result<Result<NodeView, String>, BackendError> {
    let answer = own.ask(&["CLUSTER", "NODES"]).await?;
    if let Some(error) = answer.as_error() {
        return Ok(Err(String::from_utf8_lossy(error).into_owned()));
    }
    let view = answer.as_bytes().and_then(|text| read(&String::from_utf8_lossy(text)));
    Ok(view.ok_or_else(|| "CLUSTER NODES does not say which line is about the node itself".to_owned()))
}

/// Whether an error says no more than that the slot of a key is on its way to another node, or not served for a moment.
pub(crate) fn is_of_slot(error: &[u8]) -> bool {
    [&b"MOVED "[..], b"ASK ", b"TRYAGAIN", b"CLUSTERDOWN"].iter().any(|code| error.starts_with(code))
}

/// Reads the answer to `CLUSTER NODES`: a line a node, of its id, address, flags, the id of its primary, three numbers, the
/// state of its link, and its slots. `None` where no line is about the node that was asked.
fn read(nodes: &str) -> Option<NodeView> {
    let is_own =
        |line: &&str| line.split(' ').nth(2).is_some_and(|flags| flags.split(',').any(|flag| flag == "myself"));
    let own = nodes.lines().find(is_own)?;
    let addresses = nodes.lines().filter_map(|line| address(line.split(' ').nth(1)?)).collect();
    Some(NodeView { home: lowest(own.split(' ').skip(8)).map(Home::of_slot), addresses })
}

/// The address in `10.0.0.1:7000@17000,host-1`.
fn address(place: &str) -> Option<IpAddr> {
    let before_bus = place.split('@').next()?;
    let (ip, _) = before_bus.rsplit_once(':')?;
    ip.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// The lowest slot of `0-5460 5462 [93->-id]` that does not move away, as 93 does here; one that does may be gone with its keys.
fn lowest<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Option<u16> {
    let slot = |digits: &str| digits.parse().ok().filter(|slot| *slot < SLOTS);
    let moving = |word: &str| slot(word.strip_prefix('[')?.split_once("->-")?.0);
    let moving: Vec<u16> = words.clone().filter_map(moving).collect();
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(slot(first)?..=slot(last)?)
    };
    let stays = |range: std::ops::RangeInclusive<u16>| range.into_iter().find(|slot| !moving.contains(slot));
    words.filter_map(range).filter_map(stays).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_tells_its_lowest_slot_and_where_the_others_are() {
        let others = "07c3 10.0.0.1:7000@17000,host-1 master - 0 1426238317239 4 connected 0-5460\n\
                      67ed fd00::2:7001@17001 slave 07c3 0 1426238316232 2 connected\n";
        let known: Vec<IpAddr> = ["10.0.0.1", "fd00::2"].map(|ip| ip.parse().unwrap()).to_vec();
        for (own, expected) in [
            ("e7d1 :7002@17002 myself,master - 0 0 2 connected 10923-16383", Some(Some(10_923))),
            (
                "e7d1 host:7002@17002,,tls-port=0,shard-id=69bc myself,master - 0 0 2 connected 9000 42 7-8 [3-<-07c3]",
                Some(Some(7)),
            ),
            ("e7d1 :7002@17002 myself,master - 0 0 2 connected 7-9 [7->-07c3] [8->-07c3]", Some(Some(9))),
            ("e7d1 :7002@17002 myself,master - 0 0 2 connected 7 [7->-07c3]", Some(None)),
            ("e7d1 :7002@17002 myself,master - 0 0 2 connected", Some(None)),
            ("e7d1 :7002@17002 myself,master - 0 0 2 connected 16384 x -1 9-", Some(None)),
            ("e7d1 :7002@17002 master,fail - 0 0 2 connected 0-3", None),
            ("", None),
        ] {
            let expected =
                expected.map(|slot: Option<u16>| NodeView { home: slot.map(Home::of_slot), addresses: known.clone() });
            assert_eq!(read(&[others, own].concat()), expected, "{own}");
            assert_eq!(read(&[own, "\n", others].concat()), expected, "{own}");
        }
    }
}
