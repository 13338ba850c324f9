//! Warns when an update takes CEL terms away: clients that do not know `matchCELExpressions` drop it in silence.
//!
//! `kubectl rollout undo` and `kubectl create job --from` of current releases decode objects into types without the field.
//! What is left of a term matches more nodes than before.

use api::json::Value;

/// Paths of pod specs in the kinds that have them.
const POD_SPECS: [&[&str]; 4] = [
    &["spec", "template", "spec"],
    &["spec", "jobTemplate", "spec", "template", "spec"],
    &["template", "spec"],
    &["spec"],
];

/// A warning for each place in which `old` has CEL terms and `new` has none.
pub(crate) fn warnings(old: &Value, new: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for path in POD_SPECS {
        let (Some(old), Some(new)) = (old.at(path), new.at(path)) else { continue };
        let lists = [
            ("requiredDuringSchedulingIgnoredDuringExecution", &["nodeSelectorTerms"][..]),
            ("preferredDuringSchedulingIgnoredDuringExecution", &[]),
        ];
        for (name, below) in lists {
            let terms = |spec: &Value| {
                let list = spec.at(&["affinity", "nodeAffinity", name]).and_then(|it| it.at(below)).cloned();
                list.unwrap_or_default()
            };
            // A term that was removed as a whole was removed on purpose.
            if count(&terms(old)) > 0 && count(&terms(new)) == 0 && !terms(new).is_null() {
                let at = path.join(".");
                warnings.push(format!(
                    "{at}.affinity.nodeAffinity.{name}: this update removes all matchCELExpressions, so that pods may run on \
                     more nodes; clients that do not know the field drop it (kubectl rollout undo, create job --from)"
                ));
            }
        }
    }
    warnings
}

/// The number of expressions in terms.
fn count(terms: &Value) -> usize {
    let of_term = |term: &Value| {
        let term = term.get("preference").unwrap_or(term);
        term.get("matchCELExpressions").and_then(Value::as_array).unwrap_or_default().len()
    };
    terms.as_array().unwrap_or_default().iter().map(of_term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(term: &Value) -> Value {
        let required = api::json!({"nodeSelectorTerms": [(term.clone())]});
        let affinity = api::json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        api::json!({"spec": {"template": {"spec": {"affinity": affinity}}}})
    }

    #[test]
    fn dropped_expressions_are_warned_of() {
        let plain = api::json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        let with = api::json!({
            "matchExpressions": [{"key": "a", "operator": "Exists"}], "matchCELExpressions": ["node.labels['a'] == 'b'"],
        });
        let found = warnings(&deployment(&with), &deployment(&plain));
        assert_eq!(found.len(), 1);
        let start = "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: this update removes";
        assert!(found[0].starts_with(start), "{found:?}");
        assert_eq!(warnings(&deployment(&with), &deployment(&with)), Vec::<String>::new());
        assert_eq!(warnings(&deployment(&plain), &deployment(&with)), Vec::<String>::new());
        let without = api::json!({"spec": {"template": {"spec": {}}}});
        assert_eq!(warnings(&deployment(&with), &without), Vec::<String>::new(), "the affinity was removed as a whole");
    }
}
