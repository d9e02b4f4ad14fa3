//! What a node of a cluster reports of itself and of the others: which slots it has, in the lowest of which the
//! proxies keep the keys that belong to no lock; and the addresses of other nodes, which hand keys over to it.

use std::net::IpAddr;

use lockwarden_lock::companion::Home;

use crate::backend::cluster::nodes::{self, NodeLine};
use crate::backend::conversation::{BackendError, Conversation};

/// What a node reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Where the keys are kept that belong to no lock; `None` if it has no slots.
    pub home: Option<Home>,
    /// Addresses of all nodes.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Asks a node for its report.
pub async fn ask_node(own: &mut Conversation) -> Result<Result<NodeView, String>, BackendError> {
    let view = |nodes: Vec<NodeLine>| {
        of(&nodes).ok_or_else(|| "CLUSTER NODES does not say which line is about the node itself".to_owned())
    };
    Ok(nodes::ask(own).await?.and_then(view))
}

/// Whether an error only says that the slot of a key is being moved to another node, or is not served for a moment.
pub(crate) fn is_of_slot(error: &[u8]) -> bool {
    [&b"MOVED "[..], b"ASK ", b"TRYAGAIN", b"CLUSTERDOWN"].iter().any(|code| error.starts_with(code))
}

/// `None` if no line is about the node that was asked.
fn of(nodes: &[NodeLine]) -> Option<NodeView> {
    let own = nodes.iter().find(|node| node.is_asked)?;
    let addresses = nodes.iter().filter_map(NodeLine::address).collect();
    Some(NodeView { home: lowest(own).map(Home::of_slot), addresses })
}

/// Its lowest slot that is not being moved away; one that is may be gone with its keys.
fn lowest(node: &NodeLine) -> Option<u16> {
    let stays = |range: &std::ops::RangeInclusive<u16>| range.clone().find(|slot| !node.leaving.contains(slot));
    node.slots.iter().filter_map(stays).min()
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
            for text in [[others, own].concat(), [own, "\n", others].concat()] {
                assert_eq!(nodes::read(&text).and_then(|nodes| of(&nodes)), expected, "{own}");
            }
        }
    }
}
