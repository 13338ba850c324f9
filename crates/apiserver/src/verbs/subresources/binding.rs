//! `pods/{name}/binding`: a pod gets its node.

use api::json::Value;
use api::well_known::{CONDITION_POD_SCHEDULED, LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE};

use super::super::create::{check_namespace, normalize};
use super::super::modify::{Decision, modify};
use super::super::{Call, ownership};
use crate::admission::{Attributes, Operation};
use crate::custom::rows::Row;
use crate::resources;
use crate::wire::answer::Answer;
use crate::wire::payload;
use crate::wire::request::Target;
use crate::wire::status::{Failure, Result};
use api::metadata;

/// Labels of a node that its pods get, too.
const TOPOLOGY: [&str; 2] = [LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE];

pub(in crate::verbs) async fn bind(call: &Call<'_>) -> Result<Answer> {
    let payload = payload::read(call.headers, &call.body, "Binding")?;
    let of = api::types::by_kind("", "v1", "Binding");
    let mut binding = payload::decode_kind("", "v1", "Binding", of, payload)?.object;
    check_namespace(call, &mut binding)?;
    ownership::own(call, ("", "Binding"), &call.target.subresource, &mut binding);
    let dry_run = call.is_dry_run()?;
    let options = || call.options("CreateOptions");
    let given_name = match call.target.name.as_str() {
        "" => metadata::name(&binding).to_owned(),
        name => name.to_owned(),
    };
    let attributes = call.attributes(Operation::Create, &call.target.subresource, dry_run, &options);
    let attributes = Attributes { name: &given_name, ..attributes };
    call.server.admission.mutate(&attributes, &mut binding).await?;
    let pods = resources::PODS;
    let name = match call.target.name.as_str() {
        "" => metadata::name(&binding).to_owned(),
        name => name.to_owned(),
    };
    let given = metadata::name(&binding);
    if !given.is_empty() && given != name {
        return Err(Failure::bad_request("name in URL does not match name in Binding object"));
    }
    let node = binding.text_at(&["target", "name"]).to_owned();
    let kind = binding.text_at(&["target", "kind"]);
    let mut errors = api::field::Errors::new();
    let at = api::field::Path::new("target");
    if !matches!(kind, "" | "Node") {
        errors.not_supported(at.child("kind"), kind, &["Node", "<empty>"]);
    }
    if node.is_empty() {
        errors.required(at.child("name"), "");
    }
    if !errors.is_empty() {
        // Kubernetes answers with the bare list of errors.
        return Err(Failure::unclassified(errors.message()));
    }
    call.server.admission.validate(&Attributes { object: Some(&binding), ..attributes }).await?;
    let target = Target { name: name.clone(), resource: "pods".to_owned(), ..call.target.clone() };
    let row = Row::BuiltIn(pods);
    let pod_call = call.about(&row, pods, &target);
    let uid = metadata::text(&binding, "uid").to_owned();
    let labels = topology_labels(call, &node);
    modify(&pod_call, dry_run, |pod| {
        let conflict = |why: String| {
            let mut failure = Failure::conflict(pods, &name, &why);
            failure.message = failure.message.replacen("on pods", "on pods/binding", 1);
            failure.with_detail("kind", "pods/binding")
        };
        let found = metadata::text(pod, "uid");
        if !uid.is_empty() && uid != found {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/pods/{}/{name}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {found}",
                pod_call.target.namespace
            );
            return Err(Failure::conflict(pods, &name, &why));
        }
        if metadata::is_deleting(pod) {
            return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let bound = pod.text_at(&["spec", "nodeName"]);
        if !bound.is_empty() {
            return Err(conflict(format!("pod {name} is already assigned to node \"{bound}\"")));
        }
        let gates = pod.list_at(&["spec", "schedulingGates"]);
        if !gates.is_empty() {
            return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        Ok(Decision::Put(bound_pod(&pod_call, pod, &node, &binding, &labels)))
    })
    .await?;
    let status = api::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Answer::json(201, &status))
}

fn topology_labels(call: &Call<'_>, node: &str) -> Vec<(String, Value)> {
    let nodes = resources::NODES;
    let Some(node) = call.server.cache.resource(&nodes.prefix()).get(&nodes.key("", node)) else { return Vec::new() };
    let node = node.decode();
    let labels = metadata::labels(&node).into_iter().flat_map(|labels| labels.iter());
    labels.filter(|(key, _)| TOPOLOGY.contains(key)).map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

fn bound_pod(call: &Call<'_>, pod: &Value, node: &str, binding: &Value, labels: &[(String, Value)]) -> Value {
    let mut pod = pod.clone();
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName", node);
    }
    let annotations = binding.object_at(&["metadata", "annotations"]);
    for (field, entries) in [
        (
            "annotations",
            annotations.into_iter().flat_map(|it| it.iter()).map(|(k, v)| (k.to_owned(), v.clone())).collect(),
        ),
        ("labels", labels.to_vec()),
    ] {
        let entries: Vec<(String, Value)> = entries;
        if entries.is_empty() {
            continue;
        }
        if let Some(map) = metadata::make(&mut pod).get_or_insert(field, Value::object).as_object_mut() {
            for (key, value) in entries {
                if field == "annotations" || !map.contains_key(&key) {
                    map.insert(key, value);
                }
            }
        }
    }
    let condition = api::json!({
        "type": CONDITION_POD_SCHEDULED, "status": "True", "lastProbeTime": null,
        "lastTransitionTime": (call.now().to_string())
    });
    if let Some(fields) = pod.as_object_mut() {
        let status = fields.get_or_insert("status", Value::object);
        if let Some(status) = status.as_object_mut() {
            // The wish for a node is fulfilled, or lost.
            status.remove("nominatedNodeName");
            let list = status.get_or_insert("conditions", || Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                match list.iter_mut().find(|it| it.str_at(&["type"]) == Some(CONDITION_POD_SCHEDULED)) {
                    Some(old) => *old = condition,
                    None => list.push(condition),
                }
            }
        }
    }
    normalize(call, &mut pod);
    pod
}
