//! The values in force, key by key, and the source of each: built in, the file with its line, an environment variable,
//! a flag, or an order while the proxy runs. Values are shown as TOML, as they were written; secrets are never shown.
//! This is for people only: the proxy itself uses [`super::Config`].

use std::collections::BTreeMap;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::backend;
use super::document::Document;
use super::finding::Place;
use super::guard::GUARD;
use super::keys::TOP_KEYS;
use super::namespace;
use super::policy;
use super::policy::BUILT_IN_POLICIES;
use super::reader::{Key, number};
use super::stage::Stage;

/// Shown instead of a secret value.
const HIDDEN: &str = "(hidden)";
/// Tables that exist at most once.
const TABLES: [&str; 3] = ["backend_login", "backend_tls", "tls"];
/// The longest value that is shown whole, in characters.
const MAX_VALUE: usize = 1_000;
/// The default chain of a namespace with rules.
const WITH_RULES: &str = "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"rules\"]";

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// None: it is the default.
    Default,
    /// The file, a variable or a flag.
    Place(Place),
    /// An operator's order, given after the configuration was read.
    Order,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Place(Place::File { path, position: Some(position) }) => {
                write!(f, "{}:{}", path.display(), position.line)
            }
            Origin::Place(place) => place.fmt(f),
            Origin::Order => f.write_str("order"),
        }
    }
}

/// One key and its value in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The table of the key, such as `namespace orders`; `None`: the top of the file.
    pub table: Option<String>,
    pub key: String,
    /// As TOML, or as words in parentheses.
    pub value: String,
    /// Whether the value equals the default.
    pub is_default: bool,
    pub origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    value: String,
    origin: Origin,
}

/// One table of the file, such as a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    kind: String,
    name: String,
    said: BTreeMap<String, Said>,
}

/// All values that were set, each from its last source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sayings {
    top: BTreeMap<String, Said>,
    tables: Vec<Table>,
}

impl Sayings {
    /// Records all values of the file.
    pub(super) fn in_file(&mut self, document: &Document<'_>, tree: &DeTable<'_>) {
        for (key, value) in tree {
            let name: &str = key.get_ref();
            let tables = match value.get_ref() {
                DeValue::Table(table) if TABLES.contains(&name) => {
                    self.tables.push(read(document, name, table));
                    continue;
                }
                DeValue::Array(items) => items.iter().map(|item| item.get_ref().as_table()),
                _ => {
                    self.top.insert(name.to_owned(), said(document, name, value));
                    continue;
                }
            };
            match tables.collect::<Option<Vec<_>>>() {
                Some(tables) if !tables.is_empty() => {
                    self.tables.extend(tables.into_iter().map(|table| read(document, name, table)))
                }
                Some(_) | None => {
                    self.top.insert(name.to_owned(), said(document, name, value));
                }
            }
        }
    }

    /// Records the value that a variable or flag sets for a key at the top.
    pub(super) fn put(&mut self, key: &str, text: &str, place: Place) {
        let value = match key {
            "backend" => url(text),
            "admin_token" | "backend_password_file" => HIDDEN.to_owned(),
            "allow_open" | "cluster_node" => matches!(text, "true" | "1").to_string(),
            _ => toml::Value::from(text).to_string(),
        };
        if key == "admin_token" {
            // The file's value no longer applies.
            self.top.remove("admin_token_file");
        }
        let origin = Origin::Place(place);
        self.top.insert(key.to_owned(), Said { value, origin });
    }

    /// Records the mode that a variable or flag sets for a namespace, or for `guard:NAME`, for all clients.
    pub(super) fn put_mode(&mut self, namespace: &str, mode: &str, place: Place) {
        self.switch(namespace, mode, Origin::Place(place));
    }

    /// Records the mode that an operator ordered for a namespace, or for `guard:NAME`, for all clients.
    pub fn order_mode(&mut self, namespace: &str, mode: &str) {
        self.switch(namespace, mode, Origin::Order);
    }

    /// Records the stage that an operator ordered for the `next` chain of this namespace.
    pub fn order_stage(&mut self, namespace: &str, stage: Stage) {
        let said = Said { value: format!("\"{stage}\""), origin: Origin::Order };
        self.table("namespace", namespace).said.insert("next.stage".to_owned(), said);
    }

