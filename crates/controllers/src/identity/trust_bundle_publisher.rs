//! Publishes the certificates by which clients know the API server, as a ClusterTrustBundle.
//!
//! The bundle is named by its contents. Others of the same signer are deleted: they belong to a former
//! authority. Follows Kubernetes `pkg/controller/certificates/clustertrustbundlepublisher`.

use std::sync::Arc;

use api::json::Value;
use api::metadata;
use client::Resource;
use client::controller::Controller;
use client::informer::Key;
use client::objects::{Deletion, Selection};

use crate::machinery::action::Action;
use crate::machinery::outcome;
use crate::manager::Context;

const BUNDLES: Resource = Resource::new("certificates.k8s.io", "v1", "clustertrustbundles", "ClusterTrustBundle");
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// Number of bytes of the hash in the name.
const HASH_BYTES: usize = 12;

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let root_ca = context.settings.root_ca.clone();
    if root_ca.is_empty() {
        return;
    }
    let selection = Selection { fields: format!("spec.signerName={SIGNER}"), ..Selection::default() };
    let bundles = context.informers.of_documents(&BUNDLES, &selection);
    let executor = context.executor();
    // One key for all: the existing bundles are compared as a whole.
    let all = || Key::new("", "");
    let runner = Controller::new(context.name, &context.runtime).watch(&bundles, move |_| [all()]);
    runner.queue().add(all());
    runner
        .run(move |key: Key| {
            let (bundles, executor, root_ca) = (bundles.clone(), executor.clone(), root_ca.clone());
            async move {
                let actions = publish(&bundles.store().list(), &root_ca);
                outcome::next(executor.perform(&key, actions).await)
            }
        })
        .await;
}

/// The name of the bundle that holds these certificates.
fn name_of(root_ca: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, root_ca.as_bytes());
    let hash: String = hash.as_ref().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{hash}", SIGNER.replace('/', ":"))
}

/// Returns the actions after which one bundle contains the certificates.
fn publish(bundles: &[Arc<Value>], root_ca: &str) -> Vec<Action> {
    let name = name_of(root_ca);
    let mut actions = Vec::new();
    match bundles.iter().find(|bundle| metadata::name(bundle) == name) {
        None => {
            let object = api::json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "ClusterTrustBundle",
                "metadata": {"name": (name.clone())},
                "spec": {"signerName": SIGNER, "trustBundle": root_ca},
            });
            actions.push(Action::Create { resource: BUNDLES, object });
        }
        Some(bundle) if bundle.str_at(&["spec", "trustBundle"]) != Some(root_ca) => {
            let mut object = (**bundle).clone();
            object.set_at(&["spec", "trustBundle"], root_ca);
            actions.push(Action::Update { resource: BUNDLES, object });
        }
        Some(_) => {}
    }
    actions.extend(bundles.iter().filter(|bundle| metadata::name(bundle) != name).map(|bundle| Action::Delete {
        resource: BUNDLES,
        namespace: "".into(),
        name: metadata::name(bundle).into(),
        uid: "".into(),
        how: Deletion::default(),
    }));
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bundle_holds_the_certificates() {
        // The hash of `pem`, by sha256sum.
        assert_eq!(name_of("pem"), "kubernetes.io:kube-apiserver-serving:f0aeace912cf19dc1c6fffd4");
        let created = publish(&[], "pem");
        let [Action::Create { object, .. }] = created.as_slice() else { panic!("{created:?}") };
        let known = Arc::new(object.clone());
        assert_eq!(publish(std::slice::from_ref(&known), "pem"), []);
        let mut spoiled = object.clone();
        spoiled.set_at(&["spec", "trustBundle"], "other");
        let update = Action::Update { resource: BUNDLES, object: object.clone() };
        assert_eq!(publish(&[Arc::new(spoiled)], "pem"), [update]);
        let [Action::Create { .. }, Action::Delete { name, .. }] = &publish(&[known], "new")[..] else {
            panic!("the old one goes")
        };
        assert_eq!(*name, name_of("pem"));
    }
}
