//! Ways around the guard that a client may try. None of them changes another client's lock. Each is tried
//! alone, beside a lock of the client's own, in a block, on connections that clients share, and by a user with
//! few rights.

use lockwarden_tests::{Client, Proxy, Redis};

use crate::held::Held;

/// `L` is the name of the lock, computed. They free or change it straight on a server of today.
const PLAIN: &[&str] = &[
    "redis.call('del', L)",
    "do return redis.call('UnLink', L) end",
    "redis.pcall('del', L)",
    "pcall(redis.call, 'del', L)",
    "local call = redis.call call('del', L)",
    "_G.redis.call('del', L)",
    "_G['re' .. 'dis']['ca' .. 'll']('del', L)",
    "_G._G.redis.call('del', L)",
    "rawget(_G, 'redis').call('del', L)",
    "rawget(redis, 'call')('del', L)",
    "for name, way in pairs(redis) do if name == 'call' then way('del', L) end end",
    "redis.call(unpack({'del', L}))",
    "setmetatable({}, {__index = redis}).call('del', L)",
    "setmetatable({}, {__call = function(_, ...) return redis.call(...) end})('del', L)",
    "local t = setmetatable({}, {__concat = function(a, b) redis.call('del', L) return '' end}) local _ = t .. ''",
    "coroutine.wrap(function() redis.call('del', L) end)()",
    "local c = coroutine.create(function(call) call('del', L) end) coroutine.resume(c, redis.call)",
    "xpcall(function() error('x') end, function() redis.call('del', L) end)",
    "xpcall(error, function() return redis.call('del', L) end)",
    "local _ = ('x'):gsub('x', function() redis.call('del', L) end)",
    "table.sort({2, 1}, function(a, b) redis.call('del', L) return a < b end)",
    "loadstring('redis.call(...)')('del', L)",
    "loadstring('return redis')().call('del', L)",
    "loadstring('return _G')().redis.call('del', L)",
    "loadstring('return loadstring')()('redis.call(...)')('del', L)",
    "_G.loadstring('redis.call(...)')('del', L)",
    "local pieces = {'redis.', 'call', '(...)'} local at = 0 load(function() at = at + 1 return pieces[at] end)('del', L)",
    "redis.setresp(3) redis.call('del', L)",
    "redis.breakpoint() redis.call('del', L)",
    "redis.call(cjson.decode('[\"del\"]')[1], cjson.decode('[\"lock:job\"]')[1])",
    "redis.call('del', cmsgpack.unpack(cmsgpack.pack(L)))",
    "for _, key in ipairs(redis.call('keys', '*ob')) do redis.call('del', key) end",
    "for _, key in ipairs(redis.call('scan', 0, 'count', 1000)[2]) do redis.call('del', key) end",
    "redis.call('set', L, 'x')",
    "redis.call('mset', 'a', 1, L, 'x')",
    "redis.call('getset', L, 'x')",
    "redis.call('getdel', L)",
    "redis.call('getex', L, 'px', 1)",
    "redis.call('append', L, 'x')",
    "redis.call('setrange', L, 0, 'x')",
    "redis.call('setbit', L, 0, 1)",
    "redis.call('bitfield', L, 'set', 'u8', 0, 1)",
    "redis.call('bitop', 'not', L, 'a')",
    "redis.call('pexpire', L, 1)",
    "redis.call('persist', L)",
    "redis.call('rename', L, 'a')",
    "redis.call('rename', 'a', L)",
    "redis.call('copy', 'a', L, 'replace')",
    "redis.call('move', L, 1)",
    "redis.call('sort', 'list', 'alpha', 'store', L)",
    "redis.call('sunionstore', L, 'no', 'one')",
    "redis.call('zunionstore', L, 1, 'no')",
    "redis.call('georadius', 'geo', 0, 0, 200, 'km', 'store', L)",
    "redis.call('select', 0) redis.call('del', L)",
    "redis.call('flushall')",
    "redis.call('FlushDB')",
    "redis.call('swapdb', 0, 1)",
    "redis.call('restore', L, 0, redis.call('dump', 'a'), 'replace')",
];

