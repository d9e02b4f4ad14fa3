//! The page about keys that belong to no namespace: those that look like locks, the reason, and the configuration that would
//! govern them, to be copied. `lockwarden-discovery` finds and judges them.

use lockwarden_control::text::durations::duration;
use lockwarden_control::text::numbers::{counted, number};
use maud::{Markup, html};

use super::detail::copyable;
use super::frame::Frame;
use super::parts::application_link;
use super::table::Table;
use crate::view::api::{Discovery, KeyPattern};

/// Patterns on the page; the JSON has all.
const MAX_PATTERNS: usize = 200;
/// Applications named per pattern.
const MAX_APPLICATIONS: usize = 5;

/// The whole page.
pub(super) fn page(found: &Discovery) -> Markup {
    let frame = Frame {
        title: "Discovery",
        skip: ("proposal", "the configuration"),
        now: found.now,
        address: "/discovery",
        json: Some("/api/v1/discovery"),
        command: Some("lockwarden discover"),
    };
    frame.around(&html! {
        h1 { "Keys that no namespace has" }
        (summary(found))
        div.part #patterns { (patterns(&found.patterns)) (unknown_scripts(found)) }
        div.part #proposal { (proposal(found)) }
    })
}

fn summary(found: &Discovery) -> Markup {
    let watched = duration(found.now.saturating_sub(found.since));
    html! {
        p class=(if found.unclaimed > 0 { "found" } else { "calm" }) {
            @match found.unclaimed {
                0 => "No pattern looks like locks that nobody governs.",
                1 => "1 pattern of locks is in no namespace: nothing governs them.",
                more => { (number(more)) " patterns of locks are in no namespace: nothing governs them." }
            }
        }
        p.hint {
            "Seen in the last " (watched) ", since this proxy was started."
            @let too_many = found.unseen.saturating_sub(unknown_calls(found));
            @if too_many > 0 {
                " " (counted(too_many, "command was", "commands were")) " not looked at, because there were too many at once: the counts are of the others."
            }
            @if found.beyond > 0 {
                " " (counted(found.beyond, "command was", "commands were")) " on keys of further patterns, for which there was no room."
            }
        }
    }
}

fn unknown_calls(found: &Discovery) -> u64 {
    found.unknown_scripts.iter().map(|one| one.calls).sum()
}

/// Calls of unknown scripts, and what to do about them.
fn unknown_scripts(found: &Discovery) -> Markup {
    let all = &found.unknown_scripts;
    html! {
        @if !all.is_empty() {
            h2 { "Scripts that are not known here" }
            p.hint {
                "Clients called them by their digest alone, so what they did to these keys was not seen. "
                code { "SCRIPT FLUSH" } " on the server makes clients send their texts once more."
            }
            ul {
                @for one in all.iter().take(MAX_PATTERNS) {
                    li { code { (one.pattern) } ": " (counted(one.calls, "call", "calls")) }
                }
            }
        }
    }
}

fn is_lock(pattern: &KeyPattern) -> bool {
    matches!(pattern.kind.as_str(), "lock" | "timed lock")
}

/// Locks first, then the others, each with the busiest first.
fn patterns(all: &[KeyPattern]) -> Markup {
    let (locks, others): (Vec<_>, Vec<_>) = all.iter().partition(|one| is_lock(one));
    html! {
        h2 { "Patterns of keys" }
        @if all.is_empty() {
            p.empty {
                "No key without a namespace was used as a lock may be: by SETNX, SET NX, INCR, or a script of a lock library. "
                "Let the applications work for a minute or two, and refresh."
            }
        } @else {
            (table(locks.into_iter().chain(others).take(MAX_PATTERNS)))
            @if all.len() > MAX_PATTERNS {
                p.cut { "And " (number((all.len() - MAX_PATTERNS) as u64)) " more: " a href="/api/v1/discovery" { "JSON" } }
            }
        }
    }
}

fn table<'a>(patterns: impl Iterator<Item = &'a KeyPattern>) -> Table<'a, KeyPattern> {
    Table::of("Patterns of keys", patterns)
        .tone(tone)
        .key_name("Pattern", |one| {
            html! {
                code dir="ltr" { (one.pattern) }
                @if one.example != one.pattern { br; small { "e.g. " code dir="ltr" { (one.example) } } }
            }
        })
        .text("Looks like", |one| {
            html! {
                b class=[(!tone(one).is_empty()).then_some(tone(one))] { (one.kind) } ", " (one.confidence)
                br; small { bdi { (one.why) } }
            }
        })
        .text("Taken by", |one| one.taken_by.join(", "))
        .number("Keys", |one| number(one.keys))
        .number("Tries", |one| number(one.tries))
        .number("Taken", |one| number(one.granted))
        .number("Given back", |one| number(one.released + one.handed_over + one.foreign_releases + one.swept))
        .number("Foreign", |one| number(one.foreign_releases))
        .number("Ran out", |one| number(one.ran_out))
        .number("No TTL", |one| number(one.without_ttl))
        .text("Held: half, 99 %", |one| {
            html! {
                @match (one.hold_p50_ms, one.hold_p99_ms) {
                    (Some(half), Some(most)) => { (duration(half)) " · " (duration(most)) }
                    _ => span.none { "–" },
                }
                @if let Some(longest) = one.longest_ttl_ms { br; small { "TTL up to " (duration(longest)) } }
            }
        })
        .text("Applications", applications)
}

