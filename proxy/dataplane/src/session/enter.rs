//! The connection to the backend that a client begins with, and the user that it begins as: the one for the name in
//! its certificate, if a `[[certificate_login]]` names it.

use std::sync::Arc;

use lockwarden_control::config::{CertificateLogin, Sessions};
use lockwarden_control::net::arrival::Arrival;

use crate::backend::own_login::login_of;
use crate::backend::profile::{Login, Profile, Traffic};
use crate::backend::shared_connection::Attachment;
use crate::backend::{BackendError, Link};
use crate::session::client::entry::Entry;
use crate::session::transport::BackendLink;
use crate::state::ProxyState;

/// See the module.
pub async fn enter(shared: &Arc<ProxyState>, arrival: &Arrival) -> Result<(BackendLink, Entry), BackendError> {
    let logins = shared.active.load().certificate_logins.clone();
    let is_strict = arrival.needs_certificate && !logins.is_empty();
    let name = arrival.certificate.as_ref();
    let Some((name, login)) = name.and_then(|name| Some((name, logins.of(name)?))) else {
        let entry = match is_strict {
            true => Entry::Nobody,
            false => Entry::Default,
        };
        return Ok((backend_link(shared).await?, entry));
    };
    let error = match log_in(shared, login).await {
        Ok((link, login)) => {
            let entry = Entry::User { login, is_strict };
            return Ok((BackendLink::own(link), entry));
        }
        Err(BackendError::Login(text)) => text,
        Err(BackendError::Password(error)) => error.to_string(),
        // Any other failure has nothing to do with the certificate.
        Err(error) => return Err(error),
    };
    tracing::warn!(
        client = %arrival.peer,
        certificate = %name,
        user = login.user,
        error,
        "a client has to log in itself: the login of its certificate failed"
    );
    let link = backend_link(shared).await?;
    Ok((link, Entry::Nobody))
}

/// A connection that is logged in as this user. Each client gets a new one, so that Redis itself decides whether to
/// let it in.
async fn log_in(shared: &ProxyState, login: &CertificateLogin) -> Result<(Link, Login), BackendError> {
    let login = login_of(login).await?;
    let profile = Profile::of(login.clone());
    Ok((shared.backend.open(&profile).await?, login))
}

/// The connection for a client that has not logged in.
async fn backend_link(shared: &Arc<ProxyState>) -> Result<BackendLink, BackendError> {
    if shared.sessions == Sessions::Multiplexed
        && let Some(port) = Attachment::new(&Profile::plain(), Traffic::Reads, &shared.backend)
    {
        return Ok(BackendLink::shared(port));
    }
    let link = shared.backend.open(&Profile::plain()).await?;
    Ok(BackendLink::own(link))
}
