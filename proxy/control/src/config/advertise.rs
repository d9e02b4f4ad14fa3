//! The address to which the proxy's own sentinels send their clients, and which sentinels have no such address. What
//! the file says about a sentinel is read by `present`.

use std::net::SocketAddr;

use super::finding::{Findings, Place};
use super::listener::Listener;
use super::present::{Advertise, Present};
use crate::net::listener::is_loopback;

/// Where a sentinel with `advertise = "auto"` sends its clients: to the first listener with an IP address and the same
/// `tls` that is no sentinel. Returns its place among all listeners, and its address. If that address means all
/// addresses of the machine, the host is the one by which the client reached the sentinel.
pub fn target<'a>(listeners: impl Iterator<Item = &'a Listener>, tls: bool) -> Option<(usize, SocketAddr)> {
    listeners.enumerate().find_map(|(index, listener)| {
        let is_it = listener.present == Present::Standalone && listener.tls == tls;
        let address = listener.address.tcp().filter(|_| is_it)?;
        Some((index, address))
    })
}

/// Reports sentinels that have no address to name. `listen` is the address at the top of the file, unless that is off.
pub(super) fn check(listen: Option<&Listener>, listeners: &[(Listener, Place)], findings: &mut Findings) {
    let all = || {
        let further = listeners.iter().map(|(listener, _)| listener);
        listen.into_iter().chain(further)
    };
    let has_data = all().any(|listener| listener.present.has_data());
    for (index, (listener, place)) in listeners.iter().enumerate() {
        let Present::Sentinel(face) = &listener.present else {
            continue;
        };
        let mut wrong = |what: String| {
            findings.error(place.clone(), format!("listener #{}: {what}", index + 1));
        };
        if !has_data {
            wrong(
                "a sentinel only says where to connect, and nobody could connect there; set listen, or add a \
                 [[listener]] with present = \"standalone\""
                    .to_owned(),
            );
            continue;
        }
        if face.advertise != Advertise::Auto {
            continue;
        }
        let Some((_, target)) = target(all(), listener.tls) else {
            let tls = listener.tls;
            wrong(format!(
                "advertise: \"auto\" finds no address: no listener with an IP address, tls = {tls} and present = \
                 \"standalone\"; write the address that clients shall connect to, as in \"locks.corp:6390\""
            ));
            continue;
        };
        let own = listener.address.tcp();
        if is_loopback(target) && own.is_some_and(|own| !is_loopback(own)) {
            wrong(format!(
                "advertise: \"auto\" would send clients to {target}, which other machines cannot reach; let that one \
                 listen on \"0.0.0.0:{port}\", or write the address that clients shall connect to",
                port = target.port()
            ));
        }
    }
}
