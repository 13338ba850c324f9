//! Names of Services, as pods resolve them.

use super::machine::Machine;
use super::once;

const SERVICES: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-pods}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 8080}]}
"#;

/// Pods find Services by name, and the configuration of their resolver is that of Kubernetes.
pub(super) fn are_resolved(machine: &Machine) {
    machine.apply(SERVICES);
    let cluster_address = machine.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    // The server follows the endpoints a moment after the API server has them.
    let resolve = "until nslookup web.default.svc.cluster.local && wget -qO- http://web-pods:8080/index.html; do sleep 0.2; done; \
        cat /etc/resolv.conf; nslookup -type=srv _http._tcp.web.default.svc.cluster.local; \
        nslookup missing.default.svc.cluster.local || echo no such name";
    machine.apply(&once("resolve", resolve, ""));
    machine.wait("pod/resolve", "jsonpath={.status.phase}=Succeeded");
    let output = machine.kubectl(&["logs", "resolve"]);
    let address_line = format!("Address: {cluster_address}");
    for line in [
        address_line.as_str(),
        "hello from a file",
        "nameserver 10.96.0.10",
        "search default.svc.cluster.local svc.cluster.local cluster.local",
        "options ndots:5",
        "0 100 80 web.default.svc.cluster.local",
        "no such name",
    ] {
        assert!(output.contains(line), "`{line}` is missing in:\n{output}");
    }
    // The Service by which others find the server has the conventional address, and leads to it.
    let service =
        machine.kubectl(&["-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"]);
    assert_eq!(service, "10.96.0.10");
    let path = "jsonpath={.items[0].endpoints[0].addresses[0]} {.items[0].ports[0].port}";
    let slices =
        ["-n", "kube-system", "get", "endpointslices", "-l", "kubernetes.io/service-name=kube-dns", "-o", path];
    assert_eq!(machine.kubectl(&slices), "10.244.0.1 53");
    machine.kubectl(&["delete", "pod/resolve", "service/web", "service/web-pods"]);
}
