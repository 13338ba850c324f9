//! Load balancers without machines: Services of type `LoadBalancer` get an address of a range.
//!
//! Runs only with simulated nodes. One worker, so that no address is assigned twice. Services with a
//! `loadBalancerClass` belong to other controllers. Follows the status that Kubernetes' `service-controller`
//! writes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Service;
use api::json::Value;
use client::Document;
use client::controller::{Controller, Next, own};
use client::informer::{Informer, Key};
use client::resources::ServedView as _;

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::outcome;
use crate::manager::Context;

/// The component of its events.
const COMPONENT: &str = "simulated-load-balancers";
/// Delay before a Service without an address is reconciled again: another may have released one.
const FULL: Duration = Duration::from_secs(10);

/// Addresses for load balancers: a network, or the first and the last address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: u32,
    last: u32,
}

/// A text that is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of IPv4 addresses, such as 198.51.100.0/24 or 10.0.0.10-10.0.0.99")]
pub struct RangeError(String);

impl FromStr for AddressRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let error = || RangeError(text.to_owned());
        let address = |text: &str| text.trim().parse::<Ipv4Addr>().map(u32::from).map_err(|_| error());
        if let Some((first, last)) = text.split_once('-') {
            let range = Self { first: address(first)?, last: address(last)? };
            return if range.first <= range.last { Ok(range) } else { Err(error()) };
        }
        let (network, length) = text.split_once('/').ok_or_else(error)?;
        let length = length.parse::<u32>().ok().filter(|it| *it <= 32).ok_or_else(error)?;
        let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
        let network = address(network)? & !hosts;
        let all = Self { first: network, last: network | hosts };
        // The first and the last address of a network are no host's.
        Ok(if length < 31 {
            Self { first: all.first.saturating_add(1), last: all.last.saturating_sub(1) }
        } else {
            all
        })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", Ipv4Addr::from(self.first), Ipv4Addr::from(self.last))
    }
}

impl AddressRange {
    fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&u32::from(address))
    }

    /// The lowest address that is not taken.
    fn free(self, taken: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        (self.first..=self.last).map(Ipv4Addr::from).find(|it| !taken.contains(it))
    }
}

struct LoadBalancers {
    services: Informer<Document<Service>>,
    executor: Executor,
    range: AddressRange,
}

/// Runs the controller until shutdown, if there is a range of addresses.
pub async fn run(context: Context) {
    let Some(range) = context.settings.load_balancers else { return };
    let services = context.informers.all::<Document<Service>>();
    let executor = Executor::new(COMPONENT, context.client.clone(), context.refusals.clone());
    executor.expectations().follow(&services, &Service::RESOURCE.plural);
    let runner = Controller::new(COMPONENT, &context.runtime).watch(&services, own);
    let controller = Arc::new(LoadBalancers { services, executor, range });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

impl LoadBalancers {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(service) = self.services.store().get_key(&key) else { return Ok(Next::Done) };
        // The addresses of all Services must be known, also those that were written a moment ago: one key for all.
        let all = Key::new("", COMPONENT);
        if !self.executor.settled(&all) {
            return Ok(Next::After(UNSETTLED));
        }
        let taken = || {
            let others = self.services.store().list();
            let others = others.iter().filter(|it| it.metadata.uid != service.metadata.uid);
            others.flat_map(|it| addresses(it.value())).collect()
        };
        let actions = decide(service.value(), &client::events::reference(&**service), self.range, taken);
        let is_full = matches!(actions.as_slice(), [Action::Event(_)]);
        match outcome::next(self.executor.perform(&all, actions).await)? {
            Next::Done if is_full => Ok(Next::After(FULL)),
            next => Ok(next),
        }
    }
}

/// The addresses that a Service has.
fn addresses(service: &Value) -> Vec<Ipv4Addr> {
    let ingress = service.list_at(&["status", "loadBalancer", "ingress"]);
    ingress.iter().filter_map(|it| it.str_at(&["ip"])?.parse().ok()).collect()
}

