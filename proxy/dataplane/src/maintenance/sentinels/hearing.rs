//! Logs when few sentinels are heard, none, or most again, and when some of them name another primary than the one
//! that is followed; keeps the metrics for both.

use std::time::{Duration, Instant};

use lockwarden_control::telemetry::metrics::Metrics;

use crate::backend::sentinel::Sentinels;

/// Sentinels inform each other of a failover within 2 s.
const DISSENT_AFTER: Duration = Duration::from_secs(5);

/// How many sentinels are heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Loudness {
    #[default]
    Most,
    /// Half of them or fewer.
    Few,
    None,
}

/// What was last logged.
#[derive(Default)]
pub(super) struct Hearing {
    told: Loudness,
    /// Since when some name another primary.
    dissent: Option<Instant>,
    dissent_told: bool,
}

impl Hearing {
    pub(super) fn look(&mut self, sentinels: &Sentinels, metrics: &Metrics, now: Instant) {
        let (heard, known) = sentinels.heard(now);
        metrics.sentinels_heard.set(i64::try_from(heard).unwrap_or(i64::MAX));
        metrics.sentinels_known.set(i64::try_from(known).unwrap_or(i64::MAX));
        if sentinels.named().is_none() {
            // Until then no client is served, and that is logged with the reason.
            return;
        }
        self.look_at_silence(sentinels, (heard, known));
        let dissenting = self.look_at_dissent(sentinels, now);
        metrics.sentinels_dissenting.set(i64::try_from(dissenting).unwrap_or(i64::MAX));
    }

    fn look_at_silence(&mut self, sentinels: &Sentinels, (heard, known): (usize, usize)) {
        let loudness = match heard {
            0 => Loudness::None,
            _ if heard * 2 <= known => Loudness::Few,
            _ => Loudness::Most,
        };
        if loudness == self.told {
            return;
        }
        let before = std::mem::replace(&mut self.told, loudness);
        let (name, why) = (sentinels.name(), sentinels.silence());
        match loudness {
            Loudness::None => {
                tracing::warn!(
                    name,
                    sentinels = known,
                    %why,
                    "no sentinel is heard: the primary is served on, and a failover would not be noticed"
                );
            }
            // It was logged already that none is heard.
            Loudness::Few if before == Loudness::None => {
                tracing::info!(name, heard, sentinels = known, "some sentinels are heard again, but not most of them");
            }
            Loudness::Few => {
                tracing::warn!(
                    name,
                    heard,
                    sentinels = known,
                    %why,
                    "half of the sentinels or more are not heard: a failover might not be noticed"
                );
            }
            Loudness::Most => tracing::info!(name, heard, sentinels = known, "sentinels are heard again"),
        }
    }

    /// How many name another primary, once some have done so for too long.
    fn look_at_dissent(&mut self, sentinels: &Sentinels, now: Instant) -> usize {
        let dissenters = sentinels.dissenters(now);
        let Some((place, named)) = dissenters.first() else {
            self.dissent = None;
            if std::mem::take(&mut self.dissent_told) {
                tracing::info!(
                    name = sentinels.name(),
                    "all sentinels that are heard name the primary that is followed"
                );
            }
            return 0;
        };
        let since = *self.dissent.get_or_insert(now);
        if now.saturating_duration_since(since) < DISSENT_AFTER {
            return 0;
        }
        if !std::mem::replace(&mut self.dissent_told, true) {
            let followed = sentinels.named().map(|named| named.place.to_string());
            tracing::warn!(
                name = sentinels.name(),
                sentinel = %place,
                names = %named.place,
                epoch = named.epoch,
                followed,
                sentinels = dissenters.len(),
                "a sentinel names another primary, which does not prove that it goes on with the data of the one that is followed: it is not followed"
            );
        }
        dissenters.len()
    }
}
