//! Addresses of pods: a network of 254 addresses for each node, by the node's number in the fleet.
//!
//! Addresses are simulated as the containers are: nothing answers at them.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use api::json::Text;

/// The address of the node with this number in the fleet.
#[must_use]
pub fn of_node(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(u32::MAX) & 0x3f_ffff;
    // 10.64.0.0/10, without its first address.
    Ipv4Addr::from_bits(0x0a40_0001_u32.saturating_add(number))
}

/// The number of the node with this address; nothing for addresses that are not those of simulated nodes.
#[must_use]
pub fn number_of(address: &str) -> Option<usize> {
    let number = address.parse::<Ipv4Addr>().ok()?.to_bits().checked_sub(0x0a40_0001)?;
    (number <= 0x3f_ffff).then(|| usize::try_from(number).ok()).flatten()
}

/// The addresses of the pods of one node.
#[derive(Debug)]
pub struct PodAddresses {
    /// `10.128.0.0/9` in parts of 256.
    network: u32,
    /// Pods by the last byte of their address.
    taken: HashMap<u8, Text>,
    /// Start of the search, so that an address is not reused at once.
    next: u8,
}

impl PodAddresses {
    /// The addresses of the node with this number in the fleet.
    #[must_use]
    pub fn new(number: usize) -> Self {
        let number = u32::try_from(number).unwrap_or(u32::MAX) & 0x7fff;
        Self { network: 0x0a80_0000 | number << 8, taken: HashMap::new(), next: 1 }
    }

    /// Returns the address of a pod: the one in its status, if that is free and ours, or else a free one.
    /// `None` if all are in use.
    pub fn take(&mut self, uid: &Text, wanted: &str) -> Option<Ipv4Addr> {
        let wanted = wanted.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits);
        let wanted = wanted.filter(|bits| bits & !0xff == self.network).map(|bits| bits.to_be_bytes()[3]);
        let mine = self.taken.iter().find(|(_, holder)| *holder == uid).map(|(last, _)| *last);
        let free = |last: &u8| (1..=254).contains(last) && !self.taken.contains_key(last);
        let from_next = (self.next..=254).chain(1..self.next);
        let last = mine.or_else(|| wanted.into_iter().chain(from_next).find(free))?;
        self.taken.insert(last, uid.clone());
        self.next = if last >= 254 { 1 } else { last.saturating_add(1) };
        Some(Ipv4Addr::from_bits(self.network | u32::from(last)))
    }

    /// Releases a pod's address.
    pub fn give_back(&mut self, uid: &str) {
        self.taken.retain(|_, holder| holder != uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_keeps_its_address_and_no_two_share_one() {
        let mut addresses = PodAddresses::new(258);
        let first = addresses.take(&"a".into(), "").unwrap();
        assert_eq!(first, Ipv4Addr::new(10, 129, 2, 1));
        assert_eq!(addresses.take(&"a".into(), ""), Some(first));
        assert_eq!(addresses.take(&"b".into(), "10.129.2.7"), Some(Ipv4Addr::new(10, 129, 2, 7)));
        assert_eq!(addresses.take(&"c".into(), "10.129.2.7"), Some(Ipv4Addr::new(10, 129, 2, 8)));
        assert_eq!(addresses.take(&"d".into(), "192.168.0.1"), Some(Ipv4Addr::new(10, 129, 2, 9)));
        addresses.give_back("b");
        for number in 0..251 {
            assert!(addresses.take(&number.to_string().into(), "").is_some(), "{number}");
        }
        assert_eq!(addresses.take(&"x".into(), ""), None);
    }

    #[test]
    fn nodes_have_addresses_of_their_own() {
        assert_eq!(of_node(0), Ipv4Addr::new(10, 64, 0, 1));
        assert_eq!(number_of("10.64.19.137"), Some(5000));
        assert_eq!((number_of("10.64.0.0"), number_of("192.168.0.1"), number_of("")), (None, None, None));
        assert_eq!(of_node(5000), Ipv4Addr::new(10, 64, 19, 137));
    }
}
