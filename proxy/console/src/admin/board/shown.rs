//! The data of one page, read at one moment.

use std::time::Duration;

use lockwarden_control::text::escape::unspell;

use super::asked::Asked;
use crate::admin::control::Control;
use crate::view::api::{After, Guard, Hot, Incident, LockDetail, Locks, Moment, Overview, Report, Since};
use crate::view::{DecisionsQuery, ReportQuery};

/// Refusals on the page.
const REFUSALS: usize = 50;
/// Sentences at the head of the page.
const INCIDENTS: usize = 5;
const HOUR: Duration = Duration::from_secs(3_600);

/// Everything that one page shows, at one moment.
pub(super) struct Shown {
    pub(super) overview: Overview,
    pub(super) locks: Locks,
    /// The details of the requested lock, if it is known.
    pub(super) detail: Option<LockDetail>,
    /// The worst incidents of the last hour.
    pub(super) incidents: Vec<Incident>,
    pub(super) refusals: Vec<Moment>,
    /// Leases that failovers have lost.
    pub(super) lost: Vec<Moment>,
    pub(super) guards: Vec<Guard>,
    pub(super) report: Report,
    pub(super) hot: Hot,
    pub(super) port: Option<u16>,
}

impl Shown {
    /// Reads everything. It may take some milliseconds with very many locks.
    pub(super) fn look(control: &dyn Control, asked: &Asked, port: Option<u16>) -> Shown {
        let views = control.views();
        let last_hour = DecisionsQuery {
            since: Some(After(Since::Ago(HOUR))),
            limit: Some(INCIDENTS),
            ..DecisionsQuery::default()
        };
        let key = asked.lock.as_deref().and_then(unspell);
        Shown {
            overview: views.overview(),
            locks: views.locks(&asked.locks()),
            detail: key.and_then(|key| views.lock(&key, asked.db)),
            incidents: views.incidents(&last_hour),
            refusals: views.decisions(&asked.refusals(REFUSALS)),
            lost: views.lost(&asked.refusals(REFUSALS)),
            guards: views.guards(),
            report: views.report(&ReportQuery::default()),
            hot: views.hot(),
            port,
        }
    }
}
