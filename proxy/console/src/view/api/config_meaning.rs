//! `GET /api/v1/meaning`: the meaning of the configuration in force for locks, so that proxies can be compared.

use lockwarden_control::config::{Meaning, Says, short_digest};
use serde::{Deserialize, Serialize};

/// The longest value that is shown in full, bytes.
const MAX_VALUE: usize = 1_000;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigMeaning {
    /// The same as in `lockwarden_config_info`.
    pub hash: String,
    pub says: Vec<Saying>,
}

/// One key and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saying {
    /// Its table, such as `namespace orders`; `None`: the top of the file.
    pub table: Option<String>,
    pub key: String,
    /// In one spelling; a digest replaces a hidden value, and follows the beginning of a long one.
    pub value: String,
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
