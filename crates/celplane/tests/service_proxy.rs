//! Packets through `celplane proxy`: two machines as network namespaces, joined by a link, with pods, real TCP and UDP, and one API server.

mod machines;

use self::machines::Machines;

const NODES: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: a}
spec: {podCIDR: 10.244.0.0/24, podCIDRs: [10.244.0.0/24]}
---
apiVersion: v1
kind: Node
metadata: {name: b}
spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24]}
"#;

/// A Service without a selector, and its endpoints: pod, node and conditions.
fn service(name: &str, spec: &str, endpoints: &[(&str, &str)]) -> String {
    let endpoint = |(pod, conditions): &(&str, &str)| {
        let (address, node) = Machines::pod(pod);
        format!("{{addresses: [{address}], nodeName: {node}, conditions: {{{conditions}}}}}")
    };
    let endpoints: Vec<String> = endpoints.iter().map(endpoint).collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{{spec}, ports: [{{name: t, port: 80, targetPort: 8080}}, \
         {{name: u, port: 53, targetPort: 5353, protocol: UDP}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, \
         labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: t, port: 8080}}, {{name: u, port: 5353, protocol: UDP}}]\n\
         endpoints: [{}]\n---\n",
        endpoints.join(", ")
    )
}

const READY: &str = "ready: true";

/// One pair of machines for all, because they take seconds to start.
#[test]
fn packets_reach_the_endpoints_of_services() {
    let Some(mut machines) = Machines::start() else { return };
    machines.apply(NODES);
    for (node, address) in [("a", "192.168.77.1"), ("b", "192.168.77.2")] {
        let patch = format!(r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"{address}"}}]}}}}"#);
        machines.kubectl(&["patch", "node", node, "--subresource=status", "-p", &patch]);
    }
    let both = [("a2", READY), ("b1", READY)];
    let objects = [
        service("both", "clusterIP: 10.96.0.100, type: NodePort", &both),
        service("self", "clusterIP: 10.96.0.101", &[("a1", READY)]),
        service("sticky", "clusterIP: 10.96.0.102, sessionAffinity: ClientIP", &both),
        service("empty", "clusterIP: 10.96.0.103", &[("a2", "ready: false")]),
        service("remote", "clusterIP: 10.96.0.104, internalTrafficPolicy: Local", &[("b1", READY)]),
        service(
            "leaving",
            "clusterIP: 10.96.0.105",
            &[("a2", "ready: false, serving: true, terminating: true"), ("b1", "ready: false, serving: false")],
        ),
        service("source", "clusterIP: 10.96.0.106, type: NodePort, externalTrafficPolicy: Local", &[("a2", READY)]),
        service("external", "clusterIP: 10.96.0.107, externalIPs: [203.0.113.1]", &[("a2", READY)]),
        service("udp", "clusterIP: 10.96.0.108", &[("a2", READY)]),
    ];
    machines.apply(&objects.concat());
    machines.start_proxy("a");
    machines.start_proxy("b");
    machines.wait_for_rules();

    pods_reach_pods_of_other_machines(&machines);
    cluster_ips_reach_all_endpoints(&machines);
    policies_and_states_are_obeyed(&machines);
    udp_follows_the_endpoints(&machines);
    rules_are_repaired_and_removed(&mut machines);
}

fn pods_reach_pods_of_other_machines(machines: &Machines) {
    // Without translation of the source, in both directions.
    assert_eq!(machines.tcp("a1", "10.244.1.2", 8080), "b1 10.244.0.2");
    assert_eq!(machines.tcp("b1", "10.244.0.3", 8080), "a2 10.244.1.2");
    let routes = machines.run("a", &["ip", "route", "show", "proto", "107"]);
    assert!(routes.starts_with("10.244.1.0/24 via 192.168.77.2 dev link0"), "{routes}");
}

