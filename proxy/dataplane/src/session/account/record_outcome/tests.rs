//! What every outcome of every operation means for the counters, the connection's evidence, keep-alive, the view of
//! leases and the event log: `follows.txt` lists it, a line for each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};

use bytes::BytesMut;
use lockwarden_control::net::arrival::Arrival;
use lockwarden_control::random;
use lockwarden_control::telemetry::events::{Follower, LockEvent, example};
use lockwarden_lock::classify::Class;
use lockwarden_lock::outcome::{Beside, Ended, StandsFor, Would};
use lockwarden_lock::settle::{Settled, settle};
use lockwarden_lock::time::{AskedMs, RedisTime, TtlMs};
use lockwarden_lock::token::{FencingToken, Process, SessionId};

use super::*;
use crate::registry::clients::{ClientConnection, Holder};
use crate::session::client::connection_state::ConnectionState;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::state::{self, ProxyState};

const CONFIGURATION: &str = r#"
    [[namespace]]
    name = "locks"
    keys = ["lock:*"]
    mode = "enforce"
"#;

/// One request of each operation, with `KEY` and `OTHER` for lock keys.
const REQUESTS: [(&str, &[&str]); 8] = [
    ("acquire", &["SET", "KEY", "mine-0123456789abcdef", "NX", "PX", "5000"]),
    ("acquire without a TTL", &["SETNX", "KEY", "1"]),
    ("acquire several", &["MSETNX", "KEY", "1", "OTHER", "1"]),
    ("take over", &["GETSET", "KEY", "1790000000000"]),
    ("write", &["SET", "KEY", "mine-0123456789abcdef", "XX"]),
    ("extend", &["PEXPIRE", "KEY", "5000"]),
    ("release", &["DEL", "KEY"]),
    ("script", &["EVAL", "redis.call('incr', KEYS[2]) return redis.call('del', KEYS[1])", "2", "KEY", "n"]),
];

fn outcomes() -> Vec<(&'static str, Outcome)> {
    let granted = Granted {
        fence: FencingToken(7),
        now: RedisTime(1_790_000_000_000),
        ttl_ms: TtlMs(5_000),
        ended: Ended::Nothing,
        kept: false,
        old: None,
        again: None,
        shared_token: false,
        asked_ms: AskedMs(5_000),
    };
    let kept = Granted { ttl_ms: TtlMs(30_000), kept: true, asked_ms: AskedMs(0), ..granted.clone() };
    let after_one_that_ran_out = Granted { ended: Ended::RanOut(RedisTime(1_789_999_999_000)), ..granted.clone() };
    let again = Granted { again: Some(Grant([9; 16])), ..granted.clone() };
    let busy = |governed, own| Outcome::Busy { governed, adopted: false, perhaps_own: false, own };
    let extended = |own| Outcome::Extended {
        ttl_ms: TtlMs(5_000),
        fence: FencingToken(7),
        since: RedisTime(1_789_999_999_000),
        now: RedisTime(1_790_000_000_000),
        kept: false,
        old: None,
        own,
        asked_ms: Some(AskedMs(5_000)),
    };
    let released = |taken_over| Outcome::Released {
        fence: FencingToken(7),
        since: RedisTime(1_789_999_999_000),
        value: None,
        taken_over,
    };
    let refused = |reason, late| {
        Outcome::Refused(StepRefused {
            reason,
            since: RedisTime(1_789_999_999_000),
            now: RedisTime(1_790_000_000_000),
            fence: FencingToken(7),
            late,
            keep_alive_ended: false,
            stands_for: StandsFor::Nothing,
            current: None,
        })
    };
    vec![
        ("granted", Outcome::Granted(granted)),
        ("granted and kept alive", Outcome::Granted(kept)),
        ("granted after one that ran out", Outcome::Granted(after_one_that_ran_out)),
        ("granted again", Outcome::Granted(again)),
        ("busy", busy(true, false)),
        ("busy with its own", busy(true, true)),
        ("busy without a record", busy(false, false)),
        ("extended", extended(true)),
        ("extended for another", extended(false)),
        ("released", released(false)),
        ("taken over", released(true)),
        ("absent", Outcome::Absent { ran_out: false, unrecorded: false }),
        ("ran out", Outcome::Absent { ran_out: true, unrecorded: false }),
        ("refused", refused(Reason::NotOwner, false)),
        ("refused and late", refused(Reason::Expired, true)),
        ("refused to overwrite", refused(Reason::Overwrite, false)),
        ("ungoverned", Outcome::Ungoverned),
        ("not recorded", Outcome::Unrecorded),
        ("different", Outcome::Different { late: false }),
        ("different and late", Outcome::Different { late: true }),
        ("condition unmet", Outcome::ConditionUnmet),
        ("untouched", Outcome::Untouched { governed: true, own: false }),
        ("failed", Outcome::Failed),
    ]
}

/// The key of an event that only separates others.
const MARK: &str = "mark";

/// Gives every event to the test.
struct Tells(mpsc::Sender<LockEvent>);

