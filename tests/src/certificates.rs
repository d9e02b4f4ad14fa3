//! Certificates that a test creates: authorities, servers, clients. Nothing is stored: each authority is known to its
//! test alone, except the one that all servers of the harness share.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};

/// Issues certificates.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// What a certificate is to say.
#[derive(Clone, Debug)]
pub struct Subject {
    common_name: String,
    names: Vec<SanType>,
    has_ended: bool,
    lasts: Option<Duration>,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// The private key.
    pub key: String,
}

impl Subject {
    /// One with this common name alone.
    pub fn named(common_name: &str) -> Subject {
        Subject { common_name: common_name.to_owned(), names: Vec::new(), has_ended: false, lasts: None }
    }

    /// A server of this machine.
    pub fn server() -> Subject {
        let mut server = Subject::named("server").dns("localhost");
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        server.names.push(SanType::IpAddress(local));
        server
    }

    /// With this DNS name.
    #[must_use]
    pub fn dns(mut self, name: &str) -> Subject {
        let name = name.try_into().expect("it is ASCII");
        self.names.push(SanType::DnsName(name));
        self
    }

    /// With this address.
    #[must_use]
    pub fn address(mut self, address: Ipv4Addr) -> Subject {
        self.names.push(SanType::IpAddress(IpAddr::V4(address)));
        self
    }

    /// With this URI.
    #[must_use]
    pub fn uri(mut self, name: &str) -> Subject {
        let name = name.try_into().expect("it is ASCII");
        self.names.push(SanType::URI(name));
        self
    }

    /// Good until the first day of 2021.
    #[must_use]
    pub fn that_has_ended(mut self) -> Subject {
        self.has_ended = true;
        self
    }

    /// Good for so long from now on.
    #[must_use]
    pub fn that_lasts(mut self, time: Duration) -> Subject {
        self.lasts = Some(time);
        self
    }
}

impl Authority {
    /// A new one, which no program trusts yet.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.self_signed(&key).expect("the parameters are good");
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// That of the harness's own servers.
    pub fn of_harness() -> &'static Authority {
        static HARNESS: OnceLock<Authority> = OnceLock::new();
        HARNESS.get_or_init(|| Authority::new("the harness"))
    }

    /// A folder with that of the harness's own servers (`harness.pem`), and what they show (`harness.crt`, `harness.key`).
    /// All tests of this run use it.
    pub(crate) fn folder_of_harness() -> &'static Path {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        FOLDER.get_or_init(|| {
            let name = format!("lockwarden-tests-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).expect("a place for files");
            let ca = folder.join("harness.pem");
            fs::write(ca, Authority::of_harness().pem()).expect("the folder is ours");
            Authority::server_of_harness().write(&folder, "harness");
            folder
        })
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Issues a certificate.
    pub fn issue(&self, subject: &Subject) -> Issued {
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, subject.common_name.as_str());
        params.subject_alt_names = subject.names.clone();
        if subject.has_ended {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        if let Some(time) = subject.lasts {
            params.not_after = (SystemTime::now() + time).into();
        }
        let key = KeyPair::generate().expect("there is randomness");
        let signed = params.signed_by(&key, &self.issuer);
        Issued { cert: signed.expect("the parameters are good").pem(), key: key.serialize_pem() }
    }

    /// The certificate of the harness's own servers.
    pub fn server_of_harness() -> &'static Issued {
        static SERVER: OnceLock<Issued> = OnceLock::new();
        SERVER.get_or_init(|| Authority::of_harness().issue(&Subject::server()))
    }
}

impl Issued {
    /// Writes both into a folder; where they are.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let paths = ["crt", "key"].map(|ending| folder.join(format!("{name}.{ending}")));
        let [cert, key] = paths;
        fs::write(&cert, &self.cert).expect("the folder is ours");
        fs::write(&key, &self.key).expect("the folder is ours");
        (cert, key)
    }
}
