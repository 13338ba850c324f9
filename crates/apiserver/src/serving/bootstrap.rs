//! Default objects of every cluster: namespaces, the service of the API, roles and bindings, priority classes,
//! the levels and schemas of flow control.
//!
//! The objects are data. What exists is left alone, so that changes of an administrator stay.

use api::json::{self, Value};
use api::time::Timestamp;
use store::{Outcome, Store, Write};
use telemetry::logs::chain;
use tracing::warn;

use crate::flow_control::objects;
use crate::initial_objects::{self, SERVER};
use crate::objects::services::{self, AddressRange};
use crate::resources::{self, Resource, RuntimeConfig};
use crate::serving::api_services;
use api::metadata;
use cache::stored;

/// Objects for a fleet of simulated nodes: it reads under one identity, and writes as the respective node.
const NODE_FLEET: &str = include_str!("../../data/node_fleet.json");
/// Permissions of bootstrap tokens: they create certificate requests, and anyone reads `cluster-info`.
const BOOTSTRAP_TOKENS: &str = include_str!("../../data/bootstrap_tokens.json");

/// The role that reads `metrics.k8s.io`, as metrics-server has it.
const RESOURCE_METRICS: &str = include_str!("../../data/resource_metrics.json");

/// Group and resource of each list, in the order in which they are made.
const LISTS: [&Resource<'static>; 9] = [
    resources::NAMESPACES,
    resources::SERVICES,
    resources::PRIORITY_CLASSES,
    resources::CLUSTER_ROLES,
    resources::CLUSTER_ROLE_BINDINGS,
    resources::ROLES,
    resources::ROLE_BINDINGS,
    resources::PRIORITY_LEVELS,
    resources::FLOW_SCHEMAS,
];

/// The objects that a cluster cannot do without: its namespaces, and the service of the API.
fn essential() -> impl Iterator<Item = (&'static Resource<'static>, &'static Value)> {
    let rows = [resources::NAMESPACES, resources::SERVICES].into_iter();
    rows.flat_map(|row| initial_objects::built_in(row.plural).iter().map(move |object| (row, object)))
}

/// Objects that only some clusters have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extras {
    /// The role of fleets of simulated nodes.
    pub(crate) node_fleet: bool,
    /// The permissions of bootstrap tokens, and access to `kube-public/cluster-info`.
    pub(crate) bootstrap_tokens: bool,
    /// The role that reads `metrics.k8s.io`, and its APIService.
    pub(crate) resource_metrics: bool,
}

/// Makes what is missing.
///
/// # Errors
/// Those of the store.
pub(crate) async fn create(
    store: &dyn Store,
    addresses: AddressRange,
    extras: Extras,
    config: &RuntimeConfig,
    now: Timestamp,
) -> Result<(), store::Error> {
    let mut writes = Vec::new();
    if extras.node_fleet {
        writes.extend(further(NODE_FLEET, now));
    }
    if extras.bootstrap_tokens {
        writes.extend(further(BOOTSTRAP_TOKENS, now));
    }
    if extras.resource_metrics {
        writes.extend(further(RESOURCE_METRICS, now));
        writes.extend(make(resources::API_SERVICES, api_services::resource_metrics(now), now));
    }
    for resource in LISTS {
        for object in initial_objects::built_in(resource.plural) {
            writes.extend(make(resource, addressed(resource.plural, object.clone(), addresses), now));
        }
    }
    let services = api_services::all(config, now).into_iter();
    writes.extend(services.filter_map(|object| make(resources::API_SERVICES, object, now)));
    writes.extend(make(resources::SERVICE_CIDRS, services::own_range(addresses, now), now));
    let (key, mut holder) = services::own_address(addresses, now);
    writes.extend(stored::encode(&mut holder).map(|bytes| Write::create(key, bytes)));
    // One after the other would be one commit each: all at once share a few.
    let written = writes.into_iter().map(|write| store.write(write));
    let mut refused = None;
    for outcome in join_all(written).await {
        match outcome {
            Ok(Outcome::Done { .. } | Outcome::Conflict { .. }) => {}
            // Existing objects are still served.
            Err(full @ store::Error::Full { .. }) => refused = Some(full),
            Err(error) => return Err(error),
        }
    }
    if let Some(full) = refused {
        warn!(err = %chain(&full), "Could not create all default objects; the next start tries again");
    }
    Ok(())
}

