//! `DefaultStorageClass`: a claim that names no class gets the default one.

use std::sync::Arc;

use api::json::Value;

use crate::objects::metadata;
use crate::resources;
use crate::server::Server;

const MARKS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Sets the class of a new claim: of several defaults the newest, of equally new ones the first by name.
pub(super) fn mutate(server: &Arc<Server>, claim: &mut Value) {
    let named = claim.at(&["spec", "storageClassName"]).is_some_and(|name| !name.is_null());
    let annotated = claim.at(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]).is_some();
    let Some(classes) = resources::find("storage.k8s.io", "v1", "storageclasses") else { return };
    if named || annotated {
        return;
    }
    let cache = server.cache.resource(&classes.prefix());
    let all = cache.list(&classes.prefix(), None, 0, |_, _| true).objects;
    let mut defaults: Vec<Value> = all.into_iter().map(|(_, class)| class.decode()).filter(is_default).collect();
    defaults.sort_by(|left, right| {
        let created = |class: &Value| metadata::text(class, "creationTimestamp").to_owned();
        created(right).cmp(&created(left)).then_with(|| metadata::text(left, "name").cmp(metadata::text(right, "name")))
    });
    let name = defaults.first().map(|class| metadata::text(class, "name").to_owned());
    if let (Some(name), Some(spec)) = (name, claim.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("storageClassName", name);
    }
}

fn is_default(class: &Value) -> bool {
    MARKS.iter().any(|mark| class.str_at(&["metadata", "annotations", mark]) == Some("true"))
}
