//! The facts of `pkg/proxy/topology_test.go` of Kubernetes, in a short notation.
//!
//! An endpoint is its last octet and its flags: `r`eady, `s`erving, `t`erminating, `l`ocal; then hints: `z=ZONE`, `n=NODE`.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::*;

fn endpoint(text: &str) -> Endpoint {
    let mut words = text.split(' ');
    let last: u8 = words.next().unwrap().parse().unwrap();
    let mut facts = Facts::default();
    for word in words {
        match word.split_once('=') {
            Some(("z", zone)) => facts.zones.push(zone.into()),
            Some((_, node)) => facts.nodes.push(node.into()),
            None => {
                facts.is_ready = word.contains('r');
                facts.is_serving = word.contains('s');
                facts.is_terminating = word.contains('t');
                facts.is_local = word.contains('l');
            }
        }
    }
    Endpoint { address: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 80), facts }
}

/// `uses`: `c`luster endpoints, `l`ocal endpoints. `expected`: cluster / local / reachable, and `+` if any node has an endpoint.
#[track_caller]
fn check(node: &str, uses: &str, endpoints: &[&str], expected: &str) {
    let (name, zone) = node.split_once('@').unwrap_or((node, ""));
    let node = NodeTopology { name: name.to_owned(), zone: zone.to_owned() };
    let endpoints: Vec<Endpoint> = endpoints.iter().map(|it| endpoint(it)).collect();
    let found = categorize(&endpoints, &node, uses.contains('c'), uses.contains('l'));
    let list = |all: &[&Endpoint]| {
        let all: Vec<String> = all.iter().map(|it| it.address.ip().octets()[3].to_string()).collect();
        all.join(" ")
    };
    let any = if found.has_any { "+" } else { "" };
    let actual = format!("{}/{}/{}{any}", list(&found.cluster), list(&found.local), list(&found.reachable));
    assert_eq!(actual, expected);
}

#[test]
fn zone_hints_select_endpoints() {
    let zones = ["3 r z=a", "4 r z=b", "5 r z=c", "6 r z=a"];
    check("n@a", "c", &zones, "3 6//3 6+");
    check("n", "c", &["3 r z=a"], "3//3+");
    check("n@b", "c", &["3 r z=a"], "3//3+");
    check("n@a", "c", &["3 r z=a", "4 r z=b", "5 r z=c", "6 - z=a"], "3//3+");
    check("n@a", "c", &["3 - z=a", "4 r z=b", "5 r z=c", "6 - z=a"], "4 5//4 5+");
    check("n@a", "c", &["3 r z=a", "4 r z=b", "5 r", "6 r z=a"], "3 4 5 6//3 4 5 6+");
    check("n@c", "c", &["3 r z=a z=b z=c", "4 r z=b z=c", "5 r z=b z=d", "6 r z=c"], "3 4 6//3 4 6+");
}

#[test]
fn local_policies_ignore_hints() {
    let mixed = ["3 rl z=a", "4 rl z=b", "5 r z=c", "6 r z=a"];
    check("n@a", "cl", &mixed, "3 6/3 4/3 4 6+");
    check("n@a", "cl", &["0 rl z=a", "1 rl z=b", "2 r z=a", "3 r z=b"], "0 2/0 1/0 1 2+");
}

#[test]
fn node_hints_come_before_zone_hints() {
    let hinted = ["3 r z=a n=1", "4 r z=b n=2", "5 r z=c n=3", "6 r z=a n=4"];
    check("1@a", "c", &hinted, "3//3+");
    check("0@a", "c", &hinted, "3 6//3 6+");
    check("1@a", "c", &["3 r z=a n=1", "4 r", "5 r z=c n=3", "6 r z=a n=4"], "3 4 5 6//3 4 5 6+");
}

#[test]
fn local_policy_uses_local_endpoints() {
    check("n", "l", &[], "//");
    check("n", "l", &["0 r", "1 r"], "//+");
    check("n", "l", &["0 rl", "1 rl"], "/0 1/0 1+");
    check("n", "l", &["0 rl", "1 r"], "/0/0+");
    check("n", "cl", &["0 rl", "1 r"], "0 1/0/0 1+");
    check("n", "cl", &["0 r", "1 r"], "0 1//0 1+");
    check("n", "c", &["0 r", "1 rl"], "0 1//0 1+");
    check("n", "l", &["0 r", "1 rl"], "/1/1+");
}

#[test]
fn terminating_endpoints_are_the_last_resort() {
    check("n", "c", &["0 -", "1 -"], "//");
    check("n", "c", &["0 -", "1 r"], "1//1+");
    check("n", "c", &["0 stl", "1 st"], "0 1//0 1+");
    check("n", "cl", &["0 st", "1 st"], "0 1//0 1+");
    check("n", "cl", &["0 r", "1 l", "2 stl", "3 st"], "0/2/0 2+");
    check("n@a", "c", &["0 -"], "//");
    check("n", "c", &[], "//");
    check("n", "c", &["0 t", "1 s"], "//");
}
