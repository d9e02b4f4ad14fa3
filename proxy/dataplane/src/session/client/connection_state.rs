//! What Redis remembers of a connection, as far as judging and pairing depend on it. It is tracked, not emulated: it
//! changes when Redis's reply says that the change was made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::net::proxy_protocol::Origin;
use lockwarden_control::telemetry::events::DEFAULT_USER;
use lockwarden_control::text::escape::spell;
use lockwarden_lock::data_guard::RecordHead;
use lockwarden_lock::plan::{Needs, Who};
use lockwarden_lock::token::{Grant, Identity};
use lockwarden_resp::Protocol;
use smallvec::SmallVec;

use crate::registry::clients::ClientConnection;
use crate::registry::processes::MACHINE;
use crate::session::client::block::Block;
use crate::session::client::login::LoginState;
use crate::session::client::sharing::Sharing;
use crate::session::client::watch::Watch;
use crate::session::step::awaited::Tracking;

/// `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    Off,
    /// Not for the next command.
    Skip,
}

/// What a client says of its library by `CLIENT SETINFO`, for people to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Library {
    name: Bytes,
    version: Bytes,
}

/// Bytes of a name or version that are kept; the rest is cut off.
const MAX_LIBRARY: usize = 64;

impl Library {
    /// Whether a word of this length is kept whole.
    pub(crate) fn keeps(word: &[u8]) -> bool {
        word.len() <= MAX_LIBRARY
    }

    /// What was said, each with its option word.
    pub(crate) fn said(&self) -> impl Iterator<Item = (&'static [u8], &Bytes)> {
        let both: [(&[u8], _); 2] = [(b"LIB-NAME", &self.name), (b"LIB-VER", &self.version)];
        both.into_iter().filter(|(_, said)| !said.is_empty())
    }

    /// `LIB-NAME` or `LIB-VER`; Redis takes nothing else.
    pub(crate) fn set(&mut self, what: &[u8], value: &Bytes) {
        let value = Bytes::copy_from_slice(&value[..value.len().min(MAX_LIBRARY)]);
        if what.eq_ignore_ascii_case(b"LIB-NAME") {
            self.name = value;
        } else if what.eq_ignore_ascii_case(b"LIB-VER") {
            self.version = value;
        }
    }

    /// As text; `None` where nothing was said.
    pub(crate) fn told(&self) -> Option<Arc<str>> {
        let parts = [&self.name, &self.version];
        let told: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).map(|part| spell(part)).collect();
        (!told.is_empty()).then(|| told.join(" ").into())
    }
}

/// A user who may not read a record is not tried again before this time has passed.
const UNREADABLE_FOR: Duration = Duration::from_secs(10);

/// What Redis is known to allow the user of a connection.
#[derive(Debug, Default)]
pub(crate) struct UserRights {
    /// The steps that the user's rights suffice for, and how long that is trusted.
    pub(crate) sufficient: SmallVec<[(Arc<str>, Needs, Instant); 2]>,
    /// Until then the records are not read, because the user may not.
    pub(crate) unreadable_until: Option<Instant>,
    /// Until then its commands are not guarded where they are only watched, because the user may not run what
    /// guarding takes.
    pub(crate) unguarded_until: Option<Instant>,
    /// The user may use `CLIENT REPLY`, which the proxy carries out itself.
    pub(crate) may_silence: bool,
    /// Redis has accepted a `MULTI` before.
    pub(crate) may_begin_block: bool,
    /// Redis has accepted a `MULTI` and an `EXEC` of the proxy's own.
    pub(crate) may_carry_out_blocks: bool,
}

/// See the module.
#[derive(Debug)]
pub struct ConnectionState {
    pub(crate) selected: u32,
    user: Bytes,
    name: Bytes,
    pub(crate) library: Library,
    pub(crate) protocol: Protocol,
    pub(crate) tracking: Tracking,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) block: Option<Box<Block>>,
    pub(crate) watch: Watch,
    /// Replies under way that may change what judging depends on.
    unsettled: usize,
    /// Grants that were read ahead of a value, whose reply is still to come.
    pub(crate) read_grants: Vec<Option<Grant>>,
    /// Records that were read ahead of writes of guarded data that are still to be judged; `None` for one that could
    /// not be read.
    pub(crate) read_heads: Vec<Option<Option<RecordHead>>>,
    pub(crate) login: LoginState,
    pub(crate) rights: UserRights,
    /// Redis refused to queue the command ahead of a step, and the client was told so.
    pub(crate) guard_refused: bool,
    /// It has said `ASKING`, which is for the next command.
    pub(crate) is_asking: bool,
    pub(crate) sharing: Sharing,
    peer: Arc<ClientConnection>,
    client: Identity,
    application: Option<Identity>,
}

