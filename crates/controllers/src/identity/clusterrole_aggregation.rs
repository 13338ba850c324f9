//! Sets the rules of aggregated cluster roles to those of the selected roles.
//!
//! Follows Kubernetes `pkg/controller/clusterroleaggregation`.

use std::sync::Arc;

use api::json::Value;
use api::rbac::v1::ClusterRole;
use client::controller::{Controller, Next};
use client::informer::Key;
use client::resources::ServedView as _;
use telemetry::logs::chain;
use tracing::warn;

use crate::machinery::executor::Failure;
use crate::manager::Context;

const MANAGER: &str = "clusterrole-aggregation-controller";

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let roles = context.informers.all::<ClusterRole>();
    let executor = context.executor();
    executor.expectations().follow(&roles, &ClusterRole::RESOURCE.plural);
    let known = roles.clone();
    // A change of any role can concern every aggregated one.
    let runner = Controller::new(context.name, &context.runtime).watch(&roles, move |role: &ClusterRole| {
        let mut keys: Vec<Key> = Vec::new();
        let all = known.store().list();
        let aggregated = all.iter().filter(|it| it.aggregation_rule.is_some());
        keys.extend(aggregated.map(|it| Key::new("", it.metadata.name.clone())));
        if role.aggregation_rule.is_some() {
            keys.push(Key::new("", role.metadata.name.clone()));
        }
        keys
    });
    let client = context.client.clone();
    runner
        .run(move |key: Key| {
            let (roles, client) = (roles.clone(), client.clone());
            async move {
                let Some(role) = roles.store().get_key(&key) else { return Ok::<_, Failure>(Next::Done) };
                let all = roles.store().list();
                let Some(rules) = aggregate(&role, &all) else { return Ok(Next::Done) };
                let name = role.metadata.name.clone();
                let mut fields = api::json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
                });
                if !rules.is_empty() {
                    fields.set_at(&["rules"], rules);
                }
                client.documents(ClusterRole::RESOURCE).apply("", &key.name, "", &fields, MANAGER, true).await?;
                Ok(Next::Done)
            }
        })
        .await;
}

/// The rules that a role should have, if it aggregates and has others.
fn aggregate(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<Value>> {
    let mut sorted: Vec<&ClusterRole> = all.iter().map(|it| &**it).collect();
    sorted.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
    let mut rules: Vec<Value> = Vec::new();
    for selector in &role.aggregation_rule.as_ref()?.cluster_role_selectors {
        let selector = match selector.to_selector() {
            Ok(selector) => selector,
            Err(error) => {
                warn!(clusterRole = %role.metadata.name, err = %chain(&error), "Selector is not valid");
                return None;
            }
        };
        let chosen = sorted.iter().filter(|it| it.metadata.name != role.metadata.name);
        for rule in chosen.filter(|it| selector.matches(&it.metadata.labels)).flat_map(|it| &it.rules) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    (rules != role.rules).then_some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, label: &str, resources: &[&str]) -> ClusterRole {
        let rule = |it: &&str| api::json!({"apiGroups": [""], "resources": [(*it)], "verbs": ["get"]});
        let rules: Vec<Value> = resources.iter().map(rule).collect();
        let role = api::json!({"metadata": {"name": name, "labels": {"agg": label}}, "rules": rules});
        api::json::from_value(&role).expect("a role")
    }

    #[test]
    fn rules_come_by_name_and_once() {
        let mut target = role("target", "x", &["old"]);
        target.aggregation_rule = api::json::from_value(
            &api::json!({"clusterRoleSelectors": [{"matchLabels": {"agg": "x"}}, {"matchLabels": {"agg": "y"}}]}),
        )
        .expect("a rule");
        let all = [
            role("z", "x", &["pods"]),
            role("a", "x", &["secrets", "pods"]),
            role("b", "y", &["pods", "nodes"]),
            target.clone(),
        ];
        let all: Vec<Arc<ClusterRole>> = all.into_iter().map(Arc::new).collect();
        let rules = aggregate(&target, &all).expect("they differ");
        let wanted = role("", "", &["secrets", "pods", "nodes"]).rules;
        assert_eq!(rules, wanted);
        target.rules = wanted;
        assert_eq!(aggregate(&target, &all), None);
        assert_eq!(aggregate(&role("plain", "x", &[]), &all), None);
        assert_eq!(aggregate(&target, &[]), Some(Vec::new()), "no source is left");
    }
}
