//! An untouched command stays untouched, at random: a long script of ordinary commands goes straight to one
//! fresh server and through the proxy to another, split into different writes each time, and every byte of
//! the replies must be the same. The script touches none of the configured locks.
//!
//! Left out is what a server chooses by itself, because two servers without a proxy differ in that, too:
//! - the time and what follows from it: `TIME`, `LASTSAVE`, `TTL`, `PTTL`, `EXPIRETIME` after `EXPIRE`,
//!   `XADD *`, `OBJECT IDLETIME` and `FREQ`, the idle times of `XPENDING` and `XINFO CONSUMERS`, `SLOWLOG`, `LATENCY`;
//! - what is drawn by lot: `RANDOMKEY`, `SPOP`, `SRANDMEMBER`, `HRANDFIELD`, `ZRANDMEMBER`, `ACL GENPASS`;
//! - the order within a hash table, whose seed each process draws: `UNSUBSCRIBE` without names, `SCAN`, `KEYS *`,
//!   `COMMAND`, and `SMEMBERS`, `HGETALL`, `SSCAN` and the like on collections too big for a packed form;
//! - who and where: `INFO`, `CLIENT ID`, `INFO`, `LIST` and the `id` in the reply of `HELLO`, which is blanked,
//!   `ROLE`, `CONFIG GET *`, `MEMORY`, `DEBUG`, `CLUSTER MYID`.
//!
//! `MONITOR`, `CLIENT TRACKING` and waiting for others have tests of their own in `transparency.rs`;
//! `SWAPDB`, `SYNC` and `PSYNC` are refused on purpose.

use std::ops::Range;
use std::thread;

use lockwarden_tests::random::Random;
use lockwarden_tests::soak::for_each_seed;
use lockwarden_tests::{Client, Mode, Proxy, Redis, Reply, encode};

use generator::{Generator, Step};

mod generator;

/// How many commands one run has.
const COMMANDS: usize = 10_000;
/// After about so many commands a new connection takes over.
const COMMANDS_A_CONNECTION: usize = 800;
/// Most writes that one group is split into; what is left goes in one.
const MAX_WRITES: usize = 200;

/// Some seconds of runs with the same seeds every time, and as many others as fit into
/// `LOCKWARDEN_SOAK_SECONDS`. `LOCKWARDEN_SEED` repeats one run.
#[test]
fn a_random_script_of_ordinary_commands_is_answered_byte_for_byte() {
    for_each_seed(&[1, 2], run);
}

/// Plays the script of this seed: an odd seed through an enforcing proxy, an even one through a monitoring
/// one.
fn run(seed: u64) {
    let mode = if seed % 2 == 1 { Mode::Enforce } else { Mode::Monitor };
    let (plain, behind) = (Redis::start(), Redis::start());
    let proxy = Proxy::builder(&behind)
        .mode(mode)
        .namespace("keys", "[\"lock:*\", \"*:mutex\", \"job-*:mutex:[0-9]\"]")
        .start();
    let mut generator = Generator::from_seed(seed);
    let (mut commands, mut errors, mut bytes, mut groups) = (0, 0, 0, 0);
    while commands < COMMANDS {
        let pair = [plain.client(), proxy.client()];
        generator.reconnected();
        let until = commands + generator.random.between(1, 2 * COMMANDS_A_CONNECTION);
        while commands < until {
            groups += 1;
            let steps = generator.group();
            let end = format!("the end of group {groups}");
            let answers = exchange(&pair, &steps, &end, &mut generator.random);
            let ended = answers[0].ends_with(format!("{end}\r\n").as_bytes());
            assert!(
                ended && answers[0] == answers[1],
                "seed {seed}, {mode:?}: {}\n{}\nonce more: LOCKWARDEN_SEED={seed} cargo test -p lockwarden-tests --test all differential",
                if ended { "the proxy changed an answer" } else { "the script itself never ends" },
                difference(&answers, &steps)
            );
            commands += steps.iter().filter(|step| step.replies > 0).count();
            bytes += answers[0].len();
            errors += replies(&answers[0]).filter(|(reply, _)| matches!(reply, Reply::Error(_))).count();
        }
        if generator.random.one_in(2) {
            for client in &pair {
                client.sends("QUIT").gets("+OK");
                client.then().gets_close();
            }
        }
    }
    eprintln!(
        "{commands} ordinary commands in {groups} pipelines, {errors} errors, {bytes} bytes: the same straight and through the proxy (seed {seed}, {mode:?})"
    );
    // Otherwise the script would prove little.
    assert!(errors * 3 < commands, "{errors} of {commands} replies are errors");
    for touched in ["acquires", "releases"] {
        let times = proxy.metric(&format!("lockwarden_lock_{touched}_total"));
        assert_eq!(times, 0.0, "{touched}: no lock was touched");
    }
    let passed = proxy.metric("lockwarden_commands_total{class=\"passthrough\"}");
    assert!(passed >= commands as f64, "{passed} of {commands} went through the proxy");
}

