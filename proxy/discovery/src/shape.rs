//! The shape of a key: its words and separators as they are, and one `*` for each part that varies from key to key
//! (numbers, UUIDs, hashes, dates). Parts that vary without looking like it, such as tenants' names, are learnt in
//! [`crate::patterns`].

use std::fmt;

use smallvec::SmallVec;

/// Bytes of a key that are examined; the rest counts as varying.
const MAX_KEY: usize = 256;
/// Pieces of a shape; the rest of the key counts as varying.
const MAX_PIECES: usize = 24;
/// The bytes of a UUID in text.
const UUID: usize = 36;

/// A part of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Piece {
    /// A word, the same in every key.
    Word(Box<[u8]>),
    /// A byte between words.
    Separator(u8),
    /// Something that varies.
    Any,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Shape {
    pieces: SmallVec<[Piece; 8]>,
}

/// A shape that is being read from a key.
#[derive(Default)]
struct Reading {
    pieces: SmallVec<[Piece; 8]>,
    /// Where each piece begins in the key; it ends where the next begins.
    begins: SmallVec<[usize; 8]>,
}

/// A key split into pieces: those of its shape, and the bytes of each.
pub(crate) struct Parts<'k> {
    pub(crate) shape: Shape,
    key: &'k [u8],
    begins: SmallVec<[usize; 8]>,
}

impl<'k> Parts<'k> {
    /// The parts of a key. `None` if the key is too long to be read to its end.
    pub(crate) fn of(key: &'k [u8]) -> Option<Parts<'k>> {
        (key.len() <= MAX_KEY).then(|| {
            let Reading { pieces, begins } = Reading::of(key);
            Parts { shape: Shape { pieces }, key, begins }
        })
    }

    /// The bytes of its pieces and their places, without the separators.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (usize, &'k [u8])> {
        let ends = self.begins.iter().skip(1).copied().chain([self.key.len()]);
        let all = self.begins.iter().copied().zip(ends).enumerate();
        all.filter(|(at, _)| !matches!(self.shape.pieces[*at], Piece::Separator(_)))
            .map(|(at, (begin, end))| (at, &self.key[begin..end]))
    }

    /// The whole key.
    pub(crate) fn key(&self) -> &'k [u8] {
        self.key
    }

    /// The bytes of one piece, unless that is a separator.
    pub(crate) fn text(&self, place: usize) -> Option<&'k [u8]> {
        self.texts().find(|(at, _)| *at == place).map(|(_, text)| text)
    }
}

impl Reading {
    fn of(key: &[u8]) -> Reading {
        let is_cut = key.len() > MAX_KEY;
        let key = &key[..key.len().min(MAX_KEY)];
        let mut reading = Reading::default();
        let mut at = 0;
        while at < key.len() && reading.pieces.len() < MAX_PIECES {
            if is_separator(key[at]) {
                reading.push(Piece::Separator(key[at]), at);
                at += 1;
                continue;
            }
            let rest = &key[at..];
            let length = match rest.get(..UUID) {
                Some(beginning) if is_uuid(beginning) => {
                    reading.vary(at);
                    UUID
                }
                _ => {
                    let end = rest.iter().position(|&byte| is_separator(byte));
                    let word = &rest[..end.unwrap_or(rest.len())];
                    reading.read(word, at);
                    word.len()
                }
            };
            at += length;
        }
        if at < key.len() || is_cut {
            reading.vary(at);
        }
        reading
    }

    /// A word between two separators.
    fn read(&mut self, word: &[u8], begin: usize) {
        if is_random(word) {
            return self.vary(begin);
        }
        // A number inside a word, as in order42. One digit may be part of a name, as in v2 and s3, and is a word of its own.
        let mut rest = word;
        let mut begin = begin;
        while let Some(at) = run_of_digits(rest) {
            let digits = rest[at..].iter().take_while(|byte| byte.is_ascii_digit());
            let end = at + digits.count();
            self.word(&rest[..at], begin);
            match end - at {
                1 if at > 0 || rest.len() < word.len() => self.word(&rest[at..end], begin + at),
                _ => self.vary(begin + at),
            }
            rest = &rest[end..];
            begin += end;
        }
        self.word(rest, begin);
    }

