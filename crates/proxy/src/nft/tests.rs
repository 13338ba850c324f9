//! Transactions as text.

use super::*;
use crate::endpoint::Slice;
use crate::service::Service;
use crate::state::State;
use crate::topology::NodeTopology;
use std::sync::Arc;

pub(crate) fn node() -> NodeFacts {
    NodeFacts {
        topology: NodeTopology { name: "here".to_owned(), zone: "a".to_owned() },
        address: Ipv4Addr::new(192, 168, 77, 1),
        pod_network: "10.244.0.0/16".parse().ok(),
        masquerade_mark: 1 << 14,
    }
}

fn settings() -> Settings {
    Settings {
        table: Table::default(),
        masquerade_all: false,
        pod_masquerade: None,
        node_port_addresses: NodePortAddresses::Some(vec![Ipv4Addr::new(192, 168, 77, 1)]),
        service_networks: vec!["10.96.0.0/12".parse().unwrap()],
    }
}

fn service(spec: api::json::Value) -> Arc<Service> {
    let status = api::json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}});
    Arc::new(
        Service::read(
            &api::json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec, "status": status}),
        )
        .unwrap(),
    )
}

fn slice(endpoints: api::json::Value) -> Option<Arc<Slice>> {
    let object = api::json!({
        "metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{"name": "http", "port": 8080_i64}],
    });
    Slice::read(&object, "here").map(Arc::new)
}

fn ports(node_port: i64) -> api::json::Value {
    api::json!([{"name": "http", "port": 80_i64, "nodePort": node_port}])
}

/// The lines of a Service: its chains and elements, without the table's name.
fn lines(text: &str) -> Vec<&str> {
    let all = text.lines().map(|line| line.trim_end());
    let own = all.filter(|line| line.contains('/') && !line.contains("/12") && !line.contains("ip saddr != 10.244"));
    own.collect()
}

#[track_caller]
fn check(spec: api::json::Value, endpoints: api::json::Value, expected: &[&str]) {
    let mut state = State::new(node());
    state.set_service(&client::Key::new("default", "web"), Some(service(spec)));
    state.set_slice(&"web-1".into(), None, slice(endpoints));
    let _ = state.update();
    let text = replace(&settings(), &node(), &state.ledger.rule_set()).replace(" ip celplane-proxy", "");
    let elements = text
        .lines()
        .filter(|line| line.starts_with("add element") && !line.contains('/') && !line.contains("nodeport-ips"));
    let mut actual = lines(&text);
    actual.extend(elements);
    actual.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(actual, expected, "{actual:#?}");
}

#[test]
fn cluster_ip_translates_to_a_random_endpoint() {
    check(
        api::json!({"clusterIP": "10.96.0.7", "ports": (ports(0))}),
        api::json!([{"addresses": ["10.244.0.2"], "nodeName": "here"}, {"addresses": ["10.244.1.2"], "nodeName": "there"}]),
        &[
            "add chain service-default/web/tcp/http",
            "add rule service-default/web/tcp/http meta l4proto tcp numgen random mod 2 0 dnat to 10.244.0.2:8080",
            "add rule service-default/web/tcp/http meta l4proto tcp dnat to 10.244.1.2:8080",
            "add element cluster-ips { 10.96.0.7 }",
            "add element hairpin-connections { 10.244.0.2 . 10.244.0.2 . tcp . 8080 }",
            "add element service-ips { 10.96.0.7 . tcp . 80 : goto service-default/web/tcp/http , 198.51.100.1 . tcp . 80 : goto external-default/web/tcp/http }",
            "add chain external-default/web/tcp/http",
            "add rule external-default/web/tcp/http mark set mark or 0x4000",
            "add rule external-default/web/tcp/http goto service-default/web/tcp/http",
        ],
    );
}

#[test]
fn services_without_endpoints_reject() {
    check(
        api::json!({"clusterIP": "10.96.0.7", "type": "NodePort", "ports": (ports(30080))}),
        api::json!([{"addresses": ["10.244.0.2"], "conditions": {"ready": false}}]),
        &[
            "add element cluster-ips { 10.96.0.7 }",
            "add element no-endpoint-nodeports { tcp . 30080 : goto reject-chain }",
            "add element no-endpoint-services { 10.96.0.7 . tcp . 80 : goto reject-chain , 198.51.100.1 . tcp . 80 : goto reject-chain }",
        ],
    );
}

