//! A fleet of simulated nodes against the real server in one process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::coordination::v1::Lease;
use api::core::v1::{Event, Node, Pod};
use api::features::Features as Gates;
use api::json::Value;
use api::labels::Selector;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::{Options, Server};
use client::informer::Informer;
use client::objects::{Deletion, Patch, Selection};
use client::resources::ServedView as _;
use client::{Client, Resource};
use kubelet::Fleet;
use kubelet::simulation::{Rules, Simulation};
use kubelet::template::Template;
use matching::CompileCache;
use store::{EmbeddedStore, Store};
use tokio::sync::oneshot;

const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
const LIMIT: Duration = Duration::from_secs(90);

/// A server, and what it holds of nodes and pods.
pub(crate) struct Cluster {
    store: Arc<dyn Store>,
    server: Arc<Server>,
    pub(crate) admin: Client,
    pub(crate) nodes: Informer<Node>,
    pub(crate) pods: Informer<Pod>,
}

/// A fleet at work, until it is dropped.
pub(crate) struct RunningFleet {
    _stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

/// A scheduler or controllers at work, until this is dropped.
pub(crate) struct Component {
    stop: client::Stop,
    task: tokio::task::JoinHandle<()>,
}

impl Component {
    /// Ends it, and waits until it has.
    pub(crate) async fn end(self) {
        self.stop.stop();
        self.task.await.unwrap();
    }
}

impl RunningFleet {
    pub(crate) async fn stop(self) {
        drop(self._stop);
        self.task.await.unwrap();
    }
}

impl Cluster {
    pub(crate) async fn start(features: Gates) -> Self {
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let cluster = Self::on(store, features).await;
        let account = api::json!({"metadata": {"name": "default"}});
        cluster.admin.documents(SERVICE_ACCOUNTS).create("default", &account).await.unwrap();
        cluster
    }

    /// Another server on the same data.
    pub(crate) async fn beside(&self, features: Gates) -> Self {
        Self::on(self.store.clone(), features).await
    }

    async fn on(store: Arc<dyn Store>, features: Gates) -> Self {
        let server = Server::start(store.clone(), Options { features, ..Options::default() }).await.unwrap();
        let user = User::authenticated("admin", &["system:masters"]);
        let admin = Client::in_process(Connection::new(server.clone(), Some(user)), "admin");
        let nodes = Informer::start(&admin, Selection::default());
        let pods = Informer::start(&admin, Selection::default());
        Self { store, server, admin, nodes, pods }
    }

    /// Runs all controllers, until what is given back is dropped.
    pub(crate) fn controllers(&self, features: Gates) -> Component {
        self.some_controllers(&["*"], features)
    }

    /// Runs the scheduler, until what is given back is dropped.
    pub(crate) fn scheduler(&self, features: Gates) -> Component {
        let (stop, shutdown) = client::Shutdown::channel();
        let user = User::authenticated(scheduler::IDENTITY, &[]);
        let options = scheduler::Options {
            device_cost_limit: dra::Budget::COST_LIMIT,
            client: Client::in_process(Connection::new(self.server.clone(), Some(user)), "kube-scheduler"),
            features,
            registry: Arc::new(telemetry::metrics::Registry::new()),
            health: client::Health::new(),
            shutdown,
            leadership: client::election::Leadership::uncontested(),
            seed: 1,
            configuration: Default::default(),
            profiler: Default::default(),
            has_placement_annotations: false,
        };
        let task = tokio::spawn(async move { scheduler::run(options).await.unwrap() });
        Component { stop, task }
    }

    /// Runs these controllers, until what is given back is dropped.
    pub(crate) fn some_controllers(&self, names: &[&str], features: Gates) -> Component {
        let (stop, shutdown) = client::Shutdown::channel();
        let server = self.server.clone();
        let options = controllers::manager::Options {
            clients: Arc::new(move |name| {
                let groups = ["system:masters"];
                let user = User::authenticated(name, &groups);
                Client::in_process(Connection::new(server.clone(), Some(user)), name)
            }),
            controllers: names.iter().map(ToString::to_string).collect(),
            features,
            settings: controllers::settings::Settings::default(),
            runtime: client::controller::Runtime::new(
                &telemetry::metrics::Registry::new(),
                client::Health::new(),
                shutdown,
            ),
        };
        let task = tokio::spawn(controllers::manager::run(options));
        Component { stop, task }
    }

    pub(crate) fn fleet(&self, nodes: usize, features: Gates) -> RunningFleet {
        self.fleet_with(nodes, features, None)
    }

