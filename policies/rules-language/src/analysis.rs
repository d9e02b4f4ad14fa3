//! Finds the effects of rules by asking them: each fact that they name is set to values at, below and above those that
//! it is compared with, and every combination is one sample. If there are too many, a fixed selection of them is used,
//! so the same rules always get the same questions. It finds mistakes; it proves nothing.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::facts::{Client, Facts, Flag, Held, Quantity, Tries, Words};
use crate::syntax::{Number, Test, Text};
use crate::{Expression, MAX_HOLDINGS, MAX_TEXT_BYTES};

/// The most samples that are asked about.
pub const MAX_SAMPLES: u64 = 10_000;

/// The most values of one fact; further ones are left out.
const MAX_VALUES: usize = 96;

/// One request that rules are asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The operation's word.
    pub operation: &'static str,
    /// The lock key.
    pub key: Vec<u8>,
    /// The database.
    pub db: u32,
    /// The TTL that it requests.
    pub ttl_ms: Option<u64>,
    /// Attempts in the last ten seconds.
    pub attempts: u32,
    /// The same for its application, and for all clients.
    pub tries: Tries,
    /// Locks that it and its application hold.
    pub held: Held,
    /// What is left of its own lease, ms.
    pub remaining_ms: u64,
    /// The owner token.
    pub token: Option<Vec<u8>>,
    /// Whether other clients use it.
    pub token_is_shared: bool,
    /// The local weekday for each rule; 1 is Monday.
    pub weekday: i64,
    /// The local hour for each rule.
    pub hour: i64,
    /// The local minute for each rule.
    pub minute: i64,
    /// `CLIENT SETNAME`.
    pub name: Vec<u8>,
    /// The ACL user.
    pub user: Vec<u8>,
    /// The client's address.
    pub address: Vec<u8>,
    /// The name in the certificate.
    pub certificate: Vec<u8>,
    /// The name of the application.
    pub application: Vec<u8>,
}

impl Sample {
    /// Whether a condition holds for this sample.
    #[must_use]
    pub fn holds(&self, test: &Expression) -> bool {
        let facts = Facts {
            key: &self.key,
            operation: self.operation,
            db: self.db,
            ttl_ms: self.ttl_ms,
            attempts: self.attempts,
            tries: self.tries,
            held: self.held,
            remaining_ms: self.remaining_ms,
            token: self.token.as_deref(),
            token_is_shared: self.token_is_shared,
            client: Client {
                name: &self.name,
                user: &self.user,
                address: &self.address,
                certificate: &self.certificate,
                application: &self.application,
            },
        };
        // The fifth day of 1970 was a Monday.
        let minute = (self.weekday + 3) * 24 * 60 + self.hour * 60 + self.minute;
        test.holds(&facts, minute)
    }
}

/// The samples for a set of conditions.
#[derive(Debug)]
pub struct Samples {
    operations: Vec<&'static str>,
    keys: Vec<Vec<u8>>,
    dbs: Vec<u64>,
    ttls: Vec<Option<u64>>,
    attempts: Vec<u64>,
    tries: Vec<u64>,
    tries_of_all: Vec<u64>,
    held: Vec<u64>,
    held_by_all: Vec<u64>,
    remaining: Vec<u64>,
    tokens: Vec<Option<Vec<u8>>>,
    shared: Vec<bool>,
    weekdays: Vec<u64>,
    hours: Vec<u64>,
    minutes: Vec<u64>,
    names: Vec<Vec<u8>>,
    users: Vec<Vec<u8>>,
    addresses: Vec<Vec<u8>>,
    certificates: Vec<Vec<u8>>,
    applications: Vec<Vec<u8>>,
}

