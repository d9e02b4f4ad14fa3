//! The meaning of each reason of a refusal, and what to do about it: the target of links on the board.

use lockwarden_lock::reason::Reason;
use maud::{Markup, html};

use super::frame::Frame;

/// The whole page; it is the same for every proxy of this version.
pub(super) fn page(now: u64) -> Markup {
    let frame = Frame {
        title: "Reasons",
        skip: ("reasons", "the reasons"),
        now,
        address: "/reasons",
        json: None,
        command: Some("lockwarden why ID"),
    };
    frame.around(&html! {
        h1 { "Why something is refused" }
        p.hint {
            "A namespace in enforce mode refuses this; in monitor mode Redis carries it out, and it is counted as what would be refused."
        }
        div.part #reasons {
            @for reason in Reason::ALL {
                section.meaning id=(reason) {
                    h2 { code { (reason) } }
                    p {
                        (reason.meaning()) ". "
                        a href=(format!("/?reason={reason}#refusals")) aria-label=(format!("Refusals for the reason {reason}")) { "Refusals" }
                    }
                    @if let Some(advice) = reason.advice() { p.advice { "What to do: " (advice) "." } }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_place_that_a_link_leads_to() {
        let text = page(1).into_string();
        for reason in Reason::ALL {
            assert!(text.contains(&format!("id=\"{reason}\"")), "{reason}");
        }
        assert!(text.contains("no proof that this client holds the lock"));
        assert!(text.contains("compare-and-delete"));
    }
}
