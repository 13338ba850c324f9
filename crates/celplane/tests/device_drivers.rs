//! Devices of real nodes: the example driver, over its socket, with a runtime that plays containers.

use std::sync::Arc;

use cri::server::serve;

use crate::cluster::Cluster;
use crate::fake_runtime::Agent;
use crate::played_runtime::PlayedRuntime;

#[path = "../examples/dra_driver/driver.rs"]
mod driver;

const DRIVER: &str = "example.celplane.dev";

/// Six devices of a node, and a claim for two that are three apart.
const OBJECTS: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: example}
spec: {selectors: [{cel: {expression: \"device.driver == 'example.celplane.dev'\"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: real-example}
spec:
  driver: example.celplane.dev
  nodeName: real
  pool: {name: real, generation: 1, resourceSliceCount: 1}
  devices: [DEVICES]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: pair}
spec:
  devices:
    requests: [{name: r, exactly: {deviceClassName: example, count: 2}}]
    constraints:
    - cel:
        expression: \"size(devices) == 2 && devices.map(d, d.attributes['example.celplane.dev'].index).max() - devices.map(d, d.attributes['example.celplane.dev'].index).min() == 3\"
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 2
  resourceClaims: [{name: devices, resourceClaimName: pair}]
  containers:
  - name: a
    image: app:1
    command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1; done\"]
    resources: {claims: [{name: devices}]}
  - name: b
    image: app:1
    command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1; done\"]
";

#[test]
fn driver_prepares_claims_with_set_constraints() {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "0"]);
    let directory = cluster.directory.path();
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let runtime = PlayedRuntime::default();
    let agent_socket = directory.join("cri.sock");
    let server = tokio.block_on(async { serve(&agent_socket, Arc::new(runtime.clone())) }).unwrap();
    tokio.spawn(server);
    let agent = Agent::start(&cluster, &agent_socket);
    let devices: Vec<String> =
        (0..6).map(|it| format!("{{name: dev-{it}, attributes: {{index: {{int: {it}}}}}}}")).collect();
    cluster.apply(&OBJECTS.replace("DEVICES", &devices.join(", ")));
    // Without its driver the pod waits, and its events name the driver.
    let wait = |what: &str, condition: &str| {
        cluster.kubectl(&["wait", what, &format!("--for={condition}"), "--timeout=60s"], "");
    };
    wait("pod/user", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ContainerCreating");
    let client = tokio.block_on(client::Client::from_kubeconfig(&cluster.kubeconfig(), None, "driver")).unwrap();
    let driver = Arc::new(driver::Driver {
        name: DRIVER.to_owned(),
        cdi: directory.join("cdi"),
        read: driver::reader(client, DRIVER.to_owned()),
        log: Default::default(),
    });
    let socket = driver::socket(&directory.join("kubelet"), DRIVER);
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let server = tokio.block_on(async { serve(&socket, driver.clone()) }).unwrap();
    tokio.spawn(server);
    wait("pod/user", "condition=Ready");
    let found = |name: &str| -> Vec<String> {
        let configs = runtime.configs("default", "user");
        let config = configs.iter().find(|it| it.metadata.as_ref().unwrap().name == name).unwrap();
        config.cdi_devices.iter().map(|it| it.name.clone()).collect()
    };
    let (of_a, of_b) = (found("a"), found("b"));
    assert_eq!((of_a.len(), of_b.len()), (2, 0), "{of_a:?} {of_b:?}");
    let number = |it: &String| it.rsplit('-').next().unwrap().parse::<i64>().unwrap();
    assert_eq!((number(&of_a[0]) - number(&of_a[1])).abs(), 3, "{of_a:?}");
    let written = std::fs::read_dir(directory.join("cdi")).unwrap().count();
    assert_eq!(written, 1);
    // An agent that is started again has the claims of running pods prepared again.
    drop(agent);
    let _agent = Agent::start(&cluster, &agent_socket);
    wait("pod/user", "condition=Ready");
    cluster.kubectl(&["delete", "pod", "user", "--wait"], "");
    let log = || driver.log.lock().unwrap().clone();
    let left = std::fs::read_dir(directory.join("cdi")).unwrap().count();
    assert_eq!(left, 0, "{:?}", log());
    assert_eq!(log().first().map(String::as_str), Some("registered"));
    assert!(log().ends_with(&["unprepare pair".to_owned()]), "{:?}", log());
}
