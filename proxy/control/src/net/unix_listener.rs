//! A unix socket by which clients come in. No client can connect before it has its mode and group. A file at its path
//! is replaced only if it is a socket without a listener. Another process takes it over by putting its own socket in
//! its place, in one step; clients in the old socket's queue are still accepted there.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::listener::{Arrival, BACKLOG};

/// The longest path, in bytes: `sun_path` of unix(7) has 108, with the final NUL.
pub(crate) const MAX_PATH: usize = 107;

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The mode of the file: processes that may write to it may connect.
    pub mode: u32,
    /// The group's number; `None`: this process's group.
    pub group: Option<u32>,
}

/// A unix socket that is reserved for us, and not open yet.
#[derive(Debug)]
pub struct UnixEndpoint {
    socket: Socket,
    file: SocketFile,
    path: PathBuf,
    arrival: Arrival,
}

/// The file of a socket, which is removed with this value.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A process that has taken the path over has a different file there.
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == (self.device, self.inode));
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl UnixEndpoint {
    /// Makes the socket, at which no client can connect yet. A path with a listener is an error, unless it is to be
    /// taken over; a path with anything else is always an error.
    pub fn reserve(path: &Path, access: Access, arrival: Arrival) -> io::Result<UnixEndpoint> {
        let arrival = match (occupant(path)?, arrival) {
            (Occupant::Nobody, _) => Arrival::Alone,
            (Occupant::Abandoned, _) => {
                fs::remove_file(path)?;
                Arrival::Alone
            }
            (Occupant::Somebody, Arrival::TakingOver) => Arrival::TakingOver,
            (Occupant::Somebody, Arrival::Alone) => return Err(io::ErrorKind::AddrInUse.into()),
            (Occupant::OtherFile, _) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is a file of that name that is no socket; remove it, or choose another path",
                ));
            }
        };
        let made = match arrival {
            Arrival::Alone => path.to_owned(),
            Arrival::TakingOver => beside(path),
        };
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(&made)?)?;
        let there = fs::symlink_metadata(&made)?;
        let file = SocketFile { path: made.clone(), device: there.dev(), inode: there.ino() };
        // Until `listen` each connect is refused, so the mode at creation does not matter.
        if let Some(group) = access.group {
            chown(&made, None, Some(group))?;
        }
        fs::set_permissions(&made, fs::Permissions::from_mode(access.mode))?;
        Ok(UnixEndpoint { socket, file, path: path.to_owned(), arrival })
    }

    /// Whether another process still has it.
    pub fn is_taken_over(&self) -> bool {
        self.arrival == Arrival::TakingOver
    }

    /// Opens it for clients. If it is taken over, all new connections come to this process.
    pub fn open(mut self) -> io::Result<(UnixListener, SocketFile)> {
        self.socket.listen(BACKLOG)?;
        if self.is_taken_over() {
            fs::rename(&self.file.path, &self.path)?;
            self.file.path = self.path;
        }
        Ok((self.socket.into(), self.file))
    }
}

/// What exists at a path.
enum Occupant {
    Nobody,
    /// A socket whose process has ended.
    Abandoned,
    /// A socket with a listener.
    Somebody,
    OtherFile,
}

fn occupant(path: &Path) -> io::Result<Occupant> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nobody),
        Err(error) => return Err(error),
        Ok(there) if !there.file_type().is_socket() => return Ok(Occupant::OtherFile),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Occupant::Abandoned),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Occupant::Nobody),
        // A listener is possible and must not be disturbed: this process may not be allowed to connect, or the queue is
        // full.
        Err(_) | Ok(_) => Ok(Occupant::Somebody),
    }
}

/// A temporary name in the same folder, so that the file can be moved to its path in one step.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(std::process::id().to_string());
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: Access = Access { mode: 0o600, group: None };

    fn open(path: &Path, arrival: Arrival) -> io::Result<(UnixListener, SocketFile)> {
        UnixEndpoint::reserve(path, ACCESS, arrival)?.open()
    }

    #[test]
    fn nobody_connects_before_it_is_open_and_its_file_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("redis.sock");
        let endpoint = UnixEndpoint::reserve(&path, ACCESS, Arrival::Alone).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = UnixStream::connect(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let (listener, file) = endpoint.open().unwrap();
        UnixStream::connect(&path).unwrap();
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_in_use_is_an_error_and_one_that_was_left_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("redis.sock");
        let first = open(&path, Arrival::Alone).unwrap();
        let error = open(&path, Arrival::Alone).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        let (listener, file) = first;
        // As a killed process leaves it.
        std::mem::forget(file);
        drop(listener);
        assert!(path.exists());
        let second = open(&path, Arrival::Alone).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(second);
    }

    #[test]
    fn what_is_no_socket_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "precious").unwrap();
        for arrival in [Arrival::Alone, Arrival::TakingOver] {
            let error = open(&path, arrival).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn who_takes_over_gets_every_newcomer_and_keeps_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("redis.sock");
        let (first, first_file) = open(&path, Arrival::Alone).unwrap();
        let _early = UnixStream::connect(&path).unwrap();
        let endpoint = UnixEndpoint::reserve(&path, ACCESS, Arrival::TakingOver).unwrap();
        assert!(endpoint.is_taken_over());
        let (second, _file) = endpoint.open().unwrap();
        let _late = UnixStream::connect(&path).unwrap();
        second.accept().unwrap();
        // The earlier client, and the connection that checked for a listener.
        first.accept().unwrap();
        first.accept().unwrap();
        assert_eq!(first.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((first, first_file));
        assert!(path.exists());
        let _later = UnixStream::connect(&path).unwrap();
        second.accept().unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
