//! Addresses that users name and the server connects to: those of nodes and pods.

use std::net::{IpAddr, Ipv4Addr};

/// Whether the server may connect to an address that a Node or Pod names. One of its own machine or link would give
/// authors of these objects access to services that only the server can reach.
#[must_use]
pub fn is_allowed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            !(it.is_loopback()
                || it.is_link_local()
                || it.is_unspecified()
                || it.is_multicast()
                || it == Ipv4Addr::BROADCAST)
        }
        IpAddr::V6(it) => match it.to_ipv4_mapped() {
            Some(mapped) => is_allowed(IpAddr::V4(mapped)),
            None => !(it.is_loopback() || it.is_unicast_link_local() || it.is_unspecified() || it.is_multicast()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_machine_and_of_metadata_services_are_refused() {
        for bad in [
            "127.0.0.1",
            "127.1.2.3",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::",
        ] {
            assert!(!is_allowed(bad.parse().unwrap()), "{bad}");
        }
        for good in ["10.0.0.1", "192.168.1.2", "2001:db8::1"] {
            assert!(is_allowed(good.parse().unwrap()), "{good}");
        }
    }
}
