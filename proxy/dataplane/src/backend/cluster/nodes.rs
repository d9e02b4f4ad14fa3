//! What a node of a cluster reports by `CLUSTER NODES`: one line for each node, with its id, address, flags, the id
//! of its primary, two times, its config epoch, the state of its link, and its slots.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use lockwarden_lock::companion::SLOTS;

use crate::backend::conversation::{BackendError, Conversation};

/// A report of more nodes than this is not trusted.
pub(crate) const MAX_NODES: usize = 1_000;

/// What is reported of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeLine {
    pub(crate) id: String,
    /// Empty if the node that was asked does not know its own address.
    pub(crate) ip: String,
    /// The name that it announces, if it announces one.
    pub(crate) name: Option<String>,
    pub(crate) port: u16,
    /// It is the node that was asked.
    pub(crate) is_asked: bool,
    pub(crate) is_primary: bool,
    /// The nodes have agreed that it has failed.
    pub(crate) has_failed: bool,
    /// The id of the primary that it replicates.
    pub(crate) follows: Option<String>,
    /// If two nodes claim a slot, the one with the higher epoch has it.
    pub(crate) epoch: u64,
    pub(crate) slots: Vec<RangeInclusive<u16>>,
    /// Those of its slots that are being moved away.
    pub(crate) leaving: Vec<u16>,
}

impl NodeLine {
    /// Its IP address, if it was reported.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.ip.parse().ok().map(|ip: IpAddr| ip.to_canonical())
    }

    /// Reads a line; `None` if it is no valid line, or for a node whose address is not known.
    fn read(line: &str) -> Option<NodeLine> {
        let mut words = line.split(' ');
        let (id, place, flags, follows) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let mut words = words.skip(2);
        let epoch = words.next()?.parse().ok()?;
        let slots: Vec<&str> = words.skip(1).collect();
        let (address, announced) = place.split_once('@')?;
        let (ip, port) = address.rsplit_once(':')?;
        let name = announced.split(',').nth(1).filter(|name| !name.is_empty() && !name.contains('='));
        let has = |wanted: &str| flags.split(',').any(|flag| flag == wanted);
        if has("noaddr") || has("handshake") {
            return None;
        }
        Some(NodeLine {
            id: id.to_owned(),
            ip: ip.trim_matches(['[', ']']).to_owned(),
            name: name.map(str::to_owned),
            port: port.parse().ok()?,
            is_asked: has("myself"),
            is_primary: has("master"),
            has_failed: has("fail"),
            follows: Some(follows).filter(|id| *id != "-").map(str::to_owned),
            epoch,
            leaving: slots.iter().filter_map(|word| leaving(word)).collect(),
            slots: slots.into_iter().filter_map(range).collect(),
        })
    }
}

/// Reads the whole reply. `None` if it reports no node, or more than there can be.
pub(crate) fn read(text: &str) -> Option<Vec<NodeLine>> {
    let nodes: Vec<NodeLine> = text.lines().take(MAX_NODES + 1).filter_map(NodeLine::read).collect();
    (!nodes.is_empty() && nodes.len() <= MAX_NODES).then_some(nodes)
}

/// Asks a node for what it knows of all nodes. An error is Redis's own, or says what is wrong with the reply.
pub(crate) async fn ask(own: &mut Conversation) -> Result<Result<Vec<NodeLine>, String>, BackendError> {
    let answer = own.ask(&["CLUSTER", "NODES"]).await?;
    if let Some(error) = answer.as_error() {
        return Ok(Err(String::from_utf8_lossy(error).into_owned()));
    }
    let nodes = answer.as_bytes().and_then(|text| read(&String::from_utf8_lossy(text)));
    Ok(nodes.ok_or_else(|| "CLUSTER NODES tells of no node".to_owned()))
}

fn slot(digits: &str) -> Option<u16> {
    digits.parse().ok().filter(|slot| *slot < SLOTS)
}

/// `0-5460` or `5462`.
fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(slot(first)?..=slot(last)?)
}

/// 93 in `[93->-id]`.
fn leaving(word: &str) -> Option<u16> {
    slot(word.strip_prefix('[')?.split_once("->-")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_each_server_writes_it() {
        let node = |id: &str, ip: &str, port, epoch| NodeLine {
            id: id.to_owned(),
            ip: ip.to_owned(),
            name: None,
            port,
            is_asked: false,
            is_primary: true,
            has_failed: false,
            follows: None,
            epoch,
            slots: Vec::new(),
            leaving: Vec::new(),
        };
        for (line, expected) in [
            (
                "07c3 10.0.0.1:7000@17000,host-1 master - 0 1426238317239 4 connected 0-5460 9 [93->-e7d1] [94-<-e7d1]",
                Some(NodeLine {
                    name: Some("host-1".to_owned()),
                    slots: vec![0..=5460, 9..=9],
                    leaving: vec![93],
                    ..node("07c3", "10.0.0.1", 7000, 4)
                }),
            ),
            (
                "67ed fd00::2:7001@17001,,tls-port=0,shard-id=69bc slave,fail 07c3 0 1426238316232 2 disconnected",
                Some(NodeLine {
                    is_primary: false,
                    has_failed: true,
                    follows: Some("07c3".to_owned()),
                    ..node("67ed", "fd00::2", 7001, 2)
                }),
            ),
            (
                "e7d1 :7002@17002 myself,master - 0 0 2 connected 16384 x -1 9-",
                Some(NodeLine { is_asked: true, ..node("e7d1", "", 7002, 2) }),
            ),
            ("e7d1 10.0.0.1:7002@17002 master,noaddr - 0 0 2 connected 0-3", None),
            ("e7d1 10.0.0.1:7002@17002 master - 0 0 many connected 0-3", None),
            ("e7d1 10.0.0.1:x@17002 master - 0 0 2 connected 0-3", None),
            ("e7d1 10.0.0.1 master", None),
            ("", None),
        ] {
            assert_eq!(NodeLine::read(line), expected, "{line}");
            assert_eq!(read(line), expected.map(|node| vec![node]), "{line}");
        }
        let many = "07c3 10.0.0.1:7000@17000 master - 0 0 4 connected\n".repeat(MAX_NODES + 1);
        assert_eq!(read(&many), None);
    }
}
