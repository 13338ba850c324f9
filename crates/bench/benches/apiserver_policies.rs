//! How much time and memory do admission policies add to the creation of a pod?
//!
//! One server per configuration, in this process, with its store in memory; one client that creates pods as dry runs, one after
//! the other. The configurations are those that were measured on kube-apiserver, where 1,000 policies with one binding each add 22
//! to 26 ms and 370 MiB. Without `--bench` it checks that pods are created and refused.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use celplane_bench::memory;
use celplane_bench::table::Table;
use http::{Method, Request};
use http_body_util::Full;
use store::EmbeddedStore;

/// Policies, bindings of each, and requests.
const CONFIGURATIONS: [(usize, usize, usize); 5] =
    [(0, 0, 500), (100, 1, 500), (1000, 1, 200), (100, 100, 100), (100, 300, 50)];

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    if !std::env::args().any(|argument| argument == "--bench") {
        let is_right = runtime.block_on(async {
            let server = start(3, 2).await?;
            let refused = create(&server, "forbidden-1").await;
            Some(create(&server, "c").await == 201 && refused == 422)
        });
        return if is_right == Some(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    println!("How much time and memory do admission policies add to the creation of a pod? (dry run, store in memory)");
    let mut table = Table::new(["policies", "bindings each", "p50, ms", "memory added, MiB"].map(str::to_owned));
    for (policies, bindings, requests) in CONFIGURATIONS {
        let before = memory::resident_bytes().unwrap_or_default();
        let Some(server) = runtime.block_on(start(policies, bindings)) else { return ExitCode::FAILURE };
        let mut times: Vec<Duration> = (0..requests)
            .map(|_| {
                let started = Instant::now();
                runtime.block_on(create(&server, "c"));
                started.elapsed()
            })
            .collect();
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let added = memory::resident_bytes().unwrap_or_default().saturating_sub(before) >> 20;
        let shown = format!("{:.3}", median.as_secs_f64() * 1000.0);
        table.row([policies.to_string(), bindings.to_string(), shown, added.to_string()]);
        runtime.block_on(async { server.stop().await }).ok();
    }
    println!("{table}");
    ExitCode::SUCCESS
}

async fn start(policies: usize, bindings: usize) -> Option<Arc<Server>> {
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).ok()?);
    let server = Server::start(store, Options::without_controllers()).await.ok()?;
    for policy in 0..policies {
        let body = format!(
            r#"{{"metadata":{{"name":"p{policy}"}},"spec":{{"matchConstraints":{{"resourceRules":[{{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE","UPDATE"]}}]}},"validations":[{{"expression":"object.spec.containers.all(c, c.name != 'forbidden-{policy}')"}}]}}}}"#
        );
        send(&server, &format!("{GROUP}/validatingadmissionpolicies"), body).await;
        for binding in 0..bindings {
            let body = format!(
                r#"{{"metadata":{{"name":"b{policy}-{binding}"}},"spec":{{"policyName":"p{policy}","validationActions":["Deny"]}}}}"#
            );
            send(&server, &format!("{GROUP}/validatingadmissionpolicybindings"), body).await;
        }
    }
    server.settle().await.ok()?;
    Some(server)
}

async fn create(server: &Arc<Server>, container: &str) -> u16 {
    let body =
        format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"{container}","image":"i"}}]}}}}"#);
    send(server, "/api/v1/namespaces/default/pods?dryRun=All", body).await
}

async fn send(server: &Arc<Server>, path: &str, body: String) -> u16 {
    let admin = User::authenticated("admin", &["system:masters"]);
    let request = Request::builder().method(Method::POST).uri(path).body(Full::new(Bytes::from(body)));
    match request {
        Ok(request) => server.handle(request, Some(&admin)).await.status().as_u16(),
        Err(_) => 0,
    }
}
