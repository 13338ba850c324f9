//! Objects that the server writes by itself: those of every cluster, and the normal form in which they are stored.

use std::sync::LazyLock;

use api::json::{self, Value};
use api::metadata;
use api::time::Timestamp;
use cache::stored;
use patching::apply::{self, BuiltIn, Versions as _};
use store::Write;

use crate::random;
use crate::resources::Resource;

/// The objects that every cluster has from the start, by resource. Several parts of the server read them at its start and
/// regularly later, and the text is long: it is parsed once.
static OBJECTS: LazyLock<Value> =
    LazyLock::new(|| json::parse(include_bytes!("../data/bootstrap.json")).unwrap_or_default());

/// The manager of fields that the server sets.
pub(crate) const SERVER: &str = "kube-apiserver";

/// The objects of a resource that every cluster has from the start.
pub(crate) fn built_in(plural: &str) -> &'static [Value] {
    OBJECTS.list(plural)
}

/// A new object in its normal form, as a write; `manager` owns its fields, and `finish` completes it.
pub(crate) fn make(
    resource: &Resource<'_>,
    mut object: Value,
    manager: &str,
    has_generation: bool,
    now: Timestamp,
    finish: impl FnOnce(Value) -> Value,
) -> Option<Write> {
    let key = resource.key(metadata::namespace(&object), metadata::name(&object));
    metadata::set(&mut object, "uid", random::uid());
    metadata::set(&mut object, "creationTimestamp", now.to_string());
    if has_generation {
        metadata::set(&mut object, "generation", 1_i64);
    }
    let fields = object.as_object_mut()?;
    fields.insert("kind", resource.kind);
    fields.insert("apiVersion", resource.api_version("v1"));
    let mut normal = api::types::decode(resource.object_type("v1")?, &object).ok()?.value;
    own(resource, &mut normal, manager);
    Some(Write::create(key, stored::encode(&mut finish(normal))?))
}

/// A changed object in its normal form, as it is stored; none if it has no type.
pub(crate) fn changed(resource: &Resource<'_>, old: &Value, object: Value, now: Timestamp) -> Option<bytes::Bytes> {
    changed_part(resource, "", old, object, now)
}

/// As [`changed`], for a change of a subresource, such as `status`.
pub(crate) fn changed_part(
    resource: &Resource<'_>,
    subresource: &str,
    old: &Value,
    object: Value,
    now: Timestamp,
) -> Option<bytes::Bytes> {
    let mut normal = api::types::decode(resource.object_type("v1")?, &object).ok()?.value;
    let (versions, api_version) = (BuiltIn::new(resource, subresource), resource.api_version("v1"));
    let (kind, manager, now) = (resource.kind, SERVER, now.to_string());
    let write = apply::Write { versions: &versions, api_version: &api_version, kind, subresource, manager, now: &now };
    let mut sent = normal.clone();
    metadata::remove(&mut sent, "managedFields");
    if let Some(managed_fields) = write.update(old, &sent) {
        metadata::set(&mut normal, "managedFields", managed_fields);
    }
    stored::encode(&mut normal)
}

/// Makes a manager the owner of all fields.
fn own(resource: &Resource<'_>, object: &mut Value, manager: &str) {
    let (versions, api_version) = (BuiltIn::new(resource, ""), resource.api_version("v1"));
    let empty = versions.empty(&api_version);
    // A request must not own the shared object.
    let mut sent = object.clone();
    if let (Some(spec), "Service") = (sent.get_mut("spec").and_then(Value::as_object_mut), resource.kind) {
        spec.remove("clusterIPs");
        spec.remove("ipFamilies");
    }
    let (kind, subresource) = (resource.kind, "");
    let now = metadata::text(object, "creationTimestamp").to_owned();
    let write = apply::Write { versions: &versions, api_version: &api_version, kind, subresource, manager, now: &now };
    if let Some(managed_fields) = write.update(&empty, &sent) {
        metadata::set(object, "managedFields", managed_fields);
    }
}
