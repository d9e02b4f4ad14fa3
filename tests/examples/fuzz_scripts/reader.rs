//! How the proxy reads a script: the keys that a call may change beyond those that it declares, according to the proxy's
//! classifier.

use lockwarden_lock::script_facts::{ScriptFacts, names_of_library};
use lockwarden_lua::Names;
use lockwarden_tests::script_fuzzer::{Foreseen, Pattern, Script};

/// Commands that write nothing, of those that arguments name here.
const READING: &[&[u8]] = &[b"get", b"echo", b"exists", b"publish"];

/// The keys that the text shows for this call.
pub(crate) fn foreseen(script: &Script) -> Foreseen {
    let names = match script.before {
        Some(_) => names_of_library(script.text.as_bytes()),
        None => ScriptFacts::of(script.text.as_bytes()).analysis.names,
    };
    if names == Names::Computed {
        return Foreseen::Anything;
    }
    let keys: Vec<&[u8]> = script.keys.iter().map(Vec::as_slice).collect();
    let arguments: Vec<&[u8]> = script.arguments.iter().map(Vec::as_slice).collect();
    let mut commands = names.commands_in_call(&arguments);
    if commands.any(|command| !READING.contains(&command)) {
        return Foreseen::Anything;
    }
    let mut patterns = Vec::new();
    names.in_call(&keys, &arguments, &mut |pattern| {
        patterns.push(Pattern {
            beginning: pattern.beginning().to_vec(),
            ending: match pattern.exact() {
                Some(_) => None,
                None => Some(pattern.ending().to_vec()),
            },
        });
    });
    Foreseen::These(patterns)
}
