//! Hides the proxy's own keys in what Redis sends to clients: listings of keys, invalidations of a client's cache,
//! notifications about keys. It gets whole frames and returns what the client is shown; a frame that names none of
//! those keys is passed on unchanged. [`crate::companion`] decides which keys are the proxy's own.

use bytes::{BufMut, BytesMut};
use lockwarden_resp::{Elements, Protocol, bulk_text, put_array_header, put_null};
use memchr::memmem;

use crate::companion::{PREFIX_MARKS, names_companion};
use crate::namespace::Namespaces;
use crate::table::Listing;

/// Which keys are the proxy's own.
#[derive(Clone, Copy, Debug)]
pub struct OwnKeys<'a> {
    /// The prefix of their names.
    pub prefix: &'a [u8],
    /// Which keys are locks: only those have companions.
    pub namespaces: &'a Namespaces,
}

impl OwnKeys<'_> {
    /// Whether this key is one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        names_companion(self.prefix, key, self.namespaces)
    }

    /// Whether a frame does not even contain the prefix, and so needs no closer look.
    fn cannot_be_in(&self, frame: &[u8]) -> bool {
        let is_absent = |beginning| memmem::find(frame, beginning).is_none();
        let (mark, _) = PREFIX_MARKS;
        is_absent(self.prefix) && (mark.starts_with(self.prefix) || is_absent(mark))
    }

    fn contains_bulk(&self, element: &[u8]) -> bool {
        bulk_text(element).is_some_and(|key| self.contains(key))
    }
}

/// What a client gets of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// All of it, unchanged.
    Whole,
    /// This in place of it.
    Instead(BytesMut),
    /// Nothing: it was about the proxy's own keys only.
    Nothing,
}

/// What a client gets of the reply to a listing. Every request has its reply, so this is never [`Shown::Nothing`]: a
/// random key that must be hidden is replaced by nil.
pub fn listing(kind: Listing, reply: &[u8], own: OwnKeys<'_>, protocol: Protocol) -> Shown {
    if own.cannot_be_in(reply) {
        return Shown::Whole;
    }
    match kind {
        Listing::Keys => match names_without(reply, own) {
            Some((names, _)) => Shown::Instead(names),
            None => Shown::Whole,
        },
        Listing::Scan => scanned(reply, own).map_or(Shown::Whole, Shown::Instead),
        Listing::RandomKey if own.contains_bulk(reply) => {
            let mut none = BytesMut::new();
            put_null(&mut none, protocol);
            Shown::Instead(none)
        }
        Listing::RandomKey => Shown::Whole,
    }
}

/// What a client gets of a frame that it did not request, under either protocol.
pub fn push(frame: &[u8], own: OwnKeys<'_>) -> Shown {
    if own.cannot_be_in(frame) {
        return Shown::Whole;
    }
    shown_of_push(frame, own).unwrap_or(Shown::Whole)
}

/// The channel on which a client that speaks RESP2 hears of invalidations.
const INVALIDATIONS: &[u8] = b"__redis__:invalidate";

/// `None` for everything that is not about keys.
fn shown_of_push(frame: &[u8], own: OwnKeys<'_>) -> Option<Shown> {
    let mut places = Elements::of(frame)?;
    let mut next = || places.next().map(|place| &frame[place]);
    let kind = bulk_text(next()?)?;
    let (channel, payload) = match kind {
        b"invalidate" => return Some(invalidation(frame, next()?, own)),
        b"message" => (bulk_text(next()?)?, next()?),
        b"pmessage" => {
            next()?;
            (bulk_text(next()?)?, next()?)
        }
        _ => return None,
    };
    if channel == INVALIDATIONS {
        return Some(invalidation(frame, payload, own));
    }
    // `__keyspace@0__:key` with the event as payload, `__keyevent@0__:event` with the key.
    let about_own = if let Some(rest) = channel.strip_prefix(b"__keyspace@") {
        own.contains(&rest[memmem::find(rest, b"__:")? + 3..])
    } else {
        channel.starts_with(b"__keyevent@") && own.contains_bulk(payload)
    };
    Some(if about_own { Shown::Nothing } else { Shown::Whole })
}

