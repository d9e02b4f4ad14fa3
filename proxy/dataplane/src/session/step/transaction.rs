//! MULTI blocks. Every lock command in one was judged when it was queued and was replaced by its script. Here the
//! reply to the block is given its original form again, element by element and otherwise byte for byte, and what
//! happened is remembered only if the block was executed.

use std::ops::Range;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::clock::Moment;
use lockwarden_lock::hidden::{self, Shown};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_lock::plan::{Form, Plan};
use lockwarden_resp::{Elements, Value, put_array_header, put_value};

use crate::session::client::block::{Block, Place};
use crate::session::guarded_writes::{BLOCK_TOO_LONG, MAX_TRIES, is_nil};
use crate::session::step::awaited::Look;
use crate::session::step::conclude::Concluded;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted, QueuedRequests};
use crate::session::{Session, error_frame};

impl Session {
    /// `EXEC`: an order barrier if the proxy has to look at its reply.
    pub(crate) async fn exec(
        &mut self,
        inbox: &mut RequestBuffer,
        pass: PassThrough<'_>,
        muted: Muted,
    ) -> Result<(), End> {
        self.settled(inbox).await?;
        let queued = self.transport.take_queued();
        self.promise_block();
        let mut block = self.client.connection.block.take();
        let mut check = None;
        if let Some(block) = block.as_mut().filter(|block| block.spoiled.is_none())
            && self.is_held_back(&block.guarded)
        {
            let guarded = std::mem::take(&mut block.guarded);
            if !self.client.connection.watch.is_any() {
                // A guard may have come into force within the block.
                let is_whole = |queued: &QueuedRequests| queued.count() >= block.queued as u64;
                match queued.filter(is_whole) {
                    Some(queued) => check = Some((guarded, queued)),
                    None => block.spoil(BLOCK_TOO_LONG),
                }
            } else if let Some(line) = self.check_watched_block(&guarded).await {
                block.spoil(&line);
            }
        }
        match block.map(|block| *block) {
            Some(Block { spoiled: Some(reason), afterwards, .. }) => {
                // A command that Redis refuses to queue for every client, so that it discards the block at EXEC. The
                // user may lack the right to send DISCARD.
                self.transport.inquire(&OwnRequest::SpoilBlock, Look::Own);
                self.transport.forward_and_look(pass, Look::Answer, Muted::Yes);
                let answer = self.answer(inbox).await?;
                self.client.unwatch();
                self.follow_up(afterwards);
                let text = format!("EXECABORT Transaction discarded because of previous errors: {reason}");
                let is_spoilt = answer.starts_with(b"-EXECABORT Transaction discarded because of previous");
                match is_spoilt && !reason.is_empty() {
                    true => self.reply(&error_frame(&text), muted),
                    false => self.reply(&BytesMut::from(&answer[..]), muted),
                }
            }
            Some(mut block) if !block.places.is_empty() || check.is_some() => {
                // Before EXEC is sent: a client that goes before the reply comes has not heard of these grants.
                for (_, place) in &block.places {
                    if let Place::Step(flight, _) = place {
                        self.client.step_is_under_way(flight);
                    }
                }
                let mut tries = 0;
                let answer = loop {
                    if let Some((guarded, queued)) = &check {
                        let queued = (queued, tries == 0);
                        if let Some(line) = Box::pin(self.check_block(inbox, guarded, queued)).await? {
                            self.client.pending_grants.answered();
                            return self.abort(block.afterwards, &line, muted);
                        }
                    }
                    self.transport.forward_and_look(pass, Look::Answer, Muted::Yes);
                    let wanted = block.durability();
                    self.ask_replicas(wanted);
                    self.look_behind(std::mem::take(&mut block.guarded));
                    self.ask_for_rights(std::mem::take(&mut block.questions));
                    let answer = match wanted {
                        Some(_) => Box::pin(self.confirmed_block(inbox, &mut block)).await?,
                        None => self.answer(inbox).await?,
                    };
                    match &check {
                        Some((guarded, _)) if is_nil(&answer) && tries < MAX_TRIES => {
                            self.block_again(guarded);
                            tries += 1;
                        }
                        _ => break answer,
                    }
                };
                if !self.still_counts(Instant::now()).await {
                    return Err(End::Backend);
                }
                self.client.unwatch();
                let reply = self.unwrap(block, answer, inbox)?;
                self.client.pending_grants.answered();
                if muted == Muted::No {
                    self.transport.reply(&reply);
                }
                self.grants_are_told(muted, Instant::now());
            }
            Some(block) => {
                self.client.unwatch();
                self.transport.forward(pass, muted);
                self.look_behind(block.guarded);
                self.ask_for_rights(block.questions);
            }
            // Redis replies with an error, and the keys stay watched.
            None => self.transport.forward(pass, muted),
        }
        Ok(())
    }

