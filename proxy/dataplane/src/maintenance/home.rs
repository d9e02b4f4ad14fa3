//! Where on a node of a cluster the proxy keeps its own keys that belong to no lock: in the node's lowest slot. On a
//! server that is no such node they have fixed names.

use lockwarden_lock::companion::Home;

use crate::backend::server_info::{self, Report};
use crate::backend::{BackendError, Conversation};
use crate::state::ProxyState;

/// Asks a node of a cluster which slots it has now. `is_untold`: it was logged that it does not say.
pub(super) async fn look(
    shared: &ProxyState,
    conversation: &mut Conversation,
    report: &Report,
    is_untold: &mut bool,
) -> Result<(), BackendError> {
    let home = match report.cluster {
        false => Some(Home::WHOLE),
        true => match server_info::ask_node(conversation).await? {
            Ok(node) => {
                *is_untold = false;
                shared.backend.server.set_nodes(node.addresses);
                node.home
            }
            Err(error) => {
                if !std::mem::replace(is_untold, true) {
                    tracing::error!(
                        error,
                        "the node does not tell which slots it has (CLUSTER NODES): leases that are kept alive cannot be found \
                         by other proxies, and a namespace with a quarantine grants no free lock"
                    );
                }
                None
            }
        },
    };
    if shared.backend.server.set_home(report.cluster, home) {
        // The mark is entered again in the other place.
        shared.prefix_mark.another_server().await;
    }
    Ok(())
}