impl ConnectionState {
    pub fn new(peer: Arc<ClientConnection>, was_let_in: bool) -> ConnectionState {
        let user = Bytes::from_static(DEFAULT_USER);
        let client = identity(&user, b"", &peer);
        ConnectionState {
            selected: 0,
            user,
            name: Bytes::new(),
            library: Library::default(),
            protocol: Protocol::Resp2,
            tracking: Tracking::Off,
            reply_mode: ReplyMode::On,
            block: None,
            watch: Watch::default(),
            unsettled: 0,
            read_grants: Vec::new(),
            read_heads: Vec::new(),
            login: LoginState::new(was_let_in),
            rights: UserRights::default(),
            guard_refused: false,
            is_asking: false,
            sharing: Sharing::default(),
            peer,
            client,
            application: None,
        }
    }

    /// The database that the next command acts on.
    pub(crate) fn db(&self) -> u32 {
        self.block.as_ref().and_then(|block| block.db).unwrap_or(self.selected)
    }

    pub(crate) fn who(&self) -> Who {
        Who {
            session: self.peer.session,
            client: self.client,
            process: self.peer.process(),
            application: self.application,
            local: self.peer.is_local(),
            trust: self.peer.trust(),
            db: self.db(),
            may_ask_back: false,
            looks_first: false,
        }
    }

    /// The identity that the client presents.
    pub fn client(&self) -> Identity {
        self.client
    }

    pub fn peer(&self) -> &Arc<ClientConnection> {
        &self.peer
    }

    /// The ACL user.
    pub(crate) fn user(&self) -> &Bytes {
        &self.user
    }

    /// What `CLIENT SETNAME` has set.
    pub(crate) fn name(&self) -> &Bytes {
        &self.name
    }

    /// A reply is under way that may change what judging depends on.
    pub(crate) fn unsettle(&mut self) {
        self.unsettled += 1;
    }

    /// Such a reply has come.
    pub(crate) fn settle(&mut self) {
        self.unsettled = self.unsettled.saturating_sub(1);
    }

    /// Whether no such reply is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    pub(crate) fn set_user(&mut self, user: Bytes) {
        self.user = user;
        self.rights = UserRights::default();
        self.identify();
    }

    pub(crate) fn set_name(&mut self, name: Bytes) {
        self.name = name;
        self.identify();
    }

    /// `RESET` puts the connection back to its beginning.
    pub(crate) fn reset(&mut self, was_let_in: bool) {
        *self = ConnectionState {
            unsettled: self.unsettled,
            sharing: self.sharing.reset(),
            login: self.login.reset(was_let_in),
            // Redis keeps it, too.
            library: std::mem::take(&mut self.library),
            ..ConnectionState::new(self.peer.clone(), was_let_in)
        };
    }

    /// The user may not read records.
    pub(crate) fn cannot_read_records(&mut self) {
        self.rights.unreadable_until = Some(Instant::now() + UNREADABLE_FOR);
    }

    /// The user may not run a script behind a guard.
    pub(crate) fn cannot_run_guards(&mut self) {
        self.rights.unguarded_until = Some(Instant::now() + UNREADABLE_FOR);
    }

    /// Whether it is known that the user may not.
    pub(crate) fn may_not_run_guards(&self, now: Instant) -> bool {
        self.rights.unguarded_until.is_some_and(|until| now < until)
    }

    /// The same of reading records.
    pub(crate) fn may_not_read_records(&self, now: Instant) -> bool {
        self.rights.unreadable_until.is_some_and(|until| now < until)
    }

    /// Whether a read of the proxy's own on this connection would count as read by the client, or end a `CLIENT
    /// CACHING`.
    pub(crate) fn reads_are_noted(&self) -> bool {
        self.tracking == Tracking::Reads
    }

    fn identify(&mut self) {
        self.client = identity(&self.user, &self.name, &self.peer);
        self.application = application(&self.user, &self.name);
    }
}

/// The application that a client says it is, independent of its machine: its ACL user, or else its name.
fn application(user: &[u8], name: &[u8]) -> Option<Identity> {
    if user != DEFAULT_USER {
        return Some(Identity::of(&[b"application", b"user", user]));
    }
    (!name.is_empty()).then(|| Identity::of(&[b"application", b"name", name]))
}