    /// A fleet that also simulates the nodes that a selector matches.
    fn fleet_with(&self, nodes: usize, features: Gates, adopted: Option<Selector>) -> RunningFleet {
        let server = self.server.clone();
        let start = Instant::now();
        let options = kubelet::Options {
            nodes: (0..nodes).map(|number| format!("node-{number}")).collect(),
            template: Template::default(),
            adopts: true,
            adopted,
            devices: None,
            client: self.admin.clone(),
            client_for: Arc::new(move |node| {
                let user = User::authenticated(format!("system:node:{node}"), &["system:nodes"]);
                Client::in_process(Connection::new(server.clone(), Some(user)), "kubelet")
            }),
            cache: Arc::new(CompileCache::new(64.try_into().unwrap(), Arc::new(move || start.elapsed())).unwrap()),
            features: features.into(),
            clock: self.admin.clock().clone(),
            endpoint: None,
            reports: None,
            static_pods: None,
        };
        let fleet = Fleet::new(options, Simulation::new(Rules::default()));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            fleet
                .run(async {
                    let _: Result<(), _> = stopped.await;
                })
                .await;
        });
        RunningFleet { _stop: stop, task }
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) {
        let pod = api::json!({"metadata": {"name": name}, "spec": spec});
        self.admin.documents(Pod::RESOURCE).create("default", &pod).await.unwrap();
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Arc<Pod>> {
        self.pods.store().get("default", name)
    }
}