/// The service of the API has the first address.
fn addressed(plural: &str, mut object: Value, addresses: AddressRange) -> Value {
    if plural == "services"
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        let address = addresses.first_address().to_string();
        spec.insert("clusterIP", address.as_str());
        spec.insert("clusterIPs", vec![Value::from(address)]);
    }
    object
}

/// Makes what a cluster cannot do without and someone has deleted: its namespaces, and the service of the API.
///
/// # Errors
/// Those of the store.
pub(super) async fn restore(store: &dyn Store, addresses: AddressRange, now: Timestamp) -> Result<(), store::Error> {
    for (resource, object) in essential() {
        let key = resource.key(metadata::namespace(object), metadata::name(object));
        let is_there = store.get(&key, 0).await?.entry.is_some();
        let plural = resource.plural;
        if is_there || plural == "services" && !has_address(store, addresses, now).await? {
            continue;
        }
        if let Some(write) = make(resource, addressed(plural, object.clone(), addresses), now) {
            // If another server was faster, it exists.
            let _ = store.write(write).await?;
        }
    }
    Ok(())
}

/// Whether the first address is that of the API, if need be from now on.
async fn has_address(store: &dyn Store, addresses: AddressRange, now: Timestamp) -> Result<bool, store::Error> {
    let (key, mut holder) = services::own_address(addresses, now);
    if let Some(entry) = store.get(&key, 0).await?.entry {
        let found = stored::ServedObject::new(&entry.value, entry.revision).map(|served| served.decode());
        return Ok(found.is_some_and(|found| services::is_of_api(&found)));
    }
    let Some(bytes) = stored::encode(&mut holder) else { return Ok(false) };
    Ok(matches!(store.write(Write::create(key, bytes)).await?, Outcome::Done { .. }))
}

/// Objects of a further list.
fn further(list: &str, now: Timestamp) -> Vec<Write> {
    let objects = json::parse(list.as_bytes()).unwrap_or_default();
    LISTS
        .into_iter()
        .flat_map(|row| {
            let list = objects.get(row.plural).and_then(Value::as_array).unwrap_or_default();
            list.iter().filter_map(|object| make(row, object.clone(), now)).collect::<Vec<_>>()
        })
        .collect()
}

/// A new object in its normal form, as a write.
pub(super) fn make(resource: &Resource<'_>, object: Value, now: Timestamp) -> Option<Write> {
    if resource.group == objects::GROUP {
        return objects::make(resource, object, now);
    }
    let has_generation = resource.plural == "priorityclasses";
    initial_objects::make(resource, object, SERVER, has_generation, now, |normal| normal)
}

/// Waits for all futures, which make progress together.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    use std::pin::Pin;
    use std::task::Poll;
    /// A future, and what it gave.
    type Pending<F> = (Pin<Box<F>>, Option<<F as Future>::Output>);
    let mut pending: Vec<Pending<F>> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut all = true;
        for (future, output) in &mut pending {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => all = false,
                }
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_has_a_role_and_binding() {
        let now = Timestamp { seconds: 1_800_000_000, nanos: 0 };
        assert_eq!((further(NODE_FLEET, now).len(), further(BOOTSTRAP_TOKENS, now).len()), (2, 5));
    }

    #[test]
    fn all_objects_fit_their_types() {
        for resource in LISTS {
            let list = initial_objects::built_in(resource.plural);
            assert!(!list.is_empty());
            for object in list {
                let decoded = api::types::decode(resource.object_type("v1").unwrap(), object).unwrap();
                assert_eq!(decoded.unknown_fields, Vec::<String>::new());
            }
        }
    }
}