/// A frame that ends with the array of the invalidated keys. A null in place of the array means all keys.
fn invalidation(frame: &[u8], keys: &[u8], own: OwnKeys<'_>) -> Shown {
    match names_without(keys, own) {
        None => Shown::Whole,
        Some((_, 0)) => Shown::Nothing,
        Some((names, _)) => {
            let mut told = BytesMut::from(&frame[..frame.len() - keys.len()]);
            told.unsplit(names);
            Shown::Instead(told)
        }
    }
}

/// A cursor, which is kept, and an array of names.
fn scanned(reply: &[u8], own: OwnKeys<'_>) -> Option<BytesMut> {
    let names = Elements::of(reply)?.nth(1)?;
    let (shown, _) = names_without(&reply[names.clone()], own)?;
    let mut page = BytesMut::from(&reply[..names.start]);
    page.unsplit(shown);
    Some(page)
}

/// An array of names without the proxy's own, and how many are left; `None` if it contains none of them. The bytes
/// between two removed names are copied unchanged.
fn names_without(array: &[u8], own: OwnKeys<'_>) -> Option<(BytesMut, usize)> {
    let (mut left, mut gone) = (0, 0);
    for place in Elements::of(array)? {
        if own.contains_bulk(&array[place]) {
            gone += 1;
        } else {
            left += 1;
        }
    }
    if gone == 0 {
        return None;
    }
    let mut names = BytesMut::with_capacity(array.len());
    put_array_header(&mut names, left);
    let (mut from, mut end) = (None, 0);
    for place in Elements::of(array)? {
        end = place.end;
        if own.contains_bulk(&array[place.clone()]) {
            if let Some(from) = from.take() {
                names.put_slice(&array[from..place.start]);
            }
        } else if from.is_none() {
            from = Some(place.start);
        }
    }
    if let Some(from) = from {
        names.put_slice(&array[from..end]);
    }
    Some((names, left))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::companion::companion_key;
    use crate::glob::Glob;

    fn locks() -> Namespaces {
        Namespaces::new(vec![vec![Glob::new(Bytes::from_static(b"lock:*"))]])
    }

    fn bulk(text: &[u8]) -> Vec<u8> {
        let head = format!("${}\r\n", text.len()).into_bytes();
        [&head, text, b"\r\n"].concat()
    }

    fn array(names: &[&[u8]]) -> Vec<u8> {
        let head = format!("*{}\r\n", names.len()).into_bytes();
        let names: Vec<Vec<u8>> = names.iter().map(|name| bulk(name)).collect();
        [head, names.concat()].concat()
    }

    /// The frame that the client gets; `None` if it gets none.
    fn told(shown: Shown, frame: &[u8]) -> Option<Vec<u8>> {
        match shown {
            Shown::Whole => Some(frame.to_vec()),
            Shown::Instead(other) => Some(other.to_vec()),
            Shown::Nothing => None,
        }
    }

    fn of_listing(kind: Listing, frame: &[u8]) -> Option<Vec<u8>> {
        let namespaces = locks();
        let own = OwnKeys { prefix: b"lw:", namespaces: &namespaces };
        told(listing(kind, frame, own, Protocol::Resp2), frame)
    }

    fn of_push(frame: &[u8]) -> Option<Vec<u8>> {
        let namespaces = locks();
        let own = OwnKeys { prefix: b"lw:", namespaces: &namespaces };
        told(push(frame, own), frame)
    }

    const OURS: &[u8] = b"lw:{0j4}:lock:a";

    #[test]
    fn listings_lose_companions_and_nothing_else() {
        let all: &[&[u8]] = &[OURS, b"a", b"lw:{0j4}:other", b"lw:a", OURS, b"lock:a", OURS];
        let rest: &[&[u8]] = &[b"a", b"lw:{0j4}:other", b"lw:a", b"lock:a"];
        assert_eq!(of_listing(Listing::Keys, &array(all)), Some(array(rest)));
        assert_eq!(of_listing(Listing::Keys, &array(&[OURS])), Some(array(&[])));
        let page = |names: &[&[u8]]| [b"*2\r\n$2\r\n17\r\n".to_vec(), array(names)].concat();
        assert_eq!(of_listing(Listing::Scan, &page(all)), Some(page(rest)));
        assert_eq!(of_listing(Listing::Scan, &page(&[OURS])), Some(page(&[])));
        assert_eq!(of_listing(Listing::RandomKey, &bulk(OURS)), Some(b"$-1\r\n".to_vec()));
        for (kind, frame) in [
            (Listing::Keys, array(rest)),
            (Listing::Keys, b"-NOPERM lw:{0j4}:lock:a\r\n".to_vec()),
            (Listing::Keys, b"+QUEUED\r\n".to_vec()),
            (Listing::Scan, page(rest)),
            (Listing::RandomKey, bulk(b"lw:a")),
            (Listing::RandomKey, b"$-1\r\n".to_vec()),
        ] {
            assert_eq!(of_listing(kind, &frame), Some(frame.clone()));
        }
    }

    #[test]
    fn invalidations_lose_companions() {
        let both: &[&[u8]] = &[OURS, b"lock:a"];
        for head in [&b">2\r\n$10\r\ninvalidate\r\n"[..], b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n"] {
            let of = |keys: &[u8]| [head, keys].concat();
            assert_eq!(of_push(&of(&array(both))), Some(of(&array(&[b"lock:a"]))));
            assert_eq!(of_push(&of(&array(&[OURS]))), None);
            for keys in [&array(&[b"lw:x"])[..], b"_\r\n", b"*-1\r\n"] {
                assert_eq!(of_push(&of(keys)), Some(of(keys)));
            }
        }
    }

    #[test]
    fn notifications_about_companions_are_not_shown() {
        let namespaces = locks();
        let own = OwnKeys { prefix: b"lw:", namespaces: &namespaces };
        let keyspace = [b"__keyspace@12__:", OURS].concat();
        for (words, expected) in [
            (vec![&b"message"[..], &keyspace, b"set"], Shown::Nothing),
            (vec![b"pmessage", b"*", &keyspace, b"set"], Shown::Nothing),
            (vec![b"message", b"__keyevent@0__:set", OURS], Shown::Nothing),
            (vec![b"pmessage", b"__key*", b"__keyevent@3__:set", OURS], Shown::Nothing),
            (vec![b"message", b"__keyevent@0__:set", b"lock:a"], Shown::Whole),
            (vec![b"message", b"__keyspace@0__:lock:a", OURS], Shown::Whole),
            (vec![b"message", b"news", OURS], Shown::Whole),
            (vec![b"pmessage", OURS, b"news", OURS], Shown::Whole),
            (vec![b"message", OURS, b"x"], Shown::Whole),
            (vec![b"subscribe", &keyspace, b"x"], Shown::Whole),
            (vec![b"message", b"__keyspace@"], Shown::Whole),
        ] {
            assert_eq!(push(&array(&words), own), expected, "{words:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_left_of_a_listing_are_the_other_names_in_order(
            names in proptest::collection::vec(("[a-c\r\n]{0,4}", any::<bool>()), 0..20),
        ) {
            let names: Vec<(Vec<u8>, bool)> = names
                .into_iter()
                .map(|(name, ours)| if ours {
                    (companion_key(b"lw:", format!("lock:{name}").as_bytes()), true)
                } else {
                    (name.into_bytes(), false)
                })
                .collect();
            let all: Vec<&[u8]> = names.iter().map(|(name, _)| &name[..]).collect();
            let rest: Vec<&[u8]> =
                names.iter().filter(|(_, ours)| !ours).map(|(name, _)| &name[..]).collect();
            prop_assert_eq!(of_listing(Listing::Keys, &array(&all)), Some(array(&rest)));
        }

        #[test]
        fn nothing_that_comes_as_a_frame_makes_it_stumble(
            head in prop_oneof![Just(""), Just("*2\r\n"), Just(">3\r\n$7\r\nmessage\r\n")],
            tail in "[*>$:0-9\r\nlw:{}ock_@]{0,40}",
        ) {
            let frame = format!("{head}{tail}lw:{{0j4}}:lock:a\r\n");
            for kind in [Listing::Keys, Listing::Scan, Listing::RandomKey] {
                of_listing(kind, frame.as_bytes());
            }
            of_push(frame.as_bytes());
        }
    }
}
