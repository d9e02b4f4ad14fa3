//! Where clients connect: `listen`, and a `[[listener]]` for each further address. Opens nothing.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::finding::Place;
use super::keys::belongs_on_top;
use super::present::{self, Present};
use super::reader::{Reader, Section, key_table};
use super::suggest::quoted;
use super::value;
use super::value::AddressError;
use crate::net::unix_listener::MAX_PATH;

/// Listeners of one proxy.
const MAX_LISTENERS: usize = 16;

/// The default mode of a unix socket: its owner and group may connect. `unixsocketperm` is Redis's setting for this.
const DEFAULT_MODE: u32 = 0o770;

/// The prefix of a unix socket's path.
const UNIX: &str = "unix:";

key_table! { pub(super) KEYS =
    address: "\"unix:/run/lockwarden/redis.sock\"",
    tls: "true",
    mode: "\"0770\"",
    group: "\"www-data\"",
    present: "\"sentinel\"",
    advertise: "\"locks.corp:6390\"",
    names: "[\"mymaster\"]",
    peers: "[\"b.corp:26380\"]",
}

/// An address of the proxy's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// Port 0 asks the system for a free one.
    Tcp(SocketAddr),
    /// A unix socket, by its absolute path.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The IP address and port, if it has them.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Tcp(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// A group of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    Name(String),
    Number(u32),
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Name(name) => f.write_str(name),
            Group::Number(number) => number.fmt(f),
        }
    }
}

/// One address where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: ListenAddress,
    /// Clients have to speak TLS.
    pub tls: bool,
    /// Who may connect to a unix socket, as the mode of a file.
    pub mode: u32,
    /// The group of a unix socket; `None`: that of the proxy.
    pub group: Option<Group>,
    /// What clients find there, as of this listener.
    pub present: Present,
}

impl Listener {
    /// A listener at this address with default settings.
    pub fn at(address: ListenAddress) -> Listener {
        Listener { address, tls: false, mode: DEFAULT_MODE, group: None, present: Present::Standalone }
    }
}

/// Why a text is no listener's address.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("{} is a path; write \"unix:{text}\" for a unix socket", quoted(text))]
    Path { text: String },
    #[error("{} has no whole path; write one, as in \"unix:/run/lockwarden/redis.sock\"", quoted(.0))]
    Relative(String),
    #[error("{} has a path of {length} bytes; the system takes at most {MAX_PATH}", quoted(text))]
    Long { text: String, length: usize },
}

/// `127.0.0.1:6380`, or `unix:/run/lockwarden/redis.sock`.
pub(super) fn listen(text: &str) -> Result<ListenAddress, ListenError> {
    if text.starts_with('/') {
        return Err(ListenError::Path { text: text.to_owned() });
    }
    let Some(path) = text.strip_prefix(UNIX) else {
        return Ok(ListenAddress::Tcp(value::address(text)?));
    };
    let is_whole = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
    if !is_whole {
        return Err(ListenError::Relative(text.to_owned()));
    }
    if path.len() > MAX_PATH {
        return Err(ListenError::Long { text: text.to_owned(), length: path.len() });
    }
    Ok(ListenAddress::Unix(path.into()))
}

/// Such an address, or `off`.
pub(super) fn listen_or_off(text: &str) -> Result<Option<ListenAddress>, ListenError> {
    match text {
        "off" => Ok(None),
        _ => listen(text).map(Some),
    }
}

/// Reads every `[[listener]]` of the file, with its place; those with errors are left out.
pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Vec<(Listener, Place)> {
    reader.each_table(top, ("listener", KEYS), MAX_LISTENERS, one)
}

fn one(reader: &mut Reader<'_>, section: Section<'_, '_>) -> Option<(Listener, Place)> {
    let section = &section;
    let address = reader.parsed(section, "address", listen);
    let address = reader.required(section, "address", address);
    let tls = reader.boolean(section, "tls");
    let mode = reader.parsed(section, "mode", mode);
    let group = reader.parsed(section, "group", group);
    let is_unix = address.as_ref().is_some_and(|address| address.value.tcp().is_none());
    let present = present::read(reader, section, is_unix);
    reader.unknown_keys(section, belongs_on_top);
    let address = address?;
    if address.value.tcp().is_some() {
        let spans = [
            ("mode", mode.as_ref().map(|mode| mode.span.clone())),
            ("group", group.as_ref().map(|group| group.span.clone())),
        ];
        for (key, span) in spans {
            if let Some(span) = span {
                let scope = &section.scope;
                reader.error(span, || format!("{scope}{key}: only a unix socket has one; an IP address has none"));
            }
        }
    }
    let wants_tls = tls.as_ref().is_some_and(|tls| tls.value);
    if let (true, None, Some(tls)) = (wants_tls, address.value.tcp(), tls) {
        let scope = &section.scope;
        reader
            .error(tls.span, || format!("{scope}tls: a unix socket does not leave the machine, and is not encrypted"));
    }
    let listener = Listener {
        tls: wants_tls,
        mode: mode.map_or(DEFAULT_MODE, |mode| mode.value),
        group: group.map(|group| group.value),
        present,
        ..Listener::at(address.value)
    };
    Some((listener, reader.document.place(address.span)))
}

/// Why a text is not the mode of a socket.
#[derive(Debug, thiserror::Error)]
#[error("{} is not a mode; write three octal digits, as in \"0770\" or \"0666\"", quoted(.0))]
struct ModeError(String);

fn mode(text: &str) -> Result<u32, ModeError> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| is_octal && *mode <= 0o777).ok_or_else(|| ModeError(text.to_owned()))
}

/// Why a text is not a group.
#[derive(Debug, thiserror::Error)]
#[error("{} is not a group; write its name or number, as in \"www-data\"", quoted(.0))]
struct GroupError(String);

fn group(text: &str) -> Result<Group, GroupError> {
    if let Ok(number) = text.parse() {
        return Ok(Group::Number(number));
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b':' && byte != b'/';
    match (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        true => Ok(Group::Name(text.to_owned())),
        false => Err(GroupError(text.to_owned())),
    }
}

/// Whether any user may create files in this folder.
pub(super) fn is_open_to_all(folder: &Path) -> bool {
    const WRITABLE_FOR_OTHERS: u32 = 0o002;
    std::fs::metadata(folder).is_ok_and(|folder| folder.mode() & WRITABLE_FOR_OTHERS != 0)
}
