//! The author's description of a policy, in a section of its module: read without running anything, shown, and never
//! trusted. Next: `packaging.rs`, which writes it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use wasmparser::{Parser, Payload};

use crate::error::one_line;

/// The section's name.
const SECTION: &str = "lockwarden:policy";

/// The largest section that is read.
const MAX_BYTES: usize = 64 << 10;

/// The most sample keys of a policy; beyond that only the first ones are used.
const MAX_SAMPLES: usize = 8;

/// The only format so far; later ones will contain everything that this one has.
const FORM: u32 = 1;

/// The author's description of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Its version, as numbered by its author.
    pub version: String,
    /// Its purpose, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The contact for questions about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// What it needs beyond the usual limits.
    #[serde(default, skip_serializing_if = "NeededLimits::is_usual")]
    pub limits: NeededLimits,
    /// The settings that it knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingInfo>,
    /// Keys about which it is asked when a configuration with it is loaded: some that it permits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<String>,
}

/// A setting that a policy knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingInfo {
    /// Its name.
    pub name: String,
    /// The type of its value.
    #[serde(rename = "type")]
    pub kind: SettingKind,
    /// Whether it is required.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// The value if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The minimum of a number or a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<String>,
    /// The maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// The words of a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Its meaning, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingKind {
    /// Any text.
    Text,
    /// A whole number.
    Number,
    /// A whole number and a unit, such as `5s`.
    Duration,
    /// `true` or `false`.
    YesNo,
    /// One of some words.
    Choice,
    /// Texts.
    List,
}

impl SettingKind {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            SettingKind::Text => "text",
            SettingKind::Number => "number",
            SettingKind::Duration => "duration",
            SettingKind::YesNo => "yes-no",
            SettingKind::Choice => "choice",
            SettingKind::List => "list",
        }
    }

    /// A number, or a duration in milliseconds; `None` if the text is neither, and for all other types.
    fn quantity(self, text: &str) -> Option<i128> {
        // The longer unit comes first: `5ms` also ends with the shorter one.
        const UNITS: [(&str, i128); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
        match self {
            SettingKind::Number => match text.strip_prefix('-') {
                Some(text) => digits(text).map(|number| -i128::from(number)),
                None => digits(text).map(i128::from),
            },
            SettingKind::Duration => {
                UNITS.iter().find_map(|(unit, ms)| Some(i128::from(digits(text.strip_suffix(unit)?)?) * ms))
            }
            SettingKind::Text | SettingKind::YesNo | SettingKind::Choice | SettingKind::List => None,
        }
    }
}

/// The limits that its `[[policy]]` must set; `None` means the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeededLimits {
    /// Linear memory, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<usize>,
    /// Of one decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Of one decision, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

impl NeededLimits {
    fn is_usual(&self) -> bool {
        *self == NeededLimits::default()
    }
}

/// The section in its written form.
#[derive(Serialize, Deserialize)]
struct Section<'a> {
    v: u32,
    #[serde(flatten)]
    metadata: Cow<'a, Metadata>,
}

