//! The kernel's table of all TCP sockets as text. Reading it costs time for every socket of the whole machine,
//! including those in TIME-WAIT: it is used only if a single socket cannot be asked for.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use super::pair::Pair;

/// The longest table that is read, in bytes: some 400,000 sockets.
const MAX_TABLE: u64 = 64 << 20;

/// The inodes of these clients' sockets, as far as they exist.
pub(super) fn inodes(pairs: &HashSet<Pair>) -> HashMap<Pair, u64> {
    let mut inodes = HashMap::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let mut text = String::new();
        let read = fs::File::open(table).and_then(|file| file.take(MAX_TABLE).read_to_string(&mut text));
        if read.is_ok() {
            let rows = text.lines().skip(1).filter_map(socket);
            inodes.extend(rows.filter(|(pair, _)| pairs.contains(pair)));
        }
    }
    inodes
}

/// Both ends and the inode, from the row of the client's socket in the table; `None` for a socket that belongs to no
/// process any more.
fn socket(row: &str) -> Option<(Pair, u64)> {
    let mut words = row.split_ascii_whitespace().skip(1);
    let client = address(words.next()?)?;
    let local = address(words.next()?)?;
    let inode = words.nth(6)?.parse().ok().filter(|inode| *inode != 0)?;
    Some((Pair::new(client, local), inode))
}

/// An address as the kernel writes it: words of four bytes in the machine's own order, in hex.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match address.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            IpAddr::from(bytes)
        }
        _ => return None,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_kernels_table_is_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        let row = "   3: 0100007F:1F90 0200007F:0016 01 00000000:00000000 00:00000000 00000000  1000        0 40212 1 0000000000000000 20 4 30 10 -1";
        let parse = |text: &str| text.parse().unwrap();
        let pair = Pair::new(parse("127.0.0.1:8080"), parse("127.0.0.2:22"));
        assert_eq!(socket(row), Some((pair, 40212)));
        let mapped = address("0000000000000000FFFF00000100007F:1F90");
        assert_eq!(mapped, Some(parse("127.0.0.1:8080")));
        assert_eq!(address("00000000000000000000000001000000:0001"), Some(parse("[::1]:1")));
        for bad in ["", "x", "0100007F", "0100007:1", "é100007F:1F90", "0100007F:12345"] {
            assert_eq!(address(bad), None, "{bad}");
        }
        assert_eq!(socket("  sl  local_address rem_address"), None);
    }
}