    fn switch(&mut self, namespace: &str, mode: &str, origin: Origin) {
        let (kind, name) = match namespace.strip_prefix(GUARD) {
            Some(guard) => ("guard", guard),
            None => ("namespace", namespace),
        };
        let at = self.table(kind, name);
        at.said.remove("enforce_for");
        at.said.insert("mode".to_owned(), Said { value: format!("\"{mode}\""), origin });
    }

    fn table(&mut self, kind: &str, name: &str) -> &mut Table {
        let is_it = |table: &Table| table.kind == kind && table.name == name;
        let place = self.tables.iter().position(is_it).unwrap_or_else(|| {
            // The built-in namespace is in no file.
            self.tables.push(Table::new(kind, name));
            self.tables.len() - 1
        });
        &mut self.tables[place]
    }

    /// Every key with its value. `namespaces` are those in force.
    pub fn settings<'a>(&self, namespaces: impl Iterator<Item = &'a str>) -> Vec<Setting> {
        let mut all = Vec::new();
        fill(&mut all, None, TOP_KEYS, &self.top, |key| key.default);
        let mut rest: Vec<&Table> = self.tables.iter().collect();
        for name in namespaces {
            let is_it = |table: &&Table| table.kind == "namespace" && table.name == name;
            let empty;
            let table = match rest.iter().position(is_it) {
                Some(at) => rest.remove(at),
                None => {
                    empty = Table::new("namespace", name);
                    &empty
                }
            };
            let label = table.label();
            let durability = table.said.get("durability");
            let is_strict = durability.is_some_and(|said| said.value.starts_with("\"strict:"));
            let has_rules = table.said.keys().any(|key| key.starts_with("rule."));
            let default = |key: &Key| match key.name {
                // Rules add their policy to the chain.
                "policies" if has_rules => Some(WITH_RULES),
                "quarantine" if is_strict => Some("\"auto\""),
                _ => key.default,
            };
            fill(&mut all, Some(&label), namespace::KEYS, &table.said, default);
        }
        for table in rest {
            let keys = match &*table.kind {
                "policy" => policy::KEYS,
                _ => &[],
            };
            fill(&mut all, Some(&table.label()), keys, &table.said, |key| key.default);
        }
        all
    }
}

impl Table {
    fn new(kind: &str, name: &str) -> Table {
        Table { kind: kind.to_owned(), name: name.to_owned(), said: BTreeMap::new() }
    }

