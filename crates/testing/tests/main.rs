//! Clusters as tests start them.
#![allow(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod autoscaling;
mod time;

use celplane_testing::{Cluster, Error, Requests};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::Api;

async fn node_names(cluster: &Cluster) -> Vec<String> {
    let nodes = Api::<Node>::all(cluster.client().await.unwrap()).list(&Default::default()).await.unwrap();
    nodes.items.into_iter().filter_map(|node| node.metadata.name).collect()
}

#[tokio::test]
async fn cluster_in_process_has_ready_nodes() {
    let cluster = Cluster::builder().nodes(2).start().await.unwrap();
    assert_eq!(node_names(&cluster).await, ["node-0", "node-1"]);
    let directory = cluster.directory().to_owned();
    assert!(cluster.kubeconfig().exists());
    drop(cluster);
    assert!(!directory.exists(), "its files are gone");
}

#[tokio::test]
async fn clusters_side_by_side_share_nothing() {
    let clusters = [Cluster::builder().start().await.unwrap(), Cluster::builder().start().await.unwrap()];
    let namespaces = Api::<Namespace>::all(clusters[0].client().await.unwrap());
    let namespace = Namespace {
        metadata: kube::core::ObjectMeta { name: Some("mine".to_owned()), ..Default::default() },
        ..Default::default()
    };
    namespaces.create(&Default::default(), &namespace).await.unwrap();
    let others = Api::<Namespace>::all(clusters[1].client().await.unwrap());
    assert!(others.get_opt("mine").await.unwrap().is_none());
    assert_ne!(clusters[0].url(), clusters[1].url());
}

/// `CELPLANE_TESTING_RUNS=1000` looks for rare failures.
#[tokio::test]
async fn repeated_clusters_start_serve_and_end() {
    let runs = std::env::var("CELPLANE_TESTING_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(2);
    for run in 0..runs {
        let cluster = Cluster::builder().nodes(1).start().await.unwrap_or_else(|error| panic!("run {run}: {error}"));
        let maps = Api::<ConfigMap>::default_namespaced(cluster.client().await.unwrap());
        maps.create(&Default::default(), &config_map("a")).await.unwrap_or_else(|error| panic!("run {run}: {error}"));
        assert_eq!(node_names(&cluster).await, ["node-0"], "run {run}");
        cluster.advance(std::time::Duration::from_secs(60)).await.unwrap();
        let (address, directory) = (cluster.url().replace("https://", ""), cluster.directory().to_owned());
        drop(cluster);
        assert!(std::net::TcpStream::connect(&address).is_err() && !directory.exists(), "run {run}");
    }
}

#[tokio::test]
async fn panicking_test_leaves_no_server_behind() {
    let cluster = Cluster::builder().start().await.unwrap();
    let address = cluster.url().trim_start_matches("https://").to_owned();
    assert!(std::net::TcpStream::connect(&address).is_ok());
    let panicked = std::thread::spawn(move || {
        let _cluster = cluster;
        panic!("the test fails");
    });
    assert!(panicked.join().is_err());
    assert!(std::net::TcpStream::connect(&address).is_err(), "the port is closed");
}

#[tokio::test]
async fn bad_settings_are_errors() {
    assert!(matches!(Cluster::builder().gates("NoSuchGate=true").start().await, Err(Error::Gates(_))));
    assert!(matches!(Cluster::builder().program("/no/such/program").start().await, Err(Error::Io(_))));
    let refused = Cluster::builder().program("/bin/false").start().await;
    assert!(matches!(refused, Err(Error::Start(_))), "{refused:?}");
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: kube::core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        ..Default::default()
    }
}

#[tokio::test]
async fn api_server_rejects_selected_requests() {
    let cluster = Cluster::builder().start().await.unwrap();
    let api = cluster.api().unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(cluster.client().await.unwrap());
    let create = async |name: &str| match maps.create(&Default::default(), &config_map(name)).await {
        Ok(_) => 201,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    };

    api.refuse(Requests::new("create", "configmaps").namespace("default").first(2).with_conflict());
    assert_eq!([create("a").await, create("a").await, create("a").await], [409, 409, 201]);

    api.refuse(Requests::new("create", "configmaps").namespace("elsewhere"));
    api.refuse(Requests::new("create", "pods/eviction"));
    assert_eq!(create("b").await, 201);
    api.refuse(Requests::new("", "configmaps").with_internal_error());
    assert_eq!(create("c").await, 500);
    assert!(maps.get("a").await.is_err());
    api.recover();
    assert_eq!(create("c").await, 201);
}

#[tokio::test]
async fn stopped_node_keeps_pods_waiting() {
    use k8s_openapi::api::core::v1::Pod;

    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let node = cluster.node("node-0");
    node.stop().await.unwrap();
    let nodes = Api::<Node>::all(cluster.client().await.unwrap());
    let annotations = |node: Node| node.metadata.annotations.unwrap_or_default();
    let stopped = annotations(nodes.get("node-0").await.unwrap());
    assert_eq!(stopped["sim.celplane.dev/heartbeat"], "stopped");

    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]},
    }))
    .unwrap();
    let pods = Api::<Pod>::default_namespaced(cluster.client().await.unwrap());
    pods.create(&Default::default(), &pod).await.unwrap();
    node.start().await.unwrap();
    let running = async {
        while pods.get("p").await.unwrap().status.and_then(|status| status.phase).as_deref() != Some("Running") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), running).await.unwrap();
    assert!(cluster.node("no-such-node").stop().await.is_err());
}
