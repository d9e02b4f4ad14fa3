//! `--from-keys`: lists the current keys of a server by `SCAN`, inspects some keys of each pattern more closely, and finds
//! those that are named like locks.

use std::fmt::Write as _;
use std::process::ExitCode;

use bytes::{Bytes, BytesMut};
use lockwarden_control::ruleset::activate;
use lockwarden_control::text::durations::share;
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::number;
use lockwarden_dataplane::backend::{Address, BackendError, Conversation};
use lockwarden_discovery::recognise::EVERY_KEY;
use lockwarden_discovery::survey::{KeysAlike, Look, Survey};
use lockwarden_lock::companion::{OwnKey, lock_behind, slot, tag};
use lockwarden_lock::namespace::Namespaces;
use lockwarden_resp::{Value, put_request};
use serde::Serialize;

use super::super::api_client::ApiError;
use super::super::output;
use super::super::output::{Paint, Screen, Table, duration};
use super::arguments::{DiscoverArgs, Form};
use super::server::{on_a_runtime, server};
use crate::app::exit_code;
use crate::terminal::complain;

/// Keys of one page of `SCAN`.
const PAGE: &[u8] = b"1000";

/// The JSON output.
#[derive(Serialize)]
struct Keys {
    /// Keys that were scanned.
    looked_at: u64,
    /// Whether these are all keys.
    all: bool,
    patterns: Vec<Pattern>,
}

#[derive(Serialize)]
struct Pattern {
    pattern: String,
    example: String,
    keys: u64,
    types: Vec<String>,
    /// Of the closely inspected keys.
    without_ttl: u64,
    looked: u64,
    longest_ttl_ms: Option<u64>,
    longest_idle_s: Option<u64>,
    longest_value: Option<u64>,
    named_like_locks: bool,
    /// They belong to a namespace.
    claimed: bool,
}

/// Prints the keys; exits with 1 if keys that are named like locks belong to no namespace.
pub(super) fn look(args: &DiscoverArgs) -> Result<ExitCode, ApiError> {
    let (config, address) = server(args)?;
    let namespaces = activate::namespaces(&config);
    let (keys, gone) = on_a_runtime(async {
        let mut walked = Walked::default();
        let ended = walk_all(&address, &config.companion_prefix, args.max_keys, &mut walked).await;
        match ended {
            Err(error) if walked.looked_at == 0 => Err(error.into()),
            ended => Ok((told(&walked, &namespaces), ended.err())),
        }
    })?;
    if let Some(error) = &gone {
        complain!("the server went away: {error}; what follows was there until then, so look again when it answers");
    }
    output::print(&match args.output {
        Form::Json => output::json(&keys),
        Form::Toml => {
            return Err(ApiError::Usage(
                "names of keys do not say how locks are used: -o toml needs traffic, from a proxy or by --from-monitor"
                    .to_owned(),
            ));
        }
        Form::Text => words(&keys, Screen::there_is()),
    })?;
    let free = |one: &Pattern| one.named_like_locks && !one.claimed;
    Ok(match gone.is_some() || keys.patterns.iter().any(free) {
        true => exit_code::findings(),
        false => ExitCode::SUCCESS,
    })
}

#[derive(Default)]
struct Walked {
    survey: Survey,
    looked_at: u64,
    all: bool,
}

/// Scans the primaries of a cluster one after the other, or the single server.
async fn walk_all(address: &Address, prefix: &[u8], max_keys: u64, walked: &mut Walked) -> Result<(), BackendError> {
    for primary in address.primaries().await? {
        walked.all = false;
        walk(&primary, prefix, max_keys, walked).await?;
    }
    Ok(())
}

async fn walk(address: &Address, prefix: &[u8], max_keys: u64, walked: &mut Walked) -> Result<(), BackendError> {
    let mut own = address.converse().await?;
    let mut cursor = Bytes::from_static(b"0");
    while walked.looked_at < max_keys {
        let page = own.ask(&[b"SCAN", &cursor[..], b"COUNT", PAGE]).await?;
        let Some([Value::Bulk(next), Value::Array(keys)]) = page.as_items() else {
            return Err(BackendError::OutOfStep("SCAN has another answer".to_owned()));
        };
        let mut close = Vec::new();
        for key in keys.iter().filter_map(Value::as_bytes) {
            if is_own(prefix, key) {
                continue;
            }
            walked.looked_at += 1;
            if walked.survey.add(key) {
                close.push(key.clone());
            }
        }
        look_closely(&mut own, &mut walked.survey, close).await?;
        cursor = next.clone();
        if cursor == "0" {
            walked.all = true;
            break;
        }
    }
    Ok(())
}