impl Samples {
    /// For these conditions, and the operations of their rules.
    #[must_use]
    pub fn of<'a>(tests: impl Iterator<Item = &'a Expression>, operations: Vec<&'static str>) -> Samples {
        let mut seen = Seen::default();
        for test in tests {
            seen.test(&test.test);
        }
        let number = |quantity, usual: u64, most: u64| seen.numbers(quantity, usual, most);
        let every = |quantity, all: core::ops::RangeInclusive<u64>, usual: u64| match seen.names(quantity) {
            true => all.collect(),
            false => vec![usual],
        };
        let (ttls, asks_ttl) = (number(Quantity::Ttl, 3_000, u64::MAX), seen.flags.contains(&Flag::HasTtl));
        let mut ttls: Vec<Option<u64>> = ttls.into_iter().map(Some).collect();
        if asks_ttl || seen.names(Quantity::Ttl) {
            ttls.push(None);
        }
        Samples {
            operations,
            keys: seen.texts(Words::Key, b"lock:other"),
            dbs: number(Quantity::Db, 0, u32::MAX.into()),
            ttls,
            attempts: number(Quantity::Attempts, 1, u32::MAX.into()),
            tries: number(Quantity::TriesApplication, 1, u32::MAX.into()),
            tries_of_all: number(Quantity::TriesEveryone, 1, u32::MAX.into()),
            held: number(Quantity::HeldConnection, 0, MAX_HOLDINGS as u64),
            held_by_all: number(Quantity::HeldApplication, 0, u32::MAX.into()),
            remaining: number(Quantity::Remaining, 0, u64::MAX),
            tokens: seen.tokens(),
            shared: if seen.flags.contains(&Flag::TokenShared) { vec![false, true] } else { vec![false] },
            weekdays: every(Quantity::Weekday, 1..=7, 1),
            hours: every(Quantity::Hour, 0..=23, 12),
            minutes: number(Quantity::Minute, 0, 59),
            names: seen.texts(Words::ClientName, b""),
            users: seen.texts(Words::ClientUser, b"default"),
            addresses: seen.texts(Words::ClientAddress, b"10.0.0.7"),
            certificates: seen.texts(Words::ClientCertificate, b""),
            applications: seen.texts(Words::ClientApplication, b""),
        }
    }

    /// The number of combinations.
    #[must_use]
    pub fn combinations(&self) -> u64 {
        self.sizes().into_iter().fold(1, |all, size| all.saturating_mul(size as u64))
    }

    fn sizes(&self) -> [usize; 20] {
        [
            self.operations.len(),
            self.keys.len(),
            self.dbs.len(),
            self.ttls.len(),
            self.attempts.len(),
            self.tries.len(),
            self.tries_of_all.len(),
            self.held.len(),
            self.held_by_all.len(),
            self.remaining.len(),
            self.tokens.len(),
            self.shared.len(),
            self.weekdays.len(),
            self.hours.len(),
            self.minutes.len(),
            self.names.len(),
            self.users.len(),
            self.addresses.len(),
            self.certificates.len(),
            self.applications.len(),
        ]
    }

    /// All combinations, or [`MAX_SAMPLES`] that are evenly distributed.
    pub fn iter(&self) -> impl Iterator<Item = Sample> {
        let all = self.combinations();
        let sizes = self.sizes();
        // An odd step that shares no factor with most numbers: the fractional part of the golden ratio, in 64 bits.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        (0..all.min(MAX_SAMPLES)).map(move |number| {
            let mut rest = match all > MAX_SAMPLES {
                true => number.wrapping_add(1).wrapping_mul(STEP) % all,
                false => number,
            };
            let mut places = [0; 20];
            for (place, size) in places.iter_mut().zip(sizes) {
                let size = size.max(1) as u64;
                *place = usize::try_from(rest % size).unwrap_or(0);
                rest /= size;
            }
            self.at(places)
        })
    }

    fn at(&self, places: [usize; 20]) -> Sample {
        let [
            operation,
            key,
            db,
            ttl,
            attempts,
            tries,
            tries_of_all,
            held,
            held_by_all,
            remaining,
            token,
            shared,
            weekday,
            hour,
            minute,
            name,
            user,
            address,
            certificate,
            application,
        ] = places;
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let time = |number: u64| i64::try_from(number).unwrap_or(0);
        Sample {
            operation: self.operations.get(operation).copied().unwrap_or("acquire"),
            key: self.keys[key].clone(),
            db: small(self.dbs[db]),
            ttl_ms: self.ttls[ttl],
            attempts: small(self.attempts[attempts]),
            tries: Tries { application: small(self.tries[tries]), everyone: small(self.tries_of_all[tries_of_all]) },
            held: Held { connection: small(self.held[held]), application: small(self.held_by_all[held_by_all]) },
            remaining_ms: self.remaining[remaining],
            token: self.tokens[token].clone(),
            token_is_shared: self.shared[shared],
            weekday: time(self.weekdays[weekday]),
            hour: time(self.hours[hour]),
            minute: time(self.minutes[minute]),
            name: self.names[name].clone(),
            user: self.users[user].clone(),
            address: self.addresses[address].clone(),
            certificate: self.certificates[certificate].clone(),
            application: self.applications[application].clone(),
        }
    }
}