/// They lead nowhere on some servers, or on all of them.
const ODD: &[&str] = &[
    "local m = getmetatable(redis) if m then m.__index.call('del', L) end",
    "local m = getmetatable(_G) m.__index.redis.call('del', L)",
    "local m = getmetatable(_G) m.__index(_G, 'redis').call('del', L)",
    "setmetatable(_G, nil) _G.redis.call('del', L)",
    "setmetatable(redis, {__index = function() end}) redis.call('del', L)",
    "rawset(_G, 'redis', nil) redis.call('del', L)",
    "rawset(redis, 'call', nil) redis.pcall('del', L)",
    "redis.call = redis.pcall redis.call('del', L)",
    "for _, value in pairs(_G) do if type(value) == 'table' and value.call then value.call('del', L) end end",
    "for name in pairs(_G) do local f = rawget(_G, name) if type(f) == 'function' then pcall(f, 'del', L) end end",
    "rawget(_G, 'getfenv')(0).redis.call('del', L)",
    "getfenv(0).redis.call('del', L)",
    "getfenv(loadstring('')).redis.call('del', L)",
    "setfenv(function() redis.call('del', L) end, {redis = redis})()",
    "loadstring('return getfenv')()(0).redis.call('del', L)",
    "loadstring(string.dump(function(name) redis.call('del', name) end))(L)",
    "load(coroutine.wrap(function() coroutine.yield(string.dump(function(name) redis.call('del', name) end)) end))(L)",
    "loadstring('end end return function() return function() redis.call(\"del\", \"lock:job\") end')()",
    "end redis.call('del', 'lock:job') local function x()",
    "]] end redis.call('del', 'lock:job') --[[",
    "rawget(_G, 'server').call('del', L)",
    "loadstring('return server')().call('del', L)",
    "rawget(_G, 'dofile')('/dev/stdin')",
    "rawget(_G, 'require')('redis').call('del', L)",
    "rawget(_G, 'debug').getregistry()._LOADED.redis.call('del', L)",
    "local p = newproxy(true) getmetatable(p).__gc = function() redis.call('del', L) end",
    "local p = rawget(_G, 'newproxy')(true) getmetatable(p).__gc = function() redis.call('del', L) end p = nil collectgarbage()",
    "redis.call(setmetatable({}, {__tostring = function() return 'del' end}), L)",
    "redis.call('del', setmetatable({}, {__tostring = function() return L end}))",
    "redis.call('eval', 'redis.call(\"del\", ARGV[1])', 0, L)",
    "redis.call('evalsha', ARGV[2], 0, L)",
    "rawget(_G, 'f_' .. ARGV[2])()",
    "_G['f_' .. ARGV[2]]()",
    "loadstring('return f_' .. ARGV[2])()()",
    "redis.call('migrate', '127.0.0.1', 1, L, 0, 10)",
    "redis.call('debug', 'set-active-expire', 1) redis.call('debug', 'object', L) redis.call('debug', 'reload')",
    "redis.call('script', 'flush')",
    "redis.call('function', 'flush')",
    "redis.call('multi') redis.call('del', L) redis.call('exec')",
    "redis.call('del|x', L) redis.call('xgroup|create', L, 'g', '$', 'mkstream')",
    "redis.call('xgroup', 'create', L, 'g', '$', 'mkstream')",
    "redis.call('xreadgroup', 'group', 'g', 'c', 'streams', L, '>')",
    "redis.call('pfmerge', L, 'no')",
    "redis.call('lmpop', 1, L, 'left')",
    "redis.call('zmpop', '1', L, 'min')",
    "redis.call('set', 'lw' .. ':{0j4}:' .. L, 'x')",
    "for _, key in ipairs(redis.call('keys', 'lw:*')) do redis.call('del', key) end",
    "string.lower = function() return 'get' end redis.call('DEL', L)",
];

fn whole(way: &str) -> String {
    format!("local L = 'lo' .. redis.call('echo', 'ck:job') {way} return 'done'")
}

/// A script that frees the lock when it is called by another one, as a server before 7.0 lets it.
const OTHER: &str = "return redis.call('del', 'lock:job')";

fn furnish(client: &Client) {
    client.sends("SET a 1").gets("+OK");
    client.sends("DEL list geo").reply();
    client.sends("RPUSH list x").gets(":1");
    client.sends("GEOADD geo 0 0 x").gets(":1");
}

#[test]
fn every_plain_way_changes_the_lock_on_a_server_alone() {
    let redis = Redis::start();
    let client = redis.client();
    for way in PLAIN {
        client.sends("FLUSHALL").gets("+OK");
        furnish(&client);
        client.sends("SET lock:job before PX 8000").gets("+OK");
        client.eval(&whole(way), &[], &[]);
        let ttl = client.sends("PTTL lock:job").integer();
        let value = client.sends("TYPE lock:job").reply().to_string()
            + &client.sends("STRLEN lock:job").reply().to_string()
            + &client.sends("GET lock:job").reply().to_string();
        assert!(!value.ends_with("before") || !(10..=8000).contains(&ttl), "{way} is no way at all");
    }
}

