//! The built-in objects: classification of requests, and the effect of a flood on others.

use super::*;
use crate::identity::User;
use crate::initial_objects;
use crate::wire::request::{Route, route};

/// Flow control with the built-in objects.
fn flow(seats: usize) -> Arc<FlowControl> {
    let flow = Arc::new(FlowControl::new(seats, Duration::from_secs(60), &Registry::new()));
    let (levels, schemas) = (initial_objects::built_in(objects::LEVELS), initial_objects::built_in(objects::SCHEMAS));
    flow.configure(&Configuration::of(levels, schemas), now());
    flow
}

fn target(method: &http::Method, uri: &str) -> (Option<Box<Target>>, Query) {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let query = Query::parse(query);
    match route(method, path, &query) {
        Route::Resource(target) => (Some(target), query),
        Route::Other => (None, query),
    }
}

#[track_caller]
fn check(user: &User, method: &str, uri: &str, schema: &str, level: &str) {
    let flow = flow(600);
    let method = method.parse().unwrap();
    let (target, _) = target(&method, uri);
    let verb = verb_of(target.as_ref().and_then(|it| it.verb), &method);
    let found = flow.classify(&Request { user, verb: &verb, target: target.as_deref(), path: uri }).unwrap();
    assert_eq!((found.name.as_str(), found.level.name.as_str()), (schema, level), "{uri}");
}

#[test]
fn everybody_has_a_level() {
    let user = |name: &str, groups: &[&str]| User::authenticated(name, groups);
    let admin = user("admin", &["system:masters"]);
    check(&admin, "GET", "/api/v1/pods", "exempt", "exempt");
    check(&User::anonymous(), "GET", "/livez", "probes", "exempt");
    check(&User::anonymous(), "GET", "/readyz/ping", "probes", "exempt");
    check(&User::anonymous(), "POST", "/livez", "global-default", "global-default");
    let node = user("system:node:n", &["system:nodes"]);
    check(&node, "PATCH", "/api/v1/nodes/n/status", "system-node-high", "node-high");
    check(
        &node,
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n",
        "system-node-high",
        "node-high",
    );
    check(&node, "GET", "/api/v1/pods", "system-nodes", "system");
    let scheduler = user("system:kube-scheduler", &[]);
    check(&scheduler, "GET", "/api/v1/pods", "kube-scheduler", "workload-high");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";
    check(&scheduler, "PUT", lease, "system-leader-election", "leader-election");
    let account = |namespace: &str| user(&format!("system:serviceaccount:{namespace}:a"), &["system:serviceaccounts"]);
    check(&account("kube-system"), "GET", "/api/v1/pods", "kube-system-service-accounts", "workload-high");
    check(&account("default"), "GET", "/api/v1/pods", "service-accounts", "workload-low");
    check(&user("jane", &[]), "GET", "/api/v1/pods", "global-default", "global-default");
    // A user without groups.
    check(&User { name: "x".to_owned(), ..User::default() }, "GET", "/version", "catch-all", "catch-all");
}

async fn seat(flow: &Arc<FlowControl>, user: &User, uri: &str) -> Option<Seat> {
    let method = http::Method::GET;
    let (target, query) = target(&method, uri);
    let verb = verb_of(target.as_ref().and_then(|it| it.verb), &method);
    let request = Request { user, verb: &verb, target: target.as_deref(), path: uri };
    let schema = flow.classify(&request).unwrap();
    flow.seat(&schema, &request, &query, |_| (1000, 1_000_000)).await
}

#[tokio::test(start_paused = true)]
async fn one_user_floods_and_the_others_go_on() {
    let flow = flow(60);
    let (flood, jane) = (User::authenticated("flood", &[]), User::authenticated("jane", &[]));
    let mut held = Vec::new();
    for _ in 0..1000 {
        let (flow, flood) = (flow.clone(), flood.clone());
        held.push(tokio::spawn(async move {
            let seat = seat(&flow, &flood, "/api/v1/namespaces/a/pods/b").await;
            let got = seat.is_some();
            tokio::time::sleep(Duration::from_millis(100)).await;
            got
        }));
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Another user of the same level gets a turn soon, others at once.
    let started = tokio::time::Instant::now();
    assert!(seat(&flow, &jane, "/api/v1/namespaces/a/pods/b").await.is_some());
    assert!(started.elapsed() <= Duration::from_millis(200), "{:?}", started.elapsed());
    let started = tokio::time::Instant::now();
    let scheduler = User::authenticated("system:kube-scheduler", &[]);
    assert!(seat(&flow, &scheduler, "/api/v1/pods").await.is_some());
    assert!(seat(&flow, &User::authenticated("admin", &["system:masters"]), "/api/v1/pods").await.is_some());
    assert_eq!(started.elapsed(), Duration::ZERO);
    let mut got = 0;
    for held in held {
        got += usize::from(held.await.unwrap());
    }
    // The running requests, and those in six queues of fifty.
    assert!((300..=330).contains(&got), "{got}");
    let level = flow.levels.lock().iter().find(|it| it.name == "global-default").cloned().unwrap();
    assert_eq!(level.queues().seats_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_queued_too_long_are_rejected_with_retry() {
    let flow = flow(1);
    let user = User::authenticated("jane", &[]);
    let held = seat(&flow, &user, "/version").await.unwrap();
    let started = tokio::time::Instant::now();
    assert!(seat(&flow, &user, "/version").await.is_none());
    assert_eq!(started.elapsed(), Duration::from_secs(15));
    drop(held);
    assert!(seat(&flow, &user, "/version").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn changed_level_keeps_its_requests() {
    let flow = flow(60);
    let user = User::authenticated("jane", &[]);
    let held = seat(&flow, &user, "/version").await.unwrap();
    let (levels, schemas) = (initial_objects::built_in(objects::LEVELS), initial_objects::built_in(objects::SCHEMAS));
    flow.configure(&Configuration::of(levels, schemas), now());
    let level = flow.levels.lock().iter().find(|it| it.name == "global-default").cloned().unwrap();
    assert_eq!(level.queues().seats_in_use(), 1);
    drop(held);
    assert_eq!(level.queues().seats_in_use(), 0);
}