fn names(answers: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = answers.iter().map(|it| it.split(' ').next().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn cluster_ips_reach_all_endpoints(machines: &Machines) {
    let many =
        |from: &str, address: &str, port: u16| (0..16).map(|_| machines.tcp(from, address, port)).collect::<Vec<_>>();
    // 16 attempts miss one of two endpoints with a probability of 1 in 32,768 each.
    let answers = many("a1", "10.96.0.100", 80);
    assert_eq!(names(&answers), ["a2", "b1"]);
    assert!(answers.iter().all(|it| it.ends_with(" 10.244.0.2")), "{answers:?}");
    assert_eq!(names(&many("b1", "10.96.0.100", 80)), ["a2", "b1"]);
    // From the machine itself, and from the other one to the node port.
    assert_eq!(names(&many("a", "10.96.0.100", 80)), ["a2", "b1"]);
    let port = machines.node_port("both");
    assert_eq!(names(&many("b", "192.168.77.1", port)), ["a2", "b1"]);
    let udp: Vec<String> = (0..16).map(|_| machines.udp("a1", "10.96.0.100", 53)).collect();
    assert_eq!(names(&udp), ["a2", "b1"]);
    assert_eq!(names(&many("a1", "10.96.0.102", 80)).len(), 1);
    // A pod that reaches itself sees another address than its own.
    assert_eq!(machines.tcp("a1", "10.96.0.101", 80), "a1 10.244.0.1");
    assert_eq!(names(&[machines.tcp("a1", "203.0.113.1", 80)]), ["a2"]);
}

fn policies_and_states_are_obeyed(machines: &Machines) {
    assert_eq!(machines.tcp("a1", "10.96.0.103", 80), "refused");
    assert_eq!(machines.tcp("a", "10.96.0.103", 80), "refused");
    assert_eq!(machines.tcp("a1", "10.96.0.100", 81), "refused");
    // The only endpoint is on the other machine: dropped here, served there.
    assert_eq!(machines.tcp("a1", "10.96.0.104", 80), "timeout");
    assert_eq!(machines.tcp("b1", "10.96.0.104", 80), "b1 10.244.1.1");
    for _ in 0..4 {
        assert_eq!(machines.tcp("b1", "10.96.0.105", 80), "a2 10.244.1.2");
    }
    let port = machines.node_port("source");
    assert_eq!(machines.tcp("b", "192.168.77.1", port), "a2 192.168.77.2");
    // The other machine has no endpoint for external traffic, but its own pods reach the Service there.
    assert_eq!(machines.tcp("a", "192.168.77.2", port), "timeout");
    assert_eq!(names(&[machines.tcp("b1", "192.168.77.2", port)]), ["a2"]);
}

fn udp_follows_the_endpoints(machines: &Machines) {
    let mut client = machines.udp_client("a1", "10.96.0.108", 53);
    assert_eq!(names(&[client.request()]), ["a2"]);
    machines.apply(&service("udp", "clusterIP: 10.96.0.108", &[("b1", READY)]));
    machines.eventually(|| machines.udp("a1", "10.96.0.108", 53).starts_with("b1"));
    // The same client port: without the deletion of its flow, packets would still go to the old endpoint.
    machines.eventually(|| client.request().starts_with("b1"));
}

fn rules_are_repaired_and_removed(machines: &mut Machines) {
    let tables = |machines: &Machines| machines.run("a", &["nft", "list", "tables"]);
    assert_eq!(tables(machines), "table ip celplane-proxy\n");
    // A process that is killed leaves complete rules, which the next one replaces.
    machines.end_proxy("a", rustix::process::Signal::KILL);
    assert_eq!(names(&[machines.tcp("a1", "10.96.0.107", 80)]), ["a2"]);
    machines
        .run("a", &["nft", "add", "rule", "ip", "celplane-proxy", "services", "ip", "daddr", "203.0.113.9", "drop"]);
    machines.start_proxy("a");
    machines.eventually(|| {
        !machines.run("a", &["nft", "list", "chain", "ip", "celplane-proxy", "services"]).contains("203.0.113.9")
    });
    assert_eq!(names(&[machines.tcp("a1", "10.96.0.107", 80)]), ["a2"]);
    // Others remove everything: the periodic check restores it.
    machines.run("a", &["nft", "flush", "ruleset"]);
    machines.eventually(|| machines.tcp("a1", "10.96.0.107", 80).starts_with("a2"));
    machines.end_proxy("a", rustix::process::Signal::TERM);
    assert_eq!(tables(machines), "");
    assert_eq!(machines.run("a", &["ip", "route", "show", "proto", "107"]), "");
}
