//! Sees to it that every namespace has the service account `default`.
//!
//! Follows Kubernetes `pkg/controller/serviceaccount/serviceaccounts_controller.go`.

use std::sync::Arc;

use api::core::v1::{Namespace, ServiceAccount};
use client::controller::{Controller, Next};
use client::informer::{Informer, Key};
use client::resources::ServedView as _;

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::outcome;
use crate::manager::Context;

/// Default service account of pods.
const DEFAULT: &str = "default";

struct ServiceAccounts {
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let (namespaces, accounts) = (context.informers.all::<Namespace>(), context.informers.all::<ServiceAccount>());
    let executor = context.executor();
    executor.expectations().follow(&accounts, &ServiceAccount::RESOURCE.plural);
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&namespaces, |it| [outcome::namespace_key(&it.metadata.name)])
        .watch(&accounts, |it| (it.metadata.name == DEFAULT).then(|| outcome::namespace_key(&it.metadata.namespace)));
    let controller = Arc::new(ServiceAccounts { namespaces, accounts, executor });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

impl ServiceAccounts {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(namespace) = self.namespaces.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let exists = self.accounts.store().get(&key.name, DEFAULT).is_some();
        outcome::next(self.executor.perform(&key, ensure(&namespace, exists)).await)
    }
}

/// Returns the actions for a namespace, given whether it has its service account.
fn ensure(namespace: &Namespace, exists: bool) -> Vec<Action> {
    if exists || namespace.status.phase != "Active" {
        return Vec::new();
    }
    let name = &namespace.metadata.name;
    let object = api::json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT, "namespace": (name.clone())}
    });
    vec![Action::Create { resource: ServiceAccount::RESOURCE, object }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(phase: &str) -> Namespace {
        api::json::from_value(&api::json!({"metadata": {"name": "a"}, "status": {"phase": phase}}))
            .expect("a namespace")
    }

    #[test]
    fn an_active_namespace_gets_its_account_once() {
        assert_eq!(ensure(&namespace("Active"), false).len(), 1);
        assert_eq!(ensure(&namespace("Active"), true), []);
        assert_eq!(ensure(&namespace("Terminating"), false), []);
    }
}
