//! What every cluster has from the start: namespaces, the service of the API, roles and bindings, priority classes, the
//! levels and schemas of flow control.
//!
//! The objects are data. What exists is left alone, so that changes of an administrator stay.

use api::json::{self, Value};
use store::{Outcome, Store, Write};
use tracing::warn;

use crate::authorization::Rule;
use crate::clock;
use crate::flow_control::objects;
use crate::objects::apply::{self, BuiltIn, Versions as _};
use crate::objects::metadata;
use crate::objects::services::{self, AddressRange};
use crate::random;
use crate::resources::{self, Resource, RuntimeConfig};
use crate::serving::api_services;
use crate::storage::stored;

pub(crate) const OBJECTS: &str = include_str!("../../data/bootstrap.json");

/// What a fleet of simulated nodes needs: it reads under one identity, and writes as the node that it speaks for.
const NODE_FLEET: &str = include_str!("../../data/node_fleet.json");

/// Group and resource of each list, in the order in which they are made.
const LISTS: [(&str, &str); 9] = [
    ("", "namespaces"),
    ("", "services"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    (objects::GROUP, objects::LEVELS),
    (objects::GROUP, objects::SCHEMAS),
];

/// What all nodes may do alike: the rules of the role `system:node`, whatever an administrator makes of that.
pub(crate) fn node_rules() -> Vec<Rule> {
    let objects = json::parse(OBJECTS.as_bytes()).unwrap_or_default();
    let roles = objects.get("clusterroles").and_then(Value::as_array).unwrap_or_default();
    let role = roles.iter().find(|role| metadata::text(role, "name") == "system:node");
    role.map(Rule::of_role).unwrap_or_default()
}

/// Makes what is missing.
///
/// # Errors
/// Those of the store.
pub(crate) async fn create(
    store: &dyn Store,
    addresses: AddressRange,
    has_node_fleet: bool,
    config: &RuntimeConfig,
) -> Result<(), store::Error> {
    let objects = json::parse(OBJECTS.as_bytes()).unwrap_or_default();
    let mut writes = if has_node_fleet { node_fleet() } else { Vec::new() };
    for (group, plural) in LISTS {
        let Some(resource) = resources::find(group, "v1", plural) else { continue };
        for object in objects.get(plural).and_then(Value::as_array).unwrap_or_default() {
            writes.extend(make(resource, addressed(plural, object.clone(), addresses)));
        }
    }
    if let Some(services) = resources::find("apiregistration.k8s.io", "v1", "apiservices") {
        writes.extend(api_services::all(config).into_iter().filter_map(|object| make(services, object)));
    }
    if let Some(ranges) = resources::find("networking.k8s.io", "v1", "servicecidrs") {
        writes.extend(make(ranges, services::own_range(addresses)));
    }
    if let Some((key, mut holder)) = services::own_address(addresses) {
        writes.extend(stored::encode(&mut holder).map(|bytes| Write::create(key, bytes)));
    }
    // One after the other would be one commit each: all at once share a few.
    let written = writes.into_iter().map(|write| store.write(write));
    let mut refused = None;
    for outcome in join_all(written).await {
        match outcome {
            Ok(Outcome::Done { .. } | Outcome::Conflict { .. }) => {}
            // What is there is served all the same.
            Err(full @ store::Error::Full { .. }) => refused = Some(full),
            Err(error) => return Err(error),
        }
    }
    if let Some(full) = refused {
        warn!(err = %full, "Could not create all objects that a cluster has; this is done at the next start");
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
pub(super) async fn restore(store: &dyn Store, addresses: AddressRange) -> Result<(), store::Error> {
    let objects = json::parse(OBJECTS.as_bytes()).unwrap_or_default();
    for plural in ["namespaces", "services"] {
        let Some(resource) = resources::find("", "v1", plural) else { continue };
        for object in objects.get(plural).and_then(Value::as_array).unwrap_or_default() {
            let key = resource.key(metadata::text(object, "namespace"), metadata::text(object, "name"));
            let is_there = store.get(&key, 0).await?.entry.is_some();
            if is_there || plural == "services" && !has_address(store, addresses).await? {
                continue;
            }
            if let Some(write) = make(resource, addressed(plural, object.clone(), addresses)) {
                // If somebody was faster, it is there.
                let _ = store.write(write).await?;
            }
        }
    }
    Ok(())
}

/// Whether the first address is that of the API, if need be from now on.
async fn has_address(store: &dyn Store, addresses: AddressRange) -> Result<bool, store::Error> {
    let Some((key, mut holder)) = services::own_address(addresses) else { return Ok(false) };
    if let Some(entry) = store.get(&key, 0).await?.entry {
        let found = stored::Served::new(&entry.value, entry.revision).map(|served| served.decode());
        return Ok(found.is_some_and(|found| services::is_of_api(&found)));
    }
    let Some(bytes) = stored::encode(&mut holder) else { return Ok(false) };
    Ok(matches!(store.write(Write::create(key, bytes)).await?, Outcome::Done { .. }))
}

fn node_fleet() -> Vec<Write> {
    let objects = json::parse(NODE_FLEET.as_bytes()).unwrap_or_default();
    let rows = ["clusterroles", "clusterrolebindings"]
        .into_iter()
        .filter_map(|plural| Some((resources::find("rbac.authorization.k8s.io", "v1", plural)?, plural)));
    rows.flat_map(|(row, plural)| {
        let list = objects.get(plural).and_then(Value::as_array).unwrap_or_default();
        list.iter().filter_map(|object| make(row, object.clone())).collect::<Vec<_>>()
    })
    .collect()
}

/// A new object in its normal form, as a write.
pub(crate) fn make(resource: &Resource<'_>, mut object: Value) -> Option<Write> {
    let key = resource.key(metadata::text(&object, "namespace"), metadata::text(&object, "name"));
    metadata::set(&mut object, "uid", random::uid());
    metadata::set(&mut object, "creationTimestamp", clock::now().to_string());
    if resource.plural == "priorityclasses" || resource.group == objects::GROUP {
        metadata::set(&mut object, "generation", 1_i64);
    }
    let fields = object.as_object_mut()?;
    fields.insert("kind", resource.kind);
    fields.insert("apiVersion", resource.api_version("v1"));
    let mut normal = api::types::decode(resource.object_type("v1")?, &object).ok()?.value;
    own(resource, &mut normal);
    if resource.plural == objects::SCHEMAS {
        // What is built in leads somewhere.
        let now = metadata::text(&normal, "creationTimestamp").to_owned();
        normal = objects::with_status(&normal, |_| true, &now).unwrap_or(normal);
    }
    Some(Write::create(key, stored::encode(&mut normal)?))
}

/// A changed object in its normal form, as it is stored; none if it has no type.
pub(super) fn changed(resource: &Resource<'_>, old: &Value, object: Value) -> Option<bytes::Bytes> {
    let mut normal = api::types::decode(resource.object_type("v1")?, &object).ok()?.value;
    let (versions, api_version) = (BuiltIn::new(resource, ""), resource.api_version("v1"));
    let (kind, subresource, manager, now) = (resource.kind, "", "kube-apiserver", clock::now().to_string());
    let write = apply::Write { versions: &versions, api_version: &api_version, kind, subresource, manager, now: &now };
    let mut sent = normal.clone();
    metadata::remove(&mut sent, "managedFields");
    if let Some(managed_fields) = write.update(old, &sent) {
        metadata::set(&mut normal, "managedFields", managed_fields);
    }
    stored::encode(&mut normal)
}

/// The server owns what it makes.
fn own(resource: &Resource<'_>, object: &mut Value) {
    let (versions, api_version) = (BuiltIn::new(resource, ""), resource.api_version("v1"));
    let empty = versions.empty(&api_version);
    // What is given out belongs to nobody.
    let mut sent = object.clone();
    if let (Some(spec), "Service") = (sent.get_mut("spec").and_then(Value::as_object_mut), resource.kind) {
        spec.remove("clusterIPs");
        spec.remove("ipFamilies");
    }
    let manager = if resource.group == objects::GROUP { objects::PRODUCER } else { "kube-apiserver" };
    let (kind, subresource) = (resource.kind, "");
    let now = metadata::text(object, "creationTimestamp").to_owned();
    let write = apply::Write { versions: &versions, api_version: &api_version, kind, subresource, manager, now: &now };
    if let Some(managed_fields) = write.update(&empty, &sent) {
        metadata::set(object, "managedFields", managed_fields);
    }
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
    fn a_fleet_has_a_role_and_who_has_it() {
        assert_eq!(node_fleet().len(), 2);
    }

    #[test]
    fn nodes_have_rules() {
        assert!(node_rules().len() > 20);
    }

    #[test]
    fn all_objects_fit_their_types() {
        let objects = json::parse(OBJECTS.as_bytes()).unwrap();
        for (group, plural) in LISTS {
            let resource = resources::find(group, "v1", plural).unwrap();
            let list = objects.get(plural).and_then(Value::as_array).unwrap();
            assert!(!list.is_empty());
            for object in list {
                let decoded = api::types::decode(resource.object_type("v1").unwrap(), object).unwrap();
                assert_eq!(decoded.unknown_fields, Vec::<String>::new());
            }
        }
    }
}
