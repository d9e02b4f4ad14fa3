//! Requests to several shards: each shard gets its part, all at the same time, and the client gets one reply. They
//! are not atomic: the page about clusters says so.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use lockwarden_control::random;
use lockwarden_lock::classify::named_locks;
use lockwarden_lock::companion::slot;
use lockwarden_lock::op::Target;
use lockwarden_lock::rules::{Mode, OnViolation};
use lockwarden_resp::{Redirect, Value, parse_reply, put_error, put_integer, put_request, put_value};

use super::route::{Joined, Parts};
use super::{Front, NOT_SERVED, OK, Over};
use crate::backend::cluster::ShardId;
use crate::session::error_frame;

/// From this bit on a cursor holds the shard that it is at, as the lowest slot of that shard. No server has been seen
/// to use more than 24 bits of it.
const SHARD_BITS: u32 = 48;

impl Front {
    /// `DEL a b` and the like, taken apart by slots.
    pub(super) async fn split(&mut self, parts: Parts) -> Result<(), Over> {
        if self.is_all_or_nothing(parts) {
            let error = self.cross_slot();
            self.answer(error_frame(error));
            return Ok(());
        }
        let words = self.words();
        let step = if parts == Parts::Pairs { 2 } else { 1 };
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for at in (1..words.len()).step_by(step) {
            by_slot.entry(slot(&words[at])).or_default().push(at);
        }
        let mut requests = Vec::new();
        for (slot, places) in &by_slot {
            let at = match self.reach(*slot).await? {
                Ok(at) => at,
                Err(error) => {
                    self.answer(error_frame(error));
                    return Ok(());
                }
            };
            let named = places.iter().flat_map(|place| &words[*place..*place + step]);
            let mut frame = BytesMut::new();
            put_request(&mut frame, &std::iter::once(&words[0]).chain(named).collect::<Vec<_>>());
            requests.push((at, frame.freeze()));
        }
        let replies = self.ask_all(requests).await?;
        let replies: Vec<Value> = replies.iter().map(|frame| self.read(frame)).collect();
        let mut joined = BytesMut::new();
        match (error_among(&replies), parts) {
            (Some(error), _) => put_error(&mut joined, error),
            (None, Parts::Sum) => put_integer(&mut joined, sum(&replies)),
            (None, Parts::Pairs) => joined.extend_from_slice(OK),
            (None, Parts::InOrder) => {
                let mut values = vec![Value::Null; words.len() - 1];
                for (places, reply) in by_slot.values().zip(&replies) {
                    for (place, value) in places.iter().zip(reply.as_items().unwrap_or_default()) {
                        values[*place - 1] = value.clone();
                    }
                }
                put_value(&mut joined, &Value::Array(values), self.protocol);
            }
        }
        self.answer(joined);
        Ok(())
    }

    /// Whether the present request names a lock, and is to be refused as a whole if one of its keys is refused: an
    /// `MSET`, and every request that is answered with an error.
    fn is_all_or_nothing(&self, parts: Parts) -> bool {
        let active = self.shared.active.load();
        let locks = named_locks(&active.namespaces, &self.inbox.request());
        let refuses = |lock: &Target| {
            let rules = active.rules(lock.namespace);
            rules.mode == Mode::Enforce && (parts == Parts::Pairs || rules.on_violation == OnViolation::Error)
        };
        parts != Parts::InOrder && locks.iter().any(refuses)
    }

    /// `FLUSHALL` and `FLUSHDB`: all shards are asked first, and none is emptied if one would refuse. If one refuses
    /// only after that, because a lock was taken meanwhile, the error says how many were emptied.
    pub(super) async fn flush_every(&mut self) -> Result<(), Over> {
        let frame = self.request_frame();
        self.socket.tries(true);
        let tried = self.told_by_every(&frame).await;
        self.socket.tries(false);
        let Some(tried) = tried? else {
            return Ok(());
        };
        if let Some(refused) = tried.iter().find(|reply| reply.starts_with(b"-")) {
            self.answer(refused.clone());
            return Ok(());
        }
        let Some(replies) = self.told_by_every(&frame).await? else {
            return Ok(());
        };
        let (refused, done): (Vec<&Bytes>, Vec<&Bytes>) = replies.iter().partition(|reply| reply.starts_with(b"-"));
        match refused.first() {
            None => self.answer(OK),
            Some(&error) if done.is_empty() => self.answer(error.clone()),
            Some(error) => {
                let error = String::from_utf8_lossy(&error[1..]);
                self.answer(error_frame(&format!("{} done={} of={}", error.trim_end(), done.len(), replies.len())));
            }
        }
        Ok(())
    }

