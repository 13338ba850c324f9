//! The endpoints of one Service, from all of its slices.
//!
//! A change of a slice costs time in proportion to that slice, not to the Service: a Service may have 100,000 endpoints in 1,000
//! slices. Reads are bounded by the number of records that an answer may have.

use locks::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use api::json::Text;

use super::objects::{Endpoint, Port, Slice};

/// Addresses in order, each with the number of endpoints that have it. Readers start one address further each time.
#[derive(Debug)]
struct Addresses<A> {
    counts: BTreeMap<A, u32>,
    next: Mutex<Option<A>>,
}

// Addresses themselves have no default.
impl<A> Default for Addresses<A> {
    fn default() -> Self {
        Self { counts: BTreeMap::new(), next: Mutex::new(None) }
    }
}

impl<A: Ord + Copy> Addresses<A> {
    fn add(&mut self, address: A) {
        let count = self.counts.entry(address).or_default();
        *count = count.saturating_add(1);
    }

    fn remove(&mut self, address: A) {
        if let Some(count) = self.counts.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&address);
            }
        }
    }

    fn rotated(&self, limit: usize) -> Vec<A> {
        let mut next = self.next.lock();
        let first = *next;
        let (later, earlier) = match first {
            Some(first) => (self.counts.range(first..), Some(self.counts.range(..first))),
            None => (self.counts.range(..), None),
        };
        let all = later.chain(earlier.into_iter().flatten()).map(|(address, _)| *address);
        let taken: Vec<A> = all.take(limit).collect();
        *next = taken.get(1).or(taken.first()).copied();
        taken
    }
}

/// Ready endpoints of one Service.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    slices: BTreeMap<Text, Arc<Slice>>,
    v4: Addresses<Ipv4Addr>,
    v6: Addresses<Ipv6Addr>,
    /// By host and address: the number of endpoints.
    hosts: BTreeMap<(Text, IpAddr), u32>,
}

impl Endpoints {
    /// Replaces a slice, and returns the previous one.
    pub(super) fn set(&mut self, name: &str, slice: Option<Arc<Slice>>) -> Option<Arc<Slice>> {
        let previous = match &slice {
            Some(slice) => self.slices.insert(name.into(), slice.clone()),
            None => self.slices.remove(name),
        };
        for endpoint in slice.iter().flat_map(|slice| &slice.endpoints) {
            match endpoint.address {
                IpAddr::V4(address) => self.v4.add(address),
                IpAddr::V6(address) => self.v6.add(address),
            }
            let count = self.hosts.entry((endpoint.host.clone(), endpoint.address)).or_default();
            *count = count.saturating_add(1);
        }
        for endpoint in previous.iter().flat_map(|slice| &slice.endpoints) {
            match endpoint.address {
                IpAddr::V4(address) => self.v4.remove(address),
                IpAddr::V6(address) => self.v6.remove(address),
            }
            let key = (endpoint.host.clone(), endpoint.address);
            if let Some(count) = self.hosts.get_mut(&key) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.hosts.remove(&key);
                }
            }
        }
        previous
    }

    /// Whether there is no slice.
    pub(super) fn is_unused(&self) -> bool {
        self.slices.is_empty()
    }

    /// Whether no endpoint is ready.
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// At most `limit` IPv4 addresses.
    pub(super) fn v4(&self, limit: usize) -> Vec<IpAddr> {
        self.v4.rotated(limit).into_iter().map(IpAddr::V4).collect()
    }

    /// At most `limit` IPv6 addresses.
    pub(super) fn v6(&self, limit: usize) -> Vec<IpAddr> {
        self.v6.rotated(limit).into_iter().map(IpAddr::V6).collect()
    }

    /// The addresses of a host.
    pub(super) fn of_host<'a>(&'a self, host: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
        let first = (Text::from(host), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let from = self.hosts.range(first..);
        from.take_while(move |((name, _), _)| name == host).map(|((_, address), _)| *address)
    }

    /// Endpoints with their ports, slice by slice.
    pub(super) fn with_ports(&self) -> impl Iterator<Item = (&Endpoint, &Port)> {
        self.slices.values().flat_map(|slice| {
            slice.endpoints.iter().flat_map(|endpoint| slice.ports.iter().map(move |port| (endpoint, port)))
        })
    }
}
