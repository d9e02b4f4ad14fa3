//! `lockwarden locks show`: one lock with its history.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Args;
use lockwarden_console::view::api::{Holds, Lock, LockDetail, Moment};
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::{number, time_of_day};
use serde_json::json;

use super::list::{client, fence, left, state};
use crate::app::exit_code;
use crate::cli::api_client::{ApiArgs, ApiClient, ApiError, path};
use crate::cli::output::{Output, Paint, Screen, Table, ago, duration, plain};

/// One lock, spelled as `locks list` spells it.
#[derive(Args, Debug)]
pub(super) struct Which {
    /// The lock, as `locks list` shows it: \xNN for a byte that cannot be shown, \\ for a backslash
    pub(super) key: OsString,
    /// The logical database that it is in
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(super) db: u32,
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) fn show(args: &ShowArgs) -> Result<ExitCode, ApiError> {
    let key = spelled(&args.which.key);
    let asked = path(&["locks", &key], &json!({ "db": args.which.db }));
    let detail: LockDetail = ApiClient::new(&args.api)?.get(&asked)?;
    args.output.print(&detail, |screen| told(&detail, screen))?;
    Ok(match detail.lock {
        Some(_) => ExitCode::SUCCESS,
        None => exit_code::findings(),
    })
}

/// The key as the API spells it. A key in valid text is assumed to be copied from a list.
pub(super) fn spelled(key: &OsStr) -> String {
    key.to_str().map_or_else(|| spell(key.as_bytes()), str::to_owned)
}

fn told(detail: &LockDetail, screen: Screen) -> String {
    let mut text = String::new();
    head(&mut text, detail, screen);
    for remark in &detail.remarks {
        line(&mut text, "remark", &screen.paint(&plain(remark), Paint::Doubtful));
    }
    if !detail.waiters.is_empty() {
        text.push('\n');
        waiters(&mut text, detail, screen);
    }
    if !detail.timeline.is_empty() {
        text.push('\n');
        timeline(&mut text, &detail.timeline, screen);
    }
    text
}

fn head(text: &mut String, detail: &LockDetail, screen: Screen) {
    let place = match detail.db {
        0 => String::new(),
        db => format!(" (database {db})"),
    };
    let key = format!("{}{place}", plain(&detail.key));
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "{}", screen.paint(&key, Paint::Head));
    line(text, "namespace", &plain(&detail.namespace));
    match &detail.lock {
        Some(lock) => lease(text, lock, screen),
        None => line(text, "state", "free"),
    }
    if let Some(holds) = said(&detail.holds) {
        line(text, "holds", &holds);
    }
}

fn lease(text: &mut String, lock: &Lock, screen: Screen) {
    let (word, paint) = state(lock.state);
    line(text, "state", &screen.paint(word, paint));
    let holder = match &lock.holder {
        Some(holder) => {
            let library = holder.library.as_deref().map(|name| format!(", {name}"));
            let user = holder.user.as_deref().map(|name| format!(", as user {name}"));
            let certificate = holder.certificate.as_deref();
            let certificate = certificate.filter(|name| *name != holder.application);
            let certificate = certificate.map(|name| format!(", certificate {name}"));
            format!(
                "{}{}{}{}",
                client(holder),
                user.unwrap_or_default(),
                library.unwrap_or_default(),
                certificate.unwrap_or_default()
            )
        }
        None => format!("not seen (found by {})", lock.seen),
    };
    line(text, "holder", &plain(&holder));
    line(text, "held for", &format!("{}, since {} UTC", duration(lock.age_ms), time_of_day(lock.since)));
    let (remaining, paint) = left(lock);
    let of = lock.ttl_ms.map(|ms| format!(" of {}", duration(ms))).unwrap_or_default();
    line(text, "TTL left", &screen.paint(&format!("{remaining}{of}"), paint));
    line(text, "fence", &fence(lock.fence));
    if let Some(token) = &lock.token {
        line(text, "token", &format!("fingerprint {}", plain(token)));
    }
    line(text, "waiting", &number(lock.waiters));
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<10} {value}");
}

/// How long its leases lasted, if any lease has ended.
fn said(holds: &Holds) -> Option<String> {
    (holds.count > 0).then(|| {
        format!(
            "the last {}: half of them up to {}, 99 of 100 up to {}, longest {}, {} ran out",
            number(holds.count),
            duration(holds.p50_ms),
            duration(holds.p99_ms),
            duration(holds.max_ms),
            number(holds.ran_out)
        )
    })
}

fn waiters(text: &mut String, detail: &LockDetail, screen: Screen) {
    // The reply does not contain the proxy's clock; its newest moment is the closest value.
    let now = detail.lock.as_ref().map_or(0, |lock| lock.since + lock.age_ms);
    let table = Table::of(&detail.waiters)
        .cut("WAITING", |waiter| client(&waiter.client))
        .right("SINCE", |waiter| ago(waiter.since, now))
        .right("TRIES", |waiter| waiter.tries);
    text.push_str(&table.show(screen));
}

fn timeline(text: &mut String, moments: &[Moment], screen: Screen) {
    let who = |moment: &Moment| moment.client.as_ref().map_or("the proxy".to_owned(), client);
    let table = Table::of(moments)
        .left("TIME (UTC)", |moment| time_of_day(moment.at))
        .left("WHAT", |moment| (moment.event.clone(), paint(moment)))
        .left("COMMAND", |moment| moment.command.clone().unwrap_or_default())
        .cut("CLIENT", who)
        .right("FENCE", |moment| moment.fence.map(fence).unwrap_or_default())
        .right("TTL", |moment| moment.ttl_ms.map(ttl).unwrap_or_default())
        .left("", more);
    text.push_str(&table.show(screen));
}

fn ttl(ms: u64) -> String {
    match ms {
        0 => "none".to_owned(),
        ms => duration(ms),
    }
}

fn paint(moment: &Moment) -> Paint {
    match (moment.event.as_str(), moment.overlap) {
        (_, true) => Paint::Bad,
        ("refused" | "broken" | "failed" | "lease-lost", _) => Paint::Bad,
        ("ran-out" | "ungoverned" | "unconfirmed" | "unjudged" | "observed", _) => Paint::Doubtful,
        _ if moment.reason.is_some() => Paint::Doubtful,
        _ => Paint::Plain,
    }
}

/// The other noted details.
fn more(moment: &Moment) -> String {
    let mut words = Vec::new();
    if let Some(reason) = &moment.reason {
        let would = moment.decision.as_deref() == Some("would-deny");
        words.push(match would {
            true => format!("would be refused: {reason}"),
            false => reason.clone(),
        });
    }
    words.extend(moment.kind.clone());
    if moment.overlap {
        words.push("another held it".to_owned());
    }
    if let (Some(asked), Some(got)) = (moment.asked_ms, moment.ttl_ms)
        && asked != got
    {
        words.push(format!("asked for {}", ttl(asked)));
    }
    if let Some(held) = moment.held_ms {
        words.push(format!("held {}", duration(held)));
    }
    words.extend(moment.detail.clone());
    words.extend(moment.id.as_ref().map(|id| format!("id {id}")));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_no_text_is_spelled_and_one_that_is_stays_a_copy() {
        assert_eq!(spelled(OsStr::new(r"lock:\x00\\a")), r"lock:\x00\\a");
        assert_eq!(spelled(OsStr::from_bytes(b"lock:\xff\\")), r"lock:\xff\\");
    }
}
