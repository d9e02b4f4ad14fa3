//! Which server is the primary, and what happens when it changes: the connections to the old one are cut at once.
//! After a failover the old primary goes on taking writes for some ten seconds. All of these are lost, and with them
//! every lock that was granted there.

use crate::backend::sentinel::Named;
use crate::backend::{BackendError, Switch};
use crate::state::ProxyState;

/// The primary that the authority names, which the proxy follows from here on.
pub(super) async fn followed(shared: &ProxyState) -> Result<Option<Named>, BackendError> {
    let authority = &shared.backend.address.authority;
    let named = authority.find().await?;
    if let Some(named) = &named {
        authority.turns_to(named);
    }
    Ok(named)
}

/// The primary that the proxy followed last, if any.
pub(super) fn last(shared: &ProxyState) -> Option<Named> {
    shared.backend.address.authority.turned_to()
}

/// Waits until another primary than this is to be followed.
pub(super) async fn changes(shared: &ProxyState, followed: Option<&Named>) -> BackendError {
    let authority = &shared.backend.address.authority;
    let who = if authority.map().is_some() { "the nodes of the cluster" } else { "the sentinels" };
    let Switch { name, from, to } = authority.changes(followed).await;
    tracing::warn!(
        name,
        from = %from.place,
        to = %to.place,
        epoch = to.epoch,
        "{who} name another primary: connections to the old one are cut"
    );
    BackendError::PrimaryChanged { name }
}

/// Nothing more is sent to the old primary, and nothing that it sends is used.
pub(super) fn leave(shared: &ProxyState) {
    shared.backend.server.begin_era();
    shared.backend.server.set_reckoned(None);
    let connections = shared.backend.server.cut_older();
    tracing::debug!(connections, "connections to the old primary were cut");
}