/// The values with which conditions compare facts.
#[derive(Default)]
struct Seen {
    flags: Vec<Flag>,
    numbers: Vec<(Quantity, i64)>,
    quantities: Vec<Quantity>,
    /// Lengths that a text is compared with.
    lengths: Vec<(Words, i64)>,
    words: Vec<Words>,
    /// Texts with which a fact begins or ends, or that it equals, with the possible text after or before them.
    heads: Vec<(Words, Vec<u8>)>,
    tails: Vec<(Words, Vec<u8>)>,
    wholes: Vec<(Words, Vec<u8>)>,
}

impl Seen {
    fn test(&mut self, test: &Test) {
        match test {
            Test::Always(_) => {}
            Test::Fact(flag) => self.flags.push(*flag),
            Test::Not(test) => self.test(test),
            Test::All(tests) | Test::Any(tests) => tests.iter().for_each(|test| self.test(test)),
            Test::Alike(_, left, right) => {
                self.test(left);
                self.test(right);
            }
            Test::Numbers(_, left, right) => {
                let mut literals = Vec::new();
                let mut named = Named::default();
                for side in [left, right] {
                    side.gather(&mut named, &mut literals);
                }
                self.compared(named, &literals);
            }
            Test::NumberIn(number, list) => {
                let (mut named, mut literals) = (Named::default(), list.clone());
                number.gather(&mut named, &mut literals);
                self.compared(named, &literals);
            }
            Test::Texts(_, left, right) => {
                self.text(left);
                self.text(right);
                match (left, right) {
                    (Text::Fact(words), Text::Literal(text)) | (Text::Literal(text), Text::Fact(words)) => {
                        self.wholes.push((*words, text.to_vec()));
                        // A text that sorts after it.
                        self.heads.push((*words, text.to_vec()));
                    }
                    (Text::Fact(one), Text::Fact(other)) => {
                        for words in [one, other] {
                            self.wholes.push((*words, b"same".to_vec()));
                        }
                    }
                    (Text::Literal(_), Text::Literal(_)) => {}
                }
            }
            Test::TextIn(text, list) => {
                if let Text::Fact(words) = text {
                    self.wholes.extend(list.iter().map(|one| (*words, one.to_vec())));
                }
                self.text(text);
            }
            Test::StartsWith(text, part) => self.parts(text, part, b""),
            Test::EndsWith(text, part) => self.parts(text, b"", part),
            Test::Contains(text, needle) => self.parts(text, &[b"a", &*needle.bytes].concat(), b"z"),
            Test::Like(text, pattern) => {
                let (head, tail) = pattern.example();
                match tail {
                    Some(tail) => self.parts(text, &head, &tail),
                    None => {
                        self.text(text);
                        if let Text::Fact(words) = text {
                            self.wholes.push((*words, head));
                        }
                    }
                }
            }
        }
    }

    fn text(&mut self, text: &Text) {
        if let Text::Fact(words) = text {
            self.words.push(*words);
        }
    }