impl Metadata {
    /// Reads the description in a module or component; `None` if there is none.
    ///
    /// # Errors
    /// Why the section that is there cannot be read, in a line.
    pub fn read(module: &[u8]) -> Result<Option<Metadata>, String> {
        let payloads = Parser::new(0).parse_all(module).map_while(Result::ok);
        let sections = payloads.filter_map(|payload| match payload {
            Payload::CustomSection(section) if section.name() == SECTION => Some(section.data()),
            _ => None,
        });
        // A section that was appended later is newer.
        let Some(text) = sections.last() else {
            return Ok(None);
        };
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes, of which {MAX_BYTES} are read", text.len()));
        }
        let section: Section<'_> = serde_json::from_slice(text).map_err(|error| one_line(&error.to_string()))?;
        match section.v {
            FORM => Ok(Some(section.metadata.into_owned().in_lines())),
            other => Err(format!("it has form {other}, and this lockwarden reads form {FORM}")),
        }
    }

    /// What is wrong with settings according to the author's list of settings; nothing if there is no such list.
    pub(crate) fn objections(&self, settings: &[(String, String)]) -> Vec<String> {
        if self.settings.is_empty() {
            return Vec::new();
        }
        let known: Vec<&str> = self.settings.iter().map(|info| &*info.name).collect();
        let named = |name: &str| self.settings.iter().find(|info| info.name == name);
        let given = settings.iter().filter_map(|(name, value)| match named(name) {
            None => Some(format!("{name}: no such setting, there are {}", known.join(", "))),
            Some(info) => Some(format!("{name} = {value:?}: {}", info.objection(value)?)),
        });
        let is_missing = |info: &&SettingInfo| info.required && settings.iter().all(|(name, _)| *name != info.name);
        let missing = self.settings.iter().filter(is_missing).map(|info| match &info.text {
            Some(text) => format!("{} has to be set: {text}", info.name),
            None => format!("{} has to be set", info.name),
        });
        given.chain(missing).collect()
    }

    /// Appends the section to a module or component.
    ///
    /// # Errors
    /// If it is longer than what is read.
    pub(crate) fn append_to(&self, module: &mut Vec<u8>) -> Result<(), String> {
        let section = Section { v: FORM, metadata: Cow::Borrowed(self) };
        let text = serde_json::to_vec(&section).map_err(|error| error.to_string())?;
        if text.len() > MAX_BYTES {
            return Err(format!("what is told of it has more than {MAX_BYTES} bytes"));
        }
        let mut body = Vec::with_capacity(text.len() + SECTION.len() + 1);
        put_bytes(&mut body, SECTION.as_bytes());
        body.extend_from_slice(&text);
        // A custom section.
        module.push(0);
        put_bytes(module, &body);
        Ok(())
    }

    /// Converts texts of a file to lines that can be shown.
    fn in_lines(self) -> Metadata {
        Metadata {
            name: one_line(&self.name),
            version: one_line(&self.version),
            summary: self.summary.as_deref().map(one_line),
            author: self.author.as_deref().map(one_line),
            limits: self.limits,
            settings: self.settings.into_iter().map(SettingInfo::in_lines).collect(),
            samples: self.samples.into_iter().take(MAX_SAMPLES).collect(),
        }
    }
}

impl SettingInfo {
    /// A contradiction in the author's description of a setting, if any.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        let bounds = [("min", &self.min), ("max", &self.max)].into_iter();
        let mut bounds = bounds.filter_map(|(name, bound)| Some((name, bound.as_deref()?)));
        let of_no_use = bounds.find(|(_, bound)| self.kind.quantity(bound).is_none());
        let default =
            || self.default.as_ref().and_then(|default| Some(("default", &**default, self.objection(default)?)));
        match of_no_use {
            Some((name, bound)) => Some(format!("{name} = {bound:?} is no {}", self.kind.word())),
            None => default().map(|(name, default, objection)| format!("{name} = {default:?}: {objection}")),
        }
    }

    /// What is wrong with a value, if anything.
    fn objection(&self, value: &str) -> Option<String> {
        let of = |bound: &Option<String>| {
            bound.as_deref().and_then(|bound| Some((self.kind.quantity(bound)?, bound.to_owned())))
        };
        let form = match self.kind {
            SettingKind::Text | SettingKind::List => return None,
            SettingKind::Number | SettingKind::Duration => match self.kind.quantity(value) {
                Some(is) => match (of(&self.min), of(&self.max)) {
                    (Some((least, text)), _) if is < least => format!("{text} at least"),
                    (_, Some((most, text))) if is > most => format!("{text} at most"),
                    _ => return None,
                },
                None if self.kind == SettingKind::Number => "a whole number".to_owned(),
                None => "a whole number and a unit, such as 5s".to_owned(),
            },
            SettingKind::YesNo if ["true", "false"].contains(&value) => return None,
            SettingKind::YesNo => "true or false".to_owned(),
            SettingKind::Choice if self.choices.iter().any(|choice| choice == value) => return None,
            SettingKind::Choice => self.choices.join(" or "),
        };
        Some(format!("write {form}"))
    }

    fn in_lines(self) -> SettingInfo {
        SettingInfo {
            name: one_line(&self.name),
            kind: self.kind,
            required: self.required,
            default: self.default.as_deref().map(one_line),
            min: self.min.as_deref().map(one_line),
            max: self.max.as_deref().map(one_line),
            choices: self.choices.iter().map(|choice| one_line(choice)).collect(),
            text: self.text.as_deref().map(one_line),
        }
    }
}

