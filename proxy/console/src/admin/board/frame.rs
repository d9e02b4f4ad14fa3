//! The common parts of all board pages: the head, the link back to the board, and the foot.

use lockwarden_control::text::numbers::time_of_day;
use maud::{DOCTYPE, Markup, html};

/// A page beside the board itself; it is rendered anew for each request.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// The target of the first link, which skips the head: an id on the page, and its name.
    pub(super) skip: (&'a str, &'a str),
    pub(super) now: u64,
    /// This page's own address.
    pub(super) address: &'a str,
    /// The address of the same data as JSON.
    pub(super) json: Option<&'a str>,
    /// The command that prints the same in a terminal.
    pub(super) command: Option<&'a str>,
}

impl Frame<'_> {
    /// The whole page around its main part.
    pub(super) fn around(&self, main: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                (head(&format!("{} · lockwarden", self.title)))
                body {
                    a.skip href=(format!("#{}", self.skip.0)) { "Skip to " (self.skip.1) }
                    header.top {
                        (brand())
                        p.live {
                            span { "as of " (time_of_day(self.now)) " UTC" }
                            a href=(self.address) { "Refresh" }
                        }
                    }
                    main { (main) }
                    footer {
                        p {
                            "Times are UTC. "
                            @if let Some(json) = self.json { "The same as " a href=(json) { "JSON" } ". " }
                            @if let Some(command) = self.command { "At a terminal: " code { (command) } ". " }
                            a href="/" { "The board" }
                        }
                    }
                }
            }
        }
    }
}

/// The head of every page.
pub(super) fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) }
            link rel="icon" href="/board/icon.svg" type="image/svg+xml";
            link rel="stylesheet" href="/board/board.css";
            script src="/board/board.js" defer {}
        }
    }
}

/// The link back to the board.
pub(super) fn brand() -> Markup {
    html! {
        a.brand href="/" {
            img src="/board/icon.svg" alt="" width="22" height="22";
            "lockwarden"
        }
    }
}
