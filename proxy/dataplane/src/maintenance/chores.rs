//! What the proxy writes on its own behalf beside renewals: it notes leases that ran out, marks undelivered grants,
//! adds processes of holders to records, breaks leases for an operator; and walks over the server's keys. All that
//! uses a connection of its own, opened when there is something to do: while the server takes no writes, these
//! requests wait there, and no client and no heartbeat waits behind them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::events::EventKind;
use lockwarden_control::telemetry::vocabulary::{ConnectionState, UndeliveredOutcome};
use lockwarden_lock::lease::{End, Lapse};
use lockwarden_lock::plan::{self, Form, Noticed};
use lockwarden_lock::rules::Released;
use lockwarden_resp::Value;
use tokio::sync::mpsc;

use super::break_lease::{BreakError, BreakOrder};
use super::sweep::Sweeper;
use crate::backend::{BackendError, Conversation};
use crate::registry::clients::Identified;
use crate::registry::lost_holders::Lost;
use crate::registry::undelivered::Undelivered;
use crate::state::{ProxyState, effects};

/// Steps that are sent at once.
const BATCH: usize = 256;
/// Between two checks for leases that ran out.
const NOTICE: Duration = Duration::from_secs(1);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until the process ends.
pub async fn run(shared: Arc<ProxyState>, mut orders: mpsc::Receiver<BreakOrder>) {
    let mut chores = Chores {
        shared: shared.clone(),
        link: None,
        sweeper: Sweeper::new(shared.sweep),
        notice: Instant::now() + NOTICE,
    };
    loop {
        let failure = match chores.next(&mut orders).await {
            Ok(true) => continue,
            Ok(false) => return,
            Err(error) => error,
        };
        tracing::debug!(error = %failure, "the connection for chores was lost");
        chores.hang_up();
        let again = Instant::now() + PAUSE;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(again.into()) => break,
                // An operator waits for the result, so an order is refused at once and not kept.
                order = orders.recv() => match order {
                    Some(order) => order.refuse(BreakError::Down),
                    None => return,
                },
            }
        }
    }
}

struct Chores {
    shared: Arc<ProxyState>,
    link: Option<Link>,
    sweeper: Sweeper,
    /// When the next check for leases that ran out is due.
    notice: Instant,
}

/// The connection.
struct Link {
    shared: Arc<ProxyState>,
    conversation: Conversation,
    /// The era in which the backend's name was looked up for it.
    era: u64,
    /// The database that is selected, once one was.
    db: Option<u32>,
}

impl Link {
    async fn open(shared: &Arc<ProxyState>) -> Result<Link, BackendError> {
        let era = shared.backend.server.era();
        let conversation = shared.backend.address.converse().await?;
        open(shared).inc();
        Ok(Link { shared: shared.clone(), conversation, era, db: None })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        open(&self.shared).dec();
    }
}

fn open(shared: &ProxyState) -> &prometheus::IntGauge {
    shared.metrics.backend_connections.at(ConnectionState::Open)
}

