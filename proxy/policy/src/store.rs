//! The contents of an instance's store: how much memory the guest has, how long its call may still run, and the client
//! it may ask about. It calls no guest. Next: `instance.rs`, which does.

use std::sync::Arc;
use std::time::Duration;

use lockwarden_lock::decision::{ClientDescription, Holdings};
use wasmtime::{ResourceLimiter, UpdateDeadline};

use crate::bindings::v1;
use crate::deadline::Overdue;
use crate::history::{Asking, History};
use crate::instance::Member;
use crate::meter::Meter;
use crate::ticker::Ticker;

/// The contents of a store.
pub(crate) struct State {
    memory_limit: usize,
    memory_bytes: usize,
    /// Whether the guest requested more memory than it may have.
    pub(crate) memory_refused: bool,
    meter: Arc<Meter>,
    pub(crate) ticker: Arc<Ticker>,
    deadline: Duration,
    /// The running call, if it is still running at a tick.
    overdue: Option<Overdue>,
    /// The client of the running call, if the policy may ask for it: its handle and its description.
    pub(crate) client: Option<(u64, ClientDescription)>,
    /// The history that it may ask for, and about which client and lock.
    history: Option<Arc<History>>,
    pub(crate) asking: Option<Asking>,
    /// How often it has asked since the counter was last read.
    pub(crate) client_questions: u64,
}

impl State {
    pub(crate) fn new(member: &Member, deadline: Duration) -> State {
        State {
            memory_limit: member.limits.memory_bytes,
            memory_bytes: 0,
            memory_refused: false,
            meter: member.meter.clone(),
            ticker: member.ticker.clone(),
            deadline,
            overdue: None,
            client: None,
            history: member.history.clone(),
            asking: None,
            client_questions: 0,
        }
    }

    /// Whether a call with this deadline may begin without changes.
    pub(crate) fn is_armed(&self, deadline: Duration) -> bool {
        self.overdue.is_none() && self.deadline == deadline
    }

    /// Prepares for a call with this deadline.
    pub(crate) fn arm(&mut self, deadline: Duration) {
        self.overdue = None;
        self.deadline = deadline;
    }

    /// The epoch has advanced while the guest runs: ends the call if it has passed its deadline.
    pub(crate) fn epoch_moved(&mut self) -> UpdateDeadline {
        let overdue = *self.overdue.get_or_insert_with(Overdue::begin);
        match overdue.look(self.deadline) {
            Some(ticks) => {
                // One more: the engine's epoch may be newer than the one that is counted.
                self.ticker.promise(ticks.saturating_add(1));
                UpdateDeadline::Continue(ticks)
            }
            None => UpdateDeadline::Interrupt,
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.meter.memory_returned(self.memory_bytes);
    }
}

/// The largest table of a guest: its function pointers.
const TABLE_ELEMENTS: usize = 10_000;

impl ResourceLimiter for State {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current);
        let total = self.memory_bytes.saturating_add(growth);
        if total > self.memory_limit {
            self.memory_refused = true;
            return Ok(false);
        }
        self.memory_bytes = total;
        self.meter.memory_taken(growth);
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let granted = desired <= TABLE_ELEMENTS;
        self.memory_refused |= !granted;
        Ok(granted)
    }

    // Guests in interpreted languages are linked from several modules.
    fn instances(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        8
    }

    fn tables(&self) -> usize {
        64
    }
}

impl v1::clients::Host for State {
    fn describe(&mut self, client: u64) -> Option<v1::clients::Identity> {
        self.client_questions += 1;
        let (handle, description) = self.client.as_ref()?;
        (*handle == client).then(|| v1::clients::Identity {
            name: description.name.clone(),
            user: description.user.clone(),
            address: description.address.clone(),
        })
    }

    fn certificate(&mut self, client: u64) -> Option<String> {
        self.client_questions += 1;
        let (handle, description) = self.client.as_ref()?;
        let certificate = description.certificate.as_ref();
        certificate.filter(|_| *handle == client).cloned()
    }

    fn application(&mut self, client: u64) -> Option<String> {
        self.client_questions += 1;
        let (handle, description) = self.client.as_ref()?;
        (*handle == client).then(|| description.application.clone())
    }
}

impl State {
    /// The history, and the question's data, if this is the client of the running call.
    fn asked_of(&self, client: u64) -> Option<(&History, &Asking)> {
        let asking = self.asking.as_ref().filter(|asking| asking.client == client)?;
        Some((self.history.as_deref()?, asking))
    }
}

impl v1::history::Host for State {
    fn tries(&mut self, client: u64, whose: v1::history::Whose) -> u32 {
        self.asked_of(client).map_or(0, |(history, asking)| history.tries(asking, whose))
    }

    fn take(&mut self, client: u64, budget: String, most: u32, per_ms: u64) -> bool {
        let policy = self.meter.policy();
        self.asked_of(client).is_none_or(|(history, asking)| history.take(asking, policy, (&budget, most, per_ms)))
    }

    fn holds(&mut self, client: u64) -> Vec<Vec<u8>> {
        let holdings = self.asked_of(client).map(|(history, asking)| history.holdings(asking));
        let keys = |holdings: Arc<Holdings>| holdings.connection.iter().map(|key| key.to_vec()).collect();
        holdings.map_or_else(Vec::new, keys)
    }

    fn held(&mut self, client: u64) -> u32 {
        self.asked_of(client).map_or(0, |(history, asking)| history.holdings(asking).application)
    }
}
