//! A server alone with some keys of each kind. For each script it returns which keys have changed and which are new, and
//! restores everything.

use std::time::Duration;

use crate::cases::Kind;
use crate::{Client, Redis, encode};

use super::{BATCH, Script};

/// How long the scripts of one batch may take.
const PATIENCE: Duration = Duration::from_millis(1_000);

/// Strings that scripts may write, beside a key of each kind. The second has a TTL.
const STRINGS: &[&str] = &["lock:a", "lock:b", "lock:nil", "lock:false", "lock:1", "a", "k"];

/// The original content of all keys is kept in another database. Returns the keys that changed, and restores
/// them.
const LOOK: &str = "\
redis.call('select', 15)
local all = redis.call('hgetall', 'was')
local was, changed = {}, {}
for at = 1, #all, 2 do was[all[at]] = all[at + 1] end
redis.call('select', 1)
for _, key in ipairs(redis.call('keys', '*')) do changed[#changed + 1] = 'db1 ' .. key end
if #changed > 0 then redis.call('flushdb') end
redis.call('select', 0)
for _, key in ipairs(redis.call('keys', '*')) do
  if not was[key] then
    redis.call('del', key)
    changed[#changed + 1] = key
  end
end
for key, dump in pairs(was) do
  local ends = key == 'lock:b' and 9000000000000 or 0
  local left = redis.call('pttl', key)
  if redis.call('dump', key) ~= dump or (ends > 0) ~= (left > 1000000000000) or (ends == 0 and left ~= -1) then
    redis.call('restore', key, ends, dump, 'replace', 'absttl')
    changed[#changed + 1] = key
  end
end
return changed";

const KEEP: &str = "\
local all = {}
for _, key in ipairs(redis.call('keys', '*')) do all[key] = redis.call('dump', key) end
redis.call('select', 15)
for key, dump in pairs(all) do redis.call('hset', 'was', key, dump) end";

/// The server, and a connection to it.
pub struct Arena {
    redis: Redis,
    client: Client,
}

impl Arena {
    /// Starts it.
    pub fn open() -> Arena {
        let redis = Redis::start();
        let client = furnished(&redis);
        Arena { redis, client }
    }

    /// Whether the server has libraries of functions.
    pub fn has_functions(&self) -> bool {
        crate::Server::under_test().since(7, 0)
    }

    /// The keys that each script changes when it runs alone; `None` if it did not end, or the server did.
    pub fn changed_by(&mut self, scripts: &[&Script]) -> Vec<Option<Vec<Vec<u8>>>> {
        let mut all = Vec::new();
        for batch in scripts.chunks(BATCH) {
            match self.batch(batch) {
                Some(changed) => all.extend(changed.into_iter().map(Some)),
                // One of them did not end; which one shows when each runs by itself.
                None if batch.len() > 1 => {
                    for script in batch {
                        all.push(self.batch(&[script]).map(|mut one| one.swap_remove(0)));
                    }
                }
                None => all.push(None),
            }
        }
        all
    }

    fn batch(&mut self, scripts: &[&Script]) -> Option<Vec<Vec<Vec<u8>>>> {
        let look = encode(&["EVAL", LOOK, "0"]);
        let mut requests = Vec::new();
        for script in scripts {
            let call = (&script.keys, &script.arguments);
            match &script.before {
                Some((keys, arguments)) => {
                    // A library that does not load would leave the previous one in place.
                    requests.extend(encode(&["FUNCTION", "FLUSH"]));
                    requests.extend(encode(&["FUNCTION", "LOAD", &script.text]));
                    requests.extend(called(&["FCALL", "f"], (keys, arguments)));
                    requests.extend_from_slice(&look);
                    requests.extend(called(&["FCALL", "g"], call));
                }
                None => requests.extend(called(&["EVAL", &script.text], call)),
            }
            requests.extend_from_slice(&look);
        }
        // The server keeps each text.
        requests.extend(encode(&["SCRIPT", "FLUSH"]));
        self.client.write(&requests);
        let mut changed = Vec::new();
        for script in scripts {
            for _ in 0..if script.before.is_some() { 4 } else { 0 } {
                self.reply()?;
            }
            let replies = [self.reply()?, self.reply()?];
            changed.push(replies[1].elements().iter().map(|key| key.bytes().to_vec()).collect());
        }
        self.reply()?;
        Some(changed)
    }

    fn reply(&mut self) -> Option<crate::Reply> {
        // Servers of some versions also end at a script.
        let reply = self.client.reply_if_any(PATIENCE);
        if reply.is_none() {
            self.redis.start_again();
            self.client = furnished(&self.redis);
        }
        reply
    }
}

fn called(first: &[&str], (keys, arguments): (&Vec<Vec<u8>>, &Vec<Vec<u8>>)) -> Vec<u8> {
    let count = keys.len().to_string();
    let mut words: Vec<&[u8]> = first.iter().map(|word| word.as_bytes()).collect();
    words.push(count.as_bytes());
    words.extend(keys.iter().chain(arguments).map(Vec::as_slice));
    encode(&words)
}

fn furnished(redis: &Redis) -> Client {
    let client = redis.client();
    for key in STRINGS {
        client.sends(format!("SET {key} 7")).gets("+OK");
    }
    client.sends("PEXPIREAT lock:b 9000000000000").gets(":1");
    for kind in Kind::ALL {
        for line in kind.furnishing(kind.plain(), "plain") {
            client.sends(line).reply();
        }
    }
    // As a hash table it would come back in another order.
    client.sends("DEL set").gets(":1");
    client.sends("SADD set 1 2 3").gets(":3");
    client.eval(KEEP, &[], &[]);
    client
}
