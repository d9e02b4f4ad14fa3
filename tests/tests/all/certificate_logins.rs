//! Clients that log in by the name in their certificate (`[[certificate_login]]`). Most clients come through a balancer that
//! ends TLS, so that their tests need no TLS; the clients of the last tests speak it themselves.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use lockwarden_tests::balancer::{certified, introduced};
use lockwarden_tests::{
    Authority, Client, Proxy, ProxyBuilder, Redis, Subject, Trust, encode, lockwarden, run_to_end, wait_for,
};

use crate::twins::Guarded;

const SHOP: &str = "spiffe://corp/ns/shop/api";

/// A server that lets no client in without a password, a user of the shop, and the file that holds that user's
/// password.
struct World {
    redis: Redis,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let redis = Redis::with_arguments(&["--requirepass", "secret"]);
        World::of(redis)
    }

    /// The same, but every client is let in as the default user.
    fn open() -> World {
        World::of(Redis::start())
    }

    fn of(redis: Redis) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World { redis, folder };
        world.orders("ACL SETUSER shop on resetpass >one ~* &* +@all");
        world.orders("ACL SETUSER billing on resetpass >two ~* &* +@all");
        world.keeps("one\n");
        world
    }

    /// As the server's own administrator.
    fn orders(&self, line: &str) -> String {
        let client = self.redis.client();
        client.sends("AUTH secret").reply();
        client.sends(line).reply().to_string()
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("shop-password")
    }

    fn keeps(&self, password: &str) {
        fs::write(self.file(), password).expect("the folder is ours");
    }

    fn builder(&self) -> ProxyBuilder {
        ProxyBuilder::for_backend(&format!("redis://:secret@{}", self.redis.address()))
            .top("proxy_protocol_from", "[\"127.0.0.0/9\", \"127.128.0.0/10\"]")
            .more(&login("spiffe://corp/ns/shop/*", &self.file()))
            .without_waiting()
    }

    /// The proxy's own password in the URL is no error where the default user has none: any will do.
    fn proxy(&self) -> Proxy {
        started(self.builder())
    }
}

fn login(name: &str, file: &Path) -> String {
    format!("[[certificate_login]]\nname = \"{name}\"\nuser = \"shop\"\npassword_file = \"{}\"\n", file.display())
}

fn started(builder: ProxyBuilder) -> Proxy {
    let proxy = builder.start();
    wait_for("the proxy to be ready", || proxy.ready() == Some(200));
    proxy
}

fn named(proxy: &Proxy, name: &str) -> Client {
    introduced(proxy, &certified(0, name))
}

#[test]
fn a_client_with_such_a_certificate_is_logged_in_from_its_first_command_on() {
    let world = World::new();
    let proxy = world.proxy();
    let shop = named(&proxy, SHOP);
    shop.sends("ACL WHOAMI").gets("$4 shop");
    shop.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let shown = proxy.api("connections").to_string();
    assert!(shown.contains("\"user\":\"shop\""), "{shown}");
    // In one write with the header, and longer than Redis takes from a client that has yet to log in.
    let again = named(&proxy, SHOP);
    let long = "x".repeat(40_000);
    again.sends(format!("SET plain {long}")).gets("+OK");
    again.sends("DEL lock:job").gets(":1");
    let log = proxy.log();
    assert!(!log.contains(">one") && !log.contains("\"one\""), "{log}");
}

#[test]
fn without_one_a_client_logs_in_as_ever() {
    let world = World::new();
    let proxy = world.proxy();
    for client in [
        named(&proxy, "spiffe://corp/ns/billing/api"),
        // Not verified; not in a certificate; none at all.
        introduced(&proxy, &certified(1, SHOP)),
        introduced(&proxy, &[]),
    ] {
        client.sends("GET a").gets_error("NOAUTH");
        client.sends("SETNX lock:job a1").gets_error("NOAUTH");
        client.sends(format!("CLIENT SETNAME {SHOP}")).gets_error("NOAUTH");
        client.sends("AUTH billing two").gets("+OK");
        client.sends("ACL WHOAMI").gets("$7 billing");
    }
}

