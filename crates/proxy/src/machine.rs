//! Facts of this machine's network, read from `/proc` and `/sys`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The IPv4 addresses of this machine, except loopback.
#[must_use]
pub fn addresses() -> BTreeSet<Ipv4Addr> {
    local_addresses(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default())
}

/// The interface of the default route, and its maximum packet size.
#[must_use]
pub fn default_mtu() -> Option<u32> {
    let interface = default_interface(&std::fs::read_to_string("/proc/net/route").ok()?)?;
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

/// Addresses above a line `/32 host LOCAL`.
fn local_addresses(trie: &str) -> BTreeSet<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in trie.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => last = address.parse().ok(),
            None if line == "/32 host LOCAL" => found.extend(last.filter(|it| !it.is_loopback())),
            None => {}
        }
    }
    found
}

/// The first interface whose destination and mask are zero.
fn default_interface(routes: &str) -> Option<String> {
    routes.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_name = |it: &str| !it.contains('/') && it != "..";
        match fields.as_slice() {
            [interface, "00000000", _, _, _, _, _, "00000000", ..] if is_name(interface) => {
                Some((*interface).to_owned())
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_trie() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n\
            |-- 192.168.77.1\n        /32 host LOCAL\n     |-- 192.168.77.255\n        /32 link BROADCAST\nLocal:\n  |-- 192.168.77.1\n  /32 host LOCAL\n";
        assert_eq!(local_addresses(trie), BTreeSet::from([Ipv4Addr::new(192, 168, 77, 1)]));
    }

    #[test]
    fn default_interface_has_no_destination() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
            docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\neth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\n";
        assert_eq!(default_interface(routes), Some("eth0".to_owned()));
        assert_eq!(default_interface("Iface\n"), None);
    }
}