    /// Executes the present request on every shard.
    pub(super) async fn ask_every(&mut self, joined: Joined) -> Result<(), Over> {
        let frame = self.request_frame();
        let Some(replies) = self.told_by_every(&frame).await? else {
            return Ok(());
        };
        let values: Vec<Value> = replies.iter().map(|frame| self.read(frame)).collect();
        if let Some(error) = error_among(&values) {
            self.answer(error_frame(&String::from_utf8_lossy(error)));
            return Ok(());
        }
        let mut reply = BytesMut::new();
        match joined {
            Joined::First => reply.extend_from_slice(replies.first().map_or(OK, |first| first)),
            Joined::Sum => put_integer(&mut reply, sum(&values)),
            Joined::Names => {
                let names = values.iter().flat_map(|value| value.as_items().unwrap_or_default()).cloned().collect();
                put_value(&mut reply, &Value::Array(names), self.protocol);
            }
            Joined::Everywhere => put_value(&mut reply, &Value::Array(everywhere(&values)), self.protocol),
        }
        self.answer(reply);
        Ok(())
    }

    /// The replies of all shards; `None` if one of them is not there, which the client was told.
    async fn told_by_every(&mut self, frame: &Bytes) -> Result<Option<Vec<Bytes>>, Over> {
        let mut requests = Vec::new();
        for (_, id) in self.shards_in_order() {
            match self.wait_for_leg(|_| Some(id)).await? {
                Some(at) => requests.push((at, frame.clone())),
                None => {
                    self.answer(error_frame(NOT_SERVED));
                    return Ok(None);
                }
            }
        }
        self.ask_all(requests).await.map(Some)
    }

    /// `SCAN`: one shard after the other.
    pub(super) async fn scan(&mut self) -> Result<(), Over> {
        let mut words = self.words();
        let cursor = std::str::from_utf8(&words[1]).ok().and_then(|digits| digits.parse::<u64>().ok());
        let shards = self.shards_in_order();
        let slot_of = |cursor: u64| u16::try_from(cursor >> SHARD_BITS).ok();
        // Slots may have moved since: the scan continues with the shard that has this slot now.
        let home = |slot: u16| self.shared.shards.map().and_then(|map| map.home(slot));
        let place = cursor.and_then(|cursor| match slot_of(cursor)? {
            0 => Some(0),
            slot => shards.iter().position(|(_, id)| Some(*id) == home(slot)),
        });
        let (Some(cursor), Some(place)) = (cursor, place.filter(|place| *place < shards.len())) else {
            self.answer(error_frame("ERR invalid cursor"));
            return Ok(());
        };
        let (_, id) = shards[place];
        let Some(at) = self.wait_for_leg(|_| Some(id)).await? else {
            self.answer(error_frame(NOT_SERVED));
            return Ok(());
        };
        words[1] = (cursor & ((1 << SHARD_BITS) - 1)).to_string().into();
        let mut frame = BytesMut::new();
        put_request(&mut frame, &words);
        let reply = self.ask(at, &frame).await?;
        let value = self.read(&reply);
        let Some([next, names]) = value.as_items() else {
            self.answer(reply);
            return Ok(());
        };
        let next = next.as_bytes().and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        let at_shard = |place: usize| shards.get(place).map_or(0, |(slot, _)| u64::from(*slot) << SHARD_BITS);
        let next = match next {
            Some(0) | None => at_shard(place + 1),
            Some(next) => at_shard(place) | next,
        };
        let mut joined = BytesMut::new();
        put_value(&mut joined, &Value::Array(vec![Value::Bulk(next.to_string().into()), names.clone()]), self.protocol);
        self.answer(joined);
        Ok(())
    }