#[test]
fn the_clients_own_login_wins() {
    let world = World::new();
    let proxy = world.proxy();
    let shop = named(&proxy, SHOP);
    shop.sends("AUTH billing wrong").gets_error("WRONGPASS");
    shop.sends("ACL WHOAMI").gets("$4 shop");
    shop.sends("AUTH billing two").gets("+OK");
    shop.sends("ACL WHOAMI").gets("$7 billing");
    let other = named(&proxy, SHOP);
    other.pipelines(&["HELLO 3 AUTH billing two", "ACL WHOAMI"], &[]);
    other.then().reply();
    other.then().gets("$7 billing");
    // As on Redis it ends the login.
    let last = named(&proxy, SHOP);
    last.sends("RESET").gets("+RESET");
    last.sends("GET a").gets_error("NOAUTH");
}

#[test]
fn the_password_is_read_again_for_each_client() {
    let world = World::new();
    let proxy = world.proxy();
    let before = named(&proxy, SHOP);
    before.sends("ACL WHOAMI").gets("$4 shop");
    world.orders("ACL SETUSER shop resetpass >three");
    world.keeps("three");
    named(&proxy, SHOP).sends("ACL WHOAMI").gets("$4 shop");
    // As on Redis, one that is logged in stays so.
    before.sends("ACL WHOAMI").gets("$4 shop");
    // The password that the proxy knew before lets no client in.
    world.orders("ACL SETUSER shop resetpass >four");
    named(&proxy, SHOP).sends("GET a").gets_error("NOAUTH");
}

#[test]
fn a_login_that_fails_leaves_a_client_that_has_to_log_in_itself() {
    // The default user needs no password, and still no client becomes it that was to be another user.
    for world in [World::new(), World::open()] {
        let proxy = world.proxy();
        fs::remove_file(world.file()).expect("it is ours");
        let client = named(&proxy, SHOP);
        client.sends("GET a").gets("-NOAUTH Authentication required.");
        client.sends("SETNX lock:job a1").gets_error("NOAUTH");
        client.sends("MULTI").gets_error("NOAUTH");
        client.sends("EVAL 'return 1' 0").gets_error("NOAUTH");
        client.sends("LOCKWARDEN LOCKS").gets_error("NOAUTH");
        client.sends("CLIENT REPLY OFF").gets_error("NOAUTH");
        client.sends("HELLO 3").gets_error("NOAUTH HELLO must be called");
        // Redis 6.2 does not take it from a client that has yet to log in.
        client.sends("RESET").reply();
        client.sends("GET a").gets_error("NOAUTH");
        client.sends("AUTH billing wrong").gets_error("WRONGPASS");
        client.sends("GET a").gets_error("NOAUTH");
        client.pipelines(
            &["GET a", "AUTH billing two", "ACL WHOAMI", "SETNX lock:job a1"],
            &["-NOAUTH Authentication required.", "+OK", "$7 billing", ":1"],
        );
        client.sends("DEL lock:job").gets(":1");
        client.sends("RESET").gets("+RESET");
        client.sends("GET a").gets_error("NOAUTH");
        proxy.logs(&["WARN", "the login of its certificate failed", SHOP, "shop-password"]);

        world.keeps("wrong");
        named(&proxy, SHOP).sends("GET a").gets_error("NOAUTH");
        proxy.logs(&["WARN", "the login of its certificate failed", "WRONGPASS"]);
        let log = proxy.log();
        assert!(!log.contains("\"wrong\""), "{log}");

        let hello = named(&proxy, SHOP);
        hello.sends("HELLO 2 AUTH billing two").reply();
        hello.sends("ACL WHOAMI").gets("$7 billing");
        named(&proxy, SHOP).sends("QUIT").gets("+OK");
        // Longer than Redis takes from a client that has yet to log in.
        let long = named(&proxy, SHOP);
        long.write(&encode(&["SET", "a", &"x".repeat(20_000)]));
        long.then().gets_error("ERR Protocol error");
    }
}

#[test]
fn clients_that_share_connections_share_those_of_their_user() {
    let world = World::new();
    let proxy = started(world.builder().multiplexed());
    let clients: Vec<Client> = (0..60).map(|_| named(&proxy, SHOP)).collect();
    for client in &clients {
        client.sends("ACL WHOAMI").gets("$4 shop");
        client.sends("SET plain 1").gets("+OK");
    }
    let shop = || {
        let listed = world.orders("CLIENT LIST");
        listed.matches("user=shop").count()
    };
    // Of the connections that were opened for a login, some are kept for the next client that needs its own.
    wait_for("clients to share", || shop() < 40);
    let stranger = introduced(&proxy, &[]);
    stranger.sends("GET plain").gets_error("NOAUTH");
    let (one, other) = (&clients[0], &clients[1]);
    one.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    one.pipelines(&["MULTI", "ACL WHOAMI", "EXEC"], &["+OK", "+QUEUED", "[$4 shop]"]);
    one.sends("DEL lock:job").gets(":1");
    other.sends("AUTH billing two").gets("+OK");
    other.sends("ACL WHOAMI").gets("$7 billing");
    clients[2].sends("ACL WHOAMI").gets("$4 shop");
}

