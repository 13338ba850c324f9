//! Registration flags of nodes: labels, taints and capacity in addition to a template.

use anyhow::{Context as _, ensure};
use api::Quantity;
use api::json::{Object, Value};
use api::well_known::{EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE, EFFECT_PREFER_NO_SCHEDULE};

const EFFECTS: [&str; 3] = [EFFECT_NO_SCHEDULE, EFFECT_PREFER_NO_SCHEDULE, EFFECT_NO_EXECUTE];

/// Flags that add to the node template.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct RegistrationArguments {
    /// Labels of the nodes: key=value,key=value
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    node_labels: Vec<String>,
    /// Taints of the nodes: key=value:Effect,key:Effect
    #[arg(long, value_name = "TAINTS", value_delimiter = ',')]
    register_with_taints: Vec<String>,
    /// Capacity of the nodes: cpu=4,memory=16Gi,pods=110
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    capacity: Vec<String>,
}

impl RegistrationArguments {
    /// Adds the values of the flags to a Node.
    pub(crate) fn add_to(&self, node: &mut Value) -> anyhow::Result<()> {
        let Some(fields) = node.as_object_mut() else { return Ok(()) };
        for label in &self.node_labels {
            let (key, value) = label.split_once('=').with_context(|| format!("`{label}` is not key=value"))?;
            part(part(fields, "metadata")?, "labels")?.insert(key, value);
        }
        for text in &self.register_with_taints {
            let taint = taint(text).with_context(|| format!("`{text}` is not a taint such as key=value:NoSchedule"))?;
            let list = part(fields, "spec")?.get_or_insert("taints", || Value::Array(Vec::new()));
            list.as_array_mut().context("taints of the template are not a list")?.push(taint);
        }
        for amount in &self.capacity {
            let (name, text) = amount.split_once('=').with_context(|| format!("`{amount}` is not name=amount"))?;
            ensure!(Quantity::parse(text).is_ok(), "`{text}` is not an amount");
            part(part(fields, "status")?, "capacity")?.insert(name, text);
        }
        Ok(())
    }
}

fn part<'o>(object: &'o mut Object, field: &str) -> anyhow::Result<&'o mut Object> {
    let value = object.get_or_insert(field, Value::object);
    value.as_object_mut().with_context(|| format!("`{field}` of the template is not an object"))
}

fn taint(text: &str) -> Option<Value> {
    let (what, effect) = text.rsplit_once(':').filter(|(_, effect)| EFFECTS.contains(effect))?;
    Some(match what.split_once('=') {
        Some((key, "")) => api::json!({"key": key, "effect": effect}),
        Some((key, value)) => api::json!({"key": key, "value": value, "effect": effect}),
        None => api::json!({"key": what, "effect": effect}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn flags_add_to_the_template() {
        let flags = RegistrationArguments {
            node_labels: words(&["zone=a", "empty="]),
            register_with_taints: words(&["gpu=a100:NoSchedule", "maint:NoExecute"]),
            capacity: words(&["cpu=2", "example.com/gpu=4"]),
        };
        let mut node = api::json!({"metadata": {"labels": {"disk": "ssd"}}});
        flags.add_to(&mut node).unwrap();
        let expected = api::json!({
            "metadata": {"labels": {"disk": "ssd", "zone": "a", "empty": ""}},
            "spec": {"taints": [
                {"key": "gpu", "value": "a100", "effect": "NoSchedule"}, {"key": "maint", "effect": "NoExecute"},
            ]},
            "status": {"capacity": {"cpu": "2", "example.com/gpu": "4"}},
        });
        assert_eq!(node, expected);
    }

    #[test]
    fn invalid_flags_are_rejected() {
        let with = |taints: &[&str], capacity: &[&str]| {
            let (register_with_taints, capacity) = (words(taints), words(capacity));
            let flags = RegistrationArguments { register_with_taints, capacity, ..Default::default() };
            flags.add_to(&mut Value::object()).map_err(|error| error.to_string())
        };
        assert_eq!(
            with(&["a=b:Never"], &[]),
            Err("`a=b:Never` is not a taint such as key=value:NoSchedule".to_owned())
        );
        assert_eq!(with(&[], &["cpu=x"]), Err("`x` is not an amount".to_owned()));
    }
}