/// Writes the group to both, each time split elsewhere, and returns what came back from each.
fn exchange(pair: &[Client; 2], steps: &[Step], end: &str, random: &mut Random) -> [Vec<u8>; 2] {
    let mut bytes: Vec<u8> = steps.iter().flat_map(|step| step.bytes.iter().copied()).collect();
    bytes.extend(encode(&["ECHO", end]));
    let end = format!("${}\r\n{end}\r\n", end.len());
    let writes = [random.number(), random.number()].map(|seed| cuts(bytes.len(), &mut Random::from_seed(seed)));
    let [direct, through] = pair;
    thread::scope(|scope| {
        // A server stops reading from a client that does not read its replies.
        for (client, writes) in [(direct, &writes[0]), (through, &writes[1])] {
            let (bytes, mut writer) = (&bytes, client.writer());
            scope.spawn(move || {
                for part in writes {
                    writer.write(&bytes[part.clone()]);
                    thread::yield_now();
                }
            });
        }
        [direct, through].map(|client| without_ids(client.reads_until(end.as_bytes())))
    })
}

/// Where the bytes of a group are cut into writes.
fn cuts(length: usize, random: &mut Random) -> Vec<Range<usize>> {
    let longest = *random.among(&[3, 50, 1_000, 20_000, length.max(1)]);
    let mut parts = Vec::new();
    let mut start = 0;
    while start < length {
        let end = if parts.len() < MAX_WRITES { length.min(start + random.between(1, longest)) } else { length };
        parts.push(start..end);
        start = end;
    }
    parts
}

/// The number of a connection, in the reply of HELLO, is another on each server.
fn without_ids(bytes: Vec<u8>) -> Vec<u8> {
    const ID: &[u8] = b"$2\r\nid\r\n:";
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    while let Some(at) = rest.windows(ID.len()).position(|window| window == ID) {
        let (before, after) = rest.split_at(at + ID.len());
        kept.extend_from_slice(before);
        kept.push(b'0');
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest = &after[digits..];
    }
    kept.extend_from_slice(rest);
    kept
}

fn replies(mut bytes: &[u8]) -> impl Iterator<Item = (Reply, &[u8])> {
    std::iter::from_fn(move || {
        let (reply, length) = Reply::parse(bytes)?;
        let (raw, rest) = bytes.split_at(length);
        bytes = rest;
        Some((reply, raw))
    })
}

/// Names the first command whose reply is another.
fn difference(answers: &[Vec<u8>; 2], steps: &[Step]) -> String {
    let asked = steps.iter().flat_map(|step| std::iter::repeat_n(step, step.replies));
    let [mut direct, mut through] = answers.each_ref().map(|answer| replies(answer).map(|(_, raw)| raw));
    let mut before = Vec::new();
    for step in asked {
        let direct = direct.next().unwrap_or_default();
        let through = through.next().unwrap_or_default();
        let said = shortened(&step.bytes);
        if through != direct || direct.is_empty() {
            return format!(
                "after: {}\ncommand: {said}\ndirect:  {}\nthrough: {}",
                before.iter().rev().take(8).rev().cloned().collect::<Vec<_>>().join(" | "),
                shortened(direct),
                shortened(through)
            );
        }
        before.push(said);
    }
    format!(
        "after the last reply that was asked for:\ndirect:  {}\nthrough: {}",
        shortened(&answers[0]),
        shortened(&answers[1])
    )
}

fn shortened(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(300)].escape_ascii().to_string();
    if bytes.len() > 300 { format!("{text}… ({} bytes)", bytes.len()) } else { text }
}
