//! IPv4 networks and transport protocols.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An IPv4 network, such as `10.244.0.0/16`. Bits beyond the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: Ipv4Addr,
    prefix: u8,
}

/// A text that is not an IPv4 network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an IPv4 network, such as 10.244.0.0/16")]
pub struct NetworkError(String);

impl Network {
    /// The network of this length that contains an address; `None` if the length exceeds 32.
    #[must_use]
    pub fn new(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        let hosts = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
        (prefix <= 32).then(|| Self { address: Ipv4Addr::from(u32::from(address) & !hosts), prefix })
    }

    /// The first address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The length of the prefix in bits.
    #[must_use]
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// The first address of hosts, which bridges of pod networks have; `None` if the network has no second address.
    #[must_use]
    pub fn gateway(self) -> Option<Ipv4Addr> {
        let first = self.address.to_bits().checked_add(1).map(Ipv4Addr::from_bits)?;
        self.contains(first).then_some(first)
    }

    /// Whether an address is in the network.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        Self::new(address, self.prefix) == Some(self)
    }

    /// Whether the network is `0.0.0.0/0`.
    #[must_use]
    pub fn is_everything(self) -> bool {
        self.prefix == 0
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let is_number = !prefix.is_empty() && prefix.bytes().all(|it| it.is_ascii_digit());
            Self::new(address.parse().ok()?, prefix.parse().ok().filter(|_| is_number)?)
        });
        parsed.ok_or_else(|| NetworkError(text.to_owned()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// A transport protocol of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// `TCP`, also if a port names none.
    Tcp,
    /// `UDP`.
    Udp,
    /// `SCTP`.
    Sctp,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// The protocol of this name in the API; an empty name is TCP.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "TCP" | "" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }

    /// The name in nftables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_parsed_strictly() {
        let network: Network = "10.244.3.7/16".parse().unwrap();
        assert_eq!(network.to_string(), "10.244.0.0/16");
        assert!(network.contains(Ipv4Addr::new(10, 244, 255, 255)) && !network.contains(Ipv4Addr::new(10, 245, 0, 0)));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().is_everything());
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0/8", "fd00::/8", "10.0.0.0/8 }", "/8", "1.2.3.4/"]
        {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