#[test]
fn a_reload_changes_who_may_come() {
    let world = World::new();
    let proxy = world.proxy();
    let text = fs::read_to_string(proxy.config()).expect("the configuration");
    let before = named(&proxy, SHOP);
    before.sends("ACL WHOAMI").gets("$4 shop");
    let text = text.replace("spiffe://corp/ns/shop/*", "spiffe://corp/ns/stock/*");
    assert_eq!(proxy.reloads(text.as_bytes(), "/reload").0, 200);
    named(&proxy, SHOP).sends("GET a").gets_error("NOAUTH");
    before.sends("ACL WHOAMI").gets("$4 shop");
    named(&proxy, "spiffe://corp/ns/stock/api").sends("ACL WHOAMI").gets("$4 shop");
    proxy.logs(&["certificate_login"]);
}

#[test]
fn check_says_what_is_wrong_with_a_login() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lockwarden.toml");
    let checked = |text: &str| {
        fs::write(&file, text).expect("the folder is ours");
        let path = file.to_str().expect("a path in UTF-8");
        let ended = run_to_end(&mut lockwarden(&["check", "--config", path]));
        format!("{}{}", ended.stdout, ended.stderr)
    };
    let told = checked(&login("shop.*", &folder.path().join("gone")));
    for expected in [
        "certificate_login #1: password_file: cannot read",
        "until it can be read these clients have to log in themselves",
        "certificate_login 1: there is no [tls] client_ca, and no balancer in proxy_protocol_from, so nobody has a name",
    ] {
        assert!(told.contains(expected), "{told}");
    }
    let told =
        checked("proxy_protocol_from = [\"10.0.0.5\"]\n[[certificate_login]]\nnames = \"a\"\nuser = \"two words\"\n");
    for expected in [
        "certificate_login #1: name is missing",
        "certificate_login #1: password_file is missing",
        "certificate_login #1: user: an ACL user has no blanks",
        "certificate_login #1: unknown key \"names\"; did you mean \"name\"?",
    ] {
        assert!(told.contains(expected), "{expected} in {told}");
    }
}

#[test]
fn check_tries_to_log_in_as_each_user() {
    let world = World::new();
    let other = world.folder.path().join("other");
    fs::write(&other, "wrong").expect("the folder is ours");
    let proxy = started(world.builder().more(&login("stock.*", &other)));
    let config = proxy.config().to_str().expect("a path in UTF-8").to_owned();
    let check = || run_to_end(&mut lockwarden(&["check", "--backend", "--config", &config]));
    let told = check().stdout;
    let expected = "backend: certificate_login #2: user shop cannot log in: WRONGPASS";
    assert!(told.contains(expected), "{told}");
    assert!(!told.contains("certificate_login #1"), "{told}");
    fs::write(&other, "one").expect("the folder is ours");
    let told = check().stdout;
    assert!(!told.contains("certificate_login"), "{told}");
}

/// The balancers of a [`World`] have other addresses.
const NO_BALANCER: Ipv4Addr = Ipv4Addr::new(127, 200, 0, 1);

/// A folder with what a listener shows, and an authority that issues certificates of clients.
struct Place {
    server: Authority,
    clients: Authority,
    configuration: String,
}

