//! The audit trail: what is recorded, where, and what happens if recording fails. Reads and checks those keys at the
//! top of the file; `docs/audit.md` explains them.

use std::path::{Path, PathBuf};

use super::reader::{Found, Reader, Section};
use super::secret::Secret;
use super::suggest::quoted;
use super::value;

/// Smaller files would be rotated for a handful of records.
const MIN_FILE_BYTES: usize = 64 * 1024;
const MAX_FILE_BYTES: usize = 1 << 40;
const DEFAULT_SIZE: u64 = 64 << 20;

/// Full files that are kept beside the current one.
const MAX_KEPT: u64 = 1000;
const DEFAULT_KEPT: u32 = 5;

const LEVELS: [(&str, AuditLevel); 3] =
    [("off", AuditLevel::Off), ("problems", AuditLevel::Problems), ("all", AuditLevel::All)];

/// When a file is full, and how many full ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in one file; `None`: it is never rotated.
    pub(crate) max_size: Option<u64>,
    /// Full files that are kept beside the current one.
    pub(crate) keep: u32,
}

/// What is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLevel {
    /// Nothing.
    Off,
    /// Commands that were changed or refused, would have been, or failed.
    #[default]
    Problems,
    /// Every decision, with everything that the policies saw.
    All,
}

impl AuditLevel {
    /// Every level.
    pub(crate) const ALL: [AuditLevel; 3] = [AuditLevel::Off, AuditLevel::Problems, AuditLevel::All];

    /// The word in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            AuditLevel::Off => "off",
            AuditLevel::Problems => "problems",
            AuditLevel::All => "all",
        }
    }
}

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    /// This file.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

/// The audit trail as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// What is recorded.
    pub(crate) level: AuditLevel,
    /// The target; `None`: records are written nowhere.
    pub target: Option<AuditTarget>,
    /// When a file is full, and how many are kept.
    pub(crate) limits: Limits,
    /// Lock commands are refused while records cannot be written. Set only with a target and a level.
    pub required: bool,
    /// When every decision is recorded: for which percentage of connections, 1 to 100. For the others, problems are
    /// recorded.
    pub(crate) questions: u8,
    /// With this key, fingerprints of owner tokens are the same in every proxy.
    pub key: Option<Secret>,
}

impl Default for AuditConfig {
    fn default() -> AuditConfig {
        AuditConfig {
            level: AuditLevel::default(),
            target: None,
            limits: Limits { max_size: Some(DEFAULT_SIZE), keep: DEFAULT_KEPT },
            required: false,
            questions: 100,
            key: None,
        }
    }
}

/// Reads the keys at the top of the file. The fingerprint key is a secret, which `file` reads.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> AuditConfig {
    let mut audit = AuditConfig::default();
    let level = reader.choice(top, "audit", &LEVELS);
    audit.level = level.unwrap_or(audit.level);
    let document = reader.document;
    let target = reader.parsed(top, "audit_file", |text| match text {
        "" => Err("is empty; name a file, or \"-\" for standard output"),
        "-" | "stdout" => Ok(AuditTarget::Stdout),
        path => Ok(AuditTarget::File(document.beside(Path::new(path)))),
    });
    audit.target = target.map(|found| found.value);
    let size = reader.parsed(top, "audit_max_size", |text| match text {
        "off" => Ok(None),
        _ => value::size(text, MIN_FILE_BYTES..=MAX_FILE_BYTES).map(|size| Some(size as u64)),
    });
    if let Some(size) = size {
        audit.limits.max_size = size.value;
    }
    if let Some(keep) = reader.integer(top, "audit_keep", 1..=MAX_KEPT) {
        audit.limits.keep = u32::try_from(keep.value).unwrap_or(DEFAULT_KEPT);
    }
    let share = reader.parsed(top, "audit_questions", share);
    audit.questions = share.as_ref().map_or(audit.questions, |found| found.value);
    let is_part = |found: &Found<u8>| found.value < 100;
    if let (Some(found), AuditLevel::Off | AuditLevel::Problems) = (share.filter(is_part), audit.level) {
        let message = "audit_questions: it is a share of what audit = \"all\" records, and audit is another";
        reader.warning(found.span, message.to_owned());
    }
    let required = reader.boolean(top, "audit_required");
    if let Some(required) = required {
        audit.required = required.value;
        let nowhere = !top.table.contains_key("audit_file");
        let why = match audit.level {
            _ if !required.value => None,
            AuditLevel::Off => Some("audit = \"off\" records nothing, so every lock command would be refused"),
            AuditLevel::Problems | AuditLevel::All if nowhere => Some("there is no audit_file to write to; name one"),
            AuditLevel::Problems | AuditLevel::All => None,
        };
        if let Some(why) = why {
            reader.error(required.span, || format!("audit_required: {why}"));
        }
    }
    if let (Some(value), None, AuditLevel::All) = (top.table.get("audit"), &audit.target, audit.level)
        && !top.table.contains_key("audit_file")
    {
        let message = "audit: nothing is written, because there is no audit_file; name one";
        reader.warning(value.span(), message.to_owned());
    }
    audit
}

/// Why a text is no share.
#[derive(Debug, thiserror::Error)]
#[error("{} is no share of the connections; write \"2%\", up to \"100%\"", quoted(.0))]
struct ShareError(String);

fn share(text: &str) -> Result<u8, ShareError> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
    percent.filter(|percent| (1..=100).contains(percent)).ok_or_else(|| ShareError(text.to_owned()))
}
