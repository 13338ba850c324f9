//! Turning the feature off and on again, component by component, under pods that use it: in the order of KEP-5500, and in
//! the wrong one.

use api::core::v1::{Node, Pod};
use client::objects::{Deletion, Patch};
use client::resources::ServedView as _;

use super::{cel, kept_on, runs, taint};
use crate::fleet::{Cluster, Component, RunningFleet, until};

/// A control plane of which each component can be restarted with the gate on or off.
struct Plane {
    cluster: Cluster,
    kubelet: Option<RunningFleet>,
    controllers: Option<Component>,
    scheduler: Option<Component>,
}

impl Plane {
    /// All components with the gate, two nodes, of which node-1 has the taint, and a pod on it that an expression keeps.
    async fn start() -> Self {
        let cluster = Cluster::start(cel(true)).await;
        let mut plane = Self { cluster, kubelet: None, controllers: None, scheduler: None };
        plane.kubelet(true).await;
        plane.controllers(true).await;
        plane.scheduler(true).await;
        let nodes = &plane.cluster.nodes;
        let is_free = |node: &Node| node.spec.taints.is_empty();
        until(nodes, || nodes.store().list().iter().filter(|node| is_free(node)).count() == 2).await;
        taint(&plane.cluster, "node-1").await;
        until(nodes, || nodes.store().list().iter().filter(|node| is_free(node)).count() == 1).await;
        plane.create("kept").await.unwrap();
        until(&plane.cluster.pods, || runs(&plane.cluster, "kept")).await;
        plane
    }

    /// Makes a pod that the scheduler is to bring to the tainted node.
    async fn create(&self, name: &str) -> Result<(), client::Error> {
        let mut spec = kept_on("");
        let fields = spec.as_object_mut().unwrap();
        fields.remove("nodeName");
        fields.insert("nodeSelector", api::json!({"kubernetes.io/hostname": "node-1"}));
        let pod = api::json!({"metadata": {"name": name}, "spec": spec});
        self.cluster.admin.documents(Pod::RESOURCE).create("default", &pod).await.map(drop)
    }

    async fn kubelet(&mut self, is_on: bool) {
        if let Some(running) = self.kubelet.take() {
            running.stop().await;
        }
        self.kubelet = Some(self.cluster.fleet(2, cel(is_on)));
    }

    async fn controllers(&mut self, is_on: bool) {
        if let Some(running) = self.controllers.take() {
            running.end().await;
        }
        self.controllers = Some(self.cluster.some_controllers(&["node-lifecycle", "taint-eviction"], cel(is_on)));
    }

    async fn scheduler(&mut self, is_on: bool) {
        if let Some(running) = self.scheduler.take() {
            running.end().await;
        }
        self.scheduler = Some(self.cluster.scheduler(cel(is_on)));
    }

    /// Another server on the same data; the other components follow it.
    async fn apiserver(&mut self, is_on: bool) {
        self.cluster = self.cluster.beside(cel(is_on)).await;
        let pods = &self.cluster.pods;
        pods.synced().await;
        self.cluster.nodes.synced().await;
    }

    async fn is_pending(&self, name: &str) {
        let waits = |pod: &Pod| pod.status.conditions.iter().any(|it| it.reason == "Unschedulable");
        until(&self.cluster.pods, || self.cluster.pod(name).is_some_and(|pod| waits(&pod))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn off_and_on_in_order_places_nothing_wrongly_and_goes_on() {
    let mut plane = Plane::start().await;
    // Off: the server first, so that nothing new comes in; then scheduler, controllers and nodes.
    plane.apiserver(false).await;
    assert!(plane.create("late").await.unwrap_err().to_string().contains("require feature gate TaintTolerationCEL"));
    assert!(runs(&plane.cluster, "kept"), "the others still know the expression");
    plane.kubelet(true).await;
    plane.scheduler(false).await;
    plane.controllers(false).await;
    until(&plane.cluster.pods, || plane.cluster.pod("kept").is_none()).await;
    plane.kubelet(false).await;

    // On: nodes, controllers, scheduler, and then the server.
    plane.kubelet(true).await;
    plane.controllers(true).await;
    plane.scheduler(true).await;
    plane.apiserver(true).await;
    plane.kubelet(true).await;
    plane.controllers(true).await;
    plane.scheduler(true).await;
    plane.create("again").await.unwrap();
    until(&plane.cluster.pods, || runs(&plane.cluster, "again")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn off_in_the_wrong_order_rejects_and_evicts_but_places_nothing_wrongly() {
    let mut plane = Plane::start().await;
    // Nodes first: what the scheduler still places is rejected, and what runs stays.
    plane.kubelet(false).await;
    plane.create("rejected").await.unwrap();
    until(&plane.cluster.pods, || plane.cluster.pod("rejected").is_some_and(|pod| pod.is_terminal())).await;
    assert_eq!(plane.cluster.pod("rejected").unwrap().status.reason, "TaintToleration");
    assert!(runs(&plane.cluster, "kept"));
    // Controllers next: what runs goes, and what failed too.
    plane.controllers(false).await;
    until(&plane.cluster.pods, || plane.cluster.pod("kept").is_none()).await;
    // Then the scheduler: new pods wait. The server still takes them.
    plane.scheduler(false).await;
    plane.create("waits").await.unwrap();
    plane.is_pending("waits").await;
    // The server last: the pod that waits can be freed and deleted, though it could not be made any more.
    let finalizers = api::json!({"metadata": {"finalizers": ["example.com/held"]}});
    let pods = plane.cluster.admin.documents(Pod::RESOURCE);
    pods.patch("default", "waits", "", Patch::Merge, &finalizers).await.unwrap();
    plane.apiserver(false).await;
    let pods = plane.cluster.admin.documents(Pod::RESOURCE);
    let force = Deletion { grace_period_seconds: Some(0), ..Deletion::default() };
    pods.delete("default", "waits", &force).await.unwrap();
    until(&plane.cluster.pods, || plane.cluster.pod("waits").is_some_and(|pod| pod.metadata.is_deleting())).await;
    let freed = api::json!({"metadata": {"finalizers": null}});
    pods.patch("default", "waits", "", Patch::Merge, &freed).await.unwrap();
    until(&plane.cluster.pods, || plane.cluster.pod("waits").is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waited_runs_when_the_scheduler_has_the_gate_again() {
    let mut plane = Plane::start().await;
    plane.scheduler(false).await;
    plane.create("waits").await.unwrap();
    plane.is_pending("waits").await;
    plane.scheduler(true).await;
    until(&plane.cluster.pods, || runs(&plane.cluster, "waits")).await;
}
