//! Ownership of the number of replicas, seen through the object and through its `scale`.
//!
//! Follows `managedfields/scalehandler.go` of apimachinery. `replicas` names the field in each version of the object;
//! none if the version is unknown.

use api::json::Value;

use super::element::Element;
use super::managers::{Manager, Managers};
use super::set::FieldSet;

/// The version of `Scale`.
const SCALE_VERSION: &str = "autoscaling/v1";

fn replicas_in_scale() -> FieldSet {
    FieldSet::of_names(&[&["spec", "replicas"]])
}

/// The managed fields of the `Scale` of an object with these.
#[must_use]
pub fn to_scale(entries: Option<&Value>, replicas: &dyn Fn(&str) -> Option<Vec<Element>>) -> Option<Value> {
    let managers = Managers::decode(entries).ok()?;
    let owners = managers
        .0
        .into_iter()
        .filter(|manager| replicas(&manager.api_version).is_some_and(|path| manager.fields.has(&path)));
    let owners =
        owners.map(|manager| Manager { api_version: SCALE_VERSION.to_owned(), fields: replicas_in_scale(), ..manager });
    Managers(owners.collect()).encode()
}

/// The managed fields of an object after a write through its `Scale` that left `scale` there.
#[must_use]
pub fn to_parent(
    entries: Option<&Value>,
    scale: Option<&Value>,
    api_version: &str,
    replicas: &dyn Fn(&str) -> Option<Vec<Element>>,
) -> Option<Value> {
    let (Ok(managers), Ok(mut owners)) = (Managers::decode(entries), Managers::decode(scale)) else {
        return entries.cloned();
    };
    let mut left = Managers::default();
    for mut manager in managers.0 {
        let Some(path) = replicas(&manager.api_version) else { continue };
        if manager.fields.has(&path) {
            // Through the scale, the same manager has the scale's version.
            let seen = Manager { api_version: SCALE_VERSION.to_owned(), fields: FieldSet::new(), ..manager.clone() };
            if owners.take(&seen).is_none() {
                manager.fields = manager.fields.difference(&FieldSet::of_path(&path));
            }
        }
        if !manager.fields.is_empty() {
            left.0.push(manager);
        }
    }
    let path = replicas(api_version).unwrap_or_default();
    for owner in owners.0 {
        if owner.fields.has(&["spec".into(), "replicas".into()]) {
            let owner = Manager { api_version: api_version.to_owned(), fields: FieldSet::of_path(&path), ..owner };
            match left.find(&owner) {
                Some(same) => same.fields = std::mem::take(&mut same.fields).union(owner.fields),
                // Kubernetes: such an entry has no time.
                None => left.0.push(Manager { time: None, ..owner }),
            }
        }
    }
    left.encode()
}