    fn word(&mut self, word: &[u8], begin: usize) {
        if !word.is_empty() {
            self.push(Piece::Word(word.into()), begin);
        }
    }

    fn push(&mut self, piece: Piece, begin: usize) {
        self.pieces.push(piece);
        self.begins.push(begin);
    }

    /// Adds a part that varies. Adjoining parts, as in a date or an address, become one.
    fn vary(&mut self, begin: usize) {
        match self.pieces[..] {
            [.., Piece::Any] => {}
            [.., Piece::Any, Piece::Separator(b'-' | b'_' | b'.')] => {
                self.pieces.pop();
                self.begins.pop();
            }
            _ => self.push(Piece::Any, begin),
        }
    }
}

impl Shape {
    /// The shape of a key.
    pub(crate) fn of(key: &[u8]) -> Shape {
        Shape { pieces: Reading::of(key).pieces }
    }

    /// Its pieces.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The places of the parts that vary.
    pub(crate) fn varying(&self) -> impl Iterator<Item = usize> {
        let places = self.pieces.iter().enumerate();
        places.filter(|(_, piece)| matches!(piece, Piece::Any)).map(|(at, _)| at)
    }

    /// The places of its words.
    pub(crate) fn words(&self) -> impl Iterator<Item = usize> {
        let is_word = |piece: &Piece| matches!(piece, Piece::Word(_));
        let places = self.pieces.iter().enumerate();
        places.filter(move |(_, piece)| is_word(piece)).map(|(at, _)| at)
    }

    /// The same shape with one more part that varies.
    #[must_use]
    pub(crate) fn with_any(&self, at: usize) -> Shape {
        let mut shape = self.clone();
        shape.pieces[at] = Piece::Any;
        shape
    }

    /// Whether it contains a word that distinguishes its keys from others.
    pub(crate) fn is_named(&self) -> bool {
        self.names().any(|name| {
            let letters = name.chars().filter(char::is_ascii_alphabetic);
            letters.count() > 1
        })
    }

    /// Whether every key of the other shape also has this one.
    pub(crate) fn covers(&self, other: &Shape) -> bool {
        let fits = |(mine, theirs): (&Piece, &Piece)| match (mine, theirs) {
            (Piece::Any, Piece::Word(_) | Piece::Any) => true,
            (mine, theirs) => mine == theirs,
        };
        self.pieces.len() == other.pieces.len() && self.pieces.iter().zip(&other.pieces).all(fits)
    }

    /// The places of single digits within words.
    pub(crate) fn digits(&self) -> impl Iterator<Item = usize> {
        self.words().filter(|at| self.is_digit(*at))
    }

    /// Whether a single digit stands in this place.
    pub(crate) fn is_digit(&self, at: usize) -> bool {
        matches!(self.pieces.get(at), Some(Piece::Word(word)) if matches!(word[..], [b'0'..=b'9']))
    }

    /// The words, in lower case.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let is_word = |piece: &Piece| matches!(piece, Piece::Word(_));
        let words = self.pieces.chunk_by(move |a, b| is_word(a) && is_word(b));
        words.filter_map(|pieces| {
            let text = pieces.iter().filter_map(|piece| match piece {
                Piece::Word(word) => Some(String::from_utf8_lossy(word).to_lowercase()),
                Piece::Separator(_) | Piece::Any => None,
            });
            Some(text.collect::<String>()).filter(|text| !text.is_empty())
        })
    }

    /// The shape as a Redis glob.
    pub(crate) fn glob(&self) -> Vec<u8> {
        let mut glob = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Word(word) => word.iter().for_each(|&byte| put_literal(&mut glob, byte)),
                Piece::Separator(byte) => put_literal(&mut glob, *byte),
                Piece::Any => glob.push(b'*'),
            }
        }
        glob
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.glob()))
    }
}

fn put_literal(glob: &mut Vec<u8>, byte: u8) {
    if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\') {
        glob.push(b'\\');
    }
    glob.push(byte);
}