impl Follower for Tells {
    fn follow(&mut self, events: &[LockEvent], _now: Instant) {
        for event in events {
            // No listener is left behind the last case.
            let _ = self.0.send(event.clone());
        }
    }
}

fn client(shared: &Arc<ProxyState>) -> Client {
    client_at(shared, "10.0.0.7:40000")
}

fn client_at(shared: &Arc<ProxyState>, address: &str) -> Client {
    let address: SocketAddr = address.parse().expect("an address");
    let (session, holder) = (SessionId(random::sixteen()), Holder::new());
    let arrival = Arrival::direct(address.into());
    let connection = ClientConnection::new(session, holder.clone(), arrival, Some(address), Arc::default());
    let state = ConnectionState::new(Arc::new(connection), true);
    Client::new(shared.clone(), holder, address.into(), state, Arc::default())
}

/// Takes a request to the point where its step would be sent.
fn flight(client: &mut Client, words: &[&str], key: &str) -> InFlight {
    let other = format!("{key}-other");
    let words: Vec<&str> = words
        .iter()
        .map(|word| match *word {
            "KEY" => key,
            "OTHER" => &other,
            word => word,
        })
        .collect();
    let mut bytes = BytesMut::new();
    lockwarden_resp::put_request(&mut bytes, &words);
    let mut inbox = RequestBuffer::with(bytes);
    assert_eq!(inbox.decode().ok(), Some(true));
    let Class::Judge(command) = client.classify(inbox.request()) else {
        panic!("{words:?} is no lock command");
    };
    let (active, now) = (client.active(), Moment::now());
    let command = command.into();
    let locks = client.locks(&command, &active, now.at);
    let decided = client.decide(&command, locks, &active, now);
    let permitted = match settle(command, decided, &|namespace| active.rules(namespace)) {
        Settled::Permitted(permitted) => permitted,
        Settled::Refused(_) | Settled::Unjudged(_) | Settled::Forward(..) => {
            panic!("{words:?} is not permitted")
        }
    };
    let mut flight = InFlight {
        confirmation: None,
        permitted,
        asked: Vec::new(),
        took: Took::default(),
        unchecked: None,
        speaks_for: None,
        told: Process::Pending,
    };
    client.plan(&mut flight, false, &active);
    flight
}

fn answers(outcome: &Outcome, flight: &InFlight, would: Option<Would>) -> Answers {
    let one = Answer { outcome: outcome.clone(), native: None, would, deed: None, unrecorded: None, later: None };
    let op = &flight.permitted.command().op;
    match op {
        LockOp::Wrapped { .. } => Answers::Script(ScriptEnd::Returned, vec![one], Beside::default()),
        _ if op.targets().len() > 1 => Answers::Many(0, vec![one.clone(), one]),
        _ => Answers::One(one),
    }
}

/// The counters that are not null, by name and labels that tell them apart.
fn counted(shared: &ProxyState) -> BTreeMap<String, f64> {
    let page = String::from_utf8(shared.metrics.render()).expect("text");
    let lines = page.lines().filter(|line| line.starts_with("lockwarden_"));
    let lines = lines.filter_map(|line| line.rsplit_once(' '));
    lines
        .filter(|(series, _)| series.contains("_total{") || series.contains("_count{"))
        .filter_map(|(series, value)| {
            let (name, labels) = series.strip_prefix("lockwarden_")?.split_once('{')?;
            let labels: Vec<&str> = labels
                .trim_end_matches('}')
                .split(',')
                .filter(|label| !label.starts_with("namespace=") && !label.ends_with("=\"\""))
                .filter_map(|label| Some(label.split_once('=')?.1.trim_matches('"')))
                .collect();
            let name = name.trim_end_matches("_total");
            Some((format!("{name}({})", labels.join(" ")), value.parse().ok()?))
        })
        .collect()
}

/// What follows from an outcome, in words; without the events, which stand between two marks in the log.
fn follows(shared: &Arc<ProxyState>, (words, key): (&[&str], &str), outcome: &Outcome, is_holder: bool) -> String {
    let (mut client, active) = (client(shared), shared.active.load_full());
    if is_holder {
        let flight = flight(&mut client, REQUESTS[0].1, key);
        let (_, granted) = &outcomes()[0];
        let answers = answers(granted, &flight, None);
        let accounted = client.account(&flight, &answers, &active, (0, Moment::now()));
        accounted.expect("the answer fits");
    }
    let flight = flight(&mut client, words, key);
    let before = counted(shared);
    shared.events.leave(example(MARK));
    let answers = answers(outcome, &flight, None);
    let accounted = client.account(&flight, &answers, &active, (0, Moment::now()));
    accounted.expect("the answer fits");
    shared.events.leave(example(MARK));
    let mut told = String::new();
    for (series, now) in counted(shared) {
        let more = now - before.get(&series).copied().unwrap_or_default();
        if more > 0.0 {
            let times = if more > 1.0 { format!(" ×{more}") } else { String::new() };
            write!(told, "{series}{times} ").expect("memory");
        }
    }
    let lock = &flight.permitted.locks()[0].lock.key;
    let now = Instant::now();
    let own = client.evidence.own(lock, now);
    let grant = shared.mirror.current(lock).map(|(grant, _)| grant);
    let known = [
        (own.is_some_and(|own| own.lapsed.is_none()), "own"),
        (own.is_some_and(|own| own.lapsed.is_some()), "lapsed"),
        (client.evidence.was_refused(lock), "lost"),
        (shared.renewals.has(client.number), "renewed"),
        (grant.is_some(), "shown"),
    ];
    let known = known.iter().filter(|(is_so, _)| *is_so).map(|(_, word)| *word);
    write!(told, "| {}", known.collect::<Vec<_>>().join(" ")).expect("memory");
    client.shared.renewals.end_session(client.number);
    told
}

