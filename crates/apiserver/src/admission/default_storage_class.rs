//! `DefaultStorageClass`: a claim that names no class gets the default one.

use std::sync::Arc;

use api::json::Value;
use api::well_known::{
    ANNOTATION_DEFAULT_STORAGE_CLASS, ANNOTATION_DEFAULT_STORAGE_CLASS_BETA, ANNOTATION_STORAGE_CLASS_BETA,
};

use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::resources;
use api::metadata;

const MARKS: [&str; 2] = [ANNOTATION_DEFAULT_STORAGE_CLASS, ANNOTATION_DEFAULT_STORAGE_CLASS_BETA];

/// The plugin.
pub(super) struct DefaultStorageClass(pub(super) Arc<dyn Cluster>);

impl Plugin for DefaultStorageClass {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_for("", "persistentvolumeclaims")
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, claim: &'a mut Value) -> Verdict<'a> {
        mutate(&*self.0, claim);
        done(Ok(()))
    }
}

/// Sets the class of a new claim: of several defaults the newest, of equally new ones the first by name.
fn mutate(cluster: &dyn Cluster, claim: &mut Value) {
    let named = claim.at(&["spec", "storageClassName"]).is_some_and(|name| !name.is_null());
    let annotated = claim.at(&["metadata", "annotations", ANNOTATION_STORAGE_CLASS_BETA]).is_some();
    if named || annotated {
        return;
    }
    let classes = resources::STORAGE_CLASSES;
    let cache = cluster.cache().resource(&classes.prefix());
    let all = cache.list(&classes.prefix(), None, 0, |_, _| true).objects;
    let mut defaults: Vec<Value> = all.into_iter().map(|(_, class)| class.decode()).filter(is_default).collect();
    defaults.sort_by(|left, right| {
        let created = |class: &Value| metadata::text(class, "creationTimestamp").to_owned();
        created(right).cmp(&created(left)).then_with(|| metadata::name(left).cmp(metadata::name(right)))
    });
    let name = defaults.first().map(|class| metadata::name(class).to_owned());
    if let (Some(name), Some(spec)) = (name, claim.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("storageClassName", name);
    }
}

fn is_default(class: &Value) -> bool {
    MARKS.iter().any(|mark| class.str_at(&["metadata", "annotations", mark]) == Some("true"))
}
