//! How long does `kubectl get` of 10,000 objects take in the server, with five columns by expression and five by path?
//!
//! The whole way of a request: routing, cache, decoding, cells, encoding. `apiserver_table COUNT` takes another number.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::features::{Features, Gate};
use api::json::{self, Value};
use apiserver::identity::Authenticator;
use apiserver::{Options, Server};
use bytes::Bytes;
use celplane_bench::columns::{ALL, Way, object, schema};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use store::EmbeddedStore;

const COUNT: usize = 10_000;
const ROUNDS: usize = 9;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let count = std::env::args().filter_map(|argument| argument.parse().ok()).next();
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (count, rounds) = if is_bench { (count.unwrap_or(COUNT), ROUNDS) } else { (20, 1) };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
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

/// The kinds that are compared: with no columns but the age, with paths, with expressions.
const KINDS: [(&str, &str, Option<Way>); 3] =
    [("plains", "Plain", None), ("paths", "Path", Some(Way::Path)), ("exprs", "Expr", Some(Way::Expression))];

async fn run(count: usize, rounds: usize) -> Result<(), Failure> {
    let features = Features::default().with(Gate::CRDAdditionalPrinterColumnCEL, true);
    let tokens = Authenticator::parse_tokens("admin,admin,1,system:masters\n")?;
    // All cells are wanted here.
    let options = Options { features, tokens, table_cost_max: u64::MAX, ..Options::without_controllers() };
    let server = Server::start(Arc::new(EmbeddedStore::in_memory(store::Options::default())?), options).await?;
    for (plural, kind, way) in KINDS {
        let columns: Vec<Value> = way.map_or_else(Vec::new, |way| ALL.iter().map(|it| it.definition(way)).collect());
        let definition = definition(plural, kind, columns);
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        send(&server, "POST", path, json::to_string(&definition)).await?;
        for number in 0..count {
            let body = json::to_string(&object(kind, &format!("object-{number:05}")));
            send(&server, "POST", &path_of(plural), body).await?;
        }
    }
    let mut best = [Duration::MAX; 3];
    let mut sizes = [0; 3];
    for _ in 0..rounds {
        for ((plural, ..), (best, size)) in KINDS.iter().zip(best.iter_mut().zip(&mut sizes)) {
            let started = Instant::now();
            *size = send(&server, "GET", &path_of(plural), String::new()).await?;
            *best = started.elapsed().min(*best);
        }
    }
    let [plain, path, expression] = best.map(|it| it.as_secs_f64() * 1e3);
    println!("a table of {count} objects, best of {rounds}, ms");
    println!("age only {plain:8.1}   ({} bytes)", sizes.first().copied().unwrap_or_default());
    println!("5 paths  {path:8.1}   ({} bytes)", sizes.get(1).copied().unwrap_or_default());
    println!("5 CEL    {expression:8.1}   ({} bytes)", sizes.get(2).copied().unwrap_or_default());
    println!(
        "CEL / JSONPath {:.2} x, of the columns alone {:.2} x",
        expression / path,
        (expression - plain) / (path - plain)
    );
    server.stop().await?;
    Ok(())
}

fn path_of(plural: &str) -> String {
    format!("/apis/bench.example.com/v1/namespaces/default/{plural}")
}

fn definition(plural: &str, kind: &str, columns: Vec<Value>) -> Value {
    let name = format!("{plural}.bench.example.com");
    let schema = schema();
    api::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": columns
            }]
        }
    })
}

/// Sends a request that must succeed; gives back the length of the answer.
async fn send(server: &Arc<Server>, method: &str, path: &str, body: String) -> Result<usize, Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Authorization", "Bearer admin")
        .header("Accept", TABLE)
        .body(Full::new(Bytes::from(body)))?;
    let response = server.handle(request, None).await;
    let status = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes)).into());
    }
    Ok(bytes.len())
}
