//! The checks of a backend that is a node of a cluster: whether it sends clients to lockwarden, and the content of its slots.

use lockwarden_control::config::{Config, ListenAddress};
use lockwarden_dataplane::backend::server_info::{self, Report};
use lockwarden_dataplane::backend::{Address, BackendError, Conversation};
use lockwarden_dataplane::state::prefix_mark::{self, Marks};
use lockwarden_lock::companion::Home;
use lockwarden_resp::Value;

/// Reads the prefix mark, wherever it is; for a node also the port for clients that it announces.
pub(super) async fn ask(
    own: &mut Conversation,
    (address, config): (&Address, &Config),
    report: &Report,
    rules: &str,
) -> Result<Marks, BackendError> {
    let prefix = &config.companion_prefix;
    if !report.cluster {
        return prefix_mark::doubt(own, address, (prefix, Home::WHOLE), rules).await;
    }
    let mut marks = match server_info::ask_node(own).await?.map(|node| node.home) {
        Ok(Some(home)) => prefix_mark::doubt(own, address, (prefix, home), rules).await?,
        Ok(None) => {
            let stands = vec!["the node has no slots of its own, and so grants no lock".to_owned()];
            Marks { stands, doubts: Vec::new() }
        }
        Err(error) => {
            let doubts = vec![format!("the node does not tell which slots it has: {error}")];
            Marks { stands: Vec::new(), doubts }
        }
    };
    if config.cluster_node {
        let announced = own.ask(&["CONFIG", "GET", "cluster-announce-client*"]).await?;
        let listeners = config.data_listeners();
        let ports = listeners.iter().filter_map(|listener| match &listener.address {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Unix(_) => None,
        });
        match announces(&announced, &ports.collect::<Vec<_>>()) {
            Announced::Unknown => {}
            Announced::Here(port) => {
                marks.stands.push(format!("clients of the cluster are told to come by port {port}"))
            }
            Announced::Elsewhere(why) => marks.doubts.push(why),
        }
    }
    Ok(marks)
}

/// The port that clients are sent to.
#[derive(Debug, PartialEq, Eq)]
enum Announced {
    /// The proxy's user may not ask.
    Unknown,
    /// A port of the proxy.
    Here(u16),
    /// Not the proxy; with the advice.
    Elsewhere(String),
}

/// Reads the reply to `CONFIG GET cluster-announce-client*` for a proxy with these ports.
fn announces(answer: &Value, ports: &[u16]) -> Announced {
    let Some(items) = answer.as_items() else {
        return Announced::Unknown;
    };
    let told = |row: &[Value]| -> Option<u16> {
        let [name, port] = row else { return None };
        let is_port = name.as_bytes().is_some_and(|name| name.ends_with(b"port"));
        std::str::from_utf8(port.as_bytes().filter(|_| is_port)?).ok()?.parse().ok()
    };
    let told: Vec<u16> = items.chunks(2).filter_map(told).collect();
    if told.is_empty() {
        return Announced::Elsewhere(
            "clients of the cluster are told the node's own address, and go past lockwarden: Valkey 9 can announce another one \
             (cluster-announce-client-port), this server cannot"
                .to_owned(),
        );
    }
    if let Some(port) = told.iter().find(|port| ports.contains(port)) {
        return Announced::Here(*port);
    }
    let (now, wanted) = (told.iter().max().copied().unwrap_or_default(), ports.first().copied().unwrap_or_default());
    Announced::Elsewhere(format!(
        "cluster-announce-client-port is {now}, so clients of the cluster go past lockwarden: CONFIG SET \
         cluster-announce-client-port {wanted}"
    ))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn says(rows: &[(&'static str, &'static str)]) -> Value {
        let bulk = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        Value::Array(rows.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect())
    }

    #[test]
    fn a_node_announces_the_proxy_or_what_is_to_be_done() {
        let [plain, tls, address] =
            ["cluster-announce-client-port", "cluster-announce-client-tls-port", "cluster-announce-client-ipv4"];
        for (rows, expected) in [
            (&[(plain, "6380"), (tls, "0"), (address, "10.0.0.1")][..], Ok(6380)),
            (&[(plain, "0"), (tls, "6381")], Ok(6381)),
            (&[(plain, "0"), (tls, "0")], Err("CONFIG SET cluster-announce-client-port 6380")),
            (&[(plain, "7000")], Err("cluster-announce-client-port is 7000")),
            (&[(address, "10.0.0.1")], Err("this server cannot")),
            (&[], Err("this server cannot")),
        ] {
            match (announces(&says(rows), &[6380, 6381]), expected) {
                (Announced::Here(port), Ok(expected)) => assert_eq!(port, expected, "{rows:?}"),
                (Announced::Elsewhere(why), Err(words)) => assert!(why.contains(words), "{why}"),
                (announced, _) => panic!("{rows:?}: {announced:?}"),
            }
        }
        let refused = Value::Error(Bytes::from_static(b"NOPERM"));
        assert_eq!(announces(&refused, &[6380]), Announced::Unknown);
    }
}
