//! One refusal, or one lost lease, in words, as `lockwarden why`, the API and the board show it.

use lockwarden_control::telemetry::audit::told;

use super::api::{Client, Moment, Why, WhyLine};
use super::service::ViewService;
use super::store::Decided;

/// `GET /api/v1/why/{id}`: the remembered refusals and lost leases with this id, the oldest first. Equal ids are rare.
pub(super) fn why(service: &ViewService, id: &str) -> Vec<Why> {
    let has_it = |decided: &&Decided| {
        let known = decided.entry.id.as_deref();
        known.is_some_and(|known| known.eq_ignore_ascii_case(id))
    };
    let seen = service.view.seen();
    let all = seen.decisions.iter().chain(&seen.lost);
    let found: Vec<Decided> = all.filter(has_it).cloned().collect();
    // Putting them into words needs no mutex.
    drop(seen);
    found.iter().map(in_words).collect()
}

fn in_words(decided: &Decided) -> Why {
    let decision = Moment::of(&decided.entry);
    let holder = decided.holder.as_deref().map(Client::of);
    let id = decision.id.clone().unwrap_or_default();
    let told = told(&decision, holder.as_ref(), &id);
    let line = |(about, words): (&str, String)| WhyLine { about: about.to_owned(), words };
    Why { id, headline: told.headline, lines: told.lines.into_iter().map(line).collect(), decision, holder }
}
