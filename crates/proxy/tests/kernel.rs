//! Transactions that the kernel accepts: those of differences lead to the same table as a replacement.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Arc;

use api::json::Value;
use client::Key;
use proxy::decide::NodeFacts;
use proxy::endpoint::Slice;
use proxy::ledger::RuleSet;
use proxy::nft::{NodePortAddresses, Settings, Table};
use proxy::service::Service;
use proxy::state::State;
use proxy::table::KernelTable;
use proxy::topology::NodeTopology;

/// Set in the process that runs in a namespace of its own.
const INSIDE: &str = "CELPLANE_TEST_INSIDE_NAMESPACE";

/// Runs a test of this binary again in a new network namespace. Returns whether this is the process inside.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let can = |program: &str, arguments: &[&str]| {
        Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|it| it.success())
    };
    let is_possible =
        rustix::process::geteuid().is_root() && can("unshare", &["-n", "true"]) && can("nft", &["--version"]);
    if !is_possible {
        let is_required = std::env::var("CELPLANE_REQUIRE_CONTAINERS").as_deref() == Ok("1");
        assert!(!is_required, "nft in a network namespace is required");
        eprintln!("skipped: needs root, unshare and nft");
        return false;
    }
    let own = std::env::current_exe().unwrap();
    let status =
        Command::new("unshare").arg("-n").arg(own).args(["--exact", test, "--nocapture"]).env(INSIDE, "1").status();
    assert!(status.unwrap().success());
    false
}

fn settings(table: &str) -> Settings {
    Settings {
        table: table.parse().unwrap(),
        masquerade_all: false,
        pod_masquerade: Some(("10.244.0.0/24".parse().unwrap(), "10.244.0.0/16".parse().unwrap())),
        node_port_addresses: NodePortAddresses::Some(vec!["192.168.77.1".parse().unwrap()]),
        service_networks: vec!["10.96.0.0/12".parse().unwrap()],
    }
}

fn node() -> NodeFacts {
    NodeFacts {
        topology: NodeTopology { name: "here".to_owned(), zone: String::new() },
        address: "192.168.77.1".parse().unwrap(),
        pod_network: "10.244.0.0/16".parse().ok(),
        masquerade_mark: 1 << 14,
    }
}

fn service(name: &str, spec: Value) -> Option<Arc<Service>> {
    let status = api::json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}});
    let object = api::json!({"metadata": {"namespace": "a", "name": name}, "spec": spec, "status": status});
    Some(Arc::new(Service::read(&object).unwrap()))
}

fn slice(name: &str, endpoints: &[(u8, &str)]) -> Arc<Slice> {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(last, node)| api::json!({"addresses": [(format!("10.244.0.{last}"))], "nodeName": (*node)}))
        .collect();
    let port = |name: &str, protocol: &str| api::json!({"name": name, "protocol": protocol, "port": 8080_i64});
    let object = api::json!({
        "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4", "endpoints": endpoints,
        "ports": [(port("", "TCP")), (port("dns", "UDP")), (port("sig", "SCTP"))],
    });
    Arc::new(Slice::read(&object, "here").unwrap())
}

/// The table as a set of statements: neither the order of objects nor that of elements counts. Stale chains are empty.
fn listed(table: &Table) -> BTreeSet<String> {
    let output = Command::new("nft").args(["list", "table", "ip", &table.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut found, mut block) = (BTreeSet::new(), String::new());
    for line in text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with("table")) {
        if let Some(name) = line.strip_suffix('{').filter(|it| !it.contains('=')) {
            block = name.trim().to_owned();
            if !block.contains('/') {
                found.insert(block.clone());
            }
        } else {
            found.extend(
                line.split(['{', '}', ','])
                    .map(|it| format!("{block}: {}", it.trim()))
                    .filter(|it| !it.ends_with(": ")),
            );
        }
    }
    found
}