/// The events of each case: those between two marks.
fn events(heard: mpsc::Receiver<LockEvent>) -> impl Iterator<Item = String> {
    let mut heard = heard.into_iter();
    let is_mark = |event: &LockEvent| event.key.bytes() == MARK.as_bytes();
    std::iter::from_fn(move || {
        heard.by_ref().find(is_mark)?;
        let of_case = heard.by_ref().take_while(|event| !is_mark(event));
        let words = of_case.map(|event| {
            let overlap = if event.overlap { "!" } else { "" };
            format!("{}{overlap}", event.happened.word())
        });
        Some(words.collect::<Vec<_>>().join(" "))
    })
}

#[tokio::test]
async fn a_process_that_was_found_while_a_grant_was_on_its_way_is_added_to_the_record() {
    let shared = state::for_tests(CONFIGURATION);
    let mut client = client_at(&shared, "127.0.0.1:40000");
    let flight = flight(&mut client, REQUESTS[0].1, "lock:a");
    let peer = client.connection.peer().clone();
    peer.found(Process::Known([7; 8]), None, None);
    let (_, granted) = &outcomes()[0];
    let answers = answers(granted, &flight, None);
    let active = shared.active.load_full();
    let accounted = client.account(&flight, &answers, &active, (0, Moment::now()));
    accounted.expect("the answer fits");
    let waiting = peer.take_unidentified();
    let keys: Vec<&[u8]> = waiting.iter().map(|(key, _)| key.bytes()).collect();
    assert_eq!(keys, [b"lock:a"]);
}

/// The client that waited for a lock may hear of its grant before the client that released it hears of the release.
#[test]
fn a_release_that_is_heard_of_late_ends_nothing_of_the_next_lease() {
    let shared = state::for_tests(CONFIGURATION);
    let active = shared.active.load_full();
    let (mut next, mut before) = (client(&shared), client(&shared));
    let granted = &outcomes()[1].1;
    let accounts = |client: &mut Client, words: &[&str], outcome: &Outcome| {
        let flight = flight(client, words, "lock:a");
        let answers = answers(outcome, &flight, None);
        let accounted = client.account(&flight, &answers, &active, (0, Moment::now()));
        accounted.expect("the answer fits");
        flight.permitted.locks()[0].lock.key.clone()
    };
    let key = accounts(&mut next, REQUESTS[1].1, granted);
    let released = |fence| Outcome::Released {
        fence: FencingToken(fence),
        since: RedisTime(1_789_999_999_000),
        value: None,
        taken_over: false,
    };
    accounts(&mut before, REQUESTS[6].1, &released(6));
    assert!(shared.mirror.current(&key).is_some(), "shown");
    assert!(shared.renewals.has(next.number), "kept alive");
    accounts(&mut next, REQUESTS[6].1, &released(7));
    assert!(shared.mirror.current(&key).is_none());
    assert!(!shared.renewals.has(next.number));
}

#[test]
fn every_outcome_of_every_operation_means_what_its_line_says() {
    let shared = state::for_tests(CONFIGURATION);
    let (told, heard) = mpsc::channel();
    let followers: Vec<Box<dyn Follower>> = vec![Box::new(Tells(told))];
    let following = shared.events.start(followers).expect("a thread");
    let mut lines = Vec::new();
    for (operation, words) in REQUESTS {
        for (name, outcome) in outcomes() {
            for is_holder in [false, true] {
                let who = if is_holder { "its holder" } else { "a stranger" };
                let key = format!("lock:{operation}-{name}-{is_holder}").replace(' ', "-");
                let follows = follows(&shared, (words, &key), &outcome, is_holder);
                lines.push(format!("{operation} by {who}, {name}: {follows}"));
            }
        }
    }
    drop(following);
    let lines: Vec<String> = lines
        .into_iter()
        .zip(events(heard))
        .map(|(line, events)| format!("{line} | {events}").trim_end().to_owned())
        .collect();
    let expected: Vec<&str> = include_str!("tests/follows.txt").lines().collect();
    let differs = lines.iter().zip(&expected).find(|(now, line)| now != *line);
    let is_as_written = differs.is_none() && lines.len() == expected.len();
    assert!(is_as_written, "{differs:?}; all that follows now:\n{}", lines.join("\n"));
}
