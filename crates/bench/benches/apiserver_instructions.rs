//! How many instructions does a request take inside the server, without network and disk? Counted by callgrind, so that
//! a busy machine does not matter.
//!
//! The bench starts itself under `valgrind`, once with few repetitions and once with more; the difference is what the
//! additional ones took. Without `--bench` it checks that every request is answered.

use std::process::{Command, ExitCode};
use std::sync::Arc;

use api::features::Features;
use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use celplane_bench::load::pods;
use celplane_bench::table::{NONE, Table};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use store::EmbeddedStore;

/// Flag that makes the bench repeat one workload: name and number.
const REPEAT: &str = "--repeat";

/// Workloads, with the number of repetitions in the shorter and the longer run.
const WORK: [(&str, u64, u64); 9] = [
    ("create", 50, 250),
    ("get", 100, 1100),
    ("get by role", 100, 1100),
    ("update", 50, 250),
    ("patch", 50, 250),
    ("patch, bound pod", 50, 250),
    ("patch, bound pod, a node has asked", 50, 250),
    ("list, 500 pods", 2, 12),
    ("table, 500 pods", 2, 12),
];

/// Number of existing pods.
const PODS: usize = 500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some([_, what, count]) = arguments.iter().position(|it| it == REPEAT).and_then(|at| arguments.get(at..)) {
        return count.parse().map_or(ExitCode::FAILURE, |count| repeat(what, count));
    }
    if arguments.iter().any(|argument| argument == "--bench") {
        show();
        return ExitCode::SUCCESS;
    }
    WORK.iter().map(|(what, ..)| repeat(what, 2)).find(|code| *code != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}

fn show() {
    println!("How many instructions does a request take inside the server? (callgrind, store in memory)");
    let mut table = Table::new(["request", "instructions"].map(str::to_owned));
    for (what, few, many) in WORK {
        let once = instructions(what, many)
            .zip(instructions(what, few))
            .map(|(more, less)| more.saturating_sub(less).checked_div(many.saturating_sub(few)).unwrap_or_default());
        table.row([what.to_owned(), once.map_or_else(|| NONE.to_owned(), |once| once.to_string())]);
    }
    println!("{table}");
}

/// Counts the instructions of a run of this program; nothing where there is no valgrind.
fn instructions(what: &str, count: u64) -> Option<u64> {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args([REPEAT, what, &count.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split_once("Collected : "))?.1;
    run.status.success().then(|| collected.trim().parse().ok())?
}

fn repeat(what: &str, count: u64) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(work(what, count)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{what}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work(what: &str, count: u64) -> anyhow::Result<()> {
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default())?);
    let server =
        Server::start(store, Options { features: Features::default(), ..Options::without_controllers() }).await?;
    let admin = User::authenticated("admin", &["system:masters"]);
    // Has its rights from roles, not from being the master.
    let scheduler = User::authenticated("system:kube-scheduler", &[]);
    let namespace = format!(r#"{{"metadata":{{"name":"{}"}}}}"#, pods::NAMESPACE);
    send(&server, &admin, Method::POST, "/api/v1/namespaces", "", namespace).await?;
    let collection = pods::collection();
    for number in 0..PODS {
        send(&server, &admin, Method::POST, &collection, "", pods::pod(&pods::name(number))).await?;
    }
    let one = format!("{collection}/{}", pods::name(7));
    let document = send(&server, &admin, Method::GET, &one, "", String::new()).await?;
    let document = String::from_utf8(document.to_vec())?;
    let bound = format!("{collection}/bound");
    if what.starts_with("patch, bound pod") {
        let pod = pods::pod("bound").replacen(r#""spec":{"#, r#""spec":{"nodeName":"n1","#, 1);
        send(&server, &admin, Method::POST, &collection, "", pod).await?;
    }
    if what.ends_with("a node has asked") {
        let node = User::authenticated("system:node:n1", &["system:nodes"]);
        let own = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1";
        send(&server, &node, Method::GET, own, "", String::new()).await?;
    }
    for number in 1..=count {
        let fresh = pods::name(PODS.saturating_add(usize::try_from(number)?));
        let none = String::new();
        match what {
            "create" => send(&server, &admin, Method::POST, &collection, "", pods::pod(&fresh)).await?,
            "get" => send(&server, &admin, Method::GET, &one, "", none).await?,
            "get by role" => send(&server, &scheduler, Method::GET, &one, "", none).await?,
            "update" => send(&server, &admin, Method::PUT, &one, "", pods::with_round(&document, number)).await?,
            "patch" => {
                let media = "application/merge-patch+json";
                send(&server, &admin, Method::PATCH, &one, media, pods::patch(number)).await?
            }
            "patch, bound pod" | "patch, bound pod, a node has asked" => {
                let media = "application/merge-patch+json";
                send(&server, &admin, Method::PATCH, &bound, media, pods::patch(number)).await?
            }
            "list, 500 pods" => send(&server, &admin, Method::GET, &collection, "", none).await?,
            "table, 500 pods" => {
                let media = "application/json;as=Table;v=v1;g=meta.k8s.io";
                send(&server, &admin, Method::GET, &collection, media, none).await?
            }
            _ => anyhow::bail!("there is no such work"),
        };
    }
    server.stop().await?;
    Ok(())
}

/// Sends a request and reads the whole response. `media` is the content type of a write, or the accepted type
/// of a read.
async fn send(
    server: &Arc<Server>,
    user: &User,
    method: Method,
    path: &str,
    media: &str,
    body: String,
) -> anyhow::Result<Bytes> {
    let media = if media.is_empty() { "application/json" } else { media };
    let header = if method == Method::GET { http::header::ACCEPT } else { http::header::CONTENT_TYPE };
    let request =
        Request::builder().method(method).uri(path).header(header, media).body(Full::new(Bytes::from(body)))?;
    let answer = server.handle(request, Some(user)).await;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status.is_success(), "answered {status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}
