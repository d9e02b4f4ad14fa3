//! Asks a server that some sentinels name whether it goes on with the data of the previous primary, over a connection
//! of its own that is used for nothing else.

use std::sync::Arc;

use super::Address;
use crate::backend::conversation::{BackendError, Conversation};
use crate::backend::open_connections::OpenConnections;
use crate::backend::sentinel::{Lineage, Named};
use crate::backend::server_info::role::{Role, RoleQuestion};

impl Address {
    /// Whether the server is a primary and proves its descent. A replica of the current primary has the data, too,
    /// but must not be followed.
    pub(crate) async fn descends(
        &self,
        named: &Named,
        lineage: &Lineage,
        era_key: &[u8],
    ) -> Result<bool, BackendError> {
        let homes = self.homes_of(named.clone()).await?;
        let stream = self.connect_to_first(&homes).await?;
        // It belongs to no era yet.
        let alone = Arc::new(OpenConnections::default());
        let mut own = self.log_in(alone.enter(stream, 0)).await?;
        if RoleQuestion::Hello.ask(&mut own).await? != Role::Primary {
            return Ok(false);
        }
        let info = text(&mut own, &[b"INFO", b"replication"]).await?;
        let era = text(&mut own, &[b"GET", era_key]).await?;
        Ok(lineage.is_continued(&info, &era))
    }
}

/// The answer as text; empty where there is none, or the user may not ask.
async fn text(own: &mut Conversation, words: &[&[u8]]) -> Result<String, BackendError> {
    let answer = own.ask(words).await?;
    let bytes = answer.as_bytes().filter(|_| !answer.is_error());
    Ok(bytes.map_or_else(String::new, |bytes| String::from_utf8_lossy(bytes).into_owned()))
}
