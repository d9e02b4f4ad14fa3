//! `docs/commands.md`: the table in words, for those who operate the proxy.

use super::ROWS;
use crate::table::rows::FAMILIES;
use crate::table::{Access, Channel, CommandSpec, Effect, KeySpec, Listing, ScriptVerb, SessionVerb, Verb};

const HEAD: &str = "\
<!-- Made from proxy/lock/src/table. Change it there, then
     UPDATE_DOCS=1 cargo test -p lockwarden-lock commands -->

# What happens to each command

A key is a **lock** if a namespace claims it. A command that touches no lock passes through, byte for byte. For a
command that names a lock, this page says what enforce mode does. In monitor mode Redis itself answers, and what enforce
mode would have refused is counted.

| word | means |
|---|---|
| **acquire** | takes the lock if it is free. It gets the TTL asked for, cut to the ceiling, or the default; and a fencing token |
| **extend** | needs a [proof of ownership](ownership.md#proofs), else nothing happens and the reply says so (`on_violation = \"error\"`: an error). The TTL is cut to the ceiling and never taken away |
| **release** | likewise |
| **reads** | passes, and changes nothing. \"May prove later\": the value that was read may [prove ownership](ownership.md#proofs) |
| **refused** | `-LOCKDENIED opaque-write`: the command has no lock meaning. If it writes only some of its keys, it is refused if one of *those* is a lock |
| **passes** | names no key |

No command may name a key of the proxy's own that belongs to a lock. Those that belong to none (the prefix mark, the
era, the index of kept leases) are not written in monitor mode either. A lock key above 1 KiB or a value above 16 KiB
gets `LOCKLIMIT`.

**Keys** says which arguments are keys: argument 1 is the one after the command's name, which has one or two words. (r)
marks keys that are only read.

**Newer commands.** In enforce mode `DELEX`, `DELIFEQ`, `CAS`, `CAD` and the conditions of `SET` work on locks whatever
the server's version, because they become the proxy's own scripts. Otherwise the server must know the command.

## Commands that are not here

A command of a module, of a newer server, or under another name (`rename-command`) is in no row. The first row that
fits decides in enforce mode, also by what the server's `COMMAND` says of it. In monitor mode it passes, is counted, and
the log names it.

| it | result |
|---|---|
| has a lock, or a key of the proxy's own, among its arguments | `-LOCKDENIED opaque-write` |
| names no key, and is of the ACL categories `@write` and `@keyspace` (`FLUSHALL` by another name), or of `@scripting` | `-LOCKDENIED bulk-delete`, except for `admin_identities` |
| is `@admin` | `server_commands` says who may, as for the commands about the server |
| anything else: `FT.CREATE`, `JSON.SET` of a key that is no lock | passes |

`unknown_commands` overrides this: `\"pass:FT.SEARCH\"` lets a command pass even with a lock among its arguments, and
`\"refuse:RG.PYEXECUTE\"` refuses one, whatever its arguments, while anything is enforced
([configuration.md](configuration.md)). `check` refuses names that have a row here.
";

/// Each family with its title, in the order of the page.
const TITLES: [&str; FAMILIES.len()] =
    ["Strings", "Keys of any type", "Other types", "Scripts and functions", "Connections", "The server"];

/// Commands of a family of which the same is to be said share a row, where the first of them would stand.
fn page() -> String {
    let mut page = HEAD.to_owned();
    for (title, family) in TITLES.iter().zip(FAMILIES) {
        page.push_str(&format!("\n## {title}\n\n| command | on a lock | keys |\n|---|---|---|\n"));
        let mut rows: Vec<(String, Vec<String>)> = Vec::new();
        for spec in family.iter().filter(|spec| spec.keys != KeySpec::Subcommands) {
            let said = format!("{} | {}", verdict(spec), places(spec));
            match rows.iter_mut().find(|(other, _)| *other == said) {
                Some((_, names)) => names.push(name(spec)),
                None => rows.push((said, vec![name(spec)])),
            }
        }
        for (said, names) in rows {
            page.push_str(&format!("| {} | {said} |\n", names.join(" ")));
        }
    }
    page
}

