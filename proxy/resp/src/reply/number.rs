//! The numbers of reply lines, checked in pieces: whether they are numbers, not their values. The scanner handles the
//! line's CRLF.

/// The progress of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberStep {
    /// All bytes belong to the number.
    More,
    /// The number is complete; its CR is here.
    End(usize),
    /// No number.
    Malformed,
}

/// A signed 64-bit integer. A plus sign and leading zeros are accepted: the protocol allows them, and they leave no
/// doubt about where the line ends.
#[derive(Clone, Copy)]
pub(super) struct IntegerReader {
    place: IntegerPlace,
    negative: bool,
    magnitude: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IntegerPlace {
    First,
    Signed,
    Digits,
}

impl IntegerReader {
    pub(super) const fn new() -> Self {
        Self { place: IntegerPlace::First, negative: false, magnitude: 0 }
    }

    pub(super) fn read(&mut self, bytes: &[u8]) -> NumberStep {
        for (index, &byte) in bytes.iter().enumerate() {
            match (self.place, byte) {
                (_, b'0'..=b'9') => {
                    let digit = u64::from(byte - b'0');
                    let most = i64::MAX as u64 + u64::from(self.negative);
                    let grown = self.magnitude.checked_mul(10);
                    match grown.and_then(|tens| tens.checked_add(digit)) {
                        Some(magnitude) if magnitude <= most => self.magnitude = magnitude,
                        _ => return NumberStep::Malformed,
                    }
                    self.place = IntegerPlace::Digits;
                }
                (IntegerPlace::First, b'-' | b'+') => {
                    self.negative = byte == b'-';
                    self.place = IntegerPlace::Signed;
                }
                (IntegerPlace::Digits, b'\r') => return NumberStep::End(index),
                _ => return NumberStep::Malformed,
            }
        }
        NumberStep::More
    }
}

/// A double as C prints it: decimal with optional fraction and exponent, `inf` or `nan`.
#[derive(Clone, Copy)]
pub(super) struct DoubleReader {
    place: DoublePlace,
}

#[derive(Clone, Copy)]
enum DoublePlace {
    First,
    Signed,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSigned,
    ExponentDigits,
    /// In a word, with these letters still to come.
    Word(&'static [u8]),
}

impl DoubleReader {
    pub(super) const fn new() -> Self {
        Self { place: DoublePlace::First }
    }

    pub(super) fn read(&mut self, bytes: &[u8]) -> NumberStep {
        use DoublePlace::*;
        for (index, &byte) in bytes.iter().enumerate() {
            self.place = match (self.place, byte) {
                (First, b'-' | b'+') => Signed,
                (First | Signed, b'i') => Word(b"nf"),
                (First | Signed, b'n') => Word(b"an"),
                (First | Signed | Whole, b'0'..=b'9') => Whole,
                (Whole, b'.') => Point,
                (Point | Fraction, b'0'..=b'9') => Fraction,
                (Whole | Fraction, b'e' | b'E') => Exponent,
                (Exponent, b'-' | b'+') => ExponentSigned,
                (Exponent | ExponentSigned | ExponentDigits, b'0'..=b'9') => ExponentDigits,
                (Word([next, letters @ ..]), letter) if *next == letter => Word(letters),
                (Whole | Fraction | ExponentDigits | Word([]), b'\r') => {
                    return NumberStep::End(index);
                }
                _ => return NumberStep::Malformed,
            };
        }
        NumberStep::More
    }
}
