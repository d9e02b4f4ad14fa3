//! The cluster that is shown to a client that expects one (`present = "cluster"`): a single node, this proxy, that
//! has all slots. Questions about the cluster are answered here, field by field as Redis does; the client need not
//! know where slots really are.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use lockwarden_control::config::{Advertise, HostPort};
use lockwarden_lock::companion::{SLOTS, slot};
use lockwarden_lock::table::{Lookup, lookup};
use lockwarden_resp::{Protocol, Request, Value, put_error, put_value};
use sha1::{Digest, Sha1};

use super::route::Route;

/// The error for every command that would change the cluster.
const NOT_HERE: &str =
    "NOPERM lockwarden presents a cluster of one node, which cannot be changed: ask the nodes themselves";

/// See the module.
#[derive(Debug)]
pub(super) struct Face {
    place: HostPort,
    /// Forty hexadecimal digits, the same for every proxy that presents this address.
    id: String,
}

impl Face {
    /// For a client that connected to this address.
    pub(super) fn of(advertise: &Advertise, entrance: Option<SocketAddr>) -> Face {
        let place = match (advertise, entrance) {
            (Advertise::Address(place), _) => place.clone(),
            (Advertise::Auto, Some(entrance)) => {
                HostPort { host: entrance.ip().to_canonical().to_string(), port: entrance.port() }
            }
            // The configuration has an error where such a listener is a unix socket.
            (Advertise::Auto, None) => HostPort { host: String::new(), port: 0 },
        };
        let digest = Sha1::digest(place.to_string());
        Face { id: digest.iter().map(|byte| format!("{byte:02x}")).collect(), place }
    }

    /// The reply to a command about the cluster.
    pub(super) fn answer(&self, request: &Request<'_>, protocol: Protocol) -> BytesMut {
        let mut frame = BytesMut::new();
        match self.says(request) {
            Some(value) => put_value(&mut frame, &value, protocol),
            None => put_error(&mut frame, NOT_HERE),
        }
        frame
    }

    /// `None` for a command that would change it.
    fn says(&self, request: &Request<'_>) -> Option<Value> {
        let last = i64::from(SLOTS) - 1;
        let port = i64::from(self.place.port);
        let number = |value: i64| Value::Integer(value);
        let word = request.arg(1).to_ascii_lowercase();
        Some(match (&word[..], request.len()) {
            (b"myid" | b"myshardid", 2) => text(&self.id),
            (b"keyslot", 3) => number(slot(request.arg(2)).into()),
            (b"slots", 2) => {
                let node = vec![text(&self.place.host), number(port), text(&self.id), Value::Array(Vec::new())];
                Value::Array(vec![Value::Array(vec![number(0), number(last), Value::Array(node)])])
            }
            (b"shards", 2) => {
                let node = [
                    ("id", text(&self.id)),
                    ("port", number(port)),
                    ("ip", text(&self.place.host)),
                    ("endpoint", text(&self.place.host)),
                    ("role", text("master")),
                    ("replication-offset", number(0)),
                    ("health", text("online")),
                ];
                let nodes = Value::Array(vec![fields(node.into())]);
                let slots = Value::Array(vec![number(0), number(last)]);
                Value::Array(vec![fields(vec![("slots", slots), ("nodes", nodes)])])
            }
            (b"nodes", 2) => {
                let place = format!("{}:{port}@{}", self.place.host, port + 10_000);
                text(&format!("{} {place} myself,master - 0 0 1 connected 0-{last}\n", self.id))
            }
            (b"info", 2) => text(&format!(
                "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{SLOTS}\r\n\
                 cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n\
                 cluster_current_epoch:1\r\ncluster_my_epoch:1\r\n"
            )),
            (b"replicas" | b"slaves", 3) | (b"links", 2) => Value::Array(Vec::new()),
            _ => return None,
        })
    }
}

/// The route of commands that only clients with this view may send.
pub(super) fn route(request: &Request<'_>) -> Option<Route> {
    let name = request.name();
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    if is("cluster") {
        let word = request.args().nth(1).unwrap_or_default();
        let of_slot = word.eq_ignore_ascii_case(b"countkeysinslot") || word.eq_ignore_ascii_case(b"getkeysinslot");
        let slot = request.args().nth(2).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        return Some(match slot.filter(|slot| of_slot && *slot < SLOTS) {
            Some(slot) => Route::Slot(slot),
            None if matches!(lookup(request), Lookup::Known(_)) => Route::Face,
            // Any server gives the error for it.
            None => Route::Any,
        });
    }
    match request.len() {
        1 if is("readonly") || is("readwrite") || is("asking") => Some(Route::Okay),
        _ if is("info") => Some(Route::Any),
        _ => None,
    }
}

fn text(text: &str) -> Value {
    Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

fn fields(fields: Vec<(&'static str, Value)>) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (text(name), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_address_that_is_advertised_or_that_the_client_came_to() {
        let entrance: SocketAddr = "10.0.0.7:6380".parse().unwrap();
        let named = Advertise::Address(HostPort { host: "locks.corp".to_owned(), port: 7000 });
        for (advertise, host, port) in [(Advertise::Auto, "10.0.0.7", 6380), (named, "locks.corp", 7000)] {
            let face = Face::of(&advertise, Some(entrance));
            assert_eq!((face.place.host.as_str(), face.place.port, face.id.len()), (host, port, 40));
        }
    }
}
