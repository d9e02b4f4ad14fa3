//! The other clients of the server. A proxy cannot see clients that bypass it, but the server sees all their addresses, and the
//! operator knows those of the proxies.

use std::collections::HashMap;

use lockwarden_dataplane::backend::{BackendError, Conversation};
use lockwarden_resp::Value;

/// Hosts that are named, those with the most connections first.
const MAX_NAMED: usize = 10;

/// One line about them; `None` where we may not ask or there are none.
pub(super) async fn ask(own: &mut Conversation) -> Result<Option<String>, BackendError> {
    let id = own.ask(&["CLIENT", "ID"]).await?;
    let list = own.ask(&["CLIENT", "LIST"]).await?;
    Ok(match (id, list.as_bytes()) {
        (Value::Integer(id), Some(list)) => told(&String::from_utf8_lossy(list), id),
        _ => None,
    })
}

fn told(list: &str, own: i64) -> Option<String> {
    let mut hosts: HashMap<&str, u64> = HashMap::new();
    for line in list.lines() {
        let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
        let (Some(id), Some(address)) = (field("id="), field("addr=")) else {
            continue;
        };
        if id.parse() != Ok(own) {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            *hosts.entry(host).or_default() += 1;
        }
    }
    let connections: u64 = hosts.values().sum();
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    hosts.sort_by_key(|&(host, count)| (std::cmp::Reverse(count), host));
    let mut named: Vec<_> = hosts.iter().take(MAX_NAMED).map(|(host, count)| format!("{host} ({count})")).collect();
    if hosts.len() > MAX_NAMED {
        named.push(format!("{} more hosts", hosts.len() - MAX_NAMED));
    }
    let connected = match connections {
        0 => return None,
        1 => "1 connection".to_owned(),
        more => format!("{more} connections"),
    };
    Some(format!("{connected} besides this one, from {}: what is no lockwarden goes around it", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_without_ourselves() {
        let list = "id=3 addr=127.0.0.1:5000 laddr=127.0.0.1:6379 fd=8 name=a\n\
                    id=4 addr=10.0.0.7:5000 laddr=127.0.0.1:6379 fd=9 name=id=3\n\
                    id=5 addr=10.0.0.7:5001 laddr=127.0.0.1:6379 fd=9 name=\n\
                    id=6 addr=[::1]:5001 laddr=127.0.0.1:6379 fd=9 name=\n\
                    nonsense\n";
        assert_eq!(
            told(list, 3).as_deref(),
            Some("3 connections besides this one, from 10.0.0.7 (2), [::1] (1): what is no lockwarden goes around it")
        );
        assert_eq!(told("id=3 addr=127.0.0.1:5000\n", 3), None);
    }

    #[test]
    fn of_very_many_hosts_the_busiest_are_named() {
        let list: String = (0..40).map(|id| format!("id={id} addr=10.0.0.{}:5000\n", id % 20)).collect();
        let told = told(&list, -1).unwrap_or_default();
        assert!(told.contains("10.0.0.0 (2)") && told.contains("10 more hosts"), "{told}");
    }
}
