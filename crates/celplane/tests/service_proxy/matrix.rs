//! The connectivity matrix: every client to every kind of destination, over TCP and UDP, with the source that the server sees.
//!
//! It contains the cells of Kubernetes' conformance tests of networking (pod, node, cluster IP, node port, hairpin, affinity, large requests) and
//! those of traffic policies, load balancers and missing endpoints. With `CELPLANE_KUBE_PROXY=PATH`, a kube-proxy in nftables mode is measured in
//! the same way, and its outcomes must differ only where [`DIFFERENCES`] says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::machines::Machines;

/// Two pods, the two machines, and a client outside of the cluster.
const CLIENTS: [&str; 5] = ["a1", "b1", "a", "b", "x"];
/// Requests to destinations with several endpoints: one of two is missed with a probability of 1 in 8 million.
const ATTEMPTS: usize = 24;
/// Bytes of a large request: more than one packet, also over UDP.
const LARGE_BYTES: usize = 4000;

/// The expected outcomes, one row per destination and one column per client: `a2<a1` is an answer of `a2`, which sees the source `a1`. All addresses of
/// a machine have its name. A machine may not send a datagram that its own rules reject or drop: `denied`.
const TABLE: &str = include_str!("matrix.txt");

/// Cells in which kube-proxy differs, with its outcome.
const DIFFERENCES: [(&str, &str, &str); 4] = [
    // kube-proxy leaves the source of traffic between pods and other machines alone, `--node-routes` masquerades it.
    ("address of a", "b1", "a<b1"),
    ("address of b", "a1", "b<a1"),
    ("external-local, node port of a", "b1", "a2<b1"),
    ("on-node, cluster IP", "a1", "b<a1"),
];

/// A Service with its endpoints (pods or machines) and their conditions.
struct Case {
    name: &'static str,
    spec: &'static str,
    node_port: u16,
    ingress: &'static str,
    endpoints: &'static [(&'static str, &'static str)],
}

const READY: &str = "ready: true";
const BOTH: &[(&str, &str)] = &[("a2", READY), ("b1", READY)];

const fn case(name: &'static str, spec: &'static str, endpoints: &'static [(&'static str, &'static str)]) -> Case {
    Case { name, spec, node_port: 0, ingress: "", endpoints }
}

const CASES: [Case; 16] = [
    Case { node_port: 30100, ..case("both", "clusterIP: 10.96.0.100, type: NodePort", BOTH) },
    Case { node_port: 30101, ..case("self", "clusterIP: 10.96.0.101, type: NodePort", &[("a1", READY)]) },
    Case {
        node_port: 30102,
        ..case("sticky", "clusterIP: 10.96.0.102, type: NodePort, sessionAffinity: ClientIP", BOTH)
    },
    Case { node_port: 30103, ..case("empty", "clusterIP: 10.96.0.103, type: NodePort", &[("a2", "ready: false")]) },
    case("internal-local", "clusterIP: 10.96.0.104, internalTrafficPolicy: Local", &[("b1", READY)]),
    case(
        "leaving",
        "clusterIP: 10.96.0.105",
        &[
            ("a2", "ready: false, serving: true, terminating: true"),
            ("b1", "ready: false, serving: false, terminating: true"),
        ],
    ),
    Case {
        node_port: 30106,
        ..case(
            "external-local",
            "clusterIP: 10.96.0.106, type: NodePort, externalTrafficPolicy: Local",
            &[("a2", READY)],
        )
    },
    case("external-ip", "clusterIP: 10.96.0.107, externalIPs: [203.0.113.1]", BOTH),
    case("on-node", "clusterIP: 10.96.0.108", &[("b", READY)]),
    Case { ingress: "203.0.113.2", ..case("balanced", "clusterIP: 10.96.0.109, type: LoadBalancer", BOTH) },
    Case {
        ingress: "203.0.113.3",
        ..case(
            "balanced-local",
            "clusterIP: 10.96.0.110, type: LoadBalancer, externalTrafficPolicy: Local",
            &[("a2", READY)],
        )
    },
    Case {
        ingress: "203.0.113.4",
        ..case(
            "limited",
            "clusterIP: 10.96.0.111, type: LoadBalancer, loadBalancerSourceRanges: [192.168.78.0/24, 10.244.0.0/24]",
            BOTH,
        )
    },
    Case { ingress: "203.0.113.5", ..case("balanced-empty", "clusterIP: 10.96.0.112, type: LoadBalancer", &[]) },
    case("external-ip-empty", "clusterIP: 10.96.0.113, externalIPs: [203.0.113.6]", &[]),
    case(
        "draining",
        "clusterIP: 10.96.0.114",
        &[("a2", READY), ("b1", "ready: false, serving: true, terminating: true")],
    ),
    case("last", "clusterIP: 10.96.0.115", BOTH),
];

