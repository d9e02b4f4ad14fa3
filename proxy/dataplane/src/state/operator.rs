//! What an operator asks over RESP. Sessions ask here. The replies are made in `app`, where all that is known comes
//! together, on a thread of their own: so a search through many locks, or a wait for the end of a reload, keeps no
//! other client waiting.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use lockwarden_control::telemetry::events::Caller;
use lockwarden_lock::operator_command::OperatorCommand;
use lockwarden_resp::Value;
use tokio::sync::Semaphore;

/// Replies that are made at the same time; further ones wait for their turn.
const MAX_AT_ONCE: usize = 4;
/// An operator waits for an answer this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers an operator.
pub trait AnswerOperator: Send + Sync + 'static {
    /// Does what was asked for. It may take a while.
    fn answer(&self, command: &OperatorCommand, by: &Caller) -> Value;
}

/// See the module.
pub struct Operator {
    /// The object that holds the process together; a weak reference, so it is not kept alive here.
    answers: OnceLock<Weak<dyn AnswerOperator>>,
    places: Arc<Semaphore>,
}

impl Default for Operator {
    fn default() -> Operator {
        Operator { answers: OnceLock::new(), places: Arc::new(Semaphore::new(MAX_AT_ONCE)) }
    }
}

impl Operator {
    /// Sets the object that answers from now on. Only the first call counts.
    pub fn is_answered_by(&self, answers: &Arc<dyn AnswerOperator>) {
        let _ = self.answers.set(Arc::downgrade(answers));
    }

    /// The answer to a command, which may be an error.
    pub async fn ask(&self, command: OperatorCommand, by: Arc<Caller>) -> Value {
        match tokio::time::timeout(PATIENCE, self.answer(command, by)).await {
            Ok(Some(answer)) => answer,
            Ok(None) => error("ERR the proxy cannot answer now, see the log"),
            Err(_) => error("ERR still under way, see the log"),
        }
    }

    async fn answer(&self, command: OperatorCommand, by: Arc<Caller>) -> Option<Value> {
        let place = self.places.clone().acquire_owned().await.ok()?;
        let answers = self.answers.get()?.upgrade()?;
        let answering = move || {
            // Kept for as long as it works, even if the client waits no more.
            let _place = place;
            answers.answer(&command, &by)
        };
        match tokio::task::spawn_blocking(answering).await {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::error!(%error, "an answer to an operator failed");
                None
            }
        }
    }
}

/// An error reply.
pub fn error(text: impl Into<String>) -> Value {
    Value::Error(Bytes::from(text.into()))
}
