//! What a request means to the lock crate under the configuration in force, and how the proxy learns what it does not
//! know yet.

pub(super) mod functions;
pub(super) mod gates;
pub(super) mod multiplexing;
mod not_logged_in;
pub(super) mod twin;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_lock::classify::{Class, Classifier};
use lockwarden_lock::rules::Mode;
use lockwarden_resp::Request;

use crate::backend::server_info;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::client::connection_state::ConnectionState;
use crate::session::transport::End;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::state::ProxyState;

impl Session {
    /// Whether a request names a script, a function or a command that this proxy does not know yet, but may know once
    /// it has looked.
    pub(super) fn may_learn_more(&self, class: &Class<'_>) -> bool {
        match class {
            Class::UnknownFunction(_) | Class::OtherName(_) => true,
            // The request that loads it may be under way right before it.
            Class::UnknownScript(_) | Class::UnseenScript(_) => !self.client.connection.is_settled(),
            _ => false,
        }
    }

    /// Waits for requests that may load such a script or function, and asks for the server's functions. Returns why
    /// these cannot be known, if they cannot.
    pub(super) async fn learn_what_is_unknown(&mut self, inbox: &mut RequestBuffer) -> Result<Option<String>, End> {
        self.settled(inbox).await?;
        match self.client.classify(inbox.request()) {
            Class::UnknownFunction(_) => self.learn_functions(inbox).await,
            Class::OtherName(_) => {
                self.client.learn_name(inbox.request().name()).await;
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

impl Client {
    /// What a request means under the configuration in force.
    pub(super) fn classify<'a>(&mut self, request: Request<'a>) -> Class<'a> {
        let active = self.active.load();
        if active.rollouts.is_none() {
            return classify(&self.shared, active, &self.connection, request);
        }
        let active = self.active();
        classify(&self.shared, &active, &self.connection, request)
    }

    /// Has a long and new text in a request analysed where that delays no other client.
    pub(super) async fn read_long_text(&self, request: Request<'_>) {
        let is = |place: usize, word: &str| request.arg(place).eq_ignore_ascii_case(word.as_bytes());
        let place = match request.len() {
            3.. if is(0, "eval") => 1,
            3 if is(0, "script") && is(1, "load") => 2,
            _ => return,
        };
        let text = request.arg(place);
        if self.shared.script_cache.takes_time(text) {
            let text = Bytes::copy_from_slice(text);
            self.shared.script_cache.clone().read(text).await;
        }
    }

    /// Asks the server, over a connection of the proxy's own, which command a name that it does not list stands for.
    async fn learn_name(&self, name: &[u8]) {
        let backend = &self.shared.backend;
        let asked = async {
            let mut aside = backend.address.converse().await?;
            server_info::ask_name(&mut aside, name).await
        };
        match asked.await {
            Ok(found) => backend.server.learn_command(&found),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "the server did not say what a command is");
            }
        }
    }

    /// Whether one of its keys is a lock.
    pub(super) fn names_lock(&mut self, request: &Request<'_>) -> bool {
        let active = self.active.load();
        let namespaces = &active.namespaces;
        lockwarden_lock::classify::names_lock(namespaces, request)
    }
}

fn classify<'a>(shared: &ProxyState, active: &Active, connection: &ConnectionState, request: Request<'a>) -> Class<'a> {
    let classifier = Classifier {
        namespaces: &active.namespaces,
        companion_prefix: &active.companion_prefix,
        trusted_function: &|name| active.administration.trusts(name),
        trusted_script: &|sha| active.trusting(sha),
        function: &|name| {
            let names = shared.functions.get(name);
            names.filter(|_| !active.enforces_any() || connection.functions_stand())
        },
        operator_says: &|name| active.administration.says_of(name),
        computed_names: &active.computed_names,
        enforces: &|namespace| active.rules(namespace).mode == Mode::Enforce,
        foreign: &|| shared.backend.server.commands().clone(),
        counts: &|namespace| active.rules(namespace).counter_locks,
        script: &|sha| shared.script_cache.get(sha),
        saw: &|text| shared.script_cache.saw(text),
    };
    let mut class = classifier.classify(request);
    if let Class::Judge(command) = &mut class
        && shared.backend.server.in_cluster()
    {
        command.op.keep_to_one_slot();
    }
    class
}