impl Chores {
    /// Waits for something to do, and does it. Returns false when no more orders can come: the process ends.
    async fn next(&mut self, orders: &mut mpsc::Receiver<BreakOrder>) -> Result<bool, BackendError> {
        let shared = self.shared.clone();
        let due = self.sweep_due();
        let due = due.map_or(self.notice, |due| due.min(self.notice));
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = shared.backend.server.answered() => {}
            () = shared.undelivered.changed() => self.mark_undelivered().await?,
            () = shared.identified.changed() => self.identify().await?,
            () = shared.lost.changed() => self.shorten().await?,
            order = orders.recv() => match order {
                Some(order) => self.break_lease(order).await?,
                None => return Ok(false),
            },
        }
        let now = Instant::now();
        if self.sweep_due().is_some_and(|due| due <= now) {
            self.sweep().await?;
        }
        if now >= self.notice {
            self.notice = now + NOTICE;
            if let Some(link) = &mut self.link {
                let address = &shared.backend.address;
                address.stay_logged_in(&mut link.conversation).await?;
            }
            shared.functions.refresh(&shared.backend);
            let lapses = shared.mirror.expire(now);
            self.notice_ends(lapses).await?;
        }
        Ok(true)
    }

    /// Whether the proxy's own connections may log in, or need not.
    fn may_ask(&self) -> bool {
        self.shared.backend.server.may_ask()
    }

    /// When the next page of keys is looked at.
    fn sweep_due(&mut self) -> Option<Instant> {
        let active = self.shared.active.load_full();
        self.sweeper.due(&active).filter(|_| self.may_ask())
    }

    /// Closes the connection: what was under way on it is over, and a walk begins again.
    fn hang_up(&mut self) {
        self.link = None;
        self.sweeper = Sweeper::new(self.shared.sweep);
    }

    /// The connection to the server that is behind the backend's name now.
    async fn link(&mut self) -> Result<&mut Link, BackendError> {
        let era = self.shared.backend.server.era();
        if self.link.as_ref().is_some_and(|link| link.era != era) {
            self.link = None;
        }
        if self.link.is_none() {
            self.link = Some(Link::open(&self.shared).await?);
        }
        Ok(self.link.as_mut().expect("it was opened just now"))
    }

    async fn sweep(&mut self) -> Result<(), BackendError> {
        let shared = self.shared.clone();
        self.link().await?;
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        if let Some(db) = self.sweeper.step(&shared, &mut link.conversation).await? {
            link.db = Some(db);
        }
        Ok(())
    }

    /// Adds the processes of holders to the records of their leases.
    async fn identify(&mut self) -> Result<(), BackendError> {
        let prefix = self.shared.active.load().companion_prefix.clone();
        loop {
            let batch = self.shared.identified.take(BATCH);
            if batch.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.add_processes(&batch, &prefix).await {
                // Doing it twice has the same effect as doing it once.
                for one in batch {
                    let _ = self.shared.identified.add(one);
                }
                return Err(error);
            }
        }
    }

    async fn add_processes(&mut self, batch: &[Identified], prefix: &Bytes) -> Result<(), BackendError> {
        let link = self.link().await?;
        let mut requests = BytesMut::new();
        let mut answers = 0;
        for one in batch {
            answers += 1 + usize::from(link.select(one.key.db(), &mut requests));
            let step = plan::identify(one.key.bytes(), one.grant, one.process, prefix);
            step.put(&mut requests, Form::Text);
        }
        link.conversation.send(&requests).await?;
        for _ in 0..answers {
            link.conversation.read().await?;
        }
        Ok(())
    }

    /// Shortens the leases whose holders are gone.
    async fn shorten(&mut self) -> Result<(), BackendError> {
        loop {
            let batch = self.shared.lost.take(BATCH);
            if batch.is_empty() || !self.may_ask() {
                return Ok(());
            }
            if let Err(error) = self.shorten_each(&batch).await {
                // A lease that was shortened already is left alone.
                for one in batch {
                    let _ = self.shared.lost.add(one);
                }
                return Err(error);
            }
        }
    }

    async fn shorten_each(&mut self, batch: &[Lost]) -> Result<(), BackendError> {
        let shared = self.shared.clone();
        let active = shared.active.load();
        let link = self.link().await?;
        let mut requests = BytesMut::new();
        let mut selected = Vec::with_capacity(batch.len());
        for lost in batch {
            selected.push(link.select(lost.key.db(), &mut requests));
            let lease = lost.shorten(shared.mirror.lease(&lost.key));
            let step = plan::shorten(lost.key.bytes(), &lease, &active.companion_prefix);
            step.put(&mut requests, Form::Text);
        }
        link.conversation.send(&requests).await?;
        for (lost, select) in batch.iter().zip(selected) {
            if select {
                link.conversation.read().await?;
            }
            let answer = link.conversation.read().await?;
            effects::shortened(&shared, lost, &answer, &active);
        }
        Ok(())
    }

    /// Asks whether leases that seem to have run out really did, and counts those that did.
    async fn notice_ends(&mut self, lapses: Vec<Lapse>) -> Result<(), BackendError> {
        if lapses.is_empty() || !self.may_ask() {
            return Ok(());
        }
        let shared = self.shared.clone();
        let active = shared.active.load();
        let link = self.link().await?;
        for batch in lapses.chunks(BATCH) {
            let mut requests = BytesMut::new();
            let mut selected = Vec::with_capacity(batch.len());
            for lapse in batch {
                selected.push(link.select(lapse.key.db(), &mut requests));
                let step = plan::notice(lapse.key.bytes(), lapse.grant, &active.companion_prefix);
                step.put(&mut requests, Form::Text);
            }
            let asked = Instant::now();
            link.conversation.send(&requests).await?;
            for (lapse, select) in batch.iter().zip(selected) {
                if select {
                    link.conversation.read().await?;
                }
                let answer = link.conversation.read().await?;
                if let Some(found) = plan::noticed(&answer) {
                    note_end(&shared, lapse, (found, asked), &active);
                }
            }
        }
        Ok(())
    }

    /// Ends a lease for an operator.
    async fn break_lease(&mut self, order: BreakOrder) -> Result<(), BackendError> {
        if !self.may_ask() {
            order.refuse(BreakError::NoLogin);
            return Ok(());
        }
        // If the order were sent and not answered, the operator would be left in doubt.
        if let Some(link) = &mut self.link
            && link.conversation.ask(&["PING"]).await.is_err()
        {
            self.hang_up();
        }
        if let Err(error) = self.link().await {
            order.refuse(BreakError::Down);
            return Err(error);
        }
        let answer = match self.ask_for_break(&order).await {
            Ok(answer) => answer,
            Err(error) => {
                order.refuse(BreakError::Unknown(error.to_string()));
                return Err(error);
            }
        };
        order.settle(&self.shared, &answer);
        Ok(())
    }

    async fn ask_for_break(&mut self, order: &BreakOrder) -> Result<Value, BackendError> {
        let prefix = self.shared.active.load().companion_prefix.clone();
        let link = self.link().await?;
        let mut request = BytesMut::new();
        if link.select(order.key().db(), &mut request) {
            link.conversation.send(&request).await?;
            let selected = link.conversation.read().await?;
            // An operator may name a database that the server does not have.
            if selected.is_error() {
                link.db = None;
                return Ok(selected);
            }
        }
        link.conversation.execute(&order.plan(&prefix)).await
    }

    /// Marks the undelivered grants whose sessions could not do it themselves.
    async fn mark_undelivered(&mut self) -> Result<(), BackendError> {
        let shared = self.shared.clone();
        let prefix = shared.active.load().companion_prefix.clone();
        loop {
            let batch = shared.undelivered.take(BATCH);
            if batch.is_empty() {
                return Ok(());
            }
            let mut waiting = batch.iter();
            let told = match self.may_ask() {
                true => self.hear_of_marks(&batch, &prefix, &mut waiting).await,
                false => Ok(()),
            };
            for lease in waiting {
                effects::count_undelivered(&shared, lease, UndeliveredOutcome::Failed);
            }
            told?;
        }
    }

    async fn hear_of_marks(
        &mut self,
        batch: &[Undelivered],
        prefix: &Bytes,
        waiting: &mut impl Iterator<Item = &Undelivered>,
    ) -> Result<(), BackendError> {
        let shared = self.shared.clone();
        let link = self.link().await?;
        let mut requests = BytesMut::new();
        let mut selected = Vec::with_capacity(batch.len());
        for lease in batch {
            selected.push(link.select(lease.key.db(), &mut requests));
            lease.plan(prefix).put(&mut requests, Form::Text);
        }
        link.conversation.send(&requests).await?;
        for select in selected {
            if select {
                link.conversation.read().await?;
            }
            let answer = link.conversation.read().await?;
            if let Some(lease) = waiting.next() {
                effects::last_mark_answered(&shared, lease.clone(), &answer);
            }
        }
        Ok(())
    }
}

