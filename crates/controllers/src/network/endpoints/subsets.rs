//! The addresses and ports of an `Endpoints`, in the one layout that comparisons can rely on.
//!
//! Ports that are offered by the same addresses share a subset. Follows `RepackSubsets` in Kubernetes
//! `pkg/api/v1/endpoints/util.go`.

use std::collections::BTreeMap;

use api::json::{Object, Value};

use crate::network::services;

/// An address: its IP, and the pod behind it.
type AddressKey = (String, String);
/// Addresses that offer a port, and their readiness.
type Offer = BTreeMap<AddressKey, bool>;

/// Subsets in the making.
#[derive(Debug, Default)]
pub(crate) struct Subsets {
    addresses: BTreeMap<AddressKey, Value>,
    /// By the port as text, so that equal ports meet; empty for no port.
    ports: BTreeMap<String, (Option<Value>, Offer)>,
}

impl Subsets {
    /// Adds an address at a port. An address that is added both as ready and as not ready counts as not ready.
    pub(crate) fn add(&mut self, address: &Value, port: Option<&Value>, ready: bool) {
        let text = |path: &[&str]| address.text_at(path).to_owned();
        let key = (text(&["ip"]), text(&["targetRef", "uid"]));
        self.addresses.entry(key.clone()).or_insert_with(|| address.clone());
        let (_, offer) = self
            .ports
            .entry(port.map(api::json::to_string).unwrap_or_default())
            .or_insert_with(|| (port.cloned(), Offer::new()));
        let known = offer.entry(key).or_insert(true);
        *known = *known && ready;
    }

    /// Adds the subsets of a document.
    pub(crate) fn add_document(&mut self, subsets: Option<&Value>) {
        for subset in subsets.and_then(Value::as_array).unwrap_or_default() {
            let list = |field| subset.get(field).and_then(Value::as_array).unwrap_or_default();
            for (field, ready) in [("addresses", true), ("notReadyAddresses", false)] {
                for address in list(field) {
                    if list("ports").is_empty() {
                        self.add(address, None, ready);
                    }
                    for port in list("ports") {
                        self.add(address, Some(port), ready);
                    }
                }
            }
        }
    }

    /// The list as documents hold it.
    pub(crate) fn pack(self) -> Vec<Value> {
        let mut by_offer: BTreeMap<Offer, Vec<Value>> = BTreeMap::new();
        for (port, offer) in self.ports.into_values() {
            by_offer.entry(offer).or_default().extend(port);
        }
        let mut packed = Vec::with_capacity(by_offer.len());
        for (offer, mut ports) in by_offer {
            services::sort_ports(&mut ports, false);
            let with = |ready: bool| -> Vec<Value> {
                let keys = offer.iter().filter(|(_, it)| **it == ready).map(|(key, _)| key);
                keys.filter_map(|key| self.addresses.get(key)).cloned().collect()
            };
            let mut subset = Object::new();
            for (field, list) in [("addresses", with(true)), ("notReadyAddresses", with(false)), ("ports", ports)] {
                if !list.is_empty() {
                    subset.insert(field, list);
                }
            }
            packed.push(Value::Object(subset));
        }
        packed
    }
}

/// Keeps at most `max` addresses, ready ones first, in proportion to the subsets; returns whether some were
/// removed.
pub(crate) fn truncate(subsets: &mut [Value], max: usize) -> bool {
    let count = |subset: &Value, field: &str| subset.get(field).and_then(Value::as_array).map_or(0, <[Value]>::len);
    let total = |field: &str| subsets.iter().map(|subset| count(subset, field)).fold(0_usize, usize::saturating_add);
    let (ready, unready) = (total("addresses"), total("notReadyAddresses"));
    if ready.saturating_add(unready) <= max {
        return false;
    }
    let (field, of, room) =
        if ready > max { ("addresses", ready, max) } else { ("notReadyAddresses", unready, max.saturating_sub(ready)) };
    let mut left = room;
    for subset in subsets {
        let share = count(subset, field).saturating_mul(room).div_ceil(of.max(1)).min(left);
        left = left.saturating_sub(share.min(count(subset, field)));
        let Some(fields) = subset.as_object_mut() else { continue };
        if let Some(list) = fields.get_mut(field).and_then(Value::as_array_mut) {
            list.truncate(share);
        }
        if field == "addresses" {
            fields.remove("notReadyAddresses");
        }
        fields.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_same_addresses_share_a_subset() {
        let address = |ip: &str| api::json!({"ip": ip});
        let (a, b) = (api::json!({"name": "a", "port": 1}), api::json!({"name": "b", "port": 2}));
        let mut subsets = Subsets::default();
        for ip in ["10.0.0.2", "10.0.0.1"] {
            subsets.add(&address(ip), Some(&a), true);
            subsets.add(&address(ip), Some(&b), true);
        }
        subsets.add(&address("10.0.0.3"), None, false);
        let packed = subsets.pack();
        assert_eq!(packed.len(), 2);
        let both = packed.iter().find(|it| it.get("ports").is_some()).expect("a subset with ports");
        assert_eq!(both.get("addresses"), Some(&api::json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}])));
        assert_eq!(both.get("ports").and_then(Value::as_array).map(<[Value]>::len), Some(2));
        let mut again = Subsets::default();
        again.add_document(Some(&Value::Array(packed.clone())));
        assert_eq!(again.pack(), packed);
    }

    #[test]
    fn too_many_lose_the_unready_first() {
        let addresses =
            |count: i32| -> Vec<Value> { (0..count).map(|n| api::json!({"ip": (n.to_string())})).collect() };
        let (four, three) = (addresses(4), addresses(3));
        let make = || vec![api::json!({"addresses": (four.clone()), "notReadyAddresses": (three.clone())})];
        let mut subsets = make();
        assert!(!truncate(&mut subsets, 7));
        assert!(truncate(&mut subsets, 5));
        assert_eq!(subsets[0].get("notReadyAddresses").and_then(Value::as_array).map(<[Value]>::len), Some(1));
        let mut subsets = make();
        assert!(truncate(&mut subsets, 2));
        assert_eq!(subsets, [api::json!({"addresses": (addresses(2))})]);
    }
}
