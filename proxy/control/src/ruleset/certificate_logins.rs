//! Which clients need no password because of the name in their certificate: the `[[certificate_login]]` tables in
//! force.

use lockwarden_lock::glob::Glob;

use crate::config::CertificateLogin;
use crate::net::certificate_name::CertificateName;

/// In the order of the configuration.
#[derive(Default)]
pub struct CertificateLogins(Vec<(Glob, CertificateLogin)>);

impl CertificateLogins {
    pub fn new(configured: &[CertificateLogin]) -> CertificateLogins {
        let logins = configured.iter().cloned();
        CertificateLogins(logins.map(|login| (Glob::new(login.name.clone()), login)).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first login that matches a client with this name.
    pub fn of(&self, name: &CertificateName) -> Option<&CertificateLogin> {
        let mut logins = self.0.iter();
        let found = logins.find(|(glob, _)| glob.matches(name.as_str().as_bytes()));
        found.map(|(_, login)| login)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_whose_glob_matches_says_who_a_client_is() {
        let login = |name: &'static str, user: &str| CertificateLogin {
            name: name.into(),
            user: user.to_owned(),
            password_file: "password".into(),
        };
        let logins = CertificateLogins::new(&[
            login("spiffe://corp/ns/shop/admin", "keeper"),
            login("spiffe://corp/ns/shop/*", "shop"),
            login("*.corp", "others"),
        ]);
        for (name, user) in [
            ("spiffe://corp/ns/shop/admin", Some("keeper")),
            ("spiffe://corp/ns/shop/api", Some("shop")),
            ("billing.corp", Some("others")),
            // The whole name has to match.
            ("spiffe://corp/ns/shop", None),
            ("billing.corp.evil", None),
            ("*", None),
        ] {
            let name = CertificateName::new(name.as_bytes()).expect("a name");
            let found = logins.of(&name).map(|login| login.user.as_str());
            assert_eq!(found, user, "{name}");
        }
    }
}
