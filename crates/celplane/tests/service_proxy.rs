//! Packets through `celplane proxy`: two machines as network namespaces, joined by a link, with pods, real TCP and UDP, and one API server.

mod machines;
mod matrix;

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
        let (address, node) = Machines::place(pod);
        format!("{{addresses: [{address}], nodeName: {node}, conditions: {{{conditions}}}}}")
    };
    let endpoints: Vec<String> = endpoints.iter().map(endpoint).collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{{spec}, ports: [{{name: t, port: 80, targetPort: 8080}}, \
         {{name: u, port: 53, targetPort: 8080, protocol: UDP}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, \
         labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: t, port: 8080}}, {{name: u, port: 8080, protocol: UDP}}]\n\
         endpoints: [{}]\n---\n",
        endpoints.join(", ")
    )
}

const READY: &str = "ready: true";

/// Creates the nodes with their addresses, and the Services of the matrix.
fn prepared() -> Option<Machines> {
    let machines = Machines::start()?;
    machines.apply(NODES);
    for node in ["a", "b"] {
        let address = Machines::place(node).0;
        let patch = format!(r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"{address}"}}]}}}}"#);
        machines.kubectl(&["patch", "node", node, "--subresource=status", "-p", &patch]);
    }
    matrix::create(&machines);
    Some(machines)
}

/// One pair of machines for all, because they take seconds to start.
#[test]
fn packets_reach_the_endpoints_of_services() {
    let Some(mut machines) = prepared() else { return };
    machines.apply(&service("udp", "clusterIP: 10.96.0.150", &[("a2", READY)]));
    machines.start_proxy("a");
    machines.start_proxy("b");
    machines.wait_for_rules("celplane-proxy", "10.96.0.150 . udp . 53");

    matrix::is_as_expected(&machines);
    many_connections_are_refused_at_once(&machines);
    routes_lead_to_other_machines(&machines);
    udp_follows_the_endpoints(&machines);
    cut_network_heals(&machines);
    rules_are_repaired_and_removed(&mut machines);
}

#[test]
fn outcomes_are_those_of_kube_proxy() {
    let Ok(program) = std::env::var("CELPLANE_KUBE_PROXY") else {
        eprintln!("skipped: CELPLANE_KUBE_PROXY names no kube-proxy");
        return;
    };
    let Some(mut machines) = prepared() else { return };
    machines.start_kube_proxy(&program, "a");
    machines.start_kube_proxy(&program, "b");
    machines.wait_for_rules("kube-proxy", "10.96.0.115 . udp . 80");
    matrix::is_that_of_kube_proxy(&machines);
}

/// The kernel sends few ICMP messages; refused connections do not wait for them.
fn many_connections_are_refused_at_once(machines: &Machines) {
    machines.run("a", &["sh", "-c", "echo 6168 > /proc/sys/net/ipv4/icmp_ratemask"]);
    // Without endpoints, and an unknown port.
    for port in [80, 81] {
        let answers = machines.requests("a1", "tcp", &[("10.96.0.103", port, 1); 30]);
        assert!(answers.iter().all(|it| it == "refused"), "{answers:?}");
    }
}

fn routes_lead_to_other_machines(machines: &Machines) {
    let routes = machines.run("a", &["ip", "route", "show", "proto", "107"]);
    assert!(routes.starts_with("10.244.1.0/24 via 192.168.77.2 dev link0"), "{routes}");
}

fn names(answers: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = answers.iter().map(|it| it.split(' ').next().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn udp_follows_the_endpoints(machines: &Machines) {
    let mut client = machines.udp_client("a1", "10.96.0.150", 53);
    assert_eq!(names(&[client.request()]), ["a2"]);
    machines.apply(&service("udp", "clusterIP: 10.96.0.150", &[("b1", READY)]));
    machines.eventually(|| machines.udp("a1", "10.96.0.150", 53).starts_with("b1"));
    // The same client port: without the deletion of its flow, packets would still go to the old endpoint.
    machines.eventually(|| client.request().starts_with("b1"));
}

/// Machine `b` is cut off from `a` and the API server. The kernel drops its routes with the link.
fn cut_network_heals(machines: &Machines) {
    machines.run("b", &["ip", "link", "set", "link0", "down"]);
    assert_eq!(machines.run("b", &["ip", "route", "show", "proto", "107"]), "");
    // The last rules work.
    assert_eq!(names(&[machines.tcp("b1", "10.96.0.104", 80)]), ["b1"]);
    machines.apply(&service("udp", "clusterIP: 10.96.0.150", &[("a2", READY)]));
    machines.eventually(|| machines.udp("a1", "10.96.0.150", 53).starts_with("a2"));
    machines.run("b", &["ip", "link", "set", "link0", "up"]);
    machines.run("b", &["ip", "route", "replace", "default", "via", "192.168.77.1"]);
    // The change arrives, and the route is set again.
    machines.eventually(|| machines.udp("b1", "10.96.0.150", 53).starts_with("a2"));
    let routes = || machines.run("b", &["ip", "route", "show", "proto", "107"]);
    machines.eventually(|| routes().starts_with("10.244.0.0/24 via 192.168.77.1"));
}

fn rules_are_repaired_and_removed(machines: &mut Machines) {
    let tables = |machines: &Machines| machines.run("a", &["nft", "list", "tables"]);
    assert_eq!(tables(machines), "table ip celplane-proxy\n");
    // A process that is killed leaves complete rules, which the next one replaces.
    machines.end_proxy("a", rustix::process::Signal::KILL);
    assert_eq!(names(&[machines.tcp("a1", "10.96.0.101", 80)]), ["a1"]);
    machines
        .run("a", &["nft", "add", "rule", "ip", "celplane-proxy", "services", "ip", "daddr", "203.0.113.9", "drop"]);
    machines.start_proxy("a");
    machines.eventually(|| {
        !machines.run("a", &["nft", "list", "chain", "ip", "celplane-proxy", "services"]).contains("203.0.113.9")
    });
    assert_eq!(names(&[machines.tcp("a1", "10.96.0.101", 80)]), ["a1"]);
    // Others remove everything: the periodic check restores it.
    machines.run("a", &["nft", "flush", "ruleset"]);
    machines.eventually(|| machines.tcp("a1", "10.96.0.101", 80).starts_with("a1"));
    machines.end_proxy("a", rustix::process::Signal::TERM);
    assert_eq!(tables(machines), "");
    assert_eq!(machines.run("a", &["ip", "route", "show", "proto", "107"]), "");
}