impl Place {
    fn new(folder: &Path, wanted: &str, more: &str) -> Place {
        let (server, clients) = (Authority::new("servers"), Authority::new("clients"));
        let (cert, key) = server.issue(&Subject::server()).write(folder, "tls");
        let client_ca = folder.join("clients.pem");
        fs::write(&client_ca, clients.pem()).expect("the folder is ours");
        let name = match more.contains("client_name") {
            true => "",
            false => "client_name = \"uri\"\n",
        };
        let configuration = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n[tls]\ncert = {cert:?}\nkey = {key:?}\n\
             client_ca = {client_ca:?}\nclient_cert = \"{wanted}\"\n{name}{more}\n"
        );
        Place { server, clients, configuration }
    }

    /// A client over TLS with a certificate of this name, if one is given.
    fn client(&self, proxy: &Proxy, uri: Option<&str>) -> Client {
        let own = uri.map(|uri| self.clients.issue(&Subject::named("client").uri(uri)));
        let trust = Trust::new(&self.server, own.as_ref());
        let client = Client::try_tls(NO_BALANCER, proxy.tls_address(), &trust);
        client.expect("it is let in")
    }
}

#[test]
fn over_tls_a_client_is_logged_in_by_its_certificate() {
    let world = World::new();
    let place = Place::new(world.folder.path(), "ask", "");
    let proxy = started(world.builder().more(&place.configuration));
    let shop = place.client(&proxy, Some(SHOP));
    shop.sends("ACL WHOAMI").gets("$4 shop");
    shop.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    shop.sends("DEL lock:job").gets(":1");
    for other in [Some("spiffe://corp/ns/billing/api"), None] {
        let other = place.client(&proxy, other);
        other.sends("GET a").gets_error("NOAUTH");
        other.sends("AUTH billing two").gets("+OK");
        other.sends("ACL WHOAMI").gets("$7 billing");
    }
    // A name that a balancer sends is not the one that the proxy reads here.
    named(&proxy, SHOP).sends("GET a").gets_error("NOAUTH");
}

#[test]
fn where_certificates_are_required_nobody_is_the_default_user_for_want_of_a_name() {
    // The default user of this server needs no password.
    let world = World::open();
    let place = Place::new(world.folder.path(), "require", "");
    let proxy = started(world.builder().more(&place.configuration));
    let shop = place.client(&proxy, Some(SHOP));
    shop.sends("ACL WHOAMI").gets("$4 shop");
    shop.sends("RESET").gets("+RESET");
    shop.sends("GET a").gets("-NOAUTH Authentication required.");
    let stranger = place.client(&proxy, Some("spiffe://corp/ns/stock/api"));
    stranger.sends("GET a").gets("-NOAUTH Authentication required.");
    stranger.sends("SETNX lock:job 1").gets_error("NOAUTH");
    stranger.sends("AUTH billing two").gets("+OK");
    stranger.sends("ACL WHOAMI").gets("$7 billing");
    // A client without TLS is let in as always.
    introduced(&proxy, &[]).sends("ACL WHOAMI").gets("$7 default");
}

#[test]
fn where_certificates_are_only_asked_for_redis_decides_about_the_others() {
    let world = World::open();
    let place = Place::new(world.folder.path(), "ask", "");
    let proxy = started(world.builder().more(&place.configuration));
    place.client(&proxy, Some(SHOP)).sends("ACL WHOAMI").gets("$4 shop");
    for other in [Some("spiffe://corp/ns/stock/api"), None] {
        place.client(&proxy, other).sends("ACL WHOAMI").gets("$7 default");
    }
}

#[test]
fn a_balancer_tells_names_where_they_are_common_names() {
    let world = World::new();
    let place = Place::new(world.folder.path(), "require", "client_name = \"cn\"");
    let proxy = started(world.builder().more(&place.configuration));
    named(&proxy, SHOP).sends("ACL WHOAMI").gets("$4 shop");
}

#[test]
fn who_comes_by_a_certificate_has_a_twin_for_locks_as_others_have() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("shop-password");
    fs::write(&password, "pw\n").expect("the folder is ours");
    let builder = guarded.proxy(&["shop"]);
    let builder = builder.top("proxy_protocol_from", "[\"127.0.0.0/9\"]");
    let proxy = started(builder.more(&login(SHOP, &password)));
    let shop = named(&proxy, SHOP);
    shop.sends("ACL WHOAMI").gets("$4 shop");
    shop.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    shop.sends("GET lock:job").gets("$2 a1");
    // By its own password, too, and after it.
    shop.sends("AUTH shop pw").gets("+OK");
    shop.sends("DEL lock:job").gets(":1");
    shop.sends("ACL WHOAMI").gets("$4 shop");
    let around = guarded.redis.client();
    around.sends("AUTH shop pw").gets("+OK");
    around.sends("SET lock:job a1 NX PX 9000").gets_error("NOPERM");
}
