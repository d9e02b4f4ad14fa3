//! A conversation with one sentinel.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockwarden_control::net::stream::Stream;
use lockwarden_control::net::tls::Connector;
use lockwarden_resp::{Value, put_request};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::members::{Asked, Other};
use super::named::{Named, PATIENCE, Place, SentinelError};
use crate::backend::conversation::{BackendError, Conversation};
use crate::backend::open_connections::OpenConnections;
use crate::backend::own_login::OwnLogin;

/// Longest name of a host, in bytes.
const MAX_HOST: usize = 255;
/// Most other sentinels that are read from one sentinel's answer.
const MAX_OTHERS: usize = 64;
/// Bytes of a sentinel's id: a SHA-1 in hexadecimal digits.
const ID_BYTES: usize = 40;

/// How the proxy connects to sentinels.
pub(super) struct Way {
    pub(super) login: Option<OwnLogin>,
    /// How their identity is verified, if the URL asks for TLS.
    pub(super) connector: Option<Arc<Connector>>,
}

/// See the module.
pub struct SentinelConversation(Conversation);

impl SentinelConversation {
    /// Connects and logs in.
    pub(super) async fn open(way: &Way, place: &Place) -> Result<SentinelConversation, SentinelError> {
        within(connect(way, place)).await
    }

    /// Asks where the primary is.
    pub async fn ask(&mut self, name: &str) -> Result<Asked, SentinelError> {
        within(self.ask_all(name)).await
    }

    /// In one packet, so that the replies belong together: at the end of a failover, a sentinel has the new epoch but
    /// still the old address in its table.
    async fn ask_all(&mut self, name: &str) -> Result<Asked, SentinelError> {
        let mut requests = BytesMut::new();
        for question in ["MASTER", "GET-MASTER-ADDR-BY-NAME", "SENTINELS"] {
            put_request(&mut requests, &["SENTINEL", question, name]);
        }
        put_request(&mut requests, &["SENTINEL", "MYID"]);
        self.0.send(&requests).await.map_err(broken)?;
        let master = self.0.read().await.map_err(broken)?;
        let address = self.0.read().await.map_err(broken)?;
        let others = self.0.read().await.map_err(broken)?;
        // Redis before 6.2 does not know the question, and a user may lack the right to it.
        let id = self.0.read().await.map_err(broken)?;
        let mut asked = read(&master, &address, &others, name)?;
        asked.id = id.as_bytes().and_then(|text| read_id(text));
        Ok(asked)
    }

    /// Subscribes to failovers; after that nothing else can be asked.
    pub(crate) async fn subscribe(&mut self) -> Result<(), SentinelError> {
        let subscribing = async {
            let words = ["SUBSCRIBE", "+switch-master"];
            let answer = self.0.ask(&words).await.map_err(broken)?;
            match answer.as_error() {
                Some(text) => Err(SentinelError::Answer(lossy(text))),
                None => Ok(()),
            }
        };
        within(subscribing).await
    }

    /// Waits for the message of a failover.
    pub(crate) async fn hear(&mut self) -> Result<(), SentinelError> {
        loop {
            let frame = self.0.frame_within(Duration::from_secs(3600)).await;
            if frame.map_err(broken)?.is_some() {
                return Ok(());
            }
        }
    }
}

async fn within<T>(doing: impl Future<Output = Result<T, SentinelError>>) -> Result<T, SentinelError> {
    match timeout(PATIENCE, doing).await {
        Ok(done) => done,
        Err(_) => Err(SentinelError::Late),
    }
}

async fn connect(way: &Way, place: &Place) -> Result<SentinelConversation, SentinelError> {
    let connect = |error: &dyn std::fmt::Display| SentinelError::Connect(error.to_string());
    let at = (place.host.as_str(), place.port);
    let socket = TcpStream::connect(at).await.map_err(|error| connect(&error))?;
    let stream = match &way.connector {
        Some(connector) => {
            let shaken = connector.connect(socket, &place.host).await;
            Stream::Tls(Box::new(shaken.map_err(|error| connect(&error))?))
        }
        None => Stream::Tcp(socket),
    };
    // Sentinels are no backend: their connections outlive its eras.
    let alone = Arc::new(OpenConnections::default());
    let mut conversation = Conversation::new(alone.enter(stream, 0));
    if let Some(login) = &way.login {
        let password = login.password().await;
        let password = password.map_err(|error| SentinelError::Login(error.to_string()))?;
        let (user, password) = (login.user().as_bytes(), password.expose().as_bytes());
        let logged_in = conversation.log_in(user, password).await;
        logged_in.map_err(|error| match error {
            BackendError::Login(text) => SentinelError::Login(text),
            error => broken(error),
        })?;
    }
    Ok(SentinelConversation(conversation))
}

fn broken(error: BackendError) -> SentinelError {
    match error {
        BackendError::Broken(error) => SentinelError::Connect(error.to_string()),
        error => SentinelError::Answer(error.to_string()),
    }
}

