//! Names of keys that are written, as the text of a script tells them.

use super::name::Part;
use super::*;
use crate::tests::{analysed, commands};

fn names(text: &str) -> Names {
    analysed(text.as_bytes()).names
}

/// The names beside `KEYS`, as they would be written; `?` for what is not known.
fn shown(text: &str) -> Vec<String> {
    let Names::Known { names, .. } = names(text) else {
        return vec!["computed".to_owned()];
    };
    let part = |part: &Part| match part {
        Part::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Part::Key(Some(place)) => format!("<KEYS {}>", place + 1),
        Part::Key(None) => "<KEYS>".to_owned(),
        Part::Argument(Some(place)) => format!("<ARGV {}>", place + 1),
        Part::Argument(None) => "<ARGV>".to_owned(),
        Part::Rest => "?".to_owned(),
    };
    let name = |name: &Name| name.0.iter().map(part).collect();
    names.iter().map(name).collect()
}

#[test]
fn names_that_come_from_keys_are_told() {
    for text in [
        "return 1",
        "return redis.call('set', KEYS[1], ARGV[1])",
        "return redis.call('get', 'x' .. ARGV[1])",
        "local k = KEYS[1] return redis.call('del', k)",
        "local call, k = redis.call, KEYS return call('DEL', k[1], k[2])",
        "for i = 1, #KEYS do redis.call('incr', KEYS[i]) end",
        "for i = #KEYS, 1, -1 do redis.call('incr', KEYS[i]) end",
        "for i, k in ipairs(KEYS) do redis.call('incr', k) end",
        "for _, k in pairs(KEYS) do redis.call('incr', k) end",
        "for _, k in next, KEYS do redis.call('incr', k) end",
        "redis.call('del', unpack(KEYS))",
        "return redis.call('sadd', KEYS[1], unpack(ARGV))",
        "local t = {} for i = 2, #ARGV do t[#t + 1] = ARGV[i] end return redis.call('zadd', KEYS[1], unpack(t))",
        "local function f(key, n) if n == 0 then return 0 end redis.call('incr', key) return f(key, n - 1) end return f(KEYS[1], 3)",
        "local f = function(a) redis.call('incr', a.key) end f({key = KEYS[1]}) f{key = KEYS[2]}",
        "local m = {} function m.go(k) return redis.call('del', k) end return m.go(KEYS[1])",
        "local m = {} function m:go(k) self.k = k return redis.call('del', self.k) end return m:go(KEYS[1])",
        "local ok, e = pcall(redis.call, 'del', KEYS[1]) return ok",
        "return pcall(function(k) return redis.call('del', k) end, KEYS[1])",
        "redis.call('rename', KEYS[1], KEYS[2]) redis.call('sort', KEYS[1], 'by', 'nosort', 'store', KEYS[2])",
        "redis.call('zunionstore', KEYS[1], 2, 'a', 'b') redis.call('lmpop', 2, KEYS[1], KEYS[2], 'LEFT')",
        "redis.call('lmpop', #KEYS, unpack(KEYS))",
        "local ks = {KEYS[1], KEYS[2]} table.sort(ks) table.insert(ks, KEYS[3]) for _, k in ipairs(ks) do redis.call('del', k) end",
        "local k = table.remove(KEYS, 1) redis.call('del', k, KEYS[1])",
        "local k = ARGV[1] == 'a' and KEYS[1] or KEYS[2] redis.call('del', k)",
        "while redis.call('llen', KEYS[1]) > 0 do redis.call('lpop', KEYS[1]) end",
        "repeat local n = redis.call('spop', KEYS[1]) until not n",
        "local x = cjson.decode(ARGV[1]) x.n = (x.n or 0) + 1 redis.call('set', KEYS[1], cjson.encode(x))",
        "redis.call('copy', KEYS[1], KEYS[2], 'REPLACE')",
        "string.gsub(ARGV[1], '%w+', function(w) redis.call('sadd', KEYS[1], w) end)",
        "for w in string.gmatch(ARGV[1], '%a+') do redis.call('sadd', KEYS[1], w) end",
        "for w in ARGV[1]:gmatch('%a+') do redis.call('sadd', KEYS[1], w:lower()) end",
        "redis.call('xgroup', 'create', KEYS[1], 'g', '$') redis.call('memory', 'usage', 'x')",
        "#!lua flags=allow-oom\nreturn redis.call('del', KEYS[1])",
        "return server.call('del', KEYS[1])",
        "if true then return end redis.log(redis.LOG_NOTICE, 'x')",
        "KEYS[1]:format() redis.pcall('set', KEYS[1], tostring(KEYS[2]))",
    ] {
        assert_eq!(shown(text), [""; 0], "{text}");
        assert!(names(text).come_from_keys(), "{text}");
    }
}

