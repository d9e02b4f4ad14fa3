//! What the board shows: everything that one page needs, looked at once.

use super::asked::Asked;
use crate::admin::control::Control;
use crate::text::escape::unspell;
use crate::view::api::{Hot, LockDetail, Locks, Moment, Overview, Report};
use crate::view::{DecisionsQuery, LocksQuery, ReportQuery};

/// Refusals on the page.
const REFUSALS: usize = 50;

/// Everything that one page shows, as it was at one moment.
pub(super) struct Shown {
    pub(super) overview: Overview,
    pub(super) locks: Locks,
    /// Of the lock that was asked for, if anything is known of it.
    pub(super) detail: Option<LockDetail>,
    pub(super) refusals: Vec<Moment>,
    pub(super) report: Report,
    pub(super) hot: Hot,
    pub(super) port: Option<u16>,
}

impl Shown {
    /// Looks at everything. It may take some milliseconds where there are very many locks.
    pub(super) fn look(control: &dyn Control, asked: &Asked, port: Option<u16>) -> Shown {
        let views = control.views();
        let query = LocksQuery {
            namespace: asked.namespace.clone(),
            contains: asked.contains.clone(),
            problems: asked.problems,
            limit: usize::try_from(asked.limit).ok(),
            ..LocksQuery::default()
        };
        let refusals = DecisionsQuery {
            limit: Some(REFUSALS),
            ..DecisionsQuery::default()
        };
        let key = asked.lock.as_deref().and_then(unspell);
        Shown {
            overview: views.overview(),
            locks: views.locks(&query),
            detail: key.and_then(|key| views.lock(&key, asked.db)),
            refusals: views.decisions(&refusals),
            report: views.report(&ReportQuery::default()),
            hot: views.hot(),
            port,
        }
    }
}