#[test]
fn local_policies_without_local_endpoints_drop() {
    check(
        api::json!({
            "clusterIP": "10.96.0.7", "type": "LoadBalancer", "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local",
            "ports": (ports(30080)), "loadBalancerSourceRanges": ["203.0.113.0/24", "192.168.77.0/24"],
        }),
        api::json!([{"addresses": ["10.244.1.2"], "nodeName": "there"}]),
        &[
            "add chain external-default/web/tcp/http",
            "add chain firewall-default/web/tcp/http",
            "add chain service-default/web/tcp/http",
            "add element cluster-ips { 10.96.0.7 }",
            "add element firewall-ips { 198.51.100.1 . tcp . 80 : goto firewall-default/web/tcp/http }",
            "add element no-endpoint-nodeports { tcp . 30080 : drop }",
            "add element no-endpoint-services { 10.96.0.7 . tcp . 80 : drop , 198.51.100.1 . tcp . 80 : drop }",
            "add element service-ips { 198.51.100.1 . tcp . 80 : goto external-default/web/tcp/http }",
            "add element service-nodeports { tcp . 30080 : goto external-default/web/tcp/http }",
            "add rule external-default/web/tcp/http fib saddr type local goto service-default/web/tcp/http",
            "add rule external-default/web/tcp/http fib saddr type local mark set mark or 0x4000",
            "add rule external-default/web/tcp/http ip saddr 10.244.0.0/16 goto service-default/web/tcp/http",
            "add rule firewall-default/web/tcp/http ip saddr != { 192.168.77.0/24 , 203.0.113.0/24 , 198.51.100.1 } drop",
            "add rule service-default/web/tcp/http meta l4proto tcp dnat to 10.244.1.2:8080",
        ],
    );
}

#[test]
fn clients_with_affinity_keep_their_endpoint() {
    check(
        api::json!({"clusterIP": "10.96.0.7", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Local", "ports": (ports(0))}),
        api::json!([{"addresses": ["10.244.0.2"], "nodeName": "here"}]),
        &[
            "add chain endpoint-default/web/tcp/http__10.244.0.2/8080",
            "add chain external-default/web/tcp/http",
            "add chain local-default/web/tcp/http",
            "add chain service-default/web/tcp/http",
            "add element cluster-ips { 10.96.0.7 }",
            "add element hairpin-connections { 10.244.0.2 . 10.244.0.2 . tcp . 8080 }",
            "add element service-ips { 10.96.0.7 . tcp . 80 : goto local-default/web/tcp/http , 198.51.100.1 . tcp . 80 : goto external-default/web/tcp/http }",
            "add rule endpoint-default/web/tcp/http__10.244.0.2/8080 meta l4proto tcp dnat to 10.244.0.2:8080",
            "add rule endpoint-default/web/tcp/http__10.244.0.2/8080 update @affinity-10800-default/web/tcp/http__10.244.0.2/8080 { ip saddr }",
            "add rule external-default/web/tcp/http goto service-default/web/tcp/http",
            "add rule external-default/web/tcp/http mark set mark or 0x4000",
            "add rule local-default/web/tcp/http ip saddr @affinity-10800-default/web/tcp/http__10.244.0.2/8080 goto endpoint-default/web/tcp/http__10.244.0.2/8080",
            "add rule local-default/web/tcp/http goto endpoint-default/web/tcp/http__10.244.0.2/8080",
            "add rule service-default/web/tcp/http ip saddr @affinity-10800-default/web/tcp/http__10.244.0.2/8080 goto endpoint-default/web/tcp/http__10.244.0.2/8080",
            "add rule service-default/web/tcp/http goto endpoint-default/web/tcp/http__10.244.0.2/8080",
            "add set affinity-10800-default/web/tcp/http__10.244.0.2/8080 { type ipv4_addr ; flags dynamic,timeout ; timeout 10800s ; }",
        ],
    );
}

#[test]
fn endpoint_change_is_one_small_transaction() {
    let mut state = State::new(node());
    state.set_service(
        &client::Key::new("default", "web"),
        Some(service(api::json!({"clusterIP": "10.96.0.7", "ports": (ports(0))}))),
    );
    let one = slice(api::json!([{"addresses": ["10.244.0.2"], "nodeName": "here"}]));
    state.set_slice(&"web-1".into(), None, one.clone());
    let _ = state.update();
    state.ledger.confirm();
    state.set_slice(
        &"web-1".into(),
        one.as_deref(),
        slice(api::json!([{"addresses": ["10.244.0.3"], "nodeName": "here"}])),
    );
    let _ = state.update();
    let text = update(&Table::default(), &state.ledger.difference()).replace(" ip celplane-proxy", "");
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "flush chain service-default/web/tcp/http",
            "delete element hairpin-connections { 10.244.0.2 . 10.244.0.2 . tcp . 8080 }",
            "add rule service-default/web/tcp/http meta l4proto tcp dnat to 10.244.0.3:8080",
            "add element hairpin-connections { 10.244.0.3 . 10.244.0.3 . tcp . 8080 }",
        ]
    );
}