fn tone(one: &KeyPattern) -> &'static str {
    if is_lock(one) && one.confidence != "a guess" { "warn" } else { "" }
}

fn applications(one: &KeyPattern) -> Markup {
    let rest = one.applications.len().saturating_sub(MAX_APPLICATIONS);
    html! {
        @for (place, by) in one.applications.iter().take(MAX_APPLICATIONS).enumerate() {
            @if place > 0 { ", " }
            (application_link(Some(&by.application)))
        }
        @if rest > 0 { " and " (number(rest as u64)) " more" }
    }
}

fn proposal(found: &Discovery) -> Markup {
    html! {
        h2 { "The configuration" }
        @if found.unclaimed + found.implied == 0 {
            p.empty { "Nothing to propose." }
        } @else {
            p {
                "Read it, paste it into the configuration, type " code { "lockwarden check" } " and then " code { "lockwarden reload" }
                ". It says " code { "mode = \"monitor\"" } ": nothing is refused. From then on "
                code { "lockwarden audit" } " says what enforce mode would refuse."
            }
            (copyable(&found.toml))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::api::PatternUser;

    fn pattern(glob: &str, kind: &str) -> KeyPattern {
        KeyPattern {
            pattern: glob.to_owned(),
            example: format!("{glob}7"),
            kind: kind.to_owned(),
            confidence: "certain".to_owned(),
            why: "given back by who takes it".to_owned(),
            taken_by: vec!["SETNX".to_owned()],
            keys: 1,
            tries: 2_000,
            granted: 30,
            contended: 1,
            released: 20,
            handed_over: 3,
            foreign_releases: 4,
            swept: 1,
            late_releases: 0,
            ran_out: 5,
            extended: 0,
            overwritten: 0,
            without_ttl: 6,
            longest_ttl_ms: Some(9_000),
            hold_p50_ms: Some(12),
            hold_p999_ms: None,
            hand_over: false,
            words: Vec::new(),
            named: true,
            hold_p99_ms: Some(2_500),
            one_value: false,
            first_seen: 1,
            last_seen: 2,
            applications: Vec::new(),
        }
    }

    fn found(patterns: Vec<KeyPattern>) -> Discovery {
        let locks = patterns.iter().filter(|one| is_lock(one)).count() as u64;
        Discovery {
            since: 1_795_260_990_000,
            now: 1_795_261_020_000,
            unseen: 0,
            unreadable: 0,
            unknown_scripts: Vec::new(),
            beyond: 0,
            unclaimed: locks,
            implied: 0,
            patterns,
            guards: Vec::new(),
            toml: "[[namespace]]\nname = \"a\"\n".to_owned(),
        }
    }

    #[test]
    fn locks_come_before_what_is_none_and_each_row_says_all() {
        let text = page(&found(vec![pattern("hits:*", "counter"), pattern("job:*", "lock")]));
        let text = text.into_string();
        let (lock, counter) = (text.find("job:*").unwrap(), text.find("hits:*").unwrap());
        assert!(lock < counter, "{text}");
        for said in [
            "1 pattern of locks is in no namespace",
            ">2,000<",
            ">28<",
            "12 ms · 2.5 s",
            "TTL up to 9.0 s",
            "given back by who takes it",
            "name = &quot;a&quot;",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn whatever_clients_chose_is_text() {
        let evil = "<script>alert(1)</script>\"'&";
        let mut hostile = pattern(evil, "lock");
        hostile.example = format!("{evil}7");
        hostile.why = evil.to_owned();
        hostile.applications = vec![PatternUser { application: evil.to_owned(), tries: 1, granted: 1, deleted: 1 }];
        let mut all = found(vec![hostile]);
        all.toml = format!("# {evil}</code></pre>");
        let text = page(&all).into_string();
        assert_eq!(text.matches("<script").count(), 1, "its own: {text}");
        assert_eq!(text.matches("&lt;script&gt;alert(1)").count(), 5, "{text}");
        assert_eq!(text.matches("</pre>").count(), 1, "{text}");
    }

    #[test]
    fn a_thousand_patterns_are_not_all_on_the_page() {
        let all = (0..1_000).map(|n| pattern(&format!("p{n}:*"), "lock"));
        let text = page(&found(all.collect())).into_string();
        assert_eq!(text.matches("<tr").count(), 1 + MAX_PATTERNS);
        assert!(text.contains("And 800 more"));
    }

    #[test]
    fn without_locks_nothing_is_proposed() {
        let text = page(&found(Vec::new())).into_string();
        assert!(text.contains("Nothing to propose."), "{text}");
        assert!(!text.contains("<pre>"), "{text}");
    }
}
