//! A client that does not know the field reads objects and writes them back without it.

use api::json::Value;
use client::Resource;
use client::resources::ServedView as _;

use super::{cel, kept_on};
use crate::fleet::Cluster;

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments", "Deployment");

/// Changes that such a client makes to tolerations: it drops unknown fields.
fn without_expressions(spec: &mut Value) {
    let Some(Value::Array(tolerations)) = spec.as_object_mut().and_then(|spec| spec.get_mut("tolerations")) else {
        panic!("tolerations are a list")
    };
    for toleration in tolerations {
        toleration.as_object_mut().unwrap().remove("expression");
    }
}

fn part<'v>(value: &'v mut Value, path: &[&str]) -> &'v mut Value {
    path.iter().fold(value, |value, field| value.as_object_mut().unwrap().get_mut(field).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn old_client_dropping_expressions_is_rejected() {
    let cluster = Cluster::start(cel(true)).await;
    cluster.create("pod", kept_on("node-0")).await;
    let pods = cluster.admin.documents(api::core::v1::Pod::RESOURCE);
    let mut pod = pods.get("default", "pod").await.unwrap();
    without_expressions(part(&mut pod, &["spec"]));
    let refusal = pods.update("default", "pod", &pod).await.unwrap_err().to_string();
    assert!(refusal.contains("spec.tolerations[0].operator: Invalid value"), "{refusal}");

    let template = api::json!({"metadata": {"labels": {"app": "a"}}, "spec": (kept_on(""))});
    let deployment = api::json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}}, "template": template,
    }});
    let deployments = cluster.admin.documents(DEPLOYMENTS);
    deployments.create("default", &deployment).await.unwrap();
    let mut deployment = deployments.get("default", "d").await.unwrap();
    without_expressions(part(&mut deployment, &["spec", "template", "spec"]));
    let refusal = deployments.update("default", "d", &deployment).await.unwrap_err().to_string();
    assert!(refusal.contains("spec.template.spec.tolerations[0].operator: Invalid value"), "{refusal}");

    // With a number of seconds, too: it must not become a toleration of everything.
    let mut spec = kept_on("");
    let timed = api::json!([{"expression": "taint.key == 'maint'", "tolerationSeconds": 60}]);
    spec.as_object_mut().unwrap().insert("tolerations", timed);
    cluster.create("timed", spec).await;
    let mut pod = pods.get("default", "timed").await.unwrap();
    without_expressions(part(&mut pod, &["spec"]));
    assert!(pods.update("default", "timed", &pod).await.is_err());
}