    fn parts(&mut self, text: &Text, head: &[u8], tail: &[u8]) {
        self.text(text);
        if let Text::Fact(words) = text {
            if !head.is_empty() {
                self.heads.push((*words, head.to_owned()));
            }
            if !tail.is_empty() {
                self.tails.push((*words, tail.to_owned()));
            }
            self.wholes.push((*words, [head, tail].concat()));
            self.wholes.push((*words, [head, b"x", tail].concat()));
        }
    }

    fn compared(&mut self, named: Named, literals: &[i64]) {
        for quantity in named.quantities {
            self.quantities.push(quantity);
            self.numbers.extend(literals.iter().map(|literal| (quantity, *literal)));
        }
        for words in named.sizes {
            self.words.push(words);
            self.lengths.extend(literals.iter().map(|literal| (words, *literal)));
        }
    }

    fn names(&self, quantity: Quantity) -> bool {
        self.quantities.contains(&quantity)
    }

    /// Values at, below and above each number, and the usual one.
    fn numbers(&self, quantity: Quantity, usual: u64, most: u64) -> Vec<u64> {
        if !self.names(quantity) {
            return vec![usual];
        }
        let compared = self.numbers.iter().filter(|(known, _)| *known == quantity).map(|(_, number)| *number);
        let around = compared.flat_map(|number| [number.saturating_sub(1), number, number.saturating_add(1)]);
        let fits = around.filter_map(|number| u64::try_from(number).ok()).filter(|number| *number <= most);
        sorted(fits.chain([0, usual]).collect())
    }

    fn texts(&self, words: Words, usual: &[u8]) -> Vec<Vec<u8>> {
        if !self.words.contains(&words) {
            return vec![usual.to_owned()];
        }
        let mut texts: Vec<Vec<u8>> = vec![usual.to_owned(), Vec::new()];
        let of = |list: &[(Words, Vec<u8>)]| -> Vec<Vec<u8>> {
            list.iter().filter(|(known, _)| *known == words).map(|(_, text)| text.clone()).collect()
        };
        texts.extend(of(&self.wholes));
        let (heads, tails) = (of(&self.heads), of(&self.tails));
        for head in &heads {
            texts.push([&**head, b"x"].concat());
            texts.extend(tails.iter().map(|tail| [&**head, b"x", &**tail].concat()));
        }
        let lengths = self.lengths.iter().filter(|(known, _)| *known == words).map(|(_, length)| *length);
        for length in lengths.flat_map(|length| [length.saturating_sub(1), length, length.saturating_add(1)]) {
            if let Some(length) = usize::try_from(length).ok().filter(|length| *length <= MAX_TEXT_BYTES) {
                texts.push(vec![b'k'; length]);
            }
        }
        sorted(texts)
    }

    /// One token of each class, and of each compared length.
    fn tokens(&self) -> Vec<Option<Vec<u8>>> {
        let uuid = || Some(b"6f9619ff-8b86-d011-b42d-00c04fc964ff".to_vec());
        let mut tokens = vec![uuid()];
        if self.words.contains(&Words::TokenClass) {
            let others: [&[u8]; 5] = [b"1", b"6f9619ff8b86d011", b"1764154800", b"worker-1", b""];
            tokens.extend(others.map(|other| Some(other.to_vec())));
            tokens.push(None);
        }
        if self.names(Quantity::TokenLength) {
            let lengths = self.numbers(Quantity::TokenLength, 36, 16_384);
            let lengths = lengths.into_iter().filter_map(|length| usize::try_from(length).ok());
            tokens.extend(lengths.map(|length| Some(vec![b'w'; length])));
            tokens.push(None);
        }
        sorted(tokens)
    }
}

/// The facts in a calculation.
#[derive(Default)]
struct Named {
    quantities: Vec<Quantity>,
    sizes: Vec<Words>,
}

