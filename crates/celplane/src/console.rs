//! Answers to the console's questions.
//!
//! Explanations and simulations run as a child process of this program, `celplane why` and `celplane simulate`: the answer is the one that
//! the command prints, and work that takes too long can be ended. Expressions are evaluated in this process, within their cost limits.

mod expressions;
mod simulation;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use ::console::{Answer, Cluster, Console, Engine, Failure, NodeView, Topic};
use anyhow::{Context as _, Result};
use api::json::{self, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;

/// An answer of a child process has at most this many bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Child processes that run at the same time.
const PROCESSES_MAX: usize = 2;
/// Number of nodes of which an explanation has every detail; of the others it has the verdicts that fail.
const DETAILED_NODES_MAX: usize = 200;

/// This program as a child process, for the same cluster.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    program: PathBuf,
    /// `--kubeconfig` and `--context`, as this process was started with.
    flags: Vec<OsString>,
    places: Arc<Semaphore>,
}

impl Process {
    /// Creates the runner of child processes, which receive these flags to connect to the cluster.
    pub(crate) fn new(flags: Vec<OsString>) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        Ok(Self { program, flags, places: Arc::new(Semaphore::new(PROCESSES_MAX)) })
    }

    /// Runs a subcommand that prints JSON. Exit code 1 means that the answer is no; a dropped future ends the process.
    async fn run(&self, arguments: Vec<OsString>, input: Option<String>) -> Result<String, Failure> {
        let failed = |message: String| Failure { code: 502, message };
        let _place = self.places.acquire().await.map_err(|error| failed(error.to_string()))?;
        let mut child = Command::new(&self.program)
            .args(arguments)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(format!("cannot start a process: {error}")))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A process that has failed does not read to the end; its message counts.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let (mut answer, mut complaint) = (Vec::new(), Vec::new());
        let read = async {
            if let Some(stdout) = stdout {
                stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
            }
            std::io::Result::Ok(())
        };
        let complain = async {
            if let Some(stderr) = stderr {
                stderr.take(64 << 10).read_to_end(&mut complaint).await?;
            }
            std::io::Result::Ok(())
        };
        let ((), read, complained) = tokio::join!(write, read, complain);
        read.and(complained).map_err(|error| failed(format!("the answer could not be read: {error}")))?;
        let status = child.wait().await.map_err(|error| failed(error.to_string()))?;
        if matches!(status.code(), Some(0 | 1)) && !answer.is_empty() {
            return String::from_utf8(answer).map_err(|error| failed(error.to_string()));
        }
        let complaint = String::from_utf8_lossy(&complaint);
        let complaint = complaint.trim().strip_prefix("error: ").unwrap_or(complaint.trim());
        Err(Failure::invalid(if complaint.is_empty() { "the process ended without an answer" } else { complaint }))
    }
}

/// Binds a console that answers by this program.
pub(crate) async fn bind(
    port: u16,
    cluster: Cluster,
    process: Process,
    on_url: impl Fn(&str) + Send + Sync + 'static,
) -> std::io::Result<Console> {
    let engine = Answers { process, client: cluster.client.clone() };
    Console::bind(port, cluster, Arc::new(engine), on_url).await
}

/// The engine of the console.
struct Answers {
    process: Process,
    client: client::Client,
}

impl Engine for Answers {
    fn answer(&self, topic: Topic, question: Value, nodes: Vec<Arc<NodeView>>) -> Answer {
        let process = self.process.clone();
        match topic {
            Topic::Why => Box::pin(async move { why(&process, &question).await }),
            Topic::Simulate => {
                let client = self.client.clone();
                Box::pin(async move { simulation::answer(&process, &client, &question).await })
            }
            Topic::Evaluate => in_thread(move || expressions::evaluate(&question)),
            Topic::Complete => in_thread(move || expressions::complete(&question)),
            Topic::Match => in_thread(move || expressions::match_nodes(&question, &nodes)),
        }
    }
}

/// Runs a computation on a thread of its own: the threads of connections stay free.
fn in_thread(work: impl FnOnce() -> Result<Value, Failure> + Send + 'static) -> Answer {
    Box::pin(async move {
        let done = tokio::task::spawn_blocking(work).await;
        let value = done.map_err(|error| Failure { code: 500, message: error.to_string() })??;
        Ok(json::to_string(&value))
    })
}

/// Explains one pod.
async fn why(process: &Process, question: &Value) -> Result<String, Failure> {
    let field = |name: &str| question.str_at(&[name]).filter(|text| is_name(text));
    let (Some(namespace), Some(name)) = (field("namespace"), field("name")) else {
        return Err(Failure::invalid("the name and namespace of a pod are expected"));
    };
    let mut arguments: Vec<OsString> = vec!["why".into(), "--output=json".into(), "--timeout=30s".into()];
    arguments.extend(process.flags.iter().cloned());
    arguments.push(format!("--namespace={namespace}").into());
    arguments.push(format!("--name=pod/{name}").into());
    let text = process.run(arguments, None).await?;
    let Ok(mut report) = json::parse(text.as_bytes()) else {
        return Err(Failure { code: 502, message: "the explanation is not complete: it is too large".to_owned() });
    };
    shorten(&mut report);
    Ok(json::to_string(&report))
}

/// Whether a text can be the name of an object.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

/// Drops the details of most nodes of a large cluster, and counts the nodes.
fn shorten(report: &mut Value) {
    let Some(nodes) = report.get_mut("nodes").and_then(Value::as_array_mut) else { return };
    let is_fitting = |node: &Value| node.get("fits").and_then(Value::as_bool) == Some(true);
    let failing = |node: &Value| {
        let plugins = node.get("plugins").and_then(Value::as_array).unwrap_or_default();
        plugins.iter().filter(|it| it.get("passes").and_then(Value::as_bool) == Some(false)).count()
    };
    let (total, fitting) = (nodes.len(), nodes.iter().filter(|node| is_fitting(node)).count());
    // Nodes that fit come first, then those that lack least.
    nodes.sort_by_cached_key(|node| (!is_fitting(node), failing(node)));
    for node in nodes.iter_mut().skip(DETAILED_NODES_MAX) {
        let Some(fields) = node.as_object_mut() else { continue };
        fields.retain(|name, _| matches!(name, "name" | "fits" | "plugins" | "score"));
        if let Some(plugins) = fields.get_mut("plugins").and_then(Value::as_array_mut) {
            plugins.retain(|it| it.get("passes").and_then(Value::as_bool) == Some(false));
        }
        fields.insert("isShort", true);
    }
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    if let Some(fields) = report.as_object_mut() {
        fields.insert("nodeCount", count(total));
        fields.insert("fittingCount", count(fitting));
    }
}

/// Opens a URL with the desktop's browser.
pub(crate) fn open_browser(url: &str) -> Result<()> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = std::process::Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot start `{program}`"))?;
    // The opener ends early; waiting for it keeps it from remaining as a zombie.
    std::thread::spawn(move || child.wait());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_not_names() {
        assert!(is_name("web-0") && is_name("a.b"));
        for text in ["", "--kubeconfig=x", "a/b", "a b", "A", "é"] {
            assert!(!is_name(text), "{text}");
        }
    }
}
