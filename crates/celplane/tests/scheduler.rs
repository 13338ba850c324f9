//! The scheduler against a running API server: the tests that the proposals name, with their gates open and closed.

mod faults;
mod rival;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::features::{Features, Gate};
use api::json::Value;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::{Options, Server};
use client::election::Leadership;
use client::{Client, Health, Resource, Shutdown, Stop};
use store::{EmbeddedStore, Store};
use telemetry::metrics::Registry;

const NODES: Resource = Resource::new("", "v1", "nodes", "Node");
const PODS: Resource = Resource::new("", "v1", "pods", "Pod");
const ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes", "PersistentVolume");
const CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
const EVENTS: Resource = Resource::new("", "v1", "events", "Event");

const LIMIT: Duration = Duration::from_secs(60);

/// API server and scheduler in this process.
struct Plane {
    server: Arc<Server>,
    admin: Client,
    stop: Stop,
    scheduler: tokio::task::JoinHandle<Result<(), scheduler::StartError>>,
    registry: Arc<Registry>,
}

fn yaml(text: &str) -> Value {
    let (mut documents, error) = api::yaml::parse_documents(text);
    assert!(error.is_none(), "{error:?} in {text}");
    documents.remove(0).value
}

fn all() -> Features {
    Features::all_proposals().with(Gate::TaintTolerationComparisonOperators, true)
}

impl Plane {
    async fn start(store: Arc<dyn Store>, gates: Features, of_scheduler: Features) -> Self {
        Self::start_with(store, gates, of_scheduler, "").await
    }

    async fn start_with(store: Arc<dyn Store>, gates: Features, of_scheduler: Features, configuration: &str) -> Self {
        Self::start_limited(store, gates, of_scheduler, configuration, dra::Budget::COST_LIMIT).await
    }

    async fn start_limited(
        store: Arc<dyn Store>,
        gates: Features,
        of_scheduler: Features,
        configuration: &str,
        device_cost_limit: u64,
    ) -> Self {
        let server = Server::start(store, Options { features: gates, ..Options::default() }).await.unwrap();
        let connect = |name: &str, groups: &[&str], component: &str| {
            let user = User::authenticated(name, groups);
            Client::in_process(Connection::new(server.clone(), Some(user)), component)
        };
        let admin = connect("admin", &["system:masters"], "test");
        let configuration = match configuration {
            "" => Default::default(),
            text => scheduling::config::Configuration::read(&yaml(text)).unwrap(),
        };
        let (stop, shutdown) = Shutdown::channel();
        let registry = Arc::new(Registry::new());
        let scheduler = tokio::spawn(scheduler::run(scheduler::Options {
            client: connect(scheduler::IDENTITY, &[], "kube-scheduler"),
            features: of_scheduler,
            registry: registry.clone(),
            health: Health::new(),
            shutdown,
            leadership: Leadership::uncontested(),
            seed: 1,
            device_cost_limit,
            configuration,
            profiler: Default::default(),
            has_placement_annotations: false,
        }));
        let account = yaml("metadata: {name: default}");
        // It already exists on a store that was used before.
        let _ = admin.documents(ACCOUNTS).create("default", &account).await;
        Self { server, admin, stop, scheduler, registry }
    }

    async fn in_memory(gates: Features) -> Self {
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        Self::start(store, gates, gates).await
    }

    /// Ends both, the store included.
    async fn end(self) {
        self.stop.stop();
        self.scheduler.await.unwrap().unwrap();
        self.server.stop().await.unwrap();
    }

    async fn node(&self, name: &str, labels: &str, taints: &str) {
        let status = "status: {allocatable: {cpu: '4', memory: 8Gi, pods: '110'}}";
        let node = yaml(&format!("metadata: {{name: {name}, labels: {labels}}}\nspec: {{taints: {taints}}}\n{status}"));
        self.admin.documents(NODES).create("", &node).await.unwrap();
        // New nodes are tainted as not ready; here no component removes the taint.
        self.admin.documents(NODES).update("", name, &node).await.unwrap();
    }

    async fn try_pod(&self, name: &str, spec: &str) -> Result<(), client::Error> {
        let mut pod = yaml(&format!("metadata: {{name: {name}}}\nspec: {spec}"));
        let containers = yaml("[{name: c, image: i}]");
        pod.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("containers", containers);
        self.admin.documents(PODS).create("default", &pod).await.map(|_| ())
    }

