//! Which of a name's addresses is taken: servers that only reply with their role.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A server that answers every request with this.
async fn server(says: &'static str) -> Home {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 512];
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    stream.write_all(says.as_bytes()).await.unwrap();
                }
            });
        }
    });
    Home::Tcp(address)
}

async fn nobody() -> Home {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Home::Tcp(listener.local_addr().unwrap())
}

/// Where a conversation leads.
fn home(own: &Conversation) -> Home {
    match own.stream() {
        Stream::Tcp(stream) => Home::Tcp(stream.peer_addr().unwrap()),
        Stream::Unix(_) | Stream::Tls(_) | Stream::Pipe(_) => panic!("these servers have plain ports"),
    }
}

const PRIMARY: &str = "*2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n";
const REPLICA: &str = "*2\r\n$4\r\nrole\r\n$7\r\nreplica\r\n";
const SILENT: &str = "-NOAUTH Authentication required.\r\n";

fn address() -> Address {
    Address::private("127.0.0.1:1".parse().unwrap())
}

#[tokio::test]
async fn of_several_addresses_the_primary_is_taken_for_clients_as_well() {
    let (replica, primary) = (server(REPLICA).await, server(PRIMARY).await);
    let addresses = [nobody().await, replica.clone(), primary.clone()];
    let backend = address();
    let (own, _) = backend.find_primary(&addresses).await.unwrap();
    assert_eq!(home(&own), primary);
    let known = backend.primary.load_full();
    assert_eq!(to_try(&addresses, known.as_deref()), [primary]);
    // A name that does not resolve to it any more leads to another address.
    assert_eq!(to_try(std::slice::from_ref(&replica), known.as_deref()), std::slice::from_ref(&replica));
}

#[tokio::test]
async fn a_name_that_leads_to_replicas_alone_leads_nowhere() {
    let addresses = [server(REPLICA).await, nobody().await];
    let found = address().find_primary(&addresses).await;
    assert!(matches!(found, Err(BackendError::Replica)));
}

#[tokio::test]
async fn a_server_that_does_not_say_its_role_is_taken_where_nobody_is_the_primary() {
    let (silent, primary) = (server(SILENT).await, server(PRIMARY).await);
    let backend = address();
    let (own, question) = backend.find_primary(std::slice::from_ref(&silent)).await.unwrap();
    assert_eq!(home(&own), silent);
    assert_eq!(question, RoleQuestion::Nothing);
    let (own, _) = backend.find_primary(&[silent, primary.clone()]).await.unwrap();
    assert_eq!(home(&own), primary);
}

#[tokio::test]
async fn nobody_there_is_said_as_such() {
    let found = address().find_primary(&[nobody().await]).await;
    assert!(matches!(found, Err(BackendError::Connect { .. })));
    let found = address().find_primary(&[]).await;
    assert!(matches!(found, Err(BackendError::Connect { .. })));
}
