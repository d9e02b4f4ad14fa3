//! The reports of the sentinels in the backend's URL, one by one.

use std::time::Instant;

use lockwarden_dataplane::backend::server_info::{Role, RoleQuestion};
use lockwarden_dataplane::backend::{Address, BackendError, Conversation};

/// The result.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sentinels {
    /// The primary, with the sentinels that name it.
    pub(super) stands: Vec<String>,
    pub(super) doubts: Vec<String>,
}

/// Each sentinel was asked when the connection was made.
pub(super) async fn ask(own: &mut Conversation, address: &Address) -> Result<Sentinels, BackendError> {
    let mut found = Sentinels::default();
    let Some(sentinels) = address.authority.sentinels() else {
        return Ok(found);
    };
    let Some(named) = sentinels.named() else {
        return Ok(found);
    };
    let now = Instant::now();
    let (heard, known) = sentinels.heard(now);
    found.stands.push(format!(
        "{heard} of {known} sentinels answer; the primary of {} is {} (config epoch {})",
        sentinels.name(),
        named.place,
        named.epoch
    ));
    let others = sentinels.said(now).into_iter();
    found.doubts.extend(others.filter_map(|(place, said)| match said {
        Ok(other) if other.place != named.place => {
            let why = match other.epoch > named.epoch {
                true => {
                    "most others do not, so it is not followed: it belongs to other servers, or a failover is under way"
                }
                false => "it is cut off from the others, or was until now",
            };
            Some(format!("sentinel {place} names {} as the primary (config epoch {}): {why}", other.place, other.epoch))
        }
        Ok(_) | Err(None) => None,
        Err(Some(error)) => Some(format!("sentinel {place}: {error}")),
    }));
    if known < 3 {
        found
            .doubts
            .push(format!("{known} sentinels are too few to agree on a failover when one of them is gone; have three"));
    }
    let role = RoleQuestion::Hello.ask(own).await?;
    if role != Role::Primary {
        found
            .doubts
            .push(format!("{} does not say of itself that it is the primary, so no client is served", named.place));
    }
    Ok(found)
}
