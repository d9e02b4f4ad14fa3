//! `[sentinel]`: the login for sentinels. Their addresses are in the backend's URL.

use super::backend::{Backend, BackendUrl, Target};
use super::backend_login::{self, BackendLogin, PasswordSource};
use super::finding::{Findings, Place};
use super::keys::belongs_on_top;
use super::reader::{Reader, Section, key_table};

key_table! { pub(super) KEYS =
    user: "\"warden\"",
    password_file: "\"/run/secrets/sentinel\"",
}

/// Reads the table with its place, if the file has one.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<(BackendLogin, Place)> {
    let section = reader.section(top, "sentinel", KEYS)?;
    let user = reader.parsed(&section, "user", backend_login::user);
    let file = reader.file(&section, "password_file");
    let file = reader.required(&section, "password_file", file);
    reader.unknown_keys(&section, belongs_on_top);
    let login = BackendLogin {
        user: user.map_or_else(|| "default".to_owned(), |user| user.value),
        source: PasswordSource::File(file?.value),
        refresh: None,
    };
    Some((login, reader.document.place(section.span)))
}

/// Adds the login to the backends that need it.
pub(super) fn give_login(login: Option<(BackendLogin, Place)>, backend: &mut Backend, findings: &mut Findings) {
    let Some((login, place)) = login else { return };
    if let Backend::Redis(BackendUrl { target: Target::Sentinel(sentinels), .. }) = backend {
        sentinels.login = Some(login);
        return;
    }
    let message = "sentinel: the backend's URL names no sentinels (redis-sentinel://), so this is not used";
    findings.warning(place, message.to_owned());
}