impl Number {
    fn gather(&self, named: &mut Named, literals: &mut Vec<i64>) {
        match self {
            Number::Literal(number) => literals.push(*number),
            Number::Fact(quantity) => named.quantities.push(*quantity),
            Number::Size(Text::Fact(words)) => named.sizes.push(*words),
            Number::Size(Text::Literal(_)) => {}
            Number::Minus(number) => number.gather(named, literals),
            Number::Reckoned(first, rest) => {
                first.gather(named, literals);
                rest.iter().for_each(|(_, next)| next.gather(named, literals));
            }
        }
    }
}

/// Each value once, in order, up to a limit.
fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values.dedup();
    values.truncate(MAX_VALUES);
    values
}

/// A rule as it is analysed: what it refuses, and for which operations it is asked.
#[derive(Debug)]
pub struct Looked<'a> {
    /// Its name.
    pub name: &'a str,
    /// The operations for which it is asked.
    pub on: Vec<&'static str>,
    /// When it applies.
    pub when: Option<Expression>,
    /// When it refuses.
    pub deny: Option<Expression>,
    /// Whether it only reports.
    pub reports: bool,
    /// Whether it may also refuse because of something that samples do not contain: a rate, or an order of locks.
    pub limits: bool,
}

impl Looked<'_> {
    /// Whether it is asked for this operation at all.
    #[must_use]
    pub fn is_asked(&self, sample: &Sample) -> bool {
        self.on.contains(&sample.operation)
    }

    /// Whether it applies to this sample.
    #[must_use]
    pub fn says_something(&self, sample: &Sample) -> bool {
        self.is_asked(sample) && self.when.as_ref().is_none_or(|when| sample.holds(when))
    }

    /// Whether it would refuse this sample.
    #[must_use]
    pub fn refuses(&self, sample: &Sample) -> bool {
        self.says_something(sample) && self.deny.as_ref().is_some_and(|deny| sample.holds(deny))
    }
}

/// The results for one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Samples for which it was asked.
    pub asked: u64,
    /// Of those: samples that it refuses or, if it refuses nothing, to which it applies.
    pub held: u64,
    /// Of those: samples that an earlier rule has already refused.
    pub refused_before: u64,
    /// The only earlier rule that refuses everything that this rule would, if there is one.
    pub behind: Option<String>,
}

