//! The replicas of the server, and whether they are enough for namespaces whose grants wait for them (`durability`). Read from
//! `INFO`; the server's own limits from `CONFIG GET`, where the proxy's user may use it.

use lockwarden_control::config::Config;
use lockwarden_control::text::numbers::counted;
use lockwarden_dataplane::backend::strict::{Said, online, unmet};
use lockwarden_dataplane::backend::{BackendError, Conversation};
use lockwarden_resp::Value;

/// Shown for `min-replicas-to-write 0`, where grants wait for replicas.
const LOST_ALONE: &str = "min-replicas-to-write is 0: a primary that has lost its replicas goes on taking writes of those who \
     go around lockwarden; set it to 1";
/// The same where there are sentinels.
const GOES_ON_ALONE: &str = "min-replicas-to-write is 0: a primary that is cut off from its replicas goes on granting locks, all of \
     which are lost when the sentinels choose another one; set it to 1, or say why not (--without-min-replicas \"we have two servers\")";

/// The result.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replication {
    pub(super) notes: Vec<String>,
    pub(super) doubts: Vec<String>,
}

/// The server's information about its replicas.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Connected replicas.
    online: u64,
    /// `min-replicas-to-write` and `min-replicas-max-lag`.
    limits: Option<(u64, u64)>,
}

/// Asks for it; empty where there is no replica and no namespace waits for one. Where sentinels choose the primary, a primary
/// that is cut off must not continue alone, unless a reason is given.
pub(super) async fn ask(
    own: &mut Conversation,
    config: &Config,
    (has_sentinels, without_min_replicas): (bool, Option<&str>),
) -> Result<Replication, BackendError> {
    let answer = own.ask(&["INFO"]).await?;
    let mut replication = match answer.as_bytes() {
        Some(info) => {
            let mut found = Found { online: online(&String::from_utf8_lossy(info)), limits: None };
            if found.online == 0 && !config.waits_for_replicas() && !has_sentinels {
                return Ok(Replication::default());
            }
            let limits = own.ask(&["CONFIG", "GET", "min-replicas-*"]).await?;
            found.limits = read_limits(&limits);
            let mut told = told(&found, config);
            match (found.limits, without_min_replicas) {
                (Some((0, _)), Some(why)) if has_sentinels => {
                    told.notes.push(format!("min-replicas-to-write is 0: {why}"))
                }
                (Some((0, _)), None) if has_sentinels => told.doubts.push(GOES_ON_ALONE.to_owned()),
                (Some((0, _)), _) if config.waits_for_replicas() => told.notes.push(LOST_ALONE.to_owned()),
                (Some(_) | None, _) => {}
            }
            told
        }
        None => unknown(config),
    };
    replication.doubts.extend(broken(Said::read(&answer).as_ref(), config));
    Ok(replication)
}

/// Why namespaces with a strict `durability` grant no lock.
fn broken(said: Option<&Said>, config: &Config) -> Vec<String> {
    let strict = config.namespaces.iter().filter(|namespace| namespace.is_strict());
    let each = strict.filter_map(|namespace| Some((namespace, namespace.durability?)));
    let each = each.flat_map(|(namespace, durability)| {
        let unmet = unmet(said, durability.replicas);
        unmet.into_iter().map(|why| {
            let name = &namespace.name;
            format!("namespace {name}: its durability is strict, so no free lock would be granted: {why}")
        })
    });
    each.collect()
}

fn unknown(config: &Config) -> Replication {
    let mut unknown = Replication::default();
    if config.waits_for_replicas() {
        let text = "whether there are replicas to wait for (durability) is not known: the proxy's own user lacks +info";
        unknown.notes.push(text.to_owned());
    }
    unknown
}

fn read_limits(answer: &Value) -> Option<(u64, u64)> {
    let items = answer.as_items()?;
    let value = |name: &[u8]| {
        let at = items.iter().position(|item| item.as_bytes().is_some_and(|word| &word[..] == name))?;
        let digits = items.get(at + 1)?.as_bytes()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    Some((value(b"min-replicas-to-write")?, value(b"min-replicas-max-lag")?))
}

fn told(found: &Found, config: &Config) -> Replication {
    let mut told = Replication::default();
    let limits = match found.limits {
        Some((to_write, lag)) => {
            format!("min-replicas-to-write {to_write}, min-replicas-max-lag {lag}")
        }
        None => "min-replicas-to-write is not known: the proxy's own user may not ask for it".to_owned(),
    };
    let replicas = counted(found.online, "replica", "replicas");
    told.notes.push(format!("{replicas} online; {limits}"));
    for namespace in &config.namespaces {
        // Where it is strict no lock is granted, which is reported separately.
        let Some(durability) = namespace.durability.filter(|_| !namespace.is_strict()) else {
            continue;
        };
        if u64::from(durability.replicas) > found.online {
            told.doubts.push(format!(
                "namespace {}: its grants wait for {} (durability), and the server has {}: every grant would be given back, \
                 and every extension told as one that failed",
                namespace.name,
                counted(u64::from(durability.replicas), "replica", "replicas"),
                found.online
            ));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn limits_are_read_in_any_order_or_not_at_all() {
        let bulk = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        let answer =
            Value::Array(vec![bulk("min-replicas-max-lag"), bulk("10"), bulk("min-replicas-to-write"), bulk("1")]);
        assert_eq!(read_limits(&answer), Some((1, 10)));
        assert_eq!(read_limits(&Value::Array(Vec::new())), None);
        let odd = Value::Array(vec![bulk("min-replicas-to-write")]);
        assert_eq!(read_limits(&odd), None);
        assert_eq!(read_limits(&Value::Error(Bytes::from_static(b"NOPERM"))), None);
    }
}
