//! Concrete tolerations in place of expressions, for components that do not know expressions.
//!
//! Upstream's kubelet and taint eviction read only `spec.tolerations`. A pod may get further tolerations at any time, so the
//! taints of its node that an expression tolerates are written out.

use std::fmt;

use api::core::v1::{Taint, Toleration};
use api::json::Value;

use super::Tolerations;
use crate::expressions::CompileCache;
use crate::features::Features;
use crate::taints;

/// Maximum number of tolerations that are added to a pod at a time.
pub const ADDED_MAX: usize = 32;

/// More taints than tolerations may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany {
    count: usize,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        write!(f, "{count} NoExecute taints need a toleration of their own, more than the limit of {ADDED_MAX}")
    }
}

impl std::error::Error for TooMany {}

/// The tolerations that a pod lacks for the `NoExecute` taints of its node: those that `merged` tolerates and `stored`, as
/// read without expressions and versions, does not, or for another time. Each has the key, value and effect of its taint,
/// and the seconds of the toleration that tolerates it.
///
/// # Errors
/// There are more than [`ADDED_MAX`].
pub fn missing(
    stored: &[Toleration],
    merged: &[Toleration],
    taints: &[Taint],
    cache: &CompileCache,
    features: Features,
) -> Result<Vec<Toleration>, TooMany> {
    let plain = Features { cel: false, affinity_cel: false, semver: false, comparison: features.comparison };
    let known = Tolerations::new(stored, cache, &plain);
    let all = Tolerations::new(merged, cache, &features);
    let mut missing = Vec::new();
    for taint in taints.iter().filter(|taint| taints::is_no_execute(taint)) {
        let Some(by) = all.find(taint).and_then(|index| merged.get(index)) else { continue };
        let stored = known.find(taint).and_then(|index| stored.get(index));
        if stored.is_some_and(|stored| stored.toleration_seconds == by.toleration_seconds) {
            continue;
        }
        missing.push(Toleration {
            key: taint.key.clone(),
            operator: "Equal".into(),
            value: taint.value.clone(),
            effect: taint.effect.clone(),
            toleration_seconds: by.toleration_seconds,
            ..Toleration::default()
        });
    }
    if missing.len() > ADDED_MAX { Err(TooMany { count: missing.len() }) } else { Ok(missing) }
}

/// The merge patch that adds tolerations to a pod as it is stored, guarded by its version. They precede the stored ones:
/// upstream's taint eviction reads the seconds of the first toleration that matches a taint.
#[must_use]
pub fn patch(pod: &Value, added: &[Toleration]) -> Value {
    let text = |field: &str| pod.text_at(&["metadata", field]);
    let mut all = Vec::new();
    for toleration in added {
        let (key, value, effect) = (toleration.key.as_str(), toleration.value.as_str(), toleration.effect.as_str());
        let mut entry = api::json!({"key": key, "operator": "Equal", "value": value, "effect": effect});
        if let (Some(seconds), Some(fields)) = (toleration.toleration_seconds, entry.as_object_mut()) {
            fields.insert("tolerationSeconds", seconds);
        }
        all.push(entry);
    }
    all.extend_from_slice(pod.list_at(&["spec", "tolerations"]));
    let metadata = api::json!({"uid": (text("uid")), "resourceVersion": (text("resourceVersion"))});
    api::json!({"metadata": metadata, "spec": {"tolerations": all}})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    fn taint(key: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: "v".into(), effect: effect.into(), ..Taint::default() }
    }

    fn toleration(json: Value) -> Toleration {
        api::json::from_value(&json).unwrap()
    }

    #[track_caller]
    fn check(stored: &[Toleration], added: &[Toleration], taints: &[Taint], expected: &[(&str, Option<i64>)]) {
        let cache = CompileCache::new(64.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let merged = [stored, added].concat();
        let found = missing(stored, &merged, taints, &cache, Features::ALL).unwrap();
        let found: Vec<(&str, Option<i64>)> = found.iter().map(|it| (it.key.as_str(), it.toleration_seconds)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_no_execute_taints_tolerated_by_expressions_are_resolved() {
        let expression = toleration(api::json!({"expression": "taint.key.startsWith('a')", "tolerationSeconds": 60}));
        let taints = [taint("a1", "NoExecute"), taint("a2", "NoSchedule"), taint("b1", "NoExecute")];
        check(&[], std::slice::from_ref(&expression), &taints, &[("a1", Some(60))]);
        let exists = toleration(api::json!({"key": "a1", "operator": "Exists"}));
        check(&[exists], &[expression], &taints, &[]);
        // Upstream does not know versions either.
        let version = toleration(api::json!({"key": "k", "operator": "SemverLt", "value": "2.0.0"}));
        let taints = [Taint { value: "1.0.0".into(), ..taint("k", "NoExecute") }];
        check(&[], &[version], &taints, &[("k", None)]);
        // What a server stored of a field that it does not know tolerates nothing.
        let empty = toleration(api::json!({"expression": "true"}));
        check(&[empty], &[], &taints, &[("k", None)]);
    }

    #[test]
    fn expression_before_a_plain_toleration_decides_about_seconds() {
        let cache = CompileCache::new(64.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let expression = toleration(api::json!({"expression": "taint.key.startsWith('a')"}));
        let plain = toleration(api::json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}));
        let taints = [taint("a1", "NoExecute"), taint("b1", "NoExecute")];
        let resolve = |stored: &[Toleration], merged: &[Toleration]| {
            let found = missing(stored, merged, &taints, &cache, Features::ALL).unwrap();
            found.into_iter().map(|it| (it.key.to_string(), it.toleration_seconds)).collect::<Vec<_>>()
        };
        let expected = [("a1".to_owned(), None)];
        assert_eq!(resolve(std::slice::from_ref(&plain), &[expression.clone(), plain.clone()]), expected);
        // Behind it, the plain one decides.
        assert_eq!(resolve(std::slice::from_ref(&plain), &[plain.clone(), expression.clone()]), []);
        // A resolved one is not added again.
        let resolved = toleration(api::json!({"key": "a1", "operator": "Equal", "value": "v", "effect": "NoExecute"}));
        let stored = [resolved.clone(), plain.clone()];
        assert_eq!(resolve(&stored, &[expression, resolved, plain]), []);
    }

    #[test]
    fn more_tolerations_than_the_limit_are_an_error() {
        let cache = CompileCache::new(64.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let all = [toleration(api::json!({"expression": "true"}))];
        let taints: Vec<Taint> = (0..=ADDED_MAX).map(|number| taint(&format!("k{number}"), "NoExecute")).collect();
        assert_eq!(missing(&[], &all, &taints, &cache, Features::ALL), Err(TooMany { count: ADDED_MAX + 1 }));
        assert_eq!(missing(&[], &all, &taints[1..], &cache, Features::ALL).unwrap().len(), ADDED_MAX);
    }

    #[test]
    fn patch_keeps_stored_tolerations() {
        let pod = api::json!({
            "metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"tolerations": [{"key": "x", "operator": "Exists"}]},
        });
        let added = [Toleration { key: "a".into(), effect: "NoExecute".into(), ..Toleration::default() }];
        let text = patch(&pod, &added).to_string();
        let expected = r#"{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"tolerations":[{"key":"a","operator":"Equal","value":"","effect":"NoExecute"},{"key":"x","operator":"Exists"}]}}"#;
        assert_eq!(text, expected);
    }
}