/// Bytes preceded by their length, which WebAssembly encodes as LEB128.
fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes.len();
    loop {
        let low = u8::try_from(rest & 0x7f).unwrap_or(0x7f);
        rest >>= 7;
        to.push(if rest == 0 { low } else { low | 0x80 });
        if rest == 0 {
            break;
        }
    }
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_MODULE: &[u8] = b"\0asm\x01\0\0\0";

    fn with(text: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        put_bytes(&mut body, SECTION.as_bytes());
        body.extend_from_slice(text);
        let mut module = EMPTY_MODULE.to_vec();
        module.push(0);
        put_bytes(&mut module, &body);
        module
    }

    #[test]
    fn what_is_written_is_read() {
        let metadata = Metadata {
            name: "team".to_owned(),
            version: "1.2.0".to_owned(),
            summary: Some("s".repeat(300)),
            limits: NeededLimits { fuel: Some(5_000_000), ..NeededLimits::default() },
            ..Metadata::default()
        };
        for module in [EMPTY_MODULE, b"\0asm\x0d\0\x01\0"] {
            let mut module = module.to_vec();
            assert_eq!(Metadata::read(&module), Ok(None));
            metadata.append_to(&mut module).unwrap();
            let read = Metadata::read(&module).unwrap().unwrap();
            assert_eq!((read.name, read.version, read.limits), ("team".into(), "1.2.0".into(), metadata.limits));
            wasmparser::validate(&module).unwrap();
        }
    }

    #[test]
    fn settings_are_compared_with_what_is_said_of_them() {
        let info = |name: &str, kind, required| SettingInfo {
            name: name.to_owned(),
            kind,
            required,
            default: None,
            min: (kind == SettingKind::Duration).then(|| "5ms".to_owned()),
            max: (kind == SettingKind::Number).then(|| "1000".to_owned()),
            choices: vec!["soft".to_owned(), "hard".to_owned()],
            text: None,
        };
        let metadata = Metadata {
            settings: vec![
                info("teams", SettingKind::List, true),
                info("most", SettingKind::Number, false),
                info("for", SettingKind::Duration, false),
                info("how", SettingKind::Choice, false),
                info("loud", SettingKind::YesNo, false),
            ],
            ..Metadata::default()
        };
        let objections = |settings: &[(&str, &str)]| {
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            metadata.objections(&settings.collect::<Vec<_>>())
        };
        let good = [("teams", "a,b"), ("most", "-5"), ("for", "5ms"), ("how", "hard"), ("loud", "true")];
        assert_eq!(objections(&good), Vec::<String>::new());
        assert_eq!(Metadata::default().objections(&[("x".to_owned(), String::new())]), Vec::<String>::new());
        let beyond = [("teams", ""), ("most", "1001"), ("for", "4ms")];
        assert_eq!(objections(&beyond), ["most = \"1001\": write 1000 at most", "for = \"4ms\": write 5ms at least"]);
        let bad = [("tems", ""), ("most", "5s"), ("for", "5"), ("how", "often"), ("loud", "yes")];
        assert_eq!(
            objections(&bad),
            [
                "tems: no such setting, there are teams, most, for, how, loud",
                "most = \"5s\": write a whole number",
                "for = \"5\": write a whole number and a unit, such as 5s",
                "how = \"often\": write soft or hard",
                "loud = \"yes\": write true or false",
                "teams has to be set",
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_is_said_in_a_line() {
        for (text, words) in [
            (&b"{"[..], "EOF while parsing"),
            (b"\xff", "expected value"),
            (br#"{"v":2,"name":"x","version":"1"}"#, "it has form 2, and this lockwarden reads form 1"),
            (br#"{"v":1,"name":"x"}"#, "missing field `version`"),
            (&[b' '; MAX_BYTES + 1], "it has 65537 bytes, of which 65536 are read"),
        ] {
            let error = Metadata::read(&with(text)).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
        // A truncated section is invalid, and additions of later versions are skipped.
        let whole = with(br#"{"v":1,"name":"a\nb","version":"1","colour":"red"}"#);
        for length in 0..whole.len() {
            assert!(Metadata::read(&whole[..length]).is_ok_and(|read| read.is_none()), "{length}");
        }
        assert_eq!(Metadata::read(&whole).unwrap().unwrap().name, "a b");
    }
}
