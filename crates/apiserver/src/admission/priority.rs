//! `Priority`: the name of a priority class becomes a number.

use std::sync::Arc;

use api::json::Value;

use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::resources;
use crate::wire::status::{Failure, Result};
use api::metadata;
use cache::stored::ServedObject;

/// The plugin.
pub(super) struct Priority(pub(super) Arc<dyn Cluster>);

impl Plugin for Priority {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_for("", "pods")
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value) -> Verdict<'a> {
        done(mutate(&*self.0, pod))
    }
}

/// Sets priority and preemption policy of a new pod.
///
/// # Errors
/// 403 if the class does not exist, or the pod sets another priority itself.
fn mutate(cluster: &dyn Cluster, pod: &mut Value) -> Result<()> {
    let name = pod.text_at(&["spec", "priorityClassName"]).to_owned();
    let refuse = |pod: &Value, why: &str| Failure::forbidden("", "pods", super::shown_name(pod), why);
    let classes = resources::PRIORITY_CLASSES;
    let cache = cluster.cache().resource(&classes.prefix());
    let class = if name.is_empty() {
        // Most classes are not the default one, which is visible without decoding them.
        let may_be_default = |_: &str, class: &ServedObject| class.contains(b"\"globalDefault\":true");
        let all = cache.list(&classes.prefix(), None, 0, may_be_default).objects;
        let mut defaults: Vec<Value> = all
            .into_iter()
            .map(|(_, class)| class.decode())
            .filter(|class| class.get("globalDefault").and_then(Value::as_bool) == Some(true))
            .collect();
        defaults.sort_by_key(|class| class.get("value").and_then(Value::as_i64));
        defaults.into_iter().next()
    } else {
        match cache.get(&classes.key("", &name)) {
            Some(class) => Some(class.decode()),
            None => return Err(refuse(pod, &format!("no PriorityClass with name {name} was found"))),
        }
    };
    let value = class.as_ref().and_then(|class| class.get("value")).and_then(Value::as_i64).unwrap_or_default();
    let policy = class.as_ref().and_then(|class| class.str_at(&["preemptionPolicy"])).unwrap_or("PreemptLowerPriority");
    let given = pod.i64_at(&["spec", "priority"]);
    if given.is_some_and(|given| given != value) {
        return Err(refuse(
            pod,
            &format!(
                "the integer value of priority ({}) must not be provided in pod spec; priority admission controller \
                 computed {value} from the given PriorityClass name",
                given.unwrap_or_default()
            ),
        ));
    }
    let given = pod.str_at(&["spec", "preemptionPolicy"]).map(ToOwned::to_owned);
    if given.as_deref().is_some_and(|given| given != policy) {
        let given = given.unwrap_or_default();
        return Err(refuse(
            pod,
            &format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            ),
        ));
    }
    let class_name = class.as_ref().map(|class| metadata::name(class).to_owned()).unwrap_or_default();
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("priority", value);
        spec.insert("preemptionPolicy", policy);
        if !class_name.is_empty() {
            spec.insert("priorityClassName", class_name);
        }
    }
    Ok(())
}
