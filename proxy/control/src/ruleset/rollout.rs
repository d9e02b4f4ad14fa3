//! Enforcing for some clients: decides for which clients a namespace in monitor mode already refuses. A client is
//! identified by what its connection says of it, so every proxy and every connection of one application get the same
//! result; nothing is stored about it.

use bytes::Bytes;
use lockwarden_lock::glob::Glob;
use lockwarden_lock::rules::{Adopt, Mode, Rules};

use crate::config;
use crate::net::entrance::Entrance;
use crate::net::peer::PeerAddress;
use crate::telemetry::events::DEFAULT_USER;

/// What a connection says of its application.
#[derive(Clone, Copy, Debug)]
pub struct Application<'a> {
    /// `CLIENT SETNAME`; empty where none was set.
    pub name: &'a [u8],
    /// The ACL user.
    pub user: &'a [u8],
    /// The address it comes from.
    pub address: PeerAddress,
    /// The name in its certificate.
    pub certificate: Option<&'a str>,
    /// Where it came in.
    pub entrance: Option<&'a Entrance>,
}

impl Application<'_> {
    /// Whether it is within this percentage of applications.
    pub(super) fn is_among(&self, named: Option<&str>, percent: u8) -> bool {
        self.place(named, &self.address.host()) < u64::from(percent)
    }

    /// A place from 0 to 99 that depends only on the application: on the first of operator's name, name, user,
    /// certificate and address that distinguishes it. It is the same in every namespace. So raising a percentage adds
    /// applications and removes none, and an application is new to enforcing only once, and not once per namespace.
    fn place(&self, named: Option<&str>, address: &str) -> u64 {
        let who = if let Some(named) = named {
            named.as_bytes()
        } else if !self.name.is_empty() {
            self.name
        } else if self.user != DEFAULT_USER {
            self.user
        } else if let Some(certificate) = self.certificate {
            certificate.as_bytes()
        } else {
            address.as_bytes()
        };
        twox_hash::XxHash3_64::oneshot(who) % 100
    }
}

/// The clients whose refusals are carried out.
#[derive(Clone)]
pub struct EnforceFor {
    clients: Vec<Glob>,
    applications: Vec<String>,
    certificates: Vec<Glob>,
    percent: u8,
}

impl EnforceFor {
    fn new(configured: &config::EnforceFor) -> EnforceFor {
        let globs = |patterns: &[Bytes]| patterns.iter().cloned().map(Glob::new).collect();
        EnforceFor {
            clients: globs(&configured.clients),
            applications: configured.applications.clone(),
            certificates: globs(&configured.certificates),
            percent: configured.percent,
        }
    }

    /// Whether this application belongs to them: by the operator's name `named`, by a glob or by its certificate, and
    /// within the percentage.
    fn chooses(&self, application: &Application<'_>, named: Option<&str>) -> bool {
        let address = application.address.host();
        let said = [application.name, application.user, address.as_bytes()];
        let is_meant = |glob: &Glob| said.iter().any(|word| glob.matches(word));
        let is_chosen = self.clients.iter().any(is_meant)
            || named.is_some_and(|named| self.applications.iter().any(|one| one == named))
            || application.certificate.is_some_and(|certificate| {
                let mut globs = self.certificates.iter();
                globs.any(|glob| glob.matches(certificate.as_bytes()))
            });
        is_chosen && application.place(named, &address) < u64::from(self.percent)
    }
}

/// A namespace that is enforced for some clients.
#[derive(Clone)]
pub struct Rollout {
    for_whom: EnforceFor,
    /// The rules for the others.
    watched: Rules,
    /// The rules for these clients.
    enforced: Rules,
}

impl Rollout {
    /// `watched` are the rules of the namespace.
    pub fn new(configured: &config::EnforceFor, watched: Rules) -> Rollout {
        Rollout {
            for_whom: EnforceFor::new(configured),
            watched,
            enforced: Rules {
                mode: Mode::Enforce,
                // An earlier lock may belong to a client that is only watched, and nothing may change for that client.
                adopt: Adopt::Report,
                ..watched
            },
        }
    }

    /// Whether this application is enforced.
    pub(super) fn chooses(&self, application: &Application<'_>, named: Option<&str>) -> bool {
        self.for_whom.chooses(application, named)
    }