fn name(spec: &CommandSpec) -> String {
    format!("`{}`", spec.name.replace('|', " ").to_ascii_uppercase())
}

fn verdict(spec: &CommandSpec) -> &'static str {
    match spec.effect {
        Effect::Verb(verb) => of_verb(verb),
        Effect::Session(verb) => of_session(verb),
        Effect::Script(verb) => of_script(verb),
        Effect::Read => "reads",
        Effect::Write => of_write(spec),
        Effect::Neutral => "passes",
        Effect::Listing(Listing::RandomKey) => "passes; asked again while it names a key of the proxy's own",
        Effect::Listing(Listing::Keys | Listing::Scan) => "passes; the proxy's own keys are left out of the answer",
        Effect::Admin if spec.keys == KeySpec::None => "passes: it concerns the whole server",
        Effect::Admin => "refused",
    }
}

fn of_write(spec: &CommandSpec) -> &'static str {
    match spec.name {
        "pfcount" => "refused: it rewrites a cached number",
        "xreadgroup" => "refused: it moves the state of the group",
        "bitfield" => "refused, unless all it does is `GET`",
        "mset" => "refused, whatever its other keys are",
        _ => "refused",
    }
}

fn of_verb(verb: Verb) -> &'static str {
    match verb {
        Verb::SetNx => "acquire; `:1` or `:0`",
        Verb::Set => {
            "with `NX` acquire; with `XX` extend with a new value; plain: acquire of a free lock, extend of the \
             holder's, else `LOCKDENIED overwrite`; with `GET` see GETSET. `IFEQ` (`IFDEQ` outside MULTI): if the \
             value is equal, extend with a new value, or take over a passed deadline. `IFNE`: if it is another, as \
             plain. `IFDNE`: `LOCKLIMIT`"
        }
        Verb::SetEx | Verb::PSetEx => "as plain SET",
        Verb::GetSet => {
            "a free lock: acquire; its value is a passed deadline: take-over; the holder's: extend; else `LOCKDENIED \
             take-over` or the current value"
        }
        Verb::GetDel => "release; the value, or nil",
        Verb::GetEx => {
            "without an option reads, and may prove later; with a TTL extend, a refusal is an error; `PERSIST`: \
             `LOCKDENIED no-ttl`"
        }
        Verb::Del | Verb::Unlink => {
            "release of each lock among its keys, in one step; other keys are deleted; the number of deleted keys"
        }
        Verb::Expire | Verb::PExpire | Verb::ExpireAt | Verb::PExpireAt => {
            "extend; a time in the past is a release. `:1` or `:0`"
        }
        Verb::Persist => "`LOCKDENIED no-ttl`",
        Verb::MSetEx => "with `NX`, if all keys are locks: acquire of all or none; else refused",
        Verb::MSetNx => "if all keys are locks: acquire of all or none; else refused",
        Verb::Get | Verb::MGet => "reads; may prove later",
        Verb::Incr => {
            "refused; with `counter_locks = true` acquire with the value `1`: `:1`; if it is held, the number that the \
             counter would have become, and nothing is written"
        }
        Verb::DelEx => {
            "release; with `IFEQ` (`IFDEQ` outside MULTI) if the value is equal, with `IFNE` if it is another; \
             `IFDNE`: `LOCKLIMIT`. `:1` or `:0`"
        }
        Verb::DelIfEq => "release if the value is equal; `:1` or `:0`",
        Verb::Cad => "release if the value is equal; `:1`, `:0`, or `:-1` if there is none",
        Verb::Cas => {
            "if the value is equal: extend with a new value, without a TTL by the default one, or take over a passed \
             deadline; `:1`, `:0`, or `:-1` if there is none"
        }
    }
}

