//! Autoscalers on simulated nodes, with moved time.

use std::time::Duration;

use celplane_testing::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::time::{read, until};

const MINUTE: Duration = Duration::from_secs(60);

async fn autoscale(client: &Client, target: Value, spec: Value) -> Api<HorizontalPodAutoscaler> {
    let mut document = json!({"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target}});
    document["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let autoscalers = Api::<HorizontalPodAutoscaler>::default_namespaced(client.clone());
    autoscalers.create(&PostParams::default(), &read(document)).await.unwrap();
    autoscalers
}

/// The number of replicas, with what the autoscaler reports about it.
async fn replicas(client: &Client, autoscalers: &Api<HorizontalPodAutoscaler>) -> (i32, String) {
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let count = deployments.get("web").await.unwrap().spec.replicas.unwrap();
    let status = autoscalers.get("web").await.unwrap().status.unwrap_or_default();
    (count, serde_json::to_string(&status).unwrap())
}

#[tokio::test]
async fn deployment_is_scaled_up_and_down_by_its_usage() {
    let cluster = Cluster::builder().nodes(2).start().await.unwrap();
    let client = cluster.client().await.unwrap();
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let template = |usage: &str| {
        json!({
            "metadata": {"labels": {"app": "web"}, "annotations": {"sim.celplane.dev/cpu-usage": usage}},
            "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}]}
        })
    };
    let deployment: Deployment = read(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template("90%")}
    }));
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let autoscalers = autoscale(&client, target, json!({"minReplicas": 1, "maxReplicas": 6, "metrics": [cpu]})).await;
    cluster.advance(MINUTE * 3).await.unwrap();
    until(async || (replicas(&client, &autoscalers).await.0 == 6).then_some(())).await;
    cluster.advance(MINUTE).await.unwrap();
    let (count, status) = replicas(&client, &autoscalers).await;
    assert!(
        count == 6 && status.contains("TooManyReplicas") && status.contains("\"averageUtilization\":90"),
        "{status}"
    );
    // Without load, replicas stay for the stabilization window of five minutes.
    let patch = Patch::Merge(json!({"spec": {"template": template("5%")}}));
    deployments.patch("web", &PatchParams::default(), &patch).await.unwrap();
    cluster.advance(MINUTE * 3).await.unwrap();
    let (count, status) = replicas(&client, &autoscalers).await;
    assert!(count == 6 && status.contains("ScaleDownStabilized"), "{count} {status}");
    cluster.advance(MINUTE * 5).await.unwrap();
    until(async || (replicas(&client, &autoscalers).await.0 == 1).then_some(())).await;
}

#[tokio::test]
async fn policy_of_the_autoscaler_limits_its_steps() {
    let cluster = Cluster::builder().nodes(2).start().await.unwrap();
    let client = cluster.client().await.unwrap();
    let deployment: Deployment = read(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"sim.celplane.dev/memory-usage": "300Mi"}},
            "spec": {"containers": [{"name": "c", "image": "app:1"}]}}}
    }));
    Api::<Deployment>::default_namespaced(client.clone()).create(&PostParams::default(), &deployment).await.unwrap();
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let memory = json!({"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c",
        "target": {"type": "AverageValue", "averageValue": "100Mi"}}});
    let policy = json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}]});
    let spec = json!({"maxReplicas": 20, "metrics": [memory], "behavior": {"scaleUp": policy}});
    let autoscalers = autoscale(&client, target, spec).await;
    cluster.advance(MINUTE * 5).await.unwrap();
    let (count, status) = replicas(&client, &autoscalers).await;
    assert!(count == 3 && status.contains("ScaleUpLimit"), "{count} {status}");
    cluster.advance(MINUTE * 8).await.unwrap();
    until(async || (replicas(&client, &autoscalers).await.0 == 4).then_some(())).await;
}

#[tokio::test]
async fn custom_resource_is_scaled_by_its_subresource() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let client = cluster.client().await.unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"});
    let definition: CustomResourceDefinition = read(json!({
        "metadata": {"name": "farms.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "farms", "kind": "Farm"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": scale}}]}
    }));
    Api::<CustomResourceDefinition>::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Farm"), "farms");
    let farms = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource);
    let farm: DynamicObject = read(json!({"apiVersion": "example.com/v1", "kind": "Farm", "metadata": {"name": "f"},
        "spec": {"replicas": 1}}));
    until(async || farms.create(&PostParams::default(), &farm).await.ok()).await;
    let target = json!({"apiVersion": "example.com/v1", "kind": "Farm", "name": "f"});
    autoscale(&client, target, json!({"minReplicas": 3, "maxReplicas": 5})).await;
    until(async || (farms.get("f").await.unwrap().data["spec"]["replicas"] == json!(3)).then_some(())).await;
}
