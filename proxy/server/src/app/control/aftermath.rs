//! Watches the effect of enforcing: reports harm, and sets a namespace with `auto_back` back to monitor mode.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lockwarden_console::admin::{Control as _, Leap};
use lockwarden_console::view::Harmed;
use lockwarden_control::telemetry::audit;

use super::Controller;

/// Pause between two checks.
const LOOK: Duration = Duration::from_secs(5);

/// Runs until the process ends.
pub(crate) async fn watch(controller: Arc<Controller>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let controller = controller.clone();
        // A reload may take as long as compiling the policies, and an order waits for it.
        let _ = tokio::task::spawn_blocking(move || controller.look_for_harm()).await;
    }
}

impl Controller {
    fn look_for_harm(&self) {
        for harmed in self.views.look_for_harm() {
            let (namespace, harm) = (harmed.namespace.to_string(), &harmed.words);
            tracing::error!(
                namespace,
                harm,
                "enforcing harms; lockwarden mode {namespace}=monitor takes it back, lockwarden audit says more"
            );
            if self.goes_back(&namespace) {
                self.take_back(harmed);
            }
        }
    }

    fn goes_back(&self, namespace: &str) -> bool {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let mut namespaces = config.namespaces.iter();
        namespaces.any(|one| one.name == namespace && one.auto_back)
    }

    fn take_back(&self, harmed: Harmed) {
        let namespace = harmed.namespace.clone();
        let itself = audit::Client { application: "lockwarden (auto_back)".to_owned(), ..audit::Client::default() };
        match self.set_mode(Some(&namespace), "monitor", Leap::Looks, itself) {
            Ok(_) => {
                self.views.was_taken_back(harmed);
                tracing::warn!(
                    namespace = &*namespace,
                    "set back to monitor mode, because enforcing harms (auto_back)"
                );
            }
            // A reload has removed the namespace.
            Err(error) => {
                tracing::warn!(namespace = &*namespace, %error, "not set back to monitor mode")
            }
        }
    }
}
