//! Controller references, adoption and release.
//!
//! A controller owns the objects that name it as their controller by UID. It adopts matching objects without a
//! controller, and releases those that no longer match. Follows Kubernetes' `ControllerRefManager`.

use std::sync::Arc;

use api::core::v1::ObjectReference;
use api::json;
use api::json::{Text, Value};
use api::labels::Selector;
use api::meta::v1::{ObjectMeta, OwnerReference};
use client::Resource;
use client::informer::Key;
use client::objects::Patch;

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};

/// The name of the index of objects by their controller.
pub const INDEX: &str = "controller";

/// Index key of an object: the UID of its controller, or the orphans of its namespace.
#[must_use]
pub fn index_of(metadata: &ObjectMeta) -> Vec<Text> {
    vec![match metadata.controller() {
        Some(controller) => controller.uid.clone(),
        None => orphans_of(&metadata.namespace),
    }]
}

/// Index key of objects without a controller. No UID contains a slash.
#[must_use]
pub fn orphans_of(namespace: &str) -> Text {
    format!("orphans/{namespace}").into()
}

/// An object that controls others.
#[derive(Debug, Clone, Copy)]
pub struct Controller<'a> {
    /// Kind of the object.
    pub resource: &'a Resource,
    /// Metadata of the object.
    pub metadata: &'a ObjectMeta,
}