/// A table of Services with one endpoint each, and with a Service of many endpoints.
fn filled(services: usize, endpoints: usize) -> State {
    let mut state = State::new(node());
    for number in 0..services {
        let name = format!("s{number}");
        let address = format!("10.96.{}.{}", 1 + number / 256, number % 256);
        let spec = api::json!({"clusterIP": address, "ports": [{"port": 80_i64}]});
        state.set_service(&Key::new("a", &name), service(&name, spec));
        state.set_slice(&name.as_str().into(), None, Some(slice(&name, &[(1, "here")])));
    }
    let spec = api::json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80_i64}]});
    state.set_service(&Key::new("a", "large"), service("large", spec));
    // 1,000 endpoints are the most that an EndpointSlice has.
    for (number, first) in (0..endpoints).step_by(1000).enumerate() {
        let address = |at: usize| format!("10.{}.{}.{}", 128 + (at >> 16), (at >> 8) & 255, at & 255);
        let all: Vec<Value> = (first..endpoints.min(first + 1000))
            .map(|at| api::json!({"addresses": [(address(at))], "nodeName": "there"}))
            .collect();
        let object = api::json!({
            "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": "large"}}, "addressType": "IPv4", "endpoints": all,
            "ports": [{"name": "", "protocol": "TCP", "port": 8080_i64}],
        });
        let slice = Arc::new(Slice::read(&object, "here").unwrap());
        state.set_slice(&format!("large-{number}").as_str().into(), None, Some(slice));
    }
    let _ = state.update();
    state
}