    pub(crate) fn discard(&mut self, pass: PassThrough<'_>, muted: Muted) {
        self.transport.take_queued();
        if let Some(block) = self.client.connection.block.take() {
            self.client.unwatch();
            self.end(pass, muted);
            // After DISCARD: before it Redis would only queue them.
            self.follow_up(block.afterwards);
        } else {
            self.transport.forward(pass, muted);
        }
    }

    /// A block that is over already was refused.
    fn abort(&mut self, afterwards: Vec<Plan>, line: &str, muted: Muted) -> Result<(), End> {
        self.client.unwatch();
        self.follow_up(afterwards);
        let text = format!("EXECABORT Transaction discarded because of previous errors: {line}");
        self.reply(&error_frame(&text), muted);
        Ok(())
    }

    /// Sends the steps that waited for the end of a block.
    fn follow_up(&mut self, steps: Vec<Plan>) {
        for step in steps {
            self.transport.execute(&step, Form::Text, Look::Own, Muted::Yes);
        }
    }

    /// Puts the replies of the commands that were replaced back in their places.
    fn unwrap(&mut self, block: Block, answer: Bytes, inbox: &mut RequestBuffer) -> Result<Bytes, End> {
        if !was_carried_out(&answer) {
            return Ok(answer);
        }
        let active = self.client.active();
        let elements: Vec<Range<usize>> =
            Elements::of(&answer).ok_or_else(|| End::OutOfStep("EXEC answered no array".into()))?.collect();
        if elements.len() != block.queued {
            return Err(End::OutOfStep("EXEC answered another number of replies than it was given commands".into()));
        }
        let mut reply = BytesMut::with_capacity(answer.len());
        let is_guard = |(_, place): &&(usize, Place)| matches!(place, Place::Guard);
        let own = block.places.iter().filter(is_guard).count();
        put_array_header(&mut reply, elements.len() - own);
        let mut copied = elements.first().map_or(answer.len(), |first| first.start);
        let now = Moment::now();
        for (index, place) in block.places {
            let Range { start, end } = elements[index];
            let element = answer.slice(start..end);
            match place {
                Place::Change(change) => {
                    self.apply(change, element.first() != Some(&b'-'), inbox);
                }
                Place::Flush(flush, active) => {
                    let one = self.client.conclude_flush(&flush, &element, now.at, &active)?;
                    reply.extend_from_slice(&answer[copied..start]);
                    reply.extend_from_slice(&one);
                    copied = end;
                }
                Place::Guarded(script, active) => {
                    let one = self.conclude_guarded(&script, &element, &active)?;
                    reply.extend_from_slice(&answer[copied..start]);
                    reply.extend_from_slice(&one);
                    copied = end;
                }
                Place::Listing(kind) => {
                    let own = active.own_keys();
                    let shown = hidden::listing(kind, &element, own, self.client.connection.protocol);
                    if let Shown::Instead(other) = shown {
                        reply.extend_from_slice(&answer[copied..start]);
                        reply.extend_from_slice(&other);
                        copied = end;
                    }
                }
                Place::Error(text) => {
                    reply.extend_from_slice(&answer[copied..start]);
                    reply.extend_from_slice(&error_frame(&text));
                    copied = end;
                }
                Place::User(user) => {
                    reply.extend_from_slice(&answer[copied..start]);
                    put_value(&mut reply, &Value::Bulk(user), self.client.connection.protocol);
                    copied = end;
                }
                Place::Guard => {
                    reply.extend_from_slice(&answer[copied..start]);
                    copied = end;
                }
                Place::Step(mut flight, active) => {
                    let answers = self.client.read_answers(&element)?;
                    let concluded = self.conclude(&mut flight, &element, &answers, &active, now)?;
                    let one = match concluded {
                        Concluded::Reply(one) => one,
                        // It is too late to send the client's own command instead.
                        Concluded::NothingRun(proof) => {
                            let command = flight.permitted.command();
                            self.client.rights_error(&proof, command, &active)
                        }
                    };
                    reply.extend_from_slice(&answer[copied..start]);
                    reply.extend_from_slice(&one);
                    copied = end;
                }
            }
        }
        reply.extend_from_slice(&answer[copied..]);
        Ok(reply.freeze())
    }
}

/// Whether the block was executed: nil means that a watched key had changed, and an error that nothing was executed
/// either.
pub(crate) fn was_carried_out(answer: &[u8]) -> bool {
    answer.starts_with(b"*") && !answer.starts_with(b"*-1")
}