impl Case {
    fn manifests(&self) -> String {
        let node_port = if self.node_port == 0 { String::new() } else { format!(", nodePort: {}", self.node_port) };
        let port = |name: &str, protocol: &str| {
            format!("{{name: {name}, protocol: {protocol}, port: 80, targetPort: 8080{node_port}}}")
        };
        let endpoint = |(place, conditions): &(&str, &str)| {
            let (address, node) = Machines::place(place);
            format!("{{addresses: [{address}], nodeName: {node}, conditions: {{{conditions}}}}}")
        };
        let endpoints: Vec<String> = self.endpoints.iter().map(endpoint).collect();
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{{spec}, ports: [{tcp}, {udp}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\n\
             addressType: IPv4\nports: [{{name: t, port: 8080}}, {{name: u, port: 8080, protocol: UDP}}]\nendpoints: [{endpoints}]\n---\n",
            name = self.name,
            spec = self.spec,
            tcp = port("t", "TCP"),
            udp = port("u", "UDP"),
            endpoints = endpoints.join(", "),
        )
    }
}

/// A row.
struct Destination {
    name: String,
    address: String,
    port: u16,
    bytes: usize,
    /// Number of requests of each client.
    attempts: usize,
}

fn destinations() -> Vec<Destination> {
    let mut all = Vec::new();
    let mut add = |name: &str, address: &str, port: u16, attempts: usize| {
        all.push(Destination { name: name.to_owned(), address: address.to_owned(), port, bytes: 1, attempts });
    };
    for place in ["a1", "a2", "b1", "a", "b"] {
        add(&format!("address of {place}"), Machines::place(place).0, 8080, 1);
    }
    for (number, case) in CASES.iter().enumerate() {
        let attempts = if case.endpoints.len() > 1 { ATTEMPTS } else { 1 };
        let mut add =
            |kind: &str, address: &str, port: u16| add(&format!("{}, {kind}", case.name), address, port, attempts);
        add("cluster IP", &format!("10.96.0.{}", 100 + number), 80);
        if case.node_port != 0 {
            add("node port of a", Machines::place("a").0, case.node_port);
            add("node port of b", Machines::place("b").0, case.node_port);
        }
        if !case.ingress.is_empty() {
            add("load balancer", case.ingress, 80);
        }
        if let Some((_, address)) = case.spec.split_once("externalIPs: [") {
            add("external IP", address.trim_end_matches(']'), 80);
        }
    }
    add("both, unknown port", "10.96.0.100", 81, 1);
    add("unallocated cluster IP", "10.96.0.99", 80, 1);
    add("both, large request", "10.96.0.100", 80, ATTEMPTS);
    all.last_mut().unwrap().bytes = LARGE_BYTES;
    all
}

/// Creates the Services and their endpoints.
pub(super) fn create(machines: &Machines) {
    machines.apply(&CASES.iter().map(Case::manifests).collect::<String>());
    for case in CASES.iter().filter(|it| !it.ingress.is_empty()) {
        let patch = format!(r#"{{"status":{{"loadBalancer":{{"ingress":[{{"ip":"{}"}}]}}}}}}"#, case.ingress);
        machines.kubectl(&["patch", "service", case.name, "--subresource=status", "-p", &patch]);
    }
}

/// The outcome of all requests of a client to a destination.
fn outcome(row: &str, answers: &BTreeSet<String>) -> String {
    let readable = |answer: &String| {
        let words: Vec<&str> = answer.split(' ').collect();
        match words[..] {
            [name, source] => format!("{name}<{}", Machines::place_of(source)),
            [name, source, bytes] => format!("{name}<{} {bytes}", Machines::place_of(source)),
            _ => answer.clone(),
        }
    };
    let readable: Vec<String> = answers.iter().map(readable).collect();
    let is_one = row.starts_with("sticky") && readable.len() == 1;
    match readable.first() {
        // Any endpoint, but always the same one.
        Some(one) if is_one && one.contains('<') => "one".to_owned(),
        _ => readable.join(" "),
    }
}

/// All outcomes, by destination, client and protocol.
fn measure(machines: &Machines) -> BTreeMap<(String, &'static str, &'static str), String> {
    let (mut outcomes, rows) = (BTreeMap::new(), destinations());
    for protocol in ["tcp", "udp"] {
        let requests: Vec<(&str, u16, usize)> = rows
            .iter()
            .flat_map(|row| std::iter::repeat_n((row.address.as_str(), row.port, row.bytes), row.attempts))
            .collect();
        let requests = &requests;
        let all: Vec<Vec<String>> = std::thread::scope(|scope| {
            let asked = CLIENTS.map(|client| scope.spawn(move || machines.requests(client, protocol, requests)));
            asked.map(|it| it.join().unwrap()).into()
        });
        for (client, answers) in CLIENTS.into_iter().zip(all) {
            let mut answers = answers.into_iter();
            for row in &rows {
                let answers = answers.by_ref().take(row.attempts).collect();
                outcomes.insert((row.name.clone(), client, protocol), outcome(&row.name, &answers));
            }
        }
    }
    outcomes
}

/// The table of outcomes as text; cells in which UDP differs from TCP have both.
fn table(outcomes: &BTreeMap<(String, &'static str, &'static str), String>) -> String {
    let mut text = String::new();
    for Destination { name: row, .. } in destinations() {
        let cell = |client: &'static str| {
            let [tcp, udp] = ["tcp", "udp"].map(|protocol| outcomes[&(row.clone(), client, protocol)].as_str());
            if tcp == udp { tcp.to_owned() } else { format!("tcp: {tcp}, udp: {udp}") }
        };
        let cells = CLIENTS.map(cell);
        writeln!(text, "{row}: {}", cells.join(" | ")).unwrap();
    }
    text
}

/// Every cell is as expected.
pub(super) fn is_as_expected(machines: &Machines) {
    let found = table(&measure(machines));
    assert!(found == TABLE, "the outcomes are:\n{found}");
}

/// Every cell is as expected, except for the known differences.
pub(super) fn is_that_of_kube_proxy(machines: &Machines) {
    let read = |text: &str| -> BTreeMap<(String, String), String> {
        let row = |line: &str| {
            let (row, cells) = line.split_once(": ").unwrap();
            let cells: Vec<&str> = cells.split(" | ").collect();
            CLIENTS
                .iter()
                .zip(cells)
                .map(|(client, cell)| ((row.to_owned(), (*client).to_owned()), cell.to_owned()))
                .collect::<Vec<_>>()
        };
        text.lines().flat_map(row).collect()
    };
    let mut expected = read(TABLE);
    for (row, client, outcome) in DIFFERENCES {
        expected.insert((row.to_owned(), client.to_owned()), outcome.to_owned());
    }
    let found = read(&table(&measure(machines)));
    let differs: Vec<String> = found
        .iter()
        .filter(|(cell, outcome)| expected.get(*cell) != Some(outcome))
        .map(|((row, client), outcome)| {
            format!("{row}, from {client}: {outcome} (Celplane: {:?})", expected.get(&(row.clone(), client.clone())))
        })
        .collect();
    assert!(differs.is_empty(), "{differs:#?}");
}