impl Link {
    /// Writes a SELECT if another database is selected; returns whether it did.
    fn select(&mut self, db: u32, requests: &mut BytesMut) -> bool {
        if self.db == Some(db) {
            return false;
        }
        let word = db.to_string();
        lockwarden_resp::put_request(requests, &[b"SELECT", word.as_bytes()]);
        self.db = Some(db);
        true
    }
}

/// Handles the result of the look at a lease that seems to have run out.
fn note_end(shared: &ProxyState, lapse: &Lapse, (found, asked): (Noticed, Instant), active: &Active) {
    let Lapse { key, transition, .. } = lapse;
    // Without a record it may have been released, though this proxy did not see the answer.
    let forgets = || active.of_lock(key.bytes()).is_some_and(|details| details.rules.released == Released::Forget);
    match found {
        Noticed::RanOut => {}
        Noticed::Unrecorded if lapse.needs_record && !forgets() => {}
        // Another proxy does not know what this proxy told the holder.
        Noticed::Known if transition.end == End::Lost => {
            return effects::lost(shared, key, transition, active);
        }
        Noticed::Another(age) => {
            let since = asked.checked_sub(age).unwrap_or(asked);
            let followed = lapse.clone().was_followed(since);
            if followed.end == End::Lost {
                effects::lost(shared, key, &followed, active);
            }
            return;
        }
        Noticed::Known | Noticed::Unrecorded | Noticed::Other => return,
    }
    effects::expired(shared, key, transition, active);
    let Some(details) = active.of_lock(key.bytes()) else {
        return;
    };
    details.metrics.expired_while_held.inc();
    let mut entry = details.event(EventKind::RanOut, key.clone());
    entry.held_ms = u64::try_from(transition.held.as_millis()).ok();
    shared.events.leave(entry);
}
