//! The feed of the cluster map: every node and pod in a compact form, then their changes.
//!
//! The informers run while a map is open, and some minutes longer, and are shared by all sessions. Changes that a slow reader has not read yet are joined by key, so
//! that no more waits than there are objects.

use locks::Mutex;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::{self, ConvertError, Text, Value};
use api::meta::v1::Object as _;
use bytes::Bytes;
use client::informer::{Change, Changes, Key};
use client::objects::Selection;
use client::{Client, Error, Informer, Resource};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use matching::resources::{Options, requests};
use tokio::sync::{Notify, mpsc};

use crate::responses::{self, AnyError, Body};

const NODES: Resource = Resource::new("", "v1", "nodes", "Node");
const PODS: Resource = Resource::new("", "v1", "pods", "Pod");
/// Objects in one line of the stream.
const LINE_OBJECTS_MAX: usize = 2_000;
/// Lines that wait for the reader.
const LINES_MAX: usize = 4;
/// Changes are collected for this long before they are sent.
const PAUSE: Duration = Duration::from_millis(100);
/// The collections are kept for this long after the last map was closed: the next one opens at once.
const KEPT: Duration = Duration::from_secs(600);
/// Interval at which objects are sent while the collections are being read.
const READ_PAUSE: Duration = Duration::from_millis(20);
/// Labels of a node longer than this in total are not sent: nodes have a few hundred bytes of them.
const LABELS_MAX: usize = 100;

/// A node as expressions see it.
#[derive(Debug)]
pub struct NodeView {
    /// Its name.
    pub name: Text,
    /// Its labels, an object.
    pub labels: Value,
    /// Its taints, a list.
    pub taints: Value,
    /// Milli-CPU, bytes of memory, number of pods.
    allocatable: [i64; 3],
    is_ready: bool,
    is_cordoned: bool,
}

impl NodeView {
    fn read(document: &Value) -> Result<Self, ConvertError> {
        let node = Node::read(document)?;
        let allocatable = &node.status.allocatable;
        let amount = |name: &str| {
            allocatable.get(name).map_or(0, |it| if name == "cpu" { it.milli_value() } else { it.value() })
        };
        let conditions = document.list_at(&["status", "conditions"]);
        let is_ready = |it: &Value| it.str_at(&["type"]) == Some("Ready") && it.str_at(&["status"]) == Some("True");
        let labels = document.object_at(&["metadata", "labels"]);
        let labels = labels.into_iter().flat_map(|it| it.iter().take(LABELS_MAX));
        Ok(Self {
            name: node.metadata.name.clone(),
            labels: Value::Object(labels.map(|(key, value)| (key, value.clone())).collect()),
            taints: document.at(&["spec", "taints"]).cloned().unwrap_or_else(|| Value::Array(Vec::new())),
            allocatable: [amount("cpu"), amount("memory"), amount("pods")],
            is_ready: conditions.iter().any(is_ready),
            is_cordoned: node.spec.unschedulable,
        })
    }

    fn line(&self) -> Value {
        let [cpu, memory, pods] = self.allocatable;
        Value::Array(vec![
            Value::from(self.name.as_str()),
            Value::from(cpu),
            Value::from(memory),
            Value::from(pods),
            Value::from(self.is_ready),
            Value::from(self.is_cordoned),
            self.labels.clone(),
            self.taints.clone(),
        ])
    }
}

/// A pod on the map.
#[derive(Debug)]
struct PodView {
    node: Text,
    phase: Text,
    milli_cpu: i64,
    memory: i64,
    is_ending: bool,
}

impl PodView {
    fn read(document: &Value) -> Result<Self, ConvertError> {
        let pod = Pod::read(document)?;
        let requested = requests(&pod.spec, Options::default());
        let amount =
            |name: &str| requested.get(name).map_or(0, |it| if name == "cpu" { it.milli_value() } else { it.value() });
        Ok(Self {
            milli_cpu: amount("cpu"),
            memory: amount("memory"),
            phase: document.str_at(&["status", "phase"]).unwrap_or("Unknown").into(),
            is_ending: document.at(&["metadata", "deletionTimestamp"]).is_some(),
            node: pod.spec.node_name,
        })
    }

    fn line(&self, key: &Key) -> Value {
        let phase = if self.is_ending { "Terminating" } else { self.phase.as_str() };
        Value::Array(vec![
            Value::from(key.namespace.as_str()),
            Value::from(key.name.as_str()),
            Value::from(self.node.as_str()),
            Value::from(self.milli_cpu),
            Value::from(self.memory),
            Value::from(phase),
        ])
    }
}

/// The collections behind all open maps.
struct Feed {
    nodes: Informer<NodeView>,
    pods: Informer<PodView>,
}

