//! Checks whether the users of `[[certificate_login]]` can log in, by trying each of them.

use lockwarden_control::config::{CertificateLogin, Config};
use lockwarden_dataplane::backend::own_login::login_of;
use lockwarden_dataplane::backend::profile::Profile;
use lockwarden_dataplane::backend::{Address, BackendError};

/// The problems found.
pub(super) async fn ask(address: &Address, config: &Config) -> Result<Vec<String>, BackendError> {
    let mut doubts = Vec::new();
    for (number, login) in (1..).zip(&config.certificate_logins) {
        let why = match log_in(address, login).await {
            Ok(()) => continue,
            Err(BackendError::Login(text)) => text,
            Err(BackendError::Password(error)) => error.to_string(),
            Err(error) => return Err(error),
        };
        doubts.push(format!("certificate_login #{number}: user {} cannot log in: {why}", login.user));
    }
    Ok(doubts)
}

async fn log_in(address: &Address, login: &CertificateLogin) -> Result<(), BackendError> {
    let profile = Profile::of(login_of(login).await?);
    address.converse_as(&profile).await.map(|_| ())
}