fn is_separator(byte: u8) -> bool {
    byte.is_ascii_punctuation() || byte == b' '
}

fn is_uuid(text: &[u8]) -> bool {
    text.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// The first run of several digits.
fn run_of_digits(word: &[u8]) -> Option<usize> {
    word.iter().position(u8::is_ascii_digit)
}

/// Whether a word was made by a machine: a hash, a random name, an encoded number. Letters and digits alternate in it
/// more often than in the words of any language.
fn is_random(word: &[u8]) -> bool {
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_hex = word.iter().all(u8::is_ascii_hexdigit);
    let turns = word.windows(2).filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit());
    let turns = turns.count();
    match word.len() {
        0..8 => digits == word.len() && digits > 0,
        _ if is_hex => digits > 0,
        8..16 => turns >= 3,
        _ => turns >= 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_told_from_what_does_not() {
        for (key, shape) in [
            ("lock:order:42", "lock:order:*"),
            ("order:17:lock", "order:*:lock"),
            ("lock:order42", "lock:order*"),
            ("cron", "cron"),
            ("v2:s3:lock", "v2:s3:lock"),
            ("a1b22c:lock", "a1b*c:lock"),
            ("cron:2026-11-22", "cron:*"),
            ("host_10.0.3.17_lock", "host_*_lock"),
            ("lock:550e8400-e29b-41d4-a716-446655440000", "lock:*"),
            ("550e8400-e29b-41d4-a716-446655440000.lock", "*.lock"),
            ("session:da39a3ee5e6b4b0d3255bfef95601890afd80709", "session:*"),
            ("job:01ARZ3NDEKTSV4RRFFQ69G5FAV:lock", "job:*:lock"),
            ("user:{1234}:lock", "user:{*}:lock"),
            ("beef:decade", "beef:decade"),
            ("lock:[a]*", "lock:\\[a\\]\\*"),
            ("a:1:2", "a:*:*"),
            ("", ""),
        ] {
            assert_eq!(Shape::of(key.as_bytes()).to_string(), shape, "{key}");
        }
    }

    #[test]
    fn the_pieces_of_a_key_are_the_whole_key() {
        for (key, texts) in [
            ("stock:7", "0=stock 2=7"),
            ("order42x:cron-2026-11-22", "0=order 1=42 2=x 4=cron 6=2026-11-22"),
            ("{17}.a", "1=17 4=a"),
            ("v2.lock", "0=v 1=2 3=lock"),
            ("550e8400-e29b-41d4-a716-446655440000.lock", "0=550e8400-e29b-41d4-a716-446655440000 2=lock"),
            ("", ""),
        ] {
            let parts = Parts::of(key.as_bytes()).expect("it is short");
            let text = |(at, text): (usize, &[u8])| format!("{at}={}", String::from_utf8_lossy(text));
            let found: Vec<String> = parts.texts().map(text).collect();
            assert_eq!(found.join(" "), texts, "{key}");
            assert_eq!(parts.shape, Shape::of(key.as_bytes()));
        }
        assert!(Parts::of(&[b'x'; MAX_KEY + 1]).is_none());
    }

    #[test]
    fn a_key_of_any_length_and_any_bytes_has_a_short_shape() {
        let long = "x:".repeat(100_000);
        let shape = Shape::of(long.as_bytes());
        assert!(shape.pieces.len() <= MAX_PIECES + 1, "{shape}");
        let bytes: Vec<u8> = (0..=255).collect();
        assert!(!Shape::of(&bytes).to_string().is_empty());
    }

    #[test]
    fn a_shape_that_is_learnt_covers_those_that_it_was_learnt_from() {
        let key = Shape::of(b"acme:job:lock");
        let learnt = key.with_any(0);
        assert_eq!(learnt.to_string(), "*:job:lock");
        assert!(learnt.covers(&key));
        assert!(learnt.covers(&Shape::of(b"17:job:lock")));
        for other in ["acme:job", "acme:mail:lock", "acme.job:lock"] {
            assert!(!learnt.covers(&Shape::of(other.as_bytes())), "{other}");
        }
    }
}
