//! `DefaultTolerationSeconds`: pods stay for five minutes on a node that is not ready or cannot be reached.

use api::core::v1::{TaintEffect, Toleration};
use api::json::{Value, from_value};
use api::well_known::{TAINT_NOT_READY, TAINT_UNREACHABLE};
use matching::tolerations::is_about;

use super::{Attributes, Operation, Plugin, Verdict, done};

const TAINTS: [&str; 2] = [TAINT_NOT_READY, TAINT_UNREACHABLE];
const EFFECT: TaintEffect = TaintEffect::NoExecute;
const SECONDS: i64 = 300;

/// The plugin.
pub(super) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        writes && attributes.is_for("", "pods")
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value) -> Verdict<'a> {
        mutate(pod);
        done(Ok(()))
    }
}

/// Adds the tolerations that a pod does not have.
fn mutate(pod: &mut Value) {
    let tolerations = pod.at(&["spec", "tolerations"]).and_then(|it| from_value::<Vec<Toleration>>(it).ok());
    let tolerations = tolerations.unwrap_or_default();
    let missing: Vec<Value> = TAINTS
        .iter()
        .filter(|taint| !tolerations.iter().any(|toleration| is_about(toleration, taint, EFFECT.name())))
        .map(|taint| {
            api::json!({"key": (*taint), "operator": "Exists", "effect": (EFFECT.name()), "tolerationSeconds": SECONDS})
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(list) = spec.get_or_insert("tolerations", || Value::Array(Vec::new())).as_array_mut()
    {
        list.extend(missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tolerations: Value, added: usize) {
        let before = tolerations.as_array().map_or(0, <[Value]>::len);
        let mut pod = api::json!({"spec": {"tolerations": tolerations}});
        mutate(&mut pod);
        let list = pod.array_at(&["spec", "tolerations"]).unwrap();
        assert_eq!(list.len(), before.saturating_add(added));
    }

    #[test]
    fn only_missing_tolerations_are_added() {
        check(api::json!([]), 2);
        check(api::json!([{"operator": "Exists"}]), 0);
        check(api::json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]), 1);
        check(api::json!([{"operator": "Exists", "effect": "NoSchedule"}]), 2);
    }

    #[test]
    fn an_expression_does_not_tolerate_everything() {
        check(api::json!([{"expression": "true"}]), 2);
    }
}
