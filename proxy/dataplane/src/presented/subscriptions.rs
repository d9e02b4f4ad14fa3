//! The subscriptions of one client. Nothing is ever published: these are kept so that the numbers in confirmations
//! are Redis's.

use bytes::Bytes;

/// Most channels and patterns of one connection.
const MAX_SUBSCRIPTIONS: usize = 256;
/// Bytes that their names may take together.
const MAX_NAME_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Channel,
    Pattern,
}

/// See the module.
#[derive(Default)]
pub(super) struct Subscriptions {
    channels: Vec<Bytes>,
    patterns: Vec<Bytes>,
}

/// There would be too many.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Subscriptions {
    /// How many there are, of both kinds.
    pub(super) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    fn of(&mut self, kind: Kind) -> &mut Vec<Bytes> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
        }
    }

    /// One more, unless it is there already.
    pub(super) fn add(&mut self, kind: Kind, name: &[u8]) -> Result<(), TooMany> {
        if self.of(kind).iter().any(|known| known == name) {
            return Ok(());
        }
        let names = self.channels.iter().chain(&self.patterns);
        let bytes: usize = names.map(Bytes::len).sum();
        if self.count() >= MAX_SUBSCRIPTIONS || bytes + name.len() > MAX_NAME_BYTES {
            return Err(TooMany);
        }
        self.of(kind).push(Bytes::copy_from_slice(name));
        Ok(())
    }

    /// One less, if it is there.
    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) {
        self.of(kind).retain(|known| known != name);
    }

    /// All of this kind.
    pub(super) fn all(&self, kind: Kind) -> Vec<Bytes> {
        match kind {
            Kind::Channel => self.channels.clone(),
            Kind::Pattern => self.patterns.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_counted_once_and_have_a_bound() {
        let mut subscriptions = Subscriptions::default();
        for _ in 0..2 {
            subscriptions.add(Kind::Channel, b"a").unwrap();
            subscriptions.add(Kind::Pattern, b"a").unwrap();
        }
        assert_eq!(subscriptions.count(), 2);
        let long = vec![b'x'; MAX_NAME_BYTES - 2];
        subscriptions.add(Kind::Pattern, &long).unwrap();
        assert_eq!(subscriptions.add(Kind::Channel, b"b"), Err(TooMany));
        subscriptions.remove(Kind::Pattern, &long);
        for number in 2..MAX_SUBSCRIPTIONS {
            let name = format!("c{number}");
            subscriptions.add(Kind::Channel, name.as_bytes()).unwrap();
        }
        assert_eq!(subscriptions.add(Kind::Channel, b"b"), Err(TooMany));
        // A subscription that exists already does not count again.
        subscriptions.add(Kind::Channel, b"a").unwrap();
        subscriptions.remove(Kind::Channel, b"a");
        subscriptions.add(Kind::Channel, b"b").unwrap();
        assert_eq!(subscriptions.all(Kind::Channel).last(), Some(&"b".into()));
    }
}