fn no_way(held: &Held, says: impl Fn(&Client, &str, &str) -> String) {
    let other = held.redis.client().sends_arguments(&["SCRIPT", "LOAD", OTHER]).text();
    furnish(&held.redis.client());
    let before = held.redis.lease("lock:job");
    let functions = held.redis.client().sends("FUNCTION LIST").reply();
    let is_old = functions.to_string().starts_with('-');
    for (way, plain) in PLAIN.iter().map(|way| (way, true)).chain(ODD.iter().map(|way| (way, false))) {
        // Before 7.0 a text that closes its function ends the server itself, with or without a proxy.
        if is_old && (way.contains(" end redis.call") || way.starts_with("end ")) {
            continue;
        }
        held.redis.client().sends("SET a 1").gets("+OK");
        let said = says(&held.bob, &whole(way), &other);
        assert_eq!(held.redis.lease("lock:job"), before, "{way}: {said}");
        let caught = way.contains("pcall(") || way.contains("resume") || way.contains("DEL");
        if plain && !caught {
            assert!(said.contains("LOCKDENIED unsafe-script"), "{way}: {said}");
        }
    }
    held.alice.sends("DEL lock:job").gets(":1");
}

fn long_held(proxy: impl Fn(&Redis) -> Proxy) -> Held {
    let redis = Redis::start();
    let proxy = proxy(&redis);
    let held = Held::behind(redis, proxy);
    held.alice.sends("PEXPIRE lock:job 600000").gets(":1");
    held
}

fn patient(redis: &Redis) -> Proxy {
    Proxy::builder(redis).ceiling("20m").start()
}

#[test]
fn no_way_around_the_guard_is_found() {
    no_way(&long_held(patient), |bob, text, other| bob.eval(text, &[], &["x", other]));
}

#[test]
fn none_is_found_beside_a_lock_of_ones_own() {
    no_way(&long_held(patient), |bob, text, other| bob.eval(text, &["lock:mine"], &["x", other]));
}

#[test]
fn none_is_found_in_a_block() {
    no_way(&long_held(patient), |bob, text, other| {
        bob.sends("MULTI").gets("+OK");
        let queued = bob.eval(text, &[], &["x", other]);
        match &queued[..] {
            "+QUEUED" => bob.sends("EXEC").reply().to_string(),
            _ => {
                bob.sends("DISCARD").gets("+OK");
                queued
            }
        }
    });
}

#[test]
fn none_is_found_by_the_name_of_a_script_on_shared_connections() {
    let shared = |redis: &Redis| Proxy::builder(redis).multiplexed().ceiling("20m").start();
    no_way(&long_held(shared), |bob, text, other| {
        let loaded = bob.sends_arguments(&["SCRIPT", "LOAD", text]).reply();
        if loaded.to_string().starts_with('-') {
            return loaded.to_string();
        }
        let sha = loaded.text();
        bob.sends(format!("EVALSHA {sha} 0 x {other}")).reply();
        bob.sends("SCRIPT FLUSH").gets("+OK");
        bob.sends(format!("EVALSHA {sha} 0 x {other}")).reply().to_string()
    });
}

/// A command that the user may not run is refused by Redis in its own words, and one that he may run is done.
#[test]
fn a_user_with_few_rights_is_guarded_like_others() {
    let held = Held::new();
    held.redis
        .client()
        .sends("ACL SETUSER app on >secret ~* +evalsha +script|load +set +get +echo +keys +del")
        .gets("+OK");
    held.bob.sends("AUTH app secret").gets("+OK");
    let sha_of = |text: &str| held.bob.sends_arguments(&["SCRIPT", "LOAD", text]).text();
    let set = sha_of("return redis.call('set', redis.call('echo', ARGV[1]), 1)");
    held.bob.sends(format!("EVALSHA {set} 0 name")).gets("+OK");
    let delete = sha_of("return redis.call('del', redis.call('keys', 'lock*')[1])");
    held.bob.sends(format!("EVALSHA {delete} 0")).gets_error("LOCKDENIED unsafe-script key=lock:job");
    let expire = sha_of("return redis.call('expire', redis.call('echo', ARGV[1]), 1)");
    let said = held.bob.sends(format!("EVALSHA {expire} 0 name")).reply();
    assert!(
        said.to_string().contains("can't run this command")
            || said.to_string().contains("has no permissions to run the 'expire' command"),
        "{said}"
    );
    held.redis.client().sends("ACL SETUSER app -evalsha -@scripting").gets("+OK");
    held.bob.sends(format!("EVALSHA {set} 0 name")).gets_error("NOPERM");
}
