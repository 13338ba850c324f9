//! How long does a list of 13,000 pods take in protobuf, beside the same in JSON?
//!
//! The whole way of a request without the network: routing, cache, encoding. `apiserver_protobuf COUNT` takes another number.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::json;
use apiserver::identity::Authenticator;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use store::EmbeddedStore;

const COUNT: usize = 13_000;
const ROUNDS: usize = 9;
const PODS: &str = "/api/v1/namespaces/default/pods";
const FORMS: [(&str, &str); 2] = [("JSON", "application/json"), ("protobuf", "application/vnd.kubernetes.protobuf")];

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let count = std::env::args().filter_map(|argument| argument.parse().ok()).next();
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (count, rounds) = if is_bench { (count.unwrap_or(COUNT), ROUNDS) } else { (20, 1) };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(count, rounds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(count: usize, rounds: usize) -> Result<(), Failure> {
    let tokens = Authenticator::parse_tokens("admin,admin,1,system:masters\n")?;
    let options = Options { tokens, ..Options::without_controllers() };
    let server = Server::start(Arc::new(EmbeddedStore::in_memory(store::Options::default())?), options).await?;
    for number in 0..count {
        let name = format!("web-{number:05}");
        let resources = api::json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}});
        let env = api::json!([{"name": "MODE", "value": "production"}, {"name": "PORT", "value": "8080"}]);
        let container = api::json!({
            "name": "web", "image": "registry.example.com/web:1.2.3", "resources": resources, "env": env,
            "ports": [{"containerPort": 8080}]
        });
        let labels = api::json!({"app": "web", "pod-template-hash": "5d4f8c7b9"});
        let pod = api::json!({
            "metadata": {"name": (name.as_str()), "labels": labels},
            "spec": {"nodeName": "node-1", "containers": [container]}
        });
        send(&server, "POST", PODS, "application/json", json::to_string(&pod)).await?;
    }
    let mut best = [Duration::MAX; 2];
    let mut sizes = [0; 2];
    for _ in 0..rounds {
        for ((_, form), (best, size)) in FORMS.iter().zip(best.iter_mut().zip(&mut sizes)) {
            let started = Instant::now();
            *size = send(&server, "GET", PODS, form, String::new()).await?;
            *best = started.elapsed().min(*best);
        }
    }
    println!("a list of {count} pods, best of {rounds}");
    for ((name, _), (best, size)) in FORMS.iter().zip(best.iter().zip(sizes)) {
        println!("{name:8} {:8.1} ms   ({size} bytes)", best.as_secs_f64() * 1e3);
    }
    let [plain, protobuf] = best.map(|it| it.as_secs_f64());
    println!("protobuf / JSON {:.2} x", protobuf / plain);
    server.stop().await?;
    Ok(())
}

/// Sends a request that must succeed; gives back the length of the answer.
async fn send(server: &Arc<Server>, method: &str, path: &str, form: &str, body: String) -> Result<usize, Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Authorization", "Bearer admin")
        .header("Accept", form)
        .body(Full::new(Bytes::from(body)))?;
    let response = server.handle(request, None).await;
    let status = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes)).into());
    }
    Ok(bytes.len())
}
