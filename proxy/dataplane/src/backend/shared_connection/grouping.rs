//! Steps about locks that clients of one thread send in one turn: from a certain number on they are sent as one
//! script. It does for each of them what its own step would do, or returns that the step is to be sent by itself.

use std::mem;

use lockwarden_control::net::buffer_pool::put;
use lockwarden_lock::plan::{Form, Plan, SENT_ALONE, Sent, put_together};
use lockwarden_resp::Elements;
use memchr::memmem;

use super::{Due, Inner, Place, wake};

/// Fewer steps than this cost Redis no more if each is sent by itself. Tests send each step as a group.
const LEAST: usize = if cfg!(debug_assertions) { 1 } else { 3 };

/// See the module.
#[derive(Default)]
pub(super) struct Steps {
    waiting: Vec<(Place, Plan)>,
    /// The server knows the script by its name.
    is_known: bool,
    /// The user may not run it: each step is sent by itself.
    is_refused: bool,
}

impl Steps {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Inner {
    /// Adds one more step of this turn.
    pub(super) fn add_step(&mut self, place: &Place, step: Plan) {
        let mut mailbox = place.borrow_mut();
        mailbox.due += 1;
        mailbox.has_step = true;
        self.steps.waiting.push((place.clone(), step));
    }

    /// Sends the steps of this turn.
    pub(super) fn put_steps(&mut self) {
        if self.steps.is_empty() {
            return;
        }
        let mut steps = mem::take(&mut self.steps.waiting);
        let least = if self.steps.is_refused { usize::MAX } else { LEAST };
        let form = if self.steps.is_known { Form::Sha } else { Form::Text };
        put_together(steps.iter().map(|(_, step)| step), (least, form), &mut self.out, |sent| {
            let place = |at: usize| steps[at].0.clone();
            self.due.push_back(match sent {
                Sent::Together(places) => Due::Group(places.iter().map(|at| place(*at)).collect()),
                Sent::Alone(at) => Due::Frames { place: place(at), frames: 1 },
            });
        });
        steps.drain(..).for_each(|(place, _)| place.borrow_mut().has_step = false);
        // Its memory is used again in the next turn.
        self.steps.waiting = steps;
    }

    /// Hands out the answers that a group has got. Returns false if they do not fit: then it is not known what was
    /// done.
    pub(super) fn hand_out(&mut self, places: &[Place], answer: &[u8]) -> bool {
        let answers: Option<Vec<&[u8]>> = match answer[0] {
            b'*' => Elements::of(answer).map(|elements| elements.map(|range| &answer[range]).collect()),
            // The error of a script that ended midway, which the proxy's scripts do not.
            b'-' if memmem::find(answer, b"user_script").is_some() => None,
            // Redis did not start it, or the script found that it can do nothing.
            b'-' | b':' => {
                self.steps.is_known &= !answer.starts_with(b"-NOSCRIPT");
                self.steps.is_refused |= answer.starts_with(b"-NOPERM") || answer[0] == b':';
                Some(vec![SENT_ALONE; places.len()])
            }
            _ => None,
        };
        let Some(answers) = answers.filter(|answers| answers.len() == places.len()) else {
            return false;
        };
        self.steps.is_known |= answer[0] == b'*';
        for (place, answer) in places.iter().zip(answers) {
            let mut place = place.borrow_mut();
            place.window.came(1, answer.len());
            place.due -= 1;
            if !place.gone {
                put(&mut place.replies, answer);
            }
            wake(&mut place.sleeper);
        }
        true
    }
}
