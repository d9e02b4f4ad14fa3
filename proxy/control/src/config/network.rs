//! Networks as operators write them: `10.0.0.0/8`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::IpAddr;

use super::suggest::quoted;

/// All addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether it contains this address. An IPv4 address that arrived over an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        cut(address.to_canonical(), self.bits) == Some(self.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits == most_bits(self.address) {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.bits),
        }
    }
}

/// Why a text is not a network.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error(
        "{} is no network; write an address and a number of bits, as in \"10.0.0.0/8\"",
        quoted(.0)
    )]
    Other(String),
    #[error(
        "{} has bits beyond its first {bits}; write \"{first}/{bits}\", or \"{address}\" for that address alone",
        quoted(text)
    )]
    BitsBeyond { text: String, bits: u8, first: IpAddr, address: IpAddr },
}

/// Parses one network.
pub(crate) fn network(text: &str) -> Result<Network, NetworkError> {
    let wrong = || NetworkError::Other(text.to_owned());
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let bits = match bits {
        Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().map_err(|_| wrong())?,
        Some(_) => return Err(wrong()),
        None => most_bits(address),
    };
    let first = cut(address, bits).ok_or_else(wrong)?;
    if first != address {
        return Err(NetworkError::BitsBeyond { text: text.to_owned(), bits, first, address });
    }
    Ok(Network { address, bits })
}

fn most_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The address with all bits cleared after the first `bits`; `None` if it has fewer bits.
fn cut(address: IpAddr, bits: u8) -> Option<IpAddr> {
    let behind = most_bits(address).checked_sub(bits)?;
    Some(match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(u32::from(behind)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(u32::from(behind)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        for (text, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "::1", true),
            ("::/0", "10.0.0.1", false),
        ] {
            let network = network(text).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{text} {address}");
        }
    }

    #[test]
    fn what_is_no_network_is_explained() {
        for text in ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/+8", "lan"] {
            assert_eq!(network(text), Err(NetworkError::Other(text.to_owned())));
        }
        let error = network("10.1.2.3/8").unwrap_err().to_string();
        assert!(error.contains("write \"10.0.0.0/8\", or \"10.1.2.3\""), "{error}");
    }
}