fn count(table: &Table, map: &str, part: &str) -> usize {
    let output = Command::new("nft").args(["list", "map", "ip", &table.to_string(), map]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().matches(part).count()
}

/// A process that is killed while it changes the rules leaves the earlier or the new ones, never a part of them.
#[tokio::test]
async fn killed_transactions_have_no_partial_effect() {
    if !is_inside("kernel::killed_transactions_have_no_partial_effect") {
        return;
    }
    let settings = settings("killed");
    let [small, large] = [1, 3000].map(|services| filled(services, 1).ledger.rule_set());
    let size = |rules: &RuleSet| rules.elements.keys().filter(|it| it.container() == "service-ips").count();
    let (mut delay, mut is_large) = (std::time::Duration::ZERO, false);
    KernelTable::default().replace(&settings, &node(), &small).await.unwrap();
    loop {
        let rules = if is_large { &small } else { &large };
        let script = proxy::nft::replace(&settings, &node(), rules);
        let mut child = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
        // The moment varies from before the first message to the kernel until after the last one.
        std::thread::sleep(delay);
        let has_ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        let found = count(&settings.table, "service-ips", " . tcp . 80");
        assert!([size(&small), size(&large)].contains(&found), "{found} elements after {delay:?}");
        is_large = found == size(&large);
        if has_ended {
            break;
        }
        delay = delay * 3 / 2 + std::time::Duration::from_millis(5);
    }
}

/// Set in the process that writes this table and is killed.
const WRITES: &str = "CELPLANE_TEST_WRITES_TABLE";

/// An `nft` that reports its start, waits, runs the transaction and reports its end, over named pipes.
const WAITING_NFT: &str = r#"#!/bin/sh
export PATH="${PATH#DIRECTORY:}"
[ "$1" = -f ] || exec nft "$@"
echo started > DIRECTORY/started
read -r line < DIRECTORY/continue
nft "$@"
echo ended > DIRECTORY/ended
"#;

/// Services with external addresses, which have chains of their own: the beginning of the script consists of short statements.
fn with_chains(services: usize) -> RuleSet {
    let mut state = State::new(node());
    for number in 0..services {
        let (name, part) = (format!("s{number}"), format!("{}.{}", 1 + number / 250, 1 + number % 250));
        let (address, external) = (format!("10.96.{part}"), format!("198.18.{part}"));
        let spec = api::json!({"clusterIP": address, "externalIPs": [external], "ports": [{"port": 80_i64}]});
        state.set_service(&Key::new("a", &name), service(&name, spec));
        state.set_slice(&name.as_str().into(), None, Some(slice(&name, &[(1, "here")])));
    }
    let _ = state.update();
    state.ledger.rule_set()
}

/// `nft` outlives a proxy that is killed, and takes the end of its input for the end of the transaction.
#[tokio::test]
async fn killed_proxy_leaves_no_part_of_a_transaction() {
    let test = "kernel::killed_proxy_leaves_no_part_of_a_transaction";
    if !is_inside(test) {
        return;
    }
    let rules = with_chains(2000);
    if let Ok(table) = std::env::var(WRITES) {
        let _ = KernelTable::default().replace(&settings(&table), &node(), &rules).await;
        return;
    }
    // A pipe holds 64 KiB of the script. The table's name is one with which they end within the name of a chain: they are valid statements.
    let is_cut_in_name = |table: &String| {
        let script = proxy::nft::replace(&settings(table), &node(), &rules);
        let first = script.get(..64 << 10).unwrap();
        let last = first.lines().last().unwrap();
        last.starts_with("add chain") && last.split(' ').nth(4).is_some_and(|it| it.len() > 3)
    };
    let table = (1..=64).map(|length| "t".repeat(length)).find(is_cut_in_name).unwrap();
    let settings = settings(&table);
    KernelTable::default().replace(&settings, &node(), &with_chains(1)).await.unwrap();

    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let pipes = ["started", "continue", "ended"];
    assert!(Command::new("mkfifo").args(pipes.map(path)).status().unwrap().success());
    let program = WAITING_NFT.replace("DIRECTORY", &directory.path().display().to_string());
    std::fs::write(path("nft"), program).unwrap();
    std::fs::set_permissions(path("nft"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let search = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let mut proxy = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(WRITES, &table)
        .env("PATH", search)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(std::fs::read_to_string(path("started")).unwrap(), "started\n");
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    std::fs::write(path("continue"), "\n").unwrap();
    assert_eq!(std::fs::read_to_string(path("ended")).unwrap(), "ended\n");
    let elements = rules.elements.keys().filter(|it| it.container() == "service-ips").count();
    assert_eq!(count(&settings.table, "service-ips", " . tcp . 80"), elements);
}

#[tokio::test]
async fn service_has_a_hundred_thousand_endpoints() {
    if !is_inside("kernel::service_has_a_hundred_thousand_endpoints") {
        return;
    }
    let settings = settings("many");
    let (mut state, mut table) = (filled(10, 100_000), KernelTable::default());
    table.replace(&settings, &node(), &state.ledger.rule_set()).await.unwrap();
    state.ledger.confirm();
    let listing = |chain: &str| {
        let arguments = ["list", "chain", "ip", "many", chain];
        String::from_utf8(Command::new("nft").args(arguments).output().unwrap().stdout).unwrap()
    };
    let rules = listing("service-a/large/tcp/");
    assert!(rules.contains("mod 100000 map") && rules.contains("10.129.134.159 . 8080"), "{:.200}", rules);
    // The change of another Service does not write them again.
    state.set_slice(&"s1".into(), None, Some(slice("s1", &[(1, "here"), (2, "there")])));
    let _ = state.update();
    let difference = state.ledger.difference();
    assert!(proxy::nft::update(&settings.table, &difference).len() < 1000);
    table.update(&settings, &difference).await.unwrap();
    assert!(listing("service-a/s1/tcp/").contains("10.244.0.2"));
    assert!(table.is_intact(&settings).await.unwrap());
}

#[tokio::test]
async fn kernel_accepts_differences() {
    if !is_inside("kernel::kernel_accepts_differences") {
        return;
    }
    let (mut state, mut table) = (State::new(node()), KernelTable::default());
    let (own, other) = (settings("incremental"), settings("replaced"));
    let mut known: std::collections::BTreeMap<&str, Arc<Slice>> = Default::default();
    // A table of others, with names that the own one has, too.
    let foreign = "add table ip other; add chain ip other services; add rule ip other services ip daddr 203.0.113.9 drop; \
        add map ip other service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }";
    assert!(Command::new("nft").arg(foreign).status().unwrap().success());
    let foreign_rules = listed(&"other".parse().unwrap());
    table.replace(&own, &node(), &state.ledger.rule_set()).await.unwrap();
    let port = |name: &str, protocol: &str| api::json!({"name": name, "protocol": protocol, "port": 80_i64, "nodePort": 30080_i64});
    let everything = |affinity: &str, seconds: i64, policy: &str| {
        api::json!({
            "clusterIP": "10.96.0.7", "type": "LoadBalancer", "externalIPs": ["192.0.2.1"], "sessionAffinity": affinity,
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}, "externalTrafficPolicy": policy, "internalTrafficPolicy": policy,
            "loadBalancerSourceRanges": ["203.0.113.0/24"], "ports": [(port("", "TCP")), (port("dns", "UDP")), (port("sig", "SCTP"))],
        })
    };
    let plain =
        |address: &str| api::json!({"clusterIP": address, "externalIPs": ["192.0.2.1"], "ports": [{"port": 80_i64}]});
    // Reached by the cluster IP only.
    let internal = api::json!({
        "metadata": {"namespace": "a", "name": "internal"},
        "spec": {"clusterIP": "10.96.0.3", "ports": [
            {"port": 80_i64}, {"name": "dns", "protocol": "UDP", "port": 53_i64}, {"name": "sig", "protocol": "SCTP", "port": 80_i64},
        ]},
    });
    let internal = Arc::new(Service::read(&internal).unwrap());
    let nine: Vec<(u8, &str)> = (1..=9).map(|last| (last, "here")).collect();
    type Step<'a> = (&'a str, Option<Option<Arc<Service>>>, Option<&'a [(u8, &'a str)]>);
    let local: &[(u8, &str)] = &[(1, "here"), (2, "there")];
    let steps: Vec<Step<'_>> = vec![
        ("a", Some(service("a", plain("10.96.0.1"))), None),
        ("a", None, Some(&[(1, "here")])),
        ("b", Some(service("b", everything("None", 10, "Cluster"))), Some(local)),
        ("b", Some(service("b", everything("ClientIP", 10, "Cluster"))), None),
        ("b", Some(service("b", everything("ClientIP", 20, "Local"))), None),
        ("b", None, Some(&[(2, "there")])),
        ("a", None, Some(&[(1, "here"), (3, "here"), (4, "there")])),
        ("b", None, Some(local)),
        ("b", Some(service("b", everything("None", 10, "Local"))), None),
        ("b", Some(None), None),
        ("b", Some(service("b", everything("ClientIP", 10, "Local"))), None),
        ("a", None, Some(&[])),
        ("a", Some(None), None),
        ("internal", Some(Some(internal)), Some(local)),
        ("internal", None, Some(&[(1, "here"), (3, "there")])),
        ("internal", None, Some(&[(3, "there")])),
        ("internal", None, Some(nine.as_slice())),
        ("internal", None, Some(local)),
        ("internal", None, Some(&[])),
        ("internal", Some(None), None),
        ("b", None, Some(&[])),
    ];
    for (number, (name, changed, endpoints)) in steps.into_iter().enumerate() {
        if let Some(changed) = changed {
            state.set_service(&Key::new("a", name), changed);
        }
        if let Some(endpoints) = endpoints {
            let new = slice(name, endpoints);
            let old = known.insert(name, new.clone());
            state.set_slice(&name.into(), old.as_deref(), Some(new));
        }
        let _ = state.update();
        table.update(&own, &state.ledger.difference()).await.unwrap_or_else(|error| panic!("step {number}: {error}"));
        state.ledger.confirm();
        KernelTable::default().replace(&other, &node(), &state.ledger.rule_set()).await.unwrap();
        assert_eq!(listed(&own.table), listed(&other.table), "step {number}");
        assert!(table.is_intact(&own).await.unwrap(), "step {number}");
    }
    // Rules that others change are noticed, and a conflicting transaction fails without effect.
    let edit = Command::new("nft").args(["add", "rule", "ip", "incremental", "services", "drop"]).status().unwrap();
    assert!(edit.success() && !table.is_intact(&own).await.unwrap());
    table.replace(&own, &node(), &state.ledger.rule_set()).await.unwrap();
    assert!(table.is_intact(&own).await.unwrap() && KernelTable::exists(&own.table).await.unwrap());
    assert_eq!(listed(&"other".parse().unwrap()), foreign_rules);
    KernelTable::remove(&other.table).await.unwrap();
    assert_eq!(listed(&"other".parse().unwrap()), foreign_rules);
    assert!(Command::new("nft").args(["flush", "ruleset"]).status().unwrap().success());
    assert!(!table.is_intact(&own).await.unwrap() && !KernelTable::exists(&own.table).await.unwrap());
    state.set_service(&Key::new("a", "c"), service("c", plain("10.96.0.9")));
    let _ = state.update();
    assert!(table.update(&own, &state.ledger.difference()).await.is_err());
    KernelTable::remove(&own.table).await.unwrap();
    let tables = Command::new("nft").args(["list", "tables"]).output().unwrap();
    assert_eq!(String::from_utf8(tables.stdout).unwrap(), "");
}