    /// The rules for an application that is enforced, or for one that is not.
    pub(super) fn rules(&self, is_enforced: bool) -> Rules {
        match is_enforced {
            true => self.enforced,
            false => self.watched,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enforce_for(clients: &[&str], percent: u8) -> EnforceFor {
        let clients = clients.iter().map(|glob| glob.as_bytes().to_vec().into());
        EnforceFor::new(&config::EnforceFor {
            clients: clients.collect(),
            applications: vec!["shop".to_owned()],
            certificates: vec![Bytes::from_static(b"spiffe://corp/ns/shop/*")],
            percent,
        })
    }

    fn application<'a>(name: &'a str, user: &'a str, address: &str) -> Application<'a> {
        Application {
            name: name.as_bytes(),
            user: user.as_bytes(),
            address: std::net::SocketAddr::new(address.parse().unwrap(), 1).into(),
            certificate: None,
            entrance: None,
        }
    }

    #[test]
    fn a_client_is_named_by_the_name_in_its_certificate() {
        let chosen = enforce_for(&["billing*"], 100);
        let certified = |certificate| Application { certificate, ..application("", "default", "10.2.0.1") };
        for (certificate, expected) in [
            (Some("spiffe://corp/ns/shop/api"), true),
            (Some("spiffe://corp/ns/stock/api"), false),
            // What a client says of itself is compared with other globs.
            (Some("billing-7"), false),
            (None, false),
        ] {
            let found = chosen.chooses(&certified(certificate), None);
            assert_eq!(found, expected, "{certificate:?}");
        }
        let same_name = application("spiffe://corp/ns/shop/api", "default", "10.2.0.1");
        assert!(!chosen.chooses(&same_name, None));
    }

    #[test]
    fn a_certificate_has_its_place_whatever_the_address() {
        let at = |certificate: &'static str, address| {
            let application = Application { certificate: Some(certificate), ..application("", "default", address) };
            application.place(None, address)
        };
        assert_eq!(at("shop", "10.2.0.1"), at("shop", "10.2.0.2"));
        let places: std::collections::BTreeSet<u64> =
            ["a", "b", "c", "d", "e"].map(|certificate| at(certificate, "10.2.0.1")).into();
        assert!(places.len() > 1);
    }

    #[test]
    fn a_client_is_named_by_its_name_its_user_or_its_address() {
        let chosen = enforce_for(&["billing*", "10.1.*"], 100);
        for (name, user, address, expected) in [
            ("billing-7", "default", "10.2.0.1", true),
            ("", "billing", "10.2.0.1", true),
            ("", "default", "10.1.0.1", true),
            ("", "default", "::ffff:10.1.0.1", true),
            ("orders", "orders", "10.2.0.1", false),
            ("", "default", "10.11.0.1", false),
        ] {
            let application = application(name, user, address);
            assert_eq!(chosen.chooses(&application, None), expected, "{application:?}");
            assert!(chosen.chooses(&application, Some("shop")));
        }
    }

    #[test]
    fn a_percentage_takes_about_that_many_and_a_larger_one_drops_nobody() {
        let chosen = |percent| {
            let chosen = enforce_for(&["*"], percent);
            let names = (0..1000).map(|number| format!("app-{number}"));
            names.filter(|name| chosen.chooses(&application(name, "default", "10.0.0.1"), None)).collect::<Vec<_>>()
        };
        let (ten, twenty, all) = (chosen(10), chosen(20), chosen(100));
        assert!((60..=140).contains(&ten.len()), "{}", ten.len());
        assert!(ten.iter().all(|name| twenty.contains(name)));
        assert_eq!(all.len(), 1000);
    }

    #[test]
    fn the_connections_of_one_application_have_one_place() {
        let place = |name, user, address: &str| application(name, user, address).place(None, address);
        assert_eq!(place("billing", "default", "10.0.0.1"), place("billing", "svc", "10.0.0.2"));
        assert_eq!(place("", "svc", "10.0.0.1"), place("", "svc", "10.0.0.2"));
        // Exact places: they must not change in a new version, or an upgrade would switch applications.
        assert_eq!(place("billing", "default", "10.0.0.1"), 14);
        assert_eq!(place("", "default", "10.0.0.1"), 10);
        // The operator's name takes precedence over all of these.
        let mapped = |name, address: &str| application(name, "default", address).place(Some("billing"), address);
        assert_eq!((mapped("", "10.0.0.1"), mapped("a", "10.0.0.2")), (14, 14));
    }
}