    /// `RANDOMKEY`: from one shard, drawn at each call; from another one if that has no keys.
    pub(super) async fn draw(&mut self) -> Result<(), Over> {
        let frame = self.request_frame();
        let shards = self.shards_in_order();
        let [first, ..] = random::sixteen();
        let mut last = error_frame(NOT_SERVED).freeze();
        for step in 0..shards.len() {
            let (_, id) = shards[(usize::from(first) + step) % shards.len()];
            if let Some(at) = self.wait_for_leg(|_| Some(id)).await? {
                last = self.ask(at, &frame).await?;
                if !self.read(&last).is_null() {
                    break;
                }
            }
        }
        self.answer(last);
        Ok(())
    }

    /// `WAIT`: on every shard that this client has a session with, as those have its writes. The reply is the lowest
    /// count of replicas.
    pub(super) async fn wait_for_replicas(&mut self) -> Result<(), Over> {
        let frame = self.request_frame();
        let open = (0..self.legs.len()).filter(|at| self.legs[*at].as_ref().is_some_and(|leg| !leg.ended));
        let requests = open.map(|at| (at, frame.clone())).collect();
        self.waits = true;
        let replies = self.ask_all(requests).await;
        self.waits = false;
        let replies = replies?;
        let values: Vec<Value> = replies.iter().map(|frame| self.read(frame)).collect();
        let fewest = replies.iter().zip(&values).min_by_key(|(_, value)| match value {
            Value::Error(_) => i64::MIN,
            value => {
                value.as_integer().or_else(|| value.as_items()?.iter().filter_map(Value::as_integer).min()).unwrap_or(0)
            }
        });
        let reply = fewest.map_or_else(|| error_frame(NOT_SERVED).freeze(), |(reply, _)| reply.clone());
        self.answer(reply);
        Ok(())
    }

    /// Sends all of these at the same time, and returns their replies; redirects are followed.
    async fn ask_all(&mut self, requests: Vec<(usize, Bytes)>) -> Result<Vec<Bytes>, Over> {
        let ahead = self.ahead.take();
        for (at, frame) in &requests {
            if let Some(leg) = &mut self.legs[*at] {
                ahead.iter().chain([frame]).for_each(|frame| leg.send(frame));
            }
        }
        let mut replies = Vec::new();
        for (at, _) in &requests {
            if ahead.is_some() {
                self.dropped_frame(*at).await?;
            }
            replies.push(self.taken_frame(*at).await?);
        }
        for ((at, frame), reply) in requests.iter().zip(&mut replies) {
            if Redirect::of(reply).is_some() {
                (_, *reply) = self.follow(*at, frame, reply.clone()).await?;
            }
        }
        Ok(replies)
    }

    /// All shards that have slots, in the order of the lowest one of each.
    fn shards_in_order(&self) -> Vec<(u16, ShardId)> {
        let Some(map) = self.shared.shards.map() else {
            return Vec::new();
        };
        let mut shards: Vec<(u16, ShardId)> = Vec::new();
        let slots = map.slots();
        for (slot, id) in slots.homes() {
            if !shards.iter().any(|(_, known)| *known == id) {
                shards.push((slot, id));
            }
        }
        shards
    }

    fn read(&self, frame: &Bytes) -> Value {
        parse_reply(frame, self.protocol).unwrap_or(Value::Null)
    }
}

fn error_among(replies: &[Value]) -> Option<&Bytes> {
    replies.iter().find_map(Value::as_error)
}

fn sum(replies: &[Value]) -> i64 {
    replies.iter().filter_map(Value::as_integer).fold(0, i64::saturating_add)
}

/// For arrays of 0 and 1: 1 where all have 1.
fn everywhere(replies: &[Value]) -> Vec<Value> {
    let places = replies.first().and_then(Value::as_items).map_or(0, <[Value]>::len);
    let at = |place: usize| replies.iter().filter_map(move |reply| reply.as_items()?.get(place)?.as_integer()).min();
    (0..places).map(|place| Value::Integer(at(place).unwrap_or(0))).collect()
}