/// The source of all maps.
pub(crate) struct Map {
    client: Client,
    feed: Mutex<Weak<Feed>>,
}

impl Map {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, feed: Mutex::default() }
    }

    fn feed(&self) -> Arc<Feed> {
        let mut feed = self.feed.lock();
        if let Some(running) = feed.upgrade() {
            return running;
        }
        let all = Selection::default();
        let started = Arc::new(Feed {
            nodes: Informer::decoding(&self.client, NODES, all.clone(), |it| NodeView::read(&it)),
            pods: Informer::decoding(&self.client, PODS, all, |it| PodView::read(&it)),
        });
        *feed = Arc::downgrade(&started);
        started
    }

    /// Checks that the user may read a collection: informers retry forever, but the page shows the error.
    async fn check(&self, path: &str) -> Result<(), Error> {
        self.client.get_as(path, "application/json").await.map(|_| ())
    }

    /// All nodes, from the open map or else read once.
    pub(crate) async fn nodes(&self) -> Result<Vec<Arc<NodeView>>, Error> {
        let running = self.feed.lock().upgrade();
        if let Some(feed) = running.filter(|feed| feed.nodes.has_synced()) {
            return Ok(feed.nodes.store().list());
        }
        let list = self.client.documents(NODES).list(&Selection::default()).await?;
        let nodes = list.items.iter().map(|node| NodeView::read(node).map(Arc::new));
        Ok(nodes.collect::<Result<_, _>>()?)
    }

    /// One JSON object a line: first everything, then `{"synced": true}`, then changes.
    pub(crate) async fn stream(&self) -> Response<Body> {
        for path in ["/api/v1/nodes?limit=1", "/api/v1/pods?limit=1"] {
            if let Err(error) = self.check(path).await {
                return responses::cluster_error(&error);
            }
        }
        let feed = self.feed();
        let (lines, received) = mpsc::channel(LINES_MAX);
        tokio::spawn(follow(feed, lines));
        responses::with_type(StatusCode::OK, "application/x-ndjson", LinesBody(received).boxed_unsync())
    }
}

/// Sends everything while it is read, then changes, until the reader has gone.
async fn follow(feed: Arc<Feed>, lines: mpsc::Sender<Bytes>) {
    send(&feed, lines).await;
    tokio::time::sleep(KEPT).await;
}

async fn send(feed: &Feed, lines: mpsc::Sender<Bytes>) {
    let ready = Arc::new(Notify::new());
    let mut nodes = feed.nodes.changes_waking(ready.clone());
    let mut pods = feed.pods.changes_waking(ready.clone());
    let mut is_complete = false;
    loop {
        // Asked first: what comes after it is a change.
        let has_synced = feed.nodes.has_synced() && feed.pods.has_synced();
        let mut line = json::Object::new();
        let mut gone = json::Object::new();
        let mut room = LINE_OBJECTS_MAX;
        take(&mut nodes, &mut room, "nodes", &mut line, &mut gone, |_, node| node.line());
        take(&mut pods, &mut room, "pods", &mut line, &mut gone, |key, pod| pod.line(key));
        if !gone.is_empty() {
            line.insert("gone", Value::Object(gone));
        }
        let is_idle = line.is_empty();
        if is_idle && has_synced && !is_complete {
            is_complete = true;
            line.insert("synced", true);
        }
        if !line.is_empty() {
            let mut text = json::to_string(&Value::Object(line));
            text.push('\n');
            if lines.send(text.into()).await.is_err() {
                return;
            }
        }
        if is_idle && is_complete {
            tokio::select! {
                () = ready.notified() => {}
                () = lines.closed() => return,
            }
            tokio::time::sleep(PAUSE).await;
        } else if is_idle {
            if lines.is_closed() {
                return;
            }
            tokio::time::sleep(READ_PAUSE).await;
        }
    }
}

/// Moves changes that wait into a line.
fn take<T: Send + Sync + 'static>(
    changes: &mut Changes<T>,
    room: &mut usize,
    name: &'static str,
    line: &mut json::Object,
    gone: &mut json::Object,
    of: impl Fn(&Key, &T) -> Value,
) {
    let (mut set, mut removed) = (Vec::new(), Vec::new());
    while *room > 0
        && let Some((key, change)) = changes.try_next()
    {
        *room = room.saturating_sub(1);
        match change {
            Change::Deleted(_) => removed.push(Value::from(key.to_string())),
            Change::Added(object) | Change::Updated { new: object, .. } => set.push(of(&key, &object)),
        }
    }
    if !set.is_empty() {
        line.insert(name, Value::Array(set));
    }
    if !removed.is_empty() {
        gone.insert(name, Value::Array(removed));
    }
}

/// Lines as they come.
struct LinesBody(mpsc::Receiver<Bytes>);

impl http_body::Body for LinesBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        self.0.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