fn lossy(text: &Bytes) -> String {
    let text: String = String::from_utf8_lossy(text).chars().take(200).collect();
    text.escape_debug().to_string()
}

/// The result of the three replies together.
fn read(master: &Value, address: &Value, others: &Value, name: &str) -> Result<Asked, SentinelError> {
    for answer in [master, address] {
        if let Some(text) = answer.as_error() {
            return Err(match text {
                text if text.starts_with(b"NOAUTH") || text.starts_with(b"NOPERM") => SentinelError::Login(lossy(text)),
                text if text.starts_with(b"ERR No such master") => SentinelError::UnknownName(name.to_owned()),
                text => SentinelError::Answer(lossy(text)),
            });
        }
    }
    if let Value::Null = address {
        return Err(SentinelError::UnknownName(name.to_owned()));
    }
    let strange = || SentinelError::Answer("an address or an epoch is missing".to_owned());
    let items = address.as_items().ok_or_else(strange)?;
    let [host, port] = items else {
        return Err(strange());
    };
    let place = place(host, port).ok_or_else(strange)?;
    let epoch = text_of(master, "config-epoch").and_then(|digits| digits.parse().ok());
    let others = others.as_items().unwrap_or_default().iter();
    let others = others.filter_map(|other| {
        let (host, port) = (text_of(other, "ip")?, text_of(other, "port")?);
        let id = text_of(other, "runid").and_then(|id| read_id(id.as_bytes()));
        Some(Other { place: named_place(host, port)?, id })
    });
    let others = others.take(MAX_OTHERS).collect();
    Ok(Asked { named: Named { place, epoch: epoch.ok_or_else(strange)? }, id: None, others })
}

/// The value of a field in a flat list of names and values.
fn text_of<'a>(fields: &'a Value, name: &str) -> Option<&'a str> {
    let pairs = fields.as_items()?.chunks_exact(2);
    let mut found = pairs.filter(|pair| pair[0].as_bytes().is_some_and(|key| key == name));
    std::str::from_utf8(found.next()?[1].as_bytes()?).ok()
}

fn read_id(text: &[u8]) -> Option<String> {
    let is_id = text.len() == ID_BYTES && text.iter().all(u8::is_ascii_hexdigit);
    is_id.then(|| String::from_utf8_lossy(text).into_owned())
}

fn place(host: &Value, port: &Value) -> Option<Place> {
    let [host, port] = [host, port].map(|value| std::str::from_utf8(value.as_bytes()?).ok());
    named_place(host?, port?)
}

fn named_place(host: &str, port: &str) -> Option<Place> {
    let is_host = !host.is_empty() && host.len() <= MAX_HOST && host.bytes().all(|byte| byte.is_ascii_graphic());
    let port = port.parse().ok().filter(|port| *port != 0)?;
    is_host.then(|| Place { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&'static str]) -> Value {
        let words = words.iter();
        Value::Array(words.map(|word| Value::Bulk(Bytes::from_static(word.as_bytes()))).collect())
    }

    #[test]
    fn an_answer_needs_an_address_and_an_epoch() {
        let master = list(&["name", "m", "ip", "10.0.0.9", "config-epoch", "7"]);
        let good = list(&["10.0.0.1", "6379"]);
        let others = Value::Array(vec![
            list(&["ip", "10.0.0.5", "port", "26379", "runid", "x"]),
            list(&["ip", "10.0.0.6", "port", "0"]),
            list(&["ip"]),
        ]);
        let asked = read(&master, &good, &others, "m").unwrap();
        assert_eq!(asked.named.place.to_string(), "10.0.0.1:6379");
        assert_eq!(asked.named.epoch, 7);
        assert_eq!(asked.others.len(), 1);
        assert_eq!(asked.others[0].id, None, "it is no name of a sentinel");
        let error = |text: &'static str| Value::Error(Bytes::from_static(text.as_bytes()));
        let unknown = SentinelError::UnknownName("m".to_owned());
        for (master, address, expected) in [
            (error("ERR No such master with that name"), Value::Null, Some(unknown.clone())),
            (master.clone(), Value::Null, Some(unknown)),
            (list(&["config-epoch"]), good.clone(), None),
            (list(&["config-epoch", "-1"]), good.clone(), None),
            (master.clone(), list(&["10.0.0.1", "65536"]), None),
            (master.clone(), list(&["10.0.0.1 x", "6379"]), None),
            (master.clone(), list(&["10.0.0.1"]), None),
            (master.clone(), Value::Integer(1), None),
        ] {
            let found = read(&master, &address, &others, "m").unwrap_err();
            match expected {
                Some(expected) => assert_eq!(found, expected),
                None => assert!(matches!(found, SentinelError::Answer(_)), "{found:?}"),
            }
        }
    }
}
