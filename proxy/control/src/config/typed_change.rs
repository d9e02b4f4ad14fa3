//! A change of the configuration, typed as `namespace.orders.hand_over=true` for a what-if question, and applied to the
//! text of the file. Its contents are not checked here: the resulting text is read like any other.

use toml::{Table, Value};

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedChange {
    /// The kind of the table, such as `namespace`, and the name of that table; `None` for the top of the file.
    pub table: Option<(String, String)>,
    /// The policy, if it is a policy's setting.
    pub policy: Option<String>,
    /// The key in that table.
    pub key: String,
    value: Value,
}

/// Applies these changes to the text of a file.
pub fn changed(text: &str, changes: &[&str]) -> Result<(String, Vec<TypedChange>), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("the configuration file: {error}");
    let mut file: Table = text.parse().map_err(|error| wrong(&error))?;
    let mut typed = Vec::new();
    for change in changes {
        let change = TypedChange::parse(change, &file)?;
        change.put(&mut file)?;
        typed.push(change);
    }
    let text = toml::to_string(&file).map_err(|error| wrong(&error))?;
    Ok((text, typed))
}

impl TypedChange {
    fn parse(text: &str, file: &Table) -> Result<TypedChange, String> {
        let usage = "write KEY=VALUE, such as namespace.orders.hand_over=true, or \
                     namespace.orders.settings.owner-token.void_after_refusal=[]";
        let (path, value) = text.split_once('=').ok_or_else(|| format!("{text:?} sets nothing: {usage}"))?;
        let (path, value) = (path.trim(), value.trim());
        let read: Table = format!("value = {value}")
            .parse()
            .map_err(|_| format!("{path}: {value} is no value of TOML: a text has quotes, as in {path}='\"30s\"'"))?;
        let Some(value) = read.get("value").filter(|_| read.len() == 1).cloned() else {
            return Err(format!("{path}: more than one value"));
        };
        let (table, rest) = match path.split_once('.') {
            None => (None, path),
            Some((kind, rest)) => {
                let (name, rest) = named(kind, rest, file)?;
                (Some((kind.to_owned(), name)), rest)
            }
        };
        let setting = rest.strip_prefix("settings.").and_then(|rest| rest.split_once('.'));
        let (policy, key) = match setting {
            Some((policy, key)) => (Some(policy.to_owned()), key),
            None => (None, rest),
        };
        if key.is_empty() || key.split('.').any(str::is_empty) {
            return Err(format!("{path} is no key: {usage}"));
        }
        Ok(TypedChange { table, policy, key: key.to_owned(), value })
    }

    fn put(&self, file: &mut Table) -> Result<(), String> {
        let mut place = match &self.table {
            None => file,
            Some((kind, name)) => {
                let all = file.get_mut(kind).and_then(Value::as_array_mut);
                let mut tables = all.into_iter().flatten().filter_map(Value::as_table_mut);
                let is_it = |table: &&mut Table| name_of(table) == Some(name);
                tables.find(is_it).ok_or("the table is gone")?
            }
        };
        let (parents, last) = self.key.rsplit_once('.').unwrap_or(("", &self.key));
        let settings = self.policy.iter().flat_map(|policy| ["settings", policy]);
        for word in settings.chain(parents.split('.').filter(|word| !word.is_empty())) {
            let inner = place.entry(word).or_insert_with(|| Value::Table(Table::new()));
            // `keep_alive = "1h"` is short for a table with only that value.
            place = match inner {
                Value::Table(table) => table,
                _ => return Err(format!("{word} is no table in the file: set it as a whole")),
            };
        }
        place.insert(last.to_owned(), self.value.clone());
        Ok(())
    }
}

/// The table of this kind that is meant, and the text after its name.
fn named<'p>(kind: &str, rest: &'p str, file: &Table) -> Result<(String, &'p str), String> {
    let tables = file.get(kind).and_then(Value::as_array);
    let names: Vec<&str> = tables.into_iter().flatten().filter_map(|table| name_of(table.as_table()?)).collect();
    // A name may contain dots.
    let meant = names.iter().filter_map(|name| {
        let key = rest.strip_prefix(name)?.strip_prefix('.')?;
        Some((name.len(), (*name).to_owned(), key))
    });
    match meant.max_by_key(|(length, _, _)| *length) {
        Some((_, name, key)) => Ok((name, key)),
        None if names.is_empty() => Err(format!("{kind}.{rest}: the file has no [[{kind}]] with a name")),
        None => Err(format!("{kind}.{rest}: no [[{kind}]] of this name; there are {}", names.join(", "))),
    }
}

fn name_of(table: &Table) -> Option<&str> {
    table.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "backend = \"redis://h\"\n[[namespace]]\nname = \"a\"\nkeys = [\"a:*\"]\n\
                        [[namespace]]\nname = \"a.b\"\nkeys = [\"b:*\"]\n[namespace.settings.ttl-ceiling]\ndefault = \"5s\"\n";

    fn put(change: &str) -> Result<String, String> {
        changed(FILE, &[change]).map(|(text, _)| text)
    }

    #[test]
    fn a_change_is_put_where_its_path_says() {
        for (change, line) in [
            ("sweep=\"5m\"", "sweep = \"5m\""),
            ("namespace.a.hand_over = true", "hand_over = true"),
            ("namespace.a.b.mode=\"monitor\"", "mode = \"monitor\""),
            ("namespace.a.settings.owner-token.void_after_refusal=[]", "void_after_refusal = []"),
            ("namespace.a.b.settings.ttl-ceiling.default=\"9s\"", "default = \"9s\""),
        ] {
            let text = put(change).unwrap();
            assert!(text.lines().any(|said| said == line), "{change}: {text}");
        }
        let (text, typed) = changed(FILE, &["namespace.a.b.settings.ttl-ceiling.keep_alive.for=\"1h\""]).unwrap();
        assert!(text.contains("[namespace.settings.ttl-ceiling.keep_alive]\nfor = \"1h\""), "{text}");
        let [one] = &typed[..] else { panic!("{typed:?}") };
        assert_eq!(one.table, Some(("namespace".to_owned(), "a.b".to_owned())));
        assert_eq!((one.policy.as_deref(), &*one.key), (Some("ttl-ceiling"), "keep_alive.for"));
    }

    #[test]
    fn what_is_no_change_says_what_to_write() {
        for (change, said) in [
            ("hand_over", "write KEY=VALUE"),
            ("namespace.a.default=30s", "a text has quotes"),
            ("namespace.c.mode=\"monitor\"", "there are a, a.b"),
            ("guard.c.mode=\"monitor\"", "has no [[guard]]"),
            ("namespace.a.=1", "is no key"),
            ("sweep=1\nmode=2", "more than one value"),
        ] {
            let error = put(change).unwrap_err();
            assert!(error.contains(said), "{change}: {error}");
        }
    }
}