    /// Returns the node of a pod, or the message why there is none.
    async fn outcome(&self, name: &str) -> Result<String, String> {
        let started = Instant::now();
        loop {
            let pod = self.admin.documents(PODS).get("default", name).await.unwrap();
            if let Some(node) = pod.str_at(&["spec", "nodeName"]) {
                return Ok(node.to_owned());
            }
            let conditions = pod.list_at(&["status", "conditions"]);
            if let Some(said) = conditions.iter().find(|it| it.str_at(&["status"]) == Some("False")) {
                return Err(said.text("message").to_owned());
            }
            assert!(started.elapsed() < LIMIT, "{pod}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn place(&self, name: &str, spec: &str) -> Result<String, String> {
        self.try_pod(name, spec).await.unwrap();
        self.outcome(name).await
    }

    /// Waits for an event of a pod with this reason; its note.
    async fn event(&self, pod: &str, reason: &str) -> String {
        let started = Instant::now();
        loop {
            let events = self.admin.documents(EVENTS).list(&Default::default()).await.unwrap();
            let found = events.items.iter().find(|event| {
                event.str_at(&["involvedObject", "name"]) == Some(pod) && event.str_at(&["reason"]) == Some(reason)
            });
            if let Some(event) = found {
                return event.text("message").to_owned();
            }
            assert!(started.elapsed() < LIMIT, "no event {reason} of {pod}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

const TAINT: &str = "[{key: node.example.com/version, value: v1.28.3, effect: NoSchedule}]";

/// Tolerations of the taint, and whether they tolerate it with all gates open and with all closed.
const TOLERATIONS: &[(&str, bool, bool)] = &[
    ("[]", false, false),
    ("[{key: node.example.com/version, operator: Exists}]", true, true),
    ("[{key: node.example.com/version, value: v1.28.3}]", true, true),
    ("[{key: node.example.com/version, value: v1.28.4}]", false, false),
    ("[{key: node.example.com/version, operator: SemverLt, value: v1.29.0}]", true, false),
    ("[{key: node.example.com/version, operator: SemverGt, value: v1.29.0}]", false, false),
    ("[{key: node.example.com/version, operator: Gt, value: '1'}]", false, false),
    ("[{expression: \"taint.key.startsWith('node.example.com/')\"}]", true, false),
    ("[{expression: \"semver(taint.value).isLessThan(semver('1.0.0'))\"}]", false, false),
];

/// TestTaintTolerationFilter, TestTaintTolerationCELExpression: gates open; then closed in the scheduler alone, which must not
/// take what it cannot evaluate for a yes.
#[tokio::test(flavor = "multi_thread")]
async fn taint_toleration_filter() {
    for closed in [false, true] {
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let of_scheduler = if closed { Features::default() } else { all() };
        let plane = Plane::start(store, all(), of_scheduler).await;
        plane.node("tainted", "{}", TAINT).await;
        for (number, (tolerations, open_fits, closed_fits)) in TOLERATIONS.iter().enumerate() {
            let outcome = plane.place(&format!("p{number}"), &format!("{{tolerations: {tolerations}}}")).await;
            let fits = if closed { closed_fits } else { open_fits };
            assert_eq!(outcome.is_ok(), *fits, "{tolerations} with gates closed: {closed}: {outcome:?}");
            if let Err(said) = outcome {
                let expected =
                    "0/1 nodes are available: 1 node(s) had untolerated taint {node.example.com/version: v1.28.3}.";
                assert!(said.starts_with(expected), "{said}");
            }
        }
        if closed {
            // The pod with an expression; Kubernetes' event has no room for the gate.
            let note = plane.event("p7", "FeatureGateDisabled").await;
            let expected =
                "spec.tolerations[0].expression has no effect: feature gate TaintTolerationCEL is off in the scheduler";
            assert_eq!(note, expected);
        }
        plane.end().await;
    }
}

/// TestTaintTolerationScoring: a soft taint that an expression tolerates does not count against a node.
#[tokio::test(flavor = "multi_thread")]
async fn taint_toleration_scoring() {
    let plane = Plane::in_memory(all()).await;
    plane.node("soft-a", "{}", "[{key: pool, value: a, effect: PreferNoSchedule}]").await;
    plane.node("soft-b", "{}", "[{key: pool, value: b, effect: PreferNoSchedule}]").await;
    for (name, value) in [("a", "soft-a"), ("b", "soft-b")] {
        let spec = format!("{{tolerations: [{{expression: \"taint.value == '{name}'\"}}]}}");
        assert_eq!(plane.place(name, &spec).await.as_deref(), Ok(value));
    }
    plane.end().await;
}

/// TestTaintNodeByCondition: taints of conditions are tolerated by expressions as by keys.
#[tokio::test(flavor = "multi_thread")]
async fn taint_node_by_condition() {
    let plane = Plane::in_memory(all()).await;
    let taints = "[{key: node.kubernetes.io/not-ready, effect: NoSchedule}, \
                  {key: node.kubernetes.io/memory-pressure, effect: NoSchedule}]";
    plane.node("sick", "{}", taints).await;
    let by_expression = "{tolerations: [{expression: \"taint.key.startsWith('node.kubernetes.io/')\"}]}";
    assert_eq!(plane.place("all", by_expression).await.as_deref(), Ok("sick"));
    let one = "{tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}]}";
    let said = plane.place("one", one).await.unwrap_err();
    assert!(said.contains("untolerated taint {node.kubernetes.io/not-ready: }"), "{said}");
    plane.end().await;
}

/// TestNodeSelectorRequirementsAsSelector, TestPodMatchesNodeSelectorAndAffinityTerms, TestNodeSelectorMatch.
#[tokio::test(flavor = "multi_thread")]
async fn node_selectors_and_affinity_terms() {
    let plane = Plane::in_memory(all()).await;
    plane.node("old", "{version: 1.27.0, zone: a}", "[]").await;
    plane.node("new", "{version: 1.30.1, zone: b, gpu: 'true'}", "[]").await;
    let required = |term: &str| {
        format!(
            "{{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}}}}}"
        )
    };
    let expression = |text: &str| required(&format!("{{matchCELExpressions: [\"{text}\"]}}"));
    let operator = |operator: &str, value: &str| {
        required(&format!("{{matchExpressions: [{{key: version, operator: {operator}, values: ['{value}']}}]}}"))
    };
    let cases = [
        ("selector", "{nodeSelector: {zone: a}}".to_owned(), Some("old")),
        ("in", required("{matchExpressions: [{key: zone, operator: In, values: [b]}]}"), Some("new")),
        ("semver-gt", operator("SemverGt", "1.28.0"), Some("new")),
        ("semver-lt", operator("SemverLt", "1.28.0"), Some("old")),
        ("semver-eq", operator("SemverEq", "v1.30.1"), Some("new")),
        ("cel", expression("semver(node.labels['version']).isLessThan(semver('1.28.0'))"), Some("old")),
        ("has", expression("'gpu' in node.labels"), Some("new")),
        ("nowhere", expression("'tpu' in node.labels"), None),
        // One term of two is enough.
        (
            "either",
            required(
                "{matchCELExpressions: [\"'tpu' in node.labels\"]}, {matchFields: [{key: metadata.name, operator: In, values: [old]}]}",
            ),
            Some("old"),
        ),
    ];
    for (name, spec, expected) in cases {
        let outcome = plane.place(name, &spec).await;
        match expected {
            Some(node) => assert_eq!(outcome.as_deref(), Ok(node), "{name}"),
            None => {
                let said = outcome.unwrap_err();
                assert!(said.contains("2 node(s) didn't match Pod's node affinity/selector"), "{said}");
            }
        }
    }
    // A failing expression affects only its own verdict, and is reported once.
    let failing = expression("node.labels['gpu'] == 'true'");
    assert_eq!(plane.place("failing", &failing).await.as_deref(), Ok("new"));
    let failing = expression("node.labels['absent'] == 'true'");
    plane.place("failing-everywhere", &failing).await.unwrap_err();
    let note = plane.event("failing-everywhere", "ExpressionFailed").await;
    assert!(note.contains("no such key: absent") && note.contains("node.labels['absent']"), "{note}");
    plane.end().await;
}

/// TestPreferredSchedulingTermsScore.
#[tokio::test(flavor = "multi_thread")]
async fn preferred_scheduling_terms_score() {
    let plane = Plane::in_memory(all()).await;
    plane.node("plain", "{}", "[]").await;
    plane.node("liked", "{disk: ssd, version: 1.30.0}", "[]").await;
    for (name, preference) in [
        ("cel", "{matchCELExpressions: [\"'disk' in node.labels\"]}"),
        ("semver", "{matchExpressions: [{key: version, operator: SemverGt, values: ['1.0.0']}]}"),
    ] {
        let spec = format!(
            "{{affinity: {{nodeAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 100, preference: {preference}}}]}}}}}}"
        );
        assert_eq!(plane.place(name, &spec).await.as_deref(), Ok("liked"), "{name}");
    }
    plane.end().await;
}

/// The tests of PersistentVolumes: from which nodes a bound volume can be reached.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_say_where_pods_can_run() {
    let plane = Plane::in_memory(all()).await;
    plane.node("near", "{kernel: 5.15.0}", "[]").await;
    plane.node("far", "{kernel: 5.4.0}", "[]").await;
    for (name, term) in [
        ("cel", "{matchCELExpressions: [\"semver(node.labels['kernel']).isGreaterThan(semver('5.10.0'))\"]}"),
        ("semver", "{matchExpressions: [{key: kernel, operator: SemverGt, values: ['5.10.0']}]}"),
    ] {
        let volume = format!(
            "metadata: {{name: {name}}}\nspec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], \
             csi: {{driver: d, volumeHandle: h}}, storageClassName: '', claimRef: {{namespace: default, name: {name}}}, \
             nodeAffinity: {{required: {{nodeSelectorTerms: [{term}]}}}}}}"
        );
        plane.admin.documents(VOLUMES).create("", &yaml(&volume)).await.unwrap();
        let claim = format!(
            "metadata: {{name: {name}, annotations: {{pv.kubernetes.io/bind-completed: 'yes'}}}}\nspec: {{volumeName: {name}, \
             storageClassName: '', accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}"
        );
        plane.admin.documents(CLAIMS).create("default", &yaml(&claim)).await.unwrap();
        let spec = format!("{{volumes: [{{name: v, persistentVolumeClaim: {{claimName: {name}}}}}]}}");
        assert_eq!(plane.place(name, &spec).await.as_deref(), Ok("near"), "{name}");
        let elsewhere = format!("{{nodeSelector: {{kernel: 5.4.0}}, {}", &spec[1..]);
        let said = plane.place(&format!("{name}-far"), &elsewhere).await.unwrap_err();
        assert!(said.contains("1 node(s) didn't match PersistentVolume's node affinity"), "{said}");
    }
    plane.end().await;
}

/// Off, on, and off again with objects that use the gate: rejected, placed, and then nothing new, while running
/// pods continue.
#[tokio::test(flavor = "multi_thread")]
async fn gates_off_on_and_off_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let open = || -> Arc<dyn Store> { Arc::new(EmbeddedStore::open(&path, store::Options::default()).unwrap()) };
    let uses = "{tolerations: [{expression: \"taint.key == 'pool'\"}]}";

    let plane = Plane::start(open(), Features::default(), Features::default()).await;
    plane.node("tainted", "{}", "[{key: pool, effect: NoSchedule}]").await;
    let error = plane.try_pod("early", uses).await.unwrap_err().to_string();
    assert!(error.contains("toleration CEL expressions require feature gate TaintTolerationCEL"), "{error}");
    plane.end().await;

    let plane = Plane::start(open(), all(), all()).await;
    assert_eq!(plane.place("running", uses).await.as_deref(), Ok("tainted"));
    plane
        .try_pod("waiting", "{schedulingGates: [{name: hold}], tolerations: [{expression: \"taint.key == 'pool'\"}]}")
        .await
        .unwrap();
    plane.end().await;

    let plane = Plane::start(open(), Features::default(), Features::default()).await;
    assert_eq!(plane.outcome("running").await.as_deref(), Ok("tainted"));
    // The pod that is stored with an expression may still be changed: its gate opens, and nothing tolerates for it.
    let patch = yaml("spec: {schedulingGates: null}");
    let pods = plane.admin.documents(PODS);
    pods.patch("default", "waiting", "", client::objects::Patch::Merge, &patch).await.unwrap();
    let started = Instant::now();
    let said = loop {
        match plane.outcome("waiting").await {
            Err(said) if said.contains("untolerated taint {pool: }") => break said,
            other => assert!(started.elapsed() < LIMIT, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(said.starts_with("0/1 nodes are available"), "{said}");
    let error = plane.try_pod("late", uses).await.unwrap_err().to_string();
    assert!(error.contains("require feature gate TaintTolerationCEL"), "{error}");
    plane.end().await;
}

/// A scheduler that ends between decision and binding loses and doubles nothing: the next one begins from what is stored.
#[tokio::test(flavor = "multi_thread")]
async fn pods_outlive_the_scheduler_that_was_binding_them() {
    let plane = Plane::in_memory(all()).await;
    for number in 0..4 {
        plane.node(&format!("n{number}"), "{}", "[]").await;
    }
    let names: Vec<String> = (0..60).map(|number| format!("p{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        plane.try_pod(name, "{}").await.unwrap();
        if number == 30 {
            // Without notice, in the middle of any operation.
            plane.scheduler.abort();
        }
    }
    let (_stop, shutdown) = Shutdown::channel();
    let user = User::authenticated(scheduler::IDENTITY, &[]);
    tokio::spawn(scheduler::run(scheduler::Options {
        client: Client::in_process(Connection::new(plane.server.clone(), Some(user)), "kube-scheduler"),
        features: all(),
        registry: Arc::new(Registry::new()),
        health: Health::new(),
        shutdown,
        leadership: Leadership::uncontested(),
        seed: 2,
        device_cost_limit: dra::Budget::COST_LIMIT,
        configuration: Default::default(),
        profiler: Default::default(),
        has_placement_annotations: false,
    }));
    for name in &names {
        plane.outcome(name).await.unwrap();
    }
}

/// Several names, each with its own plugins; and what is counted.
#[tokio::test(flavor = "multi_thread")]
async fn profiles_decide_by_scheduler_name() {
    let configuration = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: careless
  plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}
- schedulerName: added
  pluginConfig:
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [b]}]}]}}}
";
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let plane = Plane::start_with(store, all(), all(), configuration).await;
    plane.node("tainted", "{zone: a}", "[{key: pool, effect: NoSchedule}]").await;
    plane.place("strict", "{}").await.unwrap_err();
    assert_eq!(plane.place("careless", "{schedulerName: careless}").await.as_deref(), Ok("tainted"));
    let said = plane.place("added", "{schedulerName: added, tolerations: [{operator: Exists}]}").await.unwrap_err();
    assert!(said.contains("didn't match scheduler-enforced node affinity"), "{said}");
    plane.event("careless", "Scheduled").await;
    // Another taint helps no pod, and is evaluated.
    let taint = yaml("spec: {taints: [{key: other, effect: NoSchedule}]}");
    plane.admin.documents(NODES).patch("", "tainted", "", client::objects::Patch::Merge, &taint).await.unwrap();

