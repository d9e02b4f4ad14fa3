//! The inodes of clients' sockets: the kernel is asked for each by its addresses, and if the system does not allow
//! that, it is looked for in the table of all.

use std::collections::{HashMap, HashSet};

use super::cache;
use super::pair::Pair;
use super::sock_diag::{Answer, Diag};

/// How the kernel is asked for one socket.
#[derive(Default)]
enum Way {
    /// Not open: not tried yet, or it failed. A try costs one call.
    #[default]
    Closed,
    /// Open. Until one socket was found this way, a socket that is reported missing may still be there: a kernel
    /// without the module reports that of every socket.
    Unproven(Diag),
    Proven(Diag),
    /// It missed a socket that is in the table. Every try would make such a kernel look for its module again.
    Useless,
}

#[derive(Default)]
pub(super) struct Inodes {
    way: Way,
}

impl Inodes {
    /// The inodes of these clients' sockets. A connection that is closed already has none.
    pub(super) fn of(&mut self, pairs: &[Pair]) -> HashMap<Pair, u64> {
        let mut inodes = HashMap::new();
        let mut doubtful = HashSet::new();
        let mut can_ask = true;
        for pair in pairs {
            let answer = if can_ask { self.ask(pair) } else { None };
            can_ask = answer.is_some();
            match answer {
                Some(Answer::Inode(inode)) => {
                    inodes.insert(*pair, inode);
                }
                Some(Answer::Nobodys) => {}
                Some(Answer::NotThere) if matches!(self.way, Way::Proven(_)) => {}
                Some(Answer::NotThere) | None => {
                    doubtful.insert(*pair);
                }
            }
        }
        if !doubtful.is_empty() {
            let listed = cache::inodes(&doubtful);
            if matches!(self.way, Way::Unproven(_)) && !listed.is_empty() {
                tracing::debug!("this kernel is not asked for single sockets: it has no inet_diag");
                self.way = Way::Useless;
            }
            inodes.extend(listed);
        }
        inodes
    }

    /// `None` if the kernel cannot be asked.
    fn ask(&mut self, pair: &Pair) -> Option<Answer> {
        let (mut diag, was_proven) = match std::mem::take(&mut self.way) {
            Way::Closed => match Diag::open() {
                Ok(diag) => (diag, false),
                Err(error) => {
                    tracing::debug!(%error, "cannot ask the kernel for single sockets");
                    return None;
                }
            },
            Way::Unproven(diag) => (diag, false),
            Way::Proven(diag) => (diag, true),
            Way::Useless => {
                self.way = Way::Useless;
                return None;
            }
        };
        match diag.ask(pair) {
            Ok(answer) => {
                self.way =
                    if was_proven || answer != Answer::NotThere { Way::Proven(diag) } else { Way::Unproven(diag) };
                Some(answer)
            }
            Err(error) => {
                tracing::debug!(%error, "the kernel did not tell about a socket");
                None
            }
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_table_is_read_where_the_kernel_does_not_tell() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let pair = Pair::new(client.local_addr().unwrap(), client.peer_addr().unwrap());
        let expected = Inodes::default().of(&[pair]);
        assert!(expected.contains_key(&pair));

        // "No such file or directory" is what a kernel says that does not have the module.
        let (diag, _kernel) = Diag::of_a_kernel_that_says(-2);
        let way = Way::Unproven(diag);
        let mut inodes = Inodes { way };
        assert_eq!(inodes.of(&[pair]), expected);
        assert!(matches!(inodes.way, Way::Useless));
        assert_eq!(inodes.of(&[pair]), expected);
        assert!(matches!(inodes.way, Way::Useless));

        // A kernel that told before is believed.
        let (diag, _kernel) = Diag::of_a_kernel_that_says(-2);
        let way = Way::Proven(diag);
        let mut inodes = Inodes { way };
        assert!(inodes.of(&[pair]).is_empty());

        // "Operation not permitted", and then no answer: asked again another time.
        let (diag, kernel) = Diag::of_a_kernel_that_says(-1);
        let way = Way::Proven(diag);
        let mut inodes = Inodes { way };
        assert_eq!(inodes.of(&[pair, pair]), expected);
        assert!(matches!(inodes.way, Way::Closed));
        drop(kernel);
        assert_eq!(inodes.of(&[pair]), expected);
        assert!(matches!(inodes.way, Way::Proven(_)));
    }
}
