//! From a compiler's output to a policy that a proxy loads: the contract is embedded into a module without one, the
//! WASI that some compilers assume is linked in as a stub, and the author's description is added. The loader does none
//! of that and stays strict. It reads no file and runs nothing.

use std::borrow::Cow;

use wasmparser::{Parser, Payload};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::encoding::{component_of, is_component, is_module};
use crate::error::one_line;
use crate::metadata::Metadata;

/// The contract's text, for the generators of other languages.
pub const CONTRACT: &str = include_str!("../../../wit/policy.wit");

/// What a policy that was built for debugging may call besides: never a proxy's.
pub const DEBUGGING: &str = "package lockwarden:debug@1.0.0;

/// Words of a policy for its author. `lockwarden policy test` and `run` show them; a proxy does not load a policy that imports this.
interface output {
    /// A piece of text.
    say: func(text: list<u8>);
}

world debugging {
    import output;
}
";

/// The module name from which WASI preview 1 is imported.
const WASI: &str = "wasi_snapshot_preview1";

/// The stub that replaces it.
const WASI_STUB: &str = include_str!("packaging/wasi_stub.wat");

/// Makes a policy of what a compiler left: a module that exports what the contract wants, or a finished component.
///
/// # Errors
/// Why it can be none, in a line.
pub fn package(built: &[u8], about: &Metadata, is_for_debugging: bool) -> Result<Vec<u8>, String> {
    let mut policy = match built {
        built if is_component(built) => built.to_vec(),
        built if is_module(built) => of_module(built.to_vec(), is_for_debugging)?,
        _ => return Err("it is no WebAssembly component or module".to_owned()),
    };
    about.append_to(&mut policy)?;
    Ok(policy)
}

fn of_module(mut module: Vec<u8>, is_for_debugging: bool) -> Result<Vec<u8>, String> {
    wasmparser::validate(&module).map_err(|error| one_line(&error.to_string()))?;
    let imports = imports(&module);
    let has_contract = Parser::new(0).parse_all(&module).map_while(Result::ok).any(
        |payload| matches!(payload, Payload::CustomSection(section) if section.name().starts_with("component-type")),
    );
    let wants_wasi = imports.iter().any(|module| module == WASI);
    if !has_contract {
        embed(&mut module, &contract_for(&imports), "policy")?;
    }
    let stub = if is_for_debugging { WASI_STUB.replace(";;debug ", "") } else { WASI_STUB.to_owned() };
    let mut stub = wat::parse_str(stub).map_err(|error| one_line(&error.to_string()))?;
    if is_for_debugging {
        embed(&mut module, DEBUGGING, "debugging")?;
        embed(&mut stub, DEBUGGING, "debugging")?;
    }
    let adapters = [(WASI, &*stub)];
    component_of(&module, if wants_wasi { &adapters } else { &[] })
}

/// The modules that a module imports from, once for each import.
fn imports(module: &[u8]) -> Vec<String> {
    let payloads = Parser::new(0).parse_all(module).map_while(Result::ok);
    let sections = payloads.filter_map(|payload| match payload {
        Payload::ImportSection(imports) => Some(imports.into_imports().map_while(Result::ok)),
        _ => None,
    });
    sections.flatten().map(|import| import.module.to_owned()).collect()
}

/// The contract in the version that a module requests: an SDK written for an older minor version still names that
/// version, and finds in it what it contained.
fn contract_for(imports: &[String]) -> Cow<'static, str> {
    let ours = imports.iter().find_map(|import| import.strip_prefix("lockwarden:policy/")?.split_once('@'));
    match (ours, CONTRACT.split_once(';')) {
        (Some((_, version)), Some((_, rest))) => format!("package lockwarden:policy@{version};{rest}").into(),
        _ => CONTRACT.into(),
    }
}

/// Stores in a module the world that it implements.
fn embed(module: &mut Vec<u8>, text: &str, world: &str) -> Result<(), String> {
    let embedded = (|| {
        let mut resolve = Resolve::default();
        let package = resolve.push_str("contract.wit", text)?;
        let world = resolve.select_world(&[package], Some(world))?;
        embed_component_metadata(module, &resolve, world, StringEncoding::UTF8)
    })();
    embedded.map_err(|error| one_line(&format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_module_is_refused_in_a_line() {
        for bad in [&b""[..], b"\x7fELF", b"\0asm\x01\0\0\0\x01\xff", b"\0asm\x02\0\0\0"] {
            let error = package(bad, &Metadata::default(), false).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
        let error = package(b"\0asm\x01\0\0\0", &Metadata::default(), false).unwrap_err();
        assert!(error.contains("configure"), "{error}");
    }
}