/// Assigns an address to a Service that needs one, and releases that of a Service that is no longer a load
/// balancer.
fn decide(
    service: &Value,
    about: &api::core::v1::ObjectReference,
    range: AddressRange,
    taken: impl FnOnce() -> BTreeSet<Ipv4Addr>,
) -> Vec<Action> {
    let is_balancer = service.str_at(&["spec", "type"]) == Some("LoadBalancer");
    let is_others = service.at(&["spec", "loadBalancerClass"]).is_some();
    let own = addresses(service);
    let write = |ingress: Option<Value>| {
        let mut object = service.clone();
        let status = ingress.map_or_else(Value::object, |ingress| api::json!({"ingress": [ingress]}));
        object.set_at(&["status", "loadBalancer"], status);
        Action::UpdateStatus { resource: Service::RESOURCE, object }
    };
    if is_others || service.at(&["metadata", "deletionTimestamp"]).is_some() {
        return Vec::new();
    }
    if !is_balancer {
        let was_given = own.iter().any(|it| range.contains(*it));
        return if was_given { vec![write(None)] } else { Vec::new() };
    }
    if !own.is_empty() {
        return Vec::new();
    }
    let taken = taken();
    let wished = service.str_at(&["spec", "loadBalancerIP"]).filter(|it| !it.is_empty());
    let found = match wished {
        Some(text) => text.parse().ok().filter(|it| range.contains(*it) && !taken.contains(it)),
        None => range.free(&taken),
    };
    match found {
        Some(address) => {
            let given = format!("Assigned address {address}");
            let ingress = api::json!({"ip": (address.to_string()), "ipMode": "VIP"});
            vec![write(Some(ingress)), Action::normal(about, "EnsuredLoadBalancer", given)]
        }
        None => {
            let what = wished.map_or_else(|| "no address".to_owned(), |it| format!("address {it} is not"));
            let message = format!("Error syncing load balancer: {what} free in {range}");
            vec![Action::warning(about, "SyncLoadBalancerFailed", message)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddressRange {
        text.parse().expect("a range")
    }

    #[test]
    fn ranges_are_networks_or_pairs_of_addresses() {
        assert_eq!(range("198.51.100.7/24").to_string(), "198.51.100.1-198.51.100.254");
        assert_eq!(range("10.0.0.4/32").to_string(), "10.0.0.4-10.0.0.4");
        assert_eq!(range("10.0.0.9-10.0.0.10").to_string(), "10.0.0.9-10.0.0.10");
        for odd in ["", "10.0.0.1", "10.0.0.0/33", "10.0.0.9-10.0.0.1", "::/64", "a-b"] {
            assert!(odd.parse::<AddressRange>().is_err(), "{odd}");
        }
    }

    #[track_caller]
    fn check(service: Value, taken: &[&str], expected: &str) {
        let taken = taken.iter().map(|it| it.parse().expect("an address")).collect();
        let actions = decide(&service, &Default::default(), range("10.0.0.1-10.0.0.2"), || taken);
        let said: Vec<String> = actions
            .iter()
            .map(|action| match action {
                Action::UpdateStatus { object, .. } => format!("{:?}", addresses(object)),
                Action::Event(event) => event.message.clone(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(said.join("; "), expected);
    }

    #[test]
    fn load_balancers_get_the_lowest_free_address() {
        let balancer = api::json!({"spec": {"type": "LoadBalancer"}});
        check(balancer.clone(), &[], "[10.0.0.1]; Assigned address 10.0.0.1");
        check(balancer.clone(), &["10.0.0.1"], "[10.0.0.2]; Assigned address 10.0.0.2");
        let full = "Error syncing load balancer: no address free in 10.0.0.1-10.0.0.2";
        check(balancer, &["10.0.0.1", "10.0.0.2"], full);
        let wish = |address: &str| api::json!({"spec": {"type": "LoadBalancer", "loadBalancerIP": address}});
        check(wish("10.0.0.2"), &[], "[10.0.0.2]; Assigned address 10.0.0.2");
        let elsewhere = "Error syncing load balancer: address 10.9.9.9 is not free in 10.0.0.1-10.0.0.2";
        check(wish("10.9.9.9"), &[], elsewhere);
    }

    #[test]
    fn other_services_are_left_alone() {
        check(api::json!({"spec": {"type": "ClusterIP"}}), &[], "");
        check(api::json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "x"}}), &[], "");
        let status = api::json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
        check(api::json!({"spec": {"type": "LoadBalancer"}, "status": (status.clone())}), &[], "");
        check(api::json!({"spec": {"type": "ClusterIP"}, "status": status}), &[], "[]");
        let foreign = api::json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        check(api::json!({"spec": {"type": "ClusterIP"}, "status": foreign}), &[], "");
    }
}
