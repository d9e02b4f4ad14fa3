//! Which server is the primary, and what happens when it is another: the connections to the old one are cut at once. A
//! failover leaves the old primary taking writes for some ten seconds, all of which are lost, and with them every lock
//! that was granted there.

use crate::backend::BackendError;
use crate::backend::sentinel::Named;
use crate::state::ProxyState;

/// The primary that sentinels name now, where there are sentinels; they are asked where nobody has done so yet.
pub(super) async fn followed(shared: &ProxyState) -> Result<Option<Named>, BackendError> {
    let Some(sentinels) = shared.backend.address.sentinels() else {
        return Ok(None);
    };
    let named = match sentinels.named() {
        Some(named) => named,
        None => sentinels.find().await?,
    };
    sentinels.is_followed(&named);
    Ok(Some(named))
}

/// The primary that was followed last, if any was.
pub(super) fn last(shared: &ProxyState) -> Option<Named> {
    shared.backend.address.sentinels()?.followed()
}

/// Waits until sentinels name another primary than this.
pub(super) async fn changes(shared: &ProxyState, followed: Option<&Named>) -> BackendError {
    let (Some(sentinels), Some(followed)) = (shared.backend.address.sentinels(), followed) else {
        return std::future::pending().await;
    };
    let now = sentinels.changes(followed).await;
    tracing::warn!(
        name = sentinels.name(),
        from = %followed.place,
        to = %now.place,
        epoch = now.epoch,
        "the sentinels name another primary: connections to the old one are cut"
    );
    BackendError::PrimaryChanged { name: sentinels.name().to_owned() }
}

/// Nothing more is said to the old primary, and nothing that it says is heard.
pub(super) fn leave(shared: &ProxyState) {
    shared.backend.server.begin_era();
    shared.backend.server.set_reckoned(None);
    let connections = shared.backend.server.cut_older();
    tracing::debug!(connections, "connections to the old primary were cut");
}