fn of_session(verb: SessionVerb) -> &'static str {
    match verb {
        SessionVerb::Asking => "passes, and is repeated before each request that the proxy sends for the next command",
        SessionVerb::Auth | SessionVerb::Hello => "passes: Redis decides; the user becomes a part of the identity",
        SessionVerb::ClientSetName => "passes; the name becomes a part of the identity",
        SessionVerb::ClientSetInfo => "passes; shown as the client's library",
        SessionVerb::ClientMaintNotifications => {
            "passes, but asks for notices without addresses; on shared connections unknown"
        }
        SessionVerb::Select | SessionVerb::Reset | SessionVerb::Quit => "passes, and is followed",
        SessionVerb::Multi | SessionVerb::Exec | SessionVerb::Discard => {
            "passes; lock commands in the block are judged, each at its place"
        }
        SessionVerb::Watch => "reads; what is read under it may prove more",
        SessionVerb::Unwatch => "passes, and is followed",
        SessionVerb::ClientReply => "done by the proxy, not inside MULTI",
        SessionVerb::ClientTracking => "passes; while it is on, reads prove nothing",
        SessionVerb::Subscribe(Channel::Channel | Channel::Pattern | Channel::Shard)
        | SessionVerb::Unsubscribe(Channel::Channel | Channel::Pattern | Channel::Shard)
        | SessionVerb::Monitor => "passes, and what Redis pushes is relayed",
        SessionVerb::Replication => "refused everywhere: replicas connect to Redis itself",
    }
}

fn of_script(verb: ScriptVerb) -> &'static str {
    match verb {
        ScriptVerb::Eval => {
            "a recipe is an acquire, extend or release; a script that writes nothing passes; any other is run and \
             judged in the same step, or as `opaque_scripts` says: [scripts.md](scripts.md)"
        }
        ScriptVerb::EvalSha => {
            "as EVAL, if the proxy knows the text; else `NOSCRIPT` (inside MULTI `LOCKDENIED unsafe-script`)"
        }
        ScriptVerb::EvalRo | ScriptVerb::EvalShaRo | ScriptVerb::FcallRo => "reads",
        ScriptVerb::Fcall => "`LOCKDENIED unsafe-script`, unless `trusted_functions` has the function",
        ScriptVerb::ScriptLoad => "passes; the text is remembered",
        ScriptVerb::ScriptExists => "passes; 1 only if this proxy also knows the text",
        ScriptVerb::ScriptFlush => "passes",
    }
}

fn places(spec: &CommandSpec) -> String {
    // A subcommand's own name is no argument of its own.
    let inner = i64::from(spec.name.contains('|'));
    let own = |text: String| match spec.effect.access() {
        Access::Read => format!("{text} (r)"),
        Access::Write => text,
    };
    let at = |position: u8| (i64::from(position) - inner).to_string();
    match spec.keys {
        KeySpec::None | KeySpec::Subcommands => "none".to_owned(),
        KeySpec::Range { first, last, step } => {
            assert_eq!(step, 1, "{} needs words of its own", spec.name);
            match last {
                -1 => own(format!("{}…", at(first))),
                -2 => own(format!("{}… but the last", at(first))),
                last if i64::from(last) == i64::from(first) => own(at(first)),
                last => own(format!("{}…{}", at(first), i64::from(last) - inner)),
            }
        }
        KeySpec::Pairs => "every second, from 1".to_owned(),
        KeySpec::SourceDest => "1 (r), 2".to_owned(),
        KeySpec::DestSource => "1, 2 (r)".to_owned(),
        KeySpec::DestSources { dest } => format!("{dest}, {}… (r)", dest + 1),
        KeySpec::Numkeys { at, step: 1, .. } => own(format!("as many as {at} says, after it")),
        KeySpec::Numkeys { at, .. } => format!("as many as {at} says, every second after it"),
        KeySpec::DestNumkeys { dest, at } => format!("{dest}, and as many as {at} says, after it (r)"),
        KeySpec::Bitfield => "1".to_owned(),
        KeySpec::Sort => "1 (r), after each `STORE`".to_owned(),
        KeySpec::GeoRadius { .. } => "1 (r), after each `STORE` and `STOREDIST`".to_owned(),
        KeySpec::Streams { .. } => own("the first half after `STREAMS`".to_owned()),
        KeySpec::Migrate => "3, or those after `KEYS`".to_owned(),
    }
}

#[test]
fn the_documentation_of_commands_is_this_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page, "docs/commands.md is old: UPDATE_DOCS=1 cargo test -p lockwarden-lock commands");
    for spec in ROWS.iter().filter(|spec| spec.keys != KeySpec::Subcommands) {
        assert!(page.contains(&name(spec)), "{}", spec.name);
    }
}