#[test]
fn other_names_are_told_as_far_as_they_stand_there() {
    for (text, expected) in [
        ("return redis.call('del', 'lock:a')", &["lock:a"][..]),
        ("return redis.call 'del'", &[]),
        ("local f = redis.call f('del', 'lock:' .. 'a', [[lock:b]])", &["lock:a", "lock:b"]),
        ("local f = redis['call'] f('del', ('lock:' .. 'a'))", &["lock:a"]),
        ("redis.call('\\100el', 'lo\\99k:c')", &["lock:c"]),
        ("local n = 'lock:a' local m = n redis.call('del', m)", &["lock:a"]),
        ("redis.call('del', string.format('lock:%s', 'a'))", &["lock:?"]),
        ("redis.call('del', ('lock:'):format('a') .. 'b')", &["lock:b"]),
        ("redis.call('del', ('lock:%05d'):format(ARGV[2]))", &["lock:?"]),
        ("redis.call('del', ARGV[1])", &["<ARGV 1>"]),
        ("for _, k in ipairs(ARGV) do redis.call('del', k) end", &["<ARGV>"]),
        ("redis.call('del', KEYS[1] .. ':queue')", &["<KEYS 1>:queue"]),
        ("redis.call('del', KEYS[1] .. ARGV[1] .. 7)", &["<KEYS 1><ARGV 1>7"]),
        ("for i = 1, #KEYS do redis.call('del', KEYS[i] .. ':x') end", &["<KEYS>:x"]),
        ("redis.call('del', 'job:' .. redis.call('incr', KEYS[1]))", &["job:?"]),
        (
            "local id = redis.call('lpop', KEYS[1]) redis.call('hset', KEYS[2] .. id .. ':lock', 'a', 1)",
            &["<KEYS 2>?:lock"],
        ),
        ("redis.call('sort', 'src', 'store', 'lock:d')", &["lock:d"]),
        ("redis.call('zunionstore', 'lock:e', #KEYS, 'lock:f')", &["lock:e"]),
        ("redis.call('mset', 'a', 'v1', 'b', 'v2')", &["a", "b"]),
        ("redis.call('xreadgroup', 'group', 'g', 'c', 'streams', 's', '>')", &[">", "c", "g", "group", "s", "streams"]),
        ("local t = {a = 'lock:a'} redis.call('del', t.a)", &["lock:a"]),
        ("local t = {} t['a'] = 'lock:a' redis.call('del', t.a)", &["lock:a"]),
        ("local k if KEYS[1] then k = 'a' else k = 'b' end redis.call('del', k)", &["a", "b"]),
        ("local function f(k) redis.call('del', k) end f('a') f(KEYS[1])", &["a"]),
        ("local function f(...) redis.call('del', ...) end f('a', KEYS[1])", &["a"]),
        ("local function f(...) local a = {...} redis.call('del', a[2]) end f(1, 'a')", &["1", "a"]),
        ("local function n() return 'a' end redis.call('del', n())", &["a"]),
        ("local function n() return 'a' end redis.call('del', (n()), n())", &["a"]),
        ("table.remove(ARGV, 1) redis.call('del', ARGV[1] .. 'x')", &["?x"]),
        ("table.remove(KEYS, 1) redis.call('del', KEYS[1] .. 'x')", &["<KEYS>x"]),
        ("ARGV[1] = 'lock:a' redis.call('del', 'x' .. ARGV[1])", &["x?"]),
        ("select(2, redis.call('del', 'a'))", &["a"]),
        ("for _ in pairs({}), redis.call('del', 'a') do end", &["a"]),
        ("redis.call(({'del'})[1], 'a')", &["a"]),
        ("if false then redis.call('del', 'a') end", &["a"]),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn names_and_commands_that_only_the_run_tells_are_computed() {
    for text in [
        "redis.call('del', redis.call('get', KEYS[1]))",
        "redis.call(KEYS[1], KEYS[2])",
        "redis.call(ARGV[1] .. 'x', KEYS[1])",
        "redis.call(ARGV[#ARGV], KEYS[1])",
        "ARGV[1] = 'del' redis.call(ARGV[1], KEYS[1])",
        "local c = ARGV[1] if c == '' then c = redis.call('get', 'x') end redis.call(c, KEYS[1])",
        "redis.call(unpack(ARGV))",
        "redis.call('del', unpack(redis.call('keys', 'a*')))",
        "for _, k in ipairs(redis.call('keys', '*')) do redis.call('del', k) end",
        "redis.call('select', 1)",
        "redis.call('flushall')",
        "redis.call('migrate', 'h', 1, KEYS[1], 0, 9)",
        "redis.call('move', KEYS[1], 3)",
        "redis.call('copy', KEYS[1], KEYS[2], 'DB', 3)",
        "redis.call('copy', KEYS[1], KEYS[2], unpack(ARGV))",
        "redis.call('json.set', KEYS[1], '$', '1')",
        "redis.call('del', string.rep('a', 3))",
        "redis.call('del', table.concat({'lock', 'a'}, ':'))",
        "redis.call('del', string.lower('LOCK:A'))",
        "redis.call('sort', KEYS[1], ARGV[1], redis.call('get', 'x'))",
        "_G.redis.call('del', KEYS[1])",
        "for name, way in pairs(redis) do if name == 'call' then way('del', 'lock:a') end end",
        "for name, way in next, redis do way('del', 'lock:a') end",
        "local name, way = next(redis) way('del', 'lock:a')",
        "for _, way in pairs(string) do way('a', 'a', redis.call) end",
        "loadstring(ARGV[1])()",
        "local f = coroutine.wrap(function() redis.call('del', KEYS[1]) end) f()",
        "setmetatable({}, {__index = function() redis.call('del', 'x') end})",
        "KEYS[1] = 'lock:a' redis.call('del', KEYS[1])",
        "KEYS = {'lock:a'} redis.call('del', KEYS[1])",
        "table.insert(KEYS, 'lock:a') redis.call('del', KEYS[2])",
        "local redis = {call = redis.call} redis.call(redis.call('get', 'x'), KEYS[1])",
        "local t = cjson.decode('{}') t.f = redis.call t.f('del', 'x')",
        "local t = cjson.decode('{}') t.k = KEYS redis.call('del', KEYS[1])",
        "error(redis)",
        "string.gsub('del', '.+', redis.call)",
        "f_3fa0e42c54527adfc42c9fe8b53d5243d1412adf()",
        "local f, s, i = pairs({function(k) redis.call('del', k) end}) for _, g in f, s, i do g('lock:a') end",
        "local n = '' for i = 1, 3 do n = n .. redis.sha1hex(n) redis.call('del', n) end",
        "return 1 end redis.call('del', 'lock:a') do",
    ] {
        assert_eq!(names(text), Names::Computed, "{text}");
    }
}

/// As Redisson's unlock publishes by the command that its caller names, which older servers have otherwise than newer ones.
#[test]
fn an_argument_may_name_the_command_which_the_call_decides() {
    for (text, expected) in [
        ("redis.call(ARGV[2], KEYS[2], ARGV[1])", &["publish"][..]),
        ("local f = redis.pcall f(ARGV[2], 'x')", &["publish"]),
        ("redis.call(ARGV[1], 'x') redis.call(ARGV[2], 'y')", &["del", "publish"]),
        ("local name = ARGV[2] for i = 1, 2 do redis.call(name, 'x') end", &["publish"]),
        // Without such an argument it raises an error.
        ("redis.call(ARGV[3], KEYS[1])", &[]),
        ("redis.call('get', KEYS[1])", &[]),
    ] {
        let names = names(text);
        assert_ne!(names, Names::Computed, "{text}");
        let commands = names.commands_in_call(&[b"del", b"publish"]);
        let commands: Vec<&[u8]> = commands.collect();
        let expected: Vec<&[u8]> = expected.iter().map(|name| name.as_bytes()).collect();
        assert_eq!(commands, expected, "{text}");
        assert_eq!(names.come_from_keys(), text.contains("'get'"), "{text}");
    }
}

/// Libraries have texts and numbers beside functions.
#[test]
fn constants_of_libraries_are_texts_that_are_not_known() {
    for text in [
        "redis.call('del', 'lock:' .. redis.LOG_WARNING)",
        "redis.call('del', 'lock:' .. redis.REDIS_VERSION)",
        "redis.call('del', 'lock:' .. math.pi)",
        "redis.call('del', 'lock:' .. cjson._NAME)",
        "local c = cjson redis.call('del', 'lock:' .. c._NAME)",
        "local r = ARGV[1] and redis or {LOG_WARNING = '3'} redis.call('del', 'lock:' .. r.LOG_WARNING)",
    ] {
        assert_eq!(shown(text), ["lock:?"], "{text}");
    }
    assert_eq!(names("redis.call('del', redis.LOG_WARNING)"), Names::Computed);
}

/// What is nil or false has a text, too, and what is put into a format ends at its NUL.
#[test]
fn texts_that_lua_spells_are_not_known() {
    for name in [
        "tostring(ARGV[2])",
        "tostring(KEYS[1])",
        "tostring(ARGV[1] == 'a')",
        "tostring(ARGV[1] == 'none' and 'a')",
        "tostring(7)",
        "string.format('%s', ARGV[1])",
        "('%s'):format('a\\0b')",
    ] {
        let text = format!("redis.call('del', 'lock:' .. {name})");
        assert_eq!(shown(&text), ["lock:?"], "{text}");
    }
    for text in [
        "redis.call('del', tostring(KEYS[1]))",
        "redis.call('del', string.format('%s', 'lock:a'))",
        "redis.call(tostring(ARGV[1]), KEYS[1])",
    ] {
        assert_eq!(names(text), Names::Computed, "{text}");
    }
    let under_false = "local t = {} t[1 == 2 and 'a'] = 'lock:a' redis.call('del', t[1 == 2])";
    assert_eq!(shown(under_false), ["lock:a"]);
}

/// A function that is handed on may be called where the walk does not see it, and one that calls commands above all.
#[test]
fn functions_that_are_handed_on_are_not_followed() {
    for text in [
        "for x in function(s, c) c('del', 'lock:a') end, nil, redis.call do end",
        "for x in function(s, c) s('del', 'lock:a') end, redis.call do end",
        "for x in function(s, c) s.f('del', 'lock:a') end, {f = redis.call} do end",
        "local function f() return function(s, c) c('del', KEYS[1]) end end for x in f(), nil, redis.call do end",
        "for x in function() redis.call('del', KEYS[1]) end do end",
        "local function f(c) c('del', KEYS[1]) end f(redis.call)",
        "local function f(r) r.call('del', KEYS[1]) end f(redis)",
        "local function f(g) g(KEYS[1]) end f(function(k) redis.call('del', k) end)",
        "local function f() return redis.call end f()('del', KEYS[1])",
        "local function f() return function(k) redis.call('del', k) end end f()(KEYS[1])",
        "local function f(...) local c = ... c('del', KEYS[1]) end f(redis.call)",
        "local t = {c = redis.call} t.c('del', KEYS[1])",
        "local t = {redis} t[1].call('del', KEYS[1])",
        "local t = {} t.s = string t.s.gsub('a', 'a', function() redis.call('del', KEYS[1]) end)",
        "local t = {[redis.call] = 1} for c in pairs(t) do c('del', KEYS[1]) end",
        "for k in pairs({}), {['lock:a'] = 1} do redis.call('del', k) end",
        "local f = ARGV[1] and redis.call or function() end local t = {f} t[1]('del', KEYS[1])",
    ] {
        assert_eq!(names(text), Names::Computed, "{text}");
    }
    let with_a_state_of_its_own = "for _, k in ipairs({}), {'lock:a'}, 0 do redis.call('del', k) end";
    assert_eq!(shown(with_a_state_of_its_own), ["lock:a"]);
}

/// Lua declares it in each function that takes any arguments.
#[test]
fn the_arg_of_a_function_is_not_followed() {
    for text in [
        "local arg = KEYS local function f(...) redis.call('del', arg[1]) end f('lock:a')",
        "local arg = {} local f = function(...) redis.call('del', unpack(arg)) end f('lock:a')",
        "local function f(arg, ...) redis.call('del', arg[1]) end f(KEYS, 'lock:a')",
        "local function f(...) return function() redis.call('del', arg[1]) end end f('lock:a')()",
        "local arg = KEYS local t = {} function t:f(...) redis.call('del', arg[1]) end t:f('lock:a')",
    ] {
        assert_eq!(names(text), Names::Computed, "{text}");
    }
    let own = "local arg = KEYS local function f(key) redis.call('del', key, arg[1]) end f(KEYS[2])";
    assert!(names(own).come_from_keys());
}

#[test]
fn only_a_text_that_says_varargs_outside_its_functions_needs_them() {
    for (text, needs) in [
        ("return 1", false),
        ("return '...'", false),
        ("local function f(...) return ... end return f(1) -- ...", false),
        ("local f = function(...) end return {...}", true),
        ("return select('#', ...)", true),
        ("return ... +", true),
    ] {
        assert_eq!(crate::may_say_varargs(text.as_bytes()), needs, "{text}");
    }
}

/// What goes where it is not followed comes back as anything.
#[test]
fn tables_that_are_held_elsewhere_hold_anything() {
    for text in [
        "local t = {k = KEYS[1]} local d = cjson.decode('{}') d.t = t d.t.k = 'lock:a' redis.call('del', t.k)",
        "local t = {k = KEYS[1]} pcall(error, t) local ok, e = pcall(error, t) e.k = 'lock:a' redis.call('del', t.k)",
    ] {
        assert_eq!(names(text), Names::Computed, "{text}");
    }
}

fn in_call(text: &str, keys: &[&str], arguments: &[&str]) -> Vec<String> {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let arguments: Vec<&[u8]> = arguments.iter().map(|word| word.as_bytes()).collect();
    let Names::Known { names, .. } = names(text) else {
        panic!("computed: {text}");
    };
    let mut found = Vec::new();
    for name in names {
        name.in_call(&keys, &arguments, &mut |pattern| {
            let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
            found.push(match pattern.exact() {
                Some(exact) => shown(exact),
                None => format!("{}*{}", shown(pattern.beginning()), shown(pattern.ending())),
            });
        });
    }
    found
}

#[test]
fn a_call_tells_what_its_keys_and_arguments_make_of_a_name() {
    for (text, expected) in [
        ("redis.call('del', KEYS[1] .. ':queue')", &["a:queue"][..]),
        ("redis.call('del', KEYS[3] .. ':queue')", &[]),
        ("for _, k in ipairs(KEYS) do redis.call('del', k .. ':queue') end", &["a:queue", "b:queue"]),
        ("redis.call('del', ARGV[1])", &["x"]),
        ("redis.call('del', 'job:' .. redis.call('incr', KEYS[1]) .. ':lock')", &["job:*:lock"]),
        ("redis.call('del', ARGV[1] .. redis.call('get', 'x') .. KEYS[2] .. redis.call('get', 'y'))", &["x*"]),
        (
            "for _, k in ipairs(KEYS) do for _, a in ipairs(ARGV) do redis.call('del', k .. a) end end",
            &["ax", "ay", "bx", "by"],
        ),
    ] {
        assert_eq!(in_call(text, &["a", "b"], &["x", "y"]), expected, "{text}");
    }
    let many: Vec<&str> = vec!["k"; 300];
    let text = "for _, k in ipairs(KEYS) do redis.call('del', k .. ':x') end";
    assert_eq!(in_call(text, &many, &[]), ["*:x"]);
}

/// The variables of a library stay from one call to the next.
#[test]
fn a_library_that_keeps_keys_for_other_calls_computes_names() {
    let library = |text: &str| Names::of_library(format!("#!lua name=mine\n{text}").as_bytes(), &commands);
    for text in [
        "local k redis.register_function('a', function(keys) k = keys[1] end) \
         redis.register_function('b', function() redis.call('del', k) end)",
        "local k redis.register_function('a', function(keys) k = keys end) \
         redis.register_function('b', function() redis.call('del', k[1]) end)",
        "local t = {} redis.register_function('a', function(keys, args) t.k = args[1] end) \
         redis.register_function('b', function() redis.call('del', t.k) end)",
        "local t = {} redis.register_function('a', function(keys, args) table.insert(t, args[1]) end) \
         redis.register_function('b', function() redis.call('del', t[1]) end)",
        "local t = {} redis.register_function('a', function(keys, args) t[args[1]] = 1 end) \
         redis.register_function('b', function() for k in pairs(t) do redis.call('del', k) end end)",
        "local k redis.register_function('a', function(keys) local t = {} k = t t[1] = keys[1] end) \
         redis.register_function('b', function() redis.call('del', k[1]) end)",
        "local k redis.register_function('a', function(keys) k = function() return keys[1] end end) \
         redis.register_function('b', function() redis.call('del', k()) end)",
        "return 1 end",
    ] {
        assert_eq!(library(text), Names::Computed, "{text}");
    }
    for text in [
        "local function set(k, v) return redis.call('set', k, v) end \
         redis.register_function('a', function(keys, args) local k = keys[1] k = keys[2] return set(k, args[1]) end)",
        "local calls = 0 local my = {} function my.a(keys) calls = calls + 1 local t = {keys[1]} t[2] = keys[2] \
         return redis.call('del', unpack(t)) end redis.register_function{function_name = 'a', callback = my.a}",
    ] {
        assert!(library(text).come_from_keys(), "{text}: {:?}", library(text));
    }
}

/// Texts whose tables hold each other, and whatever else takes more than a step for each word of the text. The steps are
/// counted: how long one takes is the machine's affair.
#[test]
fn what_a_text_can_make_the_walk_do_is_bounded() {
    let times = |count: usize, piece: &str| -> String {
        let numbered = |at: usize| piece.replace('#', &at.to_string());
        (0..count).map(numbered).collect()
    };
    // More than one variable may hold is refused long before.
    let sixteen = times(15, " k = 'v#'");
    for (name, text) in [
        ("tables in one table", format!("local t = {{}} {}", times(1000, "t.a#={} t.b#=t[ARGV[1]] "))),
        ("a table that holds itself in many fields", format!("local t={{}} {}", times(3000, "t[1]={t,t[1]} "))),
        (
            "joins of tables in tables",
            format!("local t={{}} local u={{}} {}", times(800, "t.f#={u} u.f#={t[ARGV[1]]} ")),
        ),
        (
            "tables around each other that are thrown",
            format!("local t={{}} {} pcall(error, t)", times(3600, "local t={t} ")),
        ),
        (
            "functions of tables",
            format!("local t={{}} {} {}", times(1000, "t.f#=function(a) t.g=a end "), times(1000, "t[ARGV[1]](t) ")),
        ),
        ("branches of texts", format!("local k = 'v' {sixteen} {} redis.call('del', k)", times(2000, "k=k..k..k "))),
        ("formats of long texts", format!("local k = '{}' {}", "x".repeat(250), times(4000, "k:format() "))),
        ("variables and their uses", format!("{} {}", times(3000, "local a#"), times(5000, "a1=a0 "))),
        ("pcall of pcall", format!("pcall({} error)", times(10_000, "pcall,"))),
        (
            "calls with many arguments",
            format!("local f = redis.call {}", times(100, &format!("f('del'{}) ", ",k".repeat(200)))),
        ),
        ("lists of lists", format!("local t={{}} {}", times(700, "t={unpack(t),t,unpack({t,t})} "))),
        (
            "functions that return each other",
            format!("local f={{}} {}", times(900, "f[#]=function(...) return f[ARGV[1]], ... end f[#](f, ...) ")),
        ),
    ] {
        assert!(text.len() <= MAX_TEXT_LEN, "{name}: {} bytes", text.len());
        value::tests::take_touched();
        let _ = names(&text);
        let touched = value::tests::take_touched();
        assert!(touched <= 2 * walk::MAX_STEPS, "{name}: {touched} possibilities");
    }
}