    let started = Instant::now();
    loop {
        let text = plane.registry.text();
        let shown = [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"careless\"} 1",
            "scheduler_pending_pods{queue=\"unschedulable\"} 2",
            "scheduler_unschedulable_pods{plugin=\"TaintToleration\",profile=\"default-scheduler\"} 1",
            "scheduler_plugin_evaluation_total{plugin=\"TaintToleration\",extension_point=\"Filter\",status=\"UnschedulableAndUnresolvable\",profile=\"default-scheduler\"} 1",
            "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"UnscheduledPodAdd\"} 3",
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Filter\",status=\"Unschedulable\",profile=\"default-scheduler\"} 1",
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"PostFilter\",status=\"Unschedulable\",profile=\"added\"} 1",
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Reserve\",status=\"Success\",profile=\"careless\"} 1",
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"PreBind\",status=\"Success\",profile=\"careless\"} 1",
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Bind\",status=\"Success\",profile=\"careless\"} 1",
            "scheduler_preemption_attempts_total 2",
            "scheduler_cache_size{type=\"nodes\"} 1",
            "scheduler_queued_entities{queue=\"unschedulable\",type=\"pod\"} 2",
            "scheduler_queue_incoming_entities_total{queue=\"active\",event=\"UnscheduledPodAdd\",type=\"pod\"} 3",
            "scheduler_goroutines{operation=\"binding\"} 0",
            "scheduler_async_api_call_execution_total{call_type=\"pod_binding\",result=\"success\"} 1",
            "scheduler_async_api_call_execution_total{call_type=\"pod_status_patch\",result=\"success\"} 2",
            "scheduler_pending_async_api_calls{call_type=\"pod_binding\"} 0",
            "scheduler_event_handling_duration_seconds_count{event=\"AssignedPodAdd\"} 1",
            "scheduler_queueing_hint_execution_duration_seconds_count{plugin=\"TaintToleration\",event=\"NodeUpdateNodeTaint\",hint=\"QueueSkip\"} 1",
        ];
        let missing: Vec<&&str> = shown.iter().filter(|line| !text.contains(**line)).collect();
        if missing.is_empty() {
            break;
        }
        assert!(started.elapsed() < LIMIT, "{missing:?} in {text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    plane.end().await;
}

#[tokio::test]
async fn pod_without_its_claim_reports_the_reason() {
    let plane = Plane::in_memory(all()).await;
    plane.node("a", "{}", "[]").await;
    let claims = "{resourceClaims: [{name: c, resourceClaimTemplateName: t}]}";
    let said = plane.place("waiting", claims).await;
    assert_eq!(said, Err("pod \"default/waiting\": ResourceClaim not created yet".to_owned()));
    plane.end().await;
}