#[test]
fn table_names_are_checked() {
    for name in ["", "1x", "a b", "a;b", "a}", "-a", &"x".repeat(65)] {
        assert!(name.parse::<Table>().is_err(), "{name}");
    }
    assert_eq!("node-2".parse::<Table>().unwrap().to_string(), "node-2");
}

#[test]
fn many_endpoints_are_one_map() {
    let endpoints: Vec<_> = (1..=9_u8).map(|it| api::json!({"addresses": [(format!("10.244.1.{it}"))]})).collect();
    let mut state = State::new(node());
    let spec = api::json!({"clusterIP": "10.96.0.7", "ports": (ports(0))});
    state.set_service(&client::Key::new("default", "web"), Some(service(spec)));
    state.set_slice(&"web-1".into(), None, slice(endpoints.into()));
    let _ = state.update();
    let chains = state.ledger.rule_set().chains;
    let rules = chains.get("service-default/web/tcp/http").unwrap();
    assert_eq!(rules.len(), 1);
    assert!(
        rules[0].contains("numgen random mod 9 map { 0 : 10.244.1.1 . 8080 , 1 : 10.244.1.2 . 8080 ,"),
        "{rules:?}"
    );
}

#[test]
fn clients_of_very_many_endpoints_are_hashed() {
    let addresses = (0..1001_u16).map(|it| api::json!({"addresses": [(format!("10.244.{}.{}", it >> 8, it & 255))]}));
    let endpoints: Vec<_> = addresses.collect();
    let mut state = State::new(node());
    let spec = api::json!({"clusterIP": "10.96.0.7", "sessionAffinity": "ClientIP", "ports": (ports(0))});
    state.set_service(&client::Key::new("default", "web"), Some(service(spec)));
    // An EndpointSlice has at most 1,000 endpoints.
    let (first, rest) = endpoints.split_at(1000);
    state.set_slice(&"web-1".into(), None, slice(first.to_vec().into()));
    state.set_slice(&"web-2".into(), None, slice(rest.to_vec().into()));
    let _ = state.update();
    let rules = state.ledger.rule_set();
    assert!(rules.sets.is_empty());
    let [rule] = &**rules.chains.get("service-default/web/tcp/http").unwrap() else { panic!("one rule") };
    let begin = "meta l4proto tcp dnat ip addr . port to jhash ip saddr mod 1001 seed 0x63656c70 map { 0 : 10.244.0.0 . 8080 , 1 : ";
    assert!(rule.starts_with(begin), "{rule:.200}");
}

#[test]
fn endpoints_of_cluster_ips_are_elements() {
    let spec = api::json!({"clusterIP": "10.96.0.7", "ports": (ports(0))});
    let object = api::json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec});
    let mut state = State::new(node());
    state.set_service(&client::Key::new("default", "web"), Some(Arc::new(Service::read(&object).unwrap())));
    let endpoints = |second: &str| slice(api::json!([{"addresses": ["10.244.0.2"]}, {"addresses": [second]}]));
    let first = endpoints("10.244.1.2");
    state.set_slice(&"web-1".into(), None, first.clone());
    let _ = state.update();
    let rules = state.ledger.rule_set();
    assert!(rules.chains.is_empty());
    let text = replace(&settings(), &node(), &rules).replace(" ip celplane-proxy", "");
    for line in [
        "add element service-ips { 10.96.0.7 . tcp . 80 : goto endpoints-tcp-2 }",
        "add element endpoint-0 { 10.96.0.7 . tcp . 80 : 10.244.0.2 . 8080 }",
        "add element endpoint-1 { 10.96.0.7 . tcp . 80 : 10.244.1.2 . 8080 }",
        "add rule endpoints-tcp-2 meta l4proto tcp numgen random mod 2 0 dnat ip addr . port to ip daddr . meta l4proto . th dport map @endpoint-0",
        "add rule endpoints-tcp-2 meta l4proto tcp dnat ip addr . port to ip daddr . meta l4proto . th dport map @endpoint-1",
    ] {
        assert!(text.lines().any(|it| it == line), "`{line}` is missing in {text}");
    }
    state.ledger.confirm();
    state.set_slice(&"web-1".into(), first.as_deref(), endpoints("10.244.1.3"));
    let _ = state.update();
    let text = update(&Table::default(), &state.ledger.difference()).replace(" ip celplane-proxy", "");
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "delete element endpoint-1 { 10.96.0.7 . tcp . 80 }",
            "add element endpoint-1 { 10.96.0.7 . tcp . 80 : 10.244.1.3 . 8080 }",
        ]
    );
}
