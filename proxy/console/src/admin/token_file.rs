//! Stores the generated admin token of a running proxy for commands on the same machine: in a file that only its user can read,
//! in a directory that is lost when the machine stops. A configured token is only where its operator put it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lockwarden_control::config;
use lockwarden_control::config::Secret;

use super::token::AdminToken;

/// Mode bits that give others access to a file, and those that let them create files in a directory.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// The token file of a running proxy. Removed with it, unless another proxy has written its own token there.
pub struct TokenFile {
    path: PathBuf,
    token: AdminToken,
}

impl TokenFile {
    /// Writes the token of the proxy with this admin address into the first suitable directory.
    ///
    /// # Errors
    /// Returns why the last of the directories was not suitable.
    pub fn write(admin: SocketAddr, token: &AdminToken) -> io::Result<TokenFile> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for directory in directories() {
            match write(&directory, &name(admin), token.reveal()) {
                Ok(path) => {
                    let token = token.clone();
                    return Ok(TokenFile { path, token });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // A proxy that took over the address has put its own token there.
        let is_ours =
            fs::read(&self.path).is_ok_and(|text| text.strip_suffix(b"\n") == Some(self.token.reveal().as_bytes()));
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The generated token of the proxy that serves this admin address on this machine, if there is one.
pub fn read(host: &str, port: u16) -> Option<Secret> {
    let hosts: Vec<IpAddr> = match host.parse() {
        Ok(address) => vec![address],
        Err(_) if host == "localhost" => {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        }
        Err(_) => return None,
    };
    let names = hosts.iter().map(|&host| name(SocketAddr::new(host, port)));
    let files = names.flat_map(|name| {
        let directories = directories().into_iter();
        directories.map(move |directory| directory.join(&name))
    });
    // A killed proxy leaves its file behind; the running one has written later.
    let written = |file: &PathBuf| fs::metadata(file).and_then(|found| found.modified()).ok();
    let newest = files.filter(|file| is_private(file)).max_by_key(written)?;
    config::admin_token_in(&newest).ok()
}

fn name(admin: SocketAddr) -> String {
    format!("admin-token-{admin}")
}

/// The directories for such a file: the service manager's, the session's, the system's, and our own below the temporary
/// directory.
fn directories() -> Vec<PathBuf> {
    let user = user();
    let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    // A service may have several, separated by colons.
    let service = named("RUNTIME_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    let session = named("XDG_RUNTIME_DIR").map(|directory| Path::new(&directory).join("lockwarden"));
    let of_user = Path::new("/run/user").join(user.to_string());
    let own = std::env::temp_dir().join(format!("lockwarden-{user}"));
    [service, session, Some(of_user.join("lockwarden")), Some(PathBuf::from("/run/lockwarden")), Some(own)]
        .into_iter()
        .flatten()
        .collect()
}

fn write(directory: &Path, name: &str, token: &str) -> io::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // Does not follow a link: in a directory that all may write, another user could have put one there.
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() || !is_mine(&found) || found.mode() & OTHERS_WRITE != 0 {
        let text = format!("{} is not a directory of ours alone", directory.display());
        return Err(io::Error::other(text));
    }
    let path = directory.join(name);
    // Written beside it and renamed: no reader sees half a token, and no reader of an old file gets the new token.
    let fresh = directory.join(format!("{name}.{}", std::process::id()));
    let mut file = private_file(&fresh)?;
    file.write_all(format!("{token}\n").as_bytes())?;
    fs::rename(&fresh, &path)?;
    Ok(path)
}

fn private_file(path: &Path) -> io::Result<File> {
    // A leftover of a process with the same id; `create_new` never opens another user's file.
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Whether only its owner can read it, and the owner is this user; root also reads the files of services.
fn is_private(file: &Path) -> bool {
    fs::symlink_metadata(file)
        .is_ok_and(|found| found.is_file() && (is_mine(&found) || user() == 0) && found.mode() & OTHERS == 0)
}

fn is_mine(found: &fs::Metadata) -> bool {
    found.uid() == user()
}

fn user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn token() -> AdminToken {
        AdminToken::generate().unwrap()
    }

    #[test]
    fn a_token_is_kept_in_a_private_file_and_in_no_directory_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("own");
        let path = write(&own, "admin-token-x", "secret").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"secret\n");
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(is_private(&path));

        // An existing file is replaced as a whole, with its permissions.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!is_private(&path));
        write(&own, "admin-token-x", "next").unwrap();
        assert!(is_private(&path));

        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(write(&own, "admin-token-y", "secret").is_err());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(write(&link, "admin-token-y", "secret").is_err());
    }

    #[test]
    fn the_file_of_a_proxy_that_ends_stays_where_another_has_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let file = || {
            let token = token();
            let path = write(directory.path(), "admin-token-x", token.reveal()).unwrap();
            TokenFile { path, token }
        };
        let first = file();
        let path = first.path().to_owned();
        let second = file();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
