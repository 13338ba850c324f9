//! Publishes the certificates by which pods know the API server, as `kube-root-ca.crt` in every namespace.
//!
//! Follows Kubernetes `pkg/controller/certificates/rootcacertpublisher`.

use std::sync::Arc;

use api::core::v1::{ConfigMap, Namespace};
use api::json::Value;
use api::metadata;
use client::Document;
use client::controller::{Controller, Next};
use client::informer::{Informer, Key};
use client::objects::Selection;
use client::resources::ServedView as _;

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::outcome;
use crate::manager::Context;

/// The name of the published object.
const NAME: &str = "kube-root-ca.crt";
const ANNOTATION: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

struct Publisher {
    namespaces: Informer<Namespace>,
    published: Informer<Document<ConfigMap>>,
    executor: Executor,
    root_ca: String,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    if context.settings.root_ca.is_empty() {
        return;
    }
    let namespaces = context.informers.all::<Namespace>();
    let selection = Selection { fields: format!("metadata.name={NAME}"), ..Selection::default() };
    let published = context.informers.of::<Document<ConfigMap>>(&selection);
    let executor = context.executor();
    executor.expectations().follow(&published, &ConfigMap::RESOURCE.plural);
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&namespaces, |it| (it.status.phase == "Active").then(|| outcome::namespace_key(&it.metadata.name)))
        .watch(&published, |it| [outcome::namespace_key(&it.metadata().namespace)]);
    let root_ca = context.settings.root_ca.clone();
    let controller = Arc::new(Publisher { namespaces, published, executor, root_ca });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

impl Publisher {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        if self.namespaces.store().get_key(&key).is_none() {
            self.executor.forget(&key);
            return Ok(Next::Done);
        }
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let known = self.published.store().get(&key.name, NAME);
        let actions = publish(&key.name, known.as_ref().map(|it| it.value()), &self.root_ca);
        match self.executor.perform(&key, actions).await {
            // The namespace was deleted.
            Err(failure) if failure.code() == 404 => Ok(Next::Done),
            result => outcome::next(result),
        }
    }
}

/// Returns the actions after which the namespace's `ConfigMap` contains `root_ca` and nothing else.
fn publish(namespace: &str, config_map: Option<&Value>, root_ca: &str) -> Vec<Action> {
    let data = api::json!({"ca.crt": root_ca});
    let Some(known) = config_map else {
        let object = api::json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace, "annotations": {ANNOTATION: DESCRIPTION}},
            "data": data,
        });
        return vec![Action::Create { resource: ConfigMap::RESOURCE, object }];
    };
    let described = metadata::annotation(known, ANNOTATION).is_some_and(|text| !text.is_empty());
    if described && known.get("data") == Some(&data) {
        return Vec::new();
    }
    let mut object = known.clone();
    object.set_at(&["data"], data);
    object.set_at(&["metadata", "annotations", ANNOTATION], DESCRIPTION);
    vec![Action::Update { resource: ConfigMap::RESOURCE, object }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_by_others_are_reverted() {
        let created = publish("a", None, "pem");
        let Some(Action::Create { object, .. }) = created.first() else { panic!("{created:?}") };
        assert_eq!(publish("a", Some(object), "pem"), []);
        let mut spoiled = object.clone();
        spoiled.set_at(&["data", "other"], "y");
        assert_eq!(
            publish("a", Some(&spoiled), "pem"),
            [Action::Update { resource: ConfigMap::RESOURCE, object: object.clone() }]
        );
        let mut bare = object.clone();
        bare.remove_at(&["metadata", "annotations"]);
        assert_eq!(publish("a", Some(&bare), "pem").len(), 1);
        assert_eq!(publish("a", Some(object), "new").len(), 1);
    }
}