    fn label(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// The known keys of a table in their order, then other keys that were set.
fn fill(
    all: &mut Vec<Setting>,
    table: Option<&str>,
    keys: &[Key],
    said: &BTreeMap<String, Said>,
    default: impl Fn(&Key) -> Option<&'static str>,
) {
    let mut put = |key: &str, value: &str, origin: &Origin, default: Option<&str>| {
        all.push(Setting {
            table: table.map(str::to_owned),
            key: key.to_owned(),
            value: value.to_owned(),
            is_default: *origin == Origin::Default || default == Some(value),
            origin: origin.clone(),
        });
    };
    for key in keys {
        match (said.get(key.name), default(key)) {
            (Some(said), default) => put(key.name, &said.value, &said.origin, default),
            (None, Some(value)) => put(key.name, value, &Origin::Default, None),
            // A table, or a list of tables: its contents are listed separately.
            (None, None) => {}
        }
    }
    let is_other = |(name, _): &(&String, &Said)| keys.iter().all(|key| key.name != **name);
    for (name, said) in said.iter().filter(is_other) {
        put(name, &said.value, &said.origin, None);
    }
}

fn said(document: &Document<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Said {
    let text = match (key, value.get_ref()) {
        ("admin_token", _) => HIDDEN.to_owned(),
        // Its arguments may be secrets.
        ("password_command", DeValue::Array(words)) => match words.first().map(Spanned::get_ref) {
            Some(DeValue::String(program)) => {
                format!("{} (and {} hidden)", toml(&DeValue::String(program.clone())), words.len() - 1)
            }
            Some(_) | None => HIDDEN.to_owned(),
        },
        ("backend", DeValue::String(text)) => url(text),
        // A client that knows such a name can use it.
        ("admin_identities", DeValue::Array(names)) if !names.is_empty() => {
            format!("({} hidden)", names.len())
        }
        (_, value) => toml(value).to_string(),
    };
    Said { value: shortened(text), origin: Origin::Place(document.place(value.span())) }
}

fn shortened(text: String) -> String {
    match text.chars().count() > MAX_VALUE {
        true => text.chars().take(MAX_VALUE).chain(['…']).collect(),
        false => text,
    }
}

fn read(document: &Document<'_>, kind: &str, table: &DeTable<'_>) -> Table {
    let named = table.get("name").map(Spanned::get_ref);
    let name = named.and_then(DeValue::as_str);
    let address = table.get("address").map(|address| address.get_ref());
    let user = table.get("user").map(|user| user.get_ref());
    let name = name.or(address.and_then(DeValue::as_str));
    let name = match kind {
        "backend_login" | "sentinel" => user.and_then(DeValue::as_str).unwrap_or("default"),
        "user_map" => user.and_then(DeValue::as_str).unwrap_or("?"),
        "tls" | "backend_tls" => "",
        _ => name.unwrap_or("?"),
    };
    let mut read = Table::new(kind, name);
    put_all(&mut read, document, "", table);
    read
}

/// Records the values of a table, with `before` as a prefix of each key. Inner tables become part of the key names.
fn put_all(read: &mut Table, document: &Document<'_>, before: &str, table: &DeTable<'_>) {
    for (key, value) in table {
        let key: &str = key.get_ref();
        match value.get_ref() {
            // It is part of the table's title.
            _ if key == "name" => {}
            DeValue::Table(next) if key == "next" => put_all(read, document, "next.", next),
            DeValue::Array(rules) if key == "rule" => {
                for (index, rule) in rules.iter().enumerate() {
                    let Some(rule) = rule.get_ref().as_table() else {
                        continue;
                    };
                    let name = rule.get("name").and_then(|name| name.get_ref().as_str()).map(str::to_owned);
                    let name = name.unwrap_or_else(|| format!("#{}", index + 1));
                    for (key, value) in rule {
                        let key: &str = key.get_ref();
                        if key != "name" {
                            read.said.insert(format!("{before}rule.{name}.{key}"), said(document, "", value));
                        }
                    }
                }
            }
            DeValue::Table(policies) if key == "settings" => {
                for (policy, settings) in policies {
                    let policy: &str = policy.get_ref();
                    let settings = settings.get_ref().as_table().into_iter().flatten();
                    for (setting, value) in settings {
                        let mut said = said(document, "", value);
                        // Settings of policies that do not ship with the proxy may be secret.
                        if !BUILT_IN_POLICIES.contains(&policy) {
                            said.value = HIDDEN.to_owned();
                        }
                        let key = format!("{before}settings.{policy}.{}", setting.get_ref());
                        read.said.insert(key, said);
                    }
                }
            }
            _ => {
                read.said.insert(format!("{before}{key}"), said(document, key, value));
            }
        }
    }
}

/// The URL without its password.
fn url(text: &str) -> String {
    match backend::backend(text) {
        Ok(backend) => toml::Value::from(backend.to_string()).to_string(),
        Err(_) => HIDDEN.to_owned(),
    }
}

fn toml(value: &DeValue<'_>) -> toml::Value {
    match value {
        DeValue::String(text) => toml::Value::String(text.to_string()),
        DeValue::Integer(integer) => {
            let found = number(integer).and_then(|number| i64::try_from(number).ok());
            found.map_or_else(|| integer.to_string().into(), toml::Value::Integer)
        }
        DeValue::Float(float) => {
            let found = float.as_str().parse().ok();
            found.map_or_else(|| float.to_string().into(), toml::Value::Float)
        }
        DeValue::Boolean(boolean) => toml::Value::Boolean(*boolean),
        DeValue::Datetime(time) => toml::Value::Datetime(*time),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| toml(item.get_ref()));
            toml::Value::Array(items.collect())
        }
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| {
                let key: &str = key.get_ref();
                (key.to_owned(), toml(value.get_ref()))
            });
            toml::Value::Table(entries.collect())
        }
    }
}
