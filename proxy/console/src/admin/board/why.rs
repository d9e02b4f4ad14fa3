//! One refusal in the words of `lockwarden why`: the request, the holder, the reason, and what to do.

use lockwarden_control::text::numbers::percent;
use maud::{Markup, html};

use super::detail::copyable;
use super::frame::Frame;
use super::parts::lock_link;
use crate::view::api::Why;

/// The whole page; for an unknown id it says where to look instead.
pub(super) fn page(id: &str, remembered: &[Why], now: u64) -> Markup {
    let frame = Frame {
        title: "Why",
        skip: ("told", "what happened"),
        now,
        address: &format!("/why?id={}", percent(id)),
        json: Some(&format!("/api/v1/why/{}", percent(id))),
        command: None,
    };
    frame.around(&html! {
        @if remembered.is_empty() {
            h1 { "Nothing is remembered of " code { (id) } }
            div.part #told {
                p { "This proxy remembers its latest 4,096 refusals. What is older, or was decided by another proxy, stands in the audit trail:" }
                (terminal(id, true))
            }
        }
        @for (place, why) in remembered.iter().enumerate() {
            div.part id=[(place == 0).then_some("told")] {
                @if place == 0 { h1 { (headline(why)) } } @else { h2 { (headline(why)) } }
                dl.words {
                    @for line in &why.lines {
                        div {
                            dt { (label(&line.about)) }
                            dd class=[(line.about == "do").then_some("advice")] { bdi { (line.words) } }
                        }
                    }
                }
                p.hint {
                    "The lock now: " (lock_link(&why.decision.key, why.decision.db))
                }
            }
        }
        @if !remembered.is_empty() { (terminal(id, false)) }
    })
}

fn headline(why: &Why) -> Markup {
    html! { bdi { (why.headline) } " " small.soft { "id " (why.id) } }
}

/// The label of a line, for readers who have not typed the command.
fn label(about: &str) -> &str {
    match about {
        "when" => "When",
        "who" => "Who",
        "sent" => "Sent",
        "lease" => "Lease",
        "before" => "Before",
        "overlap" => "Overlap",
        "said" => "Judged",
        "asked" => "Asked",
        "took" => "Took",
        "result" => "Result",
        "again" => "Again",
        "do" => "What to do",
        other => other,
    }
}

/// The same command for a terminal. A text that is not an id is not offered as a command.
fn terminal(id: &str, older: bool) -> Markup {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let log = if older { " --log audit.jsonl" } else { "" };
    html! {
        @if is_id { (copyable(&format!("lockwarden why {id}{log}"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::board::tests::moment;
    use crate::view::api::WhyLine;

    fn why(words: &str) -> Why {
        Why {
            id: "7F3K2A".to_owned(),
            headline: words.to_owned(),
            lines: vec![WhyLine { about: "do".to_owned(), words: words.to_owned() }],
            decision: moment("refused", words),
            holder: None,
        }
    }

    #[test]
    fn whatever_clients_chose_is_text() {
        let evil = "<script>alert(1)</script>\"'&";
        let text = page("7F3K2A", &[why(evil)], 1).into_string();
        assert_eq!(text.matches("<script").count(), 1, "its own: {text}");
        assert_eq!(text.matches("&lt;script&gt;alert(1)").count(), 3, "{text}");
        assert!(text.contains("<code>lockwarden why 7F3K2A</code>"));
    }

    #[test]
    fn an_id_that_nobody_remembers_is_told_where_to_look_and_is_never_a_command() {
        let text = page("7F3K2A", &[], 1).into_string();
        assert!(text.contains("lockwarden why 7F3K2A --log audit.jsonl"));
        let text = page("$(reboot)<script>", &[], 1).into_string();
        assert!(!text.contains("lockwarden why"), "{text}");
        assert_eq!(text.matches("<script").count(), 1, "{text}");
    }
}