/// The identity of a client, without its process. Every machine has the same loopback addresses, and different
/// networks have the same private ones, so the identity includes the machine or endpoint. A client whose address was
/// not told is equal to no other. Records store this identity: a client without a certificate's name must have the
/// identity that it had before such names existed.
fn identity(user: &[u8], name: &[u8], peer: &ClientConnection) -> Identity {
    let address = peer.client.host();
    let endpoint = peer.endpoint.as_deref().unwrap_or_default();
    let told;
    let machine: &[u8] = match peer.origin {
        Origin::Direct if peer.client.is_local() => &MACHINE,
        Origin::Told(by) if peer.client.is_local() => {
            told = format!("{}{endpoint}", by.to_canonical());
            told.as_bytes()
        }
        Origin::Direct | Origin::Told(_) => endpoint.as_bytes(),
        Origin::Untold => &peer.session.0,
    };
    let four = [user, name, address.as_bytes(), machine];
    match peer.known_by.certificate() {
        None => Identity::of(&four),
        Some(certificate) => {
            let [user, name, address, machine] = four;
            Identity::of(&[user, name, address, machine, certificate.as_bytes()])
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use lockwarden_control::net::arrival::Arrival;
    use lockwarden_control::net::certificate_name::CertificateName;
    use lockwarden_control::net::proxy_protocol::Extensions;
    use lockwarden_control::random;

    use super::*;
    use crate::registry::clients::Holder;

    fn arrival(address: &str, origin: Origin) -> Arrival {
        let address: SocketAddr = address.parse().expect("an address");
        Arrival { origin, ..Arrival::direct(address.into()) }
    }

    fn told(address: &str) -> Arrival {
        arrival(address, Origin::Told([10, 9, 9, 9].into()))
    }

    fn with(extensions: Extensions, arrival: Arrival) -> Arrival {
        Arrival { endpoint: extensions.endpoint, certificate: extensions.common_name, ..arrival }
    }

    fn certified(name: &str, arrival: Arrival) -> Arrival {
        let name = CertificateName::new(name.as_bytes()).expect("a name");
        Arrival { certificate: Some(name), ..arrival }
    }

    fn of(arrival: Arrival) -> Identity {
        let session = lockwarden_lock::token::SessionId(random::sixteen());
        let local = "10.9.9.9:6379".parse().ok();
        let peer = ClientConnection::new(session, Holder::new(), arrival, local, Arc::default());
        identity(b"default", b"worker-1", &peer)
    }

    /// Records of a version that knew no certificates are still on Redis.
    #[test]
    fn without_a_certificate_an_identity_is_byte_for_byte_what_it_was() {
        let parts =
            |address: &'static [u8], machine: &'static [u8]| Identity::of(&[b"default", b"worker-1", address, machine]);
        let direct = of(arrival("10.1.2.3:40000", Origin::Direct));
        assert_eq!(direct, parts(b"10.1.2.3", b""));
        assert_eq!(format!("{direct:?}"), "df45e4ecb968e7b40000000000000000");
        assert_eq!(of(told("10.1.2.3:40000")), direct);
        assert_eq!(of(told("127.0.0.1:40000")), parts(b"127.0.0.1", b"10.9.9.9"));
        assert_eq!(
            of(arrival("127.0.0.1:1", Origin::Direct)),
            Identity::of(&[b"default", b"worker-1", b"127.0.0.1", &MACHINE])
        );
    }

    #[test]
    fn a_certificates_name_and_an_endpoint_tell_clients_apart() {
        let address = "10.1.2.3:40000";
        let endpoint = |id: &str| Extensions { endpoint: Some(id.into()), ..Extensions::default() };
        let all = [
            told(address),
            certified("shop", told(address)),
            certified("billing", told(address)),
            with(endpoint("aws:vpce-1"), told(address)),
            with(endpoint("aws:vpce-2"), told(address)),
            certified("shop", with(endpoint("aws:vpce-1"), told(address))),
            with(endpoint("aws:vpce-1"), told("127.0.0.1:40000")),
            told("127.0.0.1:40000"),
            certified("shop", arrival("127.0.0.1:40000", Origin::Direct)),
        ];
        for (place, one) in all.iter().enumerate() {
            assert_eq!(of(one.clone()), of(one.clone()), "{one:?}");
            for other in &all[..place] {
                assert_ne!(of(one.clone()), of(other.clone()), "{one:?} {other:?}");
            }
        }
        let shop = certified("shop", arrival(address, Origin::Direct));
        assert_eq!(of(shop), of(certified("shop", told(address))));
    }

    #[test]
    fn of_unknown_origin_even_a_certificate_makes_nobody_equal() {
        let unknown = || certified("shop", arrival("10.9.9.9:1", Origin::Untold));
        assert_ne!(of(unknown()), of(unknown()));
    }

    #[test]
    fn a_certificate_alone_is_no_proof() {
        let peer = ClientConnection::new(
            lockwarden_lock::token::SessionId(random::sixteen()),
            Holder::new(),
            certified("shop", told("10.1.2.3:40000")),
            None,
            Arc::default(),
        );
        let mut state = ConnectionState::new(Arc::new(peer), false);
        assert_eq!(state.who().application, None);
        state.set_user(Bytes::from_static(b"shop"));
        assert!(state.who().application.is_some());
    }
}
