//! Texts at one end of a key, found by walking the key once: a tree in which every branch is the part that some texts
//! share. Owns the tree; [`crate::namespace`] knows the meaning of the texts, here numbers of globs.

use std::ops::Range;

use crate::glob::{ends_with, starts_with};

/// The end of a key at which the texts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Beginning,
    Ending,
}

/// Texts that keys may begin with, or end with, each with some numbers.
#[derive(Clone, Debug)]
pub(super) struct Index {
    end: End,
    /// The children of each node are adjacent, ascending by the first byte of their labels.
    nodes: Vec<Node>,
    /// For each node, the byte of its label that a walk meets first.
    firsts: Vec<u8>,
    top: Range<u32>,
    /// All labels, concatenated.
    text: Vec<u8>,
    /// The numbers of each node are adjacent, ascending.
    numbers: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Node {
    /// The part that its texts have beyond its parent's, in writing order.
    label: Range<u32>,
    /// The numbers of the texts that end here.
    numbers: Range<u32>,
    children: Range<u32>,
}

impl Index {
    /// Builds the index of non-empty texts, each with its number.
    pub(super) fn new<'a>(end: End, texts: impl Iterator<Item = (&'a [u8], u32)>) -> Index {
        let mut texts: Vec<Text> = texts.map(|(text, number)| (in_order(end, text), number)).collect();
        texts.sort_unstable();
        let mut index =
            Index { end, nodes: Vec::new(), firsts: Vec::new(), top: 0..0, text: Vec::new(), numbers: Vec::new() };
        index.add(&texts);
        index
    }

    /// Calls `each` with the numbers of every text that the key begins, or ends, with: the shortest
    /// text first, its numbers ascending.
    #[inline]
    pub(super) fn walk(&self, key: &[u8], mut each: impl FnMut(&[u32])) {
        let (mut rest, mut children) = (key, self.top.clone());
        while let Some(node) = self.child(children, rest) {
            let label = &self.text[span(&node.label)];
            let further = match self.end {
                End::Beginning if starts_with(rest, label) => &rest[label.len()..],
                End::Ending if ends_with(rest, label) => &rest[..rest.len() - label.len()],
                End::Beginning | End::Ending => return,
            };
            if !node.numbers.is_empty() {
                each(&self.numbers[span(&node.numbers)]);
            }
            (rest, children) = (further, node.children.clone());
        }
    }

    /// The first bytes, in the order of a walk, of all texts.
    pub(super) fn first_bytes(&self) -> impl Iterator<Item = u8> {
        self.firsts[span(&self.top)].iter().copied()
    }

    #[inline]
    fn child(&self, among: Range<u32>, rest: &[u8]) -> Option<&Node> {
        let first = match self.end {
            End::Beginning => rest.first()?,
            End::Ending => rest.last()?,
        };
        let among = span(&among);
        let firsts = &self.firsts[among.clone()];
        let at = if firsts.len() <= FEW {
            firsts.iter().position(|byte| byte == first)?
        } else {
            firsts.binary_search(first).ok()?
        };
        Some(&self.nodes[among.start + at])
    }

    /// Adds the nodes for sorted, non-empty texts.
    fn add(&mut self, texts: &[Text]) {
        let mut below = vec![(None, texts, 0)];
        while let Some((parent, texts, shared)) = below.pop() {
            let begin = self.nodes.len();
            // Each of these texts is longer than what they share.
            for texts in texts.chunk_by(|a, b| a.0[shared] == b.0[shared]) {
                let node = self.add_node(texts, shared);
                let longer = &texts[node.numbers.len()..];
                below.push((Some(self.nodes.len()), longer, shared + node.label.len()));
                self.nodes.push(node);
                self.firsts.push(texts[0].0[shared]);
            }
            let added = range(begin, self.nodes.len());
            match parent {
                Some(parent) => self.nodes[parent].children = added,
                None => self.top = added,
            }
        }
    }

    /// For texts that share one more byte: the node for everything that they share.
    fn add_node(&mut self, texts: &[Text], shared: usize) -> Node {
        // They are sorted: what the first and the last share, all share.
        let (first, last) = (&texts[0].0[shared..], &texts[texts.len() - 1].0[shared..]);
        let length = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let (label, numbers) = (self.text.len(), self.numbers.len());
        self.text.extend(in_order(self.end, &first[..length]));
        let whole = texts.iter().take_while(|(text, _)| text.len() == shared + length);
        self.numbers.extend(whole.map(|(_, number)| number));
        Node { label: range(label, self.text.len()), numbers: range(numbers, self.numbers.len()), children: 0..0 }
    }
}

/// A text in walking order, and its number.
type Text = (Vec<u8>, u32);

/// Up to this many children, a linear search is faster than a binary one.
const FEW: usize = 16;

/// Converts a text to walking order, and back.
fn in_order(end: End, text: &[u8]) -> Vec<u8> {
    match end {
        End::Beginning => text.to_vec(),
        End::Ending => text.iter().rev().copied().collect(),
    }
}

#[inline]
fn span(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// # Panics
/// Beyond 4 GiB of globs.
fn range(start: usize, end: usize) -> Range<u32> {
    let number = |at| u32::try_from(at).expect("a configuration has less than 4 GiB");
    number(start)..number(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{End, Index};

    fn found(index: &Index, key: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        index.walk(key, |numbers| found.extend(numbers));
        found.sort_unstable();
        found
    }

    #[test]
    fn the_texts_at_one_end_of_a_key_are_found() {
        let texts: [&[u8]; 5] = [b"lock:", b"lock:order:", b"lock:", b"lo", b"mutex:"];
        let index = Index::new(End::Beginning, texts.into_iter().zip(0..));
        assert_eq!(found(&index, b"lock:order:1"), [0, 1, 2, 3]);
        assert_eq!(found(&index, b"lock:"), [0, 2, 3]);
        assert_eq!(found(&index, b"lock"), [3]);
        assert_eq!(found(&index, b"mutex"), [0_u32; 0]);
        assert_eq!(found(&index, b""), [0_u32; 0]);
    }

    proptest! {
        #[test]
        fn as_many_as_one_by_one(
            texts in proptest::collection::vec("[abc\u{ff}]{1,6}", 0..40),
            key in "[abc\u{ff}]{0,8}",
            end in prop_oneof![Just(End::Beginning), Just(End::Ending)],
        ) {
            let index = Index::new(end, texts.iter().map(String::as_bytes).zip(0..));
            let stands = |text: &String| match end {
                End::Beginning => key.starts_with(text.as_str()),
                End::Ending => key.ends_with(text.as_str()),
            };
            let expected: Vec<u32> =
                texts.iter().zip(0..).filter(|(text, _)| stands(text)).map(|(_, at)| at).collect();
            prop_assert_eq!(found(&index, key.as_bytes()), expected);
            let firsts: Vec<u8> = index.first_bytes().collect();
            prop_assert!(firsts.is_sorted_by(|a, b| a < b), "{:?}", firsts);
        }
    }
}
