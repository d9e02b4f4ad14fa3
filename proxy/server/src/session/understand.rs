//! What a request means to the lock crate under the configuration in force, and how what is not known yet is learnt.

use lockwarden_lock::classify::{Class, Classifier};
use lockwarden_lock::rules::Mode;
use lockwarden_resp::Request;

use super::Session;
use super::client::Client;
use super::connection_state::ConnectionState;
use super::transport::End;
use super::transport::request_buffer::RequestBuffer;
use crate::ruleset::Active;
use crate::state::ProxyState;

impl Session {
    /// Whether a request names a script or a function that this proxy does not know yet, and may know once it has
    /// looked.
    pub(super) fn may_learn_more(&self, class: &Class<'_>) -> bool {
        match class {
            Class::UnknownFunction(_) => true,
            // What loads it may be on its way right before it.
            Class::UnknownScript(_) | Class::UnseenScript(_) => {
                self.client.connection.unsettled > 0
            }
            _ => false,
        }
    }

    /// Waits for what may load such a script or function, and asks for the server's functions. Returns why these cannot
    /// be known, if so.
    pub(super) async fn learn_what_is_unknown(
        &mut self,
        inbox: &mut RequestBuffer,
    ) -> Result<Option<String>, End> {
        self.settled(inbox).await?;
        match self.client.classify(inbox.request()) {
            Class::UnknownFunction(_) => self.learn_functions(inbox).await,
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

    /// Whether one of its keys is a lock.
    pub(super) fn names_lock(&mut self, request: &Request<'_>) -> bool {
        let active = self.active.load();
        let namespaces = &active.namespaces;
        lockwarden_lock::classify::names_lock(namespaces, request)
    }
}

fn classify<'a>(
    shared: &ProxyState,
    active: &Active,
    connection: &ConnectionState,
    request: Request<'a>,
) -> Class<'a> {
    let classifier = Classifier {
        namespaces: &active.namespaces,
        companion_prefix: &active.companion_prefix,
        trusted_function: &|name| active.administration.trusts(name),
        function: &|name| {
            let names = shared.functions.get(name);
            names.filter(|_| !active.enforces_any() || connection.functions_stand())
        },
        computed_names: &active.computed_names,
        enforces: &|namespace| active.rules(namespace).mode == Mode::Enforce,
        foreign: &|| shared.backend.server.commands().clone(),
        counts: &|namespace| active.rules(namespace).counter_locks,
        script: &|sha| shared.script_cache.get(sha),
        saw: &|text| shared.script_cache.saw(text),
    };
    classifier.classify(request)
}