impl Controller<'_> {
    /// The reference that its dependents carry.
    #[must_use]
    pub fn reference(&self) -> Value {
        let (kind, name, uid) = (&*self.resource.kind, self.metadata.name.clone(), self.metadata.uid.clone());
        json!({
            "apiVersion": (self.resource.api_version()),
            "kind": kind,
            "name": name,
            "uid": uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// Reference for events.
    #[must_use]
    pub fn about(&self) -> ObjectReference {
        ObjectReference {
            kind: self.resource.kind.as_ref().into(),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            api_version: self.resource.api_version().into(),
            resource_version: self.metadata.resource_version.clone(),
            field_path: Text::default(),
        }
    }

    /// Whether it controls an object.
    #[must_use]
    pub fn controls(&self, metadata: &ObjectMeta) -> bool {
        metadata.controller().is_some_and(|controller| controller.uid == self.metadata.uid)
    }

    /// Classifies candidates: owned ones, those to adopt, those to release.
    pub fn claim<T>(
        &self,
        selector: &Selector,
        candidates: impl IntoIterator<Item = Arc<T>>,
        metadata: impl Fn(&T) -> &ObjectMeta,
    ) -> Claims<T> {
        let mut claims = Claims { owned: Vec::new(), adopted: Vec::new(), released: Vec::new() };
        let is_ending = self.metadata.is_deleting();
        for candidate in candidates {
            let its = metadata(&candidate);
            let matches = selector.matches(&its.labels);
            match its.controller() {
                Some(controller) if controller.uid != self.metadata.uid => {}
                Some(_) if matches => claims.owned.push(candidate),
                Some(_) if is_ending => {}
                Some(_) => claims.released.push(candidate),
                None if is_ending || !matches || its.is_deleting() => {}
                None if its.namespace != self.metadata.namespace => {}
                None => claims.adopted.push(candidate),
            }
        }
        claims
    }

    /// Returns the patch that makes it the controller of an object.
    #[must_use]
    pub fn adoption(&self, resource: &Resource, metadata: &ObjectMeta, finalizers: &[&str]) -> Action {
        let uid = metadata.uid.clone();
        let mut changes = json!({"ownerReferences": [(self.reference())], "uid": uid});
        if !finalizers.is_empty() {
            let finalizers: Vec<Value> = finalizers.iter().map(|finalizer| Value::from(*finalizer)).collect();
            changes.set_at(&["finalizers"], finalizers);
        }
        strategic(resource, metadata, changes)
    }

    /// Returns the patch that releases an object, including its finalizers.
    #[must_use]
    pub fn release(&self, resource: &Resource, metadata: &ObjectMeta, finalizers: &[&str]) -> Action {
        let (uid, own) = (metadata.uid.clone(), self.metadata.uid.clone());
        let mut changes = json!({"ownerReferences": [{"$patch": "delete", "uid": own}], "uid": uid});
        if !finalizers.is_empty() {
            let finalizers: Vec<Value> = finalizers.iter().map(|finalizer| Value::from(*finalizer)).collect();
            changes.set_at(&["$deleteFromPrimitiveList/finalizers"], finalizers);
        }
        strategic(resource, metadata, changes)
    }
}

fn strategic(resource: &Resource, metadata: &ObjectMeta, changes: Value) -> Action {
    Action::Patch {
        resource: resource.clone(),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        subresource: "",
        kind: Patch::StrategicMerge,
        patch: json!({"metadata": changes}),
    }
}

/// Whether a reference names an object of this kind, whatever the version.
#[must_use]
pub fn refers_to(reference: &OwnerReference, resource: &Resource) -> bool {
    let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
    reference.kind == resource.kind.as_ref() && group == resource.group
}

/// Classification of candidates by a controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims<T> {
    /// Controlled objects that match.
    pub owned: Vec<Arc<T>>,
    /// Matching objects without a controller.
    pub adopted: Vec<Arc<T>>,
    /// Controlled objects that do not match.
    pub released: Vec<Arc<T>>,
}

impl Executor {
    /// Performs adoptions and releases, and returns the owned objects.
    ///
    /// Before an adoption, the server is queried whether the controller still exists, because an informer may
    /// be outdated. Releasing an object that was deleted or has another controller by now is not a failure.
    ///
    /// # Errors
    /// Other rejections of the server.
    pub async fn carry_out<T>(
        &self,
        key: &Key,
        controller: Controller<'_>,
        claims: Claims<T>,
        resource: &Resource,
        metadata: impl Fn(&T) -> &ObjectMeta,
        finalizers: &[&str],
    ) -> Result<Vec<Arc<T>>, Failure> {
        let Claims { mut owned, adopted, released } = claims;
        for object in &released {
            let release = controller.release(resource, metadata(object), finalizers);
            match self.perform(key, vec![release]).await {
                Err(failure) if !matches!(failure.code(), 404 | 422) => return Err(failure),
                _ => {}
            }
        }
        if adopted.is_empty() {
            return Ok(owned);
        }
        if !self.still_lives(controller).await? {
            // Its dependents may have just been orphaned: continuing would recreate them.
            return Err(Failure::Ending);
        }
        for object in adopted {
            let adoption = controller.adoption(resource, metadata(&object), finalizers);
            match self.perform(key, vec![adoption]).await {
                Ok(()) => owned.push(object),
                // Deleted, or replaced by another one of that name: neither is to be adopted.
                Err(failure) if matches!(failure.code(), 404 | 409) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(owned)
    }

    /// Whether the same object exists on the server and is not being deleted.
    async fn still_lives(&self, controller: Controller<'_>) -> Result<bool, Failure> {
        let objects = self.client().documents(controller.resource.clone());
        let fresh = match objects.get(&controller.metadata.namespace, &controller.metadata.name).await {
            Err(error) if error.is_not_found() => return Ok(false),
            result => result?,
        };
        let same = fresh.str_at(&["metadata", "uid"]) == Some(controller.metadata.uid.as_str());
        Ok(same && fresh.at(&["metadata", "deletionTimestamp"]).is_none())
    }
}

#[cfg(test)]
mod tests {
    use api::meta::v1::StringMap;

    use super::*;

    const SETS: Resource = Resource::new("apps", "v1", "replicasets", "ReplicaSet");

    fn object(name: &str, label: &str, controller: &str) -> Arc<ObjectMeta> {
        let owner = OwnerReference { uid: controller.into(), controller: Some(true), ..Default::default() };
        let mut object = ObjectMeta { name: name.into(), ..Default::default() };
        object.namespace = "ns".into();
        object.labels = StringMap::from([("app".into(), label.into())]);
        object.owner_references = if controller.is_empty() { Vec::new() } else { vec![owner] };
        Arc::new(object)
    }

    fn check(deleting: bool, owned: &[&str], adopted: &[&str], released: &[&str]) {
        let mut metadata = ObjectMeta { uid: "me".into(), ..Default::default() };
        metadata.namespace = "ns".into();
        if deleting {
            metadata.deletion_timestamp = Some(api::time::Timestamp::ZERO);
        }
        let controller = Controller { resource: &SETS, metadata: &metadata };
        let candidates = [
            object("mine", "web", "me"),
            object("lost", "other", "me"),
            object("foreign", "web", "you"),
            object("orphan", "web", ""),
            object("unrelated", "other", ""),
        ];
        let selector = Selector::parse("app=web").unwrap();
        let claims = controller.claim(&selector, candidates, |it| it);
        let names = |objects: &[Arc<ObjectMeta>]| objects.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&claims.owned), owned);
        assert_eq!(names(&claims.adopted), adopted);
        assert_eq!(names(&claims.released), released);
    }

    #[test]
    fn the_living_adopt_and_release_the_ending_do_neither() {
        check(false, &["mine"], &["orphan"], &["lost"]);
        check(true, &["mine"], &[], &[]);
    }
}