/// The samples for all these sets of rules.
#[must_use]
pub fn samples(sets: &[&[Looked<'_>]]) -> Samples {
    let rules = || sets.iter().flat_map(|rules| rules.iter());
    let tests = rules().flat_map(|rule| [&rule.when, &rule.deny]).flatten();
    let mut operations: Vec<&'static str> = rules().flat_map(|rule| rule.on.iter().copied()).collect();
    operations.sort_unstable();
    operations.dedup();
    Samples::of(tests, operations)
}

/// Analyses rules in their order.
#[must_use]
pub fn explain(rules: &[Looked<'_>], samples: &Samples) -> Vec<Found> {
    let mut found = vec![Found::default(); rules.len()];
    // For each rule, the earlier rules that refused everything so far that it would refuse.
    let mut cover: Vec<Vec<bool>> = (0..rules.len()).map(|place| vec![true; place]).collect();
    for sample in samples.iter() {
        let refuses: Vec<bool> = rules.iter().map(|rule| rule.refuses(&sample)).collect();
        for (place, rule) in rules.iter().enumerate() {
            found[place].asked += u64::from(rule.is_asked(&sample));
            let holds = if rule.deny.is_some() { refuses[place] } else { rule.says_something(&sample) };
            if !holds {
                continue;
            }
            found[place].held += 1;
            let really = |before: usize| refuses[before] && !rules[before].reports;
            found[place].refused_before += u64::from((0..place).any(really));
            for (before, covers) in cover[place].iter_mut().enumerate() {
                *covers &= really(before);
            }
        }
    }
    for (place, found) in found.iter_mut().enumerate().filter(|(_, found)| found.held > 0) {
        let covering = cover[place].iter().position(|covers| *covers);
        found.behind = covering.map(|before| rules[before].name.to_owned());
    }
    found
}

/// The rule that refuses this sample, if any.
#[must_use]
pub fn refuser<'a, 'r>(rules: &'a [Looked<'r>], sample: &Sample) -> Option<&'a Looked<'r>> {
    rules.iter().find(|rule| !rule.reports && rule.refuses(sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule<'a>(name: &'a str, deny: &str) -> Looked<'a> {
        Looked {
            name,
            on: vec!["acquire"],
            when: None,
            deny: Some(Expression::parse(deny).unwrap_or_else(|problem| panic!("{deny}: {problem}"))),
            reports: false,
            limits: false,
        }
    }

    fn looked(rules: &[Looked<'_>]) -> Vec<Found> {
        explain(rules, &samples(&[rules]))
    }

    #[test]
    fn rules_that_never_or_always_hold_are_found() {
        for (deny, never, always) in [
            ("hour >= 24", true, false),
            ("hour >= 0", false, true),
            ("hour < 8 || hour >= 18 || weekday > 5", false, false),
            ("ttl > 5s", false, false),
            ("ttl > 5s && ttl < 5001ms", true, false),
            ("ttl >= 5s && ttl < 5001ms", false, false),
            ("key.like('lock:a:*') && key.endsWith(':z')", false, false),
            ("key == 'lock:a' && key == 'lock:b'", true, false),
            ("key.size() > 64", false, false),
            ("token.class != 'uuid'", false, false),
            ("token.length < 16 && token.class == 'uuid'", true, false),
            ("token.length == 17", false, false),
            ("client.name == key", false, false),
            ("client.name.contains('bill') && !client.user.startsWith('a')", false, false),
            ("has_ttl || !has_ttl", false, true),
            ("hour * 60 + minute >= 8 * 60 + 30", false, false),
            ("db in [3, 4]", false, false),
            ("!(key.like('lock:billing:*') || key.like('lock:stock:*'))", false, false),
        ] {
            let found = &looked(&[rule("it", deny)])[0];
            assert!(found.asked > 0, "{deny}");
            assert_eq!((found.held == 0, found.held == found.asked), (never, always), "{deny}: {found:?}");
        }
    }

    #[test]
    fn a_rule_behind_one_that_covers_it_is_found() {
        let wide = rule("wide", "key.like('lock:a*')");
        let narrow = rule("narrow", "key.like('lock:a:*') && ttl > 5s");
        let other = rule("other", "ttl > 5s");
        let found = looked(&[wide, narrow, other]);
        assert_eq!(found[1].behind.as_deref(), Some("wide"));
        assert_eq!((found[0].behind.as_deref(), found[2].behind.as_deref()), (None, None));
        assert!(found[2].refused_before > 0 && found[2].refused_before < found[2].held);

        // A rule that only reports hides no other rule.
        let report = Looked { reports: true, ..rule("wide", "key.like('lock:a*')") };
        let found = looked(&[report, rule("narrow", "key.like('lock:a:*')")]);
        assert_eq!((found[1].behind.as_deref(), found[1].refused_before), (None, 0));
    }

    #[test]
    fn many_facts_are_sampled_and_not_without_end() {
        let deny =
            "hour < 8 && weekday > 5 && ttl > 5s && db > 3 && attempts > 3 && client.name.like('a*') && key.like('b*')";
        let rules = [rule("it", deny)];
        let samples = samples(&[&rules]);
        assert!(samples.combinations() > MAX_SAMPLES);
        assert_eq!(samples.iter().count() as u64, MAX_SAMPLES);
        let found = explain(&rules, &samples);
        assert!(found[0].held > 0, "{found:?}");
        assert_eq!(explain(&rules, &samples), found);
    }

    #[test]
    fn what_two_sets_of_rules_say_of_one_request_can_be_compared() {
        let (old, new) = ([rule("hours", "hour >= 18")], [rule("hours", "hour >= 19")]);
        let samples = samples(&[&old, &new]);
        let differs = |sample: &Sample| refuser(&old, sample).is_some() != refuser(&new, sample).is_some();
        let all: Vec<Sample> = samples.iter().filter(differs).collect();
        assert!(!all.is_empty() && all.iter().all(|sample| sample.hour == 18));
    }
}
