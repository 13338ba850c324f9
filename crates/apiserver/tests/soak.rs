//! Load that comes and goes leaves nothing behind: tasks and file descriptors return to where they were, memory stays.
//!
//! A few seconds by default; `CELPLANE_SOAK_SECONDS` makes it longer.

use crate::network;

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use network::Network;
use serde_json::{Value, json};

/// Resources of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ResourceUse {
    tasks: usize,
    descriptors: usize,
    kibibytes: u64,
}

fn held() -> ResourceUse {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0);
    let descriptors = std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(0);
    ResourceUse { tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(), descriptors, kibibytes }
}

/// Waits until what is held is no more than before.
async fn settle(before: ResourceUse) -> ResourceUse {
    let started = Instant::now();
    loop {
        let now = held();
        if now.tasks <= before.tasks && now.descriptors <= before.descriptors || started.elapsed().as_secs() > 20 {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the resources once they are stable.
async fn rest() -> ResourceUse {
    let mut last = held();
    let mut same = 0;
    while same < 10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = held();
        same = if (now.tasks, now.descriptors) == (last.tasks, last.descriptors) { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// One client's visit: a connection, watches that are left open, objects that come and go, tokens, reviews, bad bodies.
async fn visit(network: &Network, client: usize, round: usize) -> usize {
    let mut connection = network.connect().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut requests = 0;
    let mut watches = Vec::new();
    for kind in ["configmaps", "secrets", "pods", "serviceaccounts"] {
        let path = format!(
            "/api/v1/{kind}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        );
        let response = connection.send("GET", &path, &[], &Value::Null).await;
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        // Some are read, some are not.
        if client.is_multiple_of(2) {
            body.frame().await.unwrap().unwrap();
        }
        watches.push(body);
    }
    let account = format!("sa-{client}-{round}");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(connection.ask("POST", accounts, &json!({"metadata": {"name": account}})).await.0, 201);
    let (status, token) = connection.ask("POST", &format!("{accounts}/{account}/token"), &json!({})).await;
    assert_eq!(status, 201, "{token}");
    let review = json!({"spec": {"token": token["status"]["token"]}});
    let (_, review) = connection.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    assert_eq!(review["status"]["authenticated"], true, "{review}");
    assert_eq!(connection.ask("DELETE", &format!("{accounts}/{account}"), &Value::Null).await.0, 200);
    for n in 0..20 {
        let name = format!("m-{client}-{round}-{n}");
        let body = json!({"metadata": {"name": name}, "data": {"k": "v".repeat(1000)}});
        assert_eq!(connection.ask("POST", maps, &body).await.0, 201);
        assert_eq!(connection.ask("GET", &format!("{maps}?limit=5"), &Value::Null).await.0, 200);
        let changed = json!({"metadata": {"name": name}, "data": {"k": n.to_string()}});
        assert_eq!(connection.ask("PUT", &format!("{maps}/{name}"), &changed).await.0, 200);
        assert_eq!(connection.ask("DELETE", &format!("{maps}/{name}"), &Value::Null).await.0, 200);
        let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
        let refused = connection.send("POST", maps, &headers, &json!({"no": "protobuf"})).await;
        assert_eq!(refused.status(), 400);
        requests += 5;
    }
    // Half of the clients disconnect silently.
    if client.is_multiple_of(2) {
        for mut watch in watches {
            let _ = tokio::time::timeout(Duration::from_millis(1), watch.frame()).await;
        }
    }
    requests + 8
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_that_has_passed_leaves_nothing_behind() {
    let seconds = std::env::var("CELPLANE_SOAK_SECONDS").ok().and_then(|it| it.parse().ok()).unwrap_or(5);
    // History goes soon, so that memory shows what else is kept.
    let retention = store::Retention { age_max: Some(Duration::from_secs(5)), ..store::Retention::default() };
    let network = Network::start_on(store::Options { retention, ..store::Options::default() }).await;
    // The caches of the process, and the changes that the server keeps for watchers, fill first.
    for round in 0..3 {
        visit(&network, round, 1_000_000).await;
    }
    let before = rest().await;
    let started = Instant::now();
    let (mut round, mut requests) = (0, 0);
    let mut samples: Vec<ResourceUse> = Vec::new();
    while started.elapsed() < Duration::from_secs(seconds) {
        let visits = (0..6).map(|client| visit(&network, client, round));
        requests += futures(visits).await.into_iter().sum::<usize>();
        round += 1;
        let due = u32::try_from(samples.len() + 1).unwrap();
        if started.elapsed() > Duration::from_secs(seconds) / 6 * due {
            samples.push(held());
        }
    }
    let after = settle(before).await;
    println!("{requests} requests in {round} rounds over {seconds} s");
    println!("before {before:?}\nafter {after:?}\nin between {samples:#?}");
    assert!(after.tasks <= before.tasks, "tasks are left: {before:?} {after:?}");
    assert!(after.descriptors <= before.descriptors, "descriptors are left: {before:?} {after:?}");
    // The last 20,000 changes of a resource are kept, up to 16 MiB of them, as text and as the lines of their events.
    let grown = after.kibibytes.saturating_sub(before.kibibytes);
    assert!(grown < 200 << 10, "memory grows: {before:?} {after:?}");
    network.stop().await;
}

/// Runs all at the same time in this task.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, output) in &mut all {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(ready) => *output = Some(ready),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}