/// Whether it is a key of a proxy's own, for a lock of any namespace.
fn is_own(prefix: &[u8], key: &[u8]) -> bool {
    match OwnKey::of(prefix, key, &EVERY_KEY) {
        None => false,
        Some(OwnKey::Other) => true,
        Some(OwnKey::Record | OwnKey::Debts) => lock_behind(key).is_some_and(|lock| {
            let tag = tag(slot(lock)).as_bytes();
            key[prefix.len() + 1..].strip_prefix(tag).is_some_and(|rest| rest.starts_with(b"}"))
        }),
    }
}

/// Asks four questions about each key, all in one pipeline.
async fn look_closely(own: &mut Conversation, survey: &mut Survey, keys: Vec<Bytes>) -> Result<(), BackendError> {
    let mut requests = BytesMut::new();
    for key in &keys {
        put_request(&mut requests, &[b"TYPE", &key[..]]);
        put_request(&mut requests, &[b"PTTL", &key[..]]);
        put_request(&mut requests, &[b"OBJECT", b"IDLETIME".as_slice(), &key[..]]);
        put_request(&mut requests, &[b"STRLEN", &key[..]]);
    }
    own.send(&requests).await?;
    for key in &keys {
        let kind = own.read().await?;
        let ttl = positive(own.read().await?);
        // Where the server evicts keys by how often they are used, it does not return the idle time.
        let idle = positive(own.read().await?);
        let length = positive(own.read().await?);
        let kind = match kind {
            Value::Simple(kind) if kind != "none" => String::from_utf8_lossy(&kind).into_owned(),
            // It is gone by now.
            _ => continue,
        };
        let look = Look { kind, ttl_ms: ttl, idle_s: idle, length };
        survey.looked(key, look);
    }
    Ok(())
}

fn positive(value: Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

fn told(walked: &Walked, namespaces: &Namespaces) -> Keys {
    let pattern = |one: KeysAlike| Pattern {
        pattern: spell(&one.glob),
        example: spell(&one.surveyed.example),
        keys: one.surveyed.keys,
        types: one.surveyed.kinds.keys().cloned().collect(),
        without_ttl: one.surveyed.without_ttl,
        looked: one.surveyed.looked,
        longest_ttl_ms: one.surveyed.longest_ttl_ms,
        longest_idle_s: one.surveyed.longest_idle_s,
        longest_value: one.surveyed.longest_value,
        named_like_locks: one.may_be_locks,
        claimed: namespaces.find(&one.surveyed.example).is_some(),
    };
    Keys {
        looked_at: walked.looked_at,
        all: walked.all,
        patterns: walked.survey.patterns().into_iter().map(pattern).collect(),
    }
}

fn words(keys: &Keys, screen: Screen) -> String {
    let mut text = String::new();
    let all = match keys.all {
        true => "all that there are",
        false => "of more: --max-keys looks at more of them",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{} keys, {all}:\n", number(keys.looked_at));
    let named = |one: &Pattern| match (one.claimed, one.named_like_locks) {
        (true, _) => Some(("in a namespace".to_owned(), Paint::Good)),
        (false, true) => Some(("locks".to_owned(), Paint::Doubtful)),
        (false, false) => None,
    };
    let table = Table::of(&keys.patterns)
        .cut("PATTERN", |one| one.pattern.as_str())
        .right("KEYS", |one| one.keys)
        .right("SHARE", |one| share(one.keys, keys.looked_at))
        .left("TYPE", |one| one.types.join(", "))
        .right("NO TTL", |one| format!("{} of {}", one.without_ttl, one.looked))
        .right("LONGEST TTL", |one| one.longest_ttl_ms.map(duration))
        .right("UNUSED FOR", |one| one.longest_idle_s.map(|s| duration(s.saturating_mul(1_000))))
        .right("VALUE", |one| one.longest_value.map(|bytes| format!("{} B", number(bytes))))
        .left("NAMED LIKE", named);
    text.push_str(&table.show(screen));
    text.push_str(
        "\nA name is a hint. How keys are used says whether they are locks: put the proxy in front and type \
         `lockwarden discover`, or `lockwarden discover --from-monitor 60`.\n",
    );
    text
}
