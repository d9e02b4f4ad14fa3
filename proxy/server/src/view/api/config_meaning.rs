//! `GET /api/v1/meaning`: what the configuration in force means for locks, so that proxies can be compared.

use serde::{Deserialize, Serialize};

use crate::config::{Meaning, Says, short_digest};

/// The longest value that is told whole, bytes.
const MAX_VALUE: usize = 1_000;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigMeaning {
    /// As `lockwarden_config_info` has it.
    pub(crate) hash: String,
    pub(crate) says: Vec<Saying>,
}

/// One key and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Saying {
    /// The table that it is in, such as `namespace orders`; `None`: the top of the file.
    pub(crate) table: Option<String>,
    pub(crate) key: String,
    /// In one spelling; in place of a hidden one, and behind the beginning of a long one, a digest of it.
    pub(crate) value: String,
}

impl From<&Meaning> for ConfigMeaning {
    fn from(meaning: &Meaning) -> ConfigMeaning {
        ConfigMeaning { hash: meaning.hash().to_owned(), says: meaning.says().iter().map(Saying::from).collect() }
    }
}

impl From<&Says> for Saying {
    fn from(says: &Says) -> Saying {
        let Says { table, key, value, is_hidden } = says;
        let shown = match (is_hidden, value.len() > MAX_VALUE) {
            (true, _) => format!("(hidden, sha256 {})", short_digest(value)),
            (false, true) => {
                let end = value.floor_char_boundary(MAX_VALUE);
                format!("{}… (sha256 {})", &value[..end], short_digest(value))
            }
            (false, false) => value.clone(),
        };
        Saying { table: table.clone(), key: key.clone(), value: shown }
    }
}