/// Waits until the objects of an informer are as they should be.
pub(crate) async fn until<T: Send + Sync + 'static>(informer: &Informer<T>, holds: impl Fn() -> bool) {
    let mut changes = informer.changes();
    let waiting = async {
        while !holds() {
            changes.next().await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.expect("the objects did not become as they should be");
}

fn is_ready(node: &Node) -> bool {
    node.status.conditions.iter().any(|it| it.condition_type == "Ready" && it.status == "True")
}

pub(crate) fn on(node: &str) -> Value {
    api::json!({"nodeName": node, "containers": [{"name": "c", "image": "app:1"}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_end_and_go_on_after_a_restart() {
    let cluster = Cluster::start(Gates::all_proposals()).await;
    let fleet = cluster.fleet(3, Gates::all_proposals());
    until(&cluster.nodes, || cluster.nodes.store().list().iter().filter(|node| is_ready(node)).count() == 3).await;

    cluster.create("a", on("node-1")).await;
    until(&cluster.pods, || cluster.pod("a").is_some_and(|pod| pod.status.phase == "Running")).await;
    let pod = cluster.pod("a").unwrap();
    assert_eq!((&*pod.status.pod_ip, &*pod.status.host_ip), ("10.128.1.1", "10.64.0.2"));
    let conditions: Vec<String> =
        pod.status.conditions.iter().map(|it| format!("{}={}", it.condition_type, it.status)).collect();
    let expected = [
        "PodReadyToStartContainers=True",
        "Initialized=True",
        "Ready=True",
        "ContainersReady=True",
        "PodScheduled=True",
    ];
    assert_eq!(conditions, expected);
    let leases: Informer<Lease> = Informer::start(&cluster.admin, Selection::default());
    let lease = || leases.store().get("kube-node-lease", "node-1");
    // A lease that is older than the fleet's first look at its node gets its owner when it is renewed.
    until(&leases, || lease().is_some_and(|it| !it.metadata.owner_references.is_empty())).await;
    assert_eq!(lease().unwrap().spec.holder_identity.as_deref(), Some("node-1"));

    // Another process takes over: nothing is written about a running pod, and its address stays in use.
    fleet.stop().await;
    let fleet = cluster.fleet(3, Gates::all_proposals());
    cluster.create("b", on("node-1")).await;
    until(&cluster.pods, || cluster.pod("b").is_some_and(|pod| pod.status.phase == "Running")).await;
    assert_eq!(cluster.pod("b").unwrap().status.pod_ip, "10.128.1.2");
    assert_eq!(cluster.pod("a").unwrap().metadata.resource_version, pod.metadata.resource_version);

    let pods = cluster.admin.objects::<Pod>();
    pods.delete("default", "a", &Deletion::default()).await.unwrap();
    until(&cluster.pods, || cluster.pod("a").is_none()).await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_ask_for_it_are_played_and_others_are_not() {
    let cluster = Cluster::start(Gates::all_proposals()).await;
    let nodes = cluster.admin.documents(Node::RESOURCE);
    let before = api::json!({"metadata": {"name": "before", "annotations": {"sim.celplane.dev/node": "true"}},
        "status": {"capacity": {"cpu": "2", "pods": "3"}}});
    nodes.create("", &before).await.unwrap();
    let fleet = cluster.fleet(1, Gates::all_proposals());
    let ready = |name: &str| cluster.nodes.store().get("", name).is_some_and(|node| is_ready(&node));
    until(&cluster.nodes, || ready("before")).await;
    let mine = api::json!({"metadata": {"name": "mine", "annotations": {"sim.celplane.dev/node": "true"}}});
    nodes.create("", &api::json!({"metadata": {"name": "other"}})).await.unwrap();
    nodes.create("", &mine).await.unwrap();
    until(&cluster.nodes, || ready("mine")).await;
    let lease = cluster.admin.objects::<Lease>().get("kube-node-lease", "mine").await;
    assert!(lease.is_ok(), "it is heard of at once, though it joined between two rounds: {lease:?}");
    let found = cluster.nodes.store().get("", "before").unwrap();
    assert_eq!(found.status.allocatable.get("cpu").map(ToString::to_string).as_deref(), Some("2"));
    assert_eq!(found.metadata.labels.get("kubernetes.io/hostname").map(|it| it.as_str()), Some("before"));
    cluster.create("a", on("mine")).await;
    until(&cluster.pods, || cluster.pod("a").is_some_and(|pod| pod.status.phase == "Running")).await;
    assert!(!ready("other"), "nobody plays it");

    // Another process simulates them under the same addresses.
    let address = |name: &str| cluster.nodes.store().get("", name).unwrap().status.addresses[0].address.clone();
    let addresses = (address("before"), address("mine"));
    fleet.stop().await;
    let _fleet = cluster.fleet(1, Gates::all_proposals());
    cluster.create("b", on("mine")).await;
    until(&cluster.pods, || cluster.pod("b").is_some_and(|pod| pod.status.phase == "Running")).await;
    assert_eq!((address("before"), address("mine")), addresses);
    assert_ne!(cluster.pod("a").unwrap().status.pod_ip, cluster.pod("b").unwrap().status.pod_ip);
}

/// `--adopt-nodes`: Nodes of an autoscaler, created before and after the start.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_adopted_labels_are_simulated() {
    let cluster = Cluster::start(Gates::all_proposals()).await;
    let nodes = cluster.admin.documents(Node::RESOURCE);
    let node = |name: &str, labels: Value| api::json!({"metadata": {"name": name, "labels": labels}});
    let pool = || api::json!({"example.com/pool": "gold"});
    nodes.create("", &node("early", pool())).await.unwrap();
    nodes.create("", &node("silver", api::json!({"example.com/pool": "silver"}))).await.unwrap();
    let _fleet = cluster.fleet_with(1, Gates::all_proposals(), Some(Selector::parse("example.com/pool=gold").unwrap()));
    let ready = |name: &str| cluster.nodes.store().get("", name).is_some_and(|node| is_ready(&node));
    until(&cluster.nodes, || ready("early") && ready("node-0")).await;
    nodes.create("", &node("late", pool())).await.unwrap();
    until(&cluster.nodes, || ready("late")).await;
    for name in ["early", "late"] {
        cluster.create(name, on(name)).await;
        until(&cluster.pods, || cluster.pod(name).is_some_and(|pod| pod.status.phase == "Running")).await;
    }
    assert!(!ready("silver"));
    // A node that gets the label later is adopted, too.
    let label = api::json!({"metadata": {"labels": {"example.com/pool": "gold"}}});
    nodes.patch("", "silver", "", Patch::Merge, &label).await.unwrap();
    until(&cluster.nodes, || ready("silver")).await;
}

/// The node agent reports an expression that rejects a pod, as the scheduler does.
#[tokio::test(flavor = "multi_thread")]
async fn node_reports_failed_expressions_of_rejected_pods() {
    let cluster = Cluster::start(Gates::all_proposals()).await;
    let _fleet = cluster.fleet(1, Gates::all_proposals());
    until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some()).await;
    let mut spec = on("node-0");
    let terms = api::json!([{"matchCELExpressions": ["node.labels['absent'] == 'true'"]}]);
    let required = api::json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    spec.as_object_mut().unwrap().insert("affinity", api::json!({"nodeAffinity": required}));
    cluster.create("rejected", spec).await;
    until(&cluster.pods, || cluster.pod("rejected").is_some_and(|pod| pod.is_terminal())).await;
    assert_eq!(cluster.pod("rejected").unwrap().status.reason, "NodeAffinity");
    let events: Informer<Event> = Informer::start(&cluster.admin, Selection::default());
    let note = "expression \"node.labels['absent'] == 'true'\" failed on node node-0 for the node's labels: no such key: absent";
    let is_it =
        |it: &Event| it.reason == "ExpressionFailed" && it.message == note && it.involved_object.name == "rejected";
    until(&events, || events.store().list().iter().any(|it| is_it(it))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_until_its_volume_can_be_reached() {
    const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes", "PersistentVolume");
    const CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
    let cluster = Cluster::start(Gates::all_proposals()).await;
    let _fleet = cluster.fleet(1, Gates::all_proposals());
    until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some()).await;
    let claim = api::json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v",
    }});
    let claim = cluster.admin.documents(CLAIMS).create("default", &claim).await.unwrap();
    let uid = claim.str_at(&["metadata", "uid"]).unwrap();
    let volume = api::json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"},
        "claimRef": {"namespace": "default", "name": "c", "uid": uid},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchCELExpressions": ["'rack' in node.labels && node.labels['rack'] == 'r1'"]},
        ]}},
    }});
    cluster.admin.documents(VOLUMES).create("", &volume).await.unwrap();
    let mut spec = on("node-0");
    let volumes = api::json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
    spec.as_object_mut().unwrap().insert("volumes", volumes);
    cluster.create("waits", spec).await;
    let events: Informer<Event> = Informer::start(&cluster.admin, Selection::default());
    let is_told = |it: &Event| it.reason == "FailedMount" && it.message.contains("no matching NodeSelectorTerms");
    until(&events, || events.store().list().iter().any(|it| is_told(it))).await;
    let state = || cluster.pod("waits")?.status.container_statuses.first()?.state.clone();
    until(&cluster.pods, || state() == Some(api::json!({"waiting": {"reason": "ContainerCreating"}}))).await;
    let pod = cluster.pod("waits").unwrap();
    assert_eq!((&*pod.status.phase, &*pod.status.pod_ip), ("Pending", ""));
    let label = api::json!({"metadata": {"labels": {"rack": "r1"}}});
    cluster.admin.documents(Node::RESOURCE).patch("", "node-0", "", Patch::Merge, &label).await.unwrap();
    until(&cluster.pods, || cluster.pod("waits").is_some_and(|pod| pod.status.phase == "Running")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_admission_over_budget_is_reported_and_continued() {
    let cluster = Cluster::start(Gates::all_proposals()).await;
    let taints: Vec<Value> = (0..5).map(|it| api::json!({"key": (format!("t{it}")), "effect": "NoExecute"})).collect();
    let played = api::json!({"sim.celplane.dev/node": "true"});
    let node = api::json!({"metadata": {"name": "tainted", "annotations": played}, "spec": {"taints": taints}});
    // Before the fleet starts, so that it knows the taints when the pod arrives.
    cluster.admin.documents(Node::RESOURCE).create("", &node).await.unwrap();
    let _fleet = cluster.fleet(0, Gates::all_proposals());
    until(&cluster.nodes, || cluster.nodes.store().get("", "tainted").is_some_and(|node| is_ready(&node))).await;
    let mut spec = on("tainted");
    let costly = crate::evictions::costly_tolerations();
    spec.as_object_mut().unwrap().insert("tolerations", costly);
    cluster.create("costly", spec).await;
    // It runs only if a later check continues: all of the expressions cost more than the budget of one.
    until(&cluster.pods, || cluster.pod("costly").is_some_and(|pod| pod.status.phase == "Running")).await;
    let events: Informer<Event> = Informer::start(&cluster.admin, Selection::default());
    let is_reported = |it: &Event| {
        let begin = "Expressions exceeded the budget of one admission (";
        it.reason == "ExpressionBudgetExceeded" && it.message.starts_with(begin) && it.involved_object.name == "costly"
    };
    until(&events, || events.store().list().iter().any(|it| is_reported(it))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_node_does_not_take_fails_with_a_reason() {
    let cluster = Cluster::start(Gates::all_proposals()).await;
    let _fleet = cluster.fleet(1, Gates::all_proposals());
    until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some()).await;
    let taint = api::json!({"spec": {"taints": [{"key": "maint", "effect": "NoExecute"}]}});
    let nodes = cluster.admin.objects::<Node>();
    nodes.patch("", "node-0", "", Patch::Merge, &taint).await.unwrap();
    until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some_and(|it| it.spec.taints.len() == 1)).await;

    // The node may observe its taint slightly later: until then it accepts pods.
    let mut pod = None;
    for number in 0..1000 {
        let name = format!("refused-{number}");
        cluster.create(&name, on("node-0")).await;
        let is_decided = |pod: &Pod| pod.is_terminal() || pod.status.phase == "Running";
        until(&cluster.pods, || cluster.pod(&name).is_some_and(|pod| is_decided(&pod))).await;
        pod = cluster.pod(&name).filter(|pod| pod.is_terminal());
        if pod.is_some() {
            break;
        }
    }
    let pod = pod.unwrap();
    assert_eq!((&*pod.status.phase, &*pod.status.reason), ("Failed", "TaintToleration"));
    let message = "Pod was rejected: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    assert_eq!(pod.status.message, message);

    let mut spec = on("node-0");
    let tolerations = api::json!([{"expression": "taint.key == 'maint'"}]);
    spec.as_object_mut().unwrap().insert("tolerations", tolerations);
    cluster.create("taken", spec).await;
    until(&cluster.pods, || cluster.pod("taken").is_some_and(|pod| pod.status.phase == "Running")).await;
}
