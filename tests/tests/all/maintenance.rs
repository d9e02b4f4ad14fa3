//! Servers that send clients to other addresses: notices of maintenance, and lists of replicas. A client that
//! follows them has left the proxy.

use lockwarden_tests::{Forwarder, Proxy, ProxyBuilder, Redis, wait_for};

const ASKS: &str = "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip";

fn redirects(proxy: &Proxy, kind: &str) -> f64 {
    proxy.metric(&format!("lockwarden_backend_redirects_total{{kind=\"{kind}\"}}"))
}

#[test]
fn a_notice_with_an_address_is_kept_from_the_client() {
    let redis = Redis::start();
    let forwarder = Forwarder::to(redis.address());
    let proxy = ProxyBuilder::for_backend(&format!("redis://{}", forwarder.address())).start();
    let client = proxy.client();
    client.sends("HELLO 3").reply();
    // This Redis does not know the command, and says so; only the request matters here.
    client.sends(ASKS).gets_error("ERR");
    assert!(forwarder.has_heard("$20\r\nmoving-endpoint-type\r\n$4\r\nnone\r\n"));
    assert!(!forwarder.has_heard("internal-ip"));
    client.sends("CLIENT MAINT_NOTIFICATIONS OFF").gets_error("ERR");
    assert!(forwarder.has_heard("*3\r\n$6\r\nCLIENT\r\n$19\r\nMAINT_NOTIFICATIONS\r\n$3\r\nOFF\r\n"));

    let says = |frame: &str| {
        let told = forwarder.says_to_those_that_said("MAINT_NOTIFICATIONS", frame.as_bytes());
        assert_eq!(told, 1);
    };
    says(">4\r\n$6\r\nMOVING\r\n:1\r\n:30\r\n$13\r\n10.0.0.1:6379\r\n");
    says(">4\r\n$9\r\nMIGRATING\r\n:2\r\n:30\r\n$1\r\n3\r\n");
    client.then().gets(">[$9 MIGRATING, :2, :30, $1 3]");
    assert_eq!(redirects(&proxy, "moving"), 1.0);
    // Without an address it only says when to connect again.
    says(">4\r\n$6\r\nMOVING\r\n:3\r\n:30\r\n_\r\n");
    client.then().gets(">[$6 MOVING, :3, :30, null]");
    client.sends("SET plain 1").gets("+OK");
    assert_eq!(redirects(&proxy, "moving"), 1.0);
}

/// On a connection that many clients share, no client can get notices that are for it alone.
#[test]
fn clients_that_ask_for_notices_share_their_connections() {
    let redis = Redis::start();
    let forwarder = Forwarder::to(redis.address());
    let proxy = ProxyBuilder::for_backend(&format!("redis://{}", forwarder.address())).multiplexed().start();
    let clients: Vec<_> = (0..20).map(|_| proxy.client()).collect();
    for client in &clients {
        client.sends("HELLO 3").reply();
        client.sends(ASKS).gets_error("ERR unknown subcommand");
        client.sends("SET plain 1").gets("+OK");
        client.sends("GET plain").gets("$1 1");
    }
    assert!(!forwarder.has_heard("MAINT_NOTIFICATIONS"));
    wait_for("connections to be shared", || forwarder.connections() <= 6);
    // As any error in front of a block's end.
    clients[0].sends("MULTI").gets("+OK");
    clients[0].sends(ASKS).gets_error("ERR unknown subcommand");
    clients[0].sends("EXEC").gets_error("EXECABORT");
}

/// Lettuce's `MasterReplica` reads from replicas that the primary names. Nothing is kept from it: the answer is
/// about the server.
#[test]
fn a_client_that_is_told_of_replicas_is_counted() {
    let redis = Redis::start();
    let address = redis.address();
    let proxy = Proxy::builder(&redis).start();
    let client = proxy.client();
    for asks in ["ROLE", "INFO replication"] {
        client.sends(asks).reply();
    }
    assert_eq!(redirects(&proxy, "replicas"), 0.0);
    let port = address.port().to_string();
    let _replica = Redis::with_arguments(&["--replicaof", "127.0.0.1", &port]);
    let direct = redis.client();
    wait_for("the replica to be there", || {
        let info = direct.sends("INFO replication").text();
        info.contains("state=online")
    });
    for (count, asks) in [(1.0, "ROLE"), (2.0, "INFO replication"), (2.0, "INFO server")] {
        client.sends(asks).reply();
        assert_eq!(redirects(&proxy, "replicas"), count, "{asks}");
    }
    let told = client.sends("INFO replication").text();
    assert!(told.contains("slave0:ip="), "{told}");
}
